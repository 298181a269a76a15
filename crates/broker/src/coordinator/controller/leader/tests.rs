//! A leader whose log is one that several lead in turn.

use super::super::testing::{new_disk, open};
use super::super::{CatchingUp, Controller, Following};
use super::*;
use ::log::Disk;
use ::log::testing::FaultyDisk;
use std::time::Duration;
use wire::TopicId;
use wire::record::TopicRecord;
use wire::table::Took;

const NODE: NodeId = NodeId(7);
const TABLE: TableId = TableId(0x7ab1e);

/// A log that decides when a test says so.
#[derive(Default)]
struct Log {
    table: Table,
    submitted: VecDeque<Vec<Record>>,
    entries: VecDeque<Entry>,
    done: VecDeque<Result<(), ControlError>>,
    place: u64,
}

impl Log {
    fn decide(&mut self) {
        for records in std::mem::take(&mut self.submitted) {
            self.place += 1;
            records.iter().for_each(|it| self.table.apply(it.clone()));
            if !records.is_empty() {
                let index = self.place;
                self.entries.push_back(Entry { index, records });
            }
            self.done.push_back(Ok(()));
        }
    }
}

impl TableLog for Log {
    fn table(&self) -> &Table {
        &self.table
    }

    fn submit(&mut self, records: Vec<Record>) {
        self.submitted.push_back(records);
    }

    fn poll_completion(&mut self) -> Option<Result<(), ControlError>> {
        self.done.pop_front()
    }

    fn poll_entry(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

fn leading() -> (TableLeader, Log) {
    let (mut leader, mut log) = (TableLeader::standby(0), Log::default());
    leader.identify(&mut log, TABLE);
    log.decide();
    leader.advance(&mut log);
    leader.pass(log.place);
    (leader, log)
}

fn follow(leader: &mut TableLeader, log: &mut Log, index: u64) {
    let follow = Follow {
        node: NODE,
        table: TABLE,
        index,
        refusals: 0,
    };
    leader.take_message(log, NODE, TableMessage::Follow(follow));
}

fn propose(leader: &mut TableLeader, log: &mut Log, number: u64, topic: u128) {
    let topic = TopicRecord {
        namespace: String::new(),
        name: "wanted".into(),
        topic: TopicId(topic),
        definition: "{}".into(),
    };
    let propose = Propose {
        number,
        refusals: 0,
        records: vec![Record::Topic(topic)],
    };
    leader.take_message(log, NODE, TableMessage::Propose(propose));
}

/// What is sent now; the node records all of it.
fn sent(leader: &mut TableLeader, log: &mut Log) -> Vec<TableMessage> {
    leader.advance(log);
    leader.pass(log.place);
    let sent: Vec<_> = std::iter::from_fn(|| leader.poll_message(log)).collect();
    let took = TableMessage::Took(Took { count: 9 });
    leader.take_message(log, NODE, took);
    sent.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn a_copy_that_has_more_than_this_leader_waits_until_it_has_it_too() {
    let (mut leader, mut log) = leading();
    let ahead = log.place + 2;
    follow(&mut leader, &mut log, ahead);
    assert_eq!(sent(&mut leader, &mut log), []);
    log.place += 1;
    assert_eq!(sent(&mut leader, &mut log), []);
    log.place += 1;
    let sent = sent(&mut leader, &mut log);
    assert!(matches!(sent[..], [TableMessage::Leads(_)]), "{sent:?}");
}

#[test]
fn what_the_table_refuses_is_refused_when_no_other_can_have_decided_it() {
    let (mut leader, mut log) = leading();
    follow(&mut leader, &mut log, 0);
    sent(&mut leader, &mut log);
    propose(&mut leader, &mut log, 1, 1);
    log.decide();
    sent(&mut leader, &mut log);
    propose(&mut leader, &mut log, 2, 2);
    // Another may lead by now, and have deleted the one that has the name.
    assert_eq!(sent(&mut leader, &mut log), []);
    log.decide();
    let sent = sent(&mut leader, &mut log);
    assert!(
        matches!(&sent[..], [TableMessage::Refused(refused)] if refused.number == 2),
        "{sent:?}"
    );
}

#[test]
fn a_refusal_of_the_last_link_is_none_of_this_one() {
    let (mut leader, mut log) = leading();
    follow(&mut leader, &mut log, 0);
    sent(&mut leader, &mut log);
    propose(&mut leader, &mut log, 1, 1);
    log.decide();
    sent(&mut leader, &mut log);
    propose(&mut leader, &mut log, 2, 2);
    leader.linked(NODE);
    let place = log.place;
    follow(&mut leader, &mut log, place);
    sent(&mut leader, &mut log);
    // It asks for something else now, and for that again.
    propose(&mut leader, &mut log, 2, 3);
    log.decide();
    let sent = sent(&mut leader, &mut log);
    let refused = sent
        .iter()
        .filter(|it| matches!(it, TableMessage::Refused(_)));
    assert_eq!(refused.count(), 1, "{sent:?}");
}

/// Has a node follow on a new link until neither of the two has anything for the other.
fn follow_to_the_end(
    leader: &mut TableLeader,
    log: &mut Log,
    node: &mut Following,
    disk: &FaultyDisk,
) {
    leader.linked(NODE);
    node.linked(LEADER, true);
    let mut any = true;
    while any {
        any = false;
        node.advance();
        while let Some((_, message)) = node.poll_message() {
            leader.take_message(log, NODE, message);
        }
        while let Some((_, message)) = leader.poll_message(log) {
            node.take_message(LEADER, message);
            any = true;
        }
        while let Some((storage, token, operation)) = node.poll_operation() {
            node.complete(storage, token, disk.execute(operation));
            any = true;
        }
    }
}

#[test]
fn a_start_does_not_wait_for_what_the_log_has_without_a_change() {
    for (is_torn, is_restored) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut leader, mut log) = leading();
        if is_restored {
            leader.restored(log.place);
        }
        let disk = new_disk();
        let node = Following::new(
            open(&disk, true),
            NODE,
            Duration::from_secs(1),
            Planted::default(),
        );
        let mut node = match is_torn {
            true => node.anew(),
            false => node,
        };
        // At first, and when it comes again: the leader is a new one, or has refused something.
        for _ in 0..2 {
            log.place += 1;
            leader.pass(log.place);
            follow_to_the_end(&mut leader, &mut log, &mut node, &disk);
            assert_eq!(
                node.catching_up(),
                CatchingUp::Done,
                "{is_torn} {is_restored}"
            );
            assert_eq!(node.table().id(), TABLE);
        }
        // It has all that is decided from then on.
        propose(&mut leader, &mut log, 1, 1);
        log.decide();
        leader.advance(&mut log);
        follow_to_the_end(&mut leader, &mut log, &mut node, &disk);
        assert_eq!(
            node.catching_up(),
            CatchingUp::Done,
            "{is_torn} {is_restored}"
        );
        assert!(node.table().topic(TopicId(1)).is_some());
    }
}
