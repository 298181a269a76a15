//! What a process of ranks does in a repetition, and when it did what.

use super::super::meter::Usage;
use clap::ValueEnum;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How blocks are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutMode {
    /// Copied into the writer's memory
    Copy,
    /// Made in the writer's memory: only an element of each block is written while it is measured
    Span,
}

/// What ending a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// For room only
    Begun,
    /// The rank's part is acknowledged
    Accepted,
    /// The step has its record
    Committed,
}

/// Which side of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Write,
    Read,
}

/// What steps look like, and how they travel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// Shape of each variable, an array of `<f8`.
    pub shape: Vec<u64>,
    pub variables: usize,
    pub writers: u32,
    pub readers: u32,
    /// So many steps come first and are not measured.
    pub warmup: usize,
    /// So many are measured.
    pub steps: usize,
    pub put: PutMode,
    pub wait: Awaited,
    /// Steps that readers have not released; 0 is without a limit.
    pub queue: u32,
    /// From the beginning of a step to that of the next; 0 is as fast as it goes.
    pub every_us: u64,
    /// Whether least and greatest elements are looked for.
    pub extremes: bool,
    /// What readers take of each dimension, behind as many that are whole; from the middle.
    pub fractions: Vec<f64>,
    /// Variables that are read with one request; 0 is all.
    pub batch: usize,
}

/// Elements `start .. start + count` along a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub start: u64,
    pub count: u64,
}

impl Load {
    /// Bytes of a step.
    pub fn bytes(&self) -> u64 {
        8 * self.shape.iter().product::<u64>() * self.variables as u64
    }

    /// Steps of a run.
    pub fn all_steps(&self) -> usize {
        self.warmup + self.steps
    }

    /// The rows of a writer: the first dimension is divided among them.
    pub fn rows(&self, rank: u32) -> Piece {
        share(self.shape[0], rank, self.writers)
    }

    /// The box of a reader: its share of the rows of what is selected.
    pub fn selected(&self, rank: u32) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = self.shape.iter().map(|length| whole(*length)).collect();
        for (piece, fraction) in pieces.iter_mut().zip(&self.fractions) {
            let length = piece.count;
            piece.count = ((length as f64 * fraction).round() as u64).clamp(1, length);
            piece.start = (length - piece.count) / 2;
        }
        let rows = share(pieces[0].count, rank, self.readers);
        pieces[0] = Piece {
            start: pieces[0].start + rows.start,
            count: rows.count,
        };
        pieces
    }

    /// Bytes of a step that all readers select together.
    pub fn selected_bytes(&self) -> u64 {
        let of = |rank| {
            let pieces = self.selected(rank);
            pieces.iter().map(|piece| piece.count).product::<u64>()
        };
        8 * self.variables as u64 * (0..self.readers).map(of).sum::<u64>()
    }
}

fn whole(count: u64) -> Piece {
    Piece { start: 0, count }
}

/// What rank `rank` of `ranks` has of `count`.
fn share(count: u64, rank: u32, ranks: u32) -> Piece {
    let at = |rank: u32| count * u64::from(rank) / u64::from(ranks);
    Piece {
        start: at(rank),
        count: at(rank + 1) - at(rank),
    }
}

/// What one process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub load: Load,
    pub group_file: PathBuf,
    pub stream: String,
    pub side: Side,
    /// Its ranks: the first, and how many.
    pub first: u32,
    pub count: u32,
}

/// When a rank did what in a step, nanoseconds of the host's monotonic clock.
///
/// A writer: began it, had put all, came back from its end, knew that it has a record (if it
/// waited for that). A reader: asked for it, was given it, had read all, had let go of it.
pub type Marks = [u64; 4];

/// What a process reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    /// Of each rank, for each step, those of the warm-up too.
    pub ranks: Vec<Vec<Marks>>,
    /// From the first step to the last, by all of its ranks.
    pub usage: Usage,
    /// Bytes that its ranks ask for in a step.
    pub asked_bytes: u64,
}

/// Now.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            shape: vec![100, 50, 1024],
            variables: 2,
            writers: 3,
            readers: 4,
            warmup: 0,
            steps: 1,
            put: PutMode::Copy,
            wait: Awaited::Accepted,
            queue: 0,
            every_us: 0,
            extremes: false,
            fractions: vec![0.1, 0.2, 0.5],
            batch: 0,
        }
    }

    #[test]
    fn ranks_have_all_rows_once() {
        let load = load();
        let mut next = 0;
        for rank in 0..load.writers {
            let rows = load.rows(rank);
            assert_eq!(rows.start, next);
            next += rows.count;
        }
        assert_eq!(next, 100);
    }

    #[test]
    fn a_box_is_the_fraction_that_was_asked_for() {
        let load = load();
        assert_eq!(load.selected_bytes() * 100, load.bytes());
        let middle = load.selected(0);
        assert_eq!(
            middle[1],
            Piece {
                start: 20,
                count: 10
            }
        );
        let last = load.selected(3);
        assert_eq!((last[0].start, last[0].count), (52, 3));
    }
}
