//! What a client does: events are pushed, pulled, or passed on one by one.

use super::job::{Delays, Done, Job, Load, Role, Share};
use super::meter::Usage;
use super::sharing::Party;
use crate::failure::{About, Code, Failure};
use bytes::Bytes;
use client::{
    ConsumedEvent, Consumer, ConsumerOptions, DataMode, DataView, Driver, Event, Producer,
    ProducerOptions, Stride, Target,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long anything may take before the benchmark gives up.
pub const WAIT: Duration = Duration::from_secs(120);
/// Data longer than this is received in buffers that are used again.
const REUSED_FROM: usize = 64 << 10;
/// Events that are not yet handled hold no more data than this.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Pieces of data in turn that are pushed by all clients together, but for the
/// least that each has.
const DATA_COUNT_MAX: usize = 64;
/// What the producers of one client hold together: less than its driver may.
const BUDGETS_BYTES: u64 = 384 << 20;
/// One in so many events is looked at for its delay.
const SAMPLED: u64 = 16;

/// A client that is ready to begin.
pub struct Ready<'a> {
    pub(super) driver: &'a Driver,
    pub(super) job: &'a Job,
    producers: Vec<Producer>,
    pub(super) event: Vec<u8>,
    /// Metadata in turn, where it is documents.
    documents: Vec<Vec<u8>>,
    pub(super) data: Vec<Bytes>,
    meeting: Option<Meeting>,
    /// What it shares events by, if it does.
    pub(super) party: Option<Party>,
}

/// How the receiver of single events tells their sender.
enum Meeting {
    Listens(UnixListener),
    /// Until the work begins there may be nobody.
    At(std::path::PathBuf),
}

impl<'a> Ready<'a> {
    /// Opens what the job needs and pushes what is not measured.
    pub fn prepare(driver: &'a Driver, job: &'a Job) -> Result<Self, Failure> {
        let load = &job.load;
        let pushes = matches!(job.role, Role::Produce | Role::Send);
        let sends = pushes || matches!(job.role, Role::Ask | Role::Broadcast);
        let mut ready = Self {
            driver,
            job,
            producers: match pushes {
                true => open_producers(driver, job)?,
                false => Vec::new(),
            },
            // Random enough that nothing on the way can profit from its content.
            event: pattern(load.metadata_bytes, 13),
            documents: match load.document {
                Some(document) => document.several(load.metadata_bytes)?,
                None => Vec::new(),
            },
            data: Vec::new(),
            meeting: None,
            party: None,
        };
        if sends && load.data_bytes > 0 {
            // All clients together have as much as one has by itself, two pieces each
            // at least: what is measured is not the memory that many clients take.
            let all = (HELD_BYTES_MAX / load.data_bytes).min(DATA_COUNT_MAX);
            let count = (all / load.clients.max(1)).max(2);
            ready.data = (0..count)
                .map(|seed| {
                    if load.data_anywhere {
                        return Bytes::from(pattern(load.data_bytes, seed));
                    }
                    // As a program would that makes its data in place.
                    let mut buffer = driver.alloc_buffer(load.data_bytes);
                    buffer.copy_from_slice(&pattern(load.data_bytes, seed));
                    buffer.freeze()
                })
                .collect();
        }
        if let Some(path) = &job.meeting {
            ready.meeting = Some(match job.role {
                Role::Send => Meeting::Listens(UnixListener::bind(path).about("the meeting")?),
                _ => Meeting::At(path.clone()),
            });
        }
        if job.role == Role::Produce {
            ready.push_all(|share| share.warmup)?;
        }
        ready.party = Party::join(driver, job)?;
        Ok(ready)
    }

    /// Does the work and measures it.
    pub fn run(mut self) -> Result<Done, Failure> {
        match self.job.role {
            Role::Produce => {
                let began = self.begin()?;
                let events = self.push_all(|share| share.events)?;
                let each = (self.job.load.metadata_bytes + self.job.load.data_bytes) as u64;
                let done = self.done(began, events, events * each, None)?;
                for producer in self.producers {
                    producer.close(WAIT).about("a producer")?;
                }
                Ok(done)
            }
            Role::Consume => self.consume(),
            Role::Send => self.send(),
            Role::Receive => self.receive(),
            Role::Settle | Role::Ask | Role::Reply | Role::Broadcast | Role::Hear => self.share(),
        }
    }

    fn usage(&self) -> Result<Usage, Failure> {
        let counters = self.driver.counters();
        let frames = counters.frames_sent.load(Ordering::Relaxed)
            + counters.frames_received.load(Ordering::Relaxed);
        Usage::own(frames).about("the client's usage")
    }

    pub(super) fn begin(&self) -> Result<(Usage, Instant), Failure> {
        Ok((self.usage()?, Instant::now()))
    }

    pub(super) fn done(
        &self,
        (usage, began): (Usage, Instant),
        events: u64,
        bytes: u64,
        delays: Option<Delays>,
    ) -> Result<Done, Failure> {
        let seconds = began.elapsed().as_secs_f64();
        Ok(Done {
            seconds,
            events,
            bytes,
            usage: self.usage()? - usage,
            delays,
        })
    }

    fn push(&mut self, share: usize, index: u64) -> Result<(), Failure> {
        let stamp = match self.job.load.stamped {
            true => now_ns(),
            false => index,
        };
        let bytes = stamp.to_le_bytes();
        let space = bytes.len().min(self.event.len());
        self.event[..space].copy_from_slice(&bytes[..space]);
        let producer = &self.producers[share];
        let metadata = match self.documents.len() as u64 {
            0 => &self.event,
            count => &self.documents[(index % count) as usize],
        };
        let pushed = match self.data.len() as u64 {
            0 if self.job.load.partitions == 1 => producer.push_metadata(metadata),
            count => producer.push(Event {
                metadata,
                data: self
                    .data
                    .get((index % count.max(1)) as usize)
                    .cloned()
                    .into_iter()
                    .collect(),
                partition: Some(self.job.shares[share].partition),
                ..Event::default()
            }),
        };
        pushed.about("a push").map(|_| ())
    }

    /// Pushes so many events of each share, in bursts, to the last acknowledgement.
    fn push_all(&mut self, count: impl Fn(&Share) -> u64) -> Result<u64, Failure> {
        let load = self.job.load.clone();
        let mut left: Vec<u64> = self.job.shares.iter().map(count).collect();
        let mut pushed = 0;
        let mut until_flush = load.flush_every.unwrap_or(u64::MAX);
        while left.iter().any(|left| *left > 0) {
            for (share, left) in left.iter_mut().enumerate() {
                let burst = load.burst.min(*left);
                *left -= burst;
                for _ in 0..burst {
                    self.push(share, pushed)?;
                    pushed += 1;
                    until_flush -= 1;
                    if until_flush == 0 {
                        self.flush()?;
                        until_flush = load.flush_every.unwrap_or(u64::MAX);
                    }
                }
            }
        }
        self.flush()?;
        Ok(pushed)
    }

    fn flush(&self) -> Result<(), Failure> {
        let futures: Vec<_> = self.producers.iter().map(Producer::flush_future).collect();
        futures
            .into_iter()
            .try_for_each(|future| future.wait(WAIT))
            .about("a flush")
    }

    fn consume(mut self) -> Result<Done, Failure> {
        let mut topics: BTreeMap<&str, Vec<&Share>> = BTreeMap::new();
        for share in &self.job.shares {
            topics.entry(&share.topic).or_default().push(share);
        }
        let open = |ready: &Self, topic: &str, shares: &[&Share]| {
            let partitions = shares.iter().map(|share| share.partition).collect();
            open_consumer(ready.driver, ready.job, topic, partitions)
        };
        let sum = |shares: &[&Share], count: fn(&Share) -> u64| -> u64 {
            shares.iter().map(|share| count(share)).sum()
        };
        // What is warm is open before the clock starts, and all of it.
        let mut warm = BTreeMap::new();
        for (topic, shares) in &topics {
            let warmup = sum(shares, |share| share.warmup);
            if warmup > 0 {
                let consumer = open(&self, topic, shares)?;
                self.pull(&consumer, warmup, &mut Vec::new())?;
                warm.insert(*topic, consumer);
            }
        }
        let began = self.begin()?;
        let mut delays = Vec::new();
        let (mut seen, mut bytes) = (0, 0);
        for (topic, shares) in &topics {
            let events = sum(shares, |share| share.events);
            let consumer = match warm.remove(topic) {
                Some(consumer) => consumer,
                None => open(&self, topic, shares)?,
            };
            bytes += self.pull(&consumer, events, &mut delays)?;
            seen += events;
            consumer.close().about(*topic)?;
        }
        let expected = seen * self.wanted_bytes();
        if bytes != expected {
            let what = format!("{bytes} bytes came, not {expected}");
            return Err(Failure::new(Code::Failure, "a consumer", what));
        }
        self.done(began, seen, bytes, Delays::of(delays))
    }

    /// Bytes that an event brings.
    pub(super) fn wanted_bytes(&self) -> u64 {
        let load = &self.job.load;
        let data = match load.pieces {
            Some(pieces) => pieces.count(load.data_bytes as u64) * pieces.bytes,
            None => load.data_bytes as u64,
        };
        load.metadata_bytes as u64 + data
    }

    /// Pulls so many events; returns their bytes.
    fn pull(
        &mut self,
        consumer: &Consumer,
        events: u64,
        delays: &mut Vec<u64>,
    ) -> Result<u64, Failure> {
        let load = &self.job.load;
        let at_once = (HELD_BYTES_MAX / load.data_bytes.max(1)).clamp(1, 4096);
        let (mut seen, mut bytes) = (0, 0);
        while seen < events {
            let most = at_once.min((events - seen) as usize);
            let pulled = consumer.pull_batch(most, Some(WAIT)).about("a pull")?;
            if pulled.is_empty() {
                let what = format!("{seen} of {events} events came, then none for {WAIT:?}");
                return Err(Failure::new(Code::Timeout, "a pull", what));
            }
            if load.stamped {
                let now = now_ns();
                let sampled = (SAMPLED - seen % SAMPLED) % SAMPLED;
                let sampled = pulled.iter().skip(sampled as usize);
                delays.extend(
                    sampled
                        .step_by(SAMPLED as usize)
                        .map(|event| now.saturating_sub(stamp_of(event))),
                );
            }
            seen += pulled.len() as u64;
            for event in pulled {
                bytes += event.metadata().len() as u64 + data_bytes(event, load) as u64;
            }
        }
        Ok(bytes)
    }

    fn send(mut self) -> Result<Done, Failure> {
        let Some(Meeting::Listens(listener)) = self.meeting.take() else {
            unreachable!("a sender has a meeting at which it listens");
        };
        let (mut receiver, _) = listener.accept().about("the meeting")?;
        receiver.set_read_timeout(Some(WAIT)).about("the meeting")?;
        let share = self.job.shares[0].clone();
        let mut heard = [0];
        let mut began = self.begin()?;
        for index in 0..share.warmup + share.events {
            if index == share.warmup {
                began = self.begin()?;
            }
            self.push(0, index)?;
            receiver.read_exact(&mut heard).about("the receiver")?;
        }
        let bytes = share.events * self.job.load.metadata_bytes as u64;
        let done = self.done(began, share.events, bytes, None)?;
        self.flush()?;
        Ok(done)
    }

    fn receive(mut self) -> Result<Done, Failure> {
        let share = &self.job.shares[0];
        let consumer = open_consumer(self.driver, self.job, &share.topic, vec![0])?;
        let Some(Meeting::At(path)) = self.meeting.take() else {
            unreachable!("a receiver has a meeting to which it goes");
        };
        let mut sender = UnixStream::connect(path).about("the meeting")?;
        let mut delays = Vec::with_capacity(share.events as usize);
        let mut began = self.begin()?;
        for index in 0..share.warmup + share.events {
            if index == share.warmup {
                began = self.begin()?;
            }
            let event = consumer.pull(Some(WAIT)).about("a pull")?;
            let now = now_ns();
            let Some(event) = event else {
                let what = format!("event {index} did not come for {WAIT:?}");
                return Err(Failure::new(Code::Timeout, "a pull", what));
            };
            if index >= share.warmup {
                delays.push(now.saturating_sub(stamp_of(&event)));
            }
            sender.write_all(&[1]).about("the sender")?;
        }
        let bytes = share.events * self.job.load.metadata_bytes as u64;
        self.done(began, share.events, bytes, Delays::of(delays))
    }
}

fn data_bytes(mut event: ConsumedEvent, load: &Load) -> usize {
    match load.data_bytes {
        0 => 0,
        _ => match event.take_target() {
            Some(target) => target.len(),
            None => event.take_data().len(),
        },
    }
}

fn stamp_of(event: &ConsumedEvent) -> u64 {
    let stamp = event.metadata().first_chunk::<8>();
    u64::from_le_bytes(*stamp.expect("a stamped event has space for its stamp"))
}

/// The clock that all processes of this host share.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 167 + seed) as u8).collect()
}

fn open_producers(driver: &Driver, job: &Job) -> Result<Vec<Producer>, Failure> {
    let load = &job.load;
    // The default, unless there are so many that the driver's memory is short.
    let budget = BUDGETS_BYTES / job.shares.len().max(1) as u64;
    let budget_bytes = budget.min(ProducerOptions::default().budget_bytes);
    let shares = job.shares.iter();
    shares
        .map(|share| {
            let topic = driver.open_topic(&share.topic).about(&share.topic)?;
            let options = ProducerOptions {
                batch: load.batch(),
                budget_bytes,
                ..ProducerOptions::default()
            };
            topic.producer(options).about(&share.topic)
        })
        .collect()
}

pub(super) fn open_consumer(
    driver: &Driver,
    job: &Job,
    topic: &str,
    partitions: Vec<u32>,
) -> Result<Consumer, Failure> {
    let mut options = ConsumerOptions {
        partitions: Some(partitions),
        ..ConsumerOptions::default()
    };
    if let Some(pieces) = job.load.pieces {
        options.data = DataMode::Select(Arc::new(move |event| {
            let whole = DataView::whole(event.data_bytes_total());
            let stride = Stride {
                offset: 0,
                count: pieces.count(event.data_bytes_total()),
                block_bytes: pieces.bytes,
                gap_bytes: pieces.every - pieces.bytes,
            };
            whole.stride(stride).map_err(|error| error.to_string())
        }));
    }
    if job.load.data_bytes > REUSED_FROM {
        let pool = memory::Pool::new(2 * HELD_BYTES_MAX);
        options.allocator = Some(Arc::new(move |_, view| {
            Ok(Target::from(pool.take(view.bytes() as usize)))
        }));
    }
    let topic = driver.open_topic(topic).about(topic)?;
    topic.consumer(&job.name, options).about("a consumer")
}
