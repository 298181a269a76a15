//! A topic, as a client holds it.

use crate::consumer::Consumer;
use crate::driver::Driver;
use crate::error::ClientError;
use crate::fetched::FetchedBatches;
use crate::mailbox::Command;
use crate::options::{ConsumerOptions, GroupMember, ProducerOptions};
use crate::producer::Producer;
use crate::promise::Pending;
use crate::queue::{QueueConsumer, QueueConsumerOptions};
use crate::reader::{ReadOptions, Reader};
use crate::requester::{Requester, RequesterOptions};
use memory::Target;
use memory::fork::ForkSlot;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;
use topic::{Definition, Plugins, Serializer};
use wire::codec::Codec;
use wire::message::{
    ConsumerDescription, ConsumerList, ConsumerName, DataWanted, Fetch, Fetched, Method,
    PartitionDescription, TopicDescription, TopicName,
};
use wire::record::Position;
use wire::{Durability, ErrorCode, PartitionIndex, TopicId};

/// How often a topic that goes with another one is tried to be made, when
/// connections are lost over it.
const COMPANION_TRIES: u32 = 3;

/// What is known of a topic; shared by all handles, producers and consumers of it.
pub(crate) struct TopicState {
    pub name: Arc<str>,
    pub id: TopicId,
    /// As it was when the topic was opened: what cannot change is here.
    pub definition: Definition,
    /// How often it was seen to have been altered since: read by every push.
    alterations: AtomicU32,
    /// Whether somebody has asked for it to be looked at.
    is_suspected: AtomicBool,
    /// As it was seen last. Held for a look or a change only; each process has
    /// its own, for the parent's may be locked at a fork.
    altered: ForkSlot<Mutex<Option<Arc<Definition>>>>,
    /// Where what the definition names comes from, if it is a plugin.
    pub plugins: Arc<dyn Plugins>,
    /// Made when it is first needed: whoever only describes needs no plugin.
    serializer: OnceLock<Arc<dyn Serializer>>,
    /// How many partitions there are: read by every push, so kept apart.
    partition_count: AtomicU32,
    /// As they were when the topic was opened: what a forked child starts from.
    opened: Vec<PartitionDescription>,
    partitions: ForkSlot<RwLock<Vec<PartitionDescription>>>,
}

impl TopicState {
    pub fn new(
        description: TopicDescription,
        plugins: Arc<dyn Plugins>,
    ) -> Result<Self, ClientError> {
        let definition = Definition::from_json(&description.definition).map_err(|error| {
            ClientError::Invalid(format!(
                "topic {}: the server's definition is not understood: {error}",
                description.name
            ))
        })?;
        Ok(Self {
            name: description.name.into(),
            id: description.topic,
            definition,
            alterations: AtomicU32::new(0),
            is_suspected: AtomicBool::new(false),
            altered: ForkSlot::new(),
            plugins,
            serializer: OnceLock::new(),
            partition_count: AtomicU32::new(description.partitions.len() as u32),
            opened: description.partitions,
            partitions: ForkSlot::new(),
        })
    }

    /// The serializer, shared by all producers and consumers.
    pub fn serializer(&self) -> Result<&Arc<dyn Serializer>, ClientError> {
        if let Some(serializer) = self.serializer.get() {
            return Ok(serializer);
        }
        let made = self.definition.serializer().build(&*self.plugins)?;
        Ok(self.serializer.get_or_init(|| made))
    }

    /// How often the definition was seen to have changed.
    #[inline]
    pub fn alterations(&self) -> u32 {
        // Acquire: whoever sees it finds the definition.
        self.alterations.load(Ordering::Acquire)
    }

    /// The definition as it was seen last, if it has changed.
    pub fn altered(&self) -> Option<Arc<Definition>> {
        let altered = self.seen_altered();
        let altered = altered.lock().expect("no holder panics here");
        altered.clone()
    }

    /// It may have been altered. False if that was said before and nobody has
    /// looked since.
    pub fn suspect(&self) -> bool {
        // Relaxed: a hint, after which the command is sent.
        !self.is_suspected.swap(true, Ordering::Relaxed)
    }

    /// It is about to be looked at, or was just now.
    pub fn looked_at(&self) {
        self.is_suspected.store(false, Ordering::Relaxed);
    }

    /// Takes over a newer definition. One that is not understood, as a later
    /// version may have it, is left to whoever opens the topic anew.
    fn update_definition(&self, text: &str) {
        let altered = self.seen_altered();
        let mut altered = altered.lock().expect("no holder panics here");
        let known = altered.as_deref().unwrap_or(&self.definition);
        if known.to_json() == text {
            return;
        }
        if let Ok(definition) = Definition::from_json(text)
            && definition != *known
        {
            *altered = Some(Arc::new(definition));
            self.alterations.fetch_add(1, Ordering::Release);
        }
    }

    fn seen_altered(&self) -> Arc<Mutex<Option<Arc<Definition>>>> {
        let make = || {
            // A child knows that it was altered, not how: it begins with what
            // the topic was opened with, and asks when it is told to.
            let opened = (self.alterations() > 0).then(|| Arc::new(self.definition.clone()));
            Ok::<_, Infallible>(Mutex::new(opened))
        };
        let Ok(altered) = self.altered.get_or_make(make);
        altered
    }

    fn known(&self) -> Arc<RwLock<Vec<PartitionDescription>>> {
        let make = || Ok::<_, Infallible>(RwLock::new(self.opened.clone()));
        let Ok(known) = self.partitions.get_or_make(make);
        known
    }

    #[inline]
    pub fn partition_count(&self) -> u32 {
        // Only ever grows, and what it counts is published by the lock.
        self.partition_count.load(Ordering::Relaxed)
    }

    pub fn partitions(&self) -> Vec<PartitionDescription> {
        self.known().read().expect("no holder panics here").clone()
    }

    /// What an ack of a partition means.
    pub fn durability(&self, partition: u32) -> Durability {
        self.known()
            .read()
            .expect("no holder panics here")
            .get(partition as usize)
            .map_or(Durability::Memory, |partition| partition.durability)
    }

    /// Takes over a newer description. False if it is of another topic.
    pub fn update(&self, description: TopicDescription) -> bool {
        if description.topic != self.id {
            return false;
        }
        self.update_definition(&description.definition);
        let count = description.partitions.len() as u32;
        *self.known().write().expect("no holder panics here") = description.partitions;
        self.partition_count.fetch_max(count, Ordering::Relaxed);
        true
    }
}

/// A topic that exists, or did when it was opened. Cheap to clone.
#[derive(Clone)]
pub struct TopicHandle {
    pub(crate) driver: Driver,
    pub(crate) state: Arc<TopicState>,
}

impl TopicHandle {
    pub(crate) fn new(driver: Driver, description: TopicDescription) -> Result<Self, ClientError> {
        let plugins = driver.options().plugins.clone();
        let state = Arc::new(TopicState::new(description, plugins)?);
        Ok(Self { driver, state })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The topic, for as long as it exists.
    pub fn id(&self) -> TopicId {
        self.state.id
    }

    /// What it was opened with.
    pub fn definition(&self) -> &Definition {
        &self.state.definition
    }

    /// As [`TopicHandle::definition`], with what has been altered since, as
    /// far as it is known; see [`TopicHandle::partitions`].
    pub fn definition_now(&self) -> Definition {
        match self.state.altered() {
            Some(altered) => (*altered).clone(),
            None => self.state.definition.clone(),
        }
    }

    /// Its partitions, as last known. While a producer or a consumer is open
    /// that is looked at now and then; [`TopicHandle::refresh`] asks at once.
    pub fn partitions(&self) -> Vec<PartitionDescription> {
        self.state.partitions()
    }

    /// Asks the server how the topic is now.
    ///
    /// # Errors
    /// As any call; [`ClientError::Invalid`] if the name belongs to another topic now.
    pub fn refresh(&self) -> Result<TopicDescription, ClientError> {
        self.begin_refresh().wait()
    }

    /// [`TopicHandle::refresh`], not waited for.
    pub fn begin_refresh(&self) -> Pending<TopicDescription> {
        let body = TopicName {
            name: self.name().to_owned(),
        };
        let what = format!("the description of topic {}", self.name());
        let state = self.state.clone();
        let session = self.driver.session().ok();
        self.driver.begin_call(
            Method::DescribeTopic,
            TopicId(0),
            &body,
            what,
            move |reply| {
                let description = TopicDescription::from_bytes("topic description", &reply.head)
                    .map_err(ClientError::damaged)?;
                if !state.update(description.clone()) {
                    return Err(ClientError::Invalid(format!(
                        "topic {} was deleted and made anew; open it again",
                        state.name
                    )));
                }
                if let Some(session) = session {
                    session.mailbox.send(Command::TopicGrew(state.id));
                }
                Ok(description)
            },
        )
    }

    /// Opens a producer.
    ///
    /// # Errors
    /// As any call; [`ClientError::Io`] if the journal can't be opened.
    pub fn producer(&self, options: ProducerOptions) -> Result<Producer, ClientError> {
        self.begin_producer(options).wait()
    }

    /// [`TopicHandle::producer`], not waited for.
    pub fn begin_producer(&self, options: ProducerOptions) -> Pending<Producer> {
        Producer::begin(self, options)
    }

    /// Opens a consumer under `name`, which its cursors are kept under.
    ///
    /// # Errors
    /// As any call; [`ClientError::Invalid`] for a name that cannot be, or a
    /// partition out of range.
    pub fn consumer(&self, name: &str, options: ConsumerOptions) -> Result<Consumer, ClientError> {
        self.begin_consumer(name, options).wait()
    }

    /// [`TopicHandle::consumer`], not waited for.
    pub fn begin_consumer(&self, name: &str, options: ConsumerOptions) -> Pending<Consumer> {
        Consumer::begin(self, name, options)
    }

    /// Reads what the topic has now, or a part of that, and ends: where each
    /// partition ends is asked of the server at the beginning. Without a name
    /// and a cursor.
    ///
    /// # Errors
    /// As any call; [`ClientError::UnknownPartition`] or [`ClientError::Invalid`]
    /// for partitions and positions that can't be; [`ErrorCode::StorageFailed`]
    /// if what a partition has is not known.
    pub fn read(&self, options: ReadOptions) -> Result<Reader, ClientError> {
        self.begin_read(options).wait()
    }

    /// [`TopicHandle::read`], not waited for.
    pub fn begin_read(&self, options: ReadOptions) -> Pending<Reader> {
        Reader::begin(self, options)
    }

    /// Joins the group `name`, which is made if it is not known: its members
    /// share the topic's partitions, and each reads those that it is assigned.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::InvalidConsumer`] if the name is that of a
    /// queue or an independent consumer, or the options are refused.
    pub fn group(
        &self,
        name: &str,
        member: GroupMember,
        options: ConsumerOptions,
    ) -> Result<Consumer, ClientError> {
        let options = ConsumerOptions {
            group: Some(member),
            ..options
        };
        self.consumer(name, options)
    }

    /// Joins the queue `name`, which is made if it is not known: its members
    /// share the topic's events, each under a lease. The dead-letter topic
    /// is made if it is missing: with one partition, stored like this topic's first.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::InvalidConsumer`] if the name is that of a
    /// group or an independent consumer, or the options are refused.
    pub fn queue(
        &self,
        name: &str,
        options: QueueConsumerOptions,
    ) -> Result<QueueConsumer, ClientError> {
        self.begin_queue(name, options).wait()
    }

    /// [`TopicHandle::queue`], not waited for.
    pub fn begin_queue(&self, name: &str, options: QueueConsumerOptions) -> Pending<QueueConsumer> {
        QueueConsumer::begin(self, name, options)
    }

    /// Opens a requester: requests are events of this topic, replies come over
    /// `TOPIC.replies`, which is made if it is missing.
    ///
    /// # Errors
    /// As any call.
    pub fn requester(&self, options: RequesterOptions) -> Result<Requester, ClientError> {
        self.begin_requester(options).wait()
    }

    /// [`TopicHandle::requester`], not waited for.
    pub fn begin_requester(&self, options: RequesterOptions) -> Pending<Requester> {
        Requester::begin(self, options)
    }

    /// Consumers of the topic, who they are and where they stand; all of
    /// them, if the name is empty.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::UnknownConsumer`] if there is none of that name.
    pub fn describe_consumers(&self, name: &str) -> Result<Vec<ConsumerDescription>, ClientError> {
        self.begin_describe_consumers(name).wait()
    }

    /// [`TopicHandle::describe_consumers`], not waited for.
    pub fn begin_describe_consumers(&self, name: &str) -> Pending<Vec<ConsumerDescription>> {
        let body = ConsumerName {
            consumer: name.to_owned(),
        };
        let what = format!("the consumers of topic {}", self.name());
        let method = Method::DescribeConsumers;
        self.driver
            .begin_call(method, self.id(), &body, what, |reply| {
                let list = ConsumerList::from_bytes("consumer list", &reply.head);
                Ok(list.map_err(ClientError::damaged)?.consumers)
            })
    }

    /// Makes the topic `name`, if there is none, with one partition that is
    /// stored like this topic's first.
    pub(crate) fn begin_companion(&self, name: &str, definition: &Definition) -> Pending<()> {
        self.try_companion(name, definition, COMPANION_TRIES)
    }

    fn try_companion(&self, name: &str, definition: &Definition, tries: u32) -> Pending<()> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let Some(first) = self.partitions().into_iter().next() else {
            let text = format!(
                "topic {} has no partition yet, after whose storage that of {name} is made",
                self.name()
            );
            return Pending::failed(ClientError::UnknownPartition(text));
        };
        let (driver, definition) = (self.driver.clone(), definition.clone());
        let timeout = self.driver.request_timeout();
        let mailbox = session.mailbox.clone();
        let known = self.driver.begin_describe_topic(name);
        let name = name.to_owned();
        let made = known.and_then(&mailbox, timeout, {
            let (name, definition) = (name.clone(), definition.clone());
            move |known| match known {
                Ok(_) => Pending::ready(()),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => driver
                    .begin_create_topic(&name, &definition, &[first.storage])
                    .then(|_| Ok(())),
                Err(error) => Pending::failed(error),
            }
        });
        let topic = self.clone();
        made.and_then(&mailbox, timeout, move |made| match made {
            Ok(()) => Pending::ready(()),
            // Somebody else was faster.
            Err(error) if error.code() == Some(ErrorCode::TopicExists) => Pending::ready(()),
            // The connection was lost: whether it was made is to be asked.
            Err(ClientError::Unreachable { .. }) if tries > 1 => {
                topic.try_companion(&name, &definition, tries - 1)
            }
            Err(error) => Pending::failed(error),
        })
    }

    /// Reads batches from a position on, without a subscription.
    ///
    /// Waits up to `wait_max` for the first event. At most `bytes_max` come,
    /// unless the first batch is larger.
    ///
    /// # Errors
    /// As any call; [`ClientError::Damaged`] if what came fails its checksum.
    pub fn fetch(
        &self,
        partition: PartitionIndex,
        from: Position,
        bytes_max: u64,
        wait_max: Duration,
        inline_data: bool,
    ) -> Result<FetchedBatches, ClientError> {
        let request = FetchRequest {
            partition,
            from,
            bytes_max,
            wait_max,
            inline_data,
        };
        self.begin_fetch(request).wait()
    }

    /// [`TopicHandle::fetch`], not waited for.
    pub fn begin_fetch(&self, fetch: FetchRequest) -> Pending<FetchedBatches> {
        let body = Fetch {
            partition: fetch.partition,
            from: fetch.from,
            bytes_max: fetch.bytes_max,
            wait_max_ms: fetch.wait_max.as_millis().min(u128::from(u32::MAX)) as u32,
            inline_data: fetch.inline_data,
        };
        let what = format!(
            "events of {}/{} from offset {}",
            self.name(),
            fetch.partition,
            fetch.from.offset
        );
        let partition = fetch.partition;
        let state = self.state.clone();
        self.driver.begin_call_for(
            fetch.wait_max,
            Method::Fetch,
            self.id(),
            body.to_bytes(),
            what,
            move |reply| {
                let fetched =
                    Fetched::from_bytes("fetched", &reply.head).map_err(ClientError::damaged)?;
                FetchedBatches::new(&state, partition, fetched, reply.payload)
            },
        )
    }

    /// Reads selected data of events straight into `into`, whose lengths
    /// together are those of all selections; gives the memory back.
    ///
    /// # Errors
    /// As any call; [`ClientError::Damaged`] if the bytes fail their checksum.
    /// The memory is lost to the caller then.
    pub fn read_data(
        &self,
        wanted: &[DataWanted],
        into: Vec<Target>,
    ) -> Result<Vec<Target>, ClientError> {
        self.begin_read_data(wanted, into).wait()
    }

    /// [`TopicHandle::read_data`], not waited for.
    pub fn begin_read_data(
        &self,
        wanted: &[DataWanted],
        into: Vec<Target>,
    ) -> Pending<Vec<Target>> {
        let lengths: Vec<u64> = wanted
            .iter()
            .map(|one| one.segments.iter().map(|segment| segment.bytes).sum())
            .collect();
        let room: u64 = into.iter().map(|target| target.len() as u64).sum();
        if room != lengths.iter().sum::<u64>() {
            return Pending::failed(ClientError::Invalid(format!(
                "{} bytes are selected, and there is memory for {room}",
                lengths.iter().sum::<u64>()
            )));
        }
        let read = self
            .driver
            .begin_read_data(&self.state, wanted.to_vec(), into);
        let name = self.state.name.clone();
        read.then(move |mut read| {
            read.verify().map_err(|wrong| ClientError::Damaged {
                what: format!("selection {} of {name}: {wrong}", wrong.selection),
            })?;
            Ok(read.targets)
        })
    }
}

/// What [`TopicHandle::fetch`] is to read.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    /// The partition.
    pub partition: PartitionIndex,
    /// Where to begin; incarnation 0 is the present one.
    pub from: Position,
    /// The most bytes of batches.
    pub bytes_max: u64,
    /// How long to wait for the first event.
    pub wait_max: Duration,
    /// Whether inline data comes along.
    pub inline_data: bool,
}

impl fmt::Debug for TopicHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicHandle({} {})", self.state.name, self.state.id)
    }
}
