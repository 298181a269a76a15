//! Starts and ends of a node that follows, beside the one that leads.

use super::harness::*;
use super::losses::{files, remove_all, restore};
use super::nodes::{Nodes, OTHER, OfLeader, acquainted, assert_elsewhere, name_of, to_create};
use crate::ids::LEADER;
use crate::node::{Input, Now};
use crate::{FromLeader, Nodes as Known, PeerInput, TableRole, Upstream};
use log::testing::Survival;
use std::sync::Arc;
use std::time::Duration;
use wire::message::*;
use wire::table::TableMessage;
use wire::*;

#[test]
fn a_start_takes_over_what_was_decided_since_the_last_one() {
    let mut nodes = Nodes::new(None);
    nodes.create(1, "kept").unwrap();
    // The leader decides on a topic, and the node that made it dies before it hears of that.
    let create = to_create("decided");
    let link = nodes.clients[1];
    let _ = nodes.all[1].request(link, Method::CreateTopic, TopicId(0), &create, &[]);
    let proposed = std::mem::take(&mut nodes.all[1].to_peers);
    for (_, message) in proposed {
        nodes.input(0, PeerInput::Message(OTHER, message));
    }
    nodes.all[0].to_peers.clear();
    nodes.restart_led().unwrap();
    assert_eq!(nodes.names(1), ["decided", "kept"]);
    let topic = nodes.describe(1, "decided").unwrap().topic;
    nodes.store(1, topic, 0, &["a"]);
    assert_eq!(nodes.read(1, topic), ["a"]);
    // Its link goes on.
    nodes.create(1, "later").unwrap();
    assert_elsewhere(nodes.describe(0, "later").map(|_| ()), 1);
    // A topic that is gone since is not opened.
    let name = TopicName {
        name: "later".into(),
    };
    let link = nodes.clients[1];
    let _ = nodes.all[1].request(link, Method::DeleteTopic, TopicId(0), &name, &[]);
    for (_, message) in std::mem::take(&mut nodes.all[1].to_peers) {
        nodes.input(0, PeerInput::Message(OTHER, message));
    }
    nodes.all[0].to_peers.clear();
    nodes.restart_led().unwrap();
    assert_eq!(nodes.names(1), ["decided", "kept"]);
}

/// A link to the leader that does not stand at first, and is lost after each message that has come, for a while.
struct Cutting<'a> {
    leader: OfLeader<'a>,
    is_up: bool,
    /// How often it is lost yet.
    losses: u32,
    has_come: bool,
}

impl Upstream for Cutting<'_> {
    fn now(&mut self) -> Now {
        self.leader.now()
    }

    fn send(&mut self, message: TableMessage) {
        assert!(self.is_up, "{message:?} is sent on no link");
        self.leader.send(message);
    }

    fn receive(&mut self, within: Duration) -> FromLeader {
        let world = &mut self.leader.0;
        if !self.is_up {
            self.is_up = true;
            world.input(Input::Peer(PeerInput::Up(OTHER)));
            return FromLeader::Linked;
        }
        if self.has_come && self.losses > 0 {
            (self.is_up, self.has_come) = (false, false);
            self.losses -= 1;
            world.input(Input::Peer(PeerInput::Down(OTHER)));
            world.to_peers.clear();
            return FromLeader::Cut;
        }
        let came = self.leader.receive(within);
        self.has_come = matches!(came, FromLeader::Message(_));
        came
    }

    fn is_linked(&self) -> bool {
        self.is_up
    }
}

#[test]
fn a_start_goes_on_over_links_that_come_and_go() {
    for losses in [0, 1, 5] {
        let mut nodes = acquainted(None);
        nodes.create(0, &name_of(0)).unwrap();
        nodes.create(1, &name_of(1)).unwrap();
        nodes.cut();
        nodes.create(0, &another(0)).unwrap();
        nodes.grounds[1].power_loss(Survival::Nothing);
        let before = nodes.names(0);
        let mut link = Cutting {
            leader: OfLeader(&mut nodes.all[0]),
            is_up: false,
            losses,
            has_come: false,
        };
        let started = nodes.grounds[1].try_start_led(Some(&mut link));
        assert_eq!(link.losses, 0, "it was done before");
        nodes.all[1] = started.unwrap();
        nodes.is_linked = true;
        nodes.clients[1] = nodes.all[1].connect();
        nodes.carry();
        assert_eq!(nodes.names(0), before);
        // It is led by the last one.
        nodes.create(1, &another(1)).unwrap();
    }
}

/// Another name of a topic that is made on this node.
fn another(home: u32) -> String {
    let known = Known::new(2);
    let mut names = (0..).map(|number| format!("other{number}"));
    let name = names.find(|name| known.home_of("", name) == NodeId(home));
    name.expect("names are spread")
}

#[test]
fn a_start_whose_leader_does_not_answer_is_refused() {
    struct Nobody(Now, FromLeader, Option<Duration>);
    impl Upstream for Nobody {
        fn now(&mut self) -> Now {
            self.0
        }
        fn send(&mut self, _: TableMessage) {}
        fn receive(&mut self, within: Duration) -> FromLeader {
            self.0.monotonic += within;
            self.1.clone()
        }
        fn patience(&self) -> Option<Duration> {
            self.2
        }
    }
    let mut nodes = Nodes::new(None);
    nodes.create(1, "t").unwrap();
    nodes.cut();
    let long = Duration::from_secs(120);
    for (received, patience, said) in [
        (FromLeader::Nothing, None, "has sent nothing for 5 s"),
        (
            FromLeader::Nothing,
            Some(long),
            "has sent nothing for 120 s",
        ),
        (FromLeader::Gone, Some(long), "has ended"),
        (FromLeader::Interrupted, Some(long), "interrupted"),
    ] {
        let mut nobody = Nobody(nodes.all[1].now, received, patience);
        let refused = nodes.grounds[1].try_start_led(Some(&mut nobody));
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
    // Another one's leader is none.
    let mut ground = Ground::new();
    (ground.run, ground.role) = (500, TableRole::Leads);
    let mut other = ground.start();
    other.input(Input::Peer(PeerInput::Up(OTHER)));
    let mut upstream = OfLeader(&mut other);
    let refused = nodes.grounds[1].try_start_led(Some(&mut upstream));
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("has table"), "{error}");
}

#[test]
fn a_leader_starts_with_all_nodes_that_have_topics_and_with_all_of_its_table() {
    let mut nodes = acquainted(None);
    nodes.create(0, &name_of(0)).unwrap();
    nodes.create(1, &name_of(1)).unwrap();
    nodes.cut();
    nodes.all[0].input(Input::Drain);
    assert!(nodes.all[0].drained);
    nodes.grounds[0].power_loss(Survival::All);
    // A directory that is not there makes no topic unknown.
    for role in [TableRole::Alone, TableRole::Leads] {
        nodes.grounds[0].role = role;
        nodes.grounds[0].nodes = Arc::new(Known::new(1));
        let refused = nodes.grounds[0].try_start().err();
        match role {
            TableRole::Alone => {
                let error = refused.unwrap().to_string();
                assert!(error.contains("is on shard 1"), "{error}");
            }
            // It does not know how many there are.
            _ => assert!(refused.is_none()),
        }
    }
    nodes.grounds[0].nodes = Arc::new(Known::new(2));
    nodes.grounds[0].power_loss(Survival::All);
    let older = files(&nodes.grounds[0]);
    nodes.restart(0);
    nodes.link();
    nodes
        .create(0, "and one more beside")
        .unwrap_or_else(|error| {
            assert_eq!(error.code, ErrorCode::NotLeader, "{error}");
            TopicId(0)
        });
    nodes.create(0, &format!("{}x", name_of(0))).ok();
    nodes.create(1, &format!("{}y", name_of(1))).ok();
    nodes.cut();
    nodes.all[0].input(Input::Drain);
    let older = older.into_iter();
    let older = older.filter(|(path, _)| path.starts_with("/data/internal"));
    restore(&nodes.grounds[0], "/data/internal", &older.collect());
    nodes.grounds[0].power_loss(Survival::All);
    for accept_loss in [false, true] {
        nodes.grounds[0].accept_loss = accept_loss;
        let error = nodes.grounds[0].try_start().err().unwrap().to_string();
        assert!(error.contains("nothing was changed"), "{error}");
    }
}

#[test]
fn a_new_directory_is_not_taken_for_the_one_that_had_topics() {
    let mut nodes = Nodes::new(None);
    let topic = nodes.create(1, "t").unwrap();
    nodes.store(1, topic, 0, &["gone"]);
    nodes.cut();
    let run = nodes.grounds[1].run;
    nodes.grounds[1] = Ground::new();
    nodes.grounds[1].run = run;
    nodes.grounds[1].role = TableRole::Follows(OTHER);
    let refused = nodes.restart_led().err().unwrap().to_string();
    assert!(refused.contains("is a new data directory"), "{refused}");
}

#[test]
fn a_node_that_has_lost_its_copy_has_it_from_its_leader_again() {
    let mut nodes = Nodes::new(None);
    let topic = nodes.create(1, "t").unwrap();
    nodes.create(0, "u").unwrap();
    nodes.store(1, topic, 0, &["a", "b"]);
    nodes.cut();
    nodes.all[1].input(Input::Drain);
    assert!(nodes.all[1].drained);
    remove_all(&nodes.grounds[1], "/data/internal");
    nodes.grounds[1].power_loss(Survival::All);
    // It is a loss like any other: the operator is to know of it.
    let refused = nodes.restart_led().err().unwrap().to_string();
    assert!(refused.contains("--accept-loss"), "{refused}");
    nodes.grounds[1].accept_loss = true;
    nodes.cut();
    nodes.restart_led().unwrap();
    assert_eq!(nodes.names(1), ["t"]);
    assert_eq!(nodes.read(1, topic), ["a", "b"]);
    assert_elsewhere(nodes.describe(1, "u").map(|_| ()), 0);
    nodes.grounds[1].accept_loss = false;
    nodes.restart_led().unwrap();
    assert_eq!(nodes.read(1, topic), ["a", "b"]);
}

#[test]
fn a_copy_that_has_lost_records_within_has_them_again() {
    let mut lost = 0;
    for part in 1..8 {
        let mut nodes = Nodes::new(None);
        let topic = nodes.create(1, "t").unwrap();
        nodes.store(1, topic, 0, &["a", "b"]);
        let names: Vec<String> = (0..6).map(|number| format!("u{number}")).collect();
        for name in &names {
            nodes.create(0, name).unwrap();
        }
        let link = nodes.clients[1];
        let moved = nodes.all[1].move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
        assert_eq!(nodes.all[1].error(link, moved), None);
        nodes.cut();
        nodes.all[1].input(Input::Drain);
        assert!(nodes.all[1].drained);
        let mut copy = files(&nodes.grounds[1]);
        copy.retain(|path, _| path.starts_with("/data/internal"));
        let log = copy.values_mut().max_by_key(|bytes| bytes.len()).unwrap();
        let written = log.iter().rposition(|byte| *byte != 0).unwrap();
        let place = written * part / 8;
        log[place] ^= 0x55;
        restore(&nodes.grounds[1], "/data/internal", &copy);
        nodes.grounds[1].power_loss(Survival::All);
        if let Err(refused) = nodes.restart_led() {
            // It was a record of a topic of its own.
            let refused = refused.to_string();
            assert!(refused.contains("--accept-loss"), "{refused}");
            nodes.cut();
            nodes.grounds[1].accept_loss = true;
            nodes.restart_led().unwrap();
            nodes.grounds[1].accept_loss = false;
        }
        lost += usize::from(!nodes.all[1].report.lines.is_empty());
        for name in &names {
            assert_elsewhere(nodes.describe(1, name).map(|_| ()), 0);
        }
        assert_eq!(nodes.names(1), ["t"]);
        let read = ReadCursors {
            consumer: "c".into(),
        };
        let cursors: CursorList = nodes.call(1, Method::ReadCursors, topic, &read).unwrap();
        assert_eq!(cursors.cursors[0].position, at(1, 1));
        // It goes on as a copy, also after another start.
        nodes.create(0, "later").unwrap();
        nodes.restart_led().unwrap();
        assert_elsewhere(nodes.describe(1, "later").map(|_| ()), 0);
        nodes.create(1, "own").unwrap();
        assert_eq!(nodes.read(1, topic), ["a", "b"]);
    }
    assert!(lost > 2, "{lost}");
}

#[test]
fn a_node_that_drains_waits_for_no_leader_that_has_ended() {
    for is_cut_first in [false, true] {
        let mut nodes = Nodes::new(None);
        let create = to_create("t");
        let link = nodes.clients[1];
        let asked = nodes.all[1].request(link, Method::CreateTopic, TopicId(0), &create, &[]);
        // It is proposed, and nobody answers.
        nodes.all[1].to_peers.clear();
        if is_cut_first {
            nodes.input(1, PeerInput::Down(LEADER));
        }
        nodes.all[1].input(Input::Drain);
        assert_eq!(nodes.all[1].drained, is_cut_first);
        nodes.input(1, PeerInput::Down(LEADER));
        assert!(nodes.all[1].drained);
        assert!(nodes.all[1].error(link, asked).is_some());
    }
}
