//! The servers of a cluster, under seeds.

use super::world::{Counts, World};
use crate::faults::{Fault, with};

fn run(seed: u64) -> Result<Counts, String> {
    let wrong = |what: String| format!("MEMBER_SEED={seed}: {what}");
    World::new(seed).run().map_err(wrong)
}

/// The seeds that are asked for: `MEMBER_SEED=n`, `MEMBER_SEEDS=a..b`, or these.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    if let Ok(seed) = std::env::var("MEMBER_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    match std::env::var("MEMBER_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once("..").expect("MEMBER_SEEDS=a..b");
            number(from)..number(to)
        }
        Err(_) => usual,
    }
}

#[test]
fn a_change_of_the_table_is_made_once_whichever_voter_leads() {
    let mut all = Counts::default();
    for seed in seeds(0..25) {
        let counts = run(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
        all.done += counts.done;
        all.refused += counts.refused;
        all.unknown += counts.unknown;
        all.leaders += counts.leaders;
        all.losses += counts.losses;
        all.full += counts.full;
    }
    eprintln!("{all:?}");
    assert!(
        all.done > 1000 && all.leaders > 50 && all.losses > 50 && all.refused > 100,
        "{all:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    assert_eq!(run(7), run(7));
}

fn is_noticed(fault: Fault) -> bool {
    (0..40).any(|seed| with(fault, || run(seed)).is_err())
}

#[test]
fn a_leader_that_leads_too_early_is_noticed() {
    assert!(is_noticed(Fault::LedEarly));
}

#[test]
fn followers_that_are_kept_by_a_former_leader_are_noticed() {
    assert!(is_noticed(Fault::FollowersKept));
}

#[test]
fn a_snapshot_that_forgets_proposals_is_noticed() {
    assert!(is_noticed(Fault::SnapshotForgetsProposals));
}

#[test]
fn a_voter_that_says_nothing_when_another_leads_is_noticed() {
    assert!(is_noticed(Fault::ResignedSilently));
}
