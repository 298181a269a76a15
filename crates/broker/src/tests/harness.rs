//! A world for one node: links, a disk and a clock in the test's hands.

use crate::answer::ClientOutput;
use crate::node::{Input, JobId, LinkId, Now, Output, StorageId};
use crate::{Fault, Limits, Node, NodeOptions, StartReport};
use bytes::Bytes;
use log::testing::{FaultyDisk, Survival};
use log::{
    Disk, DiskKind, MemoryKind, OpenPartition, Operation, OperationToken, Outcome, Recovery,
    Storage, StorageError, StorageKind,
};
use memory::Buffer;
use net::{Message, NetError, Peer, Received};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::batch::{Batch, BatchBuilder, EventParts, Origin, Verify};
use wire::checksum::block_checksums;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{Gap, Position};
use wire::*;

pub const TOKEN: [u8; 32] = [7; 32];
pub const DIRECTORY: DirectoryId = DirectoryId(0xd1);

/// What outlives a node.
#[derive(Clone)]
pub struct Ground {
    pub kinds: Vec<Arc<dyn StorageKind>>,
    pub disk: Arc<FaultyDisk>,
    pub boot: u32,
    /// The index of the partition that is told not to open.
    pub fail_open: Arc<Mutex<Option<u32>>>,
    pub limits: Limits,
    pub accept_loss: bool,
    pub rules: Arc<access::Rules>,
    pub certificates: Option<crate::ClientCertificates>,
    pub examiner: Arc<dyn crate::Examiner>,
    pub fault: Option<Fault>,
    pub role: crate::TableRole,
    pub nodes: Arc<crate::Nodes>,
    pub directory_id: DirectoryId,
    pub run: u128,
}

/// A kind of storage that can be told not to open a partition.
struct Reluctant(Box<dyn StorageKind>, Arc<Mutex<Option<u32>>>);

impl StorageKind for Reluctant {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn check(&self, config: &str) -> Result<(), String> {
        self.0.check(config)
    }
    fn durability_max(&self) -> Durability {
        self.0.durability_max()
    }
    fn open(&self, open: OpenPartition) -> Result<(Box<dyn Storage>, Recovery), StorageError> {
        if *self.1.lock().unwrap() == Some(open.partition.0) && open.topic.0 != 1 {
            return Err(StorageError::Failed("told to fail".into()));
        }
        self.0.open(open)
    }
    fn remove(&self, directory: &Path) -> Result<(), StorageError> {
        self.0.remove(directory)
    }
}

impl Ground {
    pub fn new() -> Self {
        Self::on(crate::controller::testing::new_disk())
    }

    pub fn on(disk: Arc<FaultyDisk>) -> Self {
        let fail_open = Arc::new(Mutex::new(None));
        let disk_kind = DiskKind::seeded(disk.clone(), 1);
        let kinds: [Box<dyn StorageKind>; 2] = [Box::new(disk_kind), Box::new(MemoryKind)];
        let kinds = kinds
            .map(|kind| -> Arc<dyn StorageKind> { Arc::new(Reluctant(kind, fail_open.clone())) });
        Self {
            kinds: kinds.into(),
            disk,
            boot: 1,
            fail_open,
            limits: Limits::default(),
            accept_loss: false,
            rules: Arc::default(),
            certificates: None,
            examiner: Arc::new(crate::NoOthers),
            fault: None,
            role: crate::TableRole::Alone,
            nodes: Arc::default(),
            directory_id: DIRECTORY,
            run: 1,
        }
    }

    pub fn with_fault(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new()
        }
    }

    /// The server is killed.
    pub fn kill(&mut self) {
        self.disk.kill();
    }

    /// The machine loses its power.
    pub fn power_loss(&mut self, survival: Survival) {
        self.disk.power_loss(survival);
        self.boot += 1;
    }

    /// The next run of a server on this ground.
    pub fn start(&mut self) -> World {
        self.try_start().unwrap()
    }

    pub fn try_start(&mut self) -> Result<World, crate::NodeError> {
        self.try_start_led(None)
    }

    /// Likewise, of a node that takes over first what its leader has decided.
    pub fn try_start_led(
        &mut self,
        upstream: Option<&mut dyn crate::Upstream>,
    ) -> Result<World, crate::NodeError> {
        self.run += 1;
        let options = NodeOptions {
            directory: PathBuf::from("/data"),
            disk: self.disk.clone(),
            kinds: self.kinds.clone(),
            open_partitions: crate::options::open_in_turn,
            internal_config: String::new(),
            role: self.role,
            nodes: self.nodes.clone(),
            limits: self.limits.clone(),
            directory_id: self.directory_id,
            instance: ServerInstance(self.run),
            token: TOKEN,
            trust: Arc::new(trust()),
            certificates: self.certificates.clone(),
            rules: self.rules.clone(),
            examiner: self.examiner.clone(),
            owner_uid: Some(1000),
            boot_id: format!("boot {}", self.boot),
            server_version: "test".into(),
            pool: memory::Pool::new(16 << 20),
            seed: self.run,
            accept_loss: self.accept_loss,
            counters: Arc::default(),
            fault: self.fault,
        };
        let now = Now {
            monotonic: Duration::ZERO,
            unix_ns: 1_700_000_000_000_000_000,
        };
        let (node, report) = match upstream {
            Some(upstream) => Node::open_led(options, now, upstream),
            None => Node::open(options, now),
        }?;
        Ok(World {
            node,
            report,
            now,
            disk: self.disk.clone(),
            links: BTreeMap::new(),
            said: BTreeMap::new(),
            hold_disk: false,
            hold_reads: false,
            hold_jobs: false,
            held_jobs: Vec::new(),
            held: Vec::new(),
            held_reads: Vec::new(),
            stopped: None,
            unread_bytes: 0,
            unwritten_bytes: 0,
            lines: Vec::new(),
            audited: Vec::new(),
            drained: false,
            to_peers: Vec::new(),
            to_registering: Vec::new(),
            is_quiet: false,
            leader_epoch: 0,
            token: None,
            carries: Some("tcp"),
            next: 0,
        })
    }

    pub fn directories(&self) -> Vec<String> {
        let path = Path::new("/data/partitions").to_owned();
        match self.disk.execute(Operation::List { path }).unwrap() {
            Outcome::Names(names) => names,
            _ => panic!(),
        }
    }
}

/// The client's end of a connection.
#[derive(Default)]
pub struct End {
    pub inbox: Vec<Message>,
    pub exposed: BTreeMap<Bytes, Bytes>,
    pub lent: BTreeMap<Bytes, Vec<u8>>,
    pub closed: Option<String>,
    /// Whether checksums of what is read are wrong.
    pub lies: bool,
    /// Whether all behind its Welcome is in chunks.
    pub is_striped: bool,
    /// The connection that it carries chunks of.
    pub joined: Option<LinkId>,
}

pub struct World {
    pub node: Node,
    pub report: StartReport,
    pub now: Now,
    disk: Arc<FaultyDisk>,
    pub links: BTreeMap<LinkId, End>,
    /// What was said to clients of another protocol.
    pub said: BTreeMap<LinkId, Vec<ClientOutput>>,
    /// Whether disk operations wait for [`World::release_disk`].
    pub hold_disk: bool,
    pub hold_reads: bool,
    /// Whether jobs wait for [`World::release_jobs`].
    pub hold_jobs: bool,
    held_jobs: Vec<(JobId, crate::node::Job)>,
    held: Vec<(StorageId, OperationToken, Operation)>,
    held_reads: Vec<(LinkId, net::BulkToken, net::RegionRead)>,
    /// A client that answers no more, and what of its memory it was asked to
    /// be read and written.
    pub stopped: Option<LinkId>,
    pub unread_bytes: usize,
    pub unwritten_bytes: usize,
    pub lines: Vec<String>,
    pub audited: Vec<crate::AuditRecord>,
    pub drained: bool,
    /// What was said to other nodes.
    pub to_peers: Vec<(NodeId, wire::table::TableMessage)>,
    /// What was said to servers that have asked which node they are.
    pub to_registering: Vec<(LinkId, wire::table::TableMessage)>,
    /// Whether answers to what is asked may wait for company.
    pub is_quiet: bool,
    /// What requests name; 0 is unknown.
    pub leader_epoch: u32,
    /// What clients show from now on, in place of the server's token.
    pub token: Option<access::Token>,
    /// What kind of connections those are that are made from now on.
    pub carries: Option<&'static str>,
    next: u64,
}

impl World {
    pub fn input(&mut self, input: Input) {
        self.node.handle(self.now, input);
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Send { link, message } => {
                    if let Some(end) = self.links.get_mut(&link) {
                        end.inbox.push(message);
                    }
                }
                Output::Client { link, output } => {
                    self.said.entry(link).or_default().push(*output);
                }
                Output::Disk {
                    storage,
                    token,
                    operation,
                } => match self.hold_disk {
                    true => self.held.push((storage, token, operation)),
                    false => self.execute(storage, token, operation),
                },
                Output::Read { link, read, .. } if self.stopped == Some(link) => {
                    self.unread_bytes += read.into.len();
                }
                Output::Write { link, write, .. } if self.stopped == Some(link) => {
                    self.unwritten_bytes += write.pieces.iter().map(Bytes::len).sum::<usize>();
                }
                Output::Read { link, token, read } => match self.hold_reads {
                    true => self.held_reads.push((link, token, read)),
                    false => self.answer_read(link, token, read),
                },
                Output::Write { link, token, write } => {
                    let end = self.links.get_mut(&link).unwrap();
                    let lent = end.lent.get_mut(&write.region.key).unwrap();
                    let mut at = write.offset as usize;
                    for piece in write.pieces {
                        lent[at..at + piece.len()].copy_from_slice(&piece);
                        at += piece.len();
                    }
                    let result = Ok(());
                    self.node.handle(
                        self.now,
                        Input::WriteDone {
                            link,
                            token,
                            result,
                        },
                    );
                }
                Output::Close { link, reason } => {
                    if let Some(end) = self.links.get_mut(&link) {
                        end.closed = Some(reason.clone());
                    }
                    let reason = NetError::Closed(reason);
                    self.node.handle(self.now, Input::LinkDown { link, reason });
                }
                Output::Job { job, work } => match self.hold_jobs {
                    true => self.held_jobs.push((job, work)),
                    false => self.job_done(job, work.run()),
                },
                Output::Report(line) => self.lines.push(line.text),
                Output::Audit(record) => self.audited.push(*record),
                Output::Stripe { link } => {
                    if let Some(end) = self.links.get_mut(&link) {
                        end.is_striped = true;
                    }
                }
                Output::Join {
                    link,
                    stripe,
                    welcome,
                } => {
                    if let Some(end) = self.links.get_mut(&stripe) {
                        end.inbox.push(welcome);
                        end.joined = Some(link);
                    }
                }
                Output::Peer { node, message } => self.to_peers.push((node, message)),
                Output::Registered { link, message } => self.to_registering.push((link, message)),
                Output::Draining => {}
                Output::Drained => self.drained = true,
            }
        }
    }

    fn job_done(&mut self, job: JobId, result: crate::node::JobResult) {
        self.node.handle(self.now, Input::JobDone { job, result });
    }

    /// How many looks at credentials are held back for clients that are still there.
    pub fn awaited_looks(&self) -> usize {
        let works = self.held_jobs.iter().map(|(_, work)| work);
        let awaited = works.filter(
            |work| matches!(work, crate::node::Job::Examine { awaited, .. } if awaited.is_so()),
        );
        awaited.count()
    }

    /// Does what was held back, but for looks at credentials.
    pub fn release_all_but_looks(&mut self) {
        for _ in 0..8 {
            for (job, work) in std::mem::take(&mut self.held_jobs) {
                match work {
                    crate::node::Job::Examine { .. } => self.held_jobs.push((job, work)),
                    work => self.job_done(job, work.run()),
                }
            }
            self.pump();
        }
    }

    /// Does the jobs that were held back.
    pub fn release_jobs(&mut self) {
        self.hold_jobs = false;
        for (job, work) in std::mem::take(&mut self.held_jobs) {
            self.job_done(job, work.run());
        }
        self.pump();
    }

    fn execute(&mut self, storage: StorageId, token: OperationToken, operation: Operation) {
        let result = self.disk.execute(operation);
        self.node.handle(
            self.now,
            Input::DiskDone {
                storage,
                token,
                result,
            },
        );
    }

    fn answer_read(&mut self, link: LinkId, token: net::BulkToken, read: net::RegionRead) {
        let end = &self.links[&link];
        let bytes = &end.exposed[&read.region.key];
        let start = (read.region.base + read.offset) as usize;
        let mut into: Buffer = read.into;
        let wanted = into.len();
        into.copy_from_slice(&bytes[start..start + wanted]);
        let mut checksums: Vec<u32> = block_checksums(&into, read.block_bytes).collect();
        if end.lies {
            checksums[0] ^= 1;
        }
        let result = Ok((into, checksums));
        self.node.handle(
            self.now,
            Input::ReadDone {
                link,
                token,
                result,
            },
        );
    }

    /// Carries out what was held back, and whatever follows from it.
    pub fn release_disk(&mut self) {
        self.hold_disk = false;
        for (storage, token, operation) in std::mem::take(&mut self.held) {
            self.execute(storage, token, operation);
        }
        self.pump();
    }

    pub fn held_operation_count(&self) -> usize {
        self.held.len()
    }

    /// Carries out one of the operations that are held back.
    pub fn release_operation(&mut self, index: usize) {
        let (storage, token, operation) = self.held.swap_remove(index);
        self.execute(storage, token, operation);
        self.pump();
    }

    /// Carries out what is held back, and what follows from it, but for syncs.
    pub fn release_all_but_syncs(&mut self) {
        let is_sync = |operation: &Operation| {
            matches!(
                operation,
                Operation::SyncData { .. } | Operation::SyncDirectory { .. }
            )
        };
        while let Some(index) = self.held.iter().position(|held| !is_sync(&held.2)) {
            self.release_operation(index);
        }
    }

    pub fn release_reads(&mut self) {
        self.hold_reads = false;
        for (link, token, read) in std::mem::take(&mut self.held_reads) {
            self.answer_read(link, token, read);
        }
        self.pump();
    }

    pub fn held_read_count(&self) -> usize {
        self.held_reads.len()
    }

    /// Lets time pass, timer by timer.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now.monotonic + time;
        while let Some(at) = self.node.next_timer().filter(|at| *at <= until) {
            self.step_to(at.max(self.now.monotonic));
        }
        self.step_to(until);
    }

    fn step_to(&mut self, at: Duration) {
        self.now.unix_ns += (at - self.now.monotonic).as_nanos() as u64;
        self.now.monotonic = at;
        self.input(Input::Timer);
    }

    pub fn connect_as(&mut self, peer: Peer, hello: Hello) -> LinkId {
        self.next += 1;
        let link = LinkId(self.next);
        self.links.insert(link, End::default());
        self.input(Input::LinkUp {
            link,
            peer,
            capabilities: net::Capabilities {
                payload_bytes_max: 1 << 30,
                one_sided: false,
                ordered: true,
                memory_kinds: vec![0],
                stripes: self.carries,
                bytes_alone: false,
            },
        });
        self.message(link, FrameKind::Hello, 0, hello.to_bytes(), &[]);
        link
    }

    pub fn connect(&mut self) -> LinkId {
        let hello = match &self.token {
            Some(token) => Hello {
                mechanism: ACCESS_TOKEN.into(),
                proof: token.to_text().into(),
                ..hello()
            },
            None => hello(),
        };
        let link = self.connect_as(Peer::default(), hello);
        let first = self.links[&link].inbox.first().unwrap();
        assert_eq!(first.kind, FrameKind::Welcome, "{:?}", self.error(link, 0));
        link
    }

    pub fn disconnect(&mut self, link: LinkId) {
        let reason = NetError::Closed("gone".into());
        self.input(Input::LinkDown { link, reason });
    }

    pub fn message(
        &mut self,
        link: LinkId,
        kind: FrameKind,
        id: u64,
        head: Vec<u8>,
        payload: &[u8],
    ) {
        let message = Received {
            kind,
            flags: match kind {
                FrameKind::Request if self.is_quiet => wire::frame::REQUEST_QUIET,
                _ => 0,
            },
            id,
            head: head.into(),
            payload: Buffer::copy_of(payload),
        };
        self.input(Input::Message { link, message });
    }

    /// Sends a request and returns its id.
    pub fn request(
        &mut self,
        link: LinkId,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
        payload: &[u8],
    ) -> u64 {
        self.request_within(link, method, topic, body, payload, 0)
    }

    pub fn request_within(
        &mut self,
        link: LinkId,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
        payload: &[u8],
        remaining_ms: u32,
    ) -> u64 {
        self.next += 1;
        let head = RequestHead {
            method,
            remaining_ms,
            topic,
            leader_epoch: self.leader_epoch,
            trace: 0,
        };
        let mut bytes = head.to_bytes();
        body.encode(&mut bytes);
        let id = self.next;
        self.message(link, FrameKind::Request, id, bytes, payload);
        id
    }

    /// The answer to a request, if it has come.
    pub fn answer(&self, link: LinkId, id: u64) -> Option<Result<&Message, ErrorReply>> {
        let inbox = &self.links[&link].inbox;
        let mut answers = inbox
            .iter()
            .filter(|m| m.id == id && matches!(m.kind, FrameKind::Reply | FrameKind::ErrorReply));
        let message = answers.next()?;
        assert!(answers.next().is_none(), "request {id} has two answers");
        Some(match message.kind {
            FrameKind::Reply => Ok(message),
            _ => Err(ErrorReply::from_bytes("error", &message.head).unwrap()),
        })
    }

    pub fn error(&self, link: LinkId, id: u64) -> Option<ErrorReply> {
        self.answer(link, id)?.err()
    }

    /// The decoded answer to a request.
    pub fn answered<T: Codec>(&self, link: LinkId, id: u64) -> Result<T, ErrorReply> {
        let answer = self
            .answer(link, id)
            .unwrap_or_else(|| panic!("request {id} is not answered"));
        answer.map(
            |message| match message.head.is_empty() && !message.payload.is_empty() {
                true => T::from_bytes("reply", &message.payload.concat()).unwrap(),
                false => T::from_bytes("reply", &message.head).unwrap(),
            },
        )
    }

    pub fn call<T: Codec>(
        &mut self,
        link: LinkId,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
    ) -> Result<T, ErrorReply> {
        let id = self.request(link, method, topic, body, &[]);
        self.answered(link, id)
    }

    pub fn create(
        &mut self,
        link: LinkId,
        name: &str,
        definition: &str,
        kinds: &[&str],
    ) -> Result<TopicDescription, ErrorReply> {
        let create = CreateTopic {
            name: name.into(),
            definition: definition.into(),
            partitions: kinds.iter().map(|kind| storage(kind)).collect(),
        };
        self.call(link, Method::CreateTopic, TopicId(0), &create)
    }

    /// A topic of one disk partition with segments of some events.
    pub fn create_segmented(&mut self, link: LinkId, name: &str) -> TopicId {
        let create = CreateTopic {
            name: name.into(),
            definition: "{}".into(),
            partitions: vec![PartitionStorage {
                kind: "disk".into(),
                config: r#"{"segment_bytes":4096}"#.into(),
            }],
        };
        let created: TopicDescription = self
            .call(link, Method::CreateTopic, TopicId(0), &create)
            .unwrap();
        created.topic
    }

    /// Asks for a topic; the answer may never come.
    pub fn try_create(
        &mut self,
        link: LinkId,
        name: &str,
        kinds: &[&str],
    ) -> Option<Result<(), ErrorReply>> {
        let create = CreateTopic {
            name: name.into(),
            definition: "{}".into(),
            partitions: kinds.iter().map(|kind| storage(kind)).collect(),
        };
        let id = self.request(link, Method::CreateTopic, TopicId(0), &create, &[]);
        Some(self.answer(link, id)?.map(|_| ()))
    }

    pub fn topic(&mut self, link: LinkId) -> TopicId {
        self.create(link, "t", "{}", &["disk"]).unwrap().topic
    }

    pub fn describe(&mut self, link: LinkId, name: &str) -> Result<TopicDescription, ErrorReply> {
        let name = TopicName { name: name.into() };
        self.call(link, Method::DescribeTopic, TopicId(0), &name)
    }

    pub fn produce(&mut self, link: LinkId, topic: TopicId, batch: &[u8]) -> u64 {
        let produce = Produce {
            partition: PartitionIndex(0),
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        self.request(link, Method::Produce, topic, &produce, batch)
    }

    /// Produces metadata as one batch of a producer and expects it stored.
    pub fn stored(
        &mut self,
        link: LinkId,
        topic: TopicId,
        origin: (u128, u64),
        events: &[&str],
    ) -> Produced {
        let batch = batch(topic, origin.0, 0, origin.1, events);
        let id = self.produce(link, topic, &batch);
        self.answered(link, id).unwrap()
    }

    pub fn subscribe(&mut self, link: LinkId, topic: TopicId, consumer: &str, start: Start) -> u64 {
        let subscribe = Subscribe {
            consumer: consumer.into(),
            partition: PartitionIndex(0),
            start,
            credit: 1 << 20,
            inline_data: true,
            latest: wire::codec::Appended(false),
        };
        self.request(link, Method::Subscribe, topic, &subscribe, &[])
    }

    /// What a subscription has delivered so far.
    pub fn delivered(&self, link: LinkId, id: u64) -> Vec<Delivered> {
        let mut all = Vec::new();
        let inbox = &self.links[&link].inbox;
        for message in inbox
            .iter()
            .filter(|m| m.id == id && m.kind == FrameKind::Deliver)
        {
            let head = Deliver::from_bytes("deliver", &message.head).unwrap();
            all.extend(decode(
                &head.batch_bytes,
                &message.payload.concat(),
                head.incarnation,
            ));
        }
        all
    }

    pub fn fetched(&self, link: LinkId, id: u64) -> Vec<Delivered> {
        let message = self.answer(link, id).expect("answered").unwrap();
        let head = Fetched::from_bytes("fetched", &message.head).unwrap();
        decode(
            &head.batch_bytes,
            &message.payload.concat(),
            head.incarnation,
        )
    }

    /// The metadata that a subscription has delivered so far.
    pub fn texts(&self, link: LinkId, id: u64) -> Vec<String> {
        let delivered = self.delivered(link, id).into_iter();
        delivered
            .filter_map(|delivered| match delivered {
                Delivered::Event(_, text) => Some(text),
                Delivered::Gap(_) => None,
            })
            .collect()
    }

    pub fn move_cursor(
        &mut self,
        link: LinkId,
        topic: TopicId,
        how: CursorMove,
        to: Position,
    ) -> u64 {
        let request = MoveCursors {
            consumer: "c".into(),
            how,
            positions: vec![(PartitionIndex(0), to)],
        };
        self.request(link, Method::MoveCursors, topic, &request, &[])
    }

    pub fn cursor(&mut self, link: LinkId, topic: TopicId) -> Option<Position> {
        let request = ReadCursors {
            consumer: "c".into(),
        };
        let list: CursorList = self
            .call(link, Method::ReadCursors, topic, &request)
            .unwrap();
        list.cursors.first().map(|cursor| cursor.position)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    Event(Position, String),
    Gap(Gap),
}

fn decode(lengths: &[u64], payload: &[u8], incarnation: Incarnation) -> Vec<Delivered> {
    let mut all = Vec::new();
    let mut at = 0;
    for length in lengths {
        let bytes = &payload[at..at + *length as usize];
        at += *length as usize;
        let batch = Batch::read(bytes, Verify::Sections).unwrap();
        if batch.header.kind == wire::batch::BatchKind::Gap {
            let gap = Gap::from_bytes("gap", batch.metadata_section()).unwrap();
            all.push(Delivered::Gap(gap));
            continue;
        }
        let base = batch.stamp.unwrap().base_offset;
        for event in batch.columns().unwrap().events {
            let start = event.metadata_start as usize;
            let text = &batch.metadata_section()[start..start + event.metadata_bytes as usize];
            let position = Position {
                incarnation,
                offset: base.plus(u64::from(event.offset_delta)),
            };
            all.push(Delivered::Event(
                position,
                String::from_utf8(text.to_vec()).unwrap(),
            ));
        }
    }
    assert_eq!(at, payload.len());
    all
}

/// The key of the tokens that a server here takes.
pub fn issuer() -> access::IssuerKey {
    access::IssuerKey::new(access::Seed([3; access::SEED_BYTES]))
}

fn trust() -> access::Trust {
    access::Trust {
        keys: vec![issuer().public()],
        ..access::Trust::default()
    }
}

pub fn hello() -> Hello {
    Hello {
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        features_required: 0,
        features_optional: 0,
        namespace: String::new(),
        mechanism: "token".into(),
        proof: Bytes::copy_from_slice(&TOKEN),
        session: SessionId(0),
        role: Role::Control,
        directory: DirectoryId(0),
        trace: 0,
        client_name: "test".into(),
        stripes: Default::default(),
    }
}

pub fn storage(kind: &str) -> PartitionStorage {
    PartitionStorage {
        kind: kind.into(),
        config: String::new(),
    }
}

pub fn origin(topic: TopicId, producer: u128, epoch: u32, sequence: u64) -> Origin {
    Origin {
        topic,
        producer: ProducerId(producer),
        epoch: ProducerEpoch(epoch),
        first_sequence: Sequence(sequence),
    }
}

pub fn batch(
    topic: TopicId,
    producer: u128,
    epoch: u32,
    sequence: u64,
    events: &[&str],
) -> Vec<u8> {
    let mut builder = BatchBuilder::default();
    for event in events {
        builder.push(EventParts {
            metadata: event.as_bytes(),
            ..EventParts::default()
        });
    }
    builder
        .seal(origin(topic, producer, epoch, sequence), 4096)
        .to_vec()
}

pub fn at(incarnation: u64, offset: u64) -> Position {
    Position {
        incarnation: Incarnation(incarnation),
        offset: Offset(offset),
    }
}

pub fn fetch(from: Position, wait_max_ms: u32) -> Fetch {
    Fetch {
        partition: PartitionIndex(0),
        from,
        bytes_max: 1 << 20,
        wait_max_ms,
        inline_data: true,
    }
}

/// Nothing, as a body.
#[derive(Debug)]
pub struct Empty;

impl Codec for Empty {
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut wire::codec::Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}
