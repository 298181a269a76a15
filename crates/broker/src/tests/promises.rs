//! The promises that the node keeps, each with the fault that its test
//! catches: a check that no fault can make fail checks nothing.

use super::harness::*;
use crate::Fault;
use log::testing::Survival;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{GapReason, Position};
use wire::*;

type Promise = fn(Ground) -> Result<(), String>;

const PROMISES: [(Promise, Fault); 19] = [
    (an_ack_is_durable, Fault::AckEarly),
    (visible_means_safe, Fault::VisibleEarly),
    (a_cursor_never_moves_back, Fault::CursorBack),
    (a_moved_cursor_is_durable, Fault::CursorEarly),
    (a_refused_cursor_is_where_it_was, Fault::NoRollback),
    (a_cursor_is_found_in_the_ledger, Fault::WrongLedger),
    (
        a_retry_gets_the_offsets_of_its_first_try,
        Fault::NoDeduplication,
    ),
    (a_successor_fences_its_predecessor, Fault::NoFencing),
    (a_fence_is_there_on_a_new_partition, Fault::FenceForgotten),
    (a_leader_that_is_over_takes_nothing, Fault::StaleLeaderEpoch),
    (damaged_bytes_are_refused, Fault::NoChecksum),
    (no_batch_keeps_the_node_from_others, Fault::NoBatchBudget),
    (a_lost_memory_partition_is_a_gap, Fault::NoGap),
    (
        a_lost_memory_partition_is_another_life,
        Fault::SameIncarnation,
    ),
    (
        a_crash_while_a_topic_is_made_leaves_nothing,
        Fault::KeepLeftovers,
    ),
    (a_quiet_topic_keeps_to_its_limits, Fault::NoRetentionTimer),
    (a_full_disk_is_found_to_have_room, Fault::NoRetentionTimer),
    (a_total_holds_for_all_partitions, Fault::TotalForEach),
    (
        super::losses::what_no_topic_names_stays,
        Fault::DeleteUnnamed,
    ),
];

#[test]
fn promises_hold() {
    for (index, (promise, _)) in PROMISES.iter().enumerate() {
        assert_eq!(promise(Ground::new()), Ok(()), "promise {index}");
    }
}

#[test]
fn planted_faults_are_caught() {
    for (promise, fault) in PROMISES {
        let caught = promise(Ground::with_fault(fault));
        assert!(caught.is_err(), "{fault:?} is not noticed");
    }
}

fn check(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// One event's metadata may take a bounded number of steps to be judged, and a batch of
/// them too, so that whoever asks next has an answer.
fn no_batch_keeps_the_node_from_others(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let definition = format!(
        r#"{{"validator": {{"type": "schema", "schema": {}}}, "validate_on_server": true}}"#,
        super::topics::nested(5)
    );
    let topic = world
        .create(link, "t", &definition, &["disk"])
        .map_err(|error| error.message)?
        .topic;
    // Each passes, and ten together do.
    let one = batch(topic, 5, 0, 0, &["{}"; 10]);
    let id = world.produce(link, topic, &one);
    check(world.answer(link, id).is_some(), "ten are not stored")?;
    let many = batch(topic, 5, 0, 10, &["{}"; 500]);
    let id = world.produce(link, topic, &many);
    let error = world.error(link, id).ok_or("any work is done for one")?;
    check(
        error.message.contains("validation budget of a batch"),
        &error.message,
    )?;
    // It fails, and the producer goes on with what it may push.
    world.stored(link, topic, (5, 10), &["{}"]);
    Ok(())
}

/// No answer before the sync; after the answer, the loss of everything that
/// was not synced loses nothing.
fn an_ack_is_durable(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.hold_disk = true;
    let first = batch(topic, 5, 0, 0, &["a"]);
    let id = world.produce(link, topic, &first);
    check(
        world.answer(link, id).is_none(),
        "answered before anything was written",
    )?;
    world.release_disk();
    world
        .answered::<Produced>(link, id)
        .map_err(|error| error.to_string())?;
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    check(
        world.texts(link, subscription) == ["a"],
        "an acknowledged event is gone",
    )
}

/// While the disk is full, an acknowledgement is refused. Nothing is built on it: sent again, it
/// is recorded.
fn a_refused_cursor_is_where_it_was(mut ground: Ground) -> Result<(), String> {
    ground.limits.internal_bytes_max = 16 * 1024;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b", "c"]);
    ground.disk.set_space(Some(0));
    // There is some space that was taken before.
    let is_full = |world: &mut World| {
        let to = world.move_cursor(link, topic, CursorMove::Seek, at(1, 0));
        world.error(link, to).is_some()
    };
    let full = (0..1000).any(|_| is_full(&mut world));
    check(full, "the disk is not full")?;
    let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    let error = world.error(link, id).ok_or("recorded on a full disk")?;
    check(error.code == ErrorCode::StorageFull, &error.message)?;
    ground.disk.set_space(None);
    // The first that is refused has the disk looked at again.
    let is_taken = |world: &mut World| {
        let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
        world.pass(Duration::from_secs(1));
        world.error(link, id).is_none()
    };
    let taken = (0..10).any(|_| is_taken(&mut world));
    check(taken, "refused with space")?;
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    check(
        world.cursor(link, topic) == Some(at(1, 2)),
        "what was confirmed is not recorded",
    )
}

/// Where the start looks for it. What is in the wrong log is refused there.
fn a_cursor_is_found_in_the_ledger(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b"]);
    let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    check(world.error(link, id).is_none(), "the cursor is not moved")?;
    ground.kill();
    let mut world = ground.try_start().map_err(|error| error.to_string())?;
    let link = world.connect();
    check(
        world.cursor(link, topic) == Some(at(1, 2)),
        "the cursor is not found",
    )
}

fn visible_means_safe(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    world.hold_disk = true;
    let first = batch(topic, 5, 0, 0, &["a"]);
    let id = world.produce(link, topic, &first);
    let described = world.describe(link, "t").unwrap();
    let watermarks = described.partitions[0].watermarks;
    check(
        watermarks.committed == Offset(0),
        "counted before it is durable",
    )?;
    let fetch = fetch(at(0, 0), 0);
    let fetched = world.request(link, Method::Fetch, topic, &fetch, &[]);
    check(
        matches!(world.answer(link, fetched), Some(Ok(_)))
            && world.fetched(link, fetched).is_empty(),
        "fetched before it is durable",
    )?;
    let cursor = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    let passed = world.error(link, cursor).map(|error| error.code);
    check(
        passed == Some(ErrorCode::OffsetOutOfRange),
        "a cursor passed the visible end",
    )?;
    check(
        world.texts(link, subscription).is_empty(),
        "delivered before it is durable",
    )?;
    world.release_disk();
    check(world.answer(link, id).is_some(), "never answered")?;
    check(world.texts(link, subscription) == ["a"], "never delivered")
}

fn a_cursor_never_moves_back(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b", "c"]);
    // The smaller comes while the greater is still on its way to the disk.
    world.hold_disk = true;
    world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 3));
    let smaller = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    check(
        world.answer(link, smaller).is_none(),
        "durable before it is written",
    )?;
    // Nor does it for whoever opens the name again meanwhile.
    let again = world.subscribe(link, topic, "c", Start::Cursor);
    world.release_disk();
    check(
        world.texts(link, again).is_empty(),
        "delivered again behind its acknowledgement",
    )?;
    check(
        world.error(link, smaller).is_none(),
        "a late acknowledgement is an error",
    )?;
    check(world.cursor(link, topic) == Some(at(1, 3)), "moved back")?;
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    check(
        world.cursor(link, topic) == Some(at(1, 3)),
        "moved back by a restart",
    )?;
    let rewind = world.move_cursor(link, topic, CursorMove::Seek, at(1, 1));
    check(world.error(link, rewind).is_none(), "a rewind is refused")?;
    check(
        world.cursor(link, topic) == Some(at(1, 1)),
        "a rewind does not rewind",
    )
}

fn a_moved_cursor_is_durable(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a", "b", "c"]);
    world.hold_disk = true;
    let id = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    check(
        world.answer(link, id).is_none(),
        "answered before it is synced",
    )?;
    world.release_disk();
    check(world.error(link, id).is_none(), "refused")?;
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    check(world.cursor(link, topic) == Some(at(1, 2)), "lost")
}

fn a_retry_gets_the_offsets_of_its_first_try(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    world.stored(link, topic, (5, 0), &["a"]);
    let first = world.stored(link, topic, (5, 1), &["b", "c"]);
    let again = batch(topic, 5, 0, 1, &["b", "c"]);
    for restart in [false, true] {
        let (mut now, link) = match restart {
            false => (None, link),
            true => {
                ground.kill();
                let mut world = ground.start();
                let link = world.connect();
                (Some(world), link)
            }
        };
        let world = now.as_mut().unwrap_or(&mut world);
        let id = world.produce(link, topic, &again);
        let second: Produced = world
            .answered(link, id)
            .map_err(|error| error.to_string())?;
        check(second.base_offset == first.base_offset, "stored twice")?;
        check(second.duplicate, "not known as a retry")?;
        let subscription = world.subscribe(link, topic, "c", Start::Beginning);
        check(
            world.texts(link, subscription) == ["a", "b", "c"],
            "doubled",
        )?;
    }
    Ok(())
}

fn a_fence_is_there_on_a_new_partition(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let fresh = OpenProducer {
        name: "p".into(),
        resume: ProducerId(0),
        resume_epoch: ProducerEpoch(0),
    };
    let mut open = || -> ProducerOpened {
        let opened = world.call(link, Method::OpenProducer, topic, &fresh);
        opened.unwrap()
    };
    let (first, second) = (open(), open());
    let add = AddPartitions {
        partitions: vec![storage("disk")],
    };
    let added: Result<TopicDescription, _> = world.call(link, Method::AddPartitions, topic, &add);
    let added = added.map_err(|error| error.to_string())?;
    let new = PartitionIndex(added.partitions.len() as u32 - 1);
    // The successor has written nothing there.
    for (epoch, is_taken) in [(first.epoch, false), (second.epoch, true)] {
        let one = batch(topic, first.producer.0, epoch.0, 0, &["a"]);
        let produce = Produce {
            partition: new,
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        let id = world.request(link, Method::Produce, topic, &produce, &one);
        let produced = world.answered::<Produced>(link, id);
        check(
            produced.is_ok() == is_taken,
            "the predecessor writes where its successor has not",
        )?;
    }
    Ok(())
}

fn a_successor_fences_its_predecessor(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let open = |resume: (ProducerId, ProducerEpoch)| OpenProducer {
        name: "p".into(),
        resume: resume.0,
        resume_epoch: resume.1,
    };
    let fresh = open((ProducerId(0), ProducerEpoch(0)));
    let first: ProducerOpened = world
        .call(link, Method::OpenProducer, topic, &fresh)
        .unwrap();
    let one = batch(topic, first.producer.0, first.epoch.0, 0, &["a"]);
    let id = world.produce(link, topic, &one);
    world
        .answered::<Produced>(link, id)
        .map_err(|error| error.to_string())?;
    drop(world);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let second: ProducerOpened = world
        .call(link, Method::OpenProducer, topic, &fresh)
        .unwrap();
    check(second.producer == first.producer, "its id is not kept")?;
    check(second.epoch > first.epoch, "its life is not a new one")?;
    // The successor has sent nothing yet.
    let two = batch(topic, first.producer.0, first.epoch.0, 1, &["b"]);
    let id = world.produce(link, topic, &two);
    let code = world.error(link, id).map(|error| error.code);
    check(
        code == Some(ErrorCode::ProducerFenced),
        "the predecessor goes on",
    )?;
    let resumed = open((first.producer, first.epoch));
    let resumed = world.call::<ProducerOpened>(link, Method::OpenProducer, topic, &resumed);
    let code = resumed.err().map(|error| error.code);
    check(
        code == Some(ErrorCode::ProducerFenced),
        "the predecessor resumes",
    )?;
    let resumed = open((second.producer, second.epoch));
    world
        .call::<ProducerOpened>(link, Method::OpenProducer, topic, &resumed)
        .map_err(|error| error.to_string())?;
    let three = batch(topic, second.producer.0, second.epoch.0, 0, &["c"]);
    let id = world.produce(link, topic, &three);
    check(world.error(link, id).is_none(), "the successor is refused")
}

fn damaged_bytes_are_refused(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    let good = batch(topic, 5, 0, 0, &["some text", "and more"]);
    for at in wire::batch::STAMP_BYTES..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let id = world.produce(link, topic, &bad);
        check(world.error(link, id).is_some(), "a flipped bit is stored")?;
    }
    let id = world.produce(link, topic, &good);
    check(
        world.error(link, id).is_none(),
        "the undamaged batch is refused",
    )
}

fn lost_memory(mut ground: Ground) -> (World, LinkAndTopic, Vec<Delivered>) {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.create(link, "t", "{}", &["memory"]).unwrap().topic;
    world.stored(link, topic, (5, 0), &["a", "b"]);
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    world.answered::<Empty>(link, moved).unwrap();
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    world.stored(link, topic, (6, 0), &["x", "y"]);
    let subscription = world.subscribe(link, topic, "c", Start::Cursor);
    let delivered = world.delivered(link, subscription);
    (world, (link, topic), delivered)
}

type LinkAndTopic = (crate::node::LinkId, TopicId);

fn a_lost_memory_partition_is_a_gap(ground: Ground) -> Result<(), String> {
    let (mut world, (link, _), delivered) = lost_memory(ground);
    let gap = delivered.iter().find_map(|delivered| match delivered {
        Delivered::Gap(gap) => Some(*gap),
        Delivered::Event(..) => None,
    });
    let gap = gap.ok_or("the loss is not delivered")?;
    check(gap.reason == GapReason::MemoryLost, "with another reason")?;
    check(
        (gap.incarnation, gap.first) == (Incarnation(1), Offset(1)),
        "at another place",
    )?;
    let name = TopicName { name: "t".into() };
    let list: GapList = world
        .call(link, Method::ListGaps, TopicId(0), &name)
        .unwrap();
    check(list.gaps.len() == 1, "the loss is not listed")
}

fn a_leader_that_is_over_takes_nothing(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.create(link, "t", "{}", &["memory"]).unwrap().topic;
    let epoch = |world: &mut World, link| {
        let description = world.describe(link, "t").unwrap();
        description.partitions[0].leader_epoch
    };
    world.leader_epoch = epoch(&mut world, link);
    check(
        world.leader_epoch == 1,
        "the first leader has another epoch",
    )?;
    world.stored(link, topic, (5, 0), &["a", "b"]);
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    for (known, words) in [
        (
            1,
            "t/0: leader epoch 1 is over, the present one is 2; look the topic up again",
        ),
        (
            3,
            "leader epoch 3 is not known here yet, the present one is 2",
        ),
    ] {
        world.leader_epoch = known;
        let produced = world.produce(link, topic, &batch(topic, 6, 0, 0, &["x"]));
        let subscribed = world.subscribe(link, topic, "c", Start::Latest);
        let fetch = Fetch {
            partition: PartitionIndex(0),
            from: at(0, 0),
            bytes_max: 1000,
            wait_max_ms: 0,
            inline_data: true,
        };
        let fetched = world.request(link, Method::Fetch, topic, &fetch, &[]);
        for id in [produced, subscribed, fetched] {
            let error = world
                .error(link, id)
                .ok_or("a leader that is over answers")?;
            check(
                error.code == ErrorCode::NotLeader,
                "refused as something else",
            )?;
            check(error.retryable, "refused for good")?;
            check(error.message.contains(words), &error.message)?;
        }
    }
    // Who looks the topic up is served, and so is who knows no leader.
    for known in [2, 0] {
        world.leader_epoch = known;
        check(epoch(&mut world, link) == 2, "described with another epoch")?;
        world.stored(link, topic, (7 + u128::from(known), 0), &["y"]);
    }
    let subscription = world.subscribe(link, topic, "c", Start::Beginning);
    let inbox = &world.links[&link].inbox;
    let delivered = inbox
        .iter()
        .filter(|m| m.id == subscription && m.kind == FrameKind::Deliver);
    let batches: Vec<_> = delivered.flat_map(|message| &message.payload).collect();
    check(!batches.is_empty(), "nothing is delivered")?;
    for batch in batches {
        let stamp = wire::batch::Stamp::read(batch).unwrap();
        check(stamp.leader_epoch == 2, "stamped with another epoch")?;
    }
    Ok(())
}

fn a_lost_memory_partition_is_another_life(ground: Ground) -> Result<(), String> {
    let (mut world, (link, topic), delivered) = lost_memory(ground);
    let events: Vec<(Position, String)> = delivered
        .into_iter()
        .filter_map(|delivered| match delivered {
            Delivered::Event(position, text) => Some((position, text)),
            Delivered::Gap(_) => None,
        })
        .collect();
    let expected = [(at(2, 0), "x".to_owned()), (at(2, 1), "y".to_owned())];
    check(events == expected, "events of two lives are mixed up")?;
    check(
        world.cursor(link, topic) == Some(at(1, 1)),
        "the cursor changed by itself",
    )?;
    let description = world.describe(link, "t").unwrap();
    let partition = &description.partitions[0];
    check(
        partition.incarnation == Incarnation(2),
        "described in its old life",
    )?;
    check(
        partition.ended == [(Incarnation(1), Offset(0))],
        "its old life is forgotten",
    )?;
    let moved = world.move_cursor(link, topic, CursorMove::Acknowledge, at(2, 1));
    check(
        world.error(link, moved).is_none(),
        "refused in the new life",
    )?;
    let late = world.move_cursor(link, topic, CursorMove::Acknowledge, at(1, 2));
    check(
        world.error(link, late).is_none(),
        "a late acknowledgement is an error",
    )?;
    check(
        world.cursor(link, topic) == Some(at(2, 1)),
        "moved back to the old life",
    )
}

/// The machine stops at every operation of the making of a topic; what the
/// next start finds is the whole topic or nothing.
fn a_crash_while_a_topic_is_made_leaves_nothing(ground: Ground) -> Result<(), String> {
    let mut started = ground.clone();
    drop(started.start());
    let before = started.disk.operation_count();
    let make = |ground: &Ground, stop: Option<u64>| {
        let disk = std::sync::Arc::new(started.disk.fork());
        disk.kill();
        let mut ground = Ground {
            fault: ground.fault,
            ..Ground::on(disk)
        };
        let mut world = ground.start();
        let first = ground.disk.operation_count();
        let link = world.connect();
        if let Some(stop) = stop {
            ground
                .disk
                .fail_at(first + stop, log::testing::Fault::Stop(0));
        }
        let made = world.try_create(link, "t", &["disk", "disk"]);
        (ground.disk.operation_count() - first, made, ground)
    };
    let (count, ..) = make(&ground, None);
    check(before > 0 && count > 10, "nothing was done")?;
    for stop in 0..count {
        for survival in [
            None,
            Some(Survival::Nothing),
            Some(Survival::All),
            Some(Survival::Some(stop)),
        ] {
            let (_, made, mut ground) = make(&ground, Some(stop));
            match survival {
                None => ground.kill(),
                Some(survival) => ground.power_loss(survival),
            }
            let mut world = ground.start();
            let link = world.connect();
            let found = world.describe(link, "t");
            let directories = ground.directories().len();
            match found {
                Ok(description) => check(
                    description.partitions.len() == 2 && directories == 2,
                    &format!("half a topic after stop {stop}"),
                )?,
                Err(_) => {
                    check(
                        made.is_none_or(|made| made.is_err()),
                        "a topic that was made is gone",
                    )?;
                    check(
                        directories == 0,
                        &format!("{directories} directories are left after stop {stop}"),
                    )?;
                }
            }
            world
                .create(link, "u", "{}", &["disk"])
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// After the last append nothing but time makes old events leave.
fn a_quiet_topic_keeps_to_its_limits(mut ground: Ground) -> Result<(), String> {
    for kind in ["disk", "memory"] {
        let mut world = ground.start();
        let link = world.connect();
        let topic = world
            .create(link, kind, r#"{"retention":{"age_ms":60000}}"#, &[kind])
            .map_err(|error| error.to_string())?
            .topic;
        for sequence in 0..10 {
            world.stored(link, topic, (5, sequence), &["x"]);
        }
        for _ in 0..70 {
            world.pass(Duration::from_secs(1));
            world.message(link, FrameKind::Heartbeat, 0, vec![], &[]);
        }
        let described = world.describe(link, kind).map_err(|e| e.to_string())?;
        let first = described.partitions[0].first;
        check(
            first == Offset(10),
            &format!("{kind}: kept from {first} on"),
        )?;
    }
    Ok(())
}

/// However many partitions share what a topic keeps, and whenever they came; also of a
/// node that is started anew.
fn a_total_holds_for_all_partitions(mut ground: Ground) -> Result<(), String> {
    const TOTAL: u64 = 4_000_000;
    let mut world = ground.start();
    let mut link = world.connect();
    let definition = format!(r#"{{"retention":{{"total_bytes":{TOTAL}}}}}"#);
    let topic = world
        .create(link, "t", &definition, &["disk", "disk"])
        .map_err(|error| error.to_string())?
        .topic;
    let text = "x".repeat(50_000);
    for (round, partitions) in [2, 2, 4].into_iter().enumerate() {
        if partitions == 4 {
            let add = AddPartitions {
                partitions: vec![storage("disk"), storage("disk")],
            };
            let added: Result<TopicDescription, _> =
                world.call(link, Method::AddPartitions, topic, &add);
            added.map_err(|error| error.to_string())?;
        }
        let kept = |world: &mut World| -> Result<Vec<u64>, String> {
            let described = world.describe(link, "t").map_err(|e| e.to_string())?;
            Ok(described.partitions.iter().map(|one| one.bytes).collect())
        };
        for sequence in 0..100 {
            for partition in 0..partitions {
                let producer = 10 * (round as u128 + 1) + u128::from(partition);
                let produce = Produce {
                    partition: PartitionIndex(partition),
                    durability: Durability::Memory,
                    regions: Vec::new(),
                };
                let event = batch(topic, producer, 0, sequence, &[&text]);
                world.request(link, Method::Produce, topic, &produce, &event);
            }
        }
        world.pass(Duration::from_secs(2));
        let bytes = kept(&mut world)?;
        let share = TOTAL / u64::from(partitions);
        // A segment, an eighth of the share, and a batch may be more.
        let most = share + share / 8 + 60_000;
        check(
            bytes.iter().all(|kept| *kept <= most && *kept > share / 2),
            &format!("{partitions} partitions keep {bytes:?}, each {share}"),
        )?;
        if round == 0 {
            drop(world);
            ground.kill();
            world = ground.start();
            link = world.connect();
        }
    }
    Ok(())
}

/// Nobody has to push, and to be refused, for a partition to notice that there is room.
fn a_full_disk_is_found_to_have_room(mut ground: Ground) -> Result<(), String> {
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.topic(link);
    ground.disk.set_space(Some(0));
    let text = "x".repeat(500_000);
    let event = batch(topic, 5, 0, 0, &[&text]);
    let id = world.produce(link, topic, &event);
    let refused = world.error(link, id).map(|error| error.code);
    check(
        refused == Some(ErrorCode::StorageFull),
        "the disk is not full",
    )?;
    ground.disk.set_space(None);
    for _ in 0..3 {
        world.pass(Duration::from_secs(1));
    }
    let status = world.node.status()["topics"][0]["partitions"][0]["full"].clone();
    check(status.is_null(), &format!("full for ever: {status}"))?;
    let id = world.produce(link, topic, &event);
    let stored = world.answered::<Produced>(link, id);
    check(stored.is_ok(), &format!("{:?}", stored.err()))
}
