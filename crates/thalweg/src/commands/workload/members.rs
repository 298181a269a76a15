//! What producers and consumers do.

use super::backend::{Backend, Outgoing, Settled, Sink, Source};
use super::client::{Line, now_ns, planted};
use crate::failure::{About, Failure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};
use workload::{
    Account, Acks, Common, ConsumerReport, Did, FromProcess, Had, Member, Next, Pace, Pacer,
    Payload, ProducerReport, Report, Schedule, Stamp, Taken, Task,
};

/// How long a member waits before it looks whether the runner has said something.
const LOOK: Duration = Duration::from_millis(20);
/// How often the runner hears of messages at most.
const SAY: Duration = Duration::from_millis(50);
/// Replies that came and that their producer has not counted.
const UNCOUNTED_MAX: usize = 1 << 16;

/// How a member has ended: with its figures, and with what it failed with. What it had until then is known.
pub struct Ended {
    pub report: Option<Report>,
    pub failure: Option<Failure>,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self {
            report: None,
            failure: Some(failure),
        }
    }
}

/// Consumes until the runner says that all is over.
pub fn consume(
    line: &Line,
    common: &Common,
    task: &Task,
    backend: &dyn Backend,
    payload: &Payload,
) -> Ended {
    let Member::Consumer(index) = task.member else {
        unreachable!("a consumer's task");
    };
    let source = match backend.source(task) {
        Ok(source) => source,
        Err(failure) => return failure.into(),
    };
    let mut consumer = Consuming {
        source,
        line,
        index,
        every: match common.settings.acks {
            Acks::Automatic | Acks::Each => 1,
            Acks::Every(count) => count as usize,
        },
        is_automatic: common.settings.acks == Acks::Automatic,
        has_replies: common.pattern.has_replies(),
        answers_as: match common.pattern.is_broadcast() {
            true => index as u32,
            false => 0,
        },
        report: ConsumerReport::new(index, Account::new(common.run, common.producers)),
        unacknowledged: 0,
        new: 0,
        repeats: 0,
        said: (0, Instant::now()),
        journal: task.keeps_journal.then(Had::default),
        skips: planted("skip", task.member),
    };
    let failure = consumer.run(task.member, payload).err();
    Ended {
        report: Some(Report::Consumer(consumer.report)),
        failure,
    }
}

struct Consuming<'a> {
    source: Box<dyn Source>,
    line: &'a Line,
    index: u64,
    every: usize,
    is_automatic: bool,
    has_replies: bool,
    /// Who it is in replies.
    answers_as: u32,
    report: ConsumerReport,
    unacknowledged: usize,
    /// Messages that had not come before.
    new: u64,
    /// Deliveries of what had come before, here or elsewhere.
    repeats: u64,
    /// How many new ones the runner knows of, and since when.
    said: (u64, Instant),
    /// What it has and has not said, if it is to be known when it is killed.
    journal: Option<Had>,
    /// Whether it leaves one message out: planted by a test.
    skips: bool,
}

impl Consuming<'_> {
    fn run(&mut self, member: Member, payload: &Payload) -> Result<(), Failure> {
        self.line.say(&FromProcess::Ready(member))?;
        while !self.line.orders().is_over {
            self.turn(payload)?;
        }
        self.source.finish()
    }

    fn turn(&mut self, payload: &Payload) -> Result<(), Failure> {
        let deliveries = self.source.receive(LOOK)?;
        let is_idle = deliveries.is_empty();
        let is_acknowledged = self.is_automatic && self.journal.is_none();
        if is_acknowledged {
            self.source.acknowledge(deliveries.len())?;
        }
        for delivery in deliveries {
            self.line.pause(Member::Consumer(self.index));
            let now = now_ns();
            let stamp = payload.check(&delivery.message);
            match stamp {
                Ok(_) if std::mem::take(&mut self.skips) => {}
                Ok(stamp) => {
                    let taken = self.report.take(now, stamp, delivery.is_flagged);
                    if let Some(journal) = &mut self.journal
                        && taken != Taken::Foreign
                    {
                        journal.take(stamp, delivery.is_flagged);
                    }
                    self.new += u64::from(taken == Taken::New);
                    self.repeats += u64::from(taken != Taken::New || delivery.is_flagged);
                    if self.has_replies && taken != Taken::Foreign {
                        let stamp = stamp.of_reply(self.answers_as);
                        self.source.reply(stamp, delivery.message)?;
                    }
                }
                Err(_) => self.report.account.take_damaged(),
            }
            self.unacknowledged += usize::from(!is_acknowledged);
            if self.unacknowledged >= self.every {
                self.acknowledge()?;
            }
        }
        // Less than a batch of acknowledgements must not keep a prefetch full for ever.
        if is_idle && self.unacknowledged > 0 {
            self.acknowledge()?;
        }
        if self.new != self.said.0 && (is_idle || self.said.1.elapsed() >= SAY) {
            self.say_received()?;
        }
        Ok(())
    }

    fn say_received(&mut self) -> Result<(), Failure> {
        self.said = (self.new, Instant::now());
        self.line.say(&FromProcess::Received {
            consumer: self.index,
            messages: self.new,
            repeats: self.repeats,
        })
    }

    fn acknowledge(&mut self) -> Result<(), Failure> {
        // First: once it is acknowledged nobody else gets it.
        if let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_empty()) {
            let had = journal.said(self.report.window);
            self.line.say(&FromProcess::Had {
                consumer: self.index,
                had,
            })?;
            self.say_received()?;
        }
        self.source.acknowledge(self.unacknowledged)?;
        self.unacknowledged = 0;
        Ok(())
    }
}

/// A reply, or why it is none.
type Reply = Result<(u64, Stamp), Failure>;

/// Produces what its task says, and waits for replies.
pub fn produce(
    line: &Line,
    common: &Common,
    task: &Task,
    backend: &dyn Backend,
    payload: &Payload,
) -> Ended {
    let Member::Producer(index) = task.member else {
        unreachable!("a producer's task");
    };
    let pacer = Pacer::new(task, common.pattern, common.consumers);
    let pacer = pacer.expect("a producer has a pace");
    let Outgoing { sink, replies } = match backend.sink(task) {
        Ok(outgoing) => outgoing,
        Err(failure) => return failure.into(),
    };
    let schedule = match task.pace {
        Some(Pace::Due(schedule)) => Some(schedule),
        _ => None,
    };
    let is_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let listener = Listener {
            line,
            run: common.run,
            producer: index as u32,
            payload,
            is_ended: &is_ended,
        };
        let replies = match replies.map(|source| listener.start(scope, source)) {
            Some(Err(failure)) => return failure.into(),
            Some(Ok(replies)) => Some(replies),
            None => None,
        };
        if let Err(failure) = line.say(&FromProcess::Ready(task.member)) {
            return failure.into();
        }
        let orders = line.wait_for_go();
        let mut producer = Producing {
            line,
            payload,
            common,
            sink,
            replies,
            pacer,
            answered: 0,
            go_ns: orders.go_ns.unwrap_or_else(now_ns),
            report: ProducerReport::new(index, schedule.as_ref()),
            keeps_journal: task.keeps_journal,
            schedule,
        };
        let failure = producer.run().err();
        // Relaxed: the thread ends a look later or sooner.
        is_ended.store(true, Ordering::Relaxed);
        Ended {
            report: Some(Report::Producer(Box::new(producer.report))),
            failure,
        }
    })
}

/// Takes replies on a thread of its own, so that their times are right whatever the producer does.
#[derive(Clone, Copy)]
struct Listener<'a> {
    line: &'a Line,
    run: u64,
    producer: u32,
    payload: &'a Payload,
    is_ended: &'a AtomicBool,
}

impl<'a> Listener<'a> {
    fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        source: Box<dyn Source>,
    ) -> Result<Receiver<Reply>, Failure>
    where
        'a: 'scope,
    {
        let (send, replies) = sync_channel(UNCOUNTED_MAX);
        let thread = std::thread::Builder::new().name("replies".to_owned());
        let listening = thread.spawn_scoped(scope, move || {
            if let Err(failure) = self.take(source, &send) {
                // A producer that has ended listens no more.
                let _ = send.send(Err(failure));
            }
        });
        listening.about("a thread")?;
        Ok(replies)
    }

    fn take(self, mut source: Box<dyn Source>, replies: &SyncSender<Reply>) -> Result<(), Failure> {
        while !self.line.orders().is_over && !self.is_ended.load(Ordering::Relaxed) {
            let came = source.receive(LOOK)?;
            source.acknowledge(came.len())?;
            for delivery in came {
                let now = now_ns();
                // A damaged reply is one that did not come, and others have their own.
                let Ok(stamp) = self.payload.check(&delivery.message) else {
                    continue;
                };
                let is_ours = (stamp.run, stamp.producer) == (self.run, self.producer);
                if is_ours && replies.send(Ok((now, stamp))).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

struct Producing<'a> {
    line: &'a Line,
    payload: &'a Payload,
    common: &'a Common,
    sink: Box<dyn Sink>,
    replies: Option<Receiver<Reply>>,
    pacer: Pacer,
    /// Messages that the backend has taken or refused.
    answered: u64,
    go_ns: u64,
    report: ProducerReport,
    /// Whether it says what it did as it goes, so that it is known when it is killed.
    keeps_journal: bool,
    schedule: Option<Schedule>,
}

impl Producing<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let orders = self.line.orders();
            if orders.is_over {
                break;
            }
            if orders.is_stopped {
                self.pacer.stop();
            }
            match self.pacer.next(self.since_go()) {
                Next::Send(sequence) => {
                    self.line.pause(self.member());
                    self.send(sequence)?;
                    self.look(Duration::ZERO)?;
                }
                Next::WaitUntil(ns) => {
                    let left = Duration::from_nanos(ns.saturating_sub(self.since_go()));
                    self.rest(left.min(LOOK))?;
                }
                Next::WaitForAnswer => self.look(LOOK)?,
                Next::Done if !self.pacer.is_settled() => self.look(LOOK)?,
                Next::Done if !self.has_replies() => self.rest(LOOK)?,
                Next::Done => break,
            }
        }
        if !self.line.orders().is_over {
            self.line.say(&FromProcess::Sent {
                producer: self.report.producer,
                messages: self.report.confirmed.count(),
            })?;
        }
        self.line.wait_for_end();
        self.look(Duration::ZERO)?;
        // A producer that waits for what does not come hears why.
        match self.answered < self.report.sent {
            true => Err(self.sink.unanswered()),
            false => Ok(()),
        }
    }

    fn member(&self) -> Member {
        Member::Producer(self.report.producer)
    }

    fn since_go(&self) -> u64 {
        now_ns().saturating_sub(self.go_ns)
    }

    /// Whether all replies that there are to be have come.
    fn has_replies(&self) -> bool {
        let pattern = self.common.pattern;
        let each = match pattern.has_replies() {
            true => pattern.copies(self.common.consumers),
            false => 0,
        };
        self.report.replies >= self.report.confirmed.count() * each
    }

    fn send(&mut self, sequence: u64) -> Result<(), Failure> {
        let stamp = Stamp {
            run: self.common.run,
            producer: self.report.producer as u32,
            attempt: 0,
            sequence,
            sent_ns: now_ns(),
        };
        let (first, second) = self.payload.rest(stamp.producer, sequence);
        self.sink
            .send(sequence, [&stamp.to_bytes(), first, second])?;
        self.report.send(stamp);
        self.pacer.sent(self.since_go());
        Ok(())
    }

    /// Counts what the backend has answered, of which it waits for the first, and replies.
    fn look(&mut self, wait: Duration) -> Result<(), Failure> {
        let settled = self.sink.settled(wait)?;
        self.pacer.settle(settled.len() as u64);
        self.answered += settled.len() as u64;
        if self.keeps_journal && !settled.is_empty() {
            let taken = settled.iter().filter(|one| one.refused.is_none());
            self.line.say(&FromProcess::Did {
                producer: self.report.producer,
                did: Did {
                    confirmed: taken.map(|one| one.sequence).collect(),
                    sent: self.report.sent,
                    replies: self.report.replies,
                    window: self.report.window,
                },
            })?;
        }
        for Settled { sequence, refused } in settled {
            let Some(why) = refused else {
                self.report.confirm(sequence);
                continue;
            };
            if self.report.refused == 0 {
                let member = self.member();
                self.line.say(&FromProcess::Refused { member, why })?;
            }
            self.report.refuse();
        }
        while let Some(reply) = self
            .replies
            .as_ref()
            .and_then(|replies| replies.try_recv().ok())
        {
            self.count(reply)?;
        }
        Ok(())
    }

    /// Waits for so long, or for a reply.
    fn rest(&mut self, longest: Duration) -> Result<(), Failure> {
        let reply = match &self.replies {
            Some(replies) => replies.recv_timeout(longest),
            // Without replies an answer of the backend may be what is waited for.
            None if self.answered < self.report.sent => return self.look(longest),
            None => {
                self.line.rest(longest);
                return Ok(());
            }
        };
        match reply {
            Ok(reply) => self.count(reply)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.line.rest(longest),
        }
        self.look(Duration::ZERO)
    }

    fn count(&mut self, reply: Reply) -> Result<(), Failure> {
        let (now, stamp) = reply?;
        let schedule = self
            .schedule
            .as_ref()
            .map(|schedule| (self.go_ns, schedule));
        if self.report.reply(now, stamp, schedule) {
            self.pacer.reply(stamp.sequence);
        }
        Ok(())
    }
}
