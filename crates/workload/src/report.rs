//! What members measure, and report when a run is over.

use crate::account::{Account, Taken};
use crate::faults::{Fault, planted};
use crate::intervals::{Inserted, Intervals};
use crate::latency::Latency;
use crate::pace::Schedule;
use crate::payload::Stamp;
use crate::plan::Member;
use crate::window::Window;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A member's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// A consumer's.
    Consumer(ConsumerReport),
    /// A producer's.
    Producer(Box<ProducerReport>),
}

impl Report {
    /// Whose it is.
    pub fn member(&self) -> Member {
        match self {
            Self::Consumer(report) => Member::Consumer(report.consumer),
            Self::Producer(report) => Member::Producer(report.producer),
        }
    }
}

/// What a consumer measures: [`ConsumerReport::take`] for each message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerReport {
    /// Which consumer.
    pub consumer: u64,
    /// What came.
    pub account: Account,
    /// When.
    pub window: Window,
}

impl ConsumerReport {
    /// Without a message.
    pub fn new(consumer: u64, account: Account) -> Self {
        Self {
            consumer,
            account,
            window: Window::default(),
        }
    }

    /// Takes a message. What is of another run has no part in the window.
    pub fn take(&mut self, now_ns: u64, stamp: Stamp, is_flagged: bool) -> Taken {
        let taken = self.account.take(stamp, is_flagged);
        if taken != Taken::Foreign {
            self.window.record(now_ns);
        }
        taken
    }
}

/// What a producer measures.
///
/// For each message [`ProducerReport::send`], then [`ProducerReport::confirm`] if the backend has taken it, and for
/// each reply [`ProducerReport::reply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProducerReport {
    /// Which producer.
    pub producer: u64,
    /// When it sent, messages that it sent again among them.
    pub window: Window,
    /// Messages that it sent, each once: sequences below this.
    pub sent: u64,
    /// Sequences that the backend has taken. Without confirms they are all that were sent.
    pub confirmed: Intervals,
    /// Sequences that the backend has refused.
    pub refused: u64,
    /// Replies, each once: to one message, one of each consumer that is to answer it.
    pub replies: u64,
    /// Replies that had come before, as there are some to a message that was delivered again.
    pub replies_repeated: u64,
    /// From sending to the reply.
    pub service: Latency,
    /// From when a message was due to the reply, if there is a schedule. It is longer than `service` where the
    /// producer was late, which is what a measurement that waits for its answers omits.
    pub response: Option<Latency>,
    /// By consumer, to which of the messages its reply came. Nobody reads it but this producer.
    #[serde(skip)]
    answered: BTreeMap<u32, Intervals>,
}

/// The most intervals of confirms: they come nearly in order.
const CONFIRMED_MAX: usize = 1 << 16;
/// The most intervals of replies, of each consumer that answers all messages.
const ANSWERED_MAX: usize = 1 << 12;

impl ProducerReport {
    /// Without a message.
    pub fn new(producer: u64, schedule: Option<&Schedule>) -> Self {
        Self {
            producer,
            window: Window::default(),
            sent: 0,
            confirmed: Intervals::new(CONFIRMED_MAX),
            refused: 0,
            replies: 0,
            replies_repeated: 0,
            service: Latency::new(),
            response: schedule.map(|_| Latency::new()),
            answered: BTreeMap::new(),
        }
    }

    /// A message was sent.
    pub fn send(&mut self, stamp: Stamp) {
        self.window.record(stamp.sent_ns);
        self.sent = self.sent.max(stamp.sequence.saturating_add(1));
    }

    /// The backend has taken a message.
    pub fn confirm(&mut self, sequence: u64) {
        self.confirmed.insert(sequence);
    }

    /// The backend has refused a message.
    pub fn refuse(&mut self) {
        self.refused += 1;
    }

    /// A reply is there, with the stamp of [`Stamp::of_reply`]. `go_ns` is when the schedule began. Returns whether it is
    /// the first: one that had come before is no other's that is missing, and its time is that of a delivery again.
    pub fn reply(&mut self, now_ns: u64, stamp: Stamp, schedule: Option<(u64, &Schedule)>) -> bool {
        let answered = self
            .answered
            .entry(stamp.attempt)
            .or_insert_with(|| Intervals::new(ANSWERED_MAX));
        let is_new = answered.insert(stamp.sequence) == Inserted::New;
        if !is_new && !planted(Fault::RepeatedReplyIsNew) {
            self.replies_repeated += 1;
            return false;
        }
        self.replies += 1;
        let service = now_ns.saturating_sub(stamp.sent_ns);
        self.service.record(service);
        if let (Some(response), Some((go_ns, schedule))) = (&mut self.response, schedule) {
            let due_ns = go_ns.saturating_add(schedule.due_ns(stamp.sequence));
            response.record(match planted(Fault::OmissionIgnored) {
                true => service,
                false => now_ns.saturating_sub(due_ns),
            });
        }
        true
    }
}
