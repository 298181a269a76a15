//! Reads of data whose list of what is wanted is too long for one request: cut
//! into several, one after the other, between events or within one.

use crate::error::ClientError;
use crate::strided::Selections;
use memory::{Split, Target};
use wire::checksum::crc32c_combine;
use wire::message::DataWanted;
use wire::view::Segment;

/// How long the list of one request may be, in bytes: half of a frame's head.
const REQUEST_BYTES_MAX: usize = 512 << 10;
/// What a piece of data takes of it.
const SEGMENT_BYTES: usize = 16;
/// What an event takes of it besides, with a region to put its data into.
const EVENT_BYTES: usize = 96;
/// Regions that one event's data is put into, at most, if that event is cut.
const TARGETS_MAX: usize = 4096;

/// One request, and what it fills.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub wanted: Vec<DataWanted>,
    pub bytes: u64,
    pub into: Vec<Target>,
    list_bytes: usize,
}

/// A read that is cut.
pub(crate) struct SplitRead {
    /// Of each entry of all parts, in order: whose selection it is part of, and
    /// its length.
    entries: Vec<(usize, u64)>,
    targets: Vec<Cut>,
}

/// A target, and how many of the parts' targets are pieces of it.
enum Cut {
    Whole,
    Pieces(Split, usize),
}

/// Whether so much is wanted that one request cannot say it.
pub(crate) fn is_too_long(selections: &Selections, targets: usize) -> bool {
    let wanted = &selections.events;
    let list = wanted
        .iter()
        .map(|one| EVENT_BYTES + one.segments.len() * SEGMENT_BYTES);
    let list = list.sum::<usize>() + selections.strided_bytes();
    list > REQUEST_BYTES_MAX || targets > wanted.len() + TARGETS_MAX
}

impl Part {
    fn has_space(&self, segments: usize) -> bool {
        self.list_bytes + EVENT_BYTES + segments * SEGMENT_BYTES <= REQUEST_BYTES_MAX
    }

    fn add(&mut self, event: &DataWanted, segments: &[Segment]) -> u64 {
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        self.list_bytes += EVENT_BYTES + segments.len() * SEGMENT_BYTES;
        self.bytes += bytes;
        self.wanted.push(DataWanted {
            segments: segments.to_vec(),
            ..*event
        });
        bytes
    }
}

/// Cuts a read; `into` is as long as all that is wanted.
///
/// # Errors
/// [`ClientError::Invalid`] if the memory is in more pieces than requests can say.
pub(crate) fn split(
    wanted: &[DataWanted],
    into: Vec<Target>,
) -> Result<(SplitRead, Vec<Part>), ClientError> {
    if into.len() > wanted.len() + TARGETS_MAX {
        return Err(ClientError::Invalid(format!(
            "the data of {} events is wanted in {} pieces of memory; {} more than events at most",
            wanted.len(),
            into.len(),
            TARGETS_MAX
        )));
    }
    let mut entries = Vec::new();
    let mut parts = vec![Part::default()];
    for (selection, event) in wanted.iter().enumerate() {
        let mut rest = &event.segments[..];
        loop {
            let mut part = parts.pop().unwrap_or_default();
            // A part that is half empty is left so, for an event that fits a whole one.
            let fits = (REQUEST_BYTES_MAX - EVENT_BYTES) / SEGMENT_BYTES;
            if !part.wanted.is_empty() && !part.has_space(rest.len().min(fits)) {
                parts.push(part);
                part = Part::default();
            }
            let (now, later) = rest.split_at(rest.len().min(fits));
            entries.push((selection, part.add(event, now)));
            parts.push(part);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }
    let targets = cut(into, &mut parts);
    Ok((SplitRead { entries, targets }, parts))
}

/// Shares the targets out among the parts, cut where a part ends.
fn cut(into: Vec<Target>, parts: &mut [Part]) -> Vec<Cut> {
    let (mut at, mut left) = (0, parts.first().map_or(0, |part| part.bytes));
    let mut cuts = Vec::with_capacity(into.len());
    for target in into {
        let mut lengths = Vec::new();
        let first = {
            // A target begins in the part that has space for its first byte.
            while left == 0 && at + 1 < parts.len() && !target.is_empty() {
                at += 1;
                left = parts[at].bytes;
            }
            at
        };
        let mut space = target.len() as u64;
        while space > left && at + 1 < parts.len() {
            lengths.push(left as usize);
            space -= left;
            at += 1;
            left = parts[at].bytes;
        }
        lengths.push(space as usize);
        left = left.saturating_sub(space);
        if lengths.len() == 1 {
            parts[first].into.push(target);
            cuts.push(Cut::Whole);
            continue;
        }
        let (split, pieces) = target.split(&lengths);
        cuts.push(Cut::Pieces(split, pieces.len()));
        for (part, piece) in parts[first..].iter_mut().zip(pieces) {
            part.into.push(piece);
        }
    }
    cuts
}

impl SplitRead {
    /// The checksum of each selection, of those of all parts' entries in order;
    /// `None` if there is another number of them.
    pub fn checksums(&self, selections: usize, of_entries: &[u32]) -> Option<Vec<u32>> {
        if of_entries.len() != self.entries.len() {
            return None;
        }
        let mut checksums: Vec<Option<u32>> = vec![None; selections];
        for ((selection, bytes), entry) in self.entries.iter().zip(of_entries) {
            let checksum = &mut checksums[*selection];
            *checksum = Some(match *checksum {
                None => *entry,
                Some(before) => crc32c_combine(before, *entry, *bytes),
            });
        }
        checksums.into_iter().collect()
    }

    /// The targets as they were given, of all parts' in order.
    pub fn join(self, pieces: Vec<Target>) -> Option<Vec<Target>> {
        let mut pieces = pieces.into_iter();
        let join = |cut| match cut {
            Cut::Whole => pieces.next(),
            Cut::Pieces(split, count) => split.join(pieces.by_ref().take(count)),
        };
        self.targets.into_iter().map(join).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum::crc32c;
    use wire::{Incarnation, Offset, PartitionIndex};

    fn event(offset: u64, pieces: usize) -> DataWanted {
        let segment = |at| Segment {
            offset: at as u64 * 2,
            bytes: 1,
        };
        DataWanted {
            partition: PartitionIndex(0),
            incarnation: Incarnation(1),
            offset: Offset(offset),
            segments: (0..pieces).map(segment).collect(),
        }
    }

    fn target(bytes: usize) -> Target {
        Target::new(vec![0u8; bytes])
    }

    #[test]
    fn parts_are_short_enough_and_together_the_whole() {
        let wanted = [
            event(0, 1),
            event(1, 100_000),
            event(2, 0),
            event(3, 70_000),
            event(4, 3),
        ];
        assert!(is_too_long(&Selections::lists(wanted.to_vec()), 1));
        let spaces = [0, 1, 50_000, 120_003, 0];
        let (whole, mut parts) = split(&wanted, spaces.map(target).into()).unwrap();
        assert!(parts.len() > 4);
        let mut number = 0u32;
        let (mut checksums, mut all) = (Vec::new(), Vec::new());
        for part in &mut parts {
            let list = Selections::lists(part.wanted.clone());
            assert!(!is_too_long(&list, part.into.len()));
            let space: usize = part.into.iter().map(Target::len).sum();
            assert_eq!(space as u64, part.bytes);
            let mut received = Vec::new();
            for target in &mut part.into {
                for byte in target.as_mut() {
                    number = number.wrapping_mul(75).wrapping_add(74);
                    *byte = (number >> 8) as u8;
                    received.push(*byte);
                }
            }
            let mut at = 0;
            for entry in &part.wanted {
                checksums.push(crc32c(&received[at..at + entry.segments.len()]));
                at += entry.segments.len();
            }
            all.extend(received);
        }
        let segments: Vec<Segment> = parts
            .iter()
            .flat_map(|part| &part.wanted)
            .filter(|entry| entry.offset == Offset(1))
            .flat_map(|entry| entry.segments.clone())
            .collect();
        assert_eq!(segments, wanted[1].segments);
        assert_eq!(whole.checksums(5, &checksums[1..]), None);
        let of_selections = whole.checksums(5, &checksums).unwrap();
        let mut at = 0;
        for (event, checksum) in wanted.iter().zip(of_selections) {
            let end = at + event.segments.len();
            assert_eq!(checksum, crc32c(&all[at..end]));
            at = end;
        }
        let pieces = parts.into_iter().flat_map(|part| part.into).collect();
        let joined = whole.join(pieces).unwrap();
        let lengths: Vec<usize> = joined.iter().map(Target::len).collect();
        assert_eq!(lengths, spaces);
        let bytes = joined.into_iter().flat_map(Target::into_owner::<Vec<u8>>);
        assert!(bytes.eq(all));
    }

    #[test]
    fn many_events_are_shared_out() {
        let wanted: Vec<_> = (0..40_000).map(|offset| event(offset, 1)).collect();
        let into = (0..40_000).map(|_| target(1)).collect();
        let (whole, parts) = split(&wanted, into).unwrap();
        assert!(
            parts
                .iter()
                .all(|part| part.into.len() == part.wanted.len())
        );
        let pieces: Vec<_> = parts.into_iter().flat_map(|part| part.into).collect();
        assert_eq!(whole.join(pieces).unwrap().len(), 40_000);
    }

    #[test]
    fn memory_in_too_many_pieces_is_refused() {
        let into: Vec<_> = (0..5000).map(|_| target(1)).collect();
        let list = Selections::lists(vec![event(0, 5000)]);
        assert!(is_too_long(&list, into.len()));
        assert!(split(&[event(0, 5000)], into).is_err());
    }
}
