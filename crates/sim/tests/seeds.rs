//! Seeds, one run each. `SIM_SEED=N` runs that one and shows its trace,
//! `SIM_SEEDS=FROM..TO` runs those.

use sim::{Summary, Weather, run_seed};

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
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

fn run(seeds: std::ops::Range<u64>, weather: Weather) -> Summary {
    let mut all = Summary::default();
    let mut failures = Vec::new();
    for seed in seeds {
        match run_seed(seed, weather, None) {
            Ok(summary) => {
                all.pushed += summary.pushed;
                all.acked += summary.acked;
                all.delivered += summary.delivered;
                all.steps += summary.steps;
                all.restarts += summary.restarts;
                all.ns += summary.ns;
            }
            Err(failure) => {
                println!("{failure}\n");
                failures.push((seed, failure.violation.0));
            }
        }
    }
    println!("{weather:?}: {all:?}");
    assert!(failures.is_empty(), "seeds failed: {failures:#?}");
    all
}

#[test]
fn calm() {
    let all = run(seeds(0..20), Weather::Calm);
    assert!(all.acked == all.pushed, "nothing was lost: {all:?}");
}

#[test]
fn chaos() {
    run(seeds(0..500), Weather::Chaos);
}
