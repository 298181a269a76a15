//! What can go wrong with a batch: the list is the test.

use wire::batch::{
    Batch, BatchBuilder, DATA_ALIGNMENT, EventParts, Header, Headers, LocalStamp, Origin,
    SHARED_STAMP_BYTES, STAMP_BYTES, Stamp, Verify, gap_batch,
};
use wire::codec::Codec;
use wire::record::{Gap, GapReason};
use wire::{Incarnation, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};

const ORIGIN: Origin = Origin {
    topic: TopicId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
    producer: ProducerId(42),
    epoch: ProducerEpoch(3),
    first_sequence: Sequence(1000),
};

fn stamp(batch: &mut [u8]) {
    let (header, header_crc) = Header::read(&batch[STAMP_BYTES..]).unwrap();
    let stamp = Stamp {
        batch_bytes: header.batch_bytes(),
        base_offset: Offset(7),
        append_time: 1_700_000_000_000_000_000,
        header_crc,
        ..Stamp::default()
    };
    stamp.write(batch);
}

/// Four events that use every column between them.
fn rich() -> Vec<u8> {
    let headers = Headers(vec![("unit".to_owned(), bytes::Bytes::from_static(b"mm"))]).to_bytes();
    let mut builder = BatchBuilder::default();
    builder.push(EventParts {
        metadata: b"{\"angle\":1}",
        ..EventParts::default()
    });
    builder.push(EventParts {
        metadata: b"{}",
        inline: &[b"first ", b"second"],
        key: Some(b"left"),
        producer_time: 17,
        ..EventParts::default()
    });
    builder.push(EventParts {
        external_bytes: Some(10_000),
        headers: Some(&headers),
        ..EventParts::default()
    });
    builder.push(EventParts {
        metadata: b"x",
        key: Some(b""),
        tombstone: true,
        external_bytes: Some(0),
        ..EventParts::default()
    });
    builder.seal(ORIGIN, 4096).to_vec()
}

#[test]
fn what_was_pushed_is_read_back() {
    let mut bytes = rich();
    assert!(
        Batch::read(&bytes[..], Verify::Sections)
            .unwrap()
            .stamp
            .is_none()
    );
    stamp(&mut bytes);
    let batch = Batch::read(&bytes[..], Verify::Sections).unwrap();
    assert_eq!(batch.stamp.unwrap().base_offset, Offset(7));
    assert_eq!(batch.header.first_sequence, Sequence(1000));
    assert_eq!(batch.header.event_count, 4);
    let columns = batch.columns().unwrap();
    let [plain, inline, external, last] = columns.events[..] else {
        panic!("four events")
    };
    let metadata = |event: wire::batch::EventRef| {
        &batch.metadata_section()[event.metadata_start as usize..][..event.metadata_bytes as usize]
    };
    assert_eq!(metadata(plain), b"{\"angle\":1}");
    assert_eq!(
        (plain.data_bytes, plain.key, plain.producer_time),
        (0, None, None)
    );
    assert_eq!(metadata(inline), b"{}");
    assert_eq!(batch.inline_section().unwrap(), b"first second");
    assert_eq!(
        (inline.data_start, inline.data_bytes, inline.external),
        (0, 12, false)
    );
    assert_eq!(inline.producer_time, Some(17));
    let (start, length) = inline.key.unwrap();
    assert_eq!(
        &batch.columns_section()[start as usize..][..length as usize],
        b"left"
    );
    assert_eq!(metadata(external), b"");
    assert_eq!(
        (external.data_start, external.data_bytes, external.external),
        (0, 10_000, true)
    );
    let (start, length) = external.headers.unwrap();
    let headers = &batch.columns_section()[start as usize..][..length as usize];
    assert_eq!(
        Headers::from_bytes("headers", headers).unwrap().0[0].0,
        "unit"
    );
    assert!(last.tombstone && last.external && last.data_bytes == 0);
    assert_eq!(last.key.unwrap().1, 0, "an empty key is not null");
    assert_eq!(last.offset_delta, 3);
    let layout = &columns.external;
    assert_eq!(layout.events, [(2, 0, 10_000), (3, 3 * DATA_ALIGNMENT, 0)]);
    assert_eq!(
        (layout.table_position, layout.block_count),
        (3 * DATA_ALIGNMENT, 3)
    );
    assert_eq!(layout.total_bytes, 4 * DATA_ALIGNMENT);
}

#[test]
fn metadata_can_be_had_without_the_inline_data() {
    let bytes = rich();
    let whole = Batch::read(&bytes[..], Verify::Sections).unwrap();
    let prefix = whole.header.prefix_bytes() as usize;
    assert_eq!(prefix + 12, bytes.len());
    let batch = Batch::read(&bytes[..prefix], Verify::Sections).unwrap();
    assert!(batch.inline_section().is_none());
    assert_eq!(batch.columns().unwrap(), whole.columns().unwrap());
}

#[test]
fn every_other_prefix_is_an_error() {
    let mut bytes = rich();
    stamp(&mut bytes);
    let prefix = Batch::read(&bytes[..], Verify::Headers)
        .unwrap()
        .header
        .prefix_bytes() as usize;
    for end in (0..bytes.len()).filter(|end| *end != prefix) {
        assert!(
            Batch::read(&bytes[..end], Verify::Headers).is_err(),
            "{end} bytes pass"
        );
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let mut bytes = rich();
    stamp(&mut bytes);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(
            Batch::read(&bytes[..], Verify::Sections).is_err(),
            "bit {bit} passes"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(Batch::read(&bytes[..], Verify::Sections).is_ok());
}

/// Columns are decoded from bytes whose checksum is right but whose content
/// a hostile producer chose: any bytes give a value or an error.
#[test]
fn hostile_columns_are_errors_not_panics() {
    let batch = rich();
    let (header, _) = Header::read(&batch[STAMP_BYTES..]).unwrap();
    let section = Batch::read(&batch[..], Verify::Headers)
        .unwrap()
        .columns_section()
        .to_vec();
    let mut refused = 0;
    for at in 0..section.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut section = section.clone();
            section[at] = value;
            refused += u32::from(wire::batch::Columns::read(&header, &section).is_err());
        }
        assert!(wire::batch::Columns::read(&header, &section[..at]).is_err());
    }
    assert!(refused > 0);
    let hostile = Header {
        event_count: u32::MAX,
        last_offset_delta: u32::MAX,
        ..header
    };
    assert!(wire::batch::Columns::read(&hostile, &section).is_err());
    for columns in 1..=wire::batch::column::KNOWN {
        let _ = wire::batch::Columns::read(&Header { columns, ..header }, &section);
    }
}

#[test]
fn an_unknown_version_feature_kind_or_column_is_refused_by_name() {
    let batch = rich();
    for (at, value, field) in [
        (
            8,
            1,
            "format version is 0x1: written by an older version of Thalweg",
        ),
        (
            8,
            3,
            "format version is 0x3: written by a newer version of Thalweg",
        ),
        (9, 200, "kind"),
        (12, 1, "incompatible features"),
        (21, 0x10, "columns"),
        (76, 1, "section codec"),
        (79, 40, "log2 of the block length"),
        (127, 1, "reserved"),
    ] {
        let mut header = batch[STAMP_BYTES..STAMP_BYTES + 128].to_vec();
        header[at] = value;
        let crc = wire::checksum::crc32c(&header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        let error = Header::read(&header).unwrap_err().to_string();
        assert!(error.contains(field), "{error} does not name {field}");
    }
}

const LOCAL: LocalStamp = LocalStamp {
    segment_salt: 99,
    synced_bytes: 4096,
    data_segment: Offset(3),
    data_position: 8192,
};

#[test]
fn a_copy_takes_the_shared_half_over_and_has_a_local_half_of_its_own() {
    let mut leaders = rich();
    stamp(&mut leaders);
    LOCAL.write(&mut leaders);
    // On its way the local half is zero; the shared half verifies by itself.
    let mut copy = leaders.clone();
    copy[SHARED_STAMP_BYTES..STAMP_BYTES].fill(0);
    let shared = Stamp::read(&copy[..SHARED_STAMP_BYTES]).unwrap();
    assert_eq!(Ok(shared), Stamp::read(&leaders));
    assert_eq!(LocalStamp::read(&copy), Ok(None));
    assert_eq!(
        Batch::read(&copy[..], Verify::Sections).unwrap().stamp,
        Some(shared)
    );
    let own = LocalStamp {
        segment_salt: 100,
        synced_bytes: 0,
        data_segment: Offset(0),
        data_position: 0,
    };
    own.write(&mut copy);
    assert_eq!(copy[..SHARED_STAMP_BYTES], leaders[..SHARED_STAMP_BYTES]);
    assert_eq!(copy[STAMP_BYTES..], leaders[STAMP_BYTES..]);
    assert_eq!(LocalStamp::read(&copy), Ok(Some(own)));
    assert_eq!(LocalStamp::read(&leaders), Ok(Some(LOCAL)));
    Batch::read(&copy[..], Verify::Sections).unwrap();
}

#[test]
fn halves_of_two_stamps_are_no_stamp() {
    let mut first = rich();
    stamp(&mut first);
    LOCAL.write(&mut first);
    let mut second = first.clone();
    let shared = Stamp {
        append_time: 1,
        ..Stamp::read(&first).unwrap()
    };
    shared.write(&mut second);
    LOCAL.write(&mut second);
    first[..SHARED_STAMP_BYTES].copy_from_slice(&second[..SHARED_STAMP_BYTES]);
    assert_eq!(Stamp::read(&first), Ok(shared));
    let error = LocalStamp::read(&first).unwrap_err().to_string();
    assert!(error.contains("local half at byte 84"), "{error}");
    assert!(Batch::read(&first[..], Verify::Headers).is_err());
}

#[test]
fn every_flipped_bit_of_a_stamp_is_seen() {
    let mut bytes = rich();
    stamp(&mut bytes);
    for local in [None, Some(LOCAL)] {
        if let Some(local) = local {
            local.write(&mut bytes);
        }
        for bit in 0..STAMP_BYTES * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Batch::read(&flipped[..], Verify::Headers);
            assert!(
                read.is_err(),
                "bit {bit} of a stamp with local half {local:?}"
            );
        }
    }
}

#[test]
fn a_compatible_feature_is_ignored() {
    let batch = rich();
    let mut header = batch[STAMP_BYTES..STAMP_BYTES + 128].to_vec();
    header[16] = 1;
    let crc = wire::checksum::crc32c(&header[8..]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::read(&header).unwrap().0.features_compatible, 1);
}

#[test]
fn a_gap_batch_takes_no_offsets_and_carries_its_gap() {
    let gap = Gap {
        incarnation: Incarnation(2),
        first: Offset(10),
        end: Offset(20),
        reason: GapReason::Retention,
        time: 5,
    };
    let bytes = gap_batch(ORIGIN.topic, &gap).to_vec();
    let batch = Batch::read(&bytes[..], Verify::Sections).unwrap();
    assert_eq!(batch.header.offset_count(), 0);
    assert_eq!(Gap::from_bytes("gap", batch.metadata_section()), Ok(gap));
}
