//! Seeds of steps, one run each. `SIM_SEED=N` runs that one and shows its trace, `SIM_SEEDS=FROM..TO` runs those.

use broker::Fault as Node;
use sim::{Planted, StepsSummary, find_steps, run_steps};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Those that are always run.
const SEEDS: std::ops::Range<u64> = 0..60;
/// Among so many a planted fault has to be found.
const SEEDS_OF_FAULTS: std::ops::Range<u64> = 0..400;

fn seeds() -> std::ops::Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    if let Ok(seed) = std::env::var("SIM_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    match std::env::var("SIM_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("SIM_SEEDS is FROM..TO");
            number(from)..number(to)
        }
        Err(_) => SEEDS,
    }
}

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
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let take = || next.fetch_add(1, Ordering::Relaxed);
    let all = Mutex::new((StepsSummary::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = Some(take()).filter(|seed| seeds.contains(seed)) {
                    let result = run_steps(seed, None);
                    let (all, failures) = &mut *all.lock().unwrap();
                    match result {
                        Ok(summary) => add(all, &summary),
                        Err(failure) => {
                            println!("{failure}\n");
                            failures.push((seed, failure.violation.0));
                        }
                    }
                }
            });
        }
    });
    let (all, failures) = all.into_inner().unwrap();
    println!("{all:?}");
    assert!(failures.is_empty(), "seeds failed: {failures:#?}");
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

/// Looks for a fault that is noticed as one of these, apart by `|`.
fn is_found(planted: Planted, words: &str) {
    let found = find_steps(planted, SEEDS_OF_FAULTS);
    println!("{planted:?}: {found:?}");
    let (seed, violation) = found.unwrap_or_else(|| panic!("{planted:?} is not noticed"));
    assert!(
        words.split('|').any(|word| violation.0.contains(word)),
        "{planted:?} is noticed by seed {seed} as something else: {}",
        violation.0
    );
}

macro_rules! planted {
    ($($name:ident: $planted:expr => $word:expr;)*) => {
        $(#[test]
        fn $name() {
            is_found($planted, $word);
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
