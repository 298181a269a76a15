//! Batches of a mirror on their way to the copy: each once, in order, whatever credit there is.

use crate::world::World;
use bytes::Bytes;
use client::*;
use std::time::Duration;
use wire::batch::STAMP_BYTES;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Something that looks like a batch to who passes it on: its number lies behind the stamp.
fn batch(number: u64, bytes: usize) -> CopiedBatch {
    let mut batch = vec![0; bytes];
    batch[STAMP_BYTES..STAMP_BYTES + 8].copy_from_slice(&number.to_le_bytes());
    CopiedBatch {
        partition: PartitionIndex(0),
        opening: 1,
        batch: batch.into(),
        data: vec![Bytes::from_static(b"large data")],
    }
}

fn numbers(world: &World) -> Vec<u64> {
    let number = |batch: &Vec<u8>| {
        let bytes = batch[STAMP_BYTES..STAMP_BYTES + 8].try_into();
        u64::from_le_bytes(bytes.unwrap())
    };
    world.server.mirrored.iter().map(number).collect()
}

#[test]
fn each_is_sent_once_and_in_order_whatever_credit_there_is() {
    let mut world = World::new();
    world.server.produce_credit = 100_000;
    let topic = world.topic(1);
    // Small ones do not overtake a large one that waits, and all together need the credit many times.
    let sizes = [60_000, 300, 90_000, 300, 300];
    let begin = |number: u64| {
        let bytes = sizes[number as usize % sizes.len()];
        topic.begin_append_mirrored(batch(number, bytes), MINUTE)
    };
    let mut appends: Vec<_> = (0..200).map(begin).collect();
    assert!(world.run_until(MINUTE, |_| {
        appends.retain_mut(|append| match append.try_get() {
            Some(outcome) => outcome.is_err(),
            None => true,
        });
        appends.is_empty()
    }));
    assert_eq!(numbers(&world), (0..200).collect::<Vec<_>>());
    assert_eq!(world.server.requests(Method::AppendMirrored), 200);
}

#[test]
fn one_that_is_refused_is_not_sent_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    let error = ErrorReply::retryable(ErrorCode::CredentialExpired, 100, "it has expired");
    world.server.refuse(Method::AppendMirrored, error);
    let append = topic.begin_append_mirrored(batch(0, 1000), MINUTE);
    match world.wait(append) {
        Err(ClientError::Server(error)) => assert_eq!(error.code, ErrorCode::CredentialExpired),
        other => panic!("{other:?}"),
    }
    world.run_until(10 * SECOND, |_| false);
    assert_eq!(world.server.requests(Method::AppendMirrored), 1);
}

#[test]
fn one_that_is_given_up_makes_room_for_those_behind_it() {
    let mut world = World::new();
    world.server.produce_credit = 100_000;
    let topic = world.topic(1);
    world.server.is_silent = true;
    let first = topic.begin_append_mirrored(batch(0, 90_000), MINUTE);
    let second = topic.begin_append_mirrored(batch(1, 90_000), MINUTE);
    world.run_until(SECOND, |world| world.server.unanswered_bytes > 0);
    world.server.is_silent = false;
    first.cancel();
    world.wait(second).unwrap();
    assert_eq!(numbers(&world), [1]);
}
