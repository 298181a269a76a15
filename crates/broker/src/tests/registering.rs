//! Registrations at the controller that leads, beside a follower: asked at once and again, with links that are cut
//! and nodes that lose their power.

use super::pair::{Pair, content};
use crate::Fault;
use crate::coordinator::controller::{ControlError, Controller};
use crate::coordinator::table::Table;
use crate::ids::LinkId;
use std::collections::BTreeMap;
use wire::record::*;
use wire::table::{Register, Registered};
use wire::*;

fn register(directory: u128, link: u64) -> Register {
    Register {
        directory: DirectoryId(directory),
        endpoints: Endpoints(vec![format!("tcp://h{directory}:{link}")]),
        labels: Labels::default(),
        shard: 0,
    }
}

/// What servers have heard of which node they are.
#[derive(Default)]
struct Heard {
    /// Which data directory has asked on a link.
    asked: BTreeMap<u64, DirectoryId>,
    nodes: BTreeMap<DirectoryId, Registered>,
}

impl Heard {
    fn ask(&mut self, pair: &mut Pair, directory: u128) {
        let link = self.asked.len() as u64;
        self.asked.insert(link, DirectoryId(directory));
        let register = register(directory, link);
        pair.leader
            .controller
            .register(LinkId(link), register)
            .unwrap();
    }

    /// Takes answers, of which some are lost on their way. Says what cannot be right.
    fn take(&mut self, pair: &mut Pair) -> Result<(), String> {
        while let Some((link, answer)) = pair.leader.controller.poll_registered() {
            let (Ok(registered), false) = (answer, pair.choose(4) == 0) else {
                continue;
            };
            let directory = self.asked[&link.0];
            let Registered { node, epoch } = registered;
            if node == NodeId(0) {
                return Err(format!("{directory} is the node that leads"));
            }
            let mut others = self.nodes.iter().filter(|(_, it)| it.node == node);
            if let Some((other, _)) = others.find(|(other, _)| **other != directory) {
                return Err(format!("node {node} is {other} and {directory}"));
            }
            let before = self.nodes.insert(directory, registered);
            if let Some(before) = before.filter(|it| it.node != node || it.epoch >= epoch) {
                return Err(format!("{directory} is {registered:?}, and was {before:?}"));
            }
        }
        Ok(())
    }

    /// Says what of this is not in a table.
    fn check(&self, table: &Table) -> Result<(), String> {
        for (directory, heard) in &self.nodes {
            let record = table.nodes().get(heard.node);
            if record.is_none_or(|it| it.directory != *directory || it.epoch < heard.epoch) {
                return Err(format!(
                    "{directory} has heard {heard:?}, and {record:?} is known"
                ));
            }
        }
        let mut nodes = table.nodes().present().map(|it| it.directory);
        let twice = |it: &DirectoryId| {
            table
                .nodes()
                .present()
                .filter(|n| n.directory == *it)
                .count()
                > 1
        };
        match nodes.find(twice) {
            Some(directory) => Err(format!("{directory} is two nodes")),
            None => Ok(()),
        }
    }
}

/// A node of a table in another state, if there is one to be changed.
fn changed(pair: &mut Pair, of_leader: bool) -> Option<Record> {
    let place = pair.choose(6) as usize;
    let state = match pair.choose(3) {
        0 => NodeState::Removed,
        1 => NodeState::Draining,
        _ => NodeState::Serving,
    };
    let table = match of_leader {
        true => pair.leader.controller.table(),
        false => pair.follower.controller.table(),
    };
    let known = table.nodes().present().nth(place)?.clone();
    Some(Record::Node(NodeRecord { state, ..known }))
}

/// Data directories register again and again, while nodes are drained and removed by both, links are cut and
/// nodes lose their power. Says what is wrong.
fn storm(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let mut pair = Pair::new(seed, fault);
    let mut heard = Heard::default();
    let mut token = 0;
    for round in 0..60 {
        for _ in 0..=pair.choose(3) {
            // Those of before come back, and there are new ones.
            let directory = u128::from(pair.choose(4 + round / 6)) + 1;
            heard.ask(&mut pair, directory);
        }
        let of_leader = pair.choose(2) == 0;
        if pair.choose(3) == 0
            && let Some(record) = changed(&mut pair, of_leader)
        {
            token += 1;
            match of_leader {
                true => pair.leader.submit(token, vec![record]),
                false => pair.follower.submit(token, vec![record]),
            }
        }
        for _ in 0..pair.choose(14) {
            pair.step();
            pair.poll();
            heard.take(&mut pair)?;
        }
        match pair.choose(10) {
            0 => pair.cut(),
            1 => pair.link(),
            2 => pair.restart_leader(),
            3 => pair.restart_follower(),
            _ => {}
        }
    }
    pair.link();
    pair.finish();
    heard.take(&mut pair)?;
    for directory in 1..=4 {
        heard.ask(&mut pair, directory);
    }
    pair.finish();
    heard.take(&mut pair)?;
    let (leads, follows) = (
        content(pair.leader.controller.table()),
        content(pair.follower.controller.table()),
    );
    if leads != follows {
        return Err(format!("{leads:?} is led, {follows:?} is followed"));
    }
    heard.check(&pair.leader.found())
}

#[test]
fn no_id_is_two_directories_and_no_directory_two_ids_whatever_is_lost() {
    for seed in 0..60 {
        if let Err(wrong) = storm(seed, None) {
            panic!("seed {seed}: {wrong}");
        }
    }
    for fault in [Fault::NodeIdAgain, Fault::RegisteredEarly] {
        let found = (0..60).any(|seed| storm(seed, Some(fault)).is_err());
        assert!(found, "{fault:?} was not noticed");
    }
}

/// What a new data directory is, where the only other one was removed.
fn behind_a_removed_one(fault: Option<Fault>) -> NodeId {
    let mut pair = Pair::new(1, fault);
    let first = registered(&mut pair, 0xa).unwrap();
    let known = pair.leader.controller.table().nodes().get(first.node);
    let state = NodeState::Removed;
    let removed = NodeRecord {
        state,
        ..known.unwrap().clone()
    };
    // It runs, as far as the leader knows.
    pair.leader.submit(1, vec![Record::Node(removed.clone())]);
    pair.finish();
    assert_eq!(pair.leader.carried_out(), [] as [u64; 0]);
    pair.cut();
    pair.leader.submit(2, vec![Record::Node(removed)]);
    pair.finish();
    assert_eq!(pair.leader.carried_out(), [2]);
    // Neither a start of the leader nor one of a copy forgets it.
    pair.restart_leader();
    pair.restart_follower();
    pair.link();
    pair.finish();
    let nodes = pair.follower.controller.table().nodes();
    assert_eq!(nodes.get(first.node).unwrap().state, NodeState::Removed);
    registered(&mut pair, 0xb).unwrap().node
}

/// Registers, and waits for the answer.
fn registered(pair: &mut Pair, directory: u128) -> Result<Registered, ErrorReply> {
    let register = register(directory, 0);
    pair.leader
        .controller
        .register(LinkId(77), register)
        .unwrap();
    pair.finish();
    let (link, answer) = pair.leader.controller.poll_registered().unwrap();
    assert_eq!(link, LinkId(77));
    answer
}

#[test]
fn the_id_of_a_node_that_was_removed_is_given_to_no_other_one() {
    assert_eq!(behind_a_removed_one(None), NodeId(2));
    assert_eq!(behind_a_removed_one(Some(Fault::NodeIdAgain)), NodeId(1));
}

#[test]
fn an_answer_waits_until_the_leader_can_lose_it_no_more() {
    let mut pair = Pair::new(2, None);
    pair.finish();
    pair.cut();
    let register = register(0xa, 1);
    pair.leader
        .controller
        .register(LinkId(1), register)
        .unwrap();
    let mut steps = 0;
    let answer = loop {
        pair.leader.controller.advance();
        let found = pair.leader.found();
        let answer = pair.leader.controller.poll_registered();
        if let Some((_, answer)) = answer {
            // What a start finds that happens now.
            assert_eq!(found.nodes().all().count(), 1);
            break answer.unwrap();
        }
        assert!(pair.step());
        steps += 1;
    };
    assert!(steps > 0);
    assert_eq!((answer.node, answer.epoch), (NodeId(1), 1));
    // It is lost on its way, and so is the leader: asked again, the node is the same.
    pair.restart_leader();
    let again = registered(&mut pair, 0xa).unwrap();
    assert_eq!((again.node, again.epoch), (NodeId(1), 2));
}

/// A registration is made of what the table says, and a change of the state that is decided meanwhile must
/// not be undone by it; nor is a change of state made of a registration that is over.
#[test]
fn a_registration_and_a_change_of_its_state_are_one_behind_the_other() {
    for is_first in [true, false] {
        let mut pair = Pair::new(3, None);
        registered(&mut pair, 0xa).unwrap();
        let known = pair.leader.controller.table().nodes().get(NodeId(1));
        let state = NodeState::Draining;
        let draining = NodeRecord {
            state,
            ..known.unwrap().clone()
        };
        if is_first {
            pair.leader.submit(1, vec![Record::Node(draining.clone())]);
        }
        let register = register(0xa, 2);
        pair.leader
            .controller
            .register(LinkId(2), register)
            .unwrap();
        pair.leader.controller.advance();
        if !is_first {
            pair.leader.submit(1, vec![Record::Node(draining)]);
        }
        pair.finish();
        let (_, answer) = pair.leader.controller.poll_registered().unwrap();
        assert_eq!(answer.unwrap().epoch, 2);
        let node = pair.leader.controller.table().nodes().get(NodeId(1));
        let node = node.unwrap();
        assert_eq!((node.epoch, &node.endpoints.0[0][..]), (2, "tcp://h10:2"));
        let [(_, result)] = &pair.leader.done[..] else {
            panic!("{:?}", pair.leader.done);
        };
        match is_first {
            true => assert_eq!((result, node.state), (&Ok(()), NodeState::Draining)),
            false => {
                assert!(
                    matches!(result, Err(ControlError::Refused(error)) if error.retryable),
                    "{result:?}"
                );
                assert_eq!(node.state, NodeState::Serving);
            }
        }
    }
}

#[test]
fn without_space_a_registration_is_refused_and_is_another_one_later() {
    let mut pair = Pair::new(4, None);
    pair.finish();
    pair.leader.disk.set_space(Some(0));
    // Longer than what is left of the log's space.
    let long = |directory| Register {
        endpoints: Endpoints(vec!["x".repeat(NODE_TEXT_BYTES_MAX); ENDPOINTS_MAX]),
        ..register(directory, 1)
    };
    for directory in 1..=8 {
        let link = LinkId(directory as u64);
        pair.leader
            .controller
            .register(link, long(directory))
            .unwrap();
    }
    pair.finish();
    let mut refused = 0;
    while let Some((_, answer)) = pair.leader.controller.poll_registered() {
        let error = answer.unwrap_err();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::StorageFull, true)
        );
        refused += 1;
    }
    assert_eq!(refused, 8);
    pair.leader.disk.set_space(None);
    // The first one after that finds out that there is space again.
    let mut tries = 0;
    let first = loop {
        match registered(&mut pair, 0xa) {
            Ok(registered) => break registered,
            Err(_) => tries += 1,
        }
        assert!(tries < 3);
    };
    assert_eq!((first.node, first.epoch), (NodeId(1), 1));
}

#[test]
fn a_node_that_follows_registers_nobody() {
    let mut pair = Pair::new(5, None);
    let refused = pair
        .follower
        .controller
        .register(LinkId(1), register(0xa, 1));
    let error = refused.unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::NotLeader, true));
    assert!(pair.follower.controller.poll_registered().is_none());
}
