//! A request for what several plans read, from its memory to the results.

use crate::error::StepError;
use crate::gather::{Coverage, Destination, Plan};
use crate::together::{Comes, Piece, Together};
use client::{StridedWanted, Target};
use memory::{Buffer, Pool, Split};
use std::collections::BTreeMap;
use wire::step::PartPlace;

/// Plans whose bytes are under way, where they allow it straight into the memory of the results.
pub(crate) struct Reading {
    plans: Vec<Plan>,
    pieces: Vec<Piece>,
    comes: Vec<Vec<Comes>>,
    cut: Vec<CutResult>,
}

/// What a reading asks for, and the memory that it comes to.
pub(crate) struct Asked {
    pub wanted: Vec<StridedWanted>,
    pub into: Vec<Target>,
}

impl Reading {
    pub fn new(
        gets: Vec<(Plan, Target)>,
        parts: &[PartPlace],
        pool: &Pool,
    ) -> Result<(Self, Asked), StepError> {
        let (plans, targets): (Vec<Plan>, Vec<Target>) = gets.into_iter().unzip();
        let together = Together::of(&plans, parts);
        let (pieces, comes) = together.memory(&plans, true);
        let mut cut: Vec<CutResult> = plans
            .iter()
            .zip(&comes)
            .zip(targets)
            .map(|((plan, comes), target)| CutResult::new(plan, comes, target))
            .collect();
        let into = pieces.iter().map(|piece| match piece {
            Piece::Alone(plan, read) => Ok(cut[*plan].lend(*read)),
            Piece::Shared(bytes) => shared(pool, *bytes),
        });
        let into = into.collect::<Result<_, _>>()?;
        let wanted = together.wanted;
        let reading = Self {
            plans,
            pieces,
            comes,
            cut,
        };
        Ok((reading, Asked { wanted, into }))
    }

    /// The results, when all has come.
    pub fn finish(mut self, read: Vec<Target>) -> Result<Vec<(Target, Coverage)>, StepError> {
        let mut shared: Vec<Buffer> = Vec::new();
        for (piece, target) in self.pieces.iter().zip(read) {
            match piece {
                Piece::Alone(plan, read) => self.cut[*plan].take_back(*read, target),
                Piece::Shared(_) => shared.push(target.into_owner()),
            }
        }
        let mut results = Vec::with_capacity(self.cut.len());
        for ((plan, comes), cut) in self.plans.iter().zip(&self.comes).zip(self.cut) {
            let mut target = cut.join();
            let coverage = put_together(plan, comes, &shared, target.as_mut())?;
            results.push((target, coverage));
        }
        Ok(results)
    }
}

/// Memory that several reads share.
pub(crate) fn shared(pool: &Pool, bytes: u64) -> Result<Target, StepError> {
    let bytes = usize::try_from(bytes).map_err(StepError::invalid)?;
    Ok(Target::from(pool.take(bytes)))
}

/// A result's memory as pieces: those that reads come to, and those between them.
struct CutResult {
    split: Split,
    pieces: Vec<Option<Target>>,
    /// By read, which piece.
    places: BTreeMap<usize, usize>,
}

impl CutResult {
    fn new(plan: &Plan, comes: &[Comes], target: Target) -> Self {
        let bytes = target.len();
        let mut direct: Vec<(usize, usize, usize)> = Vec::new();
        for (index, read) in plan.reads().iter().enumerate() {
            if let (Destination::Result(at), Comes::Alone) = (read.to, comes[index]) {
                direct.push((at as usize, read.bytes as usize, index));
            }
        }
        direct.sort_unstable();
        let mut lengths = Vec::new();
        let mut places = BTreeMap::new();
        let mut end = 0;
        for (at, length, index) in direct {
            if at > end {
                lengths.push(at - end);
            }
            places.insert(index, lengths.len());
            lengths.push(length);
            end = at + length;
        }
        if end < bytes {
            lengths.push(bytes - end);
        }
        let (split, pieces) = target.split(&lengths);
        Self {
            split,
            pieces: pieces.into_iter().map(Some).collect(),
            places,
        }
    }

    fn lend(&mut self, read: usize) -> Target {
        let piece = self.pieces[self.places[&read]].take();
        piece.expect("each is lent once")
    }

    fn take_back(&mut self, read: usize, target: Target) {
        self.pieces[self.places[&read]] = Some(target);
    }

    fn join(self) -> Target {
        let joined = self.split.join(self.pieces.into_iter().flatten());
        joined.expect("all pieces are back")
    }
}

/// Copies what has come to shared memory to where it belongs.
pub(crate) fn put_together(
    plan: &Plan,
    comes: &[Comes],
    shared: &[Buffer],
    out: &mut [u8],
) -> Result<Coverage, StepError> {
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(comes.len());
    for (read, comes) in plan.reads().iter().zip(comes) {
        let piece = match comes {
            Comes::Alone => &[],
            Comes::Shared { index, at } => &shared[*index][*at..][..read.bytes as usize],
        };
        if let (Destination::Result(at), Comes::Shared { .. }) = (read.to, comes) {
            memory::copies::copy(piece, &mut out[at as usize..][..piece.len()]);
        }
        pieces.push(piece);
    }
    Ok(plan.execute(&pieces, out)?)
}
