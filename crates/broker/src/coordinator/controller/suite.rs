//! What every controller must do, whatever its log is.

use super::{Command, CommandToken, Controller, Home};
use crate::coordinator::table::Table;
use wire::record::{CursorRecord, Position, Record, TopicRecord};
use wire::{ConsumerId, Durability, Incarnation, Offset, PartitionIndex, TopicId};

/// A controller that tests can drive and kill.
pub trait Driven {
    /// The controller.
    fn controller(&mut self) -> &mut dyn Controller;

    /// Carries out one step of its log's work, if there is any left.
    fn step(&mut self) -> bool;

    /// What another finds that takes over after this one died here.
    fn successor(&mut self) -> Table;
}

/// Runs all of it on fresh controllers.
///
/// # Panics
/// If the controller does not do what it must.
pub fn run(mut fresh: impl FnMut() -> Box<dyn Driven>) {
    commands_complete_once_and_in_order(fresh().as_mut());
    nothing_is_applied_before_it_is_kept(fresh().as_mut());
    what_is_to_survive_less_is_never_in_the_way(fresh().as_mut());
    the_same_commands_give_the_same_table(fresh().as_mut(), fresh().as_mut());
    the_two_logs_wait_for_nothing_of_each_other(fresh().as_mut());
    a_command_is_kept_whole_or_not_at_all(&mut fresh);
}

fn topic(id: u128) -> Record {
    Record::Topic(TopicRecord {
        namespace: String::new(),
        name: format!("topic {id}"),
        topic: TopicId(id),
        definition: "{}".into(),
    })
}

fn cursor(topic: u128, offset: u64) -> Record {
    Record::Cursor(CursorRecord {
        namespace: String::new(),
        consumer: "c".into(),
        topic: TopicId(topic),
        partition: PartitionIndex(0),
        position: Some(Position {
            incarnation: Incarnation(1),
            offset: Offset(offset),
        }),
        consumer_id: ConsumerId(0),
    })
}

fn submit(driven: &mut dyn Driven, token: u64, records: Vec<Record>) {
    submit_at(driven, token, records, Durability::Synced);
}

fn submit_at(driven: &mut dyn Driven, token: u64, records: Vec<Record>, durability: Durability) {
    let homes: Vec<Home> = records.iter().map(Home::of).collect();
    let home = homes.first().copied().unwrap_or(Home::Table);
    assert!(homes.iter().all(|one| *one == home), "a test is wrong");
    let command = Command {
        home,
        records,
        durability,
    };
    driven.controller().submit(CommandToken(token), command);
}

/// Drives until nothing is left. Returns what was completed, in order.
fn finish(driven: &mut dyn Driven) -> Vec<u64> {
    let mut all = completions(driven);
    loop {
        let stepped = driven.step();
        let done = completions(driven);
        if !stepped && done.is_empty() {
            return all;
        }
        all.extend(done);
    }
}

fn completions(driven: &mut dyn Driven) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some((token, result)) = driven.controller().poll_completion() {
        assert_eq!(result, Ok(()), "command {token:?}");
        all.push(token.0);
    }
    all
}

fn commands_complete_once_and_in_order(driven: &mut dyn Driven) {
    let mut done = Vec::new();
    for token in 0..100 {
        submit(driven, token, vec![topic(u128::from(token) + 1)]);
        // Some gather while others are under way.
        if token % 3 == 0 {
            driven.step();
        }
        done.extend(completions(driven));
    }
    done.extend(finish(driven));
    assert_eq!(done, (0..100).collect::<Vec<u64>>());
    assert_eq!(driven.controller().table().topic_count(), 100);
}

fn nothing_is_applied_before_it_is_kept(driven: &mut dyn Driven) {
    let mut done = 0;
    for token in 0..20 {
        submit(driven, token, vec![topic(u128::from(token) + 1)]);
        loop {
            done += completions(driven).len();
            let applied = driven.controller().table().clone();
            assert!(
                applied.topic_count() >= done,
                "completed before it was applied"
            );
            let found = driven.successor();
            for (id, _) in applied.topics() {
                assert!(found.topic(*id).is_some(), "{id} was applied, and was lost");
            }
            if !driven.step() {
                break;
            }
        }
    }
    assert_eq!(done, 20);
}

/// Commands of every kind complete in order, those without a record among them,
/// and who was told that a command is synced finds it and all before it.
fn what_is_to_survive_less_is_never_in_the_way(driven: &mut dyn Driven) {
    const COUNT: u64 = 60;
    let levels = [Durability::Written, Durability::Synced, Durability::Written];
    let level = |token: u64| levels[token as usize / 4 % levels.len()];
    let has_record = |token: u64| token % 5 != 4;
    let mut done = Vec::new();
    for token in 0..COUNT {
        let records = has_record(token).then(|| topic(u128::from(token) + 1));
        submit_at(driven, token, records.into_iter().collect(), level(token));
        for _ in 0..token % 3 {
            driven.step();
        }
        done.extend(completions(driven));
        let synced = |token: &&u64| has_record(**token) && level(**token) == Durability::Synced;
        if let Some(last) = done.iter().rfind(synced) {
            let found = driven.successor();
            for before in (0..=*last).filter(|token| has_record(*token)) {
                let id = TopicId(u128::from(before) + 1);
                assert!(found.topic(id).is_some(), "{before} was lost before {last}");
            }
        }
    }
    done.extend(finish(driven));
    assert_eq!(done, (0..COUNT).collect::<Vec<u64>>());
}

fn the_same_commands_give_the_same_table(one: &mut dyn Driven, other: &mut dyn Driven) {
    // Within each part everything may be under way at once; the next builds on what is applied.
    let parts = [
        vec![vec![topic(1)], vec![topic(3), topic(4)]],
        vec![vec![cursor(1, 5), cursor(3, 1)], vec![cursor(1, 3)]],
        vec![vec![topic(2), Record::TopicDeleted(TopicId(1))]],
        vec![vec![cursor(1, 9), cursor(2, 1)], vec![cursor(4, 2)]],
    ];
    let mut token = 0;
    for part in parts {
        for records in part {
            token += 1;
            submit(one, token, records.clone());
            finish(one);
            submit(other, token, records);
        }
        finish(other);
    }
    assert_eq!(
        content(one.controller().table()),
        content(other.controller().table())
    );
    let table = one.controller().table().clone();
    assert_eq!(one.successor(), table);
}

/// What was submitted, without what a controller notes of how it came to be.
fn content(table: &Table) -> Vec<Record> {
    let records = table.records();
    let is_noted = |it: &Record| {
        matches!(
            it,
            Record::Table(_) | Record::Followed(_) | Record::Proposed(_)
        )
    };
    records.filter(|it| !is_noted(it)).collect()
}

/// What waits in one log keeps nothing back in the other, and each is in the order of its own.
fn the_two_logs_wait_for_nothing_of_each_other(driven: &mut dyn Driven) {
    submit(driven, 0, vec![topic(1)]);
    finish(driven);
    for token in 1..=40 {
        match token % 2 {
            0 => submit(driven, token, vec![topic(u128::from(token))]),
            _ => submit(driven, token, vec![cursor(1, token)]),
        }
        driven.step();
    }
    let done = finish(driven);
    for home in [0, 1] {
        let own: Vec<u64> = done.iter().copied().filter(|it| it % 2 == home).collect();
        assert!(own.is_sorted(), "{own:?}");
        assert_eq!(own.len(), 20);
    }
    let found = driven.successor();
    assert_eq!(found.topic_count(), 21);
    let entry = found.topic(TopicId(1)).expect("it was made");
    let position = entry.cursors["c"][&PartitionIndex(0)];
    assert_eq!(position.offset, Offset(39));
}

fn a_command_is_kept_whole_or_not_at_all(fresh: &mut impl FnMut() -> Box<dyn Driven>) {
    for steps in 0.. {
        let mut driven = fresh();
        submit(driven.as_mut(), 0, vec![topic(1), topic(3), topic(2)]);
        let left = (0..steps).all(|_| driven.step());
        let found = driven.successor();
        assert!(
            [0, 3].contains(&found.topic_count()),
            "half a command was kept after {steps} steps"
        );
        if !left {
            assert_eq!(found.topic_count(), 3);
            return;
        }
    }
}
