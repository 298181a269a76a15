//! Services over real sockets of this host, with a node each, and voters that end and start again.

use super::*;
use crate::links::{LinkSettings, LinksConfig, Security};
use crate::quorum::{ClusterId, Identity, Settings, VoterId, found, recover};
use crate::table::TableVoter;
use ::log::testing::FaultyDisk;
use broker::controller::{Command, CommandToken, Home, LEADER, testing};
use broker::node::Now;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use wire::Durability;
use wire::TopicId;
use wire::record::{Endpoints, Labels, Record, TopicRecord};

/// A test that hangs fails after this.
const WATCHDOG: Duration = Duration::from_secs(60);
const DIRECTORY: &str = "/data";
const CLUSTER: ClusterId = ClusterId(0xc1);
const VOTERS: u64 = 3;

/// Something for a node.
enum ForNode {
    Linked(u64),
    Cut,
    Message(TableMessage),
    /// A topic is to be made. Says when it is.
    Make(u64, Sender<u64>),
    /// What its table has.
    Topics(Sender<Vec<TopicId>>),
    End,
}

/// What shards are answered: which node each is, by its data directory.
type Nodes = Arc<Mutex<BTreeMap<DirectoryId, Vec<Registered>>>>;

struct Node(Sender<ForNode>, Nodes);

impl LocalNodes for Node {
    fn linked(&mut self, _: NodeId, link: u64) {
        let _ = self.0.send(ForNode::Linked(link));
    }

    fn cut(&mut self, _: NodeId) {
        let _ = self.0.send(ForNode::Cut);
    }

    fn message(&mut self, _: NodeId, message: TableMessage) {
        let _ = self.0.send(ForNode::Message(message));
    }

    fn registered(&mut self, directory: DirectoryId, result: Result<Registered, ErrorReply>) {
        let registered = result.expect("it is a node");
        let mut nodes = self.1.lock().unwrap();
        nodes.entry(directory).or_default().push(registered);
    }
}

/// A node's thread: its controller, which follows.
fn follow(node: NodeId, came: &Receiver<ForNode>, service: &Mutex<Option<ServiceHandle>>) {
    let began = Instant::now();
    let disk = testing::new_disk();
    let mut controller = testing::following(&disk, true, node, 2 * WATCHDOG);
    let mut makers = BTreeMap::new();
    let mut link = 0;
    loop {
        match came.recv_timeout(Duration::from_millis(50)) {
            Ok(ForNode::Linked(number)) => {
                link = number;
                controller.linked(LEADER, true);
            }
            Ok(ForNode::Cut) => controller.linked(LEADER, false),
            Ok(ForNode::Message(message)) => controller.take_message(LEADER, message),
            Ok(ForNode::Make(number, done)) => {
                makers.insert(number, done);
                controller.submit(CommandToken(number), make(number));
            }
            Ok(ForNode::Topics(to)) => {
                let topics = controller.table().topics();
                let _ = to.send(topics.map(|(id, _)| *id).collect());
            }
            Ok(ForNode::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        controller.set_time(Now {
            monotonic: began.elapsed(),
            unix_ns: 1_700_000_000_000_000_000,
        });
        controller.advance();
        while let Some((storage, token, operation)) = controller.poll_operation() {
            let result = disk.execute(operation);
            controller.complete(storage, token, result);
            controller.advance();
        }
        while let Some((_, message)) = controller.poll_message() {
            if let Some(service) = &*service.lock().unwrap() {
                service.send(node, link, message);
            }
        }
        while let Some((CommandToken(number), result)) = controller.poll_completion() {
            result.unwrap_or_else(|error| panic!("topic {number} of node {node}: {error}"));
            let _ = makers.remove(&number).unwrap().send(number);
        }
    }
}

fn make(number: u64) -> Command {
    Command {
        home: Home::Table,
        records: vec![Record::Topic(TopicRecord {
            namespace: String::new(),
            name: format!("topic {number}"),
            topic: TopicId(number.into()),
            definition: "{}".into(),
        })],
        durability: Durability::Synced,
    }
}

/// A server: its node goes on while its service ends and starts again.
struct Site {
    number: u64,
    disk: Arc<FaultyDisk>,
    to_node: Sender<ForNode>,
    /// The node's way to the service of now.
    way: Arc<Mutex<Option<ServiceHandle>>>,
    service: Option<Service>,
    listen: String,
    nodes: Nodes,
}

impl Site {
    fn new(number: u64, nodes: &Nodes) -> Self {
        let disk = Arc::new(FaultyDisk::new());
        for operation in [
            Operation::CreateDirectory {
                path: DIRECTORY.into(),
            },
            Operation::SyncDirectory { path: "/".into() },
        ] {
            disk.execute(operation).unwrap();
        }
        let (to_node, came) = channel();
        let way = Arc::new(Mutex::new(None));
        let of_node = way.clone();
        std::thread::spawn(move || follow(NodeId(number as u32), &came, &of_node));
        Self {
            number,
            disk,
            to_node,
            way,
            service: None,
            listen: "tcp://127.0.0.1:0".to_owned(),
            nodes: nodes.clone(),
        }
    }

    fn own(&self) -> DirectoryId {
        DirectoryId(self.number.into())
    }

    fn links(&mut self) -> PeerLinks {
        let config = LinksConfig {
            cluster: CLUSTER,
            own: PeerId(self.number.into()),
            listen: self.listen.clone(),
            security: Security::Plain,
            settings: LinkSettings {
                silence_max: 2 * WATCHDOG,
                redial_max: Duration::from_millis(100),
                ..LinkSettings::default()
            },
            seed: self.number,
        };
        let links = PeerLinks::open(&config).unwrap();
        // The others look for it there.
        self.listen = links.address().to_owned();
        links
    }

    fn start(&mut self, links: PeerLinks, peers: &BTreeMap<PeerId, Vec<String>>) {
        let began = Instant::now();
        let own = self.own();
        let voter = (self.number <= VOTERS).then(|| {
            let identity = Identity {
                cluster: CLUSTER,
                voter: VoterId(self.number),
                directory: own,
            };
            let founders: Vec<_> = (1..=VOTERS)
                .map(|id| (VoterId(id), DirectoryId(id.into())))
                .collect();
            // It is there already if this is not the first start.
            let _ = found(
                self.disk.as_ref(),
                DIRECTORY.as_ref(),
                identity,
                &founders,
                1,
            );
            let recovered = recover(self.disk.as_ref(), DIRECTORY.as_ref(), identity).unwrap();
            let settings = Settings {
                tick: Duration::from_millis(20),
                ..Settings::default()
            };
            let seed =
                std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), self.number);
            TableVoter::open(recovered, settings, Duration::ZERO, seed).unwrap()
        });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let first_number = now.unwrap().as_nanos() as u64;
        let mut peers = peers.clone();
        peers.remove(&PeerId(self.number.into()));
        let parts = ServiceParts {
            member: Member::new(own, voter, first_number, Duration::ZERO),
            links,
            peers,
            voters: (1..=VOTERS).map(|id| DirectoryId(id.into())).collect(),
            disk: self.disk.clone(),
            nodes: Box::new(Node(self.to_node.clone(), self.nodes.clone())),
            log: Box::new(|remark| eprintln!("{remark:?}")),
        };
        let service = Service::start(parts, began).unwrap();
        let handle = service.handle();
        *self.way.lock().unwrap() = Some(handle.clone());
        handle.node_up(NodeId(self.number as u32));
        handle.register(Register {
            directory: own,
            endpoints: Endpoints(vec![self.listen.clone()]),
            labels: Labels::default(),
            shard: 0,
        });
        self.service = Some(service);
    }

    /// The service ends, whose node hears so of it.
    fn end(&mut self) {
        *self.way.lock().unwrap() = None;
        self.service = None;
    }

    fn make(&self, number: u64) -> Receiver<u64> {
        let (done, came) = channel();
        self.to_node.send(ForNode::Make(number, done)).unwrap();
        came
    }

    fn topics(&self) -> Vec<TopicId> {
        let (to, came) = channel();
        self.to_node.send(ForNode::Topics(to)).unwrap();
        came.recv_timeout(WATCHDOG).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.to_node.send(ForNode::End);
    }
}

#[test]
fn whichever_server_ends_the_others_change_the_table_and_it_follows_when_it_is_back() {
    let nodes = Nodes::default();
    let mut sites: Vec<Site> = (1..=5).map(|number| Site::new(number, &nodes)).collect();
    let links: Vec<PeerLinks> = sites.iter_mut().map(Site::links).collect();
    let peers: BTreeMap<PeerId, Vec<String>> = sites
        .iter()
        .map(|site| (PeerId(site.number.into()), vec![site.listen.clone()]))
        .collect();
    for (site, links) in sites.iter_mut().zip(links) {
        site.start(links, &peers);
    }
    let mut made = 0;
    let mut make_at_all = |sites: &[Site], but: Option<usize>| {
        let others = sites.iter().enumerate().filter(|(at, _)| Some(*at) != but);
        let waiting: Vec<_> = others
            .map(|(_, site)| {
                made += 1;
                site.make(made)
            })
            .collect();
        for came in waiting {
            came.recv_timeout(WATCHDOG).expect("it is made");
        }
    };
    make_at_all(&sites, None);
    // One of them led the table, and each is away once.
    for at in 0..sites.len() {
        sites[at].end();
        make_at_all(&sites, Some(at));
        let late = sites[at].make(1000 + at as u64);
        let links = sites[at].links();
        sites[at].start(links, &peers);
        late.recv_timeout(WATCHDOG)
            .expect("what was asked meanwhile is made when it is back");
    }
    make_at_all(&sites, None);
    let all: Vec<u64> = (1..=made).chain((0..5).map(|at| 1000 + at)).collect();
    let all: Vec<TopicId> = all
        .into_iter()
        .map(|number| TopicId(number.into()))
        .collect();
    let until = Instant::now() + WATCHDOG;
    for site in &sites {
        while site.topics() != all {
            assert!(
                Instant::now() < until,
                "node {} has {:?}",
                site.number,
                site.topics()
            );
        }
    }
    // Each has registered twice, and is the node that it was.
    while nodes.lock().unwrap().values().any(|it| it.len() < 2) || nodes.lock().unwrap().len() < 5 {
        assert!(Instant::now() < until, "{:?}", nodes.lock().unwrap());
        std::thread::yield_now();
    }
    let mut ids = Vec::new();
    for registered in nodes.lock().unwrap().values() {
        assert_eq!(registered[0].node, registered[1].node, "{registered:?}");
        assert!(registered[0].epoch < registered[1].epoch, "{registered:?}");
        ids.push(registered[0].node.0);
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}
