//! Events of one batch that are opened together cost what one of them does.

use log::testing::{Driven, EventSpec, FaultyDisk, open_partition, origin};
use log::*;
use std::path::PathBuf;
use std::sync::Arc;
use wire::*;

const CONFIG: &str = r#"{"segment_bytes": 4000000, "tail_bytes_max": 0}"#;
const BATCHES: u64 = 4;
const EVENTS: u64 = 50;

fn data_of(number: u64) -> Vec<u8> {
    vec![number as u8; 1000]
}

/// Opens so many events at once, and says how often the disk was read for it.
fn open_all(disk: &Arc<FaultyDisk>, driven: &mut Driven, offsets: &[u64]) -> usize {
    let from = disk.trace().len();
    for offset in offsets {
        driven
            .storage
            .open_event(ReadToken(*offset), Offset(*offset));
    }
    let mut opened = Vec::new();
    for event in driven.take_events() {
        if let StorageEvent::EventOpened { token, data } = event {
            opened.push((token.0, data.expect("it is there")));
        }
    }
    opened.sort_by_key(|(offset, _)| *offset);
    let reads = disk.trace().split_off(from);
    let reads = reads
        .iter()
        .filter(|traced| traced.what.starts_with("read"));
    let reads = reads.count();
    let mut wanted = offsets.to_vec();
    wanted.sort_unstable();
    let found: Vec<u64> = opened.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(found, wanted, "each is answered once");
    for (offset, data) in opened {
        let whole = wire::view::Segment {
            offset: 0,
            bytes: data.bytes,
        };
        let pieces = driven.read_parts(&data, vec![whole]).unwrap();
        assert_eq!(pieces.concat(), data_of(offset));
    }
    reads
}

#[test]
fn a_batch_is_read_once_for_all_its_events() {
    let disk = Arc::new(FaultyDisk::new());
    let kind = DiskKind::seeded(disk.clone(), 3);
    let open = |create| {
        let mut open = open_partition(Durability::Written, CONFIG, create);
        open.directory = PathBuf::from("/p");
        let (storage, _) = kind.open(open).unwrap();
        Driven::new(storage, Some(disk.clone()))
    };
    let mut driven = open(true);
    for batch in 0..BATCHES {
        let events = (batch * EVENTS..(batch + 1) * EVENTS).map(|number| EventSpec {
            metadata: b"{}".to_vec(),
            data: data_of(number),
            external: false,
        });
        let events: Vec<EventSpec> = events.collect();
        let origin = origin(batch * EVENTS);
        driven
            .append(origin, &events, Durability::Written, batch)
            .unwrap();
    }
    // Opened again, it has nothing at hand.
    driven.storage.close();
    driven.settle();
    let mut driven = open(false);
    let all: Vec<u64> = (0..BATCHES * EVENTS).collect();
    let reads = open_all(&disk, &mut driven, &all);
    assert!(reads <= 2 * BATCHES as usize, "{reads} reads");
    // Whatever their order.
    let mut driven = open(false);
    let mixed: Vec<u64> = all.iter().map(|n| n * 77 % (BATCHES * EVENTS)).collect();
    open_all(&disk, &mut driven, &mixed);
}
