//! Thalweg's own protocol as a backend.
//!
//! | pattern | topics | consumers |
//! |---|---|---|
//! | work sharing | one for each queue, of one partition | members of a queue |
//! | broadcast | one, of one partition | each by itself, with a cursor |
//! | with replies | one more for replies: a partition for each producer, or one for all | producers |
//!
//! Topics keep 256 MiB of what is acknowledged, and all that is not. A queue whose bound is below that refuses what is
//! beyond, with `overflow = "reject-publish"`.

use super::backend::{Backend, Delivery, Outgoing, Settled, Sink, Source};
use crate::failure::{About, Code, Failure};
use bytes::{Buf, Bytes};
use client::{
    ClientError, Consumer, ConsumerOptions, CredentialEnds, Definition, Driver, DriverOptions,
    Durability, Endpoint, Event, EventId, PartitionStorage, Producer, ProducerOptions, PushFuture,
    QueueConsumer, QueueConsumerOptions, QueueEvent, QueueOptions, SettleFuture, TopicHandle,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use topic::{Overflow, RETRY_AFTER_MS_DEFAULT, Retention, SelectorKind, SerializerKind};
use workload::{Common, Member, Pattern, Replies, STAMP_BYTES, Stamp, Task};

/// What is kept of acknowledged messages.
const KEPT_BYTES: u64 = 256 << 20;
/// What a consumer has unacknowledged at most, beside the bound on messages: at least, and at most.
const PREFETCH_BYTES: (u64, u64) = (16 << 20, 128 << 20);
/// Replies of a consumer that are not stored yet.
const REPLIES_MAX: usize = 1024;
/// Messages that are taken at once.
const BATCH_MAX: usize = 256;
/// How long the server may take to make or remove a topic: a run whose server is gone ends.
const REQUEST: Duration = Duration::from_secs(30);
/// How long the last acknowledgements and replies may take.
const FINISH: Duration = Duration::from_secs(30);
/// The name under which members of a queue share.
const QUEUE: &str = "workload";
/// The name under which producers read replies, each from a partition of its own.
const ANSWERS: &str = "answers";

/// A connection, for all members of a process.
pub struct Native {
    driver: Driver,
    common: Common,
    expired: Arc<Expired>,
}

/// What the server has said of the clients' token when it was over, and when that was.
#[derive(Default)]
struct Expired(OnceLock<(SystemTime, CredentialEnds)>);

impl Expired {
    /// Takes what the client hears.
    fn hear(&self, ends: &CredentialEnds) {
        if ends.left.is_zero() {
            // A token expires once; what comes later is of the next one.
            let _ = self.0.set((SystemTime::now(), ends.clone()));
        }
    }

    /// Why nothing comes, unless another token has been put there since.
    fn why(&self) -> Option<Failure> {
        let (at, ends) = self.0.get()?;
        let written = std::fs::metadata(&ends.path).and_then(|file| file.modified());
        let is_renewed = written.is_ok_and(|written| written > *at);
        let what = format!("credential expired: {ends}");
        (!is_renewed).then(|| Failure::new(Code::Failure, "the server", what))
    }
}

/// Where a URL, an address or a path of a group file leads.
fn endpoint(text: &str) -> Endpoint {
    match text.contains("://") {
        true => Endpoint::address(text),
        false => Endpoint::GroupFile(PathBuf::from(text)),
    }
}

impl Native {
    pub fn connect(common: &Common) -> Result<Self, Failure> {
        let Some(url) = &common.url else {
            return Err(Failure::usage("url", "there is none"));
        };
        let expired: Arc<Expired> = Arc::default();
        let hears = expired.clone();
        let options = DriverOptions {
            credential: common.credential.clone(),
            on_credential: Some(Arc::new(move |ends: &CredentialEnds| hears.hear(ends))),
            request_timeout: REQUEST,
            client_name: format!("thalweg workload {}", std::process::id()),
            ..crate::connection::driver_options()
        };
        Ok(Self {
            driver: Driver::connect(endpoint(&url.0), options).about("the server")?,
            common: common.clone(),
            expired,
        })
    }

    fn name(&self, what: &str) -> String {
        format!("workload-{:016x}-{what}", self.common.run)
    }

    /// The topic of a task's messages.
    fn topic_of(&self, task: &Task) -> String {
        match task.queue {
            Some(queue) => self.name(&format!("queue-{queue}")),
            None => self.name("all"),
        }
    }

    /// The names, partitions and readers of all topics.
    fn topics(&self) -> Vec<(String, usize, Vec<String>)> {
        let common = &self.common;
        let mut topics: Vec<_> = match common.pattern.is_broadcast() {
            true => {
                let readers = (0..common.consumers).map(consumer_name).collect();
                vec![(self.name("all"), 1, readers)]
            }
            false => (0..common.settings.queues)
                .map(|queue| {
                    (
                        self.name(&format!("queue-{queue}")),
                        1,
                        vec![QUEUE.to_owned()],
                    )
                })
                .collect(),
        };
        match common.pattern {
            Pattern::WorkSharing | Pattern::Broadcast => {}
            Pattern::WorkSharingFeedback => {
                let partitions = common.producers as usize;
                topics.push((self.name("replies"), partitions, vec![ANSWERS.to_owned()]));
            }
            Pattern::BroadcastGather => {
                let readers = (0..common.producers).map(producer_name).collect();
                topics.push((self.name("replies"), 1, readers));
            }
        }
        topics
    }

    /// How many messages a topic with these readers has unacknowledged at most, if it is a queue that refuses what is
    /// beyond. A bound that is larger than what is kept anyway would keep more of what is acknowledged.
    fn bound(&self, readers: &[String]) -> Option<u64> {
        let settings = &self.common.settings;
        let most = settings.queue_messages_max;
        let is_small = most.saturating_mul(self.common.message_bytes) <= KEPT_BYTES;
        let is_bounded = settings.overflow == workload::Overflow::RejectPublish
            && readers == [QUEUE]
            && is_small;
        is_bounded.then_some(most)
    }

    fn durability(&self) -> (Durability, &'static str) {
        match self.common.settings.durable_messages {
            true => (Durability::Written, "disk"),
            false => (Durability::Memory, "memory"),
        }
    }

    fn open(&self, name: &str) -> Result<TopicHandle, Failure> {
        self.driver.open_topic(name).about(name)
    }

    fn prefetch_bytes(&self) -> u64 {
        let wanted = self.common.message_bytes * self.common.settings.prefetch.max(1);
        wanted.clamp(PREFETCH_BYTES.0, PREFETCH_BYTES.1)
    }

    fn answers(&self, replies: Replies) -> Result<Option<Answers>, Failure> {
        if replies == Replies::None {
            return Ok(None);
        }
        let topic = self.open(&self.name("replies"))?;
        Ok(Some(Answers {
            producer: Pushing::open(&topic, "replies")?,
            replies,
            stored: VecDeque::new(),
        }))
    }

    fn each(&self, topic: &str, name: &str, partition: u32) -> Result<Consumer, Failure> {
        let options = ConsumerOptions {
            partitions: Some(vec![partition]),
            credit_bytes: self.prefetch_bytes(),
            ..ConsumerOptions::default()
        };
        self.open(topic)?.consumer(name, options).about(name)
    }
}

fn consumer_name(index: u64) -> String {
    format!("consumer-{index}")
}

fn producer_name(index: u64) -> String {
    format!("producer-{index}")
}

impl Backend for Native {
    fn prepare(&self) -> Result<(), Failure> {
        let (durability, kind) = self.durability();
        for (name, partitions, readers) in self.topics() {
            let bound = self.bound(&readers);
            let retention = Retention {
                bytes: Some(KEPT_BYTES),
                count: bound,
                ..Retention::default()
            };
            let overflow = match bound {
                Some(_) => Overflow::Reject {
                    retry_after_ms: RETRY_AFTER_MS_DEFAULT,
                },
                None => Overflow::Grow,
            };
            let definition = Definition::builder()
                .serializer(SerializerKind::Raw)
                .partition_selector(SelectorKind::Explicit)
                .durability(durability)
                .retention(retention)
                .overflow(overflow)
                .keep_until_acknowledged(readers)
                .build()
                .map_err(|error| Failure::usage(&name, error))?;
            let storage = PartitionStorage {
                kind: kind.to_owned(),
                config: String::new(),
            };
            let made = self
                .driver
                .create_topic(&name, &definition, &vec![storage; partitions]);
            made.about(&name)?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), Failure> {
        let mut removed = Ok(());
        for (name, _, _) in self.topics() {
            let remove = || match self.driver.topic_exists(&name)? {
                true => self.driver.delete_topic(&name),
                false => Ok(()),
            };
            removed = removed.and(remove().about(&name));
            let is_gone =
                |failure: &Failure| matches!(failure.exit_code(), Code::Timeout | Code::NoServer);
            // A server that does not answer has a run wait for it once, and not once for each topic.
            if removed.as_ref().is_err_and(is_gone) {
                break;
            }
        }
        removed
    }

    fn transport(&self) -> String {
        let address = self.driver.address();
        let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.to_owned()
    }

    fn source(&self, task: &Task) -> Result<Box<dyn Source>, Failure> {
        let topic = self.topic_of(task);
        let answers = self.answers(task.replies)?;
        if self.common.pattern.is_broadcast() {
            let Member::Consumer(index) = task.member else {
                unreachable!("producers have sinks");
            };
            return Ok(Box::new(Alone {
                consumer: self.each(&topic, &consumer_name(index), 0)?,
                answers,
                handled: VecDeque::new(),
                kept: Kept::new(self),
            }));
        }
        let options = QueueConsumerOptions {
            queue: QueueOptions {
                deliveries_max: 0,
                ..QueueOptions::default()
            },
            prefetch_events: match self.common.settings.prefetch {
                0 => 1 << 16,
                count => count as u32,
            },
            prefetch_bytes: self.prefetch_bytes(),
            renew: true,
            ..QueueConsumerOptions::default()
        };
        Ok(Box::new(Shared {
            consumer: self.open(&topic)?.queue(QUEUE, options).about("a queue")?,
            answers,
            handled: VecDeque::new(),
            last: None,
            kept: Kept::new(self),
        }))
    }

    fn sink(&self, task: &Task) -> Result<Outgoing, Failure> {
        let Member::Producer(index) = task.member else {
            unreachable!("consumers have sources");
        };
        let topic = self.open(&self.topic_of(task))?;
        let replies = self.name("replies");
        let consumer = match task.replies {
            Replies::None => None,
            Replies::Own => Some(self.each(&replies, ANSWERS, index as u32)?),
            Replies::Shared => Some(self.each(&replies, &producer_name(index), 0)?),
        };
        Ok(Outgoing {
            sink: Box::new(Pushed {
                producer: Pushing::open(&topic, "a producer")?,
                unsettled: VecDeque::new(),
            }),
            replies: consumer.map(|consumer| {
                Box::new(Alone {
                    consumer,
                    answers: None,
                    handled: VecDeque::new(),
                    kept: Kept::new(self),
                }) as Box<dyn Source>
            }),
        })
    }
}

/// A producer that is given up when it is dropped: who ends with something unanswered has said so, and does not wait
/// for it.
struct Pushing(Option<Producer>);

impl Pushing {
    fn open(topic: &TopicHandle, what: &str) -> Result<Self, Failure> {
        let opened = topic.producer(ProducerOptions::default());
        Ok(Self(Some(opened.about(what)?)))
    }

    fn push(&self, event: Event<'_>) -> Result<PushFuture, ClientError> {
        let producer = self.0.as_ref();
        producer
            .expect("it is there until it is dropped")
            .push(event)
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        if let Some(producer) = self.0.take() {
            // What it fails with was said, or nobody asked.
            let _ = producer.close(Duration::ZERO);
        }
    }
}

/// Where a consumer's replies go.
struct Answers {
    producer: Pushing,
    replies: Replies,
    stored: VecDeque<PushFuture>,
}

impl Answers {
    fn send(&mut self, stamp: Stamp, mut message: Bytes) -> Result<(), Failure> {
        message.advance(STAMP_BYTES);
        let event = Event {
            data: vec![Bytes::copy_from_slice(&stamp.to_bytes()), message],
            partition: Some(match self.replies {
                Replies::Own => stamp.producer,
                Replies::None | Replies::Shared => 0,
            }),
            ..Event::default()
        };
        self.stored
            .push_back(self.producer.push(event).about("a reply")?);
        self.wait(REPLIES_MAX)
    }

    /// Waits until no more than so many are not stored yet.
    fn wait(&mut self, most: usize) -> Result<(), Failure> {
        while self.stored.len() > most {
            let first = self.stored.pop_front().expect("there are more than some");
            first.wait(Some(FINISH)).about("a reply")?;
        }
        Ok(())
    }
}

fn answer(answers: &mut Option<Answers>, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
    match answers {
        Some(answers) => answers.send(stamp, message),
        None => Ok(()),
    }
}

/// A member of a queue.
struct Shared {
    consumer: QueueConsumer,
    answers: Option<Answers>,
    /// What came and is not acknowledged, in order.
    handled: VecDeque<QueueEvent>,
    last: Option<SettleFuture>,
    kept: Kept,
}

/// What keeps messages from a consumer at the moment: a server that is away or has just come back, a token that has
/// expired. The next pull may go on.
struct Kept {
    why: Option<ClientError>,
    expired: Arc<Expired>,
}

impl Kept {
    fn new(native: &Native) -> Self {
        Self {
            why: None,
            expired: native.expired.clone(),
        }
    }

    /// What a pull has brought. Takes a rest where it was kept from that.
    fn pulled<T: Default>(
        &mut self,
        pulled: Result<T, ClientError>,
        rest: Duration,
    ) -> Result<T, Failure> {
        match pulled {
            Ok(came) => {
                self.why = None;
                Ok(came)
            }
            Err(why) if why.is_retryable() => {
                self.why = Some(why);
                std::thread::sleep(rest);
                Ok(T::default())
            }
            Err(why) => Err(why).about("a pull"),
        }
    }

    /// Fails if it is so still.
    fn end(&mut self) -> Result<(), Failure> {
        match (self.why.take(), self.expired.why()) {
            (Some(why), _) => Err(why).about("a pull"),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(()),
        }
    }
}

impl Source for Shared {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        let events = self.consumer.pull_batch(BATCH_MAX, Some(wait));
        let mut came = Vec::new();
        for mut event in self.kept.pulled(events, wait)? {
            came.push(Delivery {
                message: event.take_data(),
                is_flagged: event.deliveries() > 1,
            });
            self.handled.push_back(event);
        }
        Ok(came)
    }

    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
        answer(&mut self.answers, stamp, message)
    }

    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        for event in self.handled.drain(..count.min(self.handled.len())) {
            self.last = Some(event.acknowledge());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.acknowledge(usize::MAX)?;
        if let Some(last) = self.last.take() {
            last.wait(Some(FINISH)).about("an acknowledgement")?;
        }
        if let Some(answers) = &mut self.answers {
            answers.wait(0)?;
        }
        self.kept.end()
    }
}

/// A consumer that gets everything.
struct Alone {
    consumer: Consumer,
    answers: Option<Answers>,
    /// What came and is not acknowledged, in order.
    handled: VecDeque<EventId>,
    kept: Kept,
}

impl Source for Alone {
    fn receive(&mut self, wait: Duration) -> Result<Vec<Delivery>, Failure> {
        let events = self.consumer.pull_batch(BATCH_MAX, Some(wait));
        let events = self.kept.pulled(events, wait)?;
        let deliveries = events.into_iter().map(|mut event| {
            self.handled.push_back(event.id());
            Delivery {
                message: event.take_data(),
                is_flagged: false,
            }
        });
        Ok(deliveries.collect())
    }

    fn reply(&mut self, stamp: Stamp, message: Bytes) -> Result<(), Failure> {
        answer(&mut self.answers, stamp, message)
    }

    fn acknowledge(&mut self, count: usize) -> Result<(), Failure> {
        let count = count.min(self.handled.len());
        // A cursor acknowledges all before it too.
        match self.handled.drain(..count).next_back() {
            Some(id) => self.consumer.acknowledge(id).about("an acknowledgement"),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.acknowledge(usize::MAX)?;
        let flushed = self.consumer.flush_acknowledgements(FINISH);
        flushed.about("an acknowledgement")?;
        if let Some(answers) = &mut self.answers {
            answers.wait(0)?;
        }
        self.kept.end()
    }
}

/// A producer, and what the server has not answered yet, in the order of sending.
struct Pushed {
    producer: Pushing,
    unsettled: VecDeque<(u64, PushFuture)>,
}

impl Sink for Pushed {
    fn send(&mut self, sequence: u64, pieces: [&[u8]; 3]) -> Result<(), Failure> {
        let event = Event {
            copied: &pieces,
            partition: Some(0),
            ..Event::default()
        };
        let pushed = self.producer.push(event).about("a message")?;
        self.unsettled.push_back((sequence, pushed));
        Ok(())
    }

    fn settled(&mut self, wait: Duration) -> Result<Vec<Settled>, Failure> {
        if let Some((_, first)) = self.unsettled.front()
            && !wait.is_zero()
            && first.try_get().is_none()
            && let Err(ClientError::Timeout { .. }) = first.wait(Some(wait))
        {
            return Ok(Vec::new());
        }
        let mut settled = Vec::new();
        while let Some(outcome) = self
            .unsettled
            .front()
            .and_then(|(sequence, future)| Some((*sequence, future.try_get()?)))
        {
            self.unsettled.pop_front();
            settled.push(Settled {
                sequence: outcome.0,
                refused: outcome.1.err().map(|why| why.to_string()),
            });
        }
        Ok(settled)
    }

    fn unanswered(&self) -> Failure {
        let count = self.unsettled.len();
        let why = match self.unsettled.front() {
            // It is not there, and the error of not waiting for it says what stands in the way.
            Some((_, first)) => match first.wait(Some(Duration::ZERO)) {
                Err(why) => why.to_string(),
                Ok(_) => "the answer came when the run was over".to_owned(),
            },
            None => "all is answered".to_owned(),
        };
        let what = format!("{count} messages are not answered: {why}");
        Failure::new(Code::Timeout, "the server", what)
    }
}
