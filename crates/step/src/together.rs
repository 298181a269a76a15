//! What several plans read, as one request: each part is asked for once.

use crate::gather::{Destination, Plan, push};
use client::StridedWanted;
use wire::step::PartPlace;

/// Reads shorter than this come with others into one piece of memory, from which they are copied:
/// many small pieces of memory cost more than the copy.
const ALONE_BYTES_MIN: u64 = 16 << 10;
/// Most reads of a request that come straight to where they belong; a request does not name more
/// pieces of memory than this and those that others share.
const ALONE_MAX: usize = 1024;
/// Memory that reads share is no longer than this, unless one alone is.
const SHARED_BYTES_MAX: u64 = 16 << 20;

/// Reads of several plans in the order in which their bytes come: part by part, and within a part
/// by where they begin, so that the server looks up each part, and checks each of its blocks, once.
pub(crate) struct Together {
    pub wanted: Vec<StridedWanted>,
    /// Which plan, and which of its reads.
    order: Vec<(usize, usize)>,
}

/// Where the bytes of a read come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comes {
    /// To memory of its own.
    Alone,
    /// To this piece of shared memory, from this byte on.
    Shared { index: usize, at: usize },
}

/// A piece of memory of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Of this plan's this read.
    Alone(usize, usize),
    /// Of so many bytes, for several reads.
    Shared(u64),
}

impl Together {
    pub fn of(plans: &[Plan], parts: &[PartPlace]) -> Self {
        let mut order = Vec::new();
        for (plan, of_plan) in plans.iter().enumerate() {
            order.extend((0..of_plan.reads().len()).map(|read| (plan, read)));
        }
        order.sort_by_key(|(plan, read)| {
            let read = &plans[*plan].reads()[*read];
            (read.rank, read.segments.first().map(|first| first.offset))
        });
        let mut wanted: Vec<StridedWanted> = Vec::new();
        let mut rank_before = None;
        for (plan, read) in &order {
            let read = &plans[*plan].reads()[*read];
            if rank_before.replace(read.rank) != Some(read.rank) {
                let part = &parts[read.rank as usize];
                wanted.push(StridedWanted {
                    partition: part.partition,
                    incarnation: part.incarnation,
                    offset: part.offset,
                    segments: Vec::new(),
                });
            }
            let segments = &mut wanted.last_mut().expect("pushed above").segments;
            for segment in &read.segments {
                push(segments, segment.clone());
            }
        }
        Self { wanted, order }
    }

    /// The memory that the request fills, in order, and where of it each plan's each read comes.
    /// Of plans whose memory is not lent none comes alone.
    pub fn memory(&self, plans: &[Plan], is_lent: bool) -> (Vec<Piece>, Vec<Vec<Comes>>) {
        let of_plan = |plan: &Plan| vec![Comes::Alone; plan.reads().len()];
        let mut comes: Vec<Vec<Comes>> = plans.iter().map(of_plan).collect();
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut shared, mut alone) = (0, 0);
        for (plan, index) in &self.order {
            let read = &plans[*plan].reads()[*index];
            let is_direct = matches!(read.to, Destination::Result(_));
            if is_lent && is_direct && read.bytes >= ALONE_BYTES_MIN && alone < ALONE_MAX {
                alone += 1;
                pieces.push(Piece::Alone(*plan, *index));
                continue;
            }
            let at = match pieces.last_mut() {
                Some(Piece::Shared(bytes)) if *bytes + read.bytes <= SHARED_BYTES_MAX => {
                    let at = *bytes;
                    *bytes += read.bytes;
                    at
                }
                _ => {
                    shared += 1;
                    pieces.push(Piece::Shared(read.bytes));
                    0
                }
            };
            comes[*plan][*index] = Comes::Shared {
                index: shared - 1,
                at: at as usize,
            };
        }
        (pieces, comes)
    }
}
