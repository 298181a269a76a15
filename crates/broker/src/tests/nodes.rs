//! Two nodes of one table in one thread: node 0, which leads, and node 1, which follows. What they
//! say to each other is carried when a test says so.

use super::farm::{done, member};
use super::harness::*;
use super::losses::{files, remove_all, restore};
use super::members::group;
use super::pair::PATIENCE;
use crate::Fault;
use crate::ids::LEADER;
use crate::node::{Input, LinkId, Now};
use crate::request::{Call, ClientInput, CoordinatorRequest};
use crate::{FromLeader, Identity, Nodes as Known, PeerInput, Proof, TableRole, Upstream};
use access::{Limits, Seed, Token};
use log::testing::Survival;
use std::sync::Arc;
use std::time::Duration;
use wire::message::*;
use wire::table::TableMessage;
use wire::*;

pub(super) const OTHER: NodeId = NodeId(1);

pub(super) struct Nodes {
    pub grounds: [Ground; 2],
    /// The one that leads, and the one that follows.
    pub all: [World; 2],
    /// A client of each, the owner.
    pub clients: [LinkId; 2],
    pub is_linked: bool,
}

/// The leader's end of the link of a node that is being opened.
pub(super) struct OfLeader<'a>(pub &'a mut World);

impl Upstream for OfLeader<'_> {
    fn now(&mut self) -> Now {
        self.0.now
    }

    fn send(&mut self, message: TableMessage) {
        self.0
            .input(Input::Peer(PeerInput::Message(OTHER, message)));
    }

    fn receive(&mut self, within: Duration) -> FromLeader {
        if self.0.to_peers.is_empty() {
            // Nobody is faster than the time.
            self.0.pass(within);
            return FromLeader::Nothing;
        }
        let (to, message) = self.0.to_peers.remove(0);
        assert_eq!(to, OTHER);
        FromLeader::Message(message)
    }
}

fn id(index: usize) -> NodeId {
    [LEADER, OTHER][index]
}

impl Nodes {
    pub fn new(fault: Option<Fault>) -> Self {
        let mut grounds = [Ground::new(), Ground::new()];
        for (index, ground) in grounds.iter_mut().enumerate() {
            ground.fault = fault;
            ground.role = [TableRole::Leads, TableRole::Follows(OTHER)][index];
            // No two runs choose the same ids.
            ground.run = 1000 * index as u128;
        }
        let mut all = grounds.each_mut().map(|ground| ground.start());
        let clients = all.each_mut().map(World::connect);
        let mut nodes = Self {
            grounds,
            all,
            clients,
            is_linked: false,
        };
        nodes.link();
        nodes
    }

    pub fn input(&mut self, index: usize, input: PeerInput) {
        self.all[index].input(Input::Peer(input));
    }

    pub fn link(&mut self) {
        self.cut();
        self.is_linked = true;
        self.input(0, PeerInput::Up(OTHER));
        self.input(1, PeerInput::Up(LEADER));
        self.carry();
    }

    pub fn cut(&mut self) {
        self.is_linked = false;
        self.input(0, PeerInput::Down(OTHER));
        self.input(1, PeerInput::Down(LEADER));
    }

    /// A node starts again, and takes over first what the one that leads has decided.
    pub fn restart_led(&mut self) -> Result<(), crate::NodeError> {
        self.cut();
        self.grounds[1].power_loss(Survival::Nothing);
        self.input(0, PeerInput::Up(OTHER));
        let mut upstream = OfLeader(&mut self.all[0]);
        self.all[1] = self.grounds[1].try_start_led(Some(&mut upstream))?;
        self.is_linked = true;
        self.clients[1] = self.all[1].connect();
        self.carry();
        Ok(())
    }

    /// Carries what the nodes have to say, until they have nothing.
    pub fn carry(&mut self) {
        loop {
            let said: [Vec<(NodeId, TableMessage)>; 2] = self
                .all
                .each_mut()
                .map(|world| std::mem::take(&mut world.to_peers));
            if said.iter().all(Vec::is_empty) || !self.is_linked {
                return;
            }
            for (from, said) in said.into_iter().enumerate() {
                for (to, message) in said {
                    assert_eq!(to, id(1 - from));
                    let bytes = message.to_bytes();
                    let message = TableMessage::read(&bytes).unwrap();
                    self.input(1 - from, PeerInput::Message(id(from), message));
                }
            }
        }
    }

    /// A node loses its power, and starts again.
    pub fn restart(&mut self, index: usize) {
        self.cut();
        self.grounds[index].power_loss(Survival::Nothing);
        self.all[index] = self.grounds[index].start();
        self.clients[index] = self.all[index].connect();
    }

    pub fn call<T: Codec>(
        &mut self,
        index: usize,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
    ) -> Result<T, ErrorReply> {
        let link = self.clients[index];
        let asked = self.all[index].request(link, method, topic, body, &[]);
        self.carry();
        self.all[index].answered(link, asked)
    }

    pub fn create(&mut self, index: usize, name: &str) -> Result<TopicId, ErrorReply> {
        self.create_of(index, name, &["disk"])
    }

    pub fn create_of(
        &mut self,
        index: usize,
        name: &str,
        kinds: &[&str],
    ) -> Result<TopicId, ErrorReply> {
        let create = CreateTopic {
            name: name.into(),
            definition: "{}".into(),
            partitions: kinds.iter().map(|kind| storage(kind)).collect(),
        };
        let made: TopicDescription = self.call(index, Method::CreateTopic, TopicId(0), &create)?;
        Ok(made.topic)
    }

    pub fn describe(&mut self, index: usize, name: &str) -> Result<TopicDescription, ErrorReply> {
        let name = TopicName { name: name.into() };
        self.call(index, Method::DescribeTopic, TopicId(0), &name)
    }

    pub fn store(&mut self, index: usize, topic: TopicId, from: u64, events: &[&str]) {
        let link = self.clients[index];
        self.all[index].stored(link, topic, (5, from), events);
    }

    /// What a new subscription of an independent consumer gets.
    pub fn read(&mut self, index: usize, topic: TopicId) -> Vec<String> {
        let link = self.clients[index];
        let id = self.all[index].subscribe(link, topic, "c", Start::Beginning);
        self.all[index].texts(link, id)
    }

    pub fn names(&mut self, index: usize) -> Vec<String> {
        let list: TopicList = self
            .call(index, Method::ListTopics, TopicId(0), &Empty)
            .unwrap();
        list.topics.into_iter().map(|topic| topic.name).collect()
    }
}

/// What is asked for to have a topic of one partition on disk.
pub(super) fn to_create(name: &str) -> CreateTopic {
    CreateTopic {
        name: name.into(),
        definition: "{}".into(),
        partitions: vec![storage("disk")],
    }
}

pub(super) fn assert_elsewhere<T: std::fmt::Debug>(result: Result<T, ErrorReply>, home: usize) {
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotLeader, "{error}");
    assert_eq!(error.leader_hint, format!("#{home}"));
    assert!(error.retryable);
}

#[test]
fn a_topic_is_where_it_was_made_and_every_node_says_so() {
    let mut nodes = Nodes::new(None);
    for home in [0, 1] {
        let name = format!("of {home}");
        let topic = nodes.create(home, &name).unwrap();
        nodes.store(home, topic, 0, &["a", "b"]);
        assert_eq!(nodes.read(home, topic), ["a", "b"]);
        assert_eq!(nodes.names(home), std::slice::from_ref(&name));
        assert!(!nodes.names(1 - home).contains(&name));
        let away = 1 - home;
        assert_elsewhere(nodes.describe(away, &name), home);
        let topic_name = TopicName { name: name.clone() };
        let gaps = nodes.call::<GapList>(away, Method::ListGaps, TopicId(0), &topic_name);
        assert_elsewhere(gaps, home);
        let deleted = nodes.call::<Empty>(away, Method::DeleteTopic, TopicId(0), &topic_name);
        assert_elsewhere(deleted.map(|_| ()), home);
        let open = OpenProducer {
            name: "p".into(),
            resume: ProducerId(0),
            resume_epoch: ProducerEpoch(0),
        };
        let opened = nodes.call::<ProducerOpened>(away, Method::OpenProducer, topic, &open);
        assert_elsewhere(opened, home);
        let read = ReadCursors {
            consumer: "c".into(),
        };
        let cursors = nodes.call::<CursorList>(away, Method::ReadCursors, topic, &read);
        assert_elsewhere(cursors, home);
        let joined = nodes.call::<Joined>(away, Method::Join, topic, &group(1));
        assert_elsewhere(joined, home);
        let more = AddPartitions {
            partitions: vec![storage("disk")],
        };
        let added = nodes.call::<TopicDescription>(away, Method::AddPartitions, topic, &more);
        assert_elsewhere(added, home);
        let link = nodes.clients[away];
        let produced = nodes.all[away].produce(link, topic, &batch(topic, 5, 0, 2, &["c"]));
        assert_elsewhere(nodes.all[away].answered::<Produced>(link, produced), home);
        let subscribed = nodes.all[away].subscribe(link, topic, "c", Start::Beginning);
        assert_elsewhere(
            nodes.all[away]
                .answered::<Empty>(link, subscribed)
                .map(|_| ()),
            home,
        );
        // At home more of it is.
        let added = nodes.call::<TopicDescription>(home, Method::AddPartitions, topic, &more);
        assert_eq!(added.unwrap().partitions.len(), 2);
    }
    // What nobody has is unknown as ever.
    for index in [0, 1] {
        let error = nodes.describe(index, "none").unwrap_err();
        assert_eq!(error.code, ErrorCode::UnknownTopic);
    }
}

/// A node dies when it has made a partition, and before that was decided.
#[test]
fn a_partition_that_was_not_decided_is_made_again() {
    let mut nodes = Nodes::new(None);
    let topic = nodes.create(1, "t").unwrap();
    let more = AddPartitions {
        partitions: vec![storage("disk")],
    };
    nodes.cut();
    let link = nodes.clients[1];
    nodes.all[1].request(link, Method::AddPartitions, topic, &more, &[]);
    nodes.all[1].to_peers.clear();
    assert_eq!(nodes.grounds[1].directories().len(), 2);
    nodes.restart_led().unwrap();
    let added = nodes.call::<TopicDescription>(1, Method::AddPartitions, topic, &more);
    assert_eq!(added.unwrap().partitions.len(), 2);
}

/// Two nodes are asked for one name at once. Says who has it then.
fn made_twice(fault: Option<Fault>) -> Vec<usize> {
    let mut nodes = Nodes::new(fault);
    let create = to_create("t");
    let links = nodes.clients;
    // The one that leads is at work on its storage when the other one's proposal comes.
    nodes.all[0].hold_jobs = true;
    let asked: Vec<u64> = (0..2)
        .map(|index| {
            nodes.all[index].request(links[index], Method::CreateTopic, TopicId(0), &create, &[])
        })
        .collect();
    nodes.carry();
    nodes.all[0].release_jobs();
    nodes.carry();
    let answers: Vec<_> = (0..2)
        .map(|index| nodes.all[index].answered::<TopicDescription>(links[index], asked[index]))
        .collect();
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(error.code, ErrorCode::TopicExists, "{error}");
    }
    let made = (0..2).filter(|index| answers[*index].is_ok());
    let made: Vec<usize> = made.collect();
    if let [home] = made[..] {
        assert_elsewhere(nodes.describe(1 - home, "t"), home);
        // The loser has nothing left of it.
        assert_eq!(nodes.grounds[1 - home].directories(), Vec::<String>::new());
    }
    made
}

#[test]
fn two_nodes_make_no_two_topics_of_a_name() {
    assert_eq!(made_twice(None), [1]);
    assert_eq!(made_twice(Some(Fault::NameTwice)), [0, 1]);
    // Now it is the follower that comes too late.
    let mut nodes = Nodes::new(None);
    let create = to_create("t");
    let link = nodes.clients[1];
    let asked = nodes.all[1].request(link, Method::CreateTopic, TopicId(0), &create, &[]);
    let link_0 = nodes.clients[0];
    nodes.all[0].create(link_0, "t", "{}", &["disk"]).unwrap();
    nodes.carry();
    let error = nodes.all[1]
        .answered::<TopicDescription>(link, asked)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::TopicExists, "{error}");
    assert_eq!(nodes.grounds[1].directories(), Vec::<String>::new());
    // What it does behind that is its own again.
    nodes.create(1, "u").unwrap();
    assert_eq!(nodes.names(1), ["u"]);
}

#[test]
fn groups_queues_and_named_producers_are_at_home() {
    let mut nodes = Nodes::new(None);
    nodes.create(1, "t.dead").unwrap();
    let topic = nodes.create(1, "t").unwrap();
    nodes.store(1, topic, 0, &["0", "1", "2"]);
    let joined: Joined = nodes.call(1, Method::Join, topic, &group(7)).unwrap();
    drop(joined);
    let link = nodes.clients[1];
    let asked = nodes.all[1].request(link, Method::Join, topic, &member(8), &[]);
    nodes.carry();
    nodes.all[1].answered::<Joined>(link, asked).unwrap();
    assert_eq!(nodes.all[1].numbers(link, asked), [0, 1, 2]);
    let given = nodes.all[1].given(link, asked);
    // A settlement asks nobody else.
    nodes.cut();
    let refused = nodes.all[1].settled(link, topic, (8, 1), vec![done(given[0].lease)]);
    assert!(refused.is_empty());
    nodes.link();
    let open = OpenProducer {
        name: "p".into(),
        resume: ProducerId(0),
        resume_epoch: ProducerEpoch(0),
    };
    let first: ProducerOpened = nodes.call(1, Method::OpenProducer, topic, &open).unwrap();
    // Without its leader, the node has all of it after a restart.
    nodes.restart(1);
    let link = nodes.clients[1];
    assert_eq!(nodes.all[1].queue(link, topic).position.offset, Offset(1));
    assert_eq!(nodes.read(1, topic), ["0", "1", "2"]);
    nodes.link();
    let second: ProducerOpened = nodes.call(1, Method::OpenProducer, topic, &open).unwrap();
    assert_eq!(second.producer, first.producer);
    assert!(second.epoch > first.epoch);
    // The one that leads has all of that in its table, and serves none of it.
    nodes.restart(0);
    assert_elsewhere(nodes.describe(0, "t"), 1);
    nodes.link();
    assert_eq!(nodes.names(0), Vec::<String>::new());
    let topic_name = TopicName { name: "t".into() };
    nodes
        .call::<Empty>(1, Method::DeleteTopic, TopicId(0), &topic_name)
        .unwrap();
    for index in [0, 1] {
        let error = nodes.describe(index, "t").unwrap_err();
        assert_eq!(error.code, ErrorCode::UnknownTopic, "{error}");
    }
}

#[test]
fn without_its_leader_a_node_serves_what_it_has() {
    let mut nodes = Nodes::new(None);
    let topic = nodes.create(1, "t").unwrap();
    let memory = nodes.create_of(1, "m", &["memory"]).unwrap();
    nodes.store(1, topic, 0, &["a"]);
    nodes.store(1, memory, 0, &["gone"]);
    nodes.restart(1);
    nodes.store(1, topic, 1, &["b"]);
    assert_eq!(nodes.read(1, topic), ["a", "b"]);
    // A partition in memory has another life, which its leader does not know of yet.
    nodes.store(1, memory, 0, &["new"]);
    assert_eq!(nodes.read(1, memory), ["new"]);
    let described = nodes.describe(1, "m").unwrap();
    assert_eq!(described.partitions[0].incarnation, Incarnation(2));
    // A cursor asks nobody.
    let link = nodes.clients[1];
    let moved = nodes.all[1].move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert_eq!(nodes.all[1].answered::<Empty>(link, moved).err(), None);
    // A new topic asks its leader, and is refused after a while.
    let create = to_create("u");
    let before = nodes.grounds[1].directories();
    let asked = nodes.all[1].request(link, Method::CreateTopic, TopicId(0), &create, &[]);
    assert!(nodes.all[1].answer(link, asked).is_none());
    nodes.all[1].pass(PATIENCE);
    let error = nodes.all[1].error(link, asked).unwrap();
    assert_eq!((error.code, error.retryable), (ErrorCode::NotLeader, true));
    assert_eq!(nodes.grounds[1].directories(), before);
    // When it is there again it hears of the new life.
    nodes.all[1].pass(PATIENCE);
    nodes.link();
    nodes.all[1].pass(PATIENCE);
    nodes.carry();
    nodes.create(1, "u").unwrap();
    nodes.restart(1);
    let described = nodes.describe(1, "m").unwrap();
    assert_eq!(described.partitions[0].incarnation, Incarnation(3));
    assert_eq!(described.partitions[0].ended.len(), 1);
}

/// Says what a client hears that may know of topics `mine.*` alone, of one of another name.
fn heard_of_a_secret(fault: Option<Fault>) -> ErrorCode {
    let mut nodes = Nodes::new(fault);
    let owner = Hello {
        namespace: "p".into(),
        ..hello()
    };
    let link = nodes.all[1].connect_as(net::Peer::default(), owner);
    let mut ids = Vec::new();
    for name in ["mine.a", "secret"] {
        let asked =
            nodes.all[1].request(link, Method::CreateTopic, TopicId(0), &to_create(name), &[]);
        nodes.carry();
        let made: TopicDescription = nodes.all[1].answered(link, asked).unwrap();
        ids.push(made.topic);
    }
    let limits = Limits {
        project: Some("p".to_owned()),
        topics: Some(vec!["mine.*".parse().unwrap()]),
        ..Limits::default()
    };
    let token = Token::issue(&issuer(), &limits, Seed([9; 32])).unwrap();
    nodes.all[0].token = Some(token);
    let stranger = nodes.all[0].connect();
    let mut ask = |topic: TopicId| {
        let read = ReadCursors {
            consumer: "c".into(),
        };
        let asked: Result<CursorList, _> =
            nodes.all[0].call(stranger, Method::ReadCursors, topic, &read);
        asked.unwrap_err()
    };
    assert_elsewhere(Err::<(), _>(ask(ids[0])), 1);
    let secret = ask(ids[1]);
    // One of another namespace is as unknown.
    let other = nodes.create(1, "of nobody").unwrap();
    let read = ReadCursors {
        consumer: "c".into(),
    };
    let asked: Result<CursorList, _> =
        nodes.all[0].call(stranger, Method::ReadCursors, other, &read);
    assert_eq!(
        asked.unwrap_err().code == ErrorCode::UnknownTopic,
        fault.is_none()
    );
    secret.code
}

#[test]
fn who_may_not_know_of_a_topic_does_not_hear_where_it_is() {
    assert_eq!(heard_of_a_secret(None), ErrorCode::UnknownTopic);
    assert_eq!(
        heard_of_a_secret(Some(Fault::TopicBetrayed)),
        ErrorCode::NotLeader
    );
}

/// Whether a node says after a restart that a topic is another one's.
fn is_elsewhere_after_a_restart(fault: Option<Fault>) -> bool {
    let mut nodes = Nodes::new(fault);
    nodes.create(1, "t").unwrap();
    nodes.restart(0);
    nodes
        .describe(0, "t")
        .is_err_and(|error| error.code == ErrorCode::NotLeader)
}

#[test]
fn a_start_opens_what_is_placed_on_its_node() {
    assert!(is_elsewhere_after_a_restart(None));
    assert!(!is_elsewhere_after_a_restart(Some(Fault::ServesAny)));
}

#[test]
fn a_directory_that_follows_does_not_lead() {
    let mut nodes = Nodes::new(None);
    nodes.create(1, "t").unwrap();
    nodes.cut();
    for role in [TableRole::Alone, TableRole::Leads] {
        nodes.grounds[1].role = role;
        let error = nodes.grounds[1].try_start().err().unwrap().to_string();
        assert!(error.contains("copy of another node's table"), "{error}");
    }
    nodes.grounds[1].role = TableRole::Follows(OTHER);
    nodes.restart(1);
    assert_eq!(nodes.names(1), ["t"]);
}

#[test]
fn a_directory_of_one_node_is_not_that_of_another() {
    let mut nodes = Nodes::new(None);
    nodes.create(1, "t").unwrap();
    nodes.cut();
    nodes.grounds[1].power_loss(Survival::All);
    nodes.grounds[1].role = TableRole::Follows(NodeId(2));
    let error = nodes.grounds[1].try_start().err().unwrap().to_string();
    assert!(error.contains("that of node 1"), "{error}");
    assert!(error.contains("of node 2"), "{error}");
    nodes.grounds[1].role = TableRole::Follows(OTHER);
    nodes.restart(1);
    assert_eq!(nodes.names(1), ["t"]);
}

/// A node that follows starts again and again while its leader is away.
#[test]
fn no_two_lives_have_one_number_whether_the_leader_hears_of_them_or_not() {
    let mut nodes = Nodes::new(None);
    let memory = nodes.create_of(1, "m", &["memory"]).unwrap();
    nodes.store(1, memory, 0, &["gone"]);
    let mut epochs = Vec::new();
    for life in 2..=4 {
        nodes.restart(1);
        let partition = nodes.describe(1, "m").unwrap().partitions.remove(0);
        assert_eq!(partition.incarnation, Incarnation(life));
        epochs.push(partition.leader_epoch);
        nodes.store(1, memory, 0, &["also gone"]);
    }
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    // A position in a life of which the leader never heard goes on at what there is, and says so.
    nodes.link();
    nodes.all[1].pass(PATIENCE);
    nodes.carry();
    nodes.restart(0);
    nodes.link();
    nodes.restart(1);
    let partition = nodes.describe(1, "m").unwrap().partitions.remove(0);
    assert_eq!(partition.incarnation, Incarnation(5));
}

fn table_id(world: &World) -> TableId {
    world.node.coordinator.commands.table().id()
}

#[test]
fn a_leader_that_has_lost_its_ledger_leads_the_same_table() {
    let mut nodes = Nodes::new(None);
    nodes.create(0, "t").unwrap();
    nodes.create(1, "u").unwrap();
    let id = table_id(&nodes.all[0]);
    nodes.cut();
    let link = nodes.clients[0];
    let topic = nodes.describe(0, "t").unwrap().topic;
    nodes.store(0, topic, 0, &["a"]);
    let moved = nodes.all[0].move_cursor(link, topic, CursorMove::Acknowledge, at(1, 1));
    assert_eq!(nodes.all[0].error(link, moved), None);
    nodes.all[0].input(Input::Drain);
    assert!(nodes.all[0].drained);
    remove_all(&nodes.grounds[0], "/data/ledgers/0");
    nodes.grounds[0].power_loss(Survival::All);
    nodes.grounds[0].accept_loss = true;
    nodes.restart(0);
    assert!(!nodes.all[0].report.lines.is_empty(), "it has lost it");
    assert_eq!(table_id(&nodes.all[0]), id);
    nodes.link();
    nodes.create(1, "v").unwrap();
}

/// The start that finds that the table has lost records may end at any point of it.
#[test]
fn a_table_that_has_lost_records_has_another_id_wherever_its_start_ended() {
    let mut nodes = Nodes::new(None);
    let older = files(&nodes.grounds[0]);
    let older = older.into_iter();
    let older = older
        .filter(|(path, _)| path.starts_with("/data/internal"))
        .collect();
    nodes.create(0, "t").unwrap();
    let id = table_id(&nodes.all[0]);
    nodes.all[0].input(Input::Drain);
    assert!(nodes.all[0].drained);
    restore(&nodes.grounds[0], "/data/internal", &older);
    nodes.grounds[0].power_loss(Survival::All);
    nodes.grounds[0].accept_loss = true;
    let damaged = nodes.grounds[0].disk.fork();
    let mut stops = 0;
    for step in 0.. {
        let mut ground = Ground::on(std::sync::Arc::new(damaged.fork()));
        ground.role = TableRole::Leads;
        ground.accept_loss = true;
        ground.run = nodes.grounds[0].run + step as u128;
        let first = ground.disk.operation_count();
        ground
            .disk
            .fail_at(first + step, log::testing::Fault::Stop(0));
        let is_whole = ground.try_start().is_ok() && !ground.disk.is_stopped();
        ground.power_loss(Survival::Nothing);
        let world = ground.start();
        assert_ne!(table_id(&world), id, "the start ended at operation {step}");
        assert_ne!(table_id(&world), TableId(0));
        if is_whole {
            break;
        }
        stops += 1;
    }
    assert!(stops > 10, "{stops}");
}

/// A name whose topic is to be on this node, of two.
pub(super) fn name_of(home: usize) -> String {
    let known = Known::new(2);
    let mut names = (0..).map(|number| format!("run{number}"));
    names
        .find(|name| known.home_of("", name) == id(home))
        .unwrap()
}

/// Two nodes that know of each other.
pub(super) fn acquainted(fault: Option<Fault>) -> Nodes {
    let mut nodes = Nodes::new(fault);
    let known = Arc::new(Known::new(2));
    known.listens(OTHER, DIRECTORY, vec!["tcp://h:9001".to_owned()]);
    for index in [0, 1] {
        nodes.grounds[index].nodes = known.clone();
        nodes.restart(index);
    }
    nodes.link();
    nodes
}

#[test]
fn a_new_topic_is_made_where_its_name_says_or_beside_another() {
    let mut nodes = acquainted(None);
    let names = [name_of(0), name_of(1)];
    assert_elsewhere(nodes.create(1, &names[0]), 0);
    // One that has said where it is, is named so, for a client of its transport.
    let create = to_create(&names[1]);
    for (peer, address) in [("tcp://10.0.0.7:5", "tcp://h:9001"), ("unix://", "")] {
        let peer = net::Peer {
            address: peer.into(),
            ..net::Peer::default()
        };
        let link = nodes.all[0].connect_as(peer, hello());
        let asked = nodes.all[0].request(link, Method::CreateTopic, TopicId(0), &create, &[]);
        let error = nodes.all[0].error(link, asked).unwrap();
        assert_eq!(error.code, ErrorCode::NotLeader);
        assert_eq!(error.leader_hint, format!("{address}#{DIRECTORY}"));
    }
    let topics: Vec<TopicId> = [0, 1]
        .into_iter()
        .map(|home| nodes.create(home, &names[home]).unwrap())
        .collect();
    // Whatever its name says, a topic is beside the one that is named.
    for (home, topic) in topics.iter().enumerate() {
        let beside = CreateTopic {
            name: format!("{}.dead", names[1 - home]),
            ..create.clone()
        };
        let away = nodes.call::<TopicDescription>(1 - home, Method::CreateTopic, *topic, &beside);
        let error = away.unwrap_err();
        assert_eq!(error.code, ErrorCode::NotLeader);
        let made: TopicDescription = nodes
            .call(home, Method::CreateTopic, *topic, &beside)
            .unwrap();
        let found = nodes.describe(home, &made.name).unwrap();
        assert_eq!(found.topic, made.topic);
    }
    let create = CreateTopic {
        name: "u".into(),
        ..create
    };
    let gone = nodes.call::<TopicDescription>(0, Method::CreateTopic, TopicId(77), &create);
    assert_eq!(gone.unwrap_err().code, ErrorCode::UnknownTopic);
}

#[test]
fn a_client_of_another_protocol_has_its_topics_where_it_is() {
    let mut nodes = acquainted(None);
    let link = LinkId(1 << 40);
    nodes.all[0].input(Input::ClientUp {
        link,
        peer: net::Peer::default(),
        identity: Identity {
            proof: Proof::Token,
            access: access::Identity::owner(Default::default(), Default::default()),
            namespace: String::new(),
            client_name: "another client".into(),
            session: SessionId(0),
        },
    });
    let create = to_create(&name_of(1));
    let request = CoordinatorRequest::CreateTopic(TopicId(0), create);
    nodes.all[0].input(Input::Client {
        link,
        input: ClientInput::Call(Box::new(Call {
            id: 1,
            request: request.into(),
            patience: None,
            is_quiet: false,
        })),
    });
    nodes.carry();
    assert!(nodes.names(0).contains(&name_of(1)));
    assert_elsewhere(nodes.describe(1, &name_of(1)).map(|_| ()), 0);
}

#[test]
fn a_list_names_a_topic_of_each_other_node() {
    let mut nodes = acquainted(None);
    let names = [name_of(0), name_of(1)];
    let topics: Vec<TopicId> = [0, 1]
        .into_iter()
        .map(|home| nodes.create(home, &names[home]).unwrap())
        .collect();
    for index in [0, 1] {
        let list: TopicList = nodes
            .call(index, Method::ListTopics, TopicId(0), &Empty)
            .unwrap();
        assert_eq!(list.topics.len(), 1);
        assert_eq!(list.topics[0].name, names[index]);
        assert_eq!(list.others, [topics[1 - index]]);
        // Asked about a topic of the other one, it says where that is.
        let other = topics[1 - index];
        let list = nodes.call::<TopicList>(index, Method::ListTopics, other, &Empty);
        assert_eq!(list.unwrap_err().code, ErrorCode::NotLeader);
        let list: TopicList = nodes
            .call(1 - index, Method::ListTopics, other, &Empty)
            .unwrap();
        assert_eq!(list.topics[0].topic, other);
    }
}

#[test]
fn the_status_of_another_node_is_asked_for_there() {
    let mut nodes = acquainted(None);
    let own: StatusReply = nodes.call(0, Method::Status, TopicId(0), &Empty).unwrap();
    let status: serde_json::Value = serde_json::from_str(&own.json).unwrap();
    assert_eq!(status["node"], 0);
    assert_eq!(status["nodes"][0]["node"], 1);
    assert_eq!(status["nodes"][0]["endpoints"][0], "tcp://h:9001");
    // Both grounds have one id: the other one is known by the one that it was given.
    let error = nodes.call::<StatusReply>(0, Method::Status, TopicId(5), &Empty);
    assert_eq!(error.unwrap_err().code, ErrorCode::UnknownTopic);
    let other = Arc::new(Known::new(2));
    other.listens(OTHER, DirectoryId(5), Vec::new());
    nodes.grounds[0].nodes = other;
    nodes.restart(0);
    let error = nodes.call::<StatusReply>(0, Method::Status, TopicId(5), &Empty);
    let error = error.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotLeader);
    assert_eq!(error.leader_hint, format!("#{}", DirectoryId(5)));
}
