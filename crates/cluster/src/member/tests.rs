//! The servers of a cluster, under seeds.

use super::frame::{Attachment, Frame};
use super::world::{Counts, World};
use super::{Input, Member, Output};
use crate::faults::{Fault, with};
use crate::quorum::RequestId;
use std::time::Duration;
use wire::record::{Endpoints, Labels};
use wire::table::{Register, TableMessage};
use wire::{DirectoryId, NodeId};

fn run(seed: u64) -> Result<Counts, String> {
    let wrong = |what: String| format!("MEMBER_SEED={seed}: {what}");
    World::new(seed, None).run().map_err(wrong)
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

fn is_noticed(fault: Fault, usual: std::ops::Range<u64>) -> bool {
    seeds(usual).any(|seed| with(fault, || run(seed)).is_err())
}

#[test]
fn a_leader_that_leads_too_early_is_noticed() {
    assert!(is_noticed(Fault::LedEarly, 300..340));
}

#[test]
fn followers_that_are_kept_by_a_former_leader_are_noticed() {
    assert!(is_noticed(Fault::FollowersKept, 0..40));
}

#[test]
fn a_snapshot_that_forgets_proposals_is_noticed() {
    assert!(is_noticed(Fault::SnapshotForgetsProposals, 0..40));
}

#[test]
fn a_voter_that_says_nothing_when_another_leads_is_noticed() {
    assert!(is_noticed(Fault::ResignedSilently, 0..40));
}

#[test]
fn a_leader_that_has_nodes_wait_for_what_is_sent_to_nobody_is_noticed() {
    let fault = Some(broker::Fault::PlacesCounted);
    assert!(seeds(0..40).any(|seed| World::new(seed, fault).run().is_err()));
}

/// A server without a voter, which has a link with server 1, that votes.
fn follower() -> Member {
    let mut member = Member::new(DirectoryId(9), None, 0, Duration::ZERO);
    member.handle(Duration::ZERO, Input::Voters(vec![DirectoryId(1)]));
    member.handle(Duration::ZERO, Input::Up(DirectoryId(1)));
    member
}

fn receive(member: &mut Member, frame: &Frame) {
    let input = Input::Message(DirectoryId(1), frame.to_bytes());
    member.handle(Duration::ZERO, input);
}

fn outputs(member: &mut Member) -> Vec<String> {
    let outputs = std::iter::from_fn(|| member.poll_output());
    let outputs = outputs.map(|output| match output {
        Output::Send(to, bytes) => format!("to {}: {:?}", to.0, Frame::read(&bytes).unwrap()),
        other => format!("{other:?}"),
    });
    outputs.collect()
}

/// The node has a link, and the number of it.
fn attach(member: &mut Member) -> u64 {
    member.handle(Duration::ZERO, Input::NodeUp(NodeId(7)));
    let number = member.last_number;
    let node = NodeId(7);
    let asked = outputs(member);
    assert!(asked[0].starts_with("to 1: Attach("), "{asked:?}");
    receive(member, &Frame::Attached(Attachment { node, number }));
    assert_eq!(
        outputs(member),
        [format!("NodeLinked(NodeId(7), {number})")]
    );
    number
}

#[test]
fn what_a_slow_node_says_on_its_last_link_does_not_go_out_on_the_new_one() {
    let says = || {
        let mut member = follower();
        let first = attach(&mut member);
        member.handle(Duration::ZERO, Input::Up(DirectoryId(1)));
        assert_eq!(outputs(&mut member), ["NodeCut(NodeId(7))"]);
        let second = attach(&mut member);
        let took = || TableMessage::Took(wire::table::Took { count: 1 });
        member.handle(Duration::ZERO, Input::Node(NodeId(7), first, took()));
        let late = outputs(&mut member);
        member.handle(Duration::ZERO, Input::Node(NodeId(7), second, took()));
        assert_eq!(outputs(&mut member).len(), 1);
        late.len()
    };
    assert_eq!(says(), 0);
    assert_eq!(with(Fault::LinksMixed, says), 1);
}

#[test]
fn whose_link_is_over_hears_so_when_it_says_something() {
    let mut member = follower();
    let number = attach(&mut member);
    let node = NodeId(7);
    let old = Attachment {
        node,
        number: number - 1,
    };
    let message = TableMessage::Took(wire::table::Took { count: 1 });
    let attachment = old;
    receive(
        &mut member,
        &Frame::Table {
            attachment,
            message,
        },
    );
    let answer = outputs(&mut member);
    assert!(
        answer.len() == 1 && answer[0].contains("NotLed"),
        "{answer:?}"
    );
    // What is said of another one than its link is no end of that.
    let leader = DirectoryId(0);
    receive(
        &mut member,
        &Frame::NotLed {
            attachment: old,
            leader,
        },
    );
    assert!(outputs(&mut member).is_empty());
    let attachment = Attachment { node, number };
    receive(&mut member, &Frame::NotLed { attachment, leader });
    assert_eq!(outputs(&mut member), ["NodeCut(NodeId(7))"]);
}

#[test]
fn a_server_that_does_not_lead_answers_at_once() {
    let mut member = follower();
    let attachment = Attachment {
        node: NodeId(3),
        number: 1,
    };
    receive(&mut member, &Frame::Attach(attachment));
    let register = Register {
        directory: DirectoryId(100),
        endpoints: Endpoints::default(),
        labels: Labels::default(),
        shard: 0,
    };
    receive(
        &mut member,
        &Frame::Register {
            number: 2,
            register,
        },
    );
    let answers = outputs(&mut member);
    assert!(
        answers.len() == 2 && answers[0].contains("NotLed"),
        "{answers:?}"
    );
    assert!(answers[1].contains("NotLeader"), "{answers:?}");
    assert!(member.registrants.is_empty() && member.followers.is_empty());
    let request = RequestId(5);
    let change = crate::quorum::Change::Remove {
        voter: crate::quorum::VoterId(1),
    };
    member.handle(Duration::ZERO, Input::Change { request, change });
    assert!(outputs(&mut member)[0].contains("NotLeader"));
}
