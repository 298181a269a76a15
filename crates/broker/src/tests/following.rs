//! A table that one node leads and another follows, with links that are cut, disks that are full and
//! nodes that lose their power.

use super::pair::{At, FOLLOWER, PATIENCE, Pair, TABLE, content, lead, long_topic, topic};
use crate::Fault;
use crate::coordinator::controller::{ControlError, Controller, Home, LEADER, suite};
use crate::coordinator::table::Table;
use std::time::Duration;
use wire::record::*;
use wire::table::{Follow, Refused, TableMessage};
use wire::*;

#[test]
fn the_controller_that_leads() {
    for seed in 0..3 {
        suite::run(|| Box::new(At::<true>(Pair::new(seed, None))));
    }
}

#[test]
fn the_controller_that_follows() {
    for seed in 0..5 {
        suite::run(|| Box::new(At::<false>(Pair::new(seed, None))));
    }
}

fn names(table: &Table) -> Vec<(u128, String)> {
    let topics = table.topics();
    let topics = topics.map(|(id, entry)| (id.0, entry.record.definition.clone()));
    topics.collect()
}

/// Both change topics of their own at once, while links are cut and nodes lose their power. In the
/// end both have the same table, and each change that was carried out is in it, the last one of a
/// topic on top. Says what is wrong.
fn storm(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let mut pair = Pair::new(seed, fault);
    let mut token = 0;
    let mut leader_lost = 0;
    for round in 0..60 {
        token += 1;
        // Topics 1 to 3 are the leader's, 4 to 6 the follower's.
        let id = u128::from(pair.choose(3)) + 1;
        match pair.choose(2) {
            0 => pair.leader.submit(token, vec![topic(id, token)]),
            _ => pair.follower.submit(token, vec![topic(id + 3, token)]),
        }
        for _ in 0..pair.choose(12) {
            pair.step();
            pair.poll();
        }
        match pair.choose(12) {
            0 => pair.cut(),
            1 => pair.link(),
            2 if round > 10 => {
                pair.poll();
                pair.restart_leader();
                leader_lost += 1;
            }
            3 if round > 10 => pair.restart_follower(),
            _ => {}
        }
    }
    pair.link();
    pair.finish();
    let (leads, follows) = (
        content(pair.leader.controller.table()),
        content(pair.follower.controller.table()),
    );
    if leads != follows {
        return Err(format!("{leads:?} is led, {follows:?} is followed"));
    }
    let table = pair.leader.controller.table();
    for done in [&pair.leader.done, &pair.follower.done] {
        let tokens: Vec<u64> = done.iter().map(|(token, _)| *token).collect();
        if !tokens.is_sorted() {
            return Err(format!("completed out of order: {tokens:?}"));
        }
        // Nothing was refused: no disk was full, and the clock stood.
        if let Some((token, error)) = done.iter().find(|(_, result)| result.is_err()) {
            return Err(format!("command {token}: {error:?}"));
        }
    }
    let last = |ids: std::ops::RangeInclusive<u128>, done: &[(u64, Result<(), ControlError>)]| {
        let written: Vec<u64> = ids
            .filter_map(|id| table.topic(TopicId(id)))
            .map(|entry| entry.record.definition.parse().unwrap())
            .collect();
        let told = done.iter().map(|(token, _)| *token).max().unwrap_or(0);
        written.into_iter().max().unwrap_or(0) >= told
    };
    let kept = last(1..=3, &pair.leader.done) && last(4..=6, &pair.follower.done);
    match kept {
        true => Ok(()),
        false => Err(format!(
            "a change that was carried out is not there: {:?} after {leader_lost} losses",
            names(table)
        )),
    }
}

#[test]
fn a_copy_is_the_table_whatever_is_lost_on_the_way() {
    for seed in 0..60 {
        if let Err(wrong) = storm(seed, None) {
            panic!("seed {seed}: {wrong}");
        }
    }
    let found = (0..60).any(|seed| storm(seed, Some(Fault::EntrySkipped)).is_err());
    assert!(found, "an entry that was skipped was not noticed");
}

/// Says whether a follower has something that its leader loses with its power: all goes on but for the
/// leader's disk.
fn has_more_than_its_leader(fault: Option<Fault>) -> bool {
    let mut pair = Pair::new(2, fault);
    pair.finish();
    pair.leader.submit(1, vec![topic(1, 1)]);
    for _ in 0..100 {
        pair.talk();
        pair.hear_at_leader();
        pair.hear_at_follower();
        pair.follower.execute();
    }
    let found = pair.leader.found();
    let table = pair.follower.controller.table();
    let mut ids = table.topics().map(|(id, _)| *id);
    ids.any(|id| found.topic(id).is_none())
}

#[test]
fn a_follower_has_nothing_that_its_leader_may_lose() {
    assert!(!has_more_than_its_leader(None));
    assert!(has_more_than_its_leader(Some(Fault::EntryEarly)));
}

/// A follower's first proposal is decided, but the link is cut before it hears so; then it is asked
/// again. Returns what the topic says in the end, and how many records the table's log has.
fn asked_again(fault: Option<Fault>) -> (String, u64) {
    let mut pair = Pair::new(1, fault);
    pair.finish();
    pair.follower.submit(1, vec![topic(9, 1)]);
    pair.follower.submit(2, vec![topic(9, 2)]);
    // The leader hears and decides; nothing comes back.
    while pair.leader.controller.table().topic(TopicId(9)).is_none() {
        pair.step();
    }
    assert!(pair.follower.controller.table().topic(TopicId(9)).is_none());
    pair.cut();
    while pair.step() {}
    pair.link();
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [1, 2]);
    let table = pair.leader.controller.table();
    assert_eq!(content(table), content(pair.follower.controller.table()));
    let definition = table.topic(TopicId(9)).unwrap().record.definition.clone();
    (definition, pair.leader.controller.end(Home::Table).0)
}

#[test]
fn a_proposal_is_carried_out_once_across_cuts() {
    // The table's id, and two records and a number for each proposal.
    assert_eq!(asked_again(None), ("2".into(), 1 + 2 * 2));
    assert_ne!(asked_again(Some(Fault::ProposedTwice)).1, 1 + 2 * 2);
}

#[test]
fn a_proposal_is_carried_out_once_when_nodes_start_again() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, None);
        pair.finish();
        for token in 1..=3 {
            pair.follower.submit(token, vec![topic(9, token)]);
        }
        for _ in 0..pair.choose(40) {
            pair.step();
        }
        pair.poll();
        pair.restart_leader();
        for _ in 0..pair.choose(10) {
            pair.step();
        }
        pair.link();
        pair.finish();
        assert_eq!(pair.follower.carried_out(), [1, 2, 3], "seed {seed}");
        // The log of the leader has each once.
        assert_eq!(pair.leader.controller.end(Home::Table).0, 1 + 3 * 2);
        // Another run of the follower numbers its proposals behind those.
        pair.restart_follower();
        pair.follower.submit(4, vec![topic(9, 4)]);
        pair.link();
        pair.finish();
        assert_eq!(pair.leader.controller.end(Home::Table).0, 1 + 4 * 2);
        assert_eq!(names(pair.leader.controller.table()), [(9, "4".into())]);
    }
}

#[test]
fn what_a_former_run_had_proposed_is_in_the_copy_and_reported() {
    let mut pair = Pair::new(11, None);
    pair.finish();
    pair.follower.submit(1, vec![topic(1, 1)]);
    pair.talk();
    pair.hear_at_leader();
    pair.restart_follower();
    pair.leader.run();
    pair.link();
    pair.finish();
    assert!(pair.follower.done.is_empty());
    let table = pair.follower.controller.table();
    assert_eq!(names(table), [(1, "1".into())]);
    let notice = pair.follower.controller.poll_notice().unwrap();
    assert!(notice.contains("when it ended"), "{notice}");
    pair.restart_follower();
    pair.link();
    pair.finish();
    assert!(pair.follower.controller.poll_notice().is_none());
}

/// The leader's disk is full when a proposal comes; there is space again when the next one comes,
/// which was sent before its follower heard of the refusal. Returns the topics that there are.
fn built_on_what_was_refused(fault: Option<Fault>) -> Vec<(u128, String)> {
    let mut pair = Pair::new(3, fault);
    pair.finish();
    pair.leader.disk.set_space(Some(0));
    pair.follower.submit(1, vec![long_topic(1)]);
    pair.talk();
    assert_eq!(pair.asked(), 1);
    pair.hear_at_leader();
    // The leader refuses it, and its follower has not heard so.
    pair.leader.run();
    pair.leader.disk.set_space(None);
    // The first one after that finds out that there is space again.
    for token in [10, 11] {
        pair.leader.submit(token, vec![topic(10, token)]);
        pair.leader.run();
    }
    assert_eq!(pair.leader.carried_out(), [11]);
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.finish();
    let refused = pair.follower.done.iter().find(|(token, _)| *token == 1);
    assert!(
        matches!(refused, Some((_, Err(ControlError::Refused(error)))) if error.code == ErrorCode::StorageFull),
        "{refused:?}"
    );
    pair.follower.submit(3, vec![topic(3, 3)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out().last(), Some(&3));
    names(pair.leader.controller.table())
}

#[test]
fn what_builds_on_a_refused_command_is_refused() {
    let own = [(3, "3".into()), (10, "11".into())];
    assert_eq!(built_on_what_was_refused(None), own);
    let built = built_on_what_was_refused(Some(Fault::BuiltOnRefused));
    assert_ne!(built, own);
}

/// What a follower of another table has of a leader in the end, and why it does not follow.
fn of_another_leader(fault: Option<Fault>) -> (Vec<(u128, String)>, Option<String>) {
    let mut pair = Pair::new(4, fault);
    pair.finish();
    pair.leader.submit(1, vec![topic(1, 1)]);
    pair.finish();
    pair.cut();
    let disk = super::harness::Ground::new().disk;
    pair.leader.controller = lead(&disk, true, TableId(TABLE.0 + 1), fault);
    pair.leader.disk = disk;
    pair.leader.submit(2, vec![topic(2, 2)]);
    pair.leader.submit(3, vec![topic(3, 3)]);
    pair.finish();
    pair.link();
    pair.finish();
    let notice = pair.follower.controller.poll_notice();
    (names(pair.follower.controller.table()), notice)
}

#[test]
fn a_leader_of_another_table_is_refused() {
    let (names, notice) = of_another_leader(None);
    assert_eq!(names, [(1, "1".into())]);
    let notice = notice.unwrap();
    assert!(notice.contains(&TABLE.to_string()), "{notice}");
    assert!(notice.contains("nothing of either was changed"), "{notice}");
    let (names, _) = of_another_leader(Some(Fault::ForeignLeader));
    assert_ne!(names, [(1, "1".into())]);
}

#[test]
fn a_leader_that_has_lost_what_it_decided_is_refused() {
    let mut pair = Pair::new(5, None);
    pair.finish();
    let older = std::sync::Arc::new(pair.leader.disk.fork());
    pair.leader.submit(1, vec![topic(1, 1)]);
    pair.finish();
    pair.cut();
    pair.leader.disk = older;
    pair.restart_leader();
    pair.link();
    pair.finish();
    let notice = pair.follower.controller.poll_notice().unwrap();
    assert!(notice.contains("the leader has lost"), "{notice}");
    assert_eq!(names(pair.follower.controller.table()), [(1, "1".into())]);
    // What it is asked for says why, after a while.
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.set_time(pair.now + PATIENCE);
    pair.finish();
    let (_, result) = pair.follower.done.last().unwrap();
    assert!(
        matches!(result, Err(ControlError::Apart(reason)) if reason.contains("has lost")),
        "{result:?}"
    );
}

#[test]
fn a_directory_with_a_table_of_its_own_follows_nobody() {
    let mut pair = Pair::new(6, None);
    pair.cut();
    // It has led, or was alone.
    pair.leader.submit(1, vec![topic(1, 1)]);
    pair.finish();
    pair.follower.disk = pair.leader.disk.clone();
    pair.leader.disk = super::harness::Ground::new().disk;
    pair.leader.controller = lead(&pair.leader.disk, true, TABLE, None);
    pair.restart_follower();
    pair.link();
    pair.finish();
    let notice = pair.follower.controller.poll_notice().unwrap();
    assert!(notice.contains("a table of its own"), "{notice}");
    assert_eq!(names(pair.follower.controller.table()), [(1, "1".into())]);
}

fn cursor(offset: u64) -> Record {
    Record::Cursor(CursorRecord {
        namespace: String::new(),
        consumer: "c".into(),
        topic: TopicId(1),
        partition: PartitionIndex(0),
        position: Some(Position {
            incarnation: Incarnation(1),
            offset: Offset(offset),
        }),
        consumer_id: ConsumerId(0),
    })
}

#[test]
fn without_a_leader_its_own_ledger_goes_on_and_changes_wait_for_a_while() {
    let mut pair = Pair::new(7, None);
    pair.follower.submit(1, vec![topic(1, 1)]);
    pair.finish();
    pair.restart_follower();
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.follower.submit(3, vec![cursor(5)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [1, 3]);
    let until = pair.follower.controller.next_timer();
    assert_eq!(until, Some(pair.now + PATIENCE));
    pair.set_time(pair.now + PATIENCE - Duration::from_millis(1));
    pair.finish();
    assert_eq!(pair.follower.done.len(), 2);
    pair.set_time(pair.now + Duration::from_millis(1));
    pair.finish();
    let (token, result) = pair.follower.done.pop().unwrap();
    assert_eq!(token, 2);
    assert!(matches!(result, Err(ControlError::Apart(_))), "{result:?}");
    assert_eq!(pair.follower.controller.next_timer(), None);
    // It was never carried out, and the next one is.
    pair.follower.submit(4, vec![topic(4, 4)]);
    pair.link();
    pair.finish();
    assert_eq!(
        names(pair.leader.controller.table()),
        [(1, "1".into()), (4, "4".into())]
    );
    let table = pair.follower.controller.table();
    let cursors = &table.topic(TopicId(1)).unwrap().cursors;
    assert_eq!(cursors["c"][&PartitionIndex(0)].offset, Offset(5));
}

/// What a leader may have decided is waited for, and not reported as refused.
#[test]
fn what_was_proposed_is_waited_for_however_long_its_leader_is_away() {
    let mut pair = Pair::new(8, None);
    pair.finish();
    pair.follower.submit(1, vec![topic(1, 1)]);
    while pair.leader.controller.table().topic(TopicId(1)).is_none() {
        pair.step();
    }
    pair.cut();
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.set_time(pair.now + 2 * PATIENCE);
    while pair.step() {
        pair.poll();
    }
    pair.poll();
    let done: Vec<_> = pair.follower.done.iter().collect();
    assert!(
        matches!(done[..], [(2, Err(ControlError::Apart(_)))]),
        "{done:?}"
    );
    // The end of the node waits for it no longer than that.
    assert!(pair.follower.controller.is_idle());
    pair.link();
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [1]);
}

fn member(member: u128, is_member: bool) -> Record {
    Record::Member(MemberRecord {
        topic: TopicId(1),
        consumer: "g".into(),
        member: MemberId(member),
        instance: "i".into(),
        client_name: "c".into(),
        session_timeout_ms: 1000,
        is_member,
    })
}

fn group(consumer: &str, id: u64) -> Record {
    Record::Consumer(ConsumerRecord {
        namespace: String::new(),
        consumer: consumer.into(),
        topic: TopicId(1),
        kind: ConsumerKind::Group,
        options: "{}".into(),
        id: ConsumerId(id),
        starts: Vec::new(),
    })
}

/// Entries that the leader does not keep any more: the follower gets the table, in pieces, and what
/// has ended meanwhile has ended.
#[test]
fn who_was_away_for_long_gets_the_whole_table() {
    let mut pair = Pair::new(9, None);
    let owner = |owner| {
        Record::Assignment(AssignmentRecord {
            topic: TopicId(1),
            consumer: "g".into(),
            partition: PartitionIndex(0),
            owner: MemberId(owner),
        })
    };
    let begin = vec![
        topic(1, 1),
        group("g", 1),
        member(1, true),
        member(2, true),
        owner(1),
    ];
    pair.leader.submit(1, begin);
    pair.leader.submit(2, vec![topic(2, 2), group("h", 2)]);
    pair.finish();
    pair.follower.submit(3, vec![cursor(7)]);
    pair.finish();
    pair.cut();
    let ended = Record::ConsumerDeleted(ConsumerDeletedRecord {
        topic: TopicId(1),
        consumer: "h".into(),
    });
    pair.leader
        .submit(4, vec![member(1, false), owner(0), ended]);
    pair.leader
        .submit(5, vec![Record::TopicDeleted(TopicId(2))]);
    for id in 10..40 {
        pair.leader.submit(id as u64, vec![long_topic(id)]);
    }
    pair.finish();
    // A new leader's process keeps no entries of before.
    pair.restart_leader();
    pair.link();
    // On the way it is cut once, and begins anew.
    for _ in 0..20 {
        pair.step();
    }
    pair.link();
    pair.finish();
    let table = pair.follower.controller.table();
    assert_eq!(content(table), content(pair.leader.controller.table()));
    let cursors = &table.topic(TopicId(1)).unwrap().cursors;
    assert_eq!(cursors["c"][&PartitionIndex(0)].offset, Offset(7));
    // And entries go on behind it.
    pair.leader.submit(50, vec![topic(50, 50)]);
    pair.finish();
    let table = pair.follower.controller.table();
    assert!(table.topic(TopicId(50)).is_some());
    assert_eq!(content(&pair.follower.found()), content(table));
}

#[test]
fn what_finds_no_space_in_the_copy_waits_and_is_not_refused() {
    let mut pair = Pair::new(10, None);
    pair.finish();
    pair.follower.disk.set_space(Some(0));
    pair.follower.submit(1, vec![long_topic(1)]);
    pair.leader.submit(2, vec![topic(2, 2)]);
    pair.finish();
    assert_eq!(pair.leader.carried_out(), [2]);
    assert!(pair.follower.done.is_empty());
    assert!(pair.follower.controller.failure(Home::Table).is_none());
    pair.follower.disk.set_space(None);
    // The first try finds out that there is space again.
    while let Some(at) = pair.follower.controller.next_timer() {
        pair.set_time(at);
        pair.finish();
    }
    assert_eq!(pair.follower.carried_out(), [1]);
    let table = pair.follower.controller.table();
    assert_eq!(content(table), content(pair.leader.controller.table()));
}

/// Three proposals are on their way at once: for the first there is no space at the leader, the second
/// makes a topic of a name that there is, and the third comes when there is space again. Returns those
/// that the follower takes for carried out.
fn refused_behind_one_under_way(fault: Option<Fault>) -> Vec<u64> {
    let mut pair = Pair::new(12, fault);
    pair.leader.submit(10, vec![topic(1, 10)]);
    pair.finish();
    pair.leader.disk.set_space(Some(0));
    pair.follower.submit(1, vec![long_topic(5)]);
    let taken = Record::Topic(TopicRecord {
        namespace: String::new(),
        name: "topic 1".into(),
        topic: TopicId(100),
        definition: "2".into(),
    });
    pair.follower.submit(2, vec![taken]);
    pair.talk();
    assert_eq!(pair.asked(), 2);
    while pair.hear_at_leader() {}
    pair.leader.run();
    pair.leader.disk.set_space(None);
    // The first one after that finds out that there is space again.
    for token in [11, 12] {
        pair.leader.submit(token, vec![topic(11, token)]);
        pair.leader.run();
    }
    pair.finish();
    pair.follower.submit(3, vec![topic(3, 3)]);
    pair.finish();
    assert_eq!(pair.follower.done.len(), 3);
    let table = pair.leader.controller.table();
    let has = |id| table.topic(TopicId(id)).is_some();
    assert_eq!([has(3), has(5), has(100)], [true, false, false]);
    pair.follower.carried_out()
}

#[test]
fn refusals_come_in_the_order_of_the_proposals() {
    assert_eq!(refused_behind_one_under_way(None), [3]);
    let done = refused_behind_one_under_way(Some(Fault::RefusedAtOnce));
    assert!(done.contains(&1), "{done:?}");
}

/// One that is refused by its name alone goes with no disk's help, and one behind it that was sent with
/// it goes with it.
#[test]
fn a_refusal_takes_what_was_sent_behind_it() {
    let mut pair = Pair::new(13, None);
    pair.finish();
    pair.follower.submit(1, vec![topic(1, 1)]);
    pair.follower.submit(2, vec![Record::Table(TableId(9))]);
    pair.follower.submit(3, vec![topic(3, 3)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [1]);
    assert_eq!(pair.follower.done.len(), 3);
    pair.follower.submit(4, vec![topic(4, 4)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [1, 4]);
    let own = [(1, "1".into()), (4, "4".into())];
    assert_eq!(names(pair.leader.controller.table()), own);
}

/// The follower has a refusal that waits for an entry before it.
fn with_a_refusal_that_waits(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, None);
    pair.finish();
    pair.leader.submit(10, vec![topic(10, 10)]);
    pair.leader.run();
    pair.follower.submit(1, vec![Record::Table(TableId(9))]);
    pair.talk();
    while pair.hear_at_leader() {}
    pair.talk();
    while pair.hear_at_follower() {}
    pair.talk();
    assert!(pair.follower.done.is_empty());
    pair
}

#[test]
fn a_refusal_that_waits_across_a_cut_counts_on_the_next_link() {
    let mut pair = with_a_refusal_that_waits(14);
    pair.link();
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.finish();
    // It was submitted before the refusal was seen.
    assert_eq!(pair.follower.done.len(), 2);
    assert!(pair.follower.carried_out().is_empty());
    pair.follower.submit(3, vec![topic(3, 3)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [3]);
}

#[test]
fn a_leader_that_refuses_twice_is_not_followed() {
    let mut pair = with_a_refusal_that_waits(15);
    let error = ErrorReply::fatal(ErrorCode::Malformed, "no");
    let refused = TableMessage::Refused(Refused { number: 2, error });
    pair.follower.controller.take_message(LEADER, refused);
    let notice = pair.follower.controller.poll_notice().unwrap();
    assert!(notice.contains("a second refusal"), "{notice}");
    pair.link();
    pair.finish();
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.finish();
    assert_eq!(pair.follower.carried_out(), [2]);
}

#[test]
fn a_copy_whose_log_has_failed_waits_for_no_time() {
    let mut pair = Pair::new(16, None);
    pair.finish();
    let next = pair.follower.disk.operation_count();
    for operation in next..next + 10 {
        let fault = log::testing::Fault::Error;
        pair.follower.disk.fail_at(operation, fault);
    }
    pair.leader.submit(1, vec![topic(1, 1)]);
    pair.finish();
    assert!(pair.follower.controller.failure(Home::Table).is_some());
    assert_eq!(pair.follower.controller.next_timer(), None);
}

/// Its caller may not take it for undone: a topic's storages would be removed, and the topic is there.
#[test]
fn what_a_leader_may_have_decided_is_unknown_when_its_follower_ends() {
    let mut pair = Pair::new(17, None);
    pair.finish();
    pair.follower.submit(1, vec![topic(1, 1)]);
    pair.talk();
    while pair.hear_at_leader() {}
    pair.cut();
    pair.follower.submit(2, vec![topic(2, 2)]);
    pair.talk();
    pair.follower.controller.close();
    pair.poll();
    let done: Vec<_> = pair.follower.done.iter().collect();
    assert!(
        matches!(
            done[..],
            [
                (1, Err(ControlError::Unknown(_))),
                (2, Err(ControlError::Apart(_)))
            ]
        ),
        "{done:?}"
    );
    pair.leader.run();
    assert_eq!(names(pair.leader.controller.table()), [(1, "1".into())]);
}

#[test]
fn followers_that_are_far_behind_share_one_copy_of_the_table() {
    let mut pair = Pair::new(18, None);
    for id in 1..=80 {
        pair.leader.submit(id as u64, vec![long_topic(id)]);
    }
    pair.finish();
    // The entries of before are not kept.
    pair.restart_leader();
    let leader = &mut pair.leader;
    let mut sent = std::collections::BTreeMap::<NodeId, Vec<TableMessage>>::new();
    for number in 1..=20 {
        let node = NodeId(FOLLOWER.0 + number);
        let (table, index, refusals) = (TableId(0), 0, 0);
        let follow = Follow {
            node,
            table,
            index,
            refusals,
        };
        leader
            .controller
            .take_message(node, TableMessage::Follow(follow));
        // Changes meanwhile are sent behind it.
        leader.submit(100 + u64::from(number), vec![topic(100, number.into())]);
        leader.run();
        while let Some((to, message)) = leader.controller.poll_message() {
            sent.entry(to).or_default().push(message);
        }
    }
    assert_eq!(leader.controller.copies(), 1);
    assert_eq!(sent.len(), 20);
    let is_piece = |message: &&TableMessage| matches!(message, TableMessage::Piece(_));
    for (node, messages) in sent {
        assert!(messages.iter().any(|it| is_piece(&it)), "{node:?}");
    }
}
