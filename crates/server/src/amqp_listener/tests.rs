//! What the listener does when the node does not do as it would like.

mod rig;

use super::faults::{Fault, with};
use amqp::{Method, Table, Value, basic, queue as queues};
use broker::answer::Delivery;
use rig::{Asked, Does, Rig, fatal, for_now, name};
use std::time::Duration;
use wire::message::SettleAs;
use wire::{ErrorCode, ErrorReply, Offset};

const SECOND: Duration = Duration::from_secs(1);

/// Begins to consume. Gives what the client was sent behind the answer.
fn consume(rig: &mut Rig, client: net::LinkId, queue: &str) -> Vec<Method> {
    rig.heard(client);
    let consume = basic::Consume {
        queue: name(queue),
        consumer_tag: name("c"),
        ..Default::default()
    };
    rig.ask(client, consume);
    let mut heard = rig.heard(client);
    assert!(
        matches!(heard.first(), Some(Method::BasicConsumeOk(_))),
        "{heard:?}"
    );
    heard.split_off(1)
}

/// The tags of what a client was delivered.
fn delivered(rig: &mut Rig, client: net::LinkId) -> Vec<u64> {
    let heard = rig.heard(client).into_iter();
    let tags = heard.map(|method| match method {
        Method::BasicDeliver(deliver) => deliver.delivery_tag,
        other => panic!("{other:?} is no delivery"),
    });
    tags.collect()
}

fn with_letters(queue: &str) -> Table {
    Table::of([
        ("x-dead-letter-exchange", Value::text("")),
        ("x-dead-letter-routing-key", Value::text(queue)),
    ])
}

#[test]
fn a_queue_that_cannot_join_keeps_its_topic_and_tries_again() {
    for code in [
        ErrorCode::LimitExceeded,
        ErrorCode::StorageFull,
        ErrorCode::StorageFailed,
        ErrorCode::Draining,
        ErrorCode::MemberFenced,
    ] {
        let mut rig = Rig::default();
        let client = rig.client(1);
        rig.does.insert(Asked::Join, fatal(code));
        rig.declare(client, "jobs", Table::default());
        assert_eq!((rig.joins, rig.deleted.len()), (1, 0), "{code}");
        rig.does.clear();
        rig.pass(SECOND);
        assert_eq!((rig.joins, rig.deleted.len()), (2, 0), "{code}");
        consume(&mut rig, client, "jobs");
        rig.lease("jobs", 0, Some(b"m"));
        assert_eq!(delivered(&mut rig, client), [1], "{code}");
    }
}

#[test]
fn a_member_that_is_put_out_keeps_its_topic_and_joins_again() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    let ended = ErrorReply::fatal(ErrorCode::MemberFenced, "as the test says");
    rig.deliver("jobs", Delivery::Ended(ended));
    rig.pass(SECOND);
    assert_eq!((rig.joins, rig.deleted.len()), (2, 0));
    // With its topic it goes.
    let ended = ErrorReply::fatal(ErrorCode::UnknownTopic, "as the test says");
    rig.deliver("jobs", Delivery::Ended(ended));
    assert_eq!(rig.deleted.len(), 1);
}

#[test]
fn without_all_records_no_topic_is_taken_for_nobodys() {
    let mut rig = Rig::default();
    let definition = r#"{"keep_until_acknowledged": ["amqp"], "version": 1}"#;
    rig.make("amqp.vhost", "{}");
    rig.make("jobs.amqp-17", definition);
    // Five records there are, and none comes.
    rig.records.watermarks.committed = Offset(5);
    let client = rig.stranger(1);
    let heard = rig.heard(client);
    let Some(Method::ConnectionClose(close)) = heard.last() else {
        panic!("{heard:?}");
    };
    assert_eq!(close.reply_code, 541);
    assert!(
        close.reply_text.contains("cannot be read"),
        "{}",
        &*close.reply_text
    );
    assert_eq!(rig.deleted.len(), 0);
    // With all of them it is known that no queue has the topic.
    let mut rig = Rig::default();
    rig.make("amqp.vhost", "{}");
    rig.make("jobs.amqp-17", definition);
    rig.client(1);
    assert_eq!(rig.deleted, ["jobs.amqp-17"]);
}

#[test]
fn a_dead_letter_that_cannot_be_stored_is_not_lost() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "dead", Table::default());
    rig.declare(client, "jobs", with_letters("dead"));
    consume(&mut rig, client, "jobs");
    rig.lease("jobs", 0, Some(b"m"));
    let dead = Asked::Produce(rig.topic("dead"));
    rig.does.insert(dead, for_now(ErrorCode::StorageFull));
    let reject = |delivery_tag| basic::Reject {
        delivery_tag,
        requeue: false,
    };
    rig.ask(client, reject(1));
    let settled = std::mem::take(&mut rig.settled);
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].how, SettleAs::Return);
    assert!(settled[0].delay_ms > 0);
    // It comes once more, and the letter is stored.
    rig.does.clear();
    rig.lease("jobs", 0, Some(b"m"));
    rig.ask(client, reject(2));
    assert_eq!(rig.settled.len(), 1);
    assert_eq!(rig.settled[0].how, SettleAs::Acknowledge);
}

#[test]
fn a_dead_letter_without_its_message_fetches_it_again() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "dead", Table::default());
    rig.declare(client, "jobs", with_letters("dead"));
    consume(&mut rig, client, "jobs");
    // More than is kept: 32 MiB.
    let body: &'static [u8] = vec![0; 17 << 20].leak();
    rig.lease("jobs", 0, Some(body));
    rig.lease("jobs", 1, Some(body));
    for _ in 0..2 {
        rig.listener.queued(rig.now, client, 0);
        rig.pump();
    }
    assert_eq!(delivered(&mut rig, client).len(), 2);
    let nack = basic::Nack {
        delivery_tag: 2,
        multiple: false,
        requeue: false,
    };
    rig.ask(client, nack);
    let settled = std::mem::take(&mut rig.settled);
    assert_eq!((settled.len(), settled[0].how), (1, SettleAs::Return));
    rig.lease("jobs", 1, Some(body));
    assert_eq!(delivered(&mut rig, client), [0u64; 0]);
    assert_eq!(rig.settled.len(), 1);
    assert_eq!(rig.settled[0].how, SettleAs::Acknowledge);
}

#[test]
fn what_was_settled_and_not_recorded_is_settled_again() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    consume(&mut rig, client, "jobs");
    rig.lease("jobs", 0, Some(b"m"));
    rig.does
        .insert(Asked::Settle, for_now(ErrorCode::StorageFull));
    let ack = basic::Ack {
        delivery_tag: 1,
        multiple: false,
    };
    rig.ask(client, ack);
    rig.does.clear();
    assert_eq!(rig.settled.len(), 0);
    rig.pass(SECOND);
    assert_eq!(rig.settled.len(), 1);
    assert_eq!(rig.settled[0].how, SettleAs::Acknowledge);
}

#[test]
fn data_that_cannot_be_read_is_not_delivered_as_nothing() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    consume(&mut rig, client, "jobs");
    rig.does
        .insert(Asked::ReadData, fatal(ErrorCode::StorageFailed));
    rig.lease("jobs", 0, None);
    assert_eq!(delivered(&mut rig, client), [0u64; 0]);
    assert_eq!(rig.settled.len(), 1);
    assert_eq!(rig.settled[0].how, SettleAs::Return);
    assert!(rig.settled[0].delay_ms > 0);
}

#[test]
fn what_expires_before_its_data_has_come_is_no_letter_without_it() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "dead", Table::default());
    let letters = with_letters("dead");
    let ttl = ("x-message-ttl", Value::I32(10));
    let fields: Vec<_> = letters.fields().collect();
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_str().unwrap(), value.clone()));
    let arguments = Table::of(fields.chain([ttl]).collect::<Vec<_>>());
    rig.declare(client, "jobs", arguments);
    let dead = Asked::Produce(rig.topic("dead"));
    rig.does.insert(dead, Does::Nothing);
    rig.does.insert(Asked::ReadData, Does::Nothing);
    rig.lease("jobs", 0, None);
    rig.pass(SECOND);
    assert_eq!(rig.settled.len(), 0, "nothing is known of it yet");
    // And no timer is due for ever.
    assert!(
        rig.listener
            .timeout()
            .is_none_or(|at| at > rig.now.monotonic)
    );
}

#[test]
fn what_a_client_had_on_its_way_does_not_fill_a_queue_for_ever() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    let arguments = Table::of([
        ("x-max-length", Value::I32(1)),
        ("x-overflow", Value::text("reject-publish")),
    ]);
    rig.declare(client, "jobs", arguments);
    let produce = Asked::Produce(rig.topic("jobs"));
    rig.does.insert(produce, Does::Nothing);
    rig.publish(client, "jobs", b"m");
    rig.listener.disconnected(rig.now, client);
    rig.pump();
    rig.does.clear();
    let other = rig.client(2);
    rig.ask(other, amqp::confirm::Select { no_wait: false });
    rig.publish(other, "jobs", b"m");
    let heard = rig.heard(other);
    assert!(
        matches!(heard.last(), Some(Method::BasicAck(_))),
        "{heard:?}"
    );
}

#[test]
fn nothing_is_confirmed_before_it_is_stored() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    rig.ask(client, amqp::confirm::Select { no_wait: false });
    rig.heard(client);
    let produce = Asked::Produce(rig.topic("jobs"));
    rig.does.insert(produce, Does::Nothing);
    rig.publish(client, "jobs", b"m");
    assert_eq!(rig.heard(client), []);
    rig.does.insert(produce, for_now(ErrorCode::TopicFull));
    rig.publish(client, "jobs", b"m");
    let heard = rig.heard(client);
    assert!(matches!(heard[..], [Method::BasicNack(_)]), "{heard:?}");
}

#[test]
fn a_purge_ends_though_somebody_else_took_a_message() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    rig.heard(client);
    rig.waiting = 2;
    rig.ask(
        client,
        queues::Purge {
            queue: name("jobs"),
            ..Default::default()
        },
    );
    rig.lease("jobs", 0, Some(b"m"));
    assert_eq!(rig.heard(client), []);
    // The other one has gone elsewhere.
    rig.waiting = 0;
    rig.pass(2 * SECOND);
    let heard = rig.heard(client);
    let purged = queues::PurgeOk { message_count: 1 };
    assert_eq!(heard, [purged.into()]);
}

#[test]
fn a_large_message_comes_though_others_are_not_settled() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    consume(&mut rig, client, "jobs");
    rig.lease("jobs", 0, Some(b"m"));
    // Nothing more comes: perhaps it is larger than what was asked for.
    rig.pass(SECOND);
    let asked = rig.prefetches.last().copied().unwrap();
    assert_eq!(asked.events, 2);
    assert!(asked.bytes > 1 << 40);
    rig.lease("jobs", 1, Some(b"m"));
    let asked = rig.prefetches.last().copied().unwrap();
    assert!(asked.events > 2 && asked.bytes < 1 << 30, "{asked:?}");
}

#[test]
fn dead_letters_and_bindings_take_rights_on_their_exchanges() {
    let forbid = |verb: &str, topic: &str| {
        let mut rig = Rig::default();
        rig.forbidden.insert((verb.to_owned(), topic.to_owned()));
        let client = rig.client(1);
        (rig, client)
    };
    let refused = |rig: &mut Rig, client| {
        let heard = rig.heard(client);
        let Some(Method::ChannelClose(close)) = heard.last() else {
            panic!("{heard:?}");
        };
        assert_eq!(close.reply_code, 403);
    };
    let (mut rig, client) = forbid("write", "amq.default.amqp-exchange");
    rig.declare(client, "jobs", with_letters("others"));
    refused(&mut rig, client);
    assert_eq!(rig.topics.len(), 0);

    let (mut rig, client) = forbid("read", "amq.topic.amqp-exchange");
    rig.declare(client, "jobs", Table::default());
    let bind = queues::Bind {
        queue: name("jobs"),
        exchange: name("amq.topic"),
        routing_key: name("#"),
        ..Default::default()
    };
    rig.ask(client, bind);
    refused(&mut rig, client);
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    consume(&mut rig, client, "jobs");
    rig.lease("jobs", 0, Some(vec![0; 3 << 20].leak()));
    // All of it stays in the link. The client's heartbeats are not read.
    rig.listener.queued(rig.now, client, 3 << 20);
    for _ in 0..200 {
        rig.pass(SECOND);
        if rig.closed.contains(&client) {
            break;
        }
    }
    assert!(rig.closed.contains(&client));
}

#[test]
fn what_a_channel_had_comes_back_first_and_is_marked() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    rig.heard(client);
    let qos = basic::Qos {
        prefetch_count: 2,
        ..Default::default()
    };
    rig.ask(client, qos);
    consume(&mut rig, client, "jobs");
    for offset in 0..3 {
        rig.lease("jobs", offset, Some(b"m"));
    }
    assert_eq!(delivered(&mut rig, client), [1, 2]);
    rig.listener.disconnected(rig.now, client);
    let other = rig.client(2);
    let mut heard = consume(&mut rig, other, "jobs");
    let ack = basic::Ack {
        delivery_tag: 1,
        multiple: false,
    };
    rig.ask(other, ack);
    heard.extend(rig.heard(other));
    let marks = heard.into_iter().map(|method| match method {
        Method::BasicDeliver(deliver) => deliver.redelivered,
        other => panic!("{other:?} is no delivery"),
    });
    assert_eq!(marks.collect::<Vec<_>>(), [true, true, false]);
    // What was acknowledged is the first of all.
    assert_eq!(rig.settled.len(), 1);
    assert_eq!(rig.settled[0].lease.first, Offset(0));
}

#[test]
fn messages_under_way_are_bounded_in_all() {
    let mut rig = Rig::default();
    let clients: Vec<_> = (1..4).map(|id| rig.client(id)).collect();
    for client in &clients {
        rig.begin(*client, 5 << 20, 3 << 20);
    }
    // The third one was one too many; what it had is free again.
    let ended: Vec<_> = clients
        .iter()
        .map(|client| match rig.heard(*client).pop() {
            Some(Method::ConnectionClose(close)) => close.reply_code,
            _ => 0,
        })
        .collect();
    assert_eq!(
        ended.iter().filter(|code| **code == 506).count(),
        1,
        "{ended:?}"
    );
}

#[test]
fn a_publisher_hears_that_the_storage_is_full_and_may_try_again() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    let other = rig.client(2);
    rig.declare(client, "jobs", Table::default());
    rig.ask(client, amqp::confirm::Select { no_wait: false });
    rig.heard(client);
    let produce = Asked::Produce(rig.topic("jobs"));
    rig.does.insert(produce, for_now(ErrorCode::StorageFull));
    for _ in 0..2 {
        rig.publish(client, "jobs", b"m");
    }
    let heard = rig.heard(client);
    let is_blocked = |method: &&Method| matches!(method, Method::ConnectionBlocked(_));
    assert_eq!(heard.iter().filter(is_blocked).count(), 1, "{heard:?}");
    let is_refused = |method: &&Method| matches!(method, Method::BasicNack(_));
    assert_eq!(heard.iter().filter(is_refused).count(), 2, "{heard:?}");
    assert_eq!(rig.heard(other), [], "it publishes nothing");
    rig.does.clear();
    rig.pass(5 * SECOND);
    let heard = rig.heard(client);
    assert!(
        matches!(heard[..], [Method::ConnectionUnblocked(_)]),
        "{heard:?}"
    );
    rig.publish(client, "jobs", b"m");
    let heard = rig.heard(client);
    assert!(matches!(heard[..], [Method::BasicAck(_)]), "{heard:?}");
}

#[test]
fn what_is_published_before_a_connection_is_closed_is_stored() {
    let mut rig = Rig::default();
    let client = rig.client(1);
    rig.declare(client, "jobs", Table::default());
    rig.heard(client);
    let before = rig.produced;
    rig.publish_and_close(client, "jobs");
    assert_eq!(rig.produced, before + 1);
    let heard = rig.heard(client);
    assert!(
        matches!(heard[..], [Method::ConnectionCloseOk(_)]),
        "{heard:?}"
    );
    rig.pass(3 * SECOND);
    assert!(rig.closed.contains(&client));
}

macro_rules! noticed {
    ($($name:ident: $fault:ident, $test:ident;)*) => {$(
        #[test]
        #[should_panic]
        fn $name() {
            with(Fault::$fault, $test);
        }
    )*};
}

noticed! {
    an_early_confirm_is_noticed: Early, nothing_is_confirmed_before_it_is_stored;
    a_right_that_is_not_asked_for_is_noticed: Unasked, dead_letters_and_bindings_take_rights_on_their_exchanges;
    a_missing_mark_is_noticed: Unmarked, what_a_channel_had_comes_back_first_and_is_marked;
    a_leaked_delivery_is_noticed: Leaked, what_a_channel_had_comes_back_first_and_is_marked;
    a_requeue_at_the_end_is_noticed: Behind, what_a_channel_had_comes_back_first_and_is_marked;
    a_deleted_topic_is_noticed: Gone, a_queue_that_cannot_join_keeps_its_topic_and_tries_again;
    missing_records_are_noticed: PartOfRecords, without_all_records_no_topic_is_taken_for_nobodys;
    a_lost_letter_is_noticed: LostLetter, a_dead_letter_that_cannot_be_stored_is_not_lost;
    a_letter_without_its_message_is_noticed: Unread, a_dead_letter_without_its_message_fetches_it_again;
    a_forgotten_settlement_is_noticed: Unsettled, what_was_settled_and_not_recorded_is_settled_again;
    a_body_that_is_not_there_is_noticed: NoData, data_that_cannot_be_read_is_not_delivered_as_nothing;
    patience_is_noticed: Patient, a_peer_that_takes_nothing_is_given_up;
    what_stays_on_its_way_is_noticed: StaysComing, what_a_client_had_on_its_way_does_not_fill_a_queue_for_ever;
    a_narrow_window_is_noticed: Narrow, a_large_message_comes_though_others_are_not_settled;
    a_purge_that_waits_for_ever_is_noticed: CountedOnce, a_purge_ends_though_somebody_else_took_a_message;
    unbounded_contents_are_noticed: Unbounded, messages_under_way_are_bounded_in_all;
}
