//! Selected data by pieces at distances that repeat: asked for so of a server that knows them, and
//! by a list of all pieces of another one.

use crate::error::ClientError;
use wire::message::{DataWanted, FEATURE_STRIDES, StridedSelection};
use wire::view::{REPEATS_MAX, SEGMENTS_MAX, StridedSegment};
use wire::{Incarnation, Offset, PartitionIndex};

/// The wanted part of one event's data, by pieces at distances that repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StridedWanted {
    /// The event's partition.
    pub partition: PartitionIndex,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The event.
    pub offset: Offset,
    /// Which bytes of its data, in the order wanted.
    pub segments: Vec<StridedSegment>,
}

/// What a read asks for.
#[derive(Debug, Default)]
pub(crate) struct Selections {
    pub events: Vec<DataWanted>,
    /// Of those whose list is empty.
    pub strided: Vec<StridedSelection>,
}

impl StridedWanted {
    /// How many bytes are wanted.
    ///
    /// # Errors
    /// [`ClientError::Invalid`]: that, or where they end, is no number; more repeats than arrays
    /// have dimensions.
    pub(crate) fn bytes(&self) -> Result<u64, ClientError> {
        let bytes_of = |segment: &StridedSegment| {
            segment.end()?;
            let bytes = segment.total_bytes()?;
            (segment.repeats.len() <= REPEATS_MAX).then_some(bytes)
        };
        let mut segments = self.segments.iter();
        let sum = segments.try_fold(0u64, |sum, segment| sum.checked_add(bytes_of(segment)?));
        sum.ok_or_else(|| {
            ClientError::Invalid(format!(
                "the selection of event {} of partition {} has more bytes than there are numbers, \
                 or more than {REPEATS_MAX} repeats",
                self.offset, self.partition
            ))
        })
    }

    fn is_list(&self) -> bool {
        self.segments.iter().all(|one| one.repeats.is_empty())
    }

    fn listed(&self) -> DataWanted {
        let with_bytes = self.segments.iter().filter(|segment| segment.bytes > 0);
        DataWanted {
            segments: with_bytes.flat_map(StridedSegment::pieces).collect(),
            ..self.unsaid()
        }
    }

    fn unsaid(&self) -> DataWanted {
        DataWanted {
            partition: self.partition,
            incarnation: self.incarnation,
            offset: self.offset,
            segments: Vec::new(),
        }
    }
}

impl Selections {
    /// What is wanted by lists.
    pub fn lists(events: Vec<DataWanted>) -> Self {
        Self {
            events,
            strided: Vec::new(),
        }
    }

    /// What is wanted, as a server with these features can be asked for it by one request, if
    /// `is_one_request` says so; else by lists, which can be cut.
    pub fn of(
        wanted: &[StridedWanted],
        features: u64,
        is_one_request: impl FnOnce(&Self) -> bool,
    ) -> Self {
        let compact = Self::compact(wanted);
        let segments = wanted.iter().flat_map(|one| &one.segments);
        let pieces = segments.fold(0u64, |sum, segment| {
            sum.saturating_add(segment.piece_count().unwrap_or(u64::MAX))
        });
        let is_short = pieces <= SEGMENTS_MAX as u64 && is_one_request(&compact);
        match features & FEATURE_STRIDES != 0 && is_short {
            true => compact,
            false => Self::lists(wanted.iter().map(StridedWanted::listed).collect()),
        }
    }

    fn compact(wanted: &[StridedWanted]) -> Self {
        let mut selections = Self::default();
        for (event, one) in wanted.iter().enumerate() {
            if one.is_list() {
                selections.events.push(one.listed());
                continue;
            }
            selections.events.push(one.unsaid());
            selections.strided.push(StridedSelection {
                event: event as u32,
                segments: one.segments.clone(),
            });
        }
        selections
    }

    /// What the strided ones take of a request, about.
    pub fn strided_bytes(&self) -> usize {
        let segments = self.strided.iter().flat_map(|one| &one.segments);
        let each = segments.map(|segment| 20 + 16 * segment.repeats.len());
        8 * self.strided.len() + each.sum::<usize>()
    }

    /// How many bytes are wanted of each event. They were checked.
    pub fn lengths(&self) -> Vec<u64> {
        let listed = |one: &DataWanted| one.segments.iter().map(|segment| segment.bytes).sum();
        let mut lengths: Vec<u64> = self.events.iter().map(listed).collect();
        for one in &self.strided {
            let segments = one.segments.iter();
            let bytes = segments.filter_map(StridedSegment::total_bytes).sum();
            lengths[one.event as usize] = bytes;
        }
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split_read::is_too_long;
    use wire::view::{Repeat, Segment};

    fn is_one_request(selections: &Selections) -> bool {
        !is_too_long(selections, 1)
    }

    /// Where a segment begins, its bytes, and its repeats: count and stride.
    type Rows<'a> = (u64, u64, &'a [(u64, u64)]);

    fn wanted(segments: &[Rows<'_>]) -> StridedWanted {
        let segment = |(offset, bytes, repeats): &Rows<'_>| StridedSegment {
            offset: *offset,
            bytes: *bytes,
            repeats: repeats
                .iter()
                .map(|(count, stride)| Repeat {
                    count: *count,
                    stride: *stride,
                })
                .collect(),
        };
        StridedWanted {
            partition: PartitionIndex(1),
            incarnation: Incarnation(1),
            offset: Offset(7),
            segments: segments.iter().map(segment).collect(),
        }
    }

    #[test]
    fn an_older_server_is_asked_by_lists() {
        let all = [
            wanted(&[(5, 2, &[(2, 100), (3, 10)]), (1, 1, &[])]),
            wanted(&[(0, 7, &[])]),
        ];
        let compact = Selections::of(&all, FEATURE_STRIDES, is_one_request);
        assert_eq!(compact.strided.len(), 1);
        assert_eq!(
            (compact.strided[0].event, &compact.strided[0].segments),
            (0, &all[0].segments)
        );
        let lists = Selections::of(&all, !FEATURE_STRIDES, is_one_request);
        assert!(lists.strided.is_empty());
        let pieces = [
            (5, 2),
            (15, 2),
            (25, 2),
            (105, 2),
            (115, 2),
            (125, 2),
            (1, 1),
        ];
        let pieces = pieces.map(|(offset, bytes)| Segment { offset, bytes });
        assert_eq!(lists.events[0].segments, pieces);
        assert_eq!(lists.events[1], compact.events[1]);
        for selections in [&compact, &lists] {
            assert_eq!(selections.lengths(), [13, 7]);
        }
        let bytes: Result<Vec<u64>, _> = all.iter().map(StridedWanted::bytes).collect();
        assert_eq!(bytes.unwrap(), [13, 7]);
    }

    #[test]
    fn what_no_request_can_say_is_a_list() {
        let most = SEGMENTS_MAX as u64;
        for (count, is_strided) in [(most - 1, true), (most, false)] {
            let all = [wanted(&[(0, 1, &[(count, 2)]), (0, 1, &[])])];
            let selections = Selections::of(&all, FEATURE_STRIDES, is_one_request);
            assert_eq!(selections.strided.len() == 1, is_strided);
            assert_eq!(selections.lengths(), [count + 1]);
        }
        let many: Vec<_> = (0..20_000).map(|_| wanted(&[(0, 1, &[(2, 2)])])).collect();
        assert!(
            Selections::of(&many, FEATURE_STRIDES, is_one_request)
                .strided
                .is_empty()
        );
        let nothing = [wanted(&[(0, 0, &[(1 << 40, 1)])])];
        assert!(
            Selections::of(&nothing, 0, is_one_request).events[0]
                .segments
                .is_empty()
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for repeats in [
            &[(1 << 40, 1), (1 << 40, 1)][..],
            &[(2, u64::MAX)],
            &[(1, 0); REPEATS_MAX + 1],
        ] {
            let refused = wanted(&[(1, 8, repeats)]).bytes().unwrap_err();
            assert!(matches!(refused, ClientError::Invalid(_)), "{refused}");
        }
    }
}
