//! What a memory partition keeps while events come faster than ticks.

use log::testing::{EventSpec, append_of, make_batch, open_partition, origin};
use log::*;
use memory::Buffer;
use wire::record::GapReason;
use wire::*;

const BATCH_BYTES: usize = 1000;

fn fill(config: &str, retention: Retention, batches: u64) -> Box<dyn Storage> {
    let mut open = open_partition(Durability::Memory, config, true);
    open.retention = retention;
    let (mut storage, _) = MemoryKind.open(open).unwrap();
    for number in 0..batches {
        let event = EventSpec {
            metadata: vec![b'x'; BATCH_BYTES],
            ..EventSpec::default()
        };
        let batch = Buffer::copy_of(&make_batch(origin(number), &[event], 4096));
        let append = append_of(batch, Durability::Memory, number);
        storage.append(append).expect("retention makes room");
    }
    storage
}

fn gap_count(storage: &mut dyn Storage) -> usize {
    std::iter::from_fn(|| storage.poll_event())
        .filter(|event| matches!(event, StorageEvent::Lost(_)))
        .count()
}

#[test]
fn retention_needs_no_tick_and_few_records() {
    let by_bytes = Retention {
        bytes: Some(1_600_000),
        ..Retention::default()
    };
    let by_count = Retention {
        count: Some(1000),
        ..Retention::default()
    };
    for retention in [by_bytes, by_count] {
        let mut storage = fill("", retention, 5000);
        let state = storage.state();
        assert!(state.bytes < 2_100_000, "{} bytes are held", state.bytes);
        assert!(state.end.0 - state.first.0 >= 700);
        let gaps = gap_count(&mut *storage);
        assert!((10..=100).contains(&gaps), "{gaps} gap records");
    }
}

#[test]
fn retention_makes_room_before_the_partition_is_full() {
    // Beyond its sixteenth more, the retention is more than the partition may hold.
    let retention = Retention {
        bytes: Some(95_000),
        ..Retention::default()
    };
    let storage = fill(r#"{"bytes_max": 100000}"#, retention, 1000);
    assert!(storage.state().bytes <= 100_000);
}

#[test]
fn what_was_to_be_kept_is_discarded_if_the_limits_hold_for_it_too() {
    for (discards, first) in [(false, 20), (true, 990)] {
        let retention = Retention {
            count: Some(10),
            discards,
            ..Retention::default()
        };
        let mut storage = fill("", Retention::default(), 1000);
        while storage.poll_event().is_some() {}
        storage.set_retention(retention, Offset(20));
        assert_eq!(storage.state().first, Offset(first));
        let gaps: Vec<_> = std::iter::from_fn(|| storage.poll_event())
            .filter_map(|event| match event {
                StorageEvent::Lost(gap) => Some((gap.first.0, gap.end.0, gap.reason)),
                _ => None,
            })
            .collect();
        let kept = (0, 20, GapReason::Retention);
        match discards {
            false => assert_eq!(gaps, [kept]),
            true => assert_eq!(gaps, [kept, (20, 990, GapReason::Discarded)]),
        }
    }
}
