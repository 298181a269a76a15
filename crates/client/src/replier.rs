//! Who replies: the producer of one consumer's replies.

use crate::error::ClientError;
use crate::event::{ConsumedEvent, Event, ReplyData};
use crate::future::PushFuture;
use crate::options::{AtBudget, ProducerOptions};
use crate::producer::Producer;
use crate::promise::{Answered, Pending, Promise, Reply};
use crate::topic_handle::TopicHandle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use topic::{Definition, ValidatorKind};

/// Where a request's reply goes: the key of the reply.
pub const REPLY_HEADER: &str = "thalweg.reply";
/// Which request a reply is to: the same in both.
pub const CORRELATION_HEADER: &str = "thalweg.correlation";

/// Who replies: a consumer's name, and for an independent consumer, of which
/// there may be several of one name, its client's session id behind a slash.
pub const REPLIER_HEADER: &str = "thalweg.replier";

/// How long a reply waits for space among those that are not stored yet.
const SPACE_TIMEOUT: Duration = Duration::from_secs(120);

/// Writes replies of one consumer.
pub(crate) struct Replier {
    topic: TopicHandle,
    /// How it names itself.
    name: String,
    /// Guards the producer's making alone; held for a look.
    making: Mutex<Making>,
    /// Whether the program has waited for a reply to be stored: then it is in a
    /// hurry with all. Only ever set; nothing is ordered by it.
    awaited: Arc<AtomicBool>,
}

/// The producer, which is made when the first reply is.
enum Making {
    None,
    /// Somebody has begun to.
    Begun(Promise),
    /// Returned to the next one that replies; then it is tried again.
    Failed(ClientError),
    Made(Arc<Producer>),
}

impl Replier {
    pub fn new(topic: &TopicHandle, name: String) -> Arc<Self> {
        Arc::new(Self {
            topic: topic.clone(),
            name,
            making: Mutex::new(Making::None),
            awaited: Arc::default(),
        })
    }

    /// Where it is noted that somebody waits for a reply.
    pub fn awaited(&self) -> Arc<AtomicBool> {
        self.awaited.clone()
    }

    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().expect("no holder panics here")
    }

    /// Has the producer made, if it is not: a future of when it is, or has failed.
    pub fn begin(self: &Arc<Self>) -> Option<Answered> {
        let mut making = self.making();
        match &*making {
            Making::Made(_) | Making::Failed(_) => return None,
            Making::Begun(promise) => return Some(Answered::of(promise.slot().clone())),
            Making::None => {}
        }
        let mailbox = match self.topic.driver.session() {
            Ok(session) => session.mailbox.clone(),
            Err(error) => {
                *making = Making::Failed(error);
                return None;
            }
        };
        let promise = Promise::new(&mailbox);
        *making = Making::Begun(promise.clone());
        // What is begun now may end at once, on this thread.
        drop(making);
        let (replier, resolved) = (self.clone(), promise.clone());
        self.begin_producer().hand_to(move |made| {
            *replier.making() = match made {
                Ok(producer) => Making::Made(Arc::new(producer)),
                Err(error) => Making::Failed(error),
            };
            resolved.resolve(Ok(Reply::default()));
        });
        Some(Answered::of(promise.slot().clone()))
    }

    fn begin_producer(&self) -> Pending<Producer> {
        let driver = self.topic.driver.clone();
        let session = match driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let definition = match replies_definition(&self.topic) {
            Ok(definition) => definition,
            Err(error) => return Pending::failed(error),
        };
        let (mailbox, timeout) = (session.mailbox.clone(), driver.request_timeout());
        let name = replies_of(&self.topic);
        let made = self.topic.begin_companion(&name, &definition);
        let opened = made.and_then(&mailbox, timeout, move |made| match made {
            Ok(()) => driver.begin_open_topic(&name),
            Err(error) => Pending::failed(error),
        });
        opened.and_then(&mailbox, timeout, |replies| match replies {
            Ok(replies) => replies.begin_producer(ProducerOptions {
                at_budget: AtBudget::Fail,
                // Of a program's memory, which it may use again at once.
                copied_bytes_max: u32::MAX,
                ..ProducerOptions::default()
            }),
            Err(error) => Pending::failed(error),
        })
    }

    /// The producer; waits for it if it is being made.
    fn producer(self: &Arc<Self>) -> Result<Arc<Producer>, ClientError> {
        loop {
            if let Some(begun) = self.begin() {
                let session = self.topic.driver.session()?;
                if !session.mailbox.can_wait() {
                    let reason = "the first reply waits for the producer of replies, for \
                                  which a callback cannot wait";
                    return Err(ClientError::Invalid(reason.to_owned()));
                }
                // Each of the calls that this is made of has its deadline.
                begun.wait(Duration::MAX);
            }
            let mut making = self.making();
            match &*making {
                Making::Made(producer) => return Ok(producer.clone()),
                Making::Failed(error) => {
                    let error = error.clone();
                    *making = Making::None;
                    return Err(error);
                }
                Making::None | Making::Begun(_) => {}
            }
        }
    }

    /// A producer has failed, for good: the next reply makes another one.
    fn give_up(&self, failed: &Arc<Producer>) {
        let mut making = self.making();
        if matches!(&*making, Making::Made(made) if Arc::ptr_eq(made, failed)) {
            *making = Making::None;
        }
    }

    /// Pushes the reply to a request; waits for space if `waits`. A quiet one is
    /// acknowledged with whatever comes next, or a little later.
    pub fn reply(
        self: &Arc<Self>,
        request: &ConsumedEvent,
        metadata: &[u8],
        data: ReplyData<'_>,
        waits: bool,
        is_quiet: bool,
    ) -> Result<PushFuture, ClientError> {
        let header = |name: &str| request.header(name);
        let (Some(address), Some(correlation)) = (header(REPLY_HEADER), header(CORRELATION_HEADER))
        else {
            return Err(ClientError::Invalid(format!(
                "event {} is no request: it does not say where a reply goes",
                request.id()
            )));
        };
        let headers = [
            (CORRELATION_HEADER, correlation),
            (REPLIER_HEADER, self.name.as_bytes()),
        ];
        let event = Event {
            metadata,
            data: data.data,
            copied: data.copied,
            key: Some(address),
            headers: &headers,
            ..Event::default()
        };
        let producer = self.producer()?;
        producer.set_quiet(is_quiet);
        loop {
            match producer.push(event.clone()) {
                Err(ClientError::Budget(_)) if waits => producer.flush(SPACE_TIMEOUT)?,
                Err(error) => {
                    if !matches!(error, ClientError::Budget(_) | ClientError::Invalid(_)) {
                        self.give_up(&producer);
                    }
                    return Err(error);
                }
                Ok(pushed) => return Ok(pushed),
            }
        }
    }
}

/// Where replies to requests of a topic go.
pub(crate) fn replies_of(topic: &TopicHandle) -> String {
    format!("{}.replies", topic::spread_name(topic.name()))
}

/// Replies are as durable as requests; what they say is the workers' matter.
pub(crate) fn replies_definition(topic: &TopicHandle) -> Result<Definition, ClientError> {
    let mut builder = Definition::builder().validator(ValidatorKind::None);
    if let Some(durability) = topic.definition().durability() {
        builder = builder.durability(durability);
    }
    builder.build().map_err(ClientError::invalid)
}
