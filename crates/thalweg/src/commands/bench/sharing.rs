//! Clients that share: members of a queue, requesters, and those who hear a
//! broadcast.

use super::job::{Delays, Done, Job, Role};
use super::work::{Ready, WAIT, open_consumer};
use crate::failure::{About, Code, Failure};
use client::{
    Consumer, Data, Driver, Event, Gather, Gathered, Pending, ProducerOptions, QueueConsumer,
    QueueConsumerOptions, QueueEvent, Requester, RequesterOptions, TopicHandle,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a member of a queue sees nothing before it looks whether all is done:
/// longer than many members wait for their turn, for the server is asked.
const IDLE: Duration = Duration::from_secs(1);
/// What a member has unsettled at most, beside the bound on events.
const PREFETCH_BYTES: u64 = 16 << 20;
/// Replies of a member that are not stored yet.
const REPLIES_MAX: usize = 1024;

/// One client's part in what is shared, open before the clock starts.
pub enum Party {
    Member(QueueConsumer),
    Asker(Requester),
    Hearer(Consumer),
}

impl Party {
    /// What the job's role needs; none for those who share nothing.
    pub fn join(driver: &Driver, job: &Job) -> Result<Option<Self>, Failure> {
        let topic = || -> Result<TopicHandle, Failure> {
            let name = &job.shares[0].topic;
            driver.open_topic(name).about(name)
        };
        Ok(Some(match job.role {
            Role::Settle | Role::Reply => {
                let options = QueueConsumerOptions {
                    prefetch_events: job.load.prefetch,
                    prefetch_bytes: PREFETCH_BYTES,
                    ..QueueConsumerOptions::default()
                };
                Self::Member(topic()?.queue(&job.name, options).about("a queue")?)
            }
            Role::Ask | Role::Broadcast => {
                let options = RequesterOptions {
                    producer: ProducerOptions {
                        batch: job.load.batch(),
                        ..ProducerOptions::default()
                    },
                    ..RequesterOptions::default()
                };
                Self::Asker(topic()?.requester(options).about("a requester")?)
            }
            Role::Hear => {
                let topic = &job.shares[0].topic;
                Self::Hearer(open_consumer(driver, job, topic, vec![0])?)
            }
            Role::Produce | Role::Consume | Role::Send | Role::Receive => return Ok(None),
        }))
    }
}

impl Ready<'_> {
    /// Does what its role says.
    pub(super) fn share(mut self) -> Result<Done, Failure> {
        match (self.party.take(), self.job.role) {
            (Some(Party::Member(member)), Role::Reply) => self.reply(&member),
            (Some(Party::Member(member)), _) => self.settle(&member),
            (Some(Party::Asker(asker)), Role::Broadcast) => self.broadcast(&asker),
            (Some(Party::Asker(asker)), _) => self.ask(&asker),
            (Some(Party::Hearer(hearer)), _) => self.hear(&hearer),
            (None, role) => unreachable!("{role:?} shares nothing"),
        }
    }

    /// Hands over events of a queue until all are settled, by whomever.
    fn members_work(
        &self,
        member: &QueueConsumer,
        mut handle: impl FnMut(Vec<QueueEvent>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let at_once = (self.job.load.prefetch as usize).min(4096);
        let mut moved = Instant::now();
        loop {
            let events = member.pull_batch(at_once, Some(IDLE)).about("a pull")?;
            if !events.is_empty() {
                moved = Instant::now();
                handle(events)?;
                continue;
            }
            let settled = settled(member)?;
            if settled >= self.job.total {
                return Ok(());
            }
            if moved.elapsed() > WAIT {
                let what = format!(
                    "{settled} of {} events are settled, and none came for {WAIT:?}",
                    self.job.total
                );
                return Err(Failure::new(Code::Timeout, "a queue", what));
            }
        }
    }

    fn settle(self, member: &QueueConsumer) -> Result<Done, Failure> {
        let began = self.begin()?;
        // When the last settlement was known to be durable.
        let ended = Arc::new(Mutex::new(None));
        let (mut seen, mut bytes) = (0, 0);
        self.members_work(member, |events| {
            let mut last = None;
            for mut event in events {
                seen += 1;
                bytes += event.metadata().len() as u64 + event.take_data().len() as u64;
                last = Some(event.acknowledge());
            }
            if let Some(last) = last {
                let (ended, result) = (ended.clone(), last.clone());
                last.on_done(Box::new(move || {
                    if let Some(Ok(())) = result.try_get() {
                        *lock(&ended) = Some(Instant::now());
                    }
                }));
            }
            Ok(())
        })?;
        let ended = lock(&ended).unwrap_or(began.1);
        let seconds = (ended - began.1).as_secs_f64();
        Ok(Done {
            seconds,
            ..self.done(began, seen, bytes, None)?
        })
    }

    fn reply(self, member: &QueueConsumer) -> Result<Done, Failure> {
        let began = self.begin()?;
        let mut ended = began.1;
        let (mut seen, mut bytes) = (0, 0);
        let mut stored = VecDeque::new();
        self.members_work(member, |events| {
            for mut event in events {
                seen += 1;
                let data = event.take_data();
                bytes += event.metadata().len() as u64 + data.len() as u64;
                let reply = event.reply(
                    event.metadata(),
                    Vec::from_iter(Some(data).filter(|data| !data.is_empty())),
                );
                stored.push_back(reply.about("a reply")?);
                if stored.len() > REPLIES_MAX
                    && let Some(first) = stored.pop_front()
                {
                    first.wait().about("a reply")?;
                }
            }
            ended = Instant::now();
            Ok(())
        })?;
        for reply in stored {
            reply.wait().about("a reply")?;
        }
        let seconds = (ended - began.1).as_secs_f64();
        Ok(Done {
            seconds,
            ..self.done(began, seen, bytes, None)?
        })
    }

    fn event(&self, index: u64) -> Event<'_> {
        let data = match self.data.len() as u64 {
            0 => Data::default(),
            count => Data::from_iter([self.data[(index % count) as usize].clone()]),
        };
        Event {
            metadata: &self.event,
            data,
            ..Event::default()
        }
    }

    /// Sends so many, some of them under way at once; the answers are looked
    /// at in the order of sending. Returns how long each took.
    fn in_turn<T>(
        &self,
        count: u64,
        send: impl Fn(u64) -> Result<Pending<T>, Failure>,
        mut answered: impl FnMut(T) -> Result<(), Failure>,
    ) -> Result<Vec<u64>, Failure> {
        let mut under_way = VecDeque::with_capacity(self.job.load.in_flight);
        let mut delays = Vec::with_capacity(count as usize);
        let mut sent = 0;
        while (delays.len() as u64) < count {
            while sent < count && under_way.len() < self.job.load.in_flight {
                let began = Instant::now();
                under_way.push_back((began, send(sent)?));
                sent += 1;
            }
            let (began, pending): (Instant, Pending<T>) =
                under_way.pop_front().expect("one at least was sent");
            let answer = pending.wait().about("an answer")?;
            delays.push(began.elapsed().as_nanos() as u64);
            answered(answer)?;
        }
        Ok(delays)
    }

    fn ask(self, asker: &Requester) -> Result<Done, Failure> {
        let send = |index| asker.request(self.event(index), WAIT).about("a request");
        let (warmup, events) = self.job.shares.iter().fold((0, 0), |sum, share| {
            (sum.0 + share.warmup, sum.1 + share.events)
        });
        let wanted = self.wanted_bytes();
        let answered = |reply: client::ConsumedEvent| {
            let bytes = reply.metadata().len() as u64 + reply.data_bytes_total();
            match bytes == wanted {
                true => Ok(()),
                false => {
                    let what = format!("has {bytes} bytes, not {wanted}");
                    Err(Failure::new(Code::Failure, "a reply", what))
                }
            }
        };
        self.in_turn(warmup, send, answered)?;
        let began = self.begin()?;
        let delays = self.in_turn(events, send, answered)?;
        self.done(began, events, events * wanted, Delays::of(delays))
    }

    fn broadcast(self, asker: &Requester) -> Result<Done, Failure> {
        let send = |index| {
            let sent = asker.broadcast(self.event(index), Gather::All, WAIT);
            sent.about("a broadcast")
        };
        let events = self.job.total;
        let began = self.begin()?;
        let delays = self.in_turn(events, send, |gathered: Gathered| {
            match gathered.missing.is_empty() {
                true => Ok(()),
                false => {
                    let what = format!("{:?} did not reply", gathered.missing);
                    Err(Failure::new(Code::Timeout, "a broadcast", what))
                }
            }
        })?;
        let bytes = events * self.wanted_bytes();
        self.done(began, events, bytes, Delays::of(delays))
    }

    fn hear(self, hearer: &Consumer) -> Result<Done, Failure> {
        let began = self.begin()?;
        let mut bytes = 0;
        let mut replied = None;
        for index in 0..self.job.total {
            let Some(mut event) = hearer.pull(Some(WAIT)).about("a pull")? else {
                let what = format!("event {index} did not come for {WAIT:?}");
                return Err(Failure::new(Code::Timeout, "a pull", what));
            };
            let data = match event.take_target() {
                Some(target) => target.len() as u64,
                None => event.take_data().len() as u64,
            };
            bytes += event.metadata().len() as u64 + data;
            let reply = hearer.reply(&event, b"", Data::default());
            replied = Some(reply.about("a reply")?);
        }
        if let Some(replied) = replied {
            replied.wait(Some(WAIT)).about("a reply")?;
        }
        self.done(began, self.job.total, bytes, None)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events of a queue that are settled, over all partitions.
fn settled(member: &QueueConsumer) -> Result<u64, Failure> {
    let known = member.topic().describe_consumers(member.name());
    let known = known.about("a queue")?;
    let partitions = known.iter().flat_map(|one| &one.partitions);
    Ok(partitions
        .map(|one| one.position.offset.0 + one.settled)
        .sum())
}
