//! Seeds of a cluster, one run each. `SIM_SEED=N` runs that one and shows its trace, `SIM_SEEDS=FROM..TO` runs those.

use broker::Fault as Node;
use client::Fault as Client;
use cluster::Fault as Cluster;
use sim::{ClusterSummary, Planted, find_cluster, is_noticed, run_all, run_cluster, seeds};

/// Those that are always run.
const SEEDS: std::ops::Range<u64> = 0..60;
/// Among so many a planted fault has to be found.
const SEEDS_OF_FAULTS: std::ops::Range<u64> = 0..400;

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
    run_all(seeds(SEEDS), |seed| run_cluster(seed, None), add);
}

macro_rules! planted {
    ($($name:ident: $planted:expr => $word:expr;)*) => {
        $(#[test]
        fn $name() {
            is_noticed($planted, find_cluster($planted, SEEDS_OF_FAULTS), $word);
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
