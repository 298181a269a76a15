//! What every controller must do, whatever its log is.

use super::{Command, CommandToken, Controller};
use crate::coordinator::table::Table;
use wire::record::{CursorRecord, Position, Record, TopicRecord};
use wire::{Durability, Incarnation, Offset, PartitionIndex, TopicId};

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
    })
}

fn submit(driven: &mut dyn Driven, token: u64, records: Vec<Record>) {
    submit_at(driven, token, records, Durability::Synced);
}

fn submit_at(driven: &mut dyn Driven, token: u64, records: Vec<Record>, durability: Durability) {
    let command = Command {
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
    let commands = [
        vec![topic(1), cursor(1, 5)],
        vec![cursor(1, 3)],
        vec![topic(2), Record::TopicDeleted(TopicId(1))],
        vec![cursor(1, 9), cursor(2, 1)],
    ];
    for (token, records) in commands.iter().enumerate() {
        submit(one, token as u64, records.clone());
        finish(one);
        submit(other, token as u64, records.clone());
    }
    finish(other);
    assert_eq!(one.controller().table(), other.controller().table());
    let table = one.controller().table().clone();
    assert_eq!(one.successor(), table);
}

fn a_command_is_kept_whole_or_not_at_all(fresh: &mut impl FnMut() -> Box<dyn Driven>) {
    for steps in 0.. {
        let mut driven = fresh();
        submit(driven.as_mut(), 0, vec![topic(1), cursor(1, 7), topic(2)]);
        let left = (0..steps).all(|_| driven.step());
        let found = driven.successor();
        assert!(
            [0, 2].contains(&found.topic_count()),
            "half a command was kept after {steps} steps"
        );
        if !left {
            assert_eq!(found.topic_count(), 2);
            return;
        }
    }
}
