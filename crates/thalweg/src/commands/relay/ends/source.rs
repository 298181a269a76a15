//! `thalweg relay source`: messages become events.

use super::account::Account;
use super::message::{Received, to_event};
use super::{End, LAST_FLUSH, LOOK};
use crate::commands::relay::args::SourceArgs;
use crate::failure::{About, Code, Failure};
use client::{AtBudget, ClientError, Producer, ProducerOptions, PushFuture};
use pushpull::{Puller, Side, SocketOptions};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::ErrorCode;

/// How long an acknowledgement may take: a server that is away for longer leaves the outcome unknown.
const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How long a topic that is full is left alone at least.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
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
    let socket = Puller::open(SocketOptions {
        message_bytes_max: u64::from(args.message) << 20,
        ..end.socket.clone()
    });
    let socket = socket.about(endpoint.to_string())?;
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
        refused: VecDeque::new(),
        again_at: Instant::now(),
        account,
        until: None,
    };
    let ran = source.run();
    let Source {
        end: _end,
        mut socket,
        waiting,
        refused,
        mut account,
        ..
    } = source;
    // A producer that is not closed waits for acknowledgements when it is dropped, as long as it takes.
    let closed = producer.close(Duration::ZERO);
    if ran.is_err() {
        socket.stop();
        while socket.pull(Duration::ZERO).is_some() {
            account.lost += 1;
        }
        account.lost += refused.len() as u64;
        for (future, received) in waiting {
            match future.try_get() {
                Some(Ok(_)) => account.count(received.bytes()),
                _ => account.lost += 1,
            }
        }
        account.tell_now(0)?;
    }
    ran?;
    match closed {
        // Those that it refused were pushed again.
        Err(error) if error.code() == Some(ErrorCode::TopicFull) => Ok(()),
        closed => closed.about(&args.topic),
    }
}

struct Source<'a> {
    args: &'a SourceArgs,
    end: End,
    producer: &'a Producer,
    socket: Puller,
    /// The longest first part that is metadata; none is without it.
    metadata_bytes_max: Option<usize>,
    /// Events that are not acknowledged yet, in the order of their messages.
    waiting: VecDeque<(PushFuture, Received)>,
    /// Events that the topic had no space for; nothing more is read until they are pushed again.
    refused: VecDeque<Received>,
    /// When they are.
    again_at: Instant,
    account: Account,
    /// When it ends at the latest; known when the user wants an end.
    until: Option<Instant>,
}

impl Source<'_> {
    /// Stores messages until the user wants an end, and then what has come: senders keep what has not.
    fn run(&mut self) -> Result<(), Failure> {
        while !self.end.interrupt.is_asked() {
            if !self.refused.is_empty() {
                self.push_again()?;
            } else if let Some(message) = self.socket.pull(LOOK) {
                self.store(to_event(message, self.metadata_bytes_max))?;
            }
            self.look()?;
        }
        self.socket.stop();
        while let Some(message) = self.socket.pull(Duration::ZERO) {
            self.store(to_event(message, self.metadata_bytes_max))?;
        }
        self.finish()?;
        self.account.tell_now(0)
    }

    /// Waits until all is stored, or it is time to end.
    fn finish(&mut self) -> Result<(), Failure> {
        loop {
            let left = self.left().unwrap_or(LAST_FLUSH);
            let flushed = self.producer.flush(left);
            self.settle()?;
            match (self.waiting.is_empty(), self.refused.is_empty()) {
                (true, true) => return Ok(()),
                (_, false) if !left.is_zero() => self.push_again()?,
                _ => {
                    return flushed
                        .about(&self.args.topic)
                        .and_then(|()| self.too_late());
                }
            }
        }
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

    fn too_late(&self) -> Result<(), Failure> {
        let what = "the server has not taken all that was read";
        Err(Failure::new(Code::Timeout, &self.args.topic, what))
    }

    /// Gives an event to the producer, and waits where that is full.
    fn store(&mut self, received: Received) -> Result<(), Failure> {
        loop {
            if self.waiting.len() < WAITING_MAX {
                let headers = received.headers();
                match self.producer.push(received.event(&headers)) {
                    Ok(future) => {
                        drop(headers);
                        self.waiting.push_back((future, received));
                        return Ok(());
                    }
                    // What has failed for good is seen by what waits.
                    Err(ClientError::Budget(_) | ClientError::Timeout { .. }) => {}
                    // Of this message alone: another one may be what the topic takes.
                    Err(error @ ClientError::Invalid(_)) => {
                        self.lose(&error);
                        return Ok(());
                    }
                    Err(error) => {
                        self.account.lost += 1;
                        return Err(error).about(&self.args.topic);
                    }
                }
            } else if let Some((oldest, _)) = self.waiting.front() {
                // Its outcome is taken below.
                let _ = oldest.wait(Some(LOOK));
            }
            self.look()?;
            if self.left().is_some_and(|left| left.is_zero()) {
                self.account.lost += 1;
                return self.too_late();
            }
        }
    }

    /// Pushes what the topic had no space for, when it may have some.
    fn push_again(&mut self) -> Result<(), Failure> {
        let wait = self.again_at.saturating_duration_since(Instant::now());
        std::thread::sleep(wait.min(LOOK));
        if Instant::now() >= self.again_at {
            // What is refused meanwhile has its turn later.
            for _ in 0..self.refused.len() {
                let Some(received) = self.refused.pop_front() else {
                    break;
                };
                self.store(received)?;
            }
        }
        Ok(())
    }

    /// Says that a message is lost, and goes on.
    fn lose(&mut self, why: &ClientError) {
        self.account.lost += 1;
        let topic = &self.args.topic;
        let text = format!("{topic} refuses a message, which is lost: {why}");
        self.end.reports.line(&text);
    }

    /// Takes outcomes: counts what is stored, keeps what the topic has no space for, and ends where nothing else helps.
    fn settle(&mut self) -> Result<(), Failure> {
        while let Some((future, _)) = self.waiting.front()
            && let Some(outcome) = future.try_get()
        {
            let Some((_, received)) = self.waiting.pop_front() else {
                break;
            };
            match outcome {
                Ok(_) => self.account.count(received.bytes()),
                Err(ClientError::Server(reply)) if reply.code == ErrorCode::TopicFull => {
                    let wait = Duration::from_millis(reply.retry_after_ms.into());
                    self.again_at = Instant::now() + wait.max(SHORTEST_WAIT);
                    if self.refused.is_empty() {
                        let text =
                            format!("{}: {reply}; nothing is read until then", self.args.topic);
                        self.end.reports.line(&text);
                    }
                    self.refused.push_back(received);
                }
                Err(error) if error.code() == Some(ErrorCode::EventDropped) => self.lose(&error),
                Err(error) => {
                    self.account.lost += 1;
                    return Err(error).about(&self.args.topic);
                }
            }
        }
        Ok(())
    }
}
