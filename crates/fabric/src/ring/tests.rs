//! What can go wrong in a ring.

use super::*;
use crate::segment;

const RING_BYTES: usize = 4096;

/// Two segments, each as its owner maps it and as the other side does.
fn pair() -> [(Arc<Mapping>, Arc<Mapping>); 2] {
    [0, 1].map(|_| {
        let (ours, memory) = segment::make("test", place::RING + RING_BYTES).unwrap();
        let theirs = segment::map(&memory, 1 << 20).unwrap();
        (Arc::new(ours), Arc::new(theirs))
    })
}

fn ends() -> (Writer, Reader, Arc<Mapping>, Arc<Mapping>) {
    let [(a, a_seen), (b, b_seen)] = pair();
    let writer = Writer::new(a.clone(), b_seen);
    let reader = Reader::new(b.clone(), a_seen);
    (writer, reader, a, b)
}

fn never(_: Reference, _: u64, _: &mut [u8]) -> io::Result<()> {
    panic!("nothing is referred to")
}

fn read(reader: &mut Reader, bytes: usize) -> io::Result<Vec<u8>> {
    let mut into = vec![0; bytes];
    let (first, second) = into.split_at_mut(bytes / 3);
    let slices = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
    let read = reader.read(slices, never)?;
    into.truncate(read);
    Ok(into)
}

#[test]
fn bytes_go_round_in_any_pieces() {
    let (mut writer, mut reader, ..) = ends();
    let stream: Vec<u8> = (0..100_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    let mut step = 1;
    while got.len() < stream.len() {
        step = step * 31 % 9973 + 1;
        let rest = &stream[written..];
        let piece = &rest[..rest.len().min(step)];
        let (a, b) = piece.split_at(piece.len() / 2);
        let slices = [IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)];
        written += writer.write(&slices, |_| None).unwrap();
        got.extend(read(&mut reader, step * 2 % 3001).unwrap());
    }
    assert!(got == stream);
    assert!(!reader.has_some());
    assert!(writer.has_much_space().unwrap());
    assert_eq!(writer.settled(), stream.len() as u64);
}

#[test]
fn a_full_ring_takes_no_more_until_it_is_read() {
    let (mut writer, mut reader, ..) = ends();
    let bytes = vec![5; 2 * RING_BYTES];
    let first = writer.write(&[IoSlice::new(&bytes)], |_| None).unwrap();
    assert_eq!(first, RING_BYTES - 8, "a header and the rest");
    assert_eq!(writer.write(&[IoSlice::new(&bytes)], |_| None).unwrap(), 0);
    assert!(!writer.has_much_space().unwrap());
    assert_eq!(read(&mut reader, 1 << 20).unwrap().len(), first);
    assert!(writer.has_much_space().unwrap());
    assert!(writer.write(&[IoSlice::new(&bytes)], |_| None).unwrap() > 0);
}

#[test]
fn what_is_referred_to_is_kept_until_it_was_read() {
    let (mut writer, mut reader, ..) = ends();
    let large = vec![9; 1000];
    let slices = [
        IoSlice::new(b"head"),
        IoSlice::new(&large),
        IoSlice::new(b"tail"),
    ];
    let refer = |bytes: &[u8]| {
        let reference = Reference::Pooled {
            segment: 3,
            offset: 77,
        };
        (bytes.len() == 1000).then_some(reference)
    };
    assert_eq!(writer.write(&slices, refer).unwrap(), 1008);
    assert_eq!(writer.settled(), 4);
    let mut followed = Vec::new();
    let mut follow = |reference, from, into: &mut [u8]| {
        followed.push((reference, from, into.len()));
        into.fill(9);
        Ok(())
    };
    let mut into = [0; 600];
    let slices = &mut [IoSliceMut::new(&mut into)];
    assert_eq!(reader.read(slices, &mut follow).unwrap(), 600);
    assert_eq!(writer.settled(), 4, "half of it was read");
    let slices = &mut [IoSliceMut::new(&mut into)];
    assert_eq!(reader.read(slices, &mut follow).unwrap(), 408);
    assert_eq!(into[403..408], *b"\x09tail");
    assert_eq!(writer.settled(), 1008);
    let reference = Reference::Pooled {
        segment: 3,
        offset: 77,
    };
    assert_eq!(followed, [(reference, 0, 596), (reference, 596, 404)]);
}

#[test]
fn what_was_revoked_is_not_delivered() {
    let (mut writer, mut reader, ..) = ends();
    let refer = |_: &[u8]| Some(Reference::Foreign { address: 1 });
    writer.write(&[IoSlice::new(&[1; 10])], refer).unwrap();
    writer.revoke();
    let mut into = [0; 10];
    let slices = &mut [IoSliceMut::new(&mut into)];
    let error = reader.read(slices, |_, _, _| Ok(())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// What the writer's side may have in its words and its ring, and what is said of it.
#[test]
fn what_no_sane_writer_writes_is_an_error() {
    let cases: [(u64, &[u64], &str); 11] = [
        (RING_BYTES as u64 + 8, &[], "has space for 4096"),
        (u64::MAX - 7, &[], "has space for 4096"),
        (12, &[INLINE << 32 | 4], "written 12 bytes"),
        (8, &[0], "kind 0"),
        (8, &[u64::MAX], "kind 4294967295"),
        (8, &[INLINE << 32], "0 bytes"),
        (16, &[INLINE << 32 | 9], "9 bytes where 16"),
        (
            4096,
            &[INLINE << 32 | (RECORD_BYTES_MAX as u64 + 1)],
            "65537 bytes",
        ),
        (16, &[FOREIGN << 32 | 5, 1], "where 16"),
        (24, &[FOREIGN << 32 | 5, 1, 1], "segment 1"),
        (24, &[POOLED << 32 | 5, 1, 1 << 32], "segment 4294967296"),
    ];
    for (tail, words, expected) in cases {
        let (_, mut reader, segment, _) = ends();
        for (index, word) in words.iter().enumerate() {
            segment.copy_in(&word.to_le_bytes(), place::RING + index * 8);
        }
        segment.word(place::TAIL).store(tail, Ordering::Release);
        let mut into = [0; 64];
        let error = reader
            .read(&mut [IoSliceMut::new(&mut into)], |_, _, _| Ok(()))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_tail_that_goes_back_and_a_head_that_runs_ahead_are_errors() {
    let (mut writer, mut reader, ours, theirs) = ends();
    writer.write(&[IoSlice::new(&[1; 100])], |_| None).unwrap();
    read(&mut reader, 50).unwrap();
    read(&mut reader, 500).unwrap();
    ours.word(place::TAIL).store(8, Ordering::Release);
    assert!(reader.has_some());
    assert!(read(&mut reader, 1).is_err());
    for head in [113, u64::MAX, 0] {
        theirs.word(place::HEAD).store(112, Ordering::Release);
        writer.look().unwrap();
        theirs.word(place::HEAD).store(head, Ordering::Release);
        let error = writer.write(&[IoSlice::new(&[1])], |_| None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
