//! The table: what records come to, in any order in which logs give them.

use super::*;
use crate::coordinator::controller::Home;
use wire::{DirectoryId, MemberId, Sequence};

const QUEUE: ConsumerId = ConsumerId(7);

fn gap(first: u64, end: u64) -> Record {
    Record::Gap(GapRecord {
        topic: TopicId(1),
        partition: PartitionIndex(0),
        gap: Gap {
            incarnation: Incarnation(1),
            first: Offset(first),
            end: Offset(end),
            reason: GapReason::Retention,
            time: 0,
        },
    })
}

fn cursor(consumer: &str, offset: Option<u64>) -> Record {
    Record::Cursor(CursorRecord {
        namespace: String::new(),
        consumer: consumer.into(),
        topic: TopicId(1),
        partition: PartitionIndex(0),
        position: offset.map(|offset| Position {
            incarnation: Incarnation(1),
            offset: Offset(offset),
        }),
        consumer_id: ConsumerId(0),
    })
}

fn queue(consumer: &str) -> Record {
    Record::Consumer(ConsumerRecord {
        namespace: String::new(),
        consumer: consumer.into(),
        topic: TopicId(1),
        kind: ConsumerKind::Queue,
        options: "{}".into(),
        id: QUEUE,
        starts: Vec::new(),
    })
}

/// A group that begins at offset 3.
fn group(consumer: &str, id: u64) -> Record {
    match of(queue(consumer), id) {
        Record::Consumer(record) => Record::Consumer(ConsumerRecord {
            kind: ConsumerKind::Group,
            starts: vec![(
                PartitionIndex(0),
                Position {
                    incarnation: Incarnation(1),
                    offset: Offset(3),
                },
            )],
            ..record
        }),
        other => other,
    }
}

fn settled(incarnation: u64, ranges: &[(u64, u64)]) -> Record {
    let ranges = ranges.iter();
    Record::Settled(SettledRecord {
        topic: TopicId(1),
        consumer: "q".into(),
        partition: PartitionIndex(0),
        incarnation: Incarnation(incarnation),
        ranges: ranges.map(|(a, b)| (Offset(*a), Offset(*b))).collect(),
        delivered: Offset(50),
        next_rejected: Sequence(0),
        consumer_id: QUEUE,
    })
}

fn returned(first: u64, end: u64, deliveries: u32) -> Record {
    Record::Returned(ReturnedRecord {
        topic: TopicId(1),
        consumer: "q".into(),
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        first: Offset(first),
        end: Offset(end),
        deliveries,
        not_before: 0,
        consumer_id: QUEUE,
    })
}

fn rejected(offset: u64, sequence: u64) -> Record {
    Record::Rejected(RejectedRecord {
        topic: TopicId(1),
        consumer: "q".into(),
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        offset: Offset(offset),
        deliveries: 3,
        reason: "no such file".into(),
        time: 7,
        sequence: Sequence(sequence),
        consumer_id: QUEUE,
    })
}

fn member(id: u128, is_member: bool) -> Record {
    Record::Member(MemberRecord {
        topic: TopicId(1),
        consumer: "q".into(),
        member: MemberId(id),
        instance: String::new(),
        client_name: "worker 1".into(),
        session_timeout_ms: 10_000,
        is_member,
    })
}

fn assignment(partition: u32, owner: u128) -> Record {
    Record::Assignment(AssignmentRecord {
        topic: TopicId(1),
        consumer: "q".into(),
        partition: PartitionIndex(partition),
        owner: MemberId(owner),
    })
}

fn topic(id: u128, name: &str) -> Record {
    Record::Topic(TopicRecord {
        namespace: String::new(),
        name: name.into(),
        topic: TopicId(id),
        definition: "{}".into(),
    })
}

fn node(node: u32, epoch: u64, state: NodeState) -> Record {
    Record::Node(NodeRecord {
        node: NodeId(node),
        directory: DirectoryId(node.into()),
        epoch,
        shard: 0,
        endpoints: Endpoints(vec![format!("tcp://h:{epoch}")]),
        labels: Labels::default(),
        state,
    })
}

fn placed(node: u32) -> Record {
    Record::Placed(PlacedRecord {
        topic: TopicId(1),
        partition: PartitionIndex(0),
        node: NodeId(node),
    })
}

fn moving(to: u32) -> Record {
    Record::Moving(MovingRecord {
        topic: TopicId(1),
        to: NodeId(to),
    })
}

/// It says that a life ends there, and only because it is empty.
#[test]
fn damage_of_unknown_extent_is_no_part_of_the_damage_before_it() {
    let damage = |first, end| match gap(first, end) {
        Record::Gap(record) => Record::Gap(GapRecord {
            gap: Gap {
                reason: GapReason::Damaged,
                ..record.gap
            },
            ..record
        }),
        _ => unreachable!("it is a gap"),
    };
    for records in [
        [damage(40, 50), damage(50, 50)],
        [damage(50, 50), damage(40, 50)],
    ] {
        let mut table = Table::default();
        table.apply(topic(1, "a"));
        records.into_iter().for_each(|record| table.apply(record));
        let entry = table.topic(TopicId(1)).unwrap();
        let lengths: Vec<u64> = entry
            .gaps
            .values()
            .map(|gap| gap.end.0 - gap.first.0)
            .collect();
        assert_eq!(lengths, [10, 0]);
        let end = entry.ends_of_lives(PartitionIndex(0))[&Incarnation(1)];
        assert_eq!((end.first, end.end), (Offset(50), Offset(50)));
    }
}

#[test]
fn gaps_that_touch_are_one() {
    let mut table = Table::default();
    table.apply(topic(1, "a"));
    for record in [gap(0, 10), gap(20, 30), gap(40, 50), gap(10, 20)] {
        table.apply(record);
    }
    let gaps: Vec<_> = table.topic(TopicId(1)).unwrap().gaps.values().collect();
    let ranges: Vec<_> = gaps.iter().map(|gap| (gap.first.0, gap.end.0)).collect();
    assert_eq!(ranges, [(0, 30), (40, 50)]);
}

#[test]
fn what_is_settled_is_not_returned_and_a_new_life_begins_afresh() {
    let mut table = Table::default();
    for record in [
        topic(1, "a"),
        queue("q"),
        returned(0, 10, 1),
        rejected(3, 0),
        returned(2, 5, 2),
        settled(1, &[(4, 6)]),
    ] {
        table.apply(record);
    }
    let entry = |table: &Table| {
        let queue = &table.topic(TopicId(1)).unwrap().shared("q").unwrap().queue;
        queue[&PartitionIndex(0)].clone()
    };
    let ranges: Vec<_> = entry(&table)
        .returned
        .iter()
        .map(|(first, end, value)| (first.0, end.0, value.deliveries))
        .collect();
    assert_eq!(ranges, [(0, 2, 1), (2, 3, 2), (6, 10, 1)]);
    assert_eq!(entry(&table).next_rejected, Sequence(1));
    table.apply(settled(2, &[(0, 1)]));
    // Late news of the life that ended is of no matter.
    table.apply(settled(1, &[(1, 2)]));
    let now = entry(&table);
    assert_eq!(now.settled.first_missing(), Offset(1));
    assert!(now.returned.is_empty() && now.rejected.is_empty());
    assert_eq!(now.next_rejected, Sequence(1));
}

fn of(record: Record, id: u64) -> Record {
    let id = ConsumerId(id);
    match record {
        Record::Cursor(record) => Record::Cursor(CursorRecord {
            consumer_id: id,
            ..record
        }),
        Record::Consumer(record) => Record::Consumer(ConsumerRecord { id, ..record }),
        Record::Settled(record) => Record::Settled(SettledRecord {
            consumer_id: id,
            ..record
        }),
        other => other,
    }
}

fn deleted(consumer: &str) -> Record {
    Record::ConsumerDeleted(ConsumerDeletedRecord {
        topic: TopicId(1),
        consumer: consumer.into(),
    })
}

fn replayed<'a>(records: impl IntoIterator<Item = &'a Record>) -> Table {
    let mut table = Table::default();
    let records = records.into_iter().cloned();
    records.for_each(|record| table.apply(record));
    table
}

/// The ledger is replayed behind the whole table, in which the name is another consumer's by
/// then: what it says of those before counts for nobody.
#[test]
fn what_the_ledger_says_counts_for_the_consumer_that_it_is_about() {
    let group = |id| group("c", id);
    let offset = |table: &Table| {
        let cursors = table.topic(TopicId(1)).unwrap().cursors.get("c").cloned();
        cursors.map(|cursors| cursors[&PartitionIndex(0)].offset.0)
    };
    let moved = |offset, id| of(cursor("c", Some(offset)), id);
    let begun = [topic(1, "a"), group(1)];
    assert_eq!(offset(&replayed(&begun)), Some(3));
    let own = [topic(1, "a"), group(1), moved(7, 1)];
    assert_eq!(offset(&replayed(&own)), Some(7));
    let another = [topic(1, "a"), group(2), moved(7, 1)];
    assert_eq!(offset(&replayed(&another)), Some(3));
    let independent = [topic(1, "a"), group(1), deleted("c"), moved(7, 1)];
    assert_eq!(offset(&replayed(&independent)), None);
    let independent = [topic(1, "a"), group(1), deleted("c"), moved(5, 0)];
    assert_eq!(offset(&replayed(&independent)), Some(5));
    let before = [topic(1, "a"), group(1), moved(5, 0)];
    assert_eq!(offset(&replayed(&before)), Some(3));

    let queues = [topic(1, "a"), of(queue("q"), 2), settled(1, &[(0, 10)])];
    let table = replayed(&queues);
    let entry = table.topic(TopicId(1)).unwrap().shared("q").unwrap();
    assert!(entry.queue.is_empty());
}

/// Much that may happen to a table.
fn history() -> Vec<Record> {
    vec![
        topic(1, "a"),
        cursor("c", Some(5)),
        gap(0, 10),
        topic(2, "b"),
        cursor("d", Some(6)),
        cursor("d", None),
        gap(20, 30),
        gap(10, 20),
        cursor("c", Some(9)),
        Record::TopicDeleted(TopicId(2)),
        topic(3, "b"),
        of(queue("p"), 3),
        of(settled(1, &[(0, 10)]), 3),
        deleted("p"),
        of(queue("p"), 4),
        node(1, 1, NodeState::Serving),
        node(2, 1, NodeState::Serving),
        queue("q"),
        member(5, true),
        member(6, true),
        settled(1, &[(0, 10), (20, 30)]),
        returned(5, 25, 1),
        returned(12, 14, 2),
        rejected(13, 0),
        assignment(0, 5),
        assignment(1, 6),
        node(2, 1, NodeState::Removed),
        node(1, 2, NodeState::Serving),
        node(1, 2, NodeState::Draining),
        placed(4),
        moving(1),
        placed(4),
        moving(2),
        Record::Adopted(TopicId(1)),
        cursor("c", Some(11)),
        settled(1, &[(0, 12)]),
        member(5, false),
        assignment(0, 0),
        rejected(15, 1),
        settled(1, &[(13, 14)]),
        returned(15, 17, 9),
        deleted("p"),
    ]
}

/// The property that compaction stands on: any tail of each log, followed by the records of the
/// table that belong there, gives the table.
#[test]
fn snapshots_behind_any_tails_of_the_logs_are_the_table() {
    let log = history();
    let table = replayed(&log);
    let records: Vec<Record> = table.records().collect();
    let [internal, ledger] = Home::ALL.map(|home| {
        let is_own = |record: &&Record| Home::of(record) == home;
        let log: Vec<&Record> = log.iter().filter(is_own).collect();
        let snapshot: Vec<&Record> = records.iter().filter(is_own).collect();
        (log, snapshot)
    });
    for from in 0..=internal.0.len() {
        for behind in 0..=ledger.0.len() {
            let internal = internal.0[from..].iter().chain(&internal.1);
            let ledger = ledger.0[behind..].iter().chain(&ledger.1);
            let found = replayed(internal.chain(ledger).copied());
            assert_eq!(found, table, "tails from {from} and {behind}");
        }
    }
}

/// What a copy of the table goes by that was away for long: from any state on it comes to the
/// present one, and what its own ledger said stays.
#[test]
fn from_any_state_a_copy_comes_to_a_later_one() {
    let of_table = |record: &Record| Home::of(record) == Home::Table;
    let content = |table: &Table| -> Vec<Record> { table.records().filter(of_table).collect() };
    let log = history();
    for end in 0..=log.len() {
        // As it is sent: without what the ledger says.
        let later = replayed(content(&replayed(&log[..end])).iter());
        for begin in 0..=end {
            let mut table = replayed(&log[..begin]);
            let cursors = |table: &Table| {
                let entry = table.topic(TopicId(1));
                entry.map(|entry| entry.cursors.get("c").cloned())
            };
            let before = cursors(&table);
            for record in table.records_to(&later).into_iter().filter(of_table) {
                table.apply(record);
            }
            assert_eq!(content(&table), content(&later), "from {begin} to {end}");
            assert!(before.is_none() || cursors(&table) == before);
        }
    }
}

#[test]
fn what_is_on_its_way_is_so_until_it_is_somewhere_or_a_node_begins_anew() {
    let begun = |more: &[Record]| {
        let nodes = (1..=3).map(|id| node(id, 1, NodeState::Serving));
        let mut records: Vec<_> = nodes.collect();
        records.extend([topic(1, "a"), placed(1), moving(2)]);
        records.extend_from_slice(more);
        replayed(&records)
    };
    assert_eq!(begun(&[]).moving(TopicId(1)), Some(NodeId(2)));
    for ends in [
        placed(2),
        placed(1),
        Record::TopicDeleted(TopicId(1)),
        node(1, 2, NodeState::Serving),
        node(2, 2, NodeState::Serving),
        node(2, 1, NodeState::Removed),
    ] {
        assert_eq!(begun(&[ends]).moving(TopicId(1)), None);
    }
    for goes_on in [
        node(3, 2, NodeState::Serving),
        node(2, 1, NodeState::Draining),
    ] {
        let table = begun(&[goes_on]);
        assert_eq!(table.moving(TopicId(1)), Some(NodeId(2)));
        assert!(table.admits(&[placed(2)]).is_ok());
        // Where it is not on its way to.
        assert!(table.admits(&[placed(3)]).is_err());
    }
    assert!(begun(&[placed(1)]).admits(&[placed(2)]).is_err());
    assert!(begun(&[]).admits(&[moving(7)]).is_err());
}

#[test]
fn a_group_of_which_nothing_was_adopted_is_where_it_has_begun() {
    let table = replayed(&[topic(1, "a"), group("g", 7), Record::Adopted(TopicId(1))]);
    let cursors = &table.topic(TopicId(1)).unwrap().cursors["g"];
    assert_eq!(cursors[&PartitionIndex(0)].offset, Offset(3));
}
