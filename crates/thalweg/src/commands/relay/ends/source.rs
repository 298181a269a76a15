//! `thalweg relay source`: messages become events.

use super::account::Account;
use super::message::to_event;
use super::{End, LAST_FLUSH, LOOK};
use crate::commands::relay::args::SourceArgs;
use crate::failure::{About, Code, Failure};
use client::{AtBudget, ClientError, Producer, ProducerOptions, PushFuture};
use pushpull::{Message, Puller, Side};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long an acknowledgement may take: a server that is away for longer leaves the outcome unknown.
const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Events that wait for their acknowledgement at most, however short.
const WAITING_MAX: usize = 65_536;

pub fn run(args: &SourceArgs) -> Result<(), Failure> {
    let endpoint = &args.endpoint;
    let end = End::open(endpoint, Side::Pull, &args.end, (&args.to, &args.topic))?;
    let producer = end.topic.producer(ProducerOptions {
        budget_bytes: u64::from(args.end.memory) << 20,
        at_budget: AtBudget::Block(LOOK),
        ack_timeout: ACK_WAIT,
        ..ProducerOptions::default()
    });
    let producer = producer.about(&args.topic)?;
    let socket = Puller::open(end.socket.clone()).about(endpoint.to_string())?;
    let account = Account::new(&args.end, "stored");
    account.began(endpoint, socket.address())?;
    let mut source = Source {
        metadata_bytes_max: match args.data_only {
            true => None,
            false => Some(end.topic.definition().metadata_bytes_max() as usize),
        },
        args,
        end,
        producer: &producer,
        socket,
        waiting: VecDeque::new(),
        account,
        until: None,
    };
    let ran = source.run();
    // A producer that is not closed waits for acknowledgements when it is dropped, as long as it takes.
    let closed = producer.close(Duration::ZERO);
    ran?;
    closed.about(&args.topic)
}

struct Source<'a> {
    args: &'a SourceArgs,
    end: End,
    producer: &'a Producer,
    socket: Puller,
    /// The longest first part that is metadata; none is without it.
    metadata_bytes_max: Option<usize>,
    /// Events that are not acknowledged yet, with their lengths, in the order of their messages.
    waiting: VecDeque<(PushFuture, u64)>,
    account: Account,
    /// When it ends at the latest; known when the user wants an end.
    until: Option<Instant>,
}

impl Source<'_> {
    /// Stores messages until the user wants an end, and then what has come: senders keep what has not.
    fn run(&mut self) -> Result<(), Failure> {
        while !self.end.interrupt.is_asked() {
            if let Some(message) = self.socket.pull(LOOK) {
                self.store(message)?;
            }
            self.look()?;
        }
        self.socket.stop();
        while let Some(message) = self.socket.pull(Duration::ZERO) {
            self.store(message)?;
        }
        let flushed = self.producer.flush(self.left().unwrap_or(LAST_FLUSH));
        self.settle()?;
        self.account.tell_now(0)?;
        let (count, topic) = (self.waiting.len(), &self.args.topic);
        flushed.about(format!(
            "{topic}: {count} messages that were read may not be stored"
        ))
    }

    /// What is done between any two messages.
    fn look(&mut self) -> Result<(), Failure> {
        self.settle()?;
        self.account.tell(self.socket.connections())
    }

    /// How long it may go on; `None` as long as the user wants no end.
    fn left(&mut self) -> Option<Duration> {
        if !self.end.interrupt.is_asked() {
            return None;
        }
        let until = *(self.until).get_or_insert_with(|| Instant::now() + LAST_FLUSH);
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Gives a message to the producer, and waits where that is full.
    fn store(&mut self, message: Message) -> Result<(), Failure> {
        let received = to_event(message, self.metadata_bytes_max);
        let headers = received.headers();
        loop {
            if self.waiting.len() < WAITING_MAX {
                match self.producer.push(received.event(&headers)) {
                    Ok(future) => {
                        self.waiting.push_back((future, received.bytes()));
                        return Ok(());
                    }
                    // What has failed for good is seen by what waits.
                    Err(ClientError::Budget(_) | ClientError::Timeout { .. }) => {}
                    // Of this message alone: another one may be what the topic takes.
                    Err(ClientError::Invalid(why)) => return self.refuse(&why),
                    Err(error) => return Err(error).about(&self.args.topic),
                }
            } else if let Some((oldest, _)) = self.waiting.front() {
                // Its outcome is taken below.
                let _ = oldest.wait(Some(LOOK));
            }
            self.look()?;
            if self.left().is_some_and(|left| left.is_zero()) {
                let what = "the server has not taken what was read, which is lost";
                return Err(Failure::new(Code::Timeout, &self.args.topic, what));
            }
        }
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        self.account.lost += 1;
        let topic = &self.args.topic;
        let text = format!("{topic} refuses a message, which is lost: {why}");
        self.end.reports.line(&text);
        Ok(())
    }

    /// Counts what is acknowledged; an event that is not stored is the end.
    fn settle(&mut self) -> Result<(), Failure> {
        while let Some((future, bytes)) = self.waiting.front()
            && let Some(outcome) = future.try_get()
        {
            outcome.about(&self.args.topic)?;
            self.account.count(*bytes);
            self.waiting.pop_front();
        }
        Ok(())
    }
}
