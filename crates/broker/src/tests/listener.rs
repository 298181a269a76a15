//! A listener of another protocol: lines of text.
//!
//! ```text
//! produce TOPIC TEXT      ok OFFSET
//! consume TOPIC           event OFFSET TEXT, for each
//! take TOPIC QUEUE        event OFFSET TEXT, for each that the client is given; all at once are
//! settle                  settled by this
//! ```
//!
//! It knows requests, answers and batches, and no frame of Thalweg's own protocol; neither does
//! anything behind it know lines.

use super::harness::{Ground, World, storage};
use crate::answer::{Answer, Batches, ClientOutput, Delivery};
use crate::identity::{Identity, Proof};
use crate::node::{Input, LinkId};
use crate::request::{
    Call, ClientInput, CoordinatorRequest, DescribeRequest, PartitionRequest, QueueRequest,
    Request, Target,
};
use crate::verified::Verified;
use memory::Buffer;
use net::{NetError, Peer};
use std::time::Duration;
use wire::batch::{Batch, BatchBuilder, EventParts, Origin, Verify};
use wire::codec::Appended;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::*;

/// One client of the listener.
struct Lines {
    link: LinkId,
    next: u64,
    /// What it produces as, and how many events that has produced.
    producer: Option<(ProducerId, ProducerEpoch, u64)>,
    /// The queue that it is a member of, and what it was given there.
    member: Option<(TopicId, String)>,
    leases: Vec<Lease>,
    settled: u64,
}

const MEMBER: MemberId = MemberId(0x11);

impl Lines {
    fn connect(world: &mut World, link: u64) -> Self {
        let link = LinkId(link);
        world.input(Input::ClientUp {
            link,
            peer: Peer::default(),
            identity: Identity {
                proof: Proof::Token,
                access: access::Identity::owner(Default::default(), Default::default()),
                namespace: String::new(),
                client_name: "a client of lines".into(),
                session: SessionId(0),
            },
        });
        Self {
            link,
            next: 0,
            producer: None,
            member: None,
            leases: Vec::new(),
            settled: 0,
        }
    }

    /// A line has come.
    fn line(&mut self, world: &mut World, line: &str) -> Vec<String> {
        let done = match line.split_once(' ').unwrap_or((line, "")) {
            ("produce", rest) => {
                let (topic, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.produce(world, topic, text)
            }
            ("consume", topic) => self.consume(world, topic),
            ("take", rest) => {
                let (topic, queue) = rest.split_once(' ').unwrap_or((rest, ""));
                self.take(world, topic, queue)
            }
            ("settle", _) => self.settle(world),
            (word, _) => Ok(vec![format!("error {word:?} is no command")]),
        };
        let mut said = done.unwrap_or_else(|error| vec![format!("error {error}")]);
        said.extend(self.delivered(world));
        said
    }

    fn produce(
        &mut self,
        world: &mut World,
        topic: &str,
        text: &str,
    ) -> Result<Vec<String>, ErrorReply> {
        let target = self.topic(world, topic)?;
        let (producer, epoch, count) = match self.producer {
            Some(known) => known,
            None => {
                let open = OpenProducer {
                    name: String::new(),
                    resume: ProducerId(0),
                    resume_epoch: ProducerEpoch(0),
                };
                let request = CoordinatorRequest::OpenProducer(target.topic, open);
                let Answer::ProducerOpened(opened) = self.call(world, request.into())? else {
                    panic!("a producer's identity");
                };
                (opened.producer, opened.epoch, 0)
            }
        };
        let mut builder = BatchBuilder::default();
        builder.push(EventParts {
            metadata: text.as_bytes(),
            ..EventParts::default()
        });
        let origin = Origin {
            topic: target.topic,
            producer,
            epoch,
            first_sequence: Sequence(count),
        };
        let batch = Buffer::copy_of(&builder.seal(origin, 4096).to_vec());
        let produce = Produce {
            partition: PartitionIndex(0),
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        let request = PartitionRequest::Produce(produce, Verified::read(batch)?);
        let Answer::Produced(produced) = self.call(world, Request::Partition(target, request))?
        else {
            panic!("an offset");
        };
        self.producer = Some((producer, epoch, count + 1));
        Ok(vec![format!("ok {}", produced.base_offset)])
    }

    fn consume(&mut self, world: &mut World, topic: &str) -> Result<Vec<String>, ErrorReply> {
        let target = self.topic(world, topic)?;
        let subscribe = Subscribe {
            consumer: String::new(),
            partition: PartitionIndex(0),
            start: Start::Beginning,
            credit: 1 << 20,
            inline_data: true,
            latest: Appended(false),
        };
        let request = PartitionRequest::Subscribe(SubscribeScoped {
            member: MemberId(0),
            key: None,
            subscribe,
        });
        self.call(world, Request::Partition(target, request))
            .map(|_| Vec::new())
    }

    fn take(
        &mut self,
        world: &mut World,
        topic: &str,
        queue: &str,
    ) -> Result<Vec<String>, ErrorReply> {
        let target = self.topic(world, topic)?;
        let join = Join {
            consumer: queue.into(),
            kind: ConsumerKind::Queue,
            options: r#"{"deliveries_max":0}"#.into(),
            start: Start::Beginning,
            member: MEMBER,
            before: MemberId(0),
            instance: String::new(),
            session_timeout_ms: 10_000,
            prefetch_events: 10,
            prefetch_bytes: 1 << 20,
            inline_data: true,
            held: Vec::new(),
        };
        let request = CoordinatorRequest::Join(target.topic, join);
        self.call(world, request.into())?;
        self.member = Some((target.topic, queue.to_owned()));
        Ok(Vec::new())
    }

    fn settle(&mut self, world: &mut World) -> Result<Vec<String>, ErrorReply> {
        let (topic, consumer) = self.member.clone().expect("it has joined");
        self.settled += 1;
        let settlement = |lease| Settlement {
            lease,
            how: SettleAs::Acknowledge,
            delay_ms: 0,
            reason: String::new(),
        };
        let settle = Settle {
            consumer,
            member: MEMBER,
            sequence: self.settled,
            settlements: self.leases.drain(..).map(settlement).collect(),
            worked_us: 0,
        };
        let request = Request::Queue(topic, QueueRequest::Settle(settle));
        match self.call(world, request)? {
            Answer::Settled(settled) => Ok(vec![format!("{} expired", settled.expired.len())]),
            other => panic!("{other:?}"),
        }
    }

    fn topic(&mut self, world: &mut World, name: &str) -> Result<Target, ErrorReply> {
        let request = DescribeRequest::DescribeTopic(TopicName { name: name.into() });
        let Answer::Topic(topic) = self.call(world, request.into())? else {
            panic!("a topic");
        };
        Ok(Target {
            topic: topic.topic,
            leader_epoch: 0,
        })
    }

    fn call(&mut self, world: &mut World, request: Request) -> Result<Answer, ErrorReply> {
        self.next += 1;
        let id = self.next;
        self.say(
            world,
            ClientInput::Call(Box::new(Call {
                id,
                request,
                patience: None,
                is_quiet: false,
            })),
        );
        let said = world.said.entry(self.link).or_default();
        let is_answer = |output: &ClientOutput| matches!(output, ClientOutput::Answer { id: of, .. } if *of == id);
        let at = said.iter().position(is_answer).expect("it is answered");
        match said.remove(at) {
            ClientOutput::Answer { answer, .. } => answer,
            _ => unreachable!(),
        }
    }

    fn say(&self, world: &mut World, input: ClientInput) {
        world.input(Input::Client {
            link: self.link,
            input,
        });
    }

    /// What has come to subscriptions and memberships, as lines.
    fn delivered(&mut self, world: &mut World) -> Vec<String> {
        let said = std::mem::take(world.said.entry(self.link).or_default());
        let mut lines = Vec::new();
        for output in said {
            match output {
                ClientOutput::Delivery { id, delivery } => match delivery {
                    Delivery::Events(Batches { batches, .. }) => {
                        let bytes = batches.iter().map(|batch| batch.len() as u64).sum();
                        batches.iter().for_each(|batch| lines.extend(events(batch)));
                        self.say(world, ClientInput::Credit { id, bytes });
                    }
                    Delivery::Leased(leased, pieces) => {
                        let bytes = pieces.concat();
                        let mut at = 0;
                        for length in leased.batch_bytes {
                            let end = at + length as usize;
                            lines.extend(events(&bytes[at..end]));
                            at = end;
                        }
                        self.leases.extend(leased.leases);
                    }
                    Delivery::Ended(error) => lines.push(format!("ended {error}")),
                    Delivery::Assigned(_) => panic!("it is in no group"),
                },
                ClientOutput::Answer { answer, .. } => panic!("{answer:?}"),
                ClientOutput::Probe => self.say(world, ClientInput::Alive),
                ClientOutput::GoAway(error) => lines.push(format!("bye {error}")),
                // It came in without a hello.
                ClientOutput::Welcome { .. } | ClientOutput::Credential(_) => panic!("{output:?}"),
            }
        }
        lines
    }
}

/// The events of a stored batch.
fn events(batch: &[u8]) -> Vec<String> {
    let batch = Batch::read(batch, Verify::Sections).unwrap();
    let base = batch.stamp.unwrap().base_offset;
    let text = |event: &wire::batch::EventRef| {
        let start = event.metadata_start as usize;
        let bytes = &batch.metadata_section()[start..start + event.metadata_bytes as usize];
        let offset = base.plus(u64::from(event.offset_delta));
        format!("event {offset} {}", str::from_utf8(bytes).unwrap())
    };
    batch.columns().unwrap().events.iter().map(text).collect()
}

#[test]
fn what_comes_by_another_protocol_is_read_by_the_own_one() {
    let mut world = Ground::new().start();
    let native = world.connect();
    let topic = world.topic(native);
    let mut lines = Lines::connect(&mut world, 900);
    assert_eq!(lines.line(&mut world, "produce t one"), ["ok 0"]);
    let subscription = world.subscribe(native, topic, "c", Start::Beginning);
    assert_eq!(world.texts(native, subscription), ["one"]);
    assert_eq!(lines.line(&mut world, "produce t two"), ["ok 1"]);
    assert_eq!(world.texts(native, subscription), ["one", "two"]);
}

#[test]
fn what_comes_by_the_own_protocol_is_read_by_another_one() {
    let mut world = Ground::new().start();
    let native = world.connect();
    let topic = world.topic(native);
    world.stored(native, topic, (7, 0), &["one", "two"]);
    let mut lines = Lines::connect(&mut world, 900);
    let said = lines.line(&mut world, "consume t");
    assert_eq!(said, ["event 0 one", "event 1 two"]);
    world.stored(native, topic, (7, 2), &["three"]);
    assert_eq!(lines.delivered(&mut world), ["event 2 three"]);
    // Credit comes back with each delivery.
    for index in 0..100 {
        let text = format!("{index} {}", "x".repeat(20_000));
        world.stored(native, topic, (7, 3 + index), &[&text]);
        assert_eq!(
            lines.delivered(&mut world),
            [format!("event {} {text}", 3 + index)]
        );
    }
}

#[test]
fn a_queue_has_members_of_both_protocols() {
    let mut world = Ground::new().start();
    let native = world.connect();
    let topic = world.topic(native);
    world.stored(native, topic, (7, 0), &["one", "two"]);
    let mut lines = Lines::connect(&mut world, 900);
    let said = lines.line(&mut world, "take t q");
    assert_eq!(said, ["event 0 one", "event 1 two"]);
    assert_eq!(lines.line(&mut world, "settle"), ["0 expired"]);
    // What was settled comes to nobody again, by whichever protocol.
    let join = super::members::join("q", ConsumerKind::Queue, 2);
    let member = world.request(native, Method::Join, topic, &join, &[]);
    world.answered::<Joined>(native, member).unwrap();
    let inbox = &world.links[&native].inbox;
    let given = inbox.iter().filter(|message| message.id == member);
    assert!(given.flat_map(|message| &message.payload).count() == 0);
}

#[test]
fn a_quiet_member_of_another_protocol_keeps_what_it_has() {
    let mut world = Ground::new().start();
    let native = world.connect();
    let topic = world.topic(native);
    world.stored(native, topic, (7, 0), &["one", "two"]);
    let mut lines = Lines::connect(&mut world, 900);
    lines.line(&mut world, "take t q");
    // Longer than its session timeout. It says that it is there when it is asked.
    for _ in 0..25 {
        world.pass(Duration::from_secs(1));
        assert_eq!(lines.delivered(&mut world), [""; 0]);
    }
    assert_eq!(lines.line(&mut world, "settle"), ["0 expired"]);
}

#[test]
fn refusals_are_the_same() {
    let mut world = Ground::new().start();
    let native = world.connect();
    let error = world.describe(native, "none").unwrap_err();
    let mut lines = Lines::connect(&mut world, 900);
    let said = lines.line(&mut world, "produce none text");
    assert_eq!(said, [format!("error {error}")]);
    // A batch that is damaged is no batch that could be asked for.
    let error = Verified::read(Buffer::copy_of(b"no batch")).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidEvent);
    // An id that is in use is refused; the first call of it stands.
    world.create(native, "t", "{}", &["disk"]).unwrap();
    lines.line(&mut world, "consume t");
    lines.next -= 1;
    let request = CoordinatorRequest::CreateTopic(
        TopicId(0),
        CreateTopic {
            name: "u".into(),
            definition: "{}".into(),
            partitions: vec![storage("disk")],
        },
    );
    let error = lines.call(&mut world, request.into()).unwrap_err();
    assert_eq!(error.code, ErrorCode::Malformed);
    assert_eq!(lines.line(&mut world, "produce t text").len(), 2);
}

#[test]
fn the_end_of_either_side_is_noticed() {
    let mut world = Ground::new().start();
    let native = world.connect();
    world.topic(native);
    let mut lines = Lines::connect(&mut world, 900);
    lines.line(&mut world, "consume t");
    assert_eq!(world.node.status()["sessions"].as_array().unwrap().len(), 2);
    let link = lines.link;
    let reason = NetError::Closed("gone".into());
    world.input(Input::LinkDown { link, reason });
    assert_eq!(world.node.status()["sessions"].as_array().unwrap().len(), 1);
    let mut lines = Lines::connect(&mut world, 901);
    world.input(Input::Drain);
    assert!(lines.delivered(&mut world)[0].starts_with("bye "));
    assert_eq!(world.node.status()["sessions"].as_array().unwrap().len(), 0);
}
