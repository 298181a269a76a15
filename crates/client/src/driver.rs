//! The driver: one connection to one server, and what can be asked over it.

use crate::clock::Clock;
use crate::core::ClientCore;
use crate::driving::SimulatedWait;
use crate::error::ClientError;
use crate::group_file::GroupFile;
use crate::mailbox::Counters;
use crate::options::{DriverOptions, Endpoint};
use crate::promise::{Pending, Promise, Reply};
use crate::received_checksums::{ReadBack, ReceivedChecksums};
use crate::session::{Call, Session};
use crate::split_read::{self, Part};
use crate::spread;
use crate::status;
use crate::strided::{Selections, StridedWanted};
use crate::topic_state::TopicState;
use crate::url;
use memory::fork::ForkSlot;
use memory::{Allocation, Target};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use wire::codec::Codec;
use wire::message::*;
use wire::record::{Gap, NodeState};
use wire::{DirectoryId, ErrorCode, NodeId, PartitionIndex, SessionId, TopicId};

/// For so long other nodes are waited for whose part of the status is asked for.
const STATUS_WITHIN: Duration = Duration::from_secs(5);
/// How much longer than the server a call waits that the server is to answer at its deadline.
const GRACE_MIN: Duration = Duration::from_millis(500);
const GRACE_MAX: Duration = Duration::from_secs(2);

/// A connection to one server, shared by all topics, producers and consumers
/// that are opened through it. Cheap to clone; can be used from any thread.
///
/// It reconnects by itself, to the same data directory only. In a forked
/// child it connects anew when it is used. The connection ends with the last
/// clone and the last handle.
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    options: DriverOptions,
    slot: ForkSlot<Session>,
}

/// What another try does not help: an address that can't be one, and a group
/// file that is not there, unless its caller waits for it.
fn check_endpoint(endpoint: &Endpoint, options: &DriverOptions) -> Result<(), ClientError> {
    let path = match endpoint {
        Endpoint::Address { address, .. } => {
            let checked = options.transports.check(address);
            return checked.map_err(ClientError::invalid);
        }
        Endpoint::GroupFile(path) => path,
    };
    if !path.exists() && path.to_string_lossy().contains("://") {
        return Err(ClientError::Invalid(format!(
            "{} is an address, not the path of a group file: give it as the address",
            path.display()
        )));
    }
    if let Some(address) = host_and_port(path).filter(|_| !path.exists()) {
        return Err(ClientError::Invalid(format!(
            "there is no group file {address}; as the address of a server it is tcp://{address}"
        )));
    }
    match GroupFile::read(path) {
        Err(reason) if options.connect_timeout.is_none() => Err(ClientError::Unreachable {
            address: endpoint.to_string(),
            reason: match is_denied(path) {
                true => reason,
                false => format!(
                    "{reason}. Give the path of the file that the server writes when it starts, \
                     or a connect_timeout to wait for it"
                ),
            },
        }),
        _ => Ok(()),
    }
}

fn is_denied(path: &Path) -> bool {
    let opened = std::fs::File::open(path);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The text of a path that is a host and a port, as `127.0.0.1:7000`.
fn host_and_port(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (host, port) = text.rsplit_once(':')?;
    let is_port = port.parse::<u16>().is_ok();
    (is_port && !host.is_empty() && !host.contains('/')).then_some(text)
}

impl Driver {
    /// Connects to the server.
    ///
    /// Tries until the connect timeout, reading a group file again each time; a
    /// group file that is not there is waited for only if
    /// [`DriverOptions::connect_timeout`] is given. Address and file may be a `thalweg://` URL; where no file is,
    /// the environment variable `THALWEG_URL` may have one.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] or [`ClientError::WrongServer`], naming
    /// the address; [`ClientError::Server`] if the server refuses;
    /// [`ClientError::Invalid`] for options and addresses that cannot be.
    pub fn connect(endpoint: Endpoint, options: DriverOptions) -> Result<Self, ClientError> {
        options.check()?;
        let (endpoint, options) = url::resolve(endpoint, options)?;
        check_endpoint(&endpoint, &options)?;
        let driver = Self {
            inner: Arc::new(Inner {
                endpoint,
                options,
                slot: ForkSlot::new(),
            }),
        };
        driver.session()?;
        Ok(driver)
    }

    /// A driver without a thread, for a simulation that runs `core` itself.
    ///
    /// What waits must not be called on it; the `begin_` calls and polls are.
    /// The answer resolves when the first connection stands. `seed` stands
    /// for all chance, and [`ClientCore::set_time`] for the clock.
    pub fn simulated(
        endpoint: Endpoint,
        options: DriverOptions,
        seed: u128,
    ) -> (Self, ClientCore, Pending<()>) {
        let (session, core, connected) =
            Session::without_thread(&endpoint, &options, SessionId(seed), Clock::simulated());
        let slot = ForkSlot::new();
        let _ = slot.get_or_make(|| Ok::<_, ClientError>(session));
        let timeout = options.connect_within();
        let what = format!("a connection to {endpoint}");
        let driver = Self {
            inner: Arc::new(Inner {
                endpoint,
                options,
                slot,
            }),
        };
        let connected = Pending::new(connected, what, timeout, |_| Ok(()));
        (driver, core, connected)
    }

    /// Of a driver that is simulated: threads may wait for it, by `wait`.
    ///
    /// # Errors
    /// [`ClientError::Closed`] if the driver is closed.
    pub fn waits_by(&self, wait: Arc<dyn SimulatedWait>) -> Result<(), ClientError> {
        self.session()?.waits_by(wait);
        Ok(())
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, ClientError> {
        match self.inner.slot.get() {
            Some(session) => Ok(session),
            None => self
                .inner
                .slot
                .get_or_make(|| Session::connect(&self.inner.endpoint, &self.inner.options)),
        }
    }

    pub(crate) fn options(&self) -> &DriverOptions {
        &self.inner.options
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.inner.options.request_timeout
    }

    pub(crate) fn begin_call<T>(
        &self,
        method: Method,
        topic: TopicId,
        body: &impl Codec,
        what: impl Into<String>,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Pending<T> {
        self.begin_call_for(
            Duration::ZERO,
            method,
            topic,
            body.to_bytes(),
            what,
            convert,
        )
    }

    /// A call that may take `extra` more than the request timeout.
    pub(crate) fn begin_call_for<T>(
        &self,
        extra: Duration,
        method: Method,
        topic: TopicId,
        body: Vec<u8>,
        what: impl Into<String>,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Pending<T> {
        let timeout = self.request_timeout().saturating_add(extra);
        match self.session() {
            Err(error) => Pending::failed(error),
            Ok(session) => session.begin_call(
                timeout,
                method,
                topic,
                body,
                Vec::new(),
                what.into(),
                convert,
            ),
        }
    }

    /// A call of which the server says in time what keeps it: it has `timeout` for its answer, and
    /// that has `grace` more to arrive: by default a little.
    pub(crate) fn begin_call_that_waits<T>(
        &self,
        (timeout, grace): (Duration, Option<Duration>),
        method: Method,
        topic: TopicId,
        body: &impl Codec,
        what: String,
        convert: impl FnOnce(Reply) -> Result<T, ClientError> + Send + 'static,
    ) -> Pending<T> {
        let grace = grace.unwrap_or((timeout / 4).clamp(GRACE_MIN, GRACE_MAX));
        match self.session() {
            Err(error) => Pending::failed(error),
            Ok(session) => session.begin(
                Call {
                    timeout: timeout.saturating_add(grace),
                    grace,
                    method,
                    topic,
                    body: body.to_bytes(),
                    targets: Vec::new(),
                    behind: Vec::new(),
                    payload: Vec::new(),
                    exposed: Vec::new(),
                    what,
                },
                convert,
            ),
        }
    }

    pub(crate) fn begin_read_data(
        &self,
        topic: &TopicState,
        wanted: Vec<DataWanted>,
        into: Vec<Target>,
    ) -> Pending<ReadBack> {
        self.begin_read(topic, Selections::lists(wanted), into)
    }

    /// Reads what is wanted by pieces at distances that repeat; what it is was checked.
    pub(crate) fn begin_read_strided(
        &self,
        topic: &TopicState,
        wanted: &[StridedWanted],
        into: Vec<Target>,
    ) -> Pending<ReadBack> {
        let session = match self.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let features = topic.liveness(&session.mailbox).features();
        let selections = Selections::of(wanted, features, |selections| {
            !split_read::is_too_long(selections, into.len())
        });
        self.begin_read(topic, selections, into)
    }

    fn begin_read(
        &self,
        topic: &TopicState,
        selections: Selections,
        into: Vec<Target>,
    ) -> Pending<ReadBack> {
        let session = match self.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let what = format!(
            "data of {} events of {}",
            selections.events.len(),
            topic.name
        );
        if selections.strided.is_empty() && split_read::is_too_long(&selections, into.len()) {
            return self.begin_split_read(&session, topic.id, &selections.events, into, what);
        }
        let lengths = selections.lengths();
        let (received, into) = ReceivedChecksums::watch(&lengths, into);
        // The regions of `into` follow when the memory is lent.
        let body = selections.events.to_bytes();
        let behind = match selections.strided.is_empty() {
            true => Vec::new(),
            false => selections.strided.to_bytes(),
        };
        let timeout = self.request_timeout();
        // Data that its writer keeps may be waited for: the server says whom it waits for.
        let grace = (timeout / 4).clamp(GRACE_MIN, GRACE_MAX);
        let convert = move |reply: Reply| {
            let DataRead { checksums } =
                DataRead::from_bytes("data read", &reply.head).map_err(ClientError::damaged)?;
            ReadBack::new(&lengths, &checksums, reply.targets, received).ok_or_else(|| {
                ClientError::Damaged {
                    what: format!(
                        "{} selections were read and {} checksums came",
                        lengths.len(),
                        checksums.len()
                    ),
                }
            })
        };
        let call = Call {
            timeout: timeout.saturating_add(grace),
            grace,
            method: Method::ReadData,
            topic: topic.id,
            body,
            targets: into,
            behind,
            payload: Vec::new(),
            exposed: Vec::new(),
            what,
        };
        session.begin(call, convert)
    }

    /// A read of data whose list of what is wanted no request can say: several,
    /// one after the other, as one call.
    fn begin_split_read(
        &self,
        session: &Arc<Session>,
        topic: TopicId,
        wanted: &[DataWanted],
        into: Vec<Target>,
        what: String,
    ) -> Pending<ReadBack> {
        let (split, mut parts) = match split_read::split(wanted, into) {
            Ok(cut) => cut,
            Err(error) => return Pending::failed(error),
        };
        let bytes_of = |one: &DataWanted| one.segments.iter().map(|part| part.bytes).sum();
        let lengths: Vec<u64> = wanted.iter().map(bytes_of).collect();
        let counts: Vec<usize> = parts.iter().map(|part| part.into.len()).collect();
        let pieces = parts.iter_mut().flat_map(|part| part.into.drain(..));
        let (received, pieces) = ReceivedChecksums::watch(&lengths, pieces.collect());
        let mut pieces = pieces.into_iter();
        for (part, count) in parts.iter_mut().zip(counts) {
            part.into.extend(pieces.by_ref().take(count));
        }
        let parts = PartsToRead {
            session: Arc::downgrade(session),
            topic,
            timeout: self.request_timeout(),
            what,
            parts: parts.into(),
            done: Parts::default(),
            outcome: Arc::default(),
            promise: Promise::new(&session.mailbox),
        };
        parts.begin().then(move |(checksums, targets)| {
            let checksums = split.checksums(lengths.len(), &checksums);
            let targets = split.join(targets);
            let read = checksums.zip(targets).and_then(|(checksums, targets)| {
                ReadBack::new(&lengths, &checksums, targets, received)
            });
            read.ok_or_else(|| ClientError::Damaged {
                what: format!(
                    "another number of checksums came than of {} reads",
                    lengths.len()
                ),
            })
        })
    }

    /// Writable memory for data of events, to be filled, frozen and pushed.
    ///
    /// Over shared memory it is memory that the server reads where it lies,
    /// with one copy and none of this process's doing; over any other way, or
    /// where that memory is used up, it is ordinary memory. Its content is
    /// undefined. It may be kept across reconnects.
    pub fn alloc_buffer(&self, bytes: usize) -> Allocation {
        let address = self
            .session()
            .map(|session| session.mailbox.liveness.address())
            .unwrap_or_default();
        self.inner.options.transports.allocate(&address, bytes)
    }

    /// [`Driver::alloc_buffer`], and `None` in place of ordinary memory: for somebody who has
    /// memory of his own that is used again.
    pub fn try_alloc_buffer(&self, bytes: usize) -> Option<Allocation> {
        let address = self.session().ok()?.mailbox.liveness.address();
        self.inner.options.transports.try_allocate(&address, bytes)
    }

    /// Whether there is a topic of that name.
    ///
    /// # Errors
    /// As any call.
    pub fn topic_exists(&self, name: &str) -> Result<bool, ClientError> {
        match self.begin_describe_itself(name).wait() {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a topic with everything in it. Of a spread topic nothing is deleted if the node of a partition does not answer.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownTopic`].
    pub fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let described = self.begin_describe_itself(name).wait()?;
        let parts = spread::names_of_parts(&described);
        let known = parts.iter().map(|part| self.begin_describe_itself(part));
        let known: Vec<_> = known.collect();
        let is_missing = |error: &ClientError| error.code() == Some(ErrorCode::UnknownTopic);
        let mut there = Vec::new();
        for part in known {
            match part.wait() {
                Ok(part) => there.push(part),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // The partitions go when nobody can open the topic any more, and each by its id: what is made anew stays.
        self.begin_delete_itself(name, described.topic).wait()?;
        let deleted = there.iter();
        let deleted = deleted.map(|part| self.begin_delete_itself(&part.name, part.topic));
        let deleted: Vec<_> = deleted.collect();
        let mut outcome = Ok(());
        for part in deleted {
            let part = part.wait();
            if !part.as_ref().is_err_and(is_missing) {
                outcome = outcome.and(part);
            }
        }
        outcome
    }

    /// Deletes a topic by itself, without the partitions of a spread one: for tests of what is left of it.
    #[doc(hidden)]
    pub fn delete_topic_itself(&self, name: &str) -> Result<(), ClientError> {
        self.begin_delete_itself(name, TopicId(0)).wait()
    }

    /// Deletes a topic by itself, without the partitions of a spread one: that of this id, if it is not 0.
    pub(crate) fn begin_delete_itself(&self, name: &str, topic: TopicId) -> Pending<()> {
        let what = format!("topic {name} to be deleted");
        self.begin_call(Method::DeleteTopic, topic, &named(name), what, |_| Ok(()))
    }

    /// All topics of the namespace, on whichever nodes, in the order of their names.
    ///
    /// # Errors
    /// As any call.
    pub fn list_topics(&self) -> Result<Vec<TopicDescription>, ClientError> {
        let list = self.begin_list_of_node(TopicId(0)).wait()?;
        let mut topics = list.topics;
        let others = list.others.into_iter();
        let asked: Vec<_> = others.map(|topic| self.begin_list_of_node(topic)).collect();
        // The topic that a node was asked about may be gone meanwhile.
        for asked in asked {
            match asked.wait() {
                Ok(list) => topics.extend(list.topics),
                Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {}
                Err(error) => return Err(error),
            }
        }
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        topics.dedup_by(|one, other| one.topic == other.topic);
        Ok(spread::with_partitions(topics))
    }

    /// The topics of the node that this one is on; 0 is the first node.
    fn begin_list_of_node(&self, topic: TopicId) -> Pending<TopicList> {
        let what = "the list of topics";
        self.begin_call(Method::ListTopics, topic, &Nothing, what, |reply| {
            let list = TopicList::from_bytes("topic list", &reply.head);
            list.map_err(ClientError::damaged)
        })
    }

    /// How a topic is now.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownTopic`].
    pub fn describe_topic(&self, name: &str) -> Result<TopicDescription, ClientError> {
        self.begin_describe_topic(name).wait()
    }

    /// [`Driver::describe_topic`], not waited for.
    pub fn begin_describe_topic(&self, name: &str) -> Pending<TopicDescription> {
        let session = match self.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let driver = self.clone();
        let described = self.begin_describe_itself(name);
        described.and_then(&session.mailbox, self.request_timeout(), move |described| {
            described.map_or_else(Pending::failed, |described| {
                driver.begin_describe_parts(described)
            })
        })
    }

    /// The description of a spread topic with those of its partitions; that of any other as it is.
    fn begin_describe_parts(&self, itself: TopicDescription) -> Pending<TopicDescription> {
        let names = spread::names_of_parts(&itself);
        if names.is_empty() {
            return Pending::ready(itself);
        }
        let session = match self.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        let parts = names
            .iter()
            .map(|name| self.begin_describe_itself(name))
            .collect();
        let what = format!("the description of the partitions of {}", itself.name);
        let all = Pending::all(parts, &session.mailbox, what, self.request_timeout());
        all.then(|parts| Ok(spread::joined(itself, parts)))
    }

    /// The same of the topic by itself, without the partitions of a spread one.
    pub(crate) fn begin_describe_itself(&self, name: &str) -> Pending<TopicDescription> {
        let what = format!("the description of topic {name}");
        self.begin_call(
            Method::DescribeTopic,
            TopicId(0),
            &named(name),
            what,
            |reply| description(&reply),
        )
    }

    /// Changes the definition of a topic by itself, without those of the partitions of a spread one.
    pub(crate) fn alter_itself(
        &self,
        topic: TopicId,
        name: &str,
        changes: &str,
    ) -> Result<TopicDescription, ClientError> {
        self.begin_alter_itself(topic, name, changes).wait()
    }

    pub(crate) fn begin_alter_itself(
        &self,
        topic: TopicId,
        name: &str,
        changes: &str,
    ) -> Pending<TopicDescription> {
        let body = AlterTopic {
            changes: changes.to_owned(),
        };
        let what = format!("topic {name} to be altered");
        self.begin_call(Method::AlterTopic, topic, &body, what, |reply| {
            description(&reply)
        })
    }

    /// Every gap recorded for a topic, in the order of partition,
    /// incarnation and offset.
    ///
    /// # Errors
    /// [`ClientError::Server`] with [`ErrorCode::UnknownTopic`].
    pub fn gaps(&self, topic: &str) -> Result<Vec<(PartitionIndex, Gap)>, ClientError> {
        let parts = spread::names_of_parts(&self.begin_describe_itself(topic).wait()?);
        let mut gaps = self.gaps_itself(topic)?;
        for part in parts {
            gaps.extend(self.gaps_itself(&part)?);
        }
        Ok(gaps)
    }

    fn gaps_itself(&self, topic: &str) -> Result<Vec<(PartitionIndex, Gap)>, ClientError> {
        let what = format!("the gaps of topic {topic}");
        self.begin_call(Method::ListGaps, TopicId(0), &named(topic), what, |reply| {
            let list = GapList::from_bytes("gap list", &reply.head);
            Ok(list.map_err(ClientError::damaged)?.gaps)
        })
        .wait()
    }

    /// The server's state, as JSON: of all of its shards, or of all servers of its cluster. One that does not answer within
    /// five seconds is there with its `failure`.
    ///
    /// # Errors
    /// As any call.
    pub fn status(&self) -> Result<String, ClientError> {
        let first = self.begin_status_of(DirectoryId(0)).wait()?;
        status::whole(first, |others| {
            let asked = others.iter().map(|other| self.begin_status_of(*other));
            let asked: Vec<_> = asked.collect();
            let until = Instant::now() + STATUS_WITHIN;
            let answers = asked.into_iter().map(|mut one| {
                let left = until.saturating_duration_since(Instant::now());
                one.wait_for(Some(left)).unwrap_or_else(|| {
                    one.cancel();
                    let what = format!("its status ({} s)", STATUS_WITHIN.as_secs());
                    Err(ClientError::Timeout { what })
                })
            });
            answers.collect()
        })
    }

    /// The state of the node with this data directory; 0 is the first one.
    fn begin_status_of(&self, directory: DirectoryId) -> Pending<String> {
        let what = "the server's status";
        // The place of a node is followed as that of a topic is.
        let place = TopicId(directory.0);
        self.begin_call(Method::Status, place, &Nothing, what, |reply| {
            let status = StatusReply::from_bytes("status", &reply.head);
            Ok(status.map_err(ClientError::damaged)?.json)
        })
    }

    /// Whether this client might do something, and why not: `verb` is read, write, manage or
    /// admin, `topic` a topic of the namespace, or `NAMESPACE/TOPIC`; empty is the server.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::Unsupported`] of a verb that there is not.
    pub fn check_access(&self, verb: &str, topic: &str) -> Result<AccessChecked, ClientError> {
        let body = CheckAccess {
            verb: verb.to_owned(),
            topic: topic.to_owned(),
        };
        let what = "whether something is allowed";
        self.begin_call(Method::CheckAccess, TopicId(0), &body, what, |reply| {
            let checked = AccessChecked::from_bytes("access checked", &reply.head);
            checked.map_err(ClientError::damaged)
        })
        .wait()
    }

    /// A one-time code by which one client gets a certificate: the client has to have the right to administer the
    /// server.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::Unsupported`] of a name or a time that no certificate has.
    pub fn offer_pairing(&self, asked: &OfferPairing) -> Result<PairingOffered, ClientError> {
        let what = "a code for pairing";
        self.begin_call(Method::OfferPairing, TopicId(0), asked, what, |reply| {
            let offered = PairingOffered::from_bytes("pairing offered", &reply.head);
            offered.map_err(ClientError::damaged)
        })
        .wait()
    }

    /// The nodes of the server's cluster, in the order of their ids; none, if it is alone. The client has to have the right
    /// to administer the server.
    ///
    /// # Errors
    /// As any call.
    pub fn list_nodes(&self) -> Result<Vec<NodeDescription>, ClientError> {
        self.nodes_and_topics(NodeId(0)).map(|list| list.nodes)
    }

    /// The topics of a node, of all namespaces: (namespace, name), ascending. None of one that there is not.
    ///
    /// # Errors
    /// As [`Driver::list_nodes`].
    pub fn topics_of_node(&self, node: NodeId) -> Result<Vec<(String, String)>, ClientError> {
        self.nodes_and_topics(node).map(|list| list.topics)
    }

    fn nodes_and_topics(&self, topics_of: NodeId) -> Result<NodeList, ClientError> {
        let what = "the nodes of the cluster";
        let body = ListNodes { topics_of };
        self.begin_call(Method::ListNodes, TopicId(0), &body, what, |reply| {
            let list = NodeList::from_bytes("node list", &reply.head);
            list.map_err(ClientError::damaged)
        })
        .wait()
    }

    /// Gives a node of the cluster another state: serving, draining or removed. Removing one is for good, and takes the topics
    /// with it that are on it, if `accept_loss`. Blocks until the table has it. The client has to have the right to administer the
    /// server.
    ///
    /// # Errors
    /// As any call; [`ErrorCode::Unsupported`] of a node that there is not, of one to be removed that runs, or that has topics
    /// whose loss is not accepted.
    pub fn set_node(
        &self,
        node: NodeId,
        state: NodeState,
        accept_loss: bool,
    ) -> Result<(), ClientError> {
        let body = SetNode {
            node,
            state,
            accept_loss,
        };
        let what = format!("node {node} to be {state}");
        self.begin_call(Method::SetNode, TopicId(0), &body, what, |_| Ok(()))
            .wait()
    }

    /// Asks the server to drain and end.
    ///
    /// # Errors
    /// As any call.
    pub fn shutdown_server(&self) -> Result<(), ClientError> {
        let what = "the server to shut down";
        self.begin_call(Method::Shutdown, TopicId(0), &Nothing, what, |_| Ok(()))
            .wait()
    }

    /// Whether it has ended by itself: refused, or closed. What is asked of it fails at once from then on.
    pub fn has_ended(&self) -> bool {
        let session = self.inner.slot.get();
        session.is_some_and(|session| session.mailbox.ended().is_some())
    }

    /// Drains every producer, waits until what was settled of queues is
    /// durable, and closes the connection. All handles of this driver fail with
    /// [`ClientError::Closed`] from then on.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if that was not done in time: the futures of
    /// what is left fail; it closes all the same.
    pub fn close(&self, timeout: Duration) -> Result<(), ClientError> {
        let Some(session) = self.inner.slot.get() else {
            return Ok(());
        };
        let result = session.drain(timeout);
        session.close();
        result
    }

    /// Drives the network, on the calling thread, where the driver has none of
    /// its own ([`crate::Progress::Caller`]): does what there is to do; if there was
    /// nothing, waits up to `wait` for it first. Callbacks come meanwhile.
    ///
    /// To be called whenever [`Driver::descriptor`] is readable. Every call that
    /// waits does the same while it waits. One thread drives at a time;
    /// another one waits until it has.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if a thread drives, or from a callback;
    /// [`ClientError::Closed`] when the driver is closed.
    pub fn progress(&self, wait: Duration) -> Result<(), ClientError> {
        self.session()?.caller_runs()?.progress(wait)
    }

    /// The descriptor that is readable when [`Driver::progress`] has something
    /// to do: messages, timers, and what other threads want. It covers all of
    /// the driver's networks, stays the same for as long as the driver is open
    /// in this process, and is to be waited for only.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the driver has a thread.
    pub fn descriptor(&self) -> Result<RawFd, ClientError> {
        Ok(self.session()?.caller_runs()?.descriptor())
    }

    /// Makes a [`Driver::progress`] that waits return.
    pub fn wake(&self) {
        if let Some(session) = self.inner.slot.get() {
            session.mailbox.wake();
        }
    }

    /// How often things happened on this driver's connection.
    pub fn counters(&self) -> Arc<Counters> {
        match self.inner.slot.get() {
            Some(session) => session.mailbox.counters.clone(),
            None => Arc::default(),
        }
    }

    /// How many connections the session has now, where it may have several ([`DriverOptions::stripes`]); 0 where it may
    /// not, or the server does not have it.
    pub fn stripes(&self) -> usize {
        let session = self.session().ok();
        session.map_or(0, |session| session.mailbox.liveness.stripe_count())
    }

    /// Where the server was reached last, as `tcp://host:port`; empty if it never was.
    pub fn address(&self) -> String {
        let session = self.inner.slot.get();
        session.map_or_else(String::new, |session| session.mailbox.liveness.address())
    }

    /// Who the server is and when it was last heard of, in words.
    pub fn liveness(&self) -> String {
        match self.inner.slot.get() {
            Some(session) => session.mailbox.liveness.describe_now(),
            None => "not connected in this process".to_owned(),
        }
    }
}

/// Checksums of what was read, and the memory that it was read into.
type Parts = (Vec<u32>, Vec<Target>);

/// Parts of a read of data that are to be asked for, and what came of those before.
struct PartsToRead {
    session: Weak<Session>,
    topic: TopicId,
    timeout: Duration,
    what: String,
    parts: VecDeque<Part>,
    done: Parts,
    /// Where the outcome of all is put, and who is notified then.
    outcome: Arc<Mutex<Option<Result<Parts, ClientError>>>>,
    promise: Promise,
}

impl PartsToRead {
    /// Asks for one part after the other.
    fn begin(self) -> Pending<Parts> {
        let count = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let timeout = self.timeout.saturating_mul(count);
        let (promise, what) = (self.promise.clone(), self.what.clone());
        let outcome = self.outcome.clone();
        self.next();
        Pending::new(promise, what, timeout, move |_| {
            let outcome = outcome.lock().expect("no holder panics here").take();
            outcome.unwrap_or(Err(ClientError::Closed))
        })
    }

    fn next(mut self) {
        let Some(session) = self.session.upgrade() else {
            return self.end(Err(ClientError::Closed));
        };
        let Some(part) = self.parts.pop_front() else {
            let done = std::mem::take(&mut self.done);
            return self.end(Ok(done));
        };
        let read = session.begin_call(
            self.timeout,
            Method::ReadData,
            self.topic,
            part.wanted.to_bytes(),
            part.into,
            self.what.clone(),
            |reply| {
                let read =
                    DataRead::from_bytes("data read", &reply.head).map_err(ClientError::damaged)?;
                Ok((read.checksums, reply.targets))
            },
        );
        read.hand_to(move |read| match read {
            Ok((checksums, targets)) => {
                self.done.0.extend(checksums);
                self.done.1.extend(targets);
                self.next();
            }
            Err(error) => self.end(Err(error)),
        });
    }

    fn end(self, outcome: Result<Parts, ClientError>) {
        *self.outcome.lock().expect("no holder panics here") = Some(outcome);
        self.promise.resolve(Ok(Reply::default()));
    }
}

/// A request without fields.
pub(crate) struct Nothing;

impl Codec for Nothing {
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(_from: &mut wire::codec::Reader<'_>) -> Result<Self, wire::DecodeError> {
        Ok(Self)
    }
}

fn named(name: &str) -> TopicName {
    TopicName {
        name: name.to_owned(),
    }
}

/// The description of a topic that a reply holds.
pub(crate) fn description(reply: &Reply) -> Result<TopicDescription, ClientError> {
    TopicDescription::from_bytes("topic description", &reply.head).map_err(ClientError::damaged)
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({})", self.inner.endpoint)
    }
}
