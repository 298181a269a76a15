//! A socket that takes messages.

use crate::budget::Budget;
use crate::endpoint::Side;
use crate::link::{self, Charge, Message};
use crate::places::{Places, SocketOptions};
use crate::stream::Stream;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Messages that wait to be taken; their bytes are the budget's.
const WAITING_MAX: usize = 1024;
/// How often it is looked whether all connections have ended.
const MOMENT: Duration = Duration::from_millis(5);

/// Takes messages of all that are connected, in turn. While nobody takes them, nothing is read from
/// a connection beyond the bound, and its sender stops.
pub struct Puller {
    budget: Arc<Budget>,
    arrived: Receiver<Arrived>,
    /// What had come when it was stopped.
    kept: VecDeque<Arrived>,
    places: Places,
}

/// A message, and what it holds of the budget until it is dropped.
struct Arrived(
    Message,
    #[allow(dead_code, reason = "its end is of use")] Charged,
);

/// Bytes of a message under way; given back when it is dropped.
struct Charged {
    budget: Arc<Budget>,
    who: u64,
    bytes: u64,
}

impl Charge for Charged {
    fn take(&mut self, bytes: u64) -> bool {
        let taken = self.budget.take(self.who, bytes);
        self.bytes += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.budget.give_back(self.who, self.bytes);
    }
}

impl Puller {
    /// Opens one.
    ///
    /// # Errors
    /// If it cannot listen where it is to, or the system gives it no thread.
    pub fn open(options: SocketOptions) -> io::Result<Self> {
        let budget = Arc::new(Budget::new(options.held_bytes_max));
        let (sender, arrived) = sync_channel(WAITING_MAX);
        let (protocol, most) = (options.protocol, options.message_bytes_max);
        let theirs = budget.clone();
        let serve = move |_: u64, stream: &mut Stream| {
            let sender: SyncSender<Arrived> = sender.clone();
            loop {
                let mut charged = Charged {
                    budget: theirs.clone(),
                    who: theirs.next(),
                    bytes: 0,
                };
                let Some(message) = link::read(stream, protocol, most, &mut charged)? else {
                    return Ok(());
                };
                if sender.send(Arrived(message, charged)).is_err() {
                    return Ok(());
                }
            }
        };
        Ok(Self {
            places: Places::open(options, Side::Pull, Box::new(serve))?,
            budget,
            arrived,
            kept: VecDeque::new(),
        })
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.places.address()
    }

    /// How many are connected.
    pub fn connections(&self) -> usize {
        self.places.count()
    }

    /// The next message. `None` if none has come within `timeout`.
    pub fn pull(&mut self, timeout: Duration) -> Option<Message> {
        if let Some(Arrived(message, _)) = self.kept.pop_front() {
            return Some(message);
        }
        match self.arrived.recv_timeout(timeout) {
            Ok(Arrived(message, _)) => Some(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// Takes no more from the network. Each message that had come whole is still pulled.
    pub fn stop(&mut self) {
        // Those that wait for space have no whole message; those that wait to hand one on are waited for.
        self.budget.close();
        self.places.begin_close();
        while !self.places.is_closed() {
            if let Ok(arrived) = self.arrived.recv_timeout(MOMENT) {
                self.kept.push_back(arrived);
            }
        }
        self.places.close();
        self.kept.extend(self.arrived.try_iter());
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.budget.close();
        let (_, none) = sync_channel(0);
        drop(std::mem::replace(&mut self.arrived, none));
        self.places.close();
    }
}
