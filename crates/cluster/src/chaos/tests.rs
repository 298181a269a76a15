//! What is asked of the rig.

use super::plan::Plan;
use super::run::{attempt, run_seed, seeds};
use super::trace::{Trace, Violation};
use super::world::{Counts, World};
use crate::faults::{Fault, with};
use crate::quorum::{ClusterId, DirectoryId, VoterId};

fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        made: one.made + other.made,
        acknowledged: one.acknowledged + other.acknowledged,
        applied: one.applied + other.applied,
        given_up: one.given_up + other.given_up,
        power_losses: one.power_losses + other.power_losses,
        deaths: one.deaths + other.deaths,
        sync_failures: one.sync_failures + other.sync_failures,
        full: one.full + other.full,
        cuts: one.cuts + other.cuts,
        changes: one.changes + other.changes,
        leaders: one.leaders + other.leaders,
        restored: one.restored + other.restored,
        messages: one.messages + other.messages,
        hash: 0,
    }
}

#[test]
fn whatever_goes_wrong_the_voters_agree_and_nothing_is_lost() {
    let mut all = Counts::default();
    let mut failures = Vec::new();
    let seeds = seeds(0..150);
    for seed in seeds.clone() {
        match run_seed(seed) {
            Ok(counts) => all = sum(all, counts),
            Err(failure) => {
                println!("{}", failure.lines().rev().nth(1).unwrap_or_default());
                failures.push(failure);
            }
        }
    }
    println!("{seeds:?}: {all:?}");
    assert!(
        failures.is_empty(),
        "{} of {} seeds failed; the first:\n{}",
        failures.len(),
        seeds.count(),
        failures[0]
    );
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..3 {
        let run = || attempt(&Plan::of(seed), Trace::default()).0;
        let first = run().expect("this seed is well");
        assert_eq!(run(), Ok(first));
        assert!(first.hash != 0);
    }
}

/// The first seed that notices a fault, and as what. With `QUORUM_SEED=n` that seed, with its trace.
fn notices(fault: Fault, usual: std::ops::Range<u64>) -> (u64, String) {
    let seeds = seeds(usual);
    if let [seed] = seeds.clone().collect::<Vec<_>>()[..] {
        let run = || attempt(&Plan::of(seed), Trace::kept()).1;
        println!("{}", with(fault, run).join("\n"));
    }
    let found = seeds.clone().find_map(|seed| {
        let run = || attempt(&Plan::of(seed), Trace::default()).0;
        Some((seed, with(fault, run).err()?.0))
    });
    let found = found.unwrap_or_else(|| panic!("no seed of {seeds:?} notices {fault:?}"));
    println!("{fault:?}: seed {}: {}", found.0, found.1);
    found
}

macro_rules! noticed {
    ($($name:ident: $fault:ident, $seeds:expr;)+) => {$(
        #[test]
        fn $name() {
            notices(Fault::$fault, $seeds);
        }
    )+};
}

noticed! {
    a_vote_that_is_not_synced_is_noticed: VoteNotSynced, 0..20;
    an_ack_before_the_sync_is_noticed: AckBeforeSync, 0..20;
    an_entry_applied_before_it_is_decided_is_noticed: CommittedNotChecked, 0..20;
    a_retry_under_another_id_is_noticed: RetryNewId, 0..20;
    a_request_applied_twice_is_noticed: NoDeduplication, 0..20;
    a_suffix_found_again_is_noticed: SuffixKept, 0..200;
    a_snapshot_without_requests_is_noticed: SnapshotForgetsRequests, 0..50;
    a_torn_tail_taken_for_whole_is_noticed: TornTailKept, 0..100;
    a_failed_sync_that_is_ignored_is_noticed: SyncFailureIgnored, 0..50;
    a_log_believed_and_not_synced_is_noticed: RecoveredNotSynced, 0..50;
    callers_that_are_forgotten_are_noticed: WaitersForgotten, 0..50;
}

/// A check of the judge: no voter can do anything about a disk that loses what it has synced.
#[test]
fn a_disk_that_lies_is_noticed() {
    let found = (0..50).find_map(|seed| {
        let mut plan = Plan::of(seed);
        plan.disks_lie = true;
        Some((seed, attempt(&plan, Trace::default()).0.err()?.0))
    });
    println!("{:?}", found.expect("a seed notices it"));
}

/// Voters 3, 4 and 5 were to found another cluster, and 3 was a founder of ours before: its directory
/// is that of one cluster, so the two others are one by themselves.
fn two_foundings(seed: u64) -> Result<(), Violation> {
    let mut world = World::new(Plan::calm(seed, 3), Trace::default())?;
    let founders = [3, 4, 5].map(|id| (VoterId(id), DirectoryId(u128::from(1000 + id))));
    let other = ClusterId(77);
    for &(voter, directory) in &founders[1..] {
        world.found(other, voter, directory, &founders)?;
    }
    for op in 1..200 {
        world.run_until(world.now + 50_000)?;
        let leaders: Vec<_> = world.leaders().collect();
        for leader in leaders {
            world.propose(leader, op)?;
        }
    }
    world.run_until(world.now + 5_000_000)?;
    let applied = (1..=3).map(|id| world.judge.applied_by(VoterId(id)));
    match applied.min() {
        Some(least) if least > 100 => Ok(()),
        least => Err(Violation(format!(
            "one of ours has applied up to {least:?}"
        ))),
    }
}

#[test]
fn two_foundings_are_two_clusters() {
    for seed in 0..5 {
        two_foundings(seed).expect("they do not hear each other");
    }
    let found = with(Fault::TwoFoundings, || {
        (0..20).find_map(|seed| {
            let run = std::panic::catch_unwind(|| two_foundings(seed));
            run.unwrap_or_else(|_| Err(Violation("it panicked".to_owned())))
                .err()
        })
    });
    println!("TwoFoundings: {:?}", found.expect("a seed notices it"));
}

/// One of three lags, another has all that was decided and loses its directory, and then the leader
/// dies. What is there knows less than was decided, so it must decide nothing.
fn wiped(seed: u64) -> Result<(), Violation> {
    let (mut world, leader) = led(seed, 3);
    let voters: Vec<_> = world.machines.keys().copied().collect();
    let others: Vec<_> = voters.iter().copied().filter(|id| *id != leader).collect();
    world.links.split(&voters, &others[..1]);
    for op in 10..20 {
        world.propose(leader, op)?;
        world.run_until(world.now + 100_000)?;
    }
    world.lose_directory(others[1], true)?;
    world.stop(leader, false);
    world.links.heal();
    world.run_until(world.now + 5_000_000)?;
    for op in 20..40 {
        let leaders: Vec<_> = world.leaders().collect();
        for leader in leaders {
            world.propose(leader, op)?;
        }
        world.run_until(world.now + 200_000)?;
    }
    Ok(())
}

#[test]
fn a_wiped_voter_is_not_the_one_that_it_was() {
    for seed in 0..5 {
        wiped(seed).expect("nothing is decided without what was");
    }
    let found = with(Fault::ReuseVoterId, || {
        (0..20).find_map(|seed| wiped(seed).err())
    });
    println!("ReuseVoterId: {:?}", found.expect("a seed notices it"));
}

/// A world in which a voter has led for a while.
fn led(seed: u64, voters: u64) -> (World, VoterId) {
    let mut world = World::new(Plan::calm(seed, voters), Trace::default()).unwrap();
    world.run_until(4_000_000).unwrap();
    let leader = world.leaders().next().expect("one leads");
    world.propose(leader, 1).unwrap();
    world.run_until(5_000_000).unwrap();
    assert!(world.judge.end() > 0, "seed {seed}");
    (world, leader)
}

#[test]
fn a_leader_without_space_lets_another_lead() {
    for seed in 0..5 {
        let (mut world, leader) = led(seed, 3);
        let machine = &world.machines[&leader];
        machine.disk.set_space(Some(machine.used()));
        world.propose(leader, 2).unwrap();
        world.run_until(10_000_000).unwrap();
        let next = world.leaders().next().expect("one leads");
        assert_ne!(next, leader, "seed {seed}");
        let before = world.judge.end();
        world.propose(next, 3).unwrap();
        world.run_until(11_000_000).unwrap();
        assert!(world.judge.end() > before, "seed {seed}");
    }
}

/// Prints how long it takes from the death of a leader until another leads, and until it has
/// decided something, in virtual time.
#[test]
fn how_long_a_failover_takes() {
    let seeds = seeds(0..60);
    for voters in [3, 5] {
        let (mut elected, mut decided) = (Vec::new(), Vec::new());
        for seed in seeds.clone() {
            let (mut world, leader) = led(seed, voters);
            let (began, end) = (world.now, world.judge.end());
            world.stop(leader, false);
            let next = loop {
                world.run_until(world.now + 1000).unwrap();
                assert!(world.now < began + 20_000_000, "seed {seed}: nobody leads");
                if let Some(next) = world.leaders().next() {
                    break next;
                }
            };
            elected.push((world.now - began) / 1000);
            world.propose(next, 2).unwrap();
            while world.judge.end() == end {
                world.run_until(world.now + 1000).unwrap();
                assert!(
                    world.now < began + 20_000_000,
                    "seed {seed}: nothing is decided"
                );
            }
            decided.push((world.now - began) / 1000);
        }
        for (what, mut times) in [("another leads", elected), ("it has decided", decided)] {
            times.sort_unstable();
            let at = |of: usize| times[(times.len() - 1) * of / 100];
            println!(
                "{voters} voters, {what} after: median {} ms, p99 {} ms, greatest {} ms",
                at(50),
                at(99),
                at(100)
            );
        }
    }
}
