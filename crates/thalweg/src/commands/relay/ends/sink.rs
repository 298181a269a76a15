//! `thalweg relay sink`: events become messages.

use super::account::Account;
use super::message::{PARTS, Shape, to_message};
use super::{End, LAST_FLUSH, LOOK};
use crate::commands::relay::args::SinkArgs;
use crate::failure::{About, Code, Failure};
use client::{ConsumedEvent, Consumer, ConsumerOptions, DataMode};
use pushpull::{Message, Pusher, Side, Ticket};
use std::collections::VecDeque;
use wire::EventId;
use wire::message::Start;

pub fn run(args: &SinkArgs) -> Result<(), Failure> {
    let endpoint = &args.endpoint;
    let end = End::open(endpoint, Side::Push, &args.end, (&args.from, &args.topic))?;
    let name = &args.name;
    let options = ConsumerOptions {
        data: DataMode::All,
        start: Start::Cursor.into(),
        ..ConsumerOptions::default()
    };
    let consumer = end.topic.consumer(name, options);
    let consumer = consumer.about(format!("{}/{name}", args.topic))?;
    let socket = Pusher::open(end.socket.clone()).about(endpoint.to_string())?;
    let account = Account::new(&args.end, "sent");
    account.began(endpoint, socket.address())?;
    let mut sink = Sink {
        shape: Shape::of(endpoint.protocol, args.data_only),
        args,
        end,
        consumer,
        socket,
        waiting: VecDeque::new(),
        account,
        is_away: false,
    };
    let ran = sink.run();
    // What was sent is acknowledged, whatever the end was.
    let ended = sink.end();
    ran.and(ended)
}

struct Sink<'a> {
    args: &'a SinkArgs,
    shape: Shape,
    end: End,
    consumer: Consumer,
    socket: Pusher,
    /// Events that were given to the socket and are not known to be sent, with their lengths, in order.
    waiting: VecDeque<(Ticket, EventId, u64)>,
    account: Account,
    /// Whether it was said that the server is away.
    is_away: bool,
}

impl Sink<'_> {
    /// Sends events until the user wants an end.
    fn run(&mut self) -> Result<(), Failure> {
        while !self.end.interrupt.is_asked() {
            if let Some(event) = self.pull()? {
                self.give(event)?;
            }
            self.look()?;
        }
        Ok(())
    }

    /// The next event, if there is one.
    fn pull(&mut self) -> Result<Option<ConsumedEvent>, Failure> {
        match self.consumer.pull(Some(LOOK)) {
            Ok(event) => {
                self.is_away = false;
                Ok(event)
            }
            // It comes back, and the next pull goes on.
            Err(error) if error.is_retryable() => {
                if !std::mem::replace(&mut self.is_away, true) {
                    self.end.reports.line(&format!("waiting: {error}"));
                }
                self.socket.wait(self.socket.sent_to(), LOOK);
                Ok(None)
            }
            Err(error) => Err(error).about(&self.args.topic),
        }
    }

    /// Gives an event to the socket. While that holds as much as it may the event waits here, and others at the
    /// server.
    fn give(&mut self, mut event: ConsumedEvent) -> Result<(), Failure> {
        let id = event.id();
        let mut message = message_of(&mut event, self.shape);
        let bytes = message.iter().map(|part| part.len() as u64).sum();
        while !self.end.interrupt.is_asked() {
            match self.socket.push(message) {
                Ok(ticket) => {
                    self.waiting.push_back((ticket, id, bytes));
                    return Ok(());
                }
                Err(back) => message = back,
            }
            self.socket.wait(self.socket.sent_to(), LOOK);
            self.look()?;
        }
        Ok(())
    }

    /// What is done between any two events.
    fn look(&mut self) -> Result<(), Failure> {
        self.acknowledge()?;
        for (partition, gap) in self.consumer.take_gaps() {
            let lost = gap.end.0.saturating_sub(gap.first.0);
            self.account.lost += lost;
            let text = format!(
                "partition {}: {lost} events from offset {} on were lost before they were sent: {:?}",
                partition.0, gap.first.0, gap.reason
            );
            self.end.reports.line(&text);
        }
        self.account.tell(self.socket.connections())
    }

    /// Acknowledges what was handed to somebody's socket, up to the first event that was not.
    fn acknowledge(&mut self) -> Result<(), Failure> {
        let sent_to = self.socket.sent_to();
        while let Some((ticket, event, bytes)) = self.waiting.front()
            && *ticket <= sent_to
        {
            self.consumer.acknowledge(*event).about(&self.args.topic)?;
            self.account.count(*bytes);
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Sends no more, and acknowledges what was sent.
    fn end(&mut self) -> Result<(), Failure> {
        let connections = self.socket.connections();
        // Receivers may take their time over what they have: the cursor is safe before.
        self.acknowledge()?;
        let flush = self.consumer.begin_flush_acknowledgements(LAST_FLUSH);
        let unfinished = self.socket.stop();
        // What this says, the next one says again.
        let _ = flush.wait();
        self.acknowledge()?;
        let flushed = self.consumer.flush_acknowledgements(LAST_FLUSH);
        self.account.tell_now(connections)?;
        let what = format!("{}: some events will be sent again", self.args.topic);
        flushed.about(what)?;
        match unfinished {
            0 => Ok(()),
            count => {
                let what = format!(
                    "{count} receivers have not read all that was sent to them, which may be lost"
                );
                Err(Failure::new(Code::Timeout, &self.args.topic, what))
            }
        }
    }
}

fn message_of(event: &mut ConsumedEvent, shape: Shape) -> Message {
    let mut header = None;
    if shape == Shape::Parts {
        let found = event.headers().into_iter().find(|(name, _)| name == PARTS);
        header = found.map(|(_, value)| value);
    }
    let data = event.take_data();
    to_message(event.metadata_bytes(), data, header.as_deref(), shape)
}
