//! Copies between memories in which the same box lies with other distances.

use crate::faults::{Fault, planted};
use crate::selection::Range;

/// One dimension of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    /// How many steps it has.
    pub count: u64,
    /// Bytes from one to the next where it is read.
    pub from: u64,
    /// Bytes from one to the next where it is written.
    pub to: u64,
}

/// A copy of runs of bytes, whose places differ along some dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    sides: Vec<Side>,
    run: u64,
}

impl Copy {
    /// A copy of elements of so many bytes; `sides` from the outermost to the innermost.
    pub fn new(sides: impl DoubleEndedIterator<Item = Side>, item_bytes: u64) -> Self {
        let mut kept: Vec<Side> = Vec::new();
        let mut run = item_bytes;
        // From the inside: what touches on both sides is one.
        for side in sides.rev().filter(|side| side.count > 1) {
            match kept.last_mut() {
                None if side.from == run && side.to == run => run *= side.count,
                Some(inner)
                    if side.from == inner.from * inner.count
                        && side.to == inner.to * inner.count =>
                {
                    inner.count *= side.count;
                }
                _ => kept.push(side),
            }
        }
        kept.reverse();
        Self { sides: kept, run }
    }

    /// Copies from where the box begins in `from` to where it begins in `to`.
    pub fn execute(&self, from: &[u8], to: &mut [u8]) {
        if planted(Fault::LastRow)
            && let [outer, inner @ ..] = &self.sides[..]
        {
            for index in 0..outer.count {
                let wrong = if index + 1 == outer.count {
                    index - 1
                } else {
                    index
                };
                let from = &from[(wrong * outer.from) as usize..];
                level(
                    inner,
                    self.run,
                    from,
                    &mut to[(index * outer.to) as usize..],
                );
            }
            return;
        }
        level(&self.sides, self.run, from, to);
    }
}

/// A box of a dense array, of which each dimension has so many elements.
pub(crate) fn cut(
    (from, shape): (&[u8], &[u64]),
    ranges: &[Range],
    item_bytes: u64,
    to: &mut [u8],
) {
    let (mut apart, mut apart_to, mut first) = (item_bytes, item_bytes, 0);
    let mut sides = Vec::with_capacity(shape.len());
    for (length, range) in shape.iter().zip(ranges).rev() {
        sides.push(Side {
            count: range.count,
            from: range.step * apart,
            to: apart_to,
        });
        first += range.start * apart;
        apart *= length;
        apart_to *= range.count;
    }
    sides.reverse();
    Copy::new(sides.into_iter(), item_bytes).execute(&from[first as usize..], to);
}

fn level(sides: &[Side], run: u64, from: &[u8], to: &mut [u8]) {
    match sides {
        [] => to[..run as usize].copy_from_slice(&from[..run as usize]),
        [side] => match run {
            1 => row::<1>(*side, from, to),
            2 => row::<2>(*side, from, to),
            4 => row::<4>(*side, from, to),
            8 => row::<8>(*side, from, to),
            16 => row::<16>(*side, from, to),
            _ => {
                for index in 0..side.count {
                    let [from_at, to_at] = [side.from, side.to].map(|by| (index * by) as usize);
                    let (from_end, to_end) = (from_at + run as usize, to_at + run as usize);
                    to[to_at..to_end].copy_from_slice(&from[from_at..from_end]);
                }
            }
        },
        [side, inner @ ..] => {
            for index in 0..side.count {
                let [from_at, to_at] = [side.from, side.to].map(|by| (index * by) as usize);
                level(inner, run, &from[from_at..], &mut to[to_at..]);
            }
        }
    }
}

/// Runs of a length that the compiler knows: a move of a register each.
fn row<const N: usize>(side: Side, from: &[u8], to: &mut [u8]) {
    for index in 0..side.count {
        let [from_at, to_at] = [side.from, side.to].map(|by| (index * by) as usize);
        to[to_at..to_at + N].copy_from_slice(&from[from_at..from_at + N]);
    }
}
