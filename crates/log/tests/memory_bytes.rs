//! A partition in memory takes what it counts, and gives back what has left it.

use log::testing::{Driven, EventSpec, append_of, make_batch, open_partition, origin};
use log::*;
use memory::{Buffer, Pool};
use wire::*;

/// What of this process lies in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn open() -> Box<dyn Storage> {
    let mut open = open_partition(Durability::Memory, "", true);
    open.retention = Retention::default();
    MemoryKind.open(open).unwrap().0
}

/// As a server has it: in memory of a pool, which knows whole pages alone.
fn pooled(pool: &Pool, batch: &[u8], largest: usize) -> Buffer {
    let mut buffer = pool.take(largest);
    buffer[..batch.len()].copy_from_slice(batch);
    buffer.truncate(batch.len());
    buffer
}

/// Fills a partition with batches of one event of so many bytes, of which each arrives in
/// memory for one of `largest`. What the process took for that, and what was counted.
fn fill(
    storage: &mut dyn Storage,
    pool: &Pool,
    (count, bytes, largest): (u64, usize, usize),
    mut beside: impl FnMut(),
) -> (u64, u64) {
    let event = EventSpec {
        metadata: b"{}".to_vec(),
        data: vec![7; bytes],
        external: false,
    };
    let before = resident_bytes();
    for number in 0..count {
        let batch = make_batch(origin(number), std::slice::from_ref(&event), 512);
        let buffer = pooled(pool, &batch, largest.max(batch.len()));
        beside();
        let append = append_of(buffer, Durability::Memory, number);
        storage.append(append).unwrap();
        while storage.poll_event().is_some() {}
    }
    let taken = resident_bytes().saturating_sub(before);
    (taken, storage.state().bytes)
}

/// Within a half more, and what one chunk or the allocator has beside it.
fn is_counted(taken: u64, counted: u64) -> bool {
    taken <= counted + counted / 2 + (2 << 20) && counted <= taken + taken / 2 + (2 << 20)
}

/// One test, for what others take at the same time cannot be told apart.
#[test]
fn a_partition_in_memory_takes_what_it_counts_and_gives_it_back() {
    let pool = Pool::new(1 << 20);
    for load in [
        (100_000, 0, 0),
        (40_000, 1_000, 0),
        (20_000, 5_000, 0),
        (400, 300_000, 0),
        // Memory that lay ready for a batch of twice the size.
        (300, 300_000, 600_000),
    ] {
        let mut storage = open();
        let before = resident_bytes();
        let (taken, counted) = fill(storage.as_mut(), &pool, load, || {});
        assert!(
            is_counted(taken, counted),
            "{load:?}: {taken} for {counted}"
        );
        // What is read is what was written.
        let read = ReadBatches {
            from: Offset(load.0 / 2),
            end: Offset(u64::MAX),
            bytes_max: 1,
            inline_data: true,
        };
        let Some(Found::Batches { batches, .. }) = storage.read_at_hand(&read) else {
            panic!("{load:?}: nothing is found");
        };
        assert!(batches[0].len() >= load.1);
        drop(batches);
        storage.remove_before(Offset(load.0), wire::record::GapReason::Retention);
        pool.give_back_idle();
        pool.give_back_idle();
        assert_eq!(storage.state().bytes, 0);
        let left = resident_bytes().saturating_sub(before);
        assert!(
            left < taken / 4 + (2 << 20),
            "{load:?}: {left} of {taken} are left"
        );
    }
    // The check notices what is not counted: a page for each batch.
    let mut storage = open();
    let mut held = Vec::new();
    let hold = || {
        let mut page = pool.take(1);
        page.fill(1);
        held.push(page);
    };
    let (taken, counted) = fill(storage.as_mut(), &pool, (20_000, 0, 0), hold);
    assert!(!is_counted(taken, counted), "{taken} for {counted}");
    drop((storage, held));
    pool.give_back_idle();
    // Data beside the batches, in chunks that are small.
    let kind = MemoryKind;
    let (storage, _) = kind
        .open(open_partition(Durability::Memory, "", true))
        .unwrap();
    let mut driven = Driven::new(storage, None);
    let before = resident_bytes();
    for number in 0..20_000 {
        let event = EventSpec {
            metadata: b"{}".to_vec(),
            data: vec![7; 1000],
            external: true,
        };
        let appended = driven.append(origin(number), &[event], Durability::Memory, number);
        assert_eq!(appended, Ok(Offset(number)));
        driven.take_events();
    }
    let taken = resident_bytes().saturating_sub(before);
    let counted = driven.storage.state().bytes;
    assert!(
        is_counted(taken, counted),
        "external: {taken} for {counted}"
    );
}
