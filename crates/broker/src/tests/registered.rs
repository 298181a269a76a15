//! Nodes of one table that have registered, beside the one that leads and has no topics: each a server on a data directory
//! of its own, in one thread.

use super::harness::*;
use super::nodes::to_create;
use crate::coordinator::commands::Decided;
use crate::faults::Fault;
use crate::ids::LEADER;
use crate::node::{Input, LinkId, Now};
use crate::request::{Call, ClientInput, CoordinatorRequest};
use crate::{FromLeader, Identity, Nodes as Known, PeerInput, Proof, TableRole, Upstream};
use log::testing::Survival;
use std::sync::Arc;
use std::time::Duration;
use wire::message::*;
use wire::record::*;
use wire::table::{Register, Registered, TableMessage};
use wire::*;

/// One of them; the first is the one that leads.
pub(super) struct Site {
    pub id: NodeId,
    pub ground: Ground,
    pub world: World,
    /// The owner's.
    client: LinkId,
    /// Where it listens from its next registration on.
    port: u32,
    /// Whether it runs, with a link to the leader.
    is_up: bool,
}

pub(super) struct Cluster {
    pub sites: Vec<Site>,
    links: u64,
    fault: Option<Fault>,
}

/// The leader's end of the link of a node that is being opened.
struct OfLeader<'a>(&'a mut World, NodeId);

impl Upstream for OfLeader<'_> {
    fn now(&mut self) -> Now {
        self.0.now
    }

    fn send(&mut self, message: TableMessage) {
        let input = PeerInput::Message(self.1, message);
        self.0.input(Input::Peer(input));
    }

    fn receive(&mut self, within: Duration) -> FromLeader {
        let mut messages = self.0.to_peers.iter();
        let Some(place) = messages.position(|(to, _)| *to == self.1) else {
            self.0.pass(within);
            return FromLeader::Nothing;
        };
        FromLeader::Message(self.0.to_peers.remove(place).1)
    }
}

fn directory(site: usize) -> DirectoryId {
    DirectoryId(0xd0 + site as u128)
}

impl Cluster {
    /// A leader, and as many nodes that have registered one behind the other.
    pub(super) fn new(count: usize) -> Self {
        Self::with_fault(count, None)
    }

    pub(super) fn with_fault(count: usize, fault: Option<Fault>) -> Self {
        let mut cluster = Self {
            sites: Vec::new(),
            links: 0,
            fault,
        };
        let mut ground = cluster.next_ground();
        ground.role = TableRole::Leads;
        let world = ground.start();
        cluster.push(ground, world);
        for _ in 0..count {
            cluster.add();
        }
        cluster
    }

    /// A new data directory, for the next site.
    fn next_ground(&self) -> Ground {
        let site = self.sites.len();
        let mut ground = Ground::new();
        ground.fault = self.fault;
        // No two runs choose the same ids.
        ground.run = 1000 * site as u128;
        ground.directory_id = directory(site);
        ground.nodes = Arc::new(Known::of_table());
        ground
    }

    fn push(&mut self, ground: Ground, mut world: World) {
        let client = world.connect();
        self.sites.push(Site {
            id: LEADER,
            ground,
            world,
            client,
            port: 1,
            is_up: false,
        });
    }

    /// A data directory whose node has not started: what runs there meanwhile is alone, and elsewhere.
    fn add_unstarted(&mut self) -> usize {
        let ground = self.next_ground();
        self.push(ground, Ground::new().start());
        self.sites.len() - 1
    }

    /// One more node, on a new data directory.
    fn add(&mut self) -> usize {
        let site = self.add_unstarted();
        self.start(site).unwrap();
        site
    }

    fn register(&mut self, site: usize) -> Result<Registered, ErrorReply> {
        self.links += 1;
        let link = LinkId(self.links);
        let port = self.sites[site].port;
        let host = ("host".to_owned(), format!("h{site}"));
        let register = TableMessage::Register(Register {
            directory: directory(site),
            endpoints: Endpoints(vec![format!("tcp://h{site}:{port}")]),
            labels: Labels([host].into_iter().collect()),
            shard: 0,
        });
        let Ok(TableMessage::Register(register)) = TableMessage::read(&register.to_bytes()) else {
            panic!("it is one");
        };
        let leader = &mut self.sites[0].world;
        leader.input(Input::Peer(PeerInput::Register(link, register)));
        let (to, answer) = leader.to_registering.pop().unwrap();
        assert_eq!(to, link);
        match answer {
            TableMessage::Registered(registered) => Ok(registered),
            TableMessage::Refused(refused) => {
                assert_eq!(refused.number, wire::table::REGISTRATION);
                Err(refused.error)
            }
            other => panic!("{other:?}"),
        }
    }

    /// A node registers, takes over what the leader has decided, and serves.
    pub(super) fn start(&mut self, site: usize) -> Result<Registered, crate::NodeError> {
        let registered = self.register(site).unwrap();
        self.start_as(site, registered.node)?;
        Ok(registered)
    }

    fn start_as(&mut self, site: usize, id: NodeId) -> Result<(), crate::NodeError> {
        let (leader, others) = self.sites.split_first_mut().unwrap();
        let own = &mut others[site - 1];
        leader.world.input(Input::Peer(PeerInput::Up(id)));
        own.ground.role = TableRole::Follows(id);
        let mut upstream = OfLeader(&mut leader.world, id);
        match own.ground.try_start_led(Some(&mut upstream)) {
            Ok(world) => own.world = world,
            Err(error) => {
                leader.world.input(Input::Peer(PeerInput::Down(id)));
                leader.world.to_peers.retain(|(to, _)| *to != id);
                return Err(error);
            }
        }
        (own.id, own.is_up) = (id, true);
        own.client = own.world.connect();
        self.carry();
        Ok(())
    }

    /// A node, or the leader, loses its power. The links of a node are gone.
    pub(super) fn lose(&mut self, site: usize) {
        let (leader, others) = self.sites.split_first_mut().unwrap();
        let is_cut = |it: &&mut Site| it.is_up && (site == 0 || it.id.0 as usize == site);
        for other in others.iter_mut().filter(is_cut) {
            let down = |node| Input::Peer(PeerInput::Down(node));
            leader.world.input(down(other.id));
            other.world.input(down(LEADER));
            other.is_up = site == 0;
        }
        self.sites[site].ground.power_loss(Survival::Nothing);
    }

    /// The leader loses its power, starts again, and the others have new links to it.
    fn restart_leader(&mut self) {
        self.lose(0);
        let (leader, others) = self.sites.split_first_mut().unwrap();
        leader.world = leader.ground.start();
        leader.client = leader.world.connect();
        for other in others.iter_mut().filter(|it| it.is_up) {
            let up = |node| Input::Peer(PeerInput::Up(node));
            leader.world.input(up(other.id));
            other.world.input(up(LEADER));
        }
        self.carry();
    }

    /// Carries what the nodes have to say, until they have nothing.
    pub(super) fn carry(&mut self) {
        assert!(self.carry_but(None).is_empty());
    }

    /// The same, but for what is for this site, which comes later: returned.
    pub(super) fn carry_but(&mut self, late: Option<usize>) -> Vec<Input> {
        let late = late.map(|site| self.sites[site].id);
        let mut left = Vec::new();
        loop {
            let said = self.sites.iter_mut().map(|it| {
                let said = std::mem::take(&mut it.world.to_peers);
                (it.id, said)
            });
            let said: Vec<_> = said.collect();
            if said.iter().all(|(_, said)| said.is_empty()) {
                return left;
            }
            for (from, said) in said {
                for (to, message) in said {
                    let message = TableMessage::read(&message.to_bytes()).unwrap();
                    let mut sites = self.sites.iter_mut();
                    let is_there = |it: &&mut Site| it.id == to && (it.is_up || to == LEADER);
                    if let Some(site) = sites.find(is_there) {
                        let input = Input::Peer(PeerInput::Message(from, message));
                        match late == Some(to) {
                            true => left.push(input),
                            false => site.world.input(input),
                        }
                    }
                }
            }
        }
    }

    pub(super) fn create(
        &mut self,
        site: usize,
        name: &str,
    ) -> Result<TopicDescription, ErrorReply> {
        self.call(site, Method::CreateTopic, TopicId(0), &to_create(name))
    }

    pub(super) fn call<T: Codec>(
        &mut self,
        site: usize,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
    ) -> Result<T, ErrorReply> {
        // By its address, so that hints are of its transport.
        let link = self.client(site);
        let asked = self.sites[site]
            .world
            .request(link, method, topic, body, &[]);
        self.carry();
        self.sites[site].world.answered(link, asked)
    }

    pub(super) fn client(&mut self, site: usize) -> LinkId {
        let peer = net::Peer {
            address: "tcp://10.0.0.7:5".into(),
            ..net::Peer::default()
        };
        self.sites[site].world.connect_as(peer, hello())
    }

    pub(super) fn describe(
        &mut self,
        site: usize,
        name: &str,
    ) -> Result<TopicDescription, ErrorReply> {
        let name = TopicName { name: name.into() };
        self.call(site, Method::DescribeTopic, TopicId(0), &name)
    }

    /// Where a node says that a new topic of this name is to be.
    fn home_of(&self, site: usize, name: &str) -> NodeId {
        let nodes = &self.sites[site].world.node.ctx.options.nodes;
        nodes.home_of("", name)
    }

    /// A name that is to be on this node.
    pub(super) fn name_on(&self, site: usize) -> String {
        let mut names = (0..200).map(|number| format!("on {site} {number}"));
        let home = self.sites[site].id;
        names.find(|name| self.home_of(0, name) == home).unwrap()
    }

    /// Changes the state of a node, as somebody asks for at this site.
    fn set_state(&mut self, at: usize, site: usize, state: NodeState) {
        let node = &mut self.sites[at].world.node;
        let known = node.coordinator.commands.table().nodes();
        let known = known.get(NodeId(site as u32)).unwrap().clone();
        let record = Record::Node(NodeRecord { state, ..known });
        let commands = &mut node.coordinator.commands;
        commands.submit(vec![record], Decided::SharedChanged, &mut node.ctx);
        self.sites[at].world.input(Input::Timer);
        self.carry();
        self.sites[at].world.input(Input::Timer);
        for one in &self.sites {
            let table = one.world.node.coordinator.commands.table();
            let node = table.nodes().get(NodeId(site as u32)).unwrap();
            assert_eq!(node.state, state);
        }
    }

    #[track_caller]
    pub(super) fn assert_at<T: std::fmt::Debug>(&self, result: Result<T, ErrorReply>, site: usize) {
        let error = result.map(|_| ()).unwrap_err();
        assert_eq!(
            (error.code, error.retryable),
            (ErrorCode::NotLeader, true),
            "{error}"
        );
        let port = self.sites[site].port;
        let hint = format!("tcp://h{site}:{port}#{}", directory(site));
        assert_eq!(error.leader_hint, hint);
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..60).map(|number| format!("run {number}"))
}

#[test]
fn three_nodes_register_and_topics_are_spread_over_them() {
    let mut cluster = Cluster::new(3);
    let ids: Vec<u32> = cluster.sites.iter().map(|it| it.id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    let mut counts = [0; 4];
    for name in names() {
        let homes: Vec<_> = (0..4).map(|site| cluster.home_of(site, &name).0).collect();
        assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
        counts[homes[0] as usize] += 1;
    }
    assert_eq!(counts[0], 0);
    assert!(counts[1..].iter().all(|count| *count > 5), "{counts:?}");
    for home in 1..=3 {
        let name = cluster.name_on(home);
        // The one that leads says where it is to be, as the others do.
        for site in (0..=3).filter(|site| *site != home) {
            let refused = cluster.create(site, &name);
            cluster.assert_at(refused, home);
        }
        let topic = cluster.create(home, &name).unwrap().topic;
        let one = &mut cluster.sites[home];
        one.world.stored(one.client, topic, (5, 0), &["a"]);
        for site in (0..=3).filter(|site| *site != home) {
            let refused = cluster.describe(site, &name);
            cluster.assert_at(refused, home);
        }
    }
    // Each knows of the others what they have said of themselves.
    let own: StatusReply = cluster.call(1, Method::Status, TopicId(0), &Empty).unwrap();
    let status: serde_json::Value = serde_json::from_str(&own.json).unwrap();
    let others = status["nodes"].as_array().unwrap();
    assert_eq!(others.len(), 2);
    assert_eq!(others[1]["node"], 3);
    assert_eq!(others[1]["state"], "serving");
    assert_eq!(others[1]["labels"]["host"], "h3");
    let of_another = TopicId(directory(3).0);
    let refused = cluster.call::<StatusReply>(1, Method::Status, of_another, &Empty);
    cluster.assert_at(refused, 3);
}

#[test]
fn what_another_node_has_made_is_there_by_one_that_is_behind() {
    let mut cluster = Cluster::new(2);
    let name = cluster.name_on(1);
    let maker = cluster.client(1);
    let (nothing, create) = (TopicId(0), to_create(&name));
    let world = &mut cluster.sites[1].world;
    let asked = world.request(maker, Method::CreateTopic, nothing, &create, &[]);
    let late = cluster.carry_but(Some(2));
    let made: TopicDescription = cluster.sites[1].world.answered(maker, asked).unwrap();
    // The other one has not heard of it, and of nothing else that is asked for.
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    let named = |name: &str| TopicName { name: name.into() };
    let described = world.request(client, Method::DescribeTopic, nothing, &named(&name), &[]);
    let gone = world.request(client, Method::DescribeTopic, nothing, &named("none"), &[]);
    let listed = world.request(client, Method::ListTopics, nothing, &Empty, &[]);
    late.into_iter().for_each(|input| world.input(input));
    cluster.carry();
    let world = &mut cluster.sites[2].world;
    let list: TopicList = world.answered(client, listed).unwrap();
    assert_eq!((list.topics.len(), list.others), (0, vec![made.topic]));
    let none: Result<TopicDescription, _> = world.answered(client, gone);
    assert_eq!(none.unwrap_err().code, ErrorCode::UnknownTopic);
    let elsewhere: Result<TopicDescription, _> = world.answered(client, described);
    cluster.assert_at(elsewhere, 1);
}

#[test]
fn who_cannot_ask_the_others_says_so_and_lists_what_it_knows() {
    let mut cluster = Cluster::new(2);
    let name = cluster.name_on(1);
    let made = cluster.create(1, &name).unwrap();
    cluster.lose(0);
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    let none = TopicName {
        name: "none".into(),
    };
    let nothing = TopicId(0);
    let described = world.request(client, Method::DescribeTopic, nothing, &none, &[]);
    let listed = world.request(client, Method::ListTopics, nothing, &Empty, &[]);
    world.pass(Duration::from_secs(30));
    let unknown: Result<TopicDescription, _> = world.answered(client, described);
    let error = unknown.unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::NotLeader, true));
    assert!(error.message.contains("cannot be asked"), "{error}");
    let list: TopicList = world.answered(client, listed).unwrap();
    assert_eq!(list.others, [made.topic]);
}

#[test]
fn where_no_node_takes_topics_none_is_made() {
    let mut cluster = Cluster::new(0);
    let error = cluster.create(0, "t").unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::NotLeader, true));
    assert_eq!(error.leader_hint, "");
    let site = cluster.add();
    cluster.create(site, "t").unwrap();
    cluster.set_state(site, site, NodeState::Draining);
    for asked in [0, site] {
        let error = cluster.create(asked, "u").unwrap_err();
        assert_eq!((error.code, error.retryable), (ErrorCode::NotLeader, true));
        assert!(error.message.contains("takes new topics"), "{error}");
    }
    cluster.set_state(0, site, NodeState::Serving);
    cluster.create(site, "u").unwrap();
}

#[test]
fn a_node_that_drains_keeps_its_topics_and_gets_no_new_ones() {
    let mut cluster = Cluster::new(3);
    let kept = cluster.name_on(2);
    let topic = cluster.create(2, &kept).unwrap().topic;
    let before: Vec<_> = names().map(|name| cluster.home_of(0, &name)).collect();
    assert!(before.contains(&NodeId(2)));
    // Somebody asks another node for it.
    cluster.set_state(3, 2, NodeState::Draining);
    for site in 0..=3 {
        for (name, before) in names().zip(&before) {
            let home = cluster.home_of(site, &name);
            assert_ne!(home, NodeId(2));
            // What was to be on others stays there.
            assert!(home == *before || *before == NodeId(2));
        }
    }
    let other = format!("{kept} and more");
    let home = cluster.home_of(2, &other).0 as usize;
    let refused = cluster.create(2, &other);
    cluster.assert_at(refused, home);
    cluster.create(home, &other).unwrap();
    // A client of another protocol is no exception.
    let link = LinkId(1 << 40);
    let owner = access::Identity::owner(Default::default(), Default::default());
    let world = &mut cluster.sites[2].world;
    world.input(Input::ClientUp {
        link,
        peer: net::Peer::default(),
        identity: Identity {
            proof: Proof::Token,
            access: owner,
            namespace: String::new(),
            client_name: "another client".into(),
            session: SessionId(0),
        },
    });
    let request = CoordinatorRequest::CreateTopic(TopicId(0), to_create("of another protocol"));
    let call = Box::new(Call {
        id: 1,
        request: request.into(),
        patience: None,
        is_quiet: false,
    });
    let input = ClientInput::Call(call);
    world.input(Input::Client { link, input });
    cluster.carry();
    let nowhere = cluster.describe(2, "of another protocol").unwrap_err();
    assert_eq!(nowhere.code, ErrorCode::UnknownTopic);
    // What it has is served, and found, also behind a start of it.
    for _ in 0..2 {
        let refused = cluster.describe(1, &kept);
        cluster.assert_at(refused, 2);
        let one = &mut cluster.sites[2];
        one.world.describe(one.client, &kept).unwrap();
        cluster.lose(2);
        let again = cluster.start(2).unwrap();
        assert_eq!(again.node, NodeId(2));
        assert_ne!(cluster.home_of(2, &kept), NodeId(2));
    }
    // What belongs beside one of its topics is made there.
    let beside = to_create(&format!("{kept}.dead"));
    let made = cluster.call::<TopicDescription>(2, Method::CreateTopic, topic, &beside);
    made.unwrap();
}

#[test]
fn a_node_that_comes_back_at_another_address_is_found_there() {
    let mut cluster = Cluster::new(3);
    let name = cluster.name_on(2);
    let topic = cluster.create(2, &name).unwrap().topic;
    let one = &mut cluster.sites[2];
    one.world.stored(one.client, topic, (5, 0), &["a", "b"]);
    for port in 2..=3 {
        cluster.lose(2);
        cluster.sites[2].port = port;
        let registered = cluster.start(2).unwrap();
        assert_eq!(
            (registered.node, registered.epoch),
            (NodeId(2), port.into())
        );
        for site in [0, 1, 3] {
            let refused = cluster.describe(site, &name);
            cluster.assert_at(refused, 2);
        }
    }
    let one = &mut cluster.sites[2];
    let id = one
        .world
        .subscribe(one.client, topic, "c", Start::Beginning);
    assert_eq!(one.world.texts(one.client, id), ["a", "b"]);
    // Those that have only what is on their disks say the same.
    cluster.restart_leader();
    cluster.lose(3);
    let one = &mut cluster.sites[3];
    one.world = one.ground.start();
    for site in [0, 3] {
        let refused = cluster.describe(site, &name);
        cluster.assert_at(refused, 2);
    }
}

/// Until the table has said where a node is, a client hears what it hears of a shard that does not listen yet.
#[test]
fn of_a_node_that_is_not_known_yet_a_client_hears_its_number() {
    let mut cluster = Cluster::new(1);
    let record = TopicRecord {
        namespace: String::new(),
        name: "t".into(),
        topic: TopicId(77),
        definition: "{}".into(),
    };
    let placed = PlacedRecord {
        topic: record.topic,
        partition: PartitionIndex(0),
        node: NodeId(9),
    };
    let records = vec![Record::Topic(record), Record::Placed(placed)];
    let node = &mut cluster.sites[0].world.node;
    let commands = &mut node.coordinator.commands;
    commands.submit(records, Decided::SharedChanged, &mut node.ctx);
    cluster.sites[0].world.input(Input::Timer);
    cluster.carry();
    for site in [0, 1] {
        let error = cluster.describe(site, "t").unwrap_err();
        assert_eq!(error.code, ErrorCode::NotLeader);
        assert_eq!(error.leader_hint, "#9");
    }
}

#[test]
fn ids_outlive_the_leader_and_those_who_had_them() {
    let mut cluster = Cluster::new(2);
    cluster.restart_leader();
    assert_eq!(cluster.add(), 3);
    assert_eq!(cluster.sites[3].id, NodeId(3));
    cluster.lose(3);
    let removed = (3, NodeState::Removed);
    cluster.ask_for(1, removed, false).unwrap();
    cluster.restart_leader();
    // It does not come back, under no id.
    let error = cluster.register(3).unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::WrongServer, false)
    );
    let refused = cluster.start_as(3, NodeId(3)).unwrap_err().to_string();
    assert!(refused.contains("was removed"), "{refused}");
    // Nobody gets its id, and those of before keep theirs.
    assert_eq!(cluster.add(), 4);
    assert_eq!(cluster.sites[4].id, NodeId(4));
    cluster.lose(1);
    assert_eq!(
        cluster.start(1).unwrap(),
        Registered {
            node: NodeId(1),
            epoch: 2
        }
    );
}

#[test]
fn a_directory_starts_as_the_node_that_it_is_and_as_no_other() {
    let mut cluster = Cluster::new(2);
    // It has not registered, or says that it is another one.
    for (id, why) in [(3, "has not registered"), (2, "is data directory")] {
        let site = cluster.add_unstarted();
        cluster.lose(2);
        let refused = cluster.start_as(site, NodeId(id)).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
        cluster.sites.pop();
        cluster.start(2).unwrap();
    }
    let site = cluster.add();
    assert_eq!(cluster.sites[site].id, NodeId(3));
}

impl Cluster {
    /// An operator asks a node to give a node another state.
    fn ask_for(
        &mut self,
        at: usize,
        (node, state): (usize, NodeState),
        accept_loss: bool,
    ) -> Result<(), ErrorReply> {
        let set = SetNode {
            node: NodeId(node as u32),
            state,
            accept_loss,
        };
        let done = self.call::<Empty>(at, Method::SetNode, TopicId(0), &set);
        done.map(|_| ())
    }

    /// The nodes that one says there are: of each its id, its state, and how many topics are on it.
    fn listed(&mut self, at: usize) -> Vec<(u32, NodeState, u64)> {
        let asked = ListNodes {
            topics_of: NodeId(0),
        };
        let list = self.call::<NodeList>(at, Method::ListNodes, TopicId(0), &asked);
        let nodes = list.unwrap().nodes.into_iter();
        nodes.map(|it| (it.node.0, it.state, it.topics)).collect()
    }
}

#[track_caller]
pub(super) fn assert_unsupported<T>(result: Result<T, ErrorReply>, why: &str) {
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::Unsupported, false)
    );
    assert!(error.message.contains(why), "{error}");
}

#[test]
fn an_operator_drains_a_node_and_has_it_serve_again_by_any_node() {
    use NodeState::{Away, Draining, Serving};
    let mut cluster = Cluster::new(2);
    let name = cluster.name_on(2);
    cluster.create(2, &name).unwrap();
    assert_eq!(cluster.listed(1), [(1, Serving, 0), (2, Serving, 1)]);
    for _ in 0..2 {
        cluster.ask_for(1, (2, Draining), false).unwrap();
    }
    assert_eq!(cluster.listed(2), [(1, Serving, 0), (2, Draining, 1)]);
    assert!(names().all(|name| cluster.home_of(2, &name) == NodeId(1)));
    cluster.describe(2, &name).unwrap();
    cluster.ask_for(2, (2, Serving), false).unwrap();
    assert_eq!(cluster.listed(1), [(1, Serving, 0), (2, Serving, 1)]);
    // What cannot be asked for.
    assert_unsupported(cluster.ask_for(1, (2, Away), false), "says by itself");
    assert_unsupported(cluster.ask_for(1, (7, Draining), false), "no node 7");
    assert_eq!(cluster.listed(1), [(1, Serving, 0), (2, Serving, 1)]);
}

#[test]
fn a_node_is_removed_when_it_runs_no_more_and_takes_topics_along_if_that_is_accepted() {
    use NodeState::{Draining, Removed, Serving};
    let mut cluster = Cluster::new(3);
    let [name, empty] = [2, 3].map(|site| cluster.name_on(site));
    let topic = cluster.create(2, &name).unwrap().topic;
    for (node, accept) in [(3, false), (2, true)] {
        let refused = cluster.ask_for(1, (node, Removed), accept);
        assert_unsupported(refused, "end its server");
    }
    cluster.lose(2);
    cluster.lose(3);
    cluster.ask_for(1, (3, Removed), false).unwrap();
    // Once more is no error, and back is not possible.
    cluster.ask_for(1, (3, Removed), false).unwrap();
    let refused = cluster.ask_for(1, (3, Serving), false).unwrap_err();
    assert!(refused.message.contains("does not come back"), "{refused}");
    let refused = cluster.ask_for(1, (2, Removed), false);
    assert_unsupported(refused, &format!("node 2 has 1 topic ({name:?})"));
    cluster.ask_for(1, (2, Draining), false).unwrap();
    assert_eq!(cluster.listed(1), [(1, Serving, 0), (2, Draining, 1)]);
    cluster.ask_for(1, (2, Removed), true).unwrap();
    assert_eq!(cluster.listed(1), [(1, Serving, 0)]);
    let table = cluster.sites[1].world.node.coordinator.commands.table();
    assert!(table.topic(topic).is_none());
    // Its names are free.
    for name in [&name, &empty] {
        cluster.create(1, name).unwrap();
    }
}

#[test]
fn no_topic_is_made_on_a_node_that_is_being_removed() {
    let mut cluster = Cluster::new(2);
    let name = cluster.name_on(2);
    let maker = cluster.client(2);
    let create = to_create(&name);
    let world = &mut cluster.sites[2].world;
    world.request(maker, Method::CreateTopic, TopicId(0), &create, &[]);
    // What it proposes is under way at the leader when its link is gone.
    let leader = &mut cluster.sites[0].world;
    leader.hold_disk = true;
    cluster.carry();
    cluster.lose(2);
    let operator = cluster.client(1);
    let set = SetNode {
        node: NodeId(2),
        state: NodeState::Removed,
        accept_loss: false,
    };
    let world = &mut cluster.sites[1].world;
    let asked = world.request(operator, Method::SetNode, TopicId(0), &set, &[]);
    cluster.carry();
    let leader = &mut cluster.sites[0].world;
    leader.hold_disk = false;
    leader.release_disk();
    cluster.carry();
    // The table has what was under way when it was asked.
    let refused: Result<Empty, _> = cluster.sites[1].world.answered(operator, asked);
    assert_unsupported(refused, "which would be lost");
}
