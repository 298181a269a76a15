//! Views of an event's data: which bytes are wanted, in which order.
//!
//! A view is made from the whole by any nesting of ranges, strides and lists
//! of segments; each step counts within the view before it, and a step that
//! leaves its bounds is an error. A view flattens into absolute segments.

use crate::codec::{Codec, DecodeError, Reader, record};
use std::fmt;

/// A piece of an event's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Codec for Segment {
    fn encode(&self, out: &mut Vec<u8>) {
        self.offset.encode(out);
        self.bytes.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            offset: from.u64()?,
            bytes: from.u64()?,
        })
    }
}

record! {
    /// Pieces of one length of an event's data, at distances that repeat: the rows of a box, say.
    pub struct StridedSegment {
        /// Where the first piece begins, in bytes.
        pub offset: u64,
        /// How long each piece is.
        pub bytes: u64,
        /// How often it is repeated, the outermost repeat first; the last one turns fastest.
        pub repeats: Vec<Repeat>,
    }
}

record! {
    /// A dimension along which a piece is repeated.
    pub struct Repeat {
        /// How many there are along it.
        pub count: u64,
        /// Bytes from the beginning of one to that of the next.
        pub stride: u64,
    }
}

/// A view with more segments than this is refused: it is a copy by list. So is a selection of more
/// pieces.
pub const SEGMENTS_MAX: usize = 1 << 20;
/// A strided segment with more repeats than this is refused: arrays have fewer dimensions.
pub const REPEATS_MAX: usize = 32;

impl From<Segment> for StridedSegment {
    fn from(segment: Segment) -> Self {
        Self {
            offset: segment.offset,
            bytes: segment.bytes,
            repeats: Vec::new(),
        }
    }
}

impl StridedSegment {
    /// The piece that comes first.
    pub fn first(&self) -> Segment {
        Segment {
            offset: self.offset,
            bytes: self.bytes,
        }
    }

    /// How many pieces it has; `None` if that is no number of 64 bits.
    pub fn piece_count(&self) -> Option<u64> {
        let mut repeats = self.repeats.iter();
        repeats.try_fold(1u64, |count, repeat| count.checked_mul(repeat.count))
    }

    /// Bytes of all of its pieces.
    pub fn total_bytes(&self) -> Option<u64> {
        self.piece_count()?.checked_mul(self.bytes)
    }

    /// Where the piece that reaches farthest ends. Of one without pieces: as if it had one.
    pub fn end(&self) -> Option<u64> {
        let end = self.offset.checked_add(self.bytes)?;
        self.repeats.iter().try_fold(end, |end, repeat| {
            let reach = repeat.count.saturating_sub(1).checked_mul(repeat.stride)?;
            end.checked_add(reach)
        })
    }

    /// A piece by its number, which is less than their count. [`Self::end`] exists.
    pub fn piece(&self, number: u64) -> Segment {
        let mut segment = self.first();
        let mut rest = number;
        for repeat in self.repeats.iter().rev() {
            segment.offset += rest % repeat.count * repeat.stride;
            rest /= repeat.count;
        }
        segment
    }

    /// All pieces in order. [`Self::end`] exists.
    pub fn pieces(&self) -> impl Iterator<Item = Segment> {
        let count = self.piece_count().unwrap_or(0);
        (0..count).map(|number| self.piece(number))
    }
}

/// A step that leaves the bounds of the view it was asked of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewError {
    /// Bytes from `offset` to `end` were asked of a view of `bytes` bytes.
    OutOfBounds {
        /// Start of what was asked.
        offset: u64,
        /// End of what was asked (saturated on overflow).
        end: u64,
        /// Length of the view.
        bytes: u64,
    },
    /// The view would have more than [`SEGMENTS_MAX`] segments.
    TooManySegments {
        /// How many it would have.
        count: u64,
    },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { offset, end, bytes } => {
                write!(
                    f,
                    "bytes {offset} to {end} are outside a view of {bytes} bytes"
                )
            }
            Self::TooManySegments { count } => {
                write!(f, "a view of {count} segments; the limit is {SEGMENTS_MAX}")
            }
        }
    }
}

impl std::error::Error for ViewError {}

/// Selected bytes of one event's data, as segments of the whole.
///
/// Segments keep the order in which they were asked for and may overlap;
/// neighbours that touch are joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataView {
    segments: Vec<Segment>,
    bytes: u64,
}

/// A strided selection: `count` blocks of `block_bytes`, whose starts are
/// `block_bytes + gap_bytes` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Start of the first block.
    pub offset: u64,
    /// Number of blocks.
    pub count: u64,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Bytes between the end of a block and the start of the next.
    pub gap_bytes: u64,
}

impl DataView {
    /// No data at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// All of an event's `bytes` bytes of data.
    pub fn whole(bytes: u64) -> Self {
        let mut view = Self::default();
        view.push(Segment { offset: 0, bytes });
        view
    }

    /// How many bytes are selected.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The selection, as segments of the event's data in the order asked for.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The `bytes` bytes of this view that begin at `offset`.
    pub fn range(&self, offset: u64, bytes: u64) -> Result<Self, ViewError> {
        self.select([Segment { offset, bytes }].into_iter())
    }

    /// A strided part of this view. The gap after the last block need not be
    /// within bounds.
    pub fn stride(&self, stride: Stride) -> Result<Self, ViewError> {
        if stride.count > SEGMENTS_MAX as u64 {
            return Err(ViewError::TooManySegments {
                count: stride.count,
            });
        }
        let outside = |offset| ViewError::OutOfBounds {
            offset,
            end: u64::MAX,
            bytes: self.bytes,
        };
        let step = stride
            .block_bytes
            .checked_add(stride.gap_bytes)
            .ok_or(outside(stride.offset))?;
        if stride.count > 0 {
            // The last block's start must not overflow; its end is checked below.
            (stride.count - 1)
                .checked_mul(step)
                .and_then(|reach| reach.checked_add(stride.offset))
                .ok_or(outside(stride.offset))?;
        }
        self.select((0..stride.count).map(|index| Segment {
            offset: stride.offset + index * step,
            bytes: stride.block_bytes,
        }))
    }

    /// The listed parts of this view, in the order given.
    pub fn unstructured(&self, segments: &[Segment]) -> Result<Self, ViewError> {
        self.select(segments.iter().copied())
    }

    fn select(&self, wanted: impl Iterator<Item = Segment>) -> Result<Self, ViewError> {
        // Starts of this view's segments within the view, for the search.
        let mut starts = Vec::with_capacity(self.segments.len());
        let mut sum = 0;
        for segment in &self.segments {
            starts.push(sum);
            sum += segment.bytes;
        }
        let mut view = Self::default();
        for Segment { offset, bytes } in wanted {
            let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
            let Some(end) = end else {
                let end = offset.saturating_add(bytes);
                return Err(ViewError::OutOfBounds {
                    offset,
                    end,
                    bytes: self.bytes,
                });
            };
            let mut at = offset;
            let mut index = starts
                .partition_point(|start| *start <= at)
                .saturating_sub(1);
            while at < end {
                let segment = self.segments[index];
                let skip = at - starts[index];
                let take = (segment.bytes - skip).min(end - at);
                view.push(Segment {
                    offset: segment.offset + skip,
                    bytes: take,
                });
                at += take;
                index += 1;
            }
            if view.segments.len() > SEGMENTS_MAX {
                return Err(ViewError::TooManySegments {
                    count: view.segments.len() as u64,
                });
            }
        }
        Ok(view)
    }

    fn push(&mut self, segment: Segment) {
        if segment.bytes == 0 {
            return;
        }
        self.bytes += segment.bytes;
        match self.segments.last_mut() {
            Some(last) if last.offset + last.bytes == segment.offset => last.bytes += segment.bytes,
            _ => self.segments.push(segment),
        }
    }

    /// Copies the selected bytes out of the whole data.
    ///
    /// # Panics
    /// If `whole` is shorter than the data that the view was made for.
    pub fn gather<'a>(&'a self, whole: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.segments.iter().map(|segment| {
            &whole[segment.offset as usize..(segment.offset + segment.bytes) as usize]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    fn text(view: &DataView) -> String {
        let bytes: Vec<u8> = view.gather(TEXT).flatten().copied().collect();
        assert_eq!(bytes.len() as u64, view.bytes());
        String::from_utf8(bytes).unwrap()
    }

    fn whole() -> DataView {
        DataView::whole(52)
    }

    #[test]
    fn range_stride_and_list() {
        assert_eq!(
            text(&whole().range(13, 26).unwrap()),
            "nopqrstuvwxyzABCDEFGHIJKLM"
        );
        let stride = Stride {
            offset: 13,
            count: 3,
            block_bytes: 4,
            gap_bytes: 2,
        };
        assert_eq!(text(&whole().stride(stride).unwrap()), "nopqtuvwzABC");
        let list = [(3, 6), (15, 4), (27, 8)].map(|(offset, bytes)| Segment { offset, bytes });
        assert_eq!(
            text(&whole().unstructured(&list).unwrap()),
            "defghipqrsBCDEFGHI"
        );
    }

    #[test]
    fn nested_views_count_within_their_parent() {
        let parent = whole().range(10, 30).unwrap();
        let child = parent.range(5, 10).unwrap();
        assert_eq!(
            child.segments(),
            [Segment {
                offset: 15,
                bytes: 10
            }]
        );
        assert!(parent.range(25, 6).is_err());
        let stride = Stride {
            offset: 0,
            count: 5,
            block_bytes: 2,
            gap_bytes: 3,
        };
        let strided = whole().stride(stride).unwrap();
        assert_eq!(text(&strided), "abfgklpquv");
        assert_eq!(text(&strided.range(1, 4).unwrap()), "bfgk");
        let again = Stride {
            offset: 1,
            count: 3,
            block_bytes: 1,
            gap_bytes: 2,
        };
        assert_eq!(text(&strided.stride(again).unwrap()), "bkq");
        let list = [
            Segment {
                offset: 8,
                bytes: 2,
            },
            Segment {
                offset: 0,
                bytes: 3,
            },
        ];
        assert_eq!(text(&strided.unstructured(&list).unwrap()), "uvabf");
    }

    #[test]
    fn the_last_repeat_turns_fastest() {
        let repeat = |count, stride| Repeat { count, stride };
        let rows = StridedSegment {
            offset: 1,
            bytes: 2,
            repeats: vec![repeat(2, 26), repeat(3, 5)],
        };
        let pieces: Vec<Segment> = rows.pieces().collect();
        assert_eq!(
            text(&whole().unstructured(&pieces).unwrap()),
            "bcghlmBCGHLM"
        );
        assert_eq!(
            (rows.piece_count(), rows.total_bytes()),
            (Some(6), Some(12))
        );
        assert_eq!(rows.end(), Some(1 + 26 + 2 * 5 + 2));
        let one = StridedSegment::from(rows.first());
        assert!(one.pieces().eq([rows.first()]));
        let none = StridedSegment {
            repeats: vec![repeat(7, 1), repeat(0, 1)],
            ..rows.clone()
        };
        assert_eq!((none.piece_count(), none.pieces().count()), (Some(0), 0));
        for repeats in [
            vec![repeat(1 << 32, 0), repeat(1 << 32, 0)],
            vec![repeat(u64::MAX, 0)],
        ] {
            let many = StridedSegment {
                repeats,
                ..rows.clone()
            };
            assert_eq!(many.total_bytes(), None);
        }
        let far = StridedSegment {
            repeats: vec![repeat(3, u64::MAX / 2)],
            ..rows
        };
        assert_eq!(far.end(), None);
    }

    #[test]
    fn bounds_and_overflow_are_errors() {
        assert_eq!(
            whole().range(50, 3),
            Err(ViewError::OutOfBounds {
                offset: 50,
                end: 53,
                bytes: 52
            })
        );
        assert!(whole().range(u64::MAX, 2).is_err());
        let stride = Stride {
            offset: 0,
            count: 3,
            block_bytes: u64::MAX,
            gap_bytes: 1,
        };
        assert!(whole().stride(stride).is_err());
        let stride = Stride {
            offset: 50,
            count: 2,
            block_bytes: 1,
            gap_bytes: 0,
        };
        assert_eq!(text(&whole().stride(stride).unwrap()), "YZ");
        assert!(whole().range(52, 0).unwrap().is_empty());
        assert!(DataView::none().range(0, 1).is_err());
        let stride = Stride {
            offset: 0,
            count: 1 << 40,
            block_bytes: 0,
            gap_bytes: 0,
        };
        assert!(matches!(
            whole().stride(stride),
            Err(ViewError::TooManySegments { .. })
        ));
    }
}
