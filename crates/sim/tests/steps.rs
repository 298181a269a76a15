//! Seeds of steps, one run each. `SIM_SEED=N` runs that one and shows its trace, `SIM_SEEDS=FROM..TO` runs those.

use broker::Fault as Node;
use sim::{Planted, StepsSummary, find_steps, is_noticed, run_all, run_steps, seeds};

/// Those that are always run.
const SEEDS: std::ops::Range<u64> = 0..60;
/// Among so many a planted fault has to be found.
const SEEDS_OF_FAULTS: std::ops::Range<u64> = 0..400;

fn add(all: &mut StepsSummary, one: &StepsSummary) {
    all.runs += one.runs;
    all.broken += one.broken;
    all.steps += one.steps;
    all.discarded += one.discarded;
    all.given += one.given;
    all.skipped += one.skipped;
    all.released += one.released;
    all.shared += one.shared;
    all.pairs += one.pairs;
    all.restarts += one.restarts;
    all.killed += one.killed;
    all.ns += one.ns;
}

#[test]
fn steps_are_what_was_written_whatever_happens() {
    let seeds = seeds(SEEDS);
    let all = run_all(seeds.clone(), |seed| run_steps(seed, None), add);
    let counts = [
        all.broken,
        all.discarded,
        all.skipped,
        all.released,
        all.shared,
        all.pairs,
        all.killed,
    ];
    assert!(seeds != SEEDS || !counts.contains(&0), "{all:?}");
}

/// Beyond those that are run anyhow: ranks of two lives that were taken for one group; turns that all had released,
/// and that counted in the queue; a step that a rank writes again, behind
/// which another one was let in; a rank that left before the others had come to the end; a writer whose run was broken
/// while it waited for readers; ranks of two lives of a group behind two kills of the server; parts of a rank that had
/// closed its run, and whose next life had begun when the server was killed.
#[test]
fn found_before() {
    for seed in [106, 154, 336, 83, 255, 186, 423] {
        if let Err(failure) = run_steps(seed, None) {
            panic!("{failure}");
        }
    }
}

macro_rules! planted {
    ($($name:ident: $planted:expr => $word:expr;)*) => {
        $(#[test]
        fn $name() {
            is_noticed($planted, find_steps($planted, SEEDS_OF_FAULTS), $word);
        })*
    };
}

planted! {
    a_record_ahead_of_its_parts: Planted::Broker(Node::StepsEarly) => "";
    a_record_without_a_part: Planted::Broker(Node::StepsShort) => "has parts of";
    steps_that_a_restart_forgets: Planted::Broker(Node::StepsForgotten) => "";
    a_part_of_a_life_that_has_ended: Planted::Broker(Node::FencedPart) => "";
    attributes_that_are_dropped_with_their_step: Planted::Broker(Node::DiscardAttributes) => "its attributes are of another step";
    a_cursor_that_moves_at_the_first_release: Planted::Broker(Node::CursorAtFirstRelease) => "";
    a_last_row_of_another_place: Planted::Step(step::Fault::LastRow) => "was written";
    a_last_piece_of_another_place: Planted::Broker(Node::LastPiece) => "was written";
    a_range_that_is_copied_with_its_holes: Planted::Step(step::Fault::NoMask) => "was written";
    a_block_that_counts_because_it_came_last: Planted::Step(step::Fault::WinnerByArrival) => "was written";
}
