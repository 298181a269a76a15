//! `thalweg.Topic`.

use crate::ahead::Group;
use crate::connection::Connection;
use crate::consumer::{Consumer, Kind};
use crate::driver::Driver;
use crate::event::Event;
use crate::future::EventId;
use crate::options::{End, batch_policy, invalid, milliseconds, start_of_new};
use crate::producer::{Policy, Producer};
use crate::queue::QueueConsumer;
use crate::reader::Reader;
use crate::recipe::recipe;
use crate::requester::Requester;
use crate::select::{self, Parsed, Wanted};
use crate::view::DataView;
use crate::{describe, error, json, lend, options, wait};
use client::{
    AtBudget, ClientError, ConsumerOptions, DataMode, GroupMember, GroupOptions, Linger, Ordering,
    ProducerOptions, QueueConsumerOptions, QueueOptions, ReadEnd, ReadOptions, RequesterOptions,
    TopicHandle,
};
use memory::Target;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::message::DataWanted;
use wire::record::Position;
use wire::{Incarnation, Offset, PartitionIndex};

/// The longest that a fetch waits at the server.
const FETCH_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// A topic of a server: where producers and consumers come from.
///
/// Made by `Driver.create_topic` and `Driver.open_topic`. Holds no resource of
/// its own; usable by several threads, and in a child after `os.fork()`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Topic")]
pub struct Topic {
    handle: TopicHandle,
    /// Keeps the connection while the topic is in use.
    connection: Arc<Connection>,
}

impl Topic {
    pub fn new(handle: TopicHandle, connection: Arc<Connection>) -> Self {
        Self { handle, connection }
    }

    pub fn handle(&self) -> &TopicHandle {
        &self.handle
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Whether metadata is bytes without a meaning.
    pub fn is_raw(&self) -> bool {
        *self.handle.definition().serializer() == topic::SerializerKind::Raw
    }

    /// A position in a partition: an offset in its present life, or an id.
    pub fn position(&self, index: PartitionIndex, at: &Bound<'_, PyAny>) -> PyResult<Position> {
        let py = at.py();
        if let Ok(id) = at.cast::<EventId>() {
            let id = id.get().0;
            if id.partition != index {
                let message = format!("event {id} is not in partition {index}");
                return Err(error::new(py, "InvalidArgument", message));
            }
            return Ok(Position {
                incarnation: id.incarnation,
                offset: id.offset,
            });
        }
        let offset = Offset(at.extract()?);
        let described = self.handle.partitions();
        let incarnation = described
            .iter()
            .find(|partition| partition.partition == index)
            .map_or(Incarnation(0), |partition| partition.incarnation);
        Ok(Position {
            incarnation,
            offset,
        })
    }

    /// Whether a consumer of these partitions can begin at `start`: of an event's id
    /// the partition is one that is read.
    fn check_start(&self, start: &Bound<'_, PyAny>, partitions: Option<&[u32]>) -> PyResult<()> {
        let Ok(id) = start.cast::<EventId>() else {
            return Ok(());
        };
        let partition = id.get().0.partition.0;
        let count = self.handle.partitions().len();
        if partition as usize >= count {
            let message = format!(
                "start is an event of partition {partition}; {} has {count}, counted from 0",
                self.name()
            );
            return Err(error::new(start.py(), "UnknownPartition", message));
        }
        match partitions {
            Some(partitions) if !partitions.contains(&partition) => {
                let message = format!(
                    "start is an event of partition {partition}, which is none of those to read"
                );
                Err(invalid(start.py(), message))
            }
            _ => Ok(()),
        }
    }

    /// Makes a call that blocks, while the driver is open.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&TopicHandle) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        if self.connection.is_closed() {
            return Err(error::new(py, "Closed", "the driver is closed".into()));
        }
        let handle = self.handle.clone();
        wait::interruptible(py, move || call(&handle))
    }
}

#[pymethods]
impl Topic {
    /// The topic's name.
    #[getter]
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// 32 hexadecimal digits; a new topic of the same name has another id.
    #[getter]
    fn id(&self) -> String {
        self.handle.id().to_string()
    }

    /// The definition that is stored with the topic, as last known, as a dict.
    /// Does not block; `refresh` asks the server.
    #[getter]
    fn definition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = self.handle.definition_now().to_json();
        json::loads(py, text.as_bytes(), || "the topic's definition".into())
    }

    /// The partitions as last known, a tuple of `PartitionDescription`. Does
    /// not block; `refresh` asks the server.
    #[getter]
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        describe::partitions(py, &self.handle.partitions())
    }

    /// Asks the server for the topic's partitions as they are now.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |handle| handle.refresh().map(drop))
    }

    /// Opens a producer.
    ///
    /// - `name`: under it the producer keeps its identity across restarts of
    ///   the program; opening it again fences the one before.
    /// - `batch`: `"adaptive"` sends what has gathered as soon as the batch
    ///   before it is acknowledged; a number of events sends batches of that
    ///   many (a flush, a close or a wait for a future sends what there is).
    /// - `batch_bytes`: the most bytes in a batch, 1 MiB by default.
    /// - `linger_ms`: how long a batch that is not full waits, milliseconds.
    /// - `batches_in_flight`: sent and not acknowledged, for each partition.
    /// - `budget_bytes`: bytes of events held until they are acknowledged, 64
    ///   MiB by default; one larger event is let in alone.
    /// - `at_budget`: `"block"` lets `push` wait for space up to
    ///   `block_timeout` seconds, `"fail"` raises `BudgetExceeded` at once.
    /// - `durability`: what an acknowledgement must mean, if more than the
    ///   topic promises.
    /// - `journal`: a file to which every acknowledged batch is appended, for
    ///   `thalweg audit`.
    /// - `ack_timeout`: seconds until an acknowledgement that does not come is
    ///   an error. Opening the producer takes no longer either, or as long as
    ///   the driver's `request_timeout`, if that is less.
    /// - `threads`: with 0, `push` validates and serializes, and raises what is
    ///   wrong; with more, so many threads do, and the future raises it. Worth
    ///   it for schemas and plugins that take long, not for those in Python.
    /// - `ordering`: how events leave the threads: `"strict"`, in the order of
    ///   pushing, or `"loose"`, as they are done.
    /// - `check_borrowed`: to look for mistakes: whether data that was pushed
    ///   with `borrow` is compared, when it is sent, with what it was when it was
    ///   pushed. If it was changed, the event is not stored, and its future and
    ///   all that follows raise `DataChanged`. Without it such an event is stored
    ///   with what its memory held when it was sent. Costs a checksum of it.
    ///
    /// Raises `InvalidArgument`, `UnknownTopic`, `Timeout`, `Unreachable`.
    #[pyo3(signature = (name = None, *, batch = None, batch_bytes = None, linger_ms = None,
                        batches_in_flight = 4, budget_bytes = None, at_budget = "block",
                        block_timeout = 120.0, durability = None, journal = None,
                        ack_timeout = 120.0, threads = 0, ordering = "strict",
                        check_borrowed = false))]
    #[allow(clippy::too_many_arguments)]
    fn producer(
        slf: &Bound<'_, Self>,
        name: Option<String>,
        batch: Option<&Bound<'_, PyAny>>,
        batch_bytes: Option<u32>,
        linger_ms: Option<f64>,
        batches_in_flight: usize,
        budget_bytes: Option<u64>,
        at_budget: &str,
        block_timeout: f64,
        durability: Option<&str>,
        journal: Option<PathBuf>,
        ack_timeout: f64,
        threads: usize,
        ordering: &str,
        check_borrowed: bool,
    ) -> PyResult<Producer> {
        let py = slf.py();
        let recipe = recipe!(
            py,
            "producer",
            name,
            batch,
            batch_bytes,
            linger_ms,
            batches_in_flight,
            budget_bytes,
            at_budget,
            block_timeout,
            durability,
            journal,
            ack_timeout,
            threads,
            ordering,
            check_borrowed
        );
        let linger = wait::milliseconds("linger_ms", linger_ms)?;
        let block_timeout = wait::number("block_timeout", block_timeout)?;
        let room_timeout = match at_budget {
            "block" => Some(block_timeout),
            "fail" => None,
            other => {
                let message = format!("at_budget is block or fail, not {other:?}");
                return Err(invalid(py, message));
            }
        };
        let ordering = match ordering {
            "strict" => Ordering::Strict,
            "loose" => Ordering::Loose,
            other => {
                let message = format!("ordering is strict or loose, not {other:?}");
                return Err(invalid(py, message));
            }
        };
        let mut options = ProducerOptions {
            name,
            threads,
            ordering,
            check_borrowed,
            batch: batch_policy(batch, batch_bytes, linger)?,
            batches_in_flight_max: batches_in_flight,
            // The client never blocks: only here Ctrl-C is seen while waiting.
            at_budget: AtBudget::Fail,
            durability: options::durability(py, durability)?,
            journal,
            // What is not large is the program's again when the push returns.
            copied_bytes_max: u32::MAX,
            ..ProducerOptions::default()
        };
        if let Some(bytes) = budget_bytes {
            options.budget_bytes = bytes;
        }
        options.ack_timeout = wait::number("ack_timeout", ack_timeout)?;
        let definition = slf.get().handle.definition();
        let judges_by_schema = matches!(definition.validator(), ::topic::ValidatorKind::Schema(_));
        let selector = definition.partition_selector();
        let selects_in_python = selector.plugin().is_some_and(|plugin| !plugin.is_library());
        let sends_by_itself = options.batch.linger == Linger::Adaptive;
        let client = slf.get().call(py, move |handle| handle.producer(options))?;
        let policy = Policy {
            room_timeout,
            sends_by_itself,
            selects_in_python,
            judges_by_schema,
        };
        Ok(Producer::new(client, slf.clone().unbind(), policy, recipe))
    }

    /// Opens a consumer.
    ///
    /// - `name`: its cursors are kept under this name. Several consumers of
    ///   one name each get everything and share the greatest cursor.
    /// - `start`: `"cursor"` begins behind the last acknowledged event, for a
    ///   new name at the first one; `"cursor_or_latest"` for a new name behind
    ///   the last one; `"beginning"`, `"latest"`, an offset (in each
    ///   partition), the `EventId` of the first event wanted, or a negative number:
    ///   with so many last events of each partition. A time begins with the first batch
    ///   that the server took then or later: an aware datetime, a `datetime64` (UTC), a
    ///   timedelta (so long ago), or a str such as `"-15m"`, `"-7d"`, `"2026-11-23"` or
    ///   `"2026-11-23 04:00"` (of this machine's time zone), `"2026-11-23T04:00:00Z"`.
    /// - `partitions`: the indices of those to read; None reads all.
    /// - `data`: True gets all data of every event, False none. A function
    ///   `select(metadata, data)` gets the parsed metadata and a `DataView` of
    ///   the whole and returns a `DataView` of what is wanted, or None; only
    ///   that travels.
    /// - `allocator`: a function `allocate(metadata, view)` that returns a
    ///   writable buffer of `view.nbytes` bytes, such as a numpy array. The
    ///   data is received in it without a copy; it is `event.buffer` then. Without
    ///   one, and without a function `data`, large data is read as soon as its
    ///   event arrives, for up to two batches, into memory that is used again
    ///   once nobody has a view of it any more.
    /// - `inline_along`: True brings short data along with its event, and the
    ///   function `data` picks from it here; to ask the server for what it
    ///   picked, batch by batch, costs more where that is most of it. False
    ///   brings nothing but what was picked.
    /// - `on_gap`: a function `on_gap(gap)` that is called when events are
    ///   lost, instead of a `GapWarning`.
    /// - `credit_bytes`: bytes of batches that may wait here for each
    ///   partition, 16 MiB by default.
    /// - `merge_wait`: events of all partitions come in the order in which the
    ///   server appended them. One is held back while there may be an older
    ///   one: until every partition has one here, or for this many seconds (a
    ///   quarter more at most) after it arrived; what comes later still is
    ///   handed out at once. With None partitions take turns.
    /// - `latest`: True for viewers: of each partition only the newest event comes. One that
    ///   has not been pulled when a newer one arrives is passed over, and counted by
    ///   `Consumer.skipped`; one at most waits here, and the last event of a quiet topic
    ///   always comes. Large data travels when its event is pulled. Begins with the newest
    ///   event there is (-1), unless `start` says where the count is to begin. Not with
    ///   `merge_wait`.
    ///
    /// The functions are called on a thread that pulls. Raises
    /// `InvalidArgument`, `UnknownPartition`, `OutOfRange`, `Timeout`,
    /// `Unreachable`.
    #[pyo3(signature = (name, *, start = None, partitions = None, data = None, allocator = None,
                        on_gap = None, credit_bytes = None, merge_wait = None,
                        inline_along = false, latest = false))]
    #[allow(clippy::too_many_arguments)]
    fn consumer(
        slf: &Bound<'_, Self>,
        name: String,
        start: Option<&Bound<'_, PyAny>>,
        partitions: Option<Vec<u32>>,
        data: Option<&Bound<'_, PyAny>>,
        allocator: Option<Py<PyAny>>,
        on_gap: Option<Py<PyAny>>,
        credit_bytes: Option<u64>,
        merge_wait: Option<f64>,
        inline_along: bool,
        latest: bool,
    ) -> PyResult<Consumer> {
        let py = slf.py();
        let recipe = recipe!(
            py,
            "consumer",
            name,
            start,
            partitions,
            data,
            allocator,
            on_gap,
            credit_bytes,
            merge_wait,
            inline_along,
            latest
        );
        let this = slf.get();
        let default = match latest {
            true => ConsumerOptions::newest(),
            false => ConsumerOptions::default(),
        };
        let mut options = ConsumerOptions {
            partitions,
            inline_along,
            merge_wait: wait::seconds("merge_wait", merge_wait)?,
            ..default
        };
        if let Some(start) = start {
            options.start = options::start(start)?;
            this.check_start(start, options.partitions.as_deref())?;
        }
        if let Some(bytes) = credit_bytes {
            options.credit_bytes = bytes;
        }
        let wanted = Wanted::new(this.is_raw(), data, allocator)?;
        (options.data, options.allocator) = (wanted.data, wanted.allocator);
        let client = this.call(py, move |handle| handle.consumer(&name, options))?;
        let client = Arc::new(client);
        this.connection.remember(&client);
        Ok(Consumer::new(
            py,
            client,
            slf.clone().unbind(),
            on_gap,
            wanted.parsed,
            Kind::Independent { latest },
            recipe,
        ))
    }

    /// Reads what the topic has now, or a part of that, and ends: without a name
    /// and a cursor. Use it in a `with` block, or iterate to the end.
    ///
    /// - `start`: `"beginning"` (also None), or a place as for `consumer`: an offset (in
    ///   each partition), `-10` for the last ten events of each, an `EventId`, a time.
    /// - `end`: `"now"` ends behind what is visible when the read begins, so
    ///   also while events are pushed. Others end there too, or sooner: a time, as
    ///   for `start`, before the first event that the server appended then or
    ///   later; an offset (in each partition) or an `EventId` (in its partition)
    ///   before that event; a dict has an offset or an `EventId` for each
    ///   partition that is to end sooner.
    /// - `partitions`: the indices of those to read; None reads all.
    /// - `data`, `allocator`, `on_gap`, `credit_bytes`: as for `consumer`.
    ///
    /// The functions are called on a thread that iterates. Blocks until the server
    /// has said where the topic ends. Raises `InvalidArgument`, `UnknownPartition`,
    /// `StorageError` if what a partition has is not known, `Timeout`, `Unreachable`.
    #[pyo3(signature = (*, start = None, end = None, partitions = None, data = None,
                        allocator = None, on_gap = None, credit_bytes = None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        partitions: Option<Vec<u32>>,
        data: Option<&Bound<'_, PyAny>>,
        allocator: Option<Py<PyAny>>,
        on_gap: Option<Py<PyAny>>,
        credit_bytes: Option<u64>,
    ) -> PyResult<Reader> {
        let (py, this) = (slf.py(), slf.get());
        let mut options = ReadOptions {
            partitions,
            ..ReadOptions::default()
        };
        if let Some(start) = start {
            options.start = options::start(start)?;
            this.check_start(start, options.partitions.as_deref())?;
        }
        let end = end.map_or(Ok(End::Client(ReadEnd::Now)), options::end)?;
        if let Some(bytes) = credit_bytes {
            options.credit_bytes = bytes;
        }
        let wanted = Wanted::new(this.is_raw(), data, allocator)?;
        (options.data, options.allocator) = (wanted.data, wanted.allocator);
        let with_data = !matches!(options.data, DataMode::None);
        let client = this.call(py, move |handle| {
            options.end = match end {
                End::Client(end) => end,
                End::Offset(offset) => {
                    let position = Position {
                        incarnation: Incarnation(0),
                        offset,
                    };
                    let chosen = match &options.partitions {
                        Some(partitions) => partitions.clone(),
                        None => (0..handle.refresh()?.partitions.len() as u32).collect(),
                    };
                    let ends = chosen
                        .into_iter()
                        .map(|one| (PartitionIndex(one), position));
                    ReadEnd::Before(ends.collect())
                }
            };
            handle.read(options)
        })?;
        let topic = slf.clone().unbind();
        Ok(Reader::new(
            py,
            client,
            topic,
            on_gap,
            wanted.parsed,
            with_data,
        ))
    }

    /// Joins a group: its members, in any number of programs, share the
    /// topic's partitions, and each reads those that it is assigned, in order.
    ///
    /// - `name`: the group's; made if it is not known. A name that is a queue's or
    ///   an independent consumer's is refused.
    /// - `start`: where a new group begins: `"beginning"` or `"latest"`. A
    ///   known one goes on behind what was acknowledged.
    /// - `instance`: a name of this member: a program that comes back under
    ///   the same one within the session timeout takes over the partitions of
    ///   its predecessor, and fences it.
    /// - `session_timeout`: seconds that the server may hear nothing of this
    ///   program before its partitions go to others. The client gives signs of
    ///   life by itself.
    /// - `processing_timeout`: seconds that the program may stay away from its
    ///   consumer; then it leaves by itself. None is for ever.
    /// - `revoke_timeout`: seconds that a member has to release a partition that
    ///   goes to another; the group's, set by whoever uses the name first.
    /// - `on_assigned`, `on_revoking`, `on_lost`: functions that are called
    ///   with a list of partition indices: those that came, those that are to
    ///   go, and those that were taken away already. When `on_revoking`
    ///   returns, what was acknowledged is sent and the partitions are
    ///   released: acknowledge there what is finished. What is acknowledged
    ///   of a lost partition raises `MemberFenced`.
    /// - `data`, `allocator`, `inline_along`, `on_gap`, `credit_bytes`: as for
    ///   `consumer`.
    ///
    /// The functions are called on a thread that pulls, from within the pull:
    /// a program that does not pull loses partitions after the revoke timeout.
    /// What they raise is raised by the pull; the partitions have come or gone
    /// all the same. Events of a partition that went are not pulled any more.
    /// Raises `InvalidArgument`, `Timeout`, `Unreachable`.
    #[pyo3(signature = (name, *, start = "beginning", instance = None, session_timeout = 10.0,
                        processing_timeout = None, revoke_timeout = 30.0, on_assigned = None,
                        on_revoking = None, on_lost = None, data = None, allocator = None,
                        on_gap = None, credit_bytes = None, inline_along = false))]
    #[allow(clippy::too_many_arguments)]
    fn group(
        slf: &Bound<'_, Self>,
        name: String,
        start: &str,
        instance: Option<String>,
        session_timeout: f64,
        processing_timeout: Option<f64>,
        revoke_timeout: f64,
        on_assigned: Option<Py<PyAny>>,
        on_revoking: Option<Py<PyAny>>,
        on_lost: Option<Py<PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
        allocator: Option<Py<PyAny>>,
        on_gap: Option<Py<PyAny>>,
        credit_bytes: Option<u64>,
        inline_along: bool,
    ) -> PyResult<Consumer> {
        let py = slf.py();
        let recipe = recipe!(
            py,
            "group",
            name,
            start,
            instance,
            session_timeout,
            processing_timeout,
            revoke_timeout,
            on_assigned,
            on_revoking,
            on_lost,
            data,
            allocator,
            on_gap,
            credit_bytes,
            inline_along
        );
        let this = slf.get();
        let wanted = Wanted::new(this.is_raw(), data, allocator)?;
        // Its callbacks leave there what they raise.
        let parsed = wanted.parsed.unwrap_or_else(|| Parsed::new(this.is_raw()));
        let told = |function: Option<Py<PyAny>>| {
            function.map(|function| select::on_partitions(function, parsed.clone()))
        };
        let member = GroupMember {
            group: GroupOptions {
                revoke_timeout_ms: milliseconds(wait::number("revoke_timeout", revoke_timeout)?),
            },
            instance,
            session_timeout: wait::number("session_timeout", session_timeout)?,
            processing_timeout: wait::seconds("processing_timeout", processing_timeout)?,
            on_assigned: told(on_assigned),
            on_revoking: told(on_revoking),
            on_lost: told(on_lost),
        };
        let mut options = ConsumerOptions {
            start: start_of_new(py, start)?.into(),
            data: wanted.data,
            allocator: wanted.allocator,
            inline_along,
            ..ConsumerOptions::default()
        };
        if let Some(bytes) = credit_bytes {
            options.credit_bytes = bytes;
        }
        let client = this.call(py, move |handle| handle.group(&name, member, options))?;
        let client = Arc::new(client);
        this.connection.remember(&client);
        let topic = slf.clone().unbind();
        let parsed = Some(parsed);
        Ok(Consumer::new(
            py,
            client,
            topic,
            on_gap,
            parsed,
            Kind::Member,
            recipe,
        ))
    }

    /// Joins a queue: its members, in any number of programs, share the
    /// topic's events, each under a lease.
    ///
    /// - `name`: the queue's; made if it is not known. A name that is a group's or
    ///   an independent consumer's is refused.
    /// - `lease`: seconds that a member has to settle an event, or to extend
    ///   its lease; then others get it.
    /// - `deliveries_max`: how often an event is delivered at most; 0 is without limit.
    /// - `dead_letter_topic`: where an event goes that is rejected, or comes
    ///   back after its last delivery; the topic's name with `.dead` behind it
    ///   by default. Made if it is missing.
    /// - `ordered_by_key`: while an event of a key is out, no later one of
    ///   that key is given out.
    /// - `start`: where a new queue begins: `"beginning"` or `"latest"`.
    /// - `instance`: a name of this member: a program that comes back under
    ///   the same one within the session timeout takes over what its
    ///   predecessor held, and fences it.
    /// - `session_timeout`: seconds that the server may hear nothing of this
    ///   program before its events go to others. The client gives signs of
    ///   life by itself.
    /// - `processing_timeout`: seconds that the program may stay away from its
    ///   consumer; then it leaves by itself. None is for ever.
    /// - `prefetch`, `prefetch_bytes`: the most events, and bytes of them (16
    ///   MiB by default), that are here and not settled. With long tasks use
    ///   few, so that no worker waits for what lies with another.
    /// - `data`, `allocator`, `on_gap`: as for `consumer`.
    /// - `renew`: whether leases of pulled events are extended in the
    ///   background, however long the program takes.
    /// - `job_end`: when the batch job ends: seconds since 1970, or an aware
    ///   datetime; None is what the batch system says in the environment
    ///   (`SLURM_JOB_END_TIME`), False never. From `wind_down` seconds before it
    ///   on nothing new is handed out and iteration ends; a quarter of that
    ///   before it, what is not settled goes to others, uncounted.
    ///
    /// `lease`, `deliveries_max`, `dead_letter_topic` and `ordered_by_key` are the
    /// queue's: whoever uses the name first sets them, others get what was set
    /// (`QueueConsumer.options`). Durable when it returns. Raises
    /// `InvalidArgument`, `Timeout`, `Unreachable`.
    #[pyo3(signature = (name, *, lease = 30.0, deliveries_max = 20, dead_letter_topic = None,
                        ordered_by_key = false, start = "beginning", instance = None,
                        session_timeout = 10.0, processing_timeout = None, prefetch = 256,
                        prefetch_bytes = None, data = None, allocator = None, on_gap = None,
                        renew = false, job_end = None, wind_down = 60.0))]
    #[allow(clippy::too_many_arguments)]
    fn queue(
        slf: &Bound<'_, Self>,
        name: String,
        lease: f64,
        deliveries_max: u32,
        dead_letter_topic: Option<String>,
        ordered_by_key: bool,
        start: &str,
        instance: Option<String>,
        session_timeout: f64,
        processing_timeout: Option<f64>,
        prefetch: u32,
        prefetch_bytes: Option<u64>,
        data: Option<&Bound<'_, PyAny>>,
        allocator: Option<Py<PyAny>>,
        on_gap: Option<Py<PyAny>>,
        renew: bool,
        job_end: Option<&Bound<'_, PyAny>>,
        wind_down: f64,
    ) -> PyResult<QueueConsumer> {
        let py = slf.py();
        let recipe = recipe!(
            py,
            "queue",
            name,
            lease,
            deliveries_max,
            dead_letter_topic,
            ordered_by_key,
            start,
            instance,
            session_timeout,
            processing_timeout,
            prefetch,
            prefetch_bytes,
            data,
            allocator,
            on_gap,
            renew
        );
        let this = slf.get();
        let wanted = Wanted::new(this.is_raw(), data, allocator)?;
        let mut options = QueueConsumerOptions {
            queue: QueueOptions {
                lease_ms: milliseconds(wait::number("lease", lease)?),
                deliveries_max,
                dead_letter_topic: dead_letter_topic.unwrap_or_default(),
                ordered_by_key,
            },
            start: start_of_new(py, start)?,
            instance,
            session_timeout: wait::number("session_timeout", session_timeout)?,
            processing_timeout: wait::seconds("processing_timeout", processing_timeout)?,
            prefetch_events: prefetch,
            data: wanted.data,
            allocator: wanted.allocator,
            job_end: options::job_end(job_end, wait::number("wind_down", wind_down)?)?,
            renew,
            ..QueueConsumerOptions::default()
        };
        if let Some(bytes) = prefetch_bytes {
            options.prefetch_bytes = bytes;
        }
        let (client, options) = this.call(py, move |handle| {
            let client = handle.queue(&name, options)?;
            let options = client.queue_options()?;
            Ok((client, options))
        })?;
        let client = Arc::new(client);
        this.connection.remember_queue(&client);
        let topic = slf.clone().unbind();
        let parsed = wanted.parsed;
        Ok(QueueConsumer::new(
            py, client, options, topic, on_gap, parsed, recipe,
        ))
    }

    /// Opens a requester: it sends requests to this topic, whose workers are
    /// members of a queue, and gets their replies.
    ///
    /// Replies come over the topic `TOPIC.replies`, which is made if it is
    /// missing.
    ///
    /// - `data`: whether data of replies is wanted; without it they have
    ///   metadata alone.
    /// - `budget_bytes`: bytes of requests held until they are stored, 64 MiB
    ///   by default; one larger request is let in alone. At that bound a
    ///   request waits for space, up to `block_timeout` seconds.
    /// - `durability`: what a request survives, if more than the topic promises.
    ///
    /// Raises `InvalidArgument`, `Timeout`, `Unreachable`.
    #[pyo3(signature = (*, data = true, budget_bytes = None, block_timeout = 120.0,
                        durability = None))]
    fn requester(
        slf: &Bound<'_, Self>,
        data: bool,
        budget_bytes: Option<u64>,
        block_timeout: f64,
        durability: Option<&str>,
    ) -> PyResult<Requester> {
        let py = slf.py();
        let recipe = recipe!(
            py,
            "requester",
            data,
            budget_bytes,
            block_timeout,
            durability
        );
        let room_timeout = wait::number("block_timeout", block_timeout)?;
        let mut producer = ProducerOptions {
            // The client never blocks: only here Ctrl-C is seen while waiting.
            at_budget: AtBudget::Fail,
            durability: options::durability(py, durability)?,
            copied_bytes_max: u32::MAX,
            ..ProducerOptions::default()
        };
        if let Some(bytes) = budget_bytes {
            producer.budget_bytes = bytes;
        }
        let options = RequesterOptions {
            producer,
            data: match data {
                true => DataMode::All,
                false => DataMode::None,
            },
        };
        let client = slf
            .get()
            .call(py, move |handle| handle.requester(options))?;
        let topic = slf.clone().unbind();
        Ok(Requester::new(py, client, topic, room_timeout, recipe))
    }

    /// Reads events of one partition without a consumer: no subscription, no
    /// cursor. Returns a list, empty if there is nothing.
    ///
    /// `position` is the offset or the `EventId` to begin at; `bytes_max` the
    /// most bytes of batches, of which at least one comes; `timeout` the
    /// seconds to wait for a first event. The events have no data with them:
    /// `read_data` reads what is wanted of it. Events that are gone are
    /// skipped with a `GapWarning`.
    ///
    /// Raises `OutOfRange`, `UnknownPartition`, `Damaged`.
    #[pyo3(signature = (partition, position, *, bytes_max = 1048576, timeout = 0.0))]
    fn fetch(
        &self,
        py: Python<'_>,
        partition: u32,
        position: &Bound<'_, PyAny>,
        bytes_max: u64,
        timeout: f64,
    ) -> PyResult<Vec<Event>> {
        let index = PartitionIndex(partition);
        let from = self.position(index, position)?;
        let timeout = wait::number("timeout", timeout)?.min(FETCH_TIMEOUT_MAX);
        let fetched = self.call(py, move |handle| {
            handle.fetch(index, from, bytes_max, timeout, false)
        })?;
        let fetched = fetched.starting_at(from.offset);
        for gap in &fetched.gaps {
            describe::warn_of(py, self.name(), &describe::gap(py, index, *gap)?)?;
        }
        let raw = self.is_raw();
        let events: Vec<_> = fetched.events().collect();
        let count = events.len() as u32;
        let group = Py::new(py, Group(events))?;
        let event = |index| Event::new(group.clone_ref(py), index, None, raw);
        Ok((0..count).map(event).collect())
    }

    /// Why the consumer, group or queue of this name gets no event now, or, with None, why
    /// nobody does: one sentence, and in a second line the command that looks further, as
    /// `thalweg why` says it. Asks the server. Raises `Unreachable`.
    #[pyo3(signature = (consumer = None))]
    pub fn explain(&self, py: Python<'_>, consumer: Option<String>) -> PyResult<String> {
        self.call(py, move |handle| {
            let explained = handle.driver().explain(handle.name(), consumer.as_deref());
            explained.map(|explained| explained.to_string())
        })
    }

    /// Changes the topic's definition, as `Driver.alter_topic` does.
    #[pyo3(signature = (**changes))]
    fn alter<'py>(
        &self,
        py: Python<'py>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let described = self
            ._driver()
            .alter_topic(py, self.name().to_owned(), changes)?;
        self.refresh(py)?;
        Ok(described)
    }

    /// Deletes the topic with its events, cursors and gaps. Raises `UnknownTopic`.
    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        self._driver().delete_topic(py, self.name().to_owned())
    }

    /// Every loss recorded for the topic: a list of `Gap`.
    fn gaps<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self._driver().gaps(py, self.name().to_owned())
    }

    /// How far each consumer, group and queue of the topic is behind: a list of `Lag`, as `thalweg lag`
    /// prints it. Asks the server. Raises `UnknownTopic`, `Timeout`, `Unreachable`.
    fn lag<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let lags = self.call(py, |handle| handle.lag())?;
        lags.iter().map(|lag| describe::lag(py, lag)).collect()
    }

    /// The cursors of the topic's consumers, or of one: a list of `Cursor`.
    #[pyo3(signature = (consumer = ""))]
    fn cursors<'py>(slf: &Bound<'py, Self>, consumer: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let driver = slf.get()._driver();
        driver.cursors(slf.py(), slf, consumer)
    }

    /// Moves a consumer's durable cursors, backwards too, to where `to` is: a place as
    /// `start` of `consumer`. `partitions` are the indices of those that are meant, None all;
    /// of an `EventId` it is its own. Returns where the cursors are now, a list of `Cursor`.
    /// For consumers that are not running; a running one has `Consumer.seek`.
    ///
    /// Raises `InvalidArgument`, `OutOfRange`, `UnknownPartition`, `Timeout`, `Unreachable`.
    #[pyo3(signature = (consumer, to, *, partitions = None))]
    fn seek<'py>(
        slf: &Bound<'py, Self>,
        consumer: String,
        to: &Bound<'py, PyAny>,
        partitions: Option<Vec<u32>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        let when = options::start(to)?;
        this.check_start(to, partitions.as_deref())?;
        let partitions = match to.cast::<EventId>() {
            Ok(id) => Some(vec![id.get().0.partition.0]),
            Err(_) => partitions,
        };
        let name = consumer.clone();
        this.call(py, move |handle| {
            let positions = handle.positions(when, partitions)?;
            handle.driver().seek(handle, &name, &positions)
        })?;
        Self::cursors(slf, &consumer)
    }

    /// Forgets all cursors of a consumer of the topic.
    #[pyo3(signature = (consumer))]
    fn delete_consumer(slf: &Bound<'_, Self>, consumer: String) -> PyResult<()> {
        slf.get()._driver().delete_consumer(slf.py(), slf, consumer)
    }

    /// Reads data of one event, all of it or what `view` selects.
    ///
    /// `event` is an `Event`, however it was got; `view` a `DataView` of its
    /// data, `thalweg.DataView(event.data_size)` being the whole; `buffer` a
    /// writable, contiguous buffer of as many bytes as are selected, in which
    /// the data is received without a copy. Returns `buffer`, or a read-only
    /// `memoryview` if there is none. The bytes are checked against the
    /// checksums that the producer made.
    ///
    /// Raises `InvalidArgument`, `OutOfRange`, `Damaged`.
    #[pyo3(signature = (event, view = None, *, buffer = None))]
    fn read_data<'py>(
        &self,
        py: Python<'py>,
        event: &Bound<'py, Event>,
        view: Option<&Bound<'py, DataView>>,
        buffer: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (id, size) = event.get().place();
        let view = match view {
            Some(view) => view.get().0.clone(),
            None => wire::view::DataView::whole(size),
        };
        let target = match buffer {
            Some(buffer) => Target::from(lend::ReceiveBuffer::new(buffer, view.bytes())?),
            None => Target::from(memory::Buffer::zeroed(view.bytes() as usize)),
        };
        let wanted = DataWanted {
            partition: id.partition,
            incarnation: id.incarnation,
            offset: id.offset,
            segments: view.segments().to_vec(),
        };
        let targets = if view.is_empty() {
            vec![target]
        } else {
            self.call(py, move |handle| handle.read_data(&[wanted], vec![target]))?
        };
        let target = targets.into_iter().next();
        let target = target.expect("a read gives its memory back");
        match buffer {
            Some(_) => Ok(target
                .into_owner::<lend::ReceiveBuffer>()
                .into_object(py)
                .into_bound(py)),
            None => lend::memoryview(py, target.into_owner::<memory::Buffer>().freeze()),
        }
    }

    /// The driver that it belongs to.
    fn _driver(&self) -> Driver {
        Driver::of(Arc::clone(&self.connection))
    }

    /// Its driver and its name: where this is unpickled it is the topic that
    /// has the name then.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let open = py.import("thalweg._pickled")?.getattr("open_topic")?;
        (open, (self._driver(), self.name())).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        format!(
            "Topic({:?}, {} partitions)",
            self.name(),
            self.handle.partitions().len()
        )
    }
}
