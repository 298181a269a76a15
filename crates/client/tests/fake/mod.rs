//! A scripted server in memory: what the client needs to be tested without
//! the real one. It keeps its events across connections and can be told to
//! refuse, to fall silent, or to cut the connection at any message.

#![allow(dead_code, unused_imports)]

mod consuming;
mod partition;
mod producing;
mod reads;
mod sharing;
mod topics;

use bytes::Bytes;
use consuming::Subscription;
use net::{Link, LinkEvent, Listener, Message, Received};
pub use partition::{FakePartition, StoredEvent};
use producing::Transfer;
pub use sharing::{FakeGroup, FakeQueue, Fate};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::Position;
use wire::view::Segment;
use wire::*;

pub struct FakeTopic {
    pub id: TopicId,
    pub definition: String,
    pub partitions: Vec<FakePartition>,
    pub cursors: BTreeMap<(String, u32), Position>,
    pub names: BTreeMap<String, (ProducerId, u32)>,
    pub queues: BTreeMap<String, FakeQueue>,
    pub groups: BTreeMap<String, FakeGroup>,
}

/// A request whose head is read.
struct Asked {
    id: u64,
    method: Method,
    /// The topic that it names by its id.
    by_id: Option<String>,
    payload: Bytes,
}

struct Conn {
    /// Which connection it is.
    serial: u64,
    link: Box<dyn Link>,
    dead: bool,
    subscriptions: BTreeMap<u64, Subscription>,
    transfers: BTreeMap<u64, Transfer>,
    last_token: u64,
    /// Requests that came while the server was late.
    late: VecDeque<Received>,
}

pub struct FakeServer {
    listener: Box<dyn Listener>,
    conns: Vec<Conn>,
    last_serial: u64,
    pub directory: DirectoryId,
    pub topics: BTreeMap<String, FakeTopic>,
    last_id: u128,
    /// Messages taken so far, heartbeats not counted.
    pub messages: u64,
    /// Topics that another server has, by name and by id, and what is said of where that is.
    pub elsewhere: BTreeMap<String, (TopicId, String)>,
    /// Cut the connection instead of taking message number so and so.
    pub cut_before: BTreeSet<u64>,
    /// Take this message, and cut the connection before its answer goes out.
    pub cut_behind: BTreeSet<u64>,
    /// Errors for the next requests of a method.
    pub refusals: BTreeMap<u16, VecDeque<ErrorReply>>,
    /// Takes what comes and answers nothing.
    pub is_silent: bool,
    /// Takes requests, and does them when it is so no more.
    pub is_late: bool,
    /// Payload that came while it was silent.
    pub unanswered_bytes: usize,
    pub produce_credit: u64,
    pub heartbeat_ms: u32,
    /// Damages the next delivery or data read.
    pub damage_next: bool,
    /// Events whose data cannot be read where it is stored.
    pub damaged_data: BTreeSet<u64>,
    /// How many of each kind came.
    pub requests: BTreeMap<u16, u64>,
    pub credits: u64,
    pub heartbeats: u64,
    pub token: Option<Bytes>,
    /// What clients have presented, mechanism and proof, in a Hello or later.
    pub presented: Vec<(String, Bytes)>,
    /// How long a credential is good, if the server says so.
    pub credential_ms: Option<u64>,
    /// Why it takes no other credential on a connection that stands.
    pub renewal_refused: String,
    /// The certificates that come with what is said next of the credential.
    pub issued: Vec<bytes::Bytes>,
    /// What a Hello is answered with.
    pub hello_error: Option<Bytes>,
    /// Cuts the network itself, so that nothing that is under way arrives.
    pub cutter: Option<Box<dyn Fn() + Send>>,
    pub segment_reads: Vec<(Offset, Vec<Segment>)>,
    /// Batches of a mirror that came, as their payload.
    pub mirrored: Vec<Vec<u8>>,
}

impl FakeServer {
    pub fn new(listener: Box<dyn Listener>) -> Self {
        Self {
            listener,
            conns: Vec::new(),
            last_serial: 0,
            directory: DirectoryId(0xd1),
            topics: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            last_id: 100,
            messages: 0,
            cut_before: BTreeSet::new(),
            cut_behind: BTreeSet::new(),
            refusals: BTreeMap::new(),
            is_silent: false,
            is_late: false,
            unanswered_bytes: 0,
            produce_credit: 16 << 20,
            heartbeat_ms: 10_000,
            damage_next: false,
            damaged_data: BTreeSet::new(),
            requests: BTreeMap::new(),
            credits: 0,
            heartbeats: 0,
            token: None,
            presented: Vec::new(),
            credential_ms: None,
            renewal_refused: String::new(),
            issued: Vec::new(),
            hello_error: None,
            cutter: None,
            segment_reads: Vec::new(),
            mirrored: Vec::new(),
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
        self.partition(topic, partition).lose();
    }

    /// As a power loss does it, of which this many batches were spared.
    pub fn lose_power(&mut self, topic: &str, partition: usize, kept: usize) {
        self.partition(topic, partition).lose_power(kept);
    }

    /// What a hint names this server by, at this address.
    pub fn hint(&self, address: &str) -> String {
        format!("{address}#{}", self.directory)
    }

    /// A topic goes to another server, at this address, with all that it has. What stands of it here ends.
    pub fn move_topic(&mut self, name: &str, to: &mut Self, address: &str) {
        let topic = self.topics.remove(name).unwrap();
        let hint = to.hint(address);
        to.elsewhere.remove(name);
        self.elsewhere
            .insert(name.to_owned(), (topic.id, hint.clone()));
        to.topics.insert(name.to_owned(), topic);
        for conn in &mut self.conns {
            for id in conn.end_subscriptions(name) {
                let error = ErrorReply {
                    leader_hint: hint.clone(),
                    ..ErrorReply::retryable(ErrorCode::NotLeader, 0, "it has moved")
                };
                let ended = Message::control(FrameKind::Ended, id, error.to_bytes());
                conn.link.send(ended);
            }
        }
    }

    /// What is said of where that is what a request is about, if another server has it.
    fn place_of(&self, request: &RequestHead, from: &Reader<'_>) -> Option<String> {
        let by_name = match request.method {
            Method::CreateTopic | Method::DescribeTopic | Method::DeleteTopic => {
                // All of them begin with the name.
                let name = TopicName::decode(&mut from.clone()).ok()?.name;
                self.elsewhere.get(&name)
            }
            _ => None,
        };
        let mut all = self.elsewhere.values();
        let found = by_name.or_else(|| all.find(|(id, _)| *id == request.topic));
        found.map(|(_, hint)| hint.clone())
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

    /// Has every link call `notify`.
    pub fn attach(&mut self, notify: &net::Notify) {
        self.listener.attach(notify.clone());
        for conn in &mut self.conns {
            conn.link.attach(notify.clone());
        }
    }

    /// Does what there is to do; false if there was nothing.
    pub fn turn(&mut self, notify: Option<&net::Notify>) -> bool {
        let mut busy = false;
        while let Ok(Some(mut link)) = self.listener.accept() {
            if let Some(notify) = notify {
                link.attach(notify.clone());
            }
            self.last_serial += 1;
            self.conns.push(Conn {
                serial: self.last_serial,
                link,
                dead: false,
                subscriptions: BTreeMap::new(),
                transfers: BTreeMap::new(),
                last_token: 0,
                late: VecDeque::new(),
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
            while !conn.dead && !self.is_late {
                let Some(message) = conn.late.pop_front() else {
                    break;
                };
                busy = true;
                self.request(conn, message);
            }
            if !conn.dead {
                busy |= self.deliver(conn);
                busy |= self.lease(conn);
            }
            while !conn.dead {
                let Some(event) = conn.link.poll() else { break };
                busy = true;
                self.event(conn, event);
            }
        }
        conns.retain(|conn| !conn.dead);
        if notify.is_some() && !busy {
            // Only disarmed ones notify.
            busy = conns.iter_mut().any(|conn| !conn.link.rest());
        }
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
            FrameKind::Request if self.is_late => conn.late.push_back(message),
            FrameKind::Request => self.request(conn, message),
            FrameKind::Credit => {
                self.credits += 1;
                let credit = Credit::from_bytes("credit", &message.head).unwrap();
                if let Some(subscription) = conn.subscriptions.get_mut(&message.id) {
                    subscription.credit += credit.bytes as i64;
                    if let Some(granted) = subscription.granted {
                        let now = subscription.credit;
                        assert!(now <= granted, "a credit of {granted} bytes grew to {now}");
                    }
                }
            }
            FrameKind::Authenticate => {
                let asked = Authenticate::from_bytes("authenticate", &message.head).unwrap();
                self.presented.push((asked.mechanism, asked.proof));
                self.say_how_long(conn);
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
        let presented = (hello.mechanism.clone(), hello.proof.clone());
        self.presented.push(presented);
        if let Some(error) = &self.hello_error {
            let error = Message::control(FrameKind::ErrorReply, 0, error.clone());
            return conn.link.send(error);
        }
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
            stripes: Default::default(),
            stripe_key: Default::default(),
        };
        conn.link.send(Message::control(
            FrameKind::Welcome,
            message.id,
            welcome.to_bytes(),
        ));
        self.say_how_long(conn);
    }

    fn say_how_long(&mut self, conn: &mut Conn) {
        let Some(expires_in_ms) = self.credential_ms else {
            return;
        };
        let said = Authenticated {
            expires_in_ms,
            renew_in_ms: match expires_in_ms {
                u64::MAX => u64::MAX,
                left => left * 2 / 3,
            },
            refused: self.renewal_refused.clone(),
            message: String::new(),
            issued: std::mem::take(&mut self.issued),
        };
        let said = Message::control(FrameKind::Authenticate, 0, said.to_bytes());
        conn.link.send(said);
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
        if let Some(hint) = self.place_of(&request, &from) {
            let error = ErrorReply {
                leader_hint: hint,
                ..ErrorReply::retryable(ErrorCode::NotLeader, 0, "another server has it")
            };
            return send_error(conn, id, error);
        }
        let asked = Asked {
            id,
            method: request.method,
            by_id: self.topic_of(request.topic),
            payload: message.payload.freeze(),
        };
        match request.method {
            Method::CreateTopic
            | Method::DescribeTopic
            | Method::AddPartitions
            | Method::ListTopics
            | Method::DeleteTopic => self.answer_about_topics(conn, asked, &mut from),
            Method::OpenProducer | Method::Produce => {
                self.answer_producer(conn, asked, &mut from);
            }
            Method::Subscribe
            | Method::SubscribeScoped
            | Method::Unsubscribe
            | Method::MoveCursors
            | Method::MoveMemberCursors
            | Method::ReadCursors => self.answer_consumer(conn, asked, &mut from),
            Method::Join
            | Method::Leave
            | Method::Release
            | Method::Settle
            | Method::ExtendLeases
            | Method::DescribeConsumers => self.answer_member(conn, asked, &mut from),
            Method::Fetch | Method::ReadData => self.answer_read(conn, asked, &mut from),
            Method::AppendMirrored => {
                self.mirrored.push(asked.payload.to_vec());
                let produced = Produced {
                    incarnation: Incarnation(0),
                    base_offset: Offset(0),
                    append_time: 0,
                    duplicate: false,
                };
                reply(conn, id, produced.to_bytes());
            }
            Method::Status => {
                let json = "{}".into();
                reply(conn, id, StatusReply { json }.to_bytes());
            }
            other => panic!("the fake server does not know {other:?}"),
        }
    }
}

fn reply(conn: &mut Conn, id: u64, head: Vec<u8>) {
    conn.link.send(Message::control(FrameKind::Reply, id, head));
}

fn send_error(conn: &mut Conn, id: u64, error: ErrorReply) {
    let message = Message::control(FrameKind::ErrorReply, id, error.to_bytes());
    conn.link.send(message);
}

fn unknown(text: &str) -> ErrorReply {
    ErrorReply::fatal(ErrorCode::UnknownTopic, text.to_owned())
}
