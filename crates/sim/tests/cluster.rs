//! Seeds of a cluster, one run each. `SIM_SEED=N` runs that one and shows its trace, `SIM_SEEDS=FROM..TO` runs those.

use broker::Fault as Node;
use client::Fault as Client;
use cluster::Fault as Cluster;
use sim::{ClusterSummary, Planted, find_cluster, run_cluster};
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

fn add(all: &mut ClusterSummary, one: &ClusterSummary) {
    all.pushed += one.pushed;
    all.acked += one.acked;
    all.delivered += one.delivered;
    all.steps += one.steps;
    all.restarts += one.restarts;
    all.moved += one.moved;
    all.removed += one.removed;
    all.added += one.added;
    all.leaders += one.leaders;
    all.ns += one.ns;
}

#[test]
fn each_topic_keeps_its_promises_whatever_servers_it_is_on() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let take = || next.fetch_add(1, Ordering::Relaxed);
    let all = Mutex::new((ClusterSummary::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = Some(take()).filter(|seed| seeds.contains(seed)) {
                    let result = run_cluster(seed, None);
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
}

/// Looks for a fault that is noticed as one of these, apart by `|`.
fn is_found(planted: Planted, words: &str) {
    let found = find_cluster(planted, SEEDS_OF_FAULTS);
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
    a_change_that_a_follower_leaves_out: Planted::Broker(Node::EntrySkipped) => "is another one at";
    a_node_that_serves_topics_of_others: Planted::Broker(Node::ServesAny) => "is served by";
    a_leader_epoch_that_is_over: Planted::Broker(Node::StaleLeaderEpoch) => "leader epoch";
    a_node_id_that_is_given_again: Planted::Broker(Node::NodeIdAgain) => "are both node";
    a_fence_that_a_new_partition_lacks: Planted::Broker(Node::FenceForgotten) => "had begun";
    a_topic_that_moves_before_it_is_yielded: Planted::Broker(Node::MovesEarly) => "beyond the visible end|lost event";
    a_topic_that_is_written_when_it_was_yielded: Planted::Broker(Node::YieldedServes) => " is there|doubled|lost event";
    a_leader_that_is_gone_back_to: Planted::Client(Client::LowerEpoch) => "goes back to leader epoch";
    a_start_that_removes_what_no_topic_has: Planted::Broker(Node::DeleteUnnamed) => "has removed a directory";
    a_change_before_it_is_decided: Planted::Cluster(Cluster::CommittedNotChecked) => "is another one at|both elected";
    a_vote_that_is_not_synced: Planted::Cluster(Cluster::VoteNotSynced) => "both elected";
    messages_of_another_cluster: Planted::Cluster(Cluster::TwoFoundings) => "both elected";
    a_leader_that_leads_too_early: Planted::Cluster(Cluster::LedEarly) => "was Some(Registered|is another one at|both node";
    a_snapshot_without_its_proposals: Planted::Cluster(Cluster::SnapshotForgetsProposals) => "is another one at";
}
