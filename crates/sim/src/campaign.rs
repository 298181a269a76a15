//! Many seeds: which ones, run as many at a time as there are cores, and what is said of them. For the programs of tests.

use crate::planted::Planted;
use crate::run::Failure;
use crate::trace::Violation;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Those of `SIM_SEED=N` or `SIM_SEEDS=FROM..TO`, or these.
///
/// # Panics
/// If a variable says something else.
pub fn seeds(default: Range<u64>) -> Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    if let Ok(seed) = std::env::var("SIM_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("SIM_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("SIM_SEEDS is FROM..TO");
            number(from)..number(to)
        }
        Err(_) => default,
    }
}

/// Runs the seeds, a run in one thread, and puts together what came of them.
///
/// # Panics
/// If a seed has failed, when all have run; each failure is printed.
pub fn run_all<S: Default + Debug + Send>(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<S, Box<Failure>> + Sync,
    add: impl Fn(&mut S, &S) + Sync,
) -> S {
    let next = AtomicU64::new(seeds.start);
    let take = || next.fetch_add(1, Ordering::Relaxed);
    let all = Mutex::new((S::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = Some(take()).filter(|seed| seeds.contains(seed)) {
                    let result = run(seed);
                    let (all, failures) = &mut *all.lock().expect("no holder panics");
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
    let (all, failures) = all.into_inner().expect("no holder panics");
    println!("{all:?}");
    assert!(failures.is_empty(), "seeds failed: {failures:#?}");
    all
}

/// A planted fault was noticed by a seed, as one of these, apart by `|`.
///
/// # Panics
/// If it was not, or as something else.
pub fn is_noticed(planted: Planted, found: Option<(u64, Violation)>, words: &str) {
    println!("{planted:?}: {found:?}");
    let (seed, violation) = found.unwrap_or_else(|| panic!("{planted:?} is not noticed"));
    assert!(
        words.split('|').any(|word| violation.0.contains(word)),
        "{planted:?} is noticed by seed {seed} as something else: {}",
        violation.0
    );
}
