//! A scripted server in memory: what the client needs to be tested without
//! the real one. It keeps its events across connections and can be told to
//! refuse, to fall silent, or to cut the connection at any message.

#![allow(dead_code)]

use bytes::Bytes;
use memory::Buffer;
use net::{BulkToken, Lane, Link, LinkEvent, Listener, Message, Received, RegionRead, RegionWrite};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::batch::{Batch, SECTIONS_START, Stamp, Verify};
use wire::checksum::crc32c;
use wire::codec::Reader;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};
use wire::message::*;
use wire::record::{Gap, GapReason, Position};
use wire::view::Segment;
use wire::*;

/// One event as the fake server keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub metadata: Vec<u8>,
    pub data: Vec<u8>,
    pub sequence: u64,
}

#[derive(Default)]
pub struct FakePartition {
    pub incarnation: u64,
    pub batches: Vec<(u64, Bytes)>,
    pub events: Vec<StoredEvent>,
    /// Producer: next sequence, and (first, base offset) of its batches.
    pub producers: BTreeMap<ProducerId, (u64, Vec<(u64, u64)>)>,
    pub duplicates: u64,
    pub gap: Option<Gap>,
}

pub struct FakeTopic {
    pub id: TopicId,
    pub definition: String,
    pub partitions: Vec<FakePartition>,
    pub cursors: BTreeMap<(String, u32), Position>,
    pub names: BTreeMap<String, (ProducerId, u32)>,
}

struct Subscription {
    topic: String,
    partition: u32,
    position: u64,
    incarnation: u64,
    credit: i64,
    inline_data: bool,
}

/// A produce whose large data is being read.
struct Transfer {
    id: u64,
    topic: String,
    produce: Produce,
    batch: Vec<u8>,
    region: usize,
    at: u64,
    data: Vec<u8>,
}

struct Conn {
    link: Box<dyn Link>,
    dead: bool,
    subscriptions: BTreeMap<u64, Subscription>,
    transfers: BTreeMap<u64, Transfer>,
    last_token: u64,
}

pub struct FakeServer {
    listener: Box<dyn Listener>,
    conns: Vec<Conn>,
    pub directory: DirectoryId,
    pub topics: BTreeMap<String, FakeTopic>,
    last_id: u128,
    /// Messages taken so far, heartbeats not counted.
    pub messages: u64,
    /// Cut the connection instead of taking message number so and so.
    pub cut_before: BTreeSet<u64>,
    /// Take this message, and cut the connection before its answer goes out.
    pub cut_behind: BTreeSet<u64>,
    /// Errors for the next requests of a method.
    pub refusals: BTreeMap<u16, VecDeque<ErrorReply>>,
    /// Takes what comes and answers nothing.
    pub is_silent: bool,
    /// Payload that came while it was silent.
    pub unanswered_bytes: usize,
    pub produce_credit: u64,
    pub heartbeat_ms: u32,
    /// Damages the next delivery or data read.
    pub damage_next: bool,
    /// How many of each kind came.
    pub requests: BTreeMap<u16, u64>,
    pub credits: u64,
    pub heartbeats: u64,
    pub token: Option<Bytes>,
    /// Cuts the network itself, so that nothing that is under way arrives.
    pub cutter: Option<Box<dyn Fn() + Send>>,
    pub segment_reads: Vec<(Offset, Vec<Segment>)>,
}

impl FakeServer {
    pub fn new(listener: Box<dyn Listener>) -> Self {
        Self {
            listener,
            conns: Vec::new(),
            directory: DirectoryId(0xd1),
            topics: BTreeMap::new(),
            last_id: 100,
            messages: 0,
            cut_before: BTreeSet::new(),
            cut_behind: BTreeSet::new(),
            refusals: BTreeMap::new(),
            is_silent: false,
            unanswered_bytes: 0,
            produce_credit: 16 << 20,
            heartbeat_ms: 10_000,
            damage_next: false,
            requests: BTreeMap::new(),
            credits: 0,
            heartbeats: 0,
            token: None,
            cutter: None,
            segment_reads: Vec::new(),
        }
    }

    pub fn refuse(&mut self, method: Method, error: ErrorReply) {
        self.refusals
            .entry(method as u16)
            .or_default()
            .push_back(error);
    }

    pub fn requests(&self, method: Method) -> u64 {
        self.requests.get(&(method as u16)).copied().unwrap_or(0)
    }

    pub fn partition(&mut self, topic: &str, partition: usize) -> &mut FakePartition {
        &mut self.topics.get_mut(topic).unwrap().partitions[partition]
    }

    /// The partition is lost with its events; a new life begins.
    pub fn lose_memory(&mut self, topic: &str, partition: usize) {
        let partition = self.partition(topic, partition);
        let end = partition.events.len() as u64;
        let old = partition.incarnation;
        *partition = FakePartition {
            incarnation: old + 1,
            gap: Some(Gap {
                incarnation: Incarnation(old),
                first: Offset(end),
                end: Offset(end),
                reason: GapReason::MemoryLost,
                time: 1,
            }),
            ..FakePartition::default()
        };
    }

    /// Cuts all connections.
    pub fn cut(&mut self) {
        if let Some(cutter) = &self.cutter {
            cutter();
        }
        for conn in &mut self.conns {
            conn.link.close("cut");
            while conn.link.poll().is_some() {}
        }
        self.conns.clear();
    }

    pub fn has_connections(&self) -> bool {
        !self.conns.is_empty()
    }

    /// Readies every link for `bell`.
    pub fn attach(&mut self, bell: &net::Bell) {
        self.listener.attach(bell.clone());
        for conn in &mut self.conns {
            conn.link.attach(bell.clone());
        }
    }

    /// Does what there is to do; false if there was nothing.
    pub fn turn(&mut self, bell: Option<&net::Bell>) -> bool {
        let mut busy = false;
        while let Ok(Some(mut link)) = self.listener.accept() {
            if let Some(bell) = bell {
                link.attach(bell.clone());
            }
            self.conns.push(Conn {
                link,
                dead: false,
                subscriptions: BTreeMap::new(),
                transfers: BTreeMap::new(),
                last_token: 0,
            });
            busy = true;
        }
        let mut conns = std::mem::take(&mut self.conns);
        for conn in &mut conns {
            while !conn.dead {
                let Some(event) = conn.link.poll() else { break };
                busy = true;
                self.event(conn, event);
            }
            if !conn.dead {
                busy |= self.deliver(conn);
            }
            while !conn.dead {
                let Some(event) = conn.link.poll() else { break };
                busy = true;
                self.event(conn, event);
            }
        }
        conns.retain(|conn| !conn.dead);
        self.conns = conns;
        busy
    }

    fn event(&mut self, conn: &mut Conn, event: LinkEvent) {
        match event {
            LinkEvent::Down(_) => conn.dead = true,
            LinkEvent::ReadDone { token, result } => self.read_done(conn, token, result),
            LinkEvent::Message(message) => self.message(conn, message),
            LinkEvent::Up | LinkEvent::WriteDone { .. } => {}
        }
    }

    fn cut_conn(&self, conn: &mut Conn) {
        if let Some(cutter) = &self.cutter {
            cutter();
        }
        conn.link.close("cut");
        while conn.link.poll().is_some() {}
        conn.dead = true;
    }

    fn message(&mut self, conn: &mut Conn, message: Received) {
        if message.kind == FrameKind::Heartbeat {
            self.heartbeats += 1;
            if !self.is_silent && message.flags == 0 {
                conn.link.send(Message {
                    flags: 1,
                    ..Message::control(FrameKind::Heartbeat, 0, Bytes::new())
                });
            }
            return;
        }
        self.messages += 1;
        if self.cut_before.remove(&self.messages) {
            return self.cut_conn(conn);
        }
        let cut = self.cut_behind.remove(&self.messages);
        if self.is_silent {
            self.unanswered_bytes += message.payload.len();
            return;
        }
        match message.kind {
            FrameKind::Hello => self.hello(conn, &message),
            FrameKind::Request => self.request(conn, message),
            FrameKind::Credit => {
                self.credits += 1;
                let credit = Credit::from_bytes("credit", &message.head).unwrap();
                if let Some(subscription) = conn.subscriptions.get_mut(&message.id) {
                    subscription.credit += credit.bytes as i64;
                }
            }
            FrameKind::Cancel => {}
            other => panic!("the client sent {other:?}"),
        }
        if cut {
            self.cut_conn(conn);
        }
    }

    fn hello(&mut self, conn: &mut Conn, message: &Received) {
        let hello = Hello::from_bytes("hello", &message.head).unwrap();
        let refuse = |code| {
            let error = ErrorReply::fatal(code, "not this one");
            Message::control(FrameKind::ErrorReply, 0, error.to_bytes())
        };
        if hello.directory != DirectoryId(0) && hello.directory != self.directory {
            return conn.link.send(refuse(ErrorCode::WrongServer));
        }
        if self
            .token
            .as_ref()
            .is_some_and(|token| *token != hello.proof)
        {
            return conn.link.send(refuse(ErrorCode::NotAuthenticated));
        }
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            features: 0,
            directory: self.directory,
            instance: ServerInstance(1),
            produce_credit: self.produce_credit,
            payload_bytes_max: 128 << 20,
            heartbeat_ms: self.heartbeat_ms,
            server_version: "fake".into(),
        };
        conn.link.send(Message::control(
            FrameKind::Welcome,
            message.id,
            welcome.to_bytes(),
        ));
    }

    fn topic_of(&self, id: TopicId) -> Option<String> {
        let found = self.topics.iter().find(|(_, topic)| topic.id == id);
        found.map(|(name, _)| name.clone())
    }

    fn describe(&self, name: &str) -> Option<TopicDescription> {
        let topic = self.topics.get(name)?;
        let partitions = topic.partitions.iter().enumerate();
        Some(TopicDescription {
            name: name.to_owned(),
            topic: topic.id,
            definition: topic.definition.clone(),
            partitions: partitions
                .map(|(index, partition)| PartitionDescription {
                    partition: PartitionIndex(index as u32),
                    storage: PartitionStorage {
                        kind: "memory".into(),
                        config: String::new(),
                    },
                    durability: Durability::Memory,
                    incarnation: Incarnation(partition.incarnation),
                    ended: Vec::new(),
                    first: Offset(0),
                    watermarks: marks(partition),
                    bytes: 0,
                    failure: String::new(),
                })
                .collect(),
        })
    }

    fn request(&mut self, conn: &mut Conn, message: Received) {
        let head = message.head.clone();
        let mut from = Reader::new("request", &head);
        let request = RequestHead::decode(&mut from).unwrap();
        let id = message.id;
        *self.requests.entry(request.method as u16).or_default() += 1;
        let refusal = self
            .refusals
            .get_mut(&(request.method as u16))
            .and_then(VecDeque::pop_front);
        if let Some(error) = refusal {
            return send_error(conn, id, error);
        }
        let unknown = |text: &str| ErrorReply::fatal(ErrorCode::UnknownTopic, text.to_owned());
        let by_id = self.topic_of(request.topic);
        match request.method {
            Method::CreateTopic => {
                let create = CreateTopic::decode(&mut from).unwrap();
                if self.topics.contains_key(&create.name) {
                    let error = ErrorReply::fatal(ErrorCode::TopicExists, create.name);
                    return send_error(conn, id, error);
                }
                self.last_id += 1;
                let partitions = create.partitions.iter().map(|_| FakePartition {
                    incarnation: 1,
                    ..FakePartition::default()
                });
                let topic = FakeTopic {
                    id: TopicId(self.last_id),
                    definition: create.definition,
                    partitions: partitions.collect(),
                    cursors: BTreeMap::new(),
                    names: BTreeMap::new(),
                };
                self.topics.insert(create.name.clone(), topic);
                let description = self.describe(&create.name).unwrap();
                reply(conn, id, description.to_bytes());
            }
            Method::DescribeTopic => {
                let name = TopicName::decode(&mut from).unwrap().name;
                match self.describe(&name) {
                    Some(description) => reply(conn, id, description.to_bytes()),
                    None => send_error(conn, id, unknown(&name)),
                }
            }
            Method::AddPartitions => {
                let add = AddPartitions::decode(&mut from).unwrap();
                let name = by_id.unwrap();
                let topic = self.topics.get_mut(&name).unwrap();
                for _ in add.partitions {
                    topic.partitions.push(FakePartition {
                        incarnation: 1,
                        ..FakePartition::default()
                    });
                }
                let description = self.describe(&name).unwrap();
                reply(conn, id, description.to_bytes());
            }
            Method::ListTopics => {
                let topics = self.topics.keys().map(|name| self.describe(name).unwrap());
                let list = TopicList {
                    topics: topics.collect(),
                };
                reply(conn, id, list.to_bytes());
            }
            Method::DeleteTopic => {
                let name = TopicName::decode(&mut from).unwrap().name;
                match self.topics.remove(&name) {
                    Some(_) => reply(conn, id, Vec::new()),
                    None => send_error(conn, id, unknown(&name)),
                }
            }
            Method::OpenProducer => {
                let open = OpenProducer::decode(&mut from).unwrap();
                let Some(name) = by_id else {
                    return send_error(conn, id, unknown("by id"));
                };
                self.last_id += 1;
                let fresh = ProducerId(self.last_id);
                let topic = self.topics.get_mut(&name).unwrap();
                let (producer, epoch) = if open.resume != ProducerId(0) {
                    if let Some((_, epoch)) = topic.names.get(&open.name)
                        && *epoch > open.resume_epoch.0
                    {
                        let error = ErrorReply::fatal(ErrorCode::ProducerFenced, "newer");
                        return send_error(conn, id, error);
                    }
                    (open.resume, open.resume_epoch)
                } else if open.name.is_empty() {
                    (fresh, ProducerEpoch(1))
                } else {
                    let entry = topic.names.entry(open.name).or_insert((fresh, 0));
                    entry.1 += 1;
                    (entry.0, ProducerEpoch(entry.1))
                };
                let partitions = topic.partitions.iter().enumerate();
                let opened = ProducerOpened {
                    producer,
                    epoch,
                    next: partitions
                        .filter_map(|(index, partition)| {
                            let (next, _) = partition.producers.get(&producer)?;
                            Some((PartitionIndex(index as u32), Sequence(*next)))
                        })
                        .collect(),
                };
                reply(conn, id, opened.to_bytes());
            }
            Method::Produce => {
                let produce = Produce::decode(&mut from).unwrap();
                let transfer = Transfer {
                    id,
                    topic: by_id.unwrap(),
                    produce,
                    batch: message.payload.to_vec(),
                    region: 0,
                    at: 0,
                    data: Vec::new(),
                };
                self.advance(conn, transfer);
            }
            Method::Subscribe => {
                let subscribe = Subscribe::decode(&mut from).unwrap();
                let Some(name) = by_id else {
                    return send_error(conn, id, unknown("by id"));
                };
                let topic = &self.topics[&name];
                let partition = &topic.partitions[subscribe.partition.0 as usize];
                let present = |offset| Position {
                    incarnation: Incarnation(partition.incarnation),
                    offset: Offset(offset),
                };
                let end = partition.events.len() as u64;
                let key = (subscribe.consumer.clone(), subscribe.partition.0);
                let cursor = topic.cursors.get(&key).copied();
                let position = match (subscribe.start, cursor) {
                    (Start::At(position), _) => position,
                    (Start::Cursor | Start::CursorOrLatest, Some(cursor)) => cursor,
                    (Start::Latest, _) | (Start::CursorOrLatest, None) => present(end),
                    (Start::Beginning | Start::Cursor, _) => present(0),
                };
                let subscribed = Subscribed {
                    position,
                    watermarks: marks(partition),
                };
                let subscription = Subscription {
                    topic: name.clone(),
                    partition: subscribe.partition.0,
                    position: position.offset.0,
                    incarnation: position.incarnation.0,
                    credit: subscribe.credit as i64,
                    inline_data: subscribe.inline_data,
                };
                conn.subscriptions.insert(id, subscription);
                reply(conn, id, subscribed.to_bytes());
            }
            Method::Unsubscribe => {
                let unsubscribe = Unsubscribe::decode(&mut from).unwrap();
                conn.subscriptions.remove(&unsubscribe.subscription);
                reply(conn, id, Vec::new());
            }
            Method::Fetch => {
                let fetch = Fetch::decode(&mut from).unwrap();
                let partition = self.partition(&by_id.unwrap(), fetch.partition.0 as usize);
                let end_of = |base: u64, batch: &Bytes| {
                    base + Batch::read(batch.clone(), Verify::Headers)
                        .unwrap()
                        .header
                        .offset_count()
                };
                let batches: Vec<Bytes> = partition
                    .batches
                    .iter()
                    .filter(|(base, batch)| end_of(*base, batch) > fetch.from.offset.0)
                    .map(|(_, batch)| batch.clone())
                    .collect();
                let fetched = Fetched {
                    incarnation: Incarnation(partition.incarnation),
                    batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
                    watermarks: marks(partition),
                };
                conn.link.send(Message {
                    payload: batches,
                    lane: Lane::Bulk,
                    ..Message::control(FrameKind::Reply, id, fetched.to_bytes())
                });
            }
            Method::ReadData => self.read_data(conn, id, &by_id.unwrap(), &mut from),
            Method::MoveCursors => {
                let moves = MoveCursors::decode(&mut from).unwrap();
                let topic = self.topics.get_mut(&by_id.unwrap()).unwrap();
                for (partition, position) in moves.positions {
                    let cursor = topic
                        .cursors
                        .entry((moves.consumer.clone(), partition.0))
                        .or_insert(position);
                    *cursor = match moves.how {
                        CursorMove::Seek => position,
                        CursorMove::Acknowledge => position.max(*cursor),
                    };
                }
                reply(conn, id, Vec::new());
            }
            Method::ReadCursors => {
                let topic = &self.topics[&by_id.unwrap()];
                let cursors = topic
                    .cursors
                    .iter()
                    .map(|((consumer, partition), position)| Cursor {
                        consumer: consumer.clone(),
                        partition: PartitionIndex(*partition),
                        position: *position,
                    });
                let list = CursorList {
                    cursors: cursors.collect(),
                };
                reply(conn, id, list.to_bytes());
            }
            Method::Status => {
                let json = "{}".into();
                reply(conn, id, StatusReply { json }.to_bytes());
            }
            other => panic!("the fake server does not know {other:?}"),
        }
    }

    /// Reads large data of a produce, a chunk at a time, and appends.
    fn advance(&mut self, conn: &mut Conn, mut transfer: Transfer) {
        while let Some(region) = transfer.produce.regions.get(transfer.region) {
            if transfer.at == region.bytes {
                transfer.region += 1;
                transfer.at = 0;
                continue;
            }
            let bytes = (region.bytes - transfer.at).min(BULK_CHUNK_BYTES as u64);
            conn.last_token += 1;
            let token = conn.last_token;
            conn.link.read(
                BulkToken(token),
                RegionRead {
                    region: region.clone(),
                    offset: transfer.at,
                    into: Buffer::zeroed(bytes as usize),
                    block_bytes: 4096,
                },
            );
            conn.transfers.insert(token, transfer);
            return;
        }
        match self.append(&transfer) {
            Ok(produced) => reply(conn, transfer.id, produced.to_bytes()),
            Err(error) => send_error(conn, transfer.id, error),
        }
    }

    fn read_done(
        &mut self,
        conn: &mut Conn,
        token: BulkToken,
        result: Result<(Buffer, Vec<u32>), net::NetError>,
    ) {
        let Some(mut transfer) = conn.transfers.remove(&token.0) else {
            return;
        };
        match result {
            Ok((buffer, checksums)) => {
                let computed: Vec<u32> = buffer.chunks(4096).map(crc32c).collect();
                assert_eq!(computed, checksums);
                transfer.at += buffer.len() as u64;
                transfer.data.extend_from_slice(&buffer);
                self.advance(conn, transfer);
            }
            Err(error) => {
                let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, error.to_string());
                send_error(conn, transfer.id, error);
            }
        }
    }

    fn append(&mut self, transfer: &Transfer) -> Result<Produced, ErrorReply> {
        let partition = self.partition(&transfer.topic, transfer.produce.partition.0 as usize);
        let mut bytes = transfer.batch.clone();
        let batch = Batch::read(&bytes[..], Verify::Sections).unwrap();
        assert!(batch.stamp.is_none());
        let header = batch.header;
        let first = header.first_sequence.0;
        let count = u64::from(header.event_count);
        let produced = |base_offset, incarnation, duplicate| Produced {
            incarnation: Incarnation(incarnation),
            base_offset: Offset(base_offset),
            append_time: 7,
            duplicate,
        };
        let incarnation = partition.incarnation;
        if let Some((next, batches)) = partition.producers.get(&header.producer) {
            if let Some((_, base)) = batches.iter().find(|(other, _)| *other == first) {
                partition.duplicates += 1;
                return Ok(produced(*base, incarnation, true));
            }
            if *next != first {
                return Err(ErrorReply::fatal(
                    ErrorCode::OutOfSequence,
                    format!("expected {next}, got {first}"),
                ));
            }
        }
        let base = partition.events.len() as u64;
        let columns = batch.columns().unwrap();
        let mut external = 0usize;
        for (index, event) in columns.events.iter().enumerate() {
            let start = event.metadata_start as usize;
            let metadata =
                batch.metadata_section()[start..start + event.metadata_bytes as usize].to_vec();
            let length = event.data_bytes as usize;
            let data = if event.external {
                external += length;
                transfer.data[external - length..external].to_vec()
            } else {
                let start = event.data_start as usize;
                batch.inline_section().unwrap()[start..start + length].to_vec()
            };
            partition.events.push(StoredEvent {
                metadata,
                data,
                sequence: first + index as u64,
            });
        }
        assert_eq!(external, transfer.data.len());
        let stamp = Stamp {
            batch_bytes: bytes.len() as u64,
            base_offset: Offset(base),
            append_time: 7,
            header_crc: batch.header_crc,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
        partition.batches.push((base, bytes.into()));
        let entry = partition.producers.entry(header.producer).or_default();
        entry.0 = first + count;
        entry.1.push((first, base));
        Ok(produced(base, incarnation, false))
    }

    fn read_data(&mut self, conn: &mut Conn, id: u64, topic: &str, from: &mut Reader<'_>) {
        let read = ReadData::decode(from).unwrap();
        let mut gathered = Vec::new();
        let mut checksums = Vec::new();
        for wanted in &read.events {
            self.segment_reads
                .push((wanted.offset, wanted.segments.clone()));
            let partition = &self.topics[topic].partitions[wanted.partition.0 as usize];
            let event = &partition.events[wanted.offset.0 as usize];
            let start = gathered.len();
            for segment in &wanted.segments {
                let end = segment.offset + segment.bytes;
                gathered.extend_from_slice(&event.data[segment.offset as usize..end as usize]);
            }
            checksums.push(crc32c(&gathered[start..]));
        }
        if std::mem::take(&mut self.damage_next) {
            gathered[0] ^= 1;
        }
        let mut at = 0;
        for region in read.into {
            let mut offset = 0;
            while offset < region.bytes {
                let bytes = (region.bytes - offset).min(BULK_CHUNK_BYTES as u64);
                conn.last_token += 1;
                let piece = Bytes::copy_from_slice(&gathered[at..at + bytes as usize]);
                at += bytes as usize;
                conn.link.write(
                    BulkToken(conn.last_token),
                    RegionWrite {
                        region: region.clone(),
                        offset,
                        pieces: vec![piece],
                    },
                );
                offset += bytes;
            }
        }
        assert_eq!(at, gathered.len());
        conn.link.send(Message {
            lane: Lane::Bulk,
            ..Message::control(FrameKind::Reply, id, DataRead { checksums }.to_bytes())
        });
    }

    fn deliver(&mut self, conn: &mut Conn) -> bool {
        let mut busy = false;
        if self.is_silent {
            return false;
        }
        let mut messages = Vec::new();
        for (id, subscription) in &mut conn.subscriptions {
            let Some(topic) = self.topics.get(&subscription.topic) else {
                continue;
            };
            let partition = &topic.partitions[subscription.partition as usize];
            if subscription.incarnation < partition.incarnation {
                let gap = partition.gap.unwrap();
                let mut bytes = wire::batch::gap_batch(topic.id, &gap).to_vec();
                let header_crc = Batch::read(&bytes[..], Verify::Headers).unwrap().header_crc;
                Stamp {
                    batch_bytes: bytes.len() as u64,
                    base_offset: gap.end,
                    header_crc,
                    ..Stamp::default()
                }
                .write(&mut bytes);
                subscription.incarnation = partition.incarnation;
                subscription.position = 0;
                messages.push(delivery(
                    *id,
                    gap.incarnation.0,
                    vec![bytes.into()],
                    partition,
                ));
                busy = true;
            }
            for (base, batch) in &partition.batches {
                let read = Batch::read(batch.clone(), Verify::Headers).unwrap();
                let end = base + read.header.offset_count();
                if end <= subscription.position || subscription.credit <= 0 {
                    continue;
                }
                let sent = match subscription.inline_data {
                    true => batch.clone(),
                    false => batch.slice(..read.header.prefix_bytes() as usize),
                };
                subscription.position = end;
                subscription.credit -= sent.len() as i64;
                let mut sent = sent;
                if std::mem::take(&mut self.damage_next) {
                    let mut bytes = sent.to_vec();
                    bytes[SECTIONS_START + 1] ^= 1;
                    sent = bytes.into();
                }
                messages.push(delivery(*id, partition.incarnation, vec![sent], partition));
                busy = true;
            }
        }
        for message in messages {
            conn.link.send(message);
        }
        busy
    }
}

fn marks(partition: &FakePartition) -> Watermarks {
    let end = Offset(partition.events.len() as u64);
    Watermarks {
        end,
        durable: end,
        committed: end,
    }
}

fn delivery(id: u64, incarnation: u64, batches: Vec<Bytes>, partition: &FakePartition) -> Message {
    let deliver = Deliver {
        incarnation: Incarnation(incarnation),
        batch_bytes: batches.iter().map(|batch| batch.len() as u64).collect(),
        watermarks: marks(partition),
    };
    Message {
        payload: batches,
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Deliver, id, deliver.to_bytes())
    }
}

fn reply(conn: &mut Conn, id: u64, head: Vec<u8>) {
    conn.link.send(Message::control(FrameKind::Reply, id, head));
}

fn send_error(conn: &mut Conn, id: u64, error: ErrorReply) {
    let message = Message::control(FrameKind::ErrorReply, id, error.to_bytes());
    conn.link.send(message);
}
