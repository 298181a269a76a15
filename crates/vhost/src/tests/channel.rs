//! A channel against a model that keeps a list of all deliveries, and confirms as a client reads them.

use super::rig::{consume, short};
use super::{Chance, seeds};
use crate::act::Consumer;
use crate::faults::{Fault, with};
use crate::*;
use amqp::{Method, Table, Value, basic};
use std::collections::BTreeMap;

fn ack(delivery_tag: u64, multiple: bool) -> basic::Ack {
    basic::Ack {
        delivery_tag,
        multiple,
    }
}

fn nack(delivery_tag: u64, multiple: bool, requeue: bool) -> basic::Nack {
    basic::Nack {
        delivery_tag,
        multiple,
        requeue,
    }
}

fn qos(prefetch_count: u16, global: bool) -> basic::Qos {
    basic::Qos {
        prefetch_size: 0,
        prefetch_count,
        global,
    }
}

fn channel() -> Channel<u64> {
    Channel::new("/", ChannelLimits::default())
}

/// Begins a consumer of a queue.
fn begin(channel: &mut Channel<u64>, tag: &str, queue: u64, no_ack: bool) {
    let asked = basic::Consume {
        consumer_tag: short(tag),
        no_ack,
        ..consume("q")
    };
    let new = channel.check_consumer(&asked, 0).unwrap();
    let queue = QueueId(queue);
    assert_eq!(&*channel.begin_consumer(new, Consumer { queue }), tag);
}

/// One delivery of the model.
#[derive(Debug, Clone)]
struct Sent {
    queue: u64,
    message: u64,
    /// The consumer by its number, or nobody's.
    consumer: Option<usize>,
    outstanding: bool,
}

/// One consumer of the model.
#[derive(Debug, Clone)]
struct Asked {
    tag: String,
    queue: u64,
    no_ack: bool,
    prefetch: u16,
    begun: bool,
}

/// All deliveries, of which the tag is the place counted from 1, and all consumers.
#[derive(Debug, Default)]
struct Book {
    sent: Vec<Sent>,
    consumers: Vec<Asked>,
    prefetch: u16,
    prefetch_of_all: u16,
}

impl Book {
    fn outstanding(&self, of: impl Fn(&Sent) -> bool) -> usize {
        self.sent
            .iter()
            .filter(|one| one.outstanding && of(one))
            .count()
    }

    fn number(&self, tag: &str) -> Option<usize> {
        self.consumers
            .iter()
            .position(|one| one.begun && one.tag == tag)
    }

    fn may_have_more(&self, number: usize) -> bool {
        let asked = &self.consumers[number];
        let own = self.outstanding(|one| one.consumer == Some(number));
        let all = self.outstanding(|one| one.consumer.is_some());
        let is_below = |max: u16, count: usize| max == 0 || count < usize::from(max);
        asked.no_ack || (is_below(asked.prefetch, own) && is_below(self.prefetch_of_all, all))
    }

    /// What a tag settles, or `None` if it is not known.
    fn settle(&mut self, tag: u64, multiple: bool) -> Option<Vec<u64>> {
        let is_meant = |at: u64| match (multiple, tag) {
            (true, 0) => true,
            (true, tag) => at <= tag,
            (false, tag) => at == tag,
        };
        let is_known = tag <= self.sent.len() as u64;
        let mut settled = Vec::new();
        for (at, one) in (1..).zip(&mut self.sent) {
            if is_known && is_meant(at) && one.outstanding {
                one.outstanding = false;
                settled.push(one.message);
            }
        }
        (!settled.is_empty() || (multiple && tag == 0)).then_some(settled)
    }
}

fn messages(released: Result<Released<u64>, amqp::Failure>, how: Settlement) -> Option<Vec<u64>> {
    match released {
        Ok(released) => {
            assert_eq!(released.settlement, how);
            Some(
                released
                    .deliveries
                    .into_iter()
                    .map(|one| one.message)
                    .collect(),
            )
        }
        Err(failure) => {
            assert!(
                failure
                    .to_string()
                    .starts_with("PRECONDITION_FAILED - unknown delivery tag ")
            );
            None
        }
    }
}

fn deliveries_are_settled_as_in_the_model_for(count: u64) {
    for seed in seeds(count) {
        let mut chance = Chance(seed);
        let mut channel = channel();
        let mut book = Book::default();
        let hint = format!("VHOST_SEEDS={seed}..{}", seed + 1);
        for message in 0..200 {
            let tag = chance.of(&["c0", "c1", "c2"]);
            let (queue, no_ack) = (chance.below(3) as u64, chance.one_in(4));
            match chance.below(20) {
                0 | 1 if book.number(tag).is_none() => {
                    begin(&mut channel, tag, queue, no_ack);
                    book.consumers.push(Asked {
                        tag: tag.to_owned(),
                        queue,
                        no_ack,
                        prefetch: book.prefetch,
                        begun: true,
                    });
                }
                2 => {
                    let found = channel.cancel(&short(tag)).map(|one| one.queue());
                    let number = book.number(tag);
                    let expected = number.map(|number| QueueId(book.consumers[number].queue));
                    assert_eq!(found, expected, "{hint}");
                    number.inspect(|number| book.consumers[*number].begun = false);
                }
                3 if chance.one_in(3) => {
                    let cancelled = channel.cancel_all_of(QueueId(queue));
                    let of_it = book.consumers.iter_mut();
                    let of_it = of_it.filter(|one| one.begun && one.queue == queue);
                    let expected: std::collections::BTreeSet<_> = of_it
                        .map(|one| {
                            one.begun = false;
                            one.tag.clone()
                        })
                        .collect();
                    let found = cancelled.iter().map(|(tag, _)| tag.to_string()).collect();
                    assert_eq!(expected, found, "{hint}");
                }
                4 => {
                    let (limit, global) = (chance.below(4) as u16, chance.one_in(2));
                    channel.qos(&qos(limit, global));
                    match global {
                        true => book.prefetch_of_all = limit,
                        false => {
                            book.prefetch = limit;
                            book.prefetch_of_all = 0;
                        }
                    }
                }
                5..12 => {
                    let number = book.number(tag);
                    let may = number.is_some_and(|number| book.may_have_more(number));
                    let delivered = channel.deliver(&short(tag), message);
                    assert_eq!(delivered.is_ok(), may, "{hint}: {book:?}");
                    if let Ok(delivered) = delivered {
                        let asked = &book.consumers[number.unwrap()];
                        book.sent.push(Sent {
                            queue: asked.queue,
                            message,
                            consumer: number,
                            outstanding: !asked.no_ack,
                        });
                        assert_eq!(delivered, book.sent.len() as u64, "{hint}");
                    }
                }
                12 => {
                    let delivered = channel.fetch(QueueId(queue), message, no_ack);
                    book.sent.push(Sent {
                        queue,
                        message,
                        consumer: None,
                        outstanding: !no_ack,
                    });
                    assert_eq!(delivered, book.sent.len() as u64, "{hint}");
                }
                13 if chance.one_in(4) => {
                    let found = Ok(channel.recover());
                    let expected = book.settle(0, true);
                    assert_eq!(messages(found, Settlement::Requeue), expected, "{hint}");
                }
                _ => {
                    let tag = chance.below(book.sent.len() + 3) as u64;
                    let (multiple, requeue) = (chance.one_in(3), chance.one_in(2));
                    let negative = match requeue {
                        true => Settlement::Requeue,
                        false => Settlement::Discard,
                    };
                    let (found, how, multiple) = match chance.below(4) {
                        0 => {
                            let found = channel.negate(&nack(tag, multiple, requeue));
                            (found, negative, multiple)
                        }
                        1 => {
                            let delivery_tag = tag;
                            let reject = basic::Reject {
                                delivery_tag,
                                requeue,
                            };
                            (channel.reject(&reject), negative, false)
                        }
                        _ => {
                            let found = channel.acknowledge(&ack(tag, multiple));
                            (found, Settlement::Acknowledge, multiple)
                        }
                    };
                    let expected = book.settle(tag, multiple);
                    assert_eq!(messages(found, how), expected, "{hint}: {tag} {multiple}");
                }
            }
            channel.check();
        }
        let left = book.sent.iter().filter(|one| one.outstanding);
        let left: Vec<_> = left.map(|one| (QueueId(one.queue), one.message)).collect();
        let begun = book.consumers.iter().filter(|one| one.begun).count();
        let closed = channel.close();
        let found: Vec<_> = closed
            .deliveries
            .into_iter()
            .map(|one| (one.queue, one.message))
            .collect();
        assert_eq!((found, closed.consumers.len()), (left, begun), "{hint}");
    }
}

#[test]
fn deliveries_are_settled_as_in_the_model() {
    deliveries_are_settled_as_in_the_model_for(400);
}

/// Each message has one confirm, of the right kind, when all its queues have answered, as a client reads `multiple`.
fn confirms_are_right_for(count: u64) {
    for seed in seeds(count) {
        let mut chance = Chance(seed);
        let mut channel = channel();
        let hint = format!("VHOST_SEEDS={seed}..{}", seed + 1);
        // By number: queues that have not answered, and whether all others have it.
        let mut published: BTreeMap<u64, (usize, bool)> = BTreeMap::new();
        let (mut number, mut confirms) = (0, 0);
        for step in 0..300 {
            let waiting = published.iter().filter(|(_, (queues, _))| *queues > 0);
            let waiting: Vec<_> = waiting.map(|(number, _)| *number).collect();
            match chance.below(8) {
                0..3 if step < 200 => {
                    number += 1;
                    let queues = chance.below(3);
                    let publishing = channel.publish(Some(number), queues, chance.one_in(2));
                    assert_eq!(queues > 0, publishing == Publishing::Append, "{hint}");
                    published.insert(number, (queues, true));
                }
                3 => {
                    for confirm in channel.confirms() {
                        confirms += 1;
                        let (tag, multiple, kept) = match confirm {
                            Method::BasicAck(ack) => (ack.delivery_tag, ack.multiple, true),
                            Method::BasicNack(nack) => (nack.delivery_tag, nack.multiple, false),
                            other => panic!("{other:?}"),
                        };
                        let from = if multiple { 0 } else { tag };
                        let meant = published.range(from..=tag);
                        let meant: Vec<_> = meant.map(|(number, _)| *number).collect();
                        assert!(!meant.is_empty(), "{hint}: {tag} has its confirm");
                        for number in meant {
                            assert_eq!(
                                published.remove(&number),
                                Some((0, kept)),
                                "{hint}: {number}"
                            );
                        }
                    }
                }
                _ if !waiting.is_empty() => {
                    let number = waiting[chance.below(waiting.len())];
                    let kept = !chance.one_in(6);
                    channel.answered(number, kept);
                    let (queues, all) = published.get_mut(&number).unwrap();
                    *queues -= 1;
                    *all &= kept;
                }
                _ => {}
            }
        }
        let waiting: Vec<_> = published
            .iter()
            .map(|(number, one)| (*number, one.0))
            .collect();
        for (number, queues) in waiting {
            (0..queues).for_each(|_| channel.answered(number, true));
        }
        channel.confirms();
        assert!(!channel.is_full() && confirms <= number, "{hint}");
        assert_eq!(channel.confirms(), [], "{hint}");
    }
}

#[test]
fn confirms_are_right() {
    confirms_are_right_for(400);
}

macro_rules! noticed {
    ($($name:ident: $fault:ident, $test:ident;)*) => {$(
        #[test]
        #[should_panic]
        fn $name() {
            with(Fault::$fault, || $test(400));
        }
    )*};
}

noticed! {
    multiple_that_is_one_is_noticed: MultipleIsOne, deliveries_are_settled_as_in_the_model_for;
    a_prefetch_count_that_is_none_is_noticed: NoPrefetch, deliveries_are_settled_as_in_the_model_for;
    a_fetch_that_counts_is_noticed: FetchedCounts, deliveries_are_settled_as_in_the_model_for;
    a_confirm_of_the_first_queue_is_noticed: FirstQueueConfirms, confirms_are_right_for;
    a_refusal_that_is_confirmed_is_noticed: RefusedIsKept, confirms_are_right_for;
    a_confirm_over_what_waits_is_noticed: MultipleOverAll, confirms_are_right_for;
}

/// Confirms of messages behind each other are one, and one that waits is not among them.
#[test]
fn confirms_behind_each_other_are_one() {
    let mut channel = channel();
    for number in 1..=8 {
        let _ = channel.publish(Some(number), 1, false);
    }
    for number in [2, 1, 3, 5, 6, 8] {
        channel.answered(number, number != 3);
    }
    let expected: [Method; 5] = [
        ack(2, true).into(),
        nack(3, false, false).into(),
        ack(5, false).into(),
        ack(6, false).into(),
        ack(8, false).into(),
    ];
    assert_eq!(channel.confirms(), expected);
    channel.answered(4, true);
    channel.answered(7, true);
    assert_eq!(channel.confirms(), [ack(7, true).into()]);
}

/// A program that counts all deliveries of its channel acknowledges across those that needed nothing.
#[test]
fn multiple_goes_across_what_needs_no_acknowledgement() {
    let mut channel = channel();
    begin(&mut channel, "assign", 1, true);
    begin(&mut channel, "work", 2, false);
    let (assign, work) = (short("assign"), short("work"));
    assert_eq!(channel.deliver(&assign, 100), Ok(1));
    assert_eq!(channel.deliver(&work, 101), Ok(2));
    assert_eq!(channel.deliver(&work, 102), Ok(3));
    assert_eq!(channel.deliver(&assign, 103), Ok(4));
    let released = channel.acknowledge(&ack(4, true));
    assert_eq!(
        messages(released, Settlement::Acknowledge),
        Some(vec![101, 102])
    );
    let failure = channel.acknowledge(&ack(4, true)).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - unknown delivery tag 4"
    );
    assert_eq!(failure.method, Some(basic::Ack::ID));
}

/// A prefetch count of the channel is for all its consumers, one of a consumer for those that begin later.
#[test]
fn prefetch_counts_limit_deliveries() {
    let mut channel = channel();
    begin(&mut channel, "before", 1, false);
    channel.qos(&qos(2, false));
    begin(&mut channel, "after", 1, false);
    channel.qos(&qos(3, true));
    let (before, after) = (short("before"), short("after"));
    assert_eq!(
        (channel.capacity(&before), channel.capacity(&after)),
        (3, 2)
    );
    assert_eq!(channel.deliver(&after, 1), Ok(1));
    assert_eq!(channel.deliver(&after, 2), Ok(2));
    assert_eq!(channel.deliver(&after, 3), Err(3));
    assert_eq!(
        (channel.capacity(&before), channel.capacity(&after)),
        (1, 0)
    );
    // What a consumer that has ended has not settled counts for the channel on.
    assert!(channel.cancel(&after).is_some());
    assert_eq!(channel.capacity(&before), 1);
    channel.acknowledge(&ack(1, false)).map(drop).unwrap();
    assert_eq!(channel.capacity(&before), 2);
}

/// The queue that was declared last stands for one without a name.
#[test]
fn the_queue_declared_last_is_meant() {
    let mut channel = channel();
    let get = basic::Get::ID;
    let failure = channel.queue_name("", get).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "NOT_FOUND - no previously declared queue"
    );
    channel.declared("q");
    assert_eq!(&*channel.queue_name("", get).unwrap(), "q");
    assert_eq!(&*channel.queue_name("other", get).unwrap(), "other");
    let key = |named, key| {
        channel
            .binding_key(named, key, amqp::queue::Bind::ID)
            .unwrap()
    };
    assert_eq!(
        (&*key("", ""), &*key("", "k"), &*key("q", "")),
        ("q", "k", "")
    );
}

/// Consumers that a channel cannot have.
#[test]
fn consumers_that_are_none_are_refused() {
    let limits = ChannelLimits {
        consumers_max: 1,
        ..ChannelLimits::default()
    };
    let mut channel: Channel<u64> = Channel::new("/", limits);
    let asked = |tag: &str, priority: Value| basic::Consume {
        consumer_tag: short(tag),
        arguments: Table::of([("x-priority", priority)]),
        ..consume("q")
    };
    let refused = |channel: &Channel<u64>, asked: &basic::Consume| {
        channel.check_consumer(asked, 0).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&channel, &asked("c", Value::text("high"))),
        "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\""
    );
    let first = channel
        .check_consumer(&asked("c", Value::I8(-3)), 0)
        .unwrap();
    let queue = QueueId(1);
    let tag = channel.begin_consumer(first, Consumer { queue });
    assert_eq!(channel.priority(&tag), Some(-3));
    assert_eq!(
        refused(&channel, &asked("c", Value::I8(0))),
        "NOT_ALLOWED - attempt to reuse consumer tag 'c'"
    );
    assert_eq!(
        refused(&channel, &asked("", Value::I8(0))),
        "NOT_ALLOWED - reached maximum (1) of consumers per channel"
    );
    let _ = channel.cancel(&tag);
    let new = channel.check_consumer(&asked("", Value::I8(0)), 1).unwrap();
    let tag = channel.begin_consumer(new, Consumer { queue });
    assert_eq!(&*tag, "amq.ctag-AAAAAAAAAAAAAAAAAAAAAQ");
    assert_eq!(
        no_transactions().to_string(),
        "NOT_IMPLEMENTED - transactions"
    );
}

/// The consumer of direct replies has a tag and no queue.
#[test]
fn direct_replies_have_one_consumer() {
    let mut channel = channel();
    let failure = channel.check_replies().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - fast reply consumer does not exist"
    );
    let asked = |tag: &str, no_ack| basic::Consume {
        consumer_tag: short(tag),
        no_ack,
        ..consume("amq.rabbitmq.reply-to")
    };
    let new = channel.check_consumer(&asked("r", false), 0).unwrap();
    let failure = channel.begin_replies(new).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    );
    assert_eq!(channel.deliver_reply(), None);
    let new = channel.check_consumer(&asked("r", true), 0).unwrap();
    let tag = channel.begin_replies(new).unwrap();
    assert_eq!(channel.deliver_reply(), Some((tag.clone(), 1)));
    assert!(channel.check_replies().is_ok());
    assert!(channel.check_consumer(&asked("r", true), 0).is_err());
    let second = channel.check_consumer(&asked("s", true), 0).unwrap();
    let failure = channel.begin_replies(second).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - reply consumer already set"
    );
    let third = channel.check_consumer(&asked("s", false), 0).unwrap();
    let failure = channel.begin_replies(third).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    );
    assert!(channel.cancel(&tag).is_none());
    assert_eq!(channel.deliver_reply(), None);
}

/// The bounds of a channel hold whatever its client's prefetch counts are.
#[test]
fn a_channel_is_bounded() {
    let limits = ChannelLimits {
        unacked_max: 2,
        unconfirmed_max: 2,
        ..ChannelLimits::default()
    };
    let mut channel = Channel::new("/", limits);
    begin(&mut channel, "c", 1, false);
    let tag = short("c");
    let get = basic::Get::default();
    assert_eq!(channel.check_fetch(&get), Ok(()));
    assert_eq!(channel.fetch(QueueId(1), 1, false), 1);
    assert_eq!(channel.deliver(&tag, 2), Ok(2));
    assert_eq!(channel.deliver(&tag, 3), Err(3));
    let failure = channel.check_fetch(&get).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - 2 deliveries of the channel are not acknowledged, and 2 are the most"
    );
    let no_ack = true;
    assert!(channel.check_fetch(&basic::Get { no_ack, ..get }).is_ok());
    let _ = channel.publish(Some(1), 1, false);
    assert!(!channel.is_full());
    assert_eq!(channel.publish(Some(2), 0, true), Publishing::SendBack);
    assert!(channel.is_full());
    assert_eq!(channel.confirms(), [ack(2, false).into()]);
    assert!(!channel.is_full());
}
