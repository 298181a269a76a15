//! A listener between clients that are bytes and a node that does as a test says.

use crate::amqp_listener::message::Message;
use crate::amqp_listener::{AmqpListener, Options, Out};
use amqp::{Content, Method, Properties, ShortString, basic, connection_methods as methods};
use broker::answer::{Answer, Batches, ClientOutput, Delivery};
use broker::node::{Input, LinkId, Now};
use broker::request::{
    ClientInput, CoordinatorRequest, DescribeRequest, PartitionRequest, QueueRequest, Request,
};
use bytes::{Buf, Bytes, BytesMut};
use memory::Pool;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::batch::{BatchBuilder, EventParts, Origin, Stamp, Verify};
use wire::message::*;
use wire::record::{ConsumerKind, Position};
use wire::{
    ErrorCode, ErrorReply, Incarnation, LeaseId, Offset, PartitionIndex, ProducerEpoch, ProducerId,
    Sequence, TopicId,
};

/// What the node may be asked that a test refuses, or keeps waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Join,
    Settle,
    ReadData,
    Produce(TopicId),
}

/// What the node does with it.
#[derive(Debug, Clone)]
pub enum Does {
    Refuse(ErrorReply),
    Nothing,
}

pub struct Rig {
    pub listener: AmqpListener,
    pub now: Now,
    /// What the node does otherwise than well.
    pub does: BTreeMap<Asked, Does>,
    /// What a client may not do: a verb and a topic.
    pub forbidden: BTreeSet<(String, String)>,
    pub checked: Vec<(String, String)>,
    /// Topics by their names, as they were made.
    pub topics: BTreeMap<String, TopicDescription>,
    pub deleted: Vec<String>,
    pub settled: Vec<Settlement>,
    pub joins: u64,
    /// How many batches were stored.
    pub produced: u64,
    pub prefetches: Vec<broker::request::Prefetch>,
    /// What the node says of records.
    pub records: Batches,
    pub reports: Vec<String>,
    pub closed: BTreeSet<net::LinkId>,
    pub waiting: u64,
    /// The session and the call by which each topic's queue has joined.
    members: BTreeMap<TopicId, (LinkId, u64)>,
    said: BTreeMap<net::LinkId, BytesMut>,
    leases: u64,
    answers: Vec<(LinkId, ClientOutput)>,
}

pub fn fatal(code: ErrorCode) -> Does {
    Does::Refuse(ErrorReply::fatal(code, "as the test says"))
}

pub fn for_now(code: ErrorCode) -> Does {
    Does::Refuse(ErrorReply::retryable(code, 1, "as the test says"))
}

pub fn name(text: &str) -> ShortString {
    ShortString::truncated(text)
}

impl Default for Rig {
    fn default() -> Self {
        Self {
            listener: AmqpListener::new(Options {
                payload_bytes_max: 64 << 20,
                pool: Pool::new(1 << 20),
                random: || 7,
                guest: Some([7; 32]),
            }),
            now: Now {
                monotonic: Duration::from_secs(1),
                unix_ns: 1_700_000_000_000_000_000,
            },
            does: BTreeMap::new(),
            forbidden: BTreeSet::new(),
            checked: Vec::new(),
            topics: BTreeMap::new(),
            deleted: Vec::new(),
            settled: Vec::new(),
            joins: 0,
            produced: 0,
            prefetches: Vec::new(),
            records: Batches {
                incarnation: Incarnation(1),
                batches: Vec::new(),
                watermarks: at_zero(),
            },
            reports: Vec::new(),
            closed: BTreeSet::new(),
            waiting: 0,
            members: BTreeMap::new(),
            said: BTreeMap::new(),
            leases: 0,
            answers: Vec::new(),
        }
    }
}

impl Rig {
    /// Carries out what the listener puts out, and answers it.
    pub fn pump(&mut self) {
        loop {
            if let Some(out) = self.listener.poll() {
                self.out(out);
            } else if !self.answers.is_empty() {
                let (link, output) = self.answers.remove(0);
                self.listener.said(self.now, link, output);
            } else {
                return;
            }
        }
    }

    fn out(&mut self, out: Out) {
        match out {
            Out::Node(Input::ClientHello { link, .. }) => {
                let welcome = ClientOutput::Welcome {
                    produce_credit: 16 << 20,
                    namespace: String::new(),
                };
                self.answers.push((link, welcome));
            }
            Out::Node(Input::Client { link, input }) => match input {
                ClientInput::Call(call) => {
                    if let Some(answer) = self.answer(link, call.id, call.request) {
                        let id = call.id;
                        let output = ClientOutput::Answer { id, answer };
                        self.answers.push((link, output));
                    }
                }
                ClientInput::Prefetch { prefetch, .. } => self.prefetches.push(prefetch),
                _ => {}
            },
            Out::Node(_) | Out::Hold { .. } | Out::Known { .. } => {}
            Out::Send { client, bytes } => {
                self.said.entry(client).or_default().extend(bytes);
            }
            Out::Close { client, .. } => drop(self.closed.insert(client)),
            Out::Report(line) => self.reports.push(line.text),
        }
    }

    fn refused(&self, asked: Asked) -> Option<Option<Result<Answer, ErrorReply>>> {
        Some(match self.does.get(&asked)? {
            Does::Refuse(error) => Some(Err(error.clone())),
            Does::Nothing => None,
        })
    }

    /// What the node says, unless it says nothing.
    fn answer(
        &mut self,
        link: LinkId,
        id: u64,
        request: Request,
    ) -> Option<Result<Answer, ErrorReply>> {
        let asked = match &request {
            Request::Coordinator(CoordinatorRequest::Join(topic, _)) => {
                self.joins += 1;
                self.members.insert(*topic, (link, id));
                Some(Asked::Join)
            }
            Request::Queue(..) => Some(Asked::Settle),
            Request::Partition(target, PartitionRequest::Produce(..)) => {
                Some(Asked::Produce(target.topic))
            }
            Request::Partition(_, PartitionRequest::ReadData(_)) => Some(Asked::ReadData),
            _ => None,
        };
        if let Some(refused) = asked.and_then(|asked| self.refused(asked)) {
            return refused;
        }
        Some(Ok(match request {
            Request::Describe(DescribeRequest::ListTopics(_)) => Answer::Topics(TopicList {
                topics: self.topics.values().cloned().collect(),
                others: Vec::new(),
            }),
            Request::Describe(DescribeRequest::DescribeConsumers(topic, _)) => {
                let _: TopicId = topic;
                self.consumers()
            }
            Request::Describe(DescribeRequest::CheckAccess(check)) => {
                let asked = (check.verb, check.topic);
                let allowed = !self.forbidden.contains(&asked);
                self.checked.push(asked);
                Answer::AccessChecked(AccessChecked {
                    allowed,
                    reason: "the test forbids it".to_owned(),
                })
            }
            Request::Coordinator(CoordinatorRequest::CreateTopic(_, create)) => {
                Answer::Topic(self.make(&create.name, &create.definition))
            }
            Request::Coordinator(CoordinatorRequest::DeleteTopic(_, gone)) => {
                self.topics.remove(&gone.name);
                self.deleted.push(gone.name);
                Answer::Done
            }
            Request::Coordinator(CoordinatorRequest::Join(..)) => Answer::Joined(Joined {
                options: String::new(),
                settled: Vec::new(),
                expired: Vec::new(),
                recovering_ms: Default::default(),
            }),
            Request::Coordinator(CoordinatorRequest::OpenProducer(..)) => {
                Answer::ProducerOpened(ProducerOpened {
                    producer: ProducerId(1),
                    epoch: ProducerEpoch(1),
                    next: Vec::new(),
                })
            }
            Request::Partition(_, PartitionRequest::Produce(..)) => {
                self.produced += 1;
                Answer::Produced(Produced {
                    incarnation: Incarnation(1),
                    base_offset: Offset(0),
                    append_time: 0,
                    duplicate: false,
                })
            }
            Request::Partition(_, PartitionRequest::Fetch(_)) => Answer::Fetched(Batches {
                incarnation: self.records.incarnation,
                batches: self.records.batches.clone(),
                watermarks: self.records.watermarks,
            }),
            Request::Queue(_, QueueRequest::Settle(settle)) => {
                self.settled.extend(settle.settlements);
                Answer::Settled(Settled {
                    expired: Vec::new(),
                })
            }
            other => panic!("the node is not asked such things: {other:?}"),
        }))
    }

    pub fn make(&mut self, name: &str, definition: &str) -> TopicDescription {
        let partition = PartitionDescription {
            partition: PartitionIndex(0),
            storage: PartitionStorage {
                kind: "memory".to_owned(),
                config: String::new(),
            },
            durability: wire::Durability::Memory,
            incarnation: Incarnation(1),
            leader_epoch: 0,
            ended: Vec::new(),
            first: Offset(0),
            watermarks: at_zero(),
            bytes: 0,
            failure: String::new(),
        };
        let description = TopicDescription {
            name: name.to_owned(),
            topic: TopicId(self.topics.len() as u128 + 1),
            definition: definition.to_owned(),
            partitions: vec![partition],
        };
        self.topics.insert(name.to_owned(), description.clone());
        description
    }

    fn consumers(&self) -> Answer {
        let partition = ConsumerPartition {
            partition: PartitionIndex(0),
            position: Position {
                incarnation: Incarnation(1),
                offset: Offset(0),
            },
            end: Offset(self.waiting),
            settled: 0,
            leased: 0,
            returned: 0,
            delayed: 0,
            dead: 0,
        };
        let consumer = ConsumerDescription {
            consumer: "amqp".to_owned(),
            kind: ConsumerKind::Queue,
            options: String::new(),
            members: Vec::new(),
            partitions: vec![partition],
        };
        Answer::Consumers(ConsumerList {
            consumers: vec![consumer],
        })
    }

    /// The topic of a queue.
    pub fn topic(&self, queue: &str) -> TopicId {
        let mut topics = self.topics.values();
        let found = topics.find(|topic| topic.name.starts_with(&format!("{queue}.amqp-")));
        found.expect("the queue has a topic").topic
    }

    /// The node gives a queue this message, or one whose data is elsewhere.
    pub fn lease(&mut self, queue: &str, offset: u64, body: Option<&'static [u8]>) {
        let topic = self.topic(queue);
        let mut builder = BatchBuilder::default();
        match body {
            Some(body) => message(body).encode().push(&mut builder),
            None => builder.push(EventParts {
                metadata: b"{}",
                external_bytes: Some(100),
                ..EventParts::default()
            }),
        }
        let origin = Origin {
            topic,
            producer: ProducerId(1),
            epoch: ProducerEpoch(1),
            first_sequence: Sequence(0),
        };
        let mut bytes = builder.seal(origin, 4096).to_vec();
        let batch = wire::batch::Batch::read(bytes.as_slice(), Verify::Headers).unwrap();
        let stamp = Stamp {
            batch_bytes: batch.header.batch_bytes(),
            header_crc: batch.header_crc,
            base_offset: Offset(offset),
            append_time: self.now.unix_ns,
            ..Stamp::default()
        };
        stamp.write(&mut bytes);
        self.leases += 1;
        let leased = Leased {
            batch_bytes: vec![bytes.len() as u64],
            leases: vec![Lease {
                partition: PartitionIndex(0),
                incarnation: Incarnation(1),
                first: Offset(offset),
                end: Offset(offset + 1),
                lease: LeaseId(self.leases),
                deliveries: 1,
            }],
            lease_ms: 1000,
            gaps: Default::default(),
        };
        let delivery = Delivery::Leased(leased, vec![bytes.into()]);
        self.deliver(queue, delivery);
    }

    /// Something comes to a queue.
    pub fn deliver(&mut self, queue: &str, delivery: Delivery) {
        let (link, id) = self.members[&self.topic(queue)];
        let output = ClientOutput::Delivery { id, delivery };
        self.listener.said(self.now, link, output);
        self.pump();
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.unix_ns += u64::try_from(time.as_nanos()).unwrap();
        self.listener.handle_timeout(self.now);
        self.pump();
    }

    /// A client with one open channel, number 1.
    pub fn client(&mut self, id: u64) -> net::LinkId {
        let link = self.stranger(id);
        assert!(matches!(
            self.heard(link).pop(),
            Some(Method::ConnectionOpenOk(_))
        ));
        self.ask(link, amqp::channel::Open {});
        self.heard(link);
        link
    }

    /// A client that has asked for its virtual host.
    pub fn stranger(&mut self, id: u64) -> net::LinkId {
        let link = net::LinkId(id);
        let peer = net::Peer::default();
        self.listener.connected(self.now, link, peer, false);
        self.bytes(link, &amqp::PROTOCOL_HEADER);
        let known = amqp::Table::of([("connection.blocked", amqp::Value::Bool(true))]);
        let said = amqp::Table::of([("capabilities", amqp::Value::Table(known))]);
        let start_ok = methods::StartOk {
            client_properties: said,
            mechanism: name("PLAIN"),
            response: Bytes::from_static(b"\0guest\0guest"),
            locale: name("en_US"),
        };
        self.say(link, 0, start_ok);
        let tune_ok = methods::TuneOk {
            heartbeat: 60,
            ..Default::default()
        };
        self.say(link, 0, tune_ok);
        let open = methods::Open {
            virtual_host: name("/"),
        };
        self.say(link, 0, open);
        link
    }

    pub fn bytes(&mut self, link: net::LinkId, bytes: &[u8]) {
        self.listener.received(self.now, link, bytes);
        self.pump();
    }

    /// A client says something on its channel.
    pub fn ask(&mut self, link: net::LinkId, method: impl Into<Method>) {
        self.say(link, 1, method);
    }

    fn say(&mut self, link: net::LinkId, channel: u16, method: impl Into<Method>) {
        self.bytes(link, &self::method(channel, method));
    }

    /// A client publishes the beginning of a message, whose body is to have so many bytes.
    pub fn begin(&mut self, link: net::LinkId, body_bytes: u64, come: usize) {
        self.ask(link, basic::Publish::default());
        let mut header = vec![0, 60, 0, 0];
        header.extend(body_bytes.to_be_bytes());
        header.extend([0, 0]);
        self.bytes(link, &frame(2, 1, &header));
        for piece in vec![0; come].chunks(1 << 19) {
            self.bytes(link, &frame(3, 1, piece));
        }
    }

    pub fn publish(&mut self, link: net::LinkId, queue: &str, body: &[u8]) {
        self.bytes(link, &published(queue, body));
    }

    /// A client publishes, and closes its connection, all at once.
    pub fn publish_and_close(&mut self, link: net::LinkId, queue: &str) {
        let close = method(0, methods::Close::default());
        self.bytes(link, &[published(queue, b"m"), close].concat());
    }

    pub fn declare(&mut self, link: net::LinkId, queue: &str, arguments: amqp::Table) {
        let declare = amqp::queue::Declare {
            queue: name(queue),
            durable: true,
            arguments,
            ..Default::default()
        };
        self.ask(link, declare);
    }

    /// The methods that a client was sent since.
    pub fn heard(&mut self, link: net::LinkId) -> Vec<Method> {
        let mut bytes = self.said.remove(&link).unwrap_or_default().freeze();
        let mut methods = Vec::new();
        while bytes.len() >= 8 {
            let kind = bytes.get_u8();
            bytes.advance(2);
            let length = bytes.get_u32() as usize;
            let payload = bytes.split_to(length);
            bytes.advance(1);
            if kind == 1 {
                methods.push(Method::decode(payload).unwrap());
            }
        }
        methods
    }
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(channel.to_be_bytes());
    out.extend((payload.len() as u32).to_be_bytes());
    out.extend(payload);
    out.push(amqp::FRAME_END);
    out
}

/// The frames of a message on channel 1.
fn published(queue: &str, body: &[u8]) -> Vec<u8> {
    let mut payload = BytesMut::new();
    let publish = basic::Publish {
        routing_key: name(queue),
        ..Default::default()
    };
    Method::from(publish).encode(&mut payload);
    let mut header = vec![0, 60, 0, 0];
    header.extend((body.len() as u64).to_be_bytes());
    header.extend([0, 0]);
    let all = [
        frame(1, 1, &payload),
        frame(2, 1, &header),
        frame(3, 1, body),
    ];
    all.concat()
}

/// The frame of a method.
fn method(channel: u16, method: impl Into<Method>) -> Vec<u8> {
    let mut payload = BytesMut::new();
    method.into().encode(&mut payload);
    frame(1, channel, &payload)
}

const fn at_zero() -> Watermarks {
    Watermarks {
        end: Offset(0),
        durable: Offset(0),
        committed: Offset(0),
    }
}

fn message(body: &'static [u8]) -> Message {
    Message {
        exchange: name(""),
        routing_key: name("q"),
        content: Content {
            properties: Properties::default().encode(),
            body: Bytes::from_static(body),
        },
    }
}
