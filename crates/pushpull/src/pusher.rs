//! A socket that sends messages.

use crate::endpoint::{Protocol, Side};
use crate::faults::{Fault, planted};
use crate::link::{self, Message};
use crate::places::{LOOK, Places, SocketOptions};
use crate::reports::Reports;
use crate::stream::Stream;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufWriter, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Names a message, in the order in which they were given.
pub type Ticket = u64;

/// Messages that may be given beyond the first one that is not sent: what waits, and what was sent by others
/// while one connection does not take what it has.
const AHEAD_MAX: u64 = 65_536;
/// After so many connections that were lost while a message was written that is said, and it waits.
const TRIES_MAX: u32 = 3;
/// For how long.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// What a connection takes at once of short messages, if so many wait: messages, and bytes.
const PORTION_MAX: usize = 16;
const PORTION_BYTES_MAX: u64 = 64 << 10;

/// Shares messages out among those that are connected, in turn: each message goes to one of them, to the one
/// that has been free for longest. One whose connection is lost while it is written goes to another.
///
/// Give messages by [`Pusher::push`], wait where one is given back, and ask [`Pusher::sent_to`] how far it is.
pub struct Pusher {
    shared: Arc<Shared>,
    places: Places,
    bytes_max: u64,
}

struct Shared {
    /// Guards what waits and what is done; held to take or to give a few messages.
    state: Mutex<State>,
    changed: Condvar,
    /// A fault that is planted: those that come last are first.
    is_reversed: bool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Given>,
    /// Connections that are free, the one that has been so for longest first.
    free: VecDeque<u64>,
    /// Bytes of messages that are not done.
    held: u64,
    last: Ticket,
    /// All up to this one are done, and so are those.
    done_to: Ticket,
    done: BTreeSet<Ticket>,
    ends: bool,
}

/// A message that was given.
#[derive(Clone)]
struct Given {
    ticket: Ticket,
    message: Arc<Message>,
    /// Connections that were lost while it was written.
    tries: u32,
}

/// Messages that a connection takes at once.
type Portion = Vec<Given>;

impl State {
    /// The messages of the next connection.
    fn portion(&mut self) -> Portion {
        let share = self.waiting.len() / self.free.len().max(1);
        let mut portion = Portion::new();
        let mut bytes = 0;
        while portion.len() < share.clamp(1, PORTION_MAX)
            && let Some(next) = self.waiting.front()
        {
            bytes += bytes_of(&next.message);
            // One that may be why a connection was lost goes alone.
            let is_alone = next.tries > 0 || bytes > PORTION_BYTES_MAX;
            if !portion.is_empty() && is_alone {
                break;
            }
            let was_tried = next.tries > 0;
            portion.extend(self.waiting.pop_front());
            if was_tried {
                break;
            }
        }
        portion
    }
}

fn bytes_of(message: &Message) -> u64 {
    let parts = message.iter().map(|part| part.len() + size_of::<Bytes>());
    parts.sum::<usize>() as u64
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// What connection `id` is to send next; `None` if it is to end.
    fn next(
        &self,
        id: u64,
        protocol: Protocol,
        stream: &mut Stream,
    ) -> io::Result<Option<Portion>> {
        match self.is_reversed {
            true => self.state().free.push_front(id),
            false => self.state().free.push_back(id),
        }
        let next = self.wait_for_turn(id, protocol, stream);
        self.state().free.retain(|free| *free != id);
        // The next one is first now.
        self.changed.notify_all();
        next
    }

    fn wait_for_turn(
        &self,
        id: u64,
        protocol: Protocol,
        stream: &mut Stream,
    ) -> io::Result<Option<Portion>> {
        let is_next = |state: &State| state.free.front() == Some(&id) && !state.waiting.is_empty();
        loop {
            let waits = |state: &mut State| !is_next(state) && !state.ends;
            let waited = (self.changed).wait_timeout_while(self.state(), LOOK, waits);
            let (state, _) = waited.expect("no holder panics here");
            if state.ends {
                return Ok(None);
            }
            drop(state);
            // One that has gone is given nothing.
            link::hear(stream, protocol)?;
            let mut state = self.state();
            if is_next(&state) && !state.ends {
                return Ok(Some(state.portion()));
            }
        }
    }

    fn done(&self, portion: Portion) {
        let mut state = self.state();
        for given in portion {
            state.held -= bytes_of(&given.message);
            state.done.insert(given.ticket);
        }
        while let next = state.done_to + 1
            && state.done.remove(&next)
        {
            state.done_to = next;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes messages back that were not sent, or of which that is not known.
    fn again(&self, portion: Portion, reports: &Reports) {
        let mut state = self.state();
        for mut given in portion {
            given.tries += 1;
            if given.tries >= TRIES_MAX {
                let (ticket, tries) = (given.ticket, given.tries);
                let bytes: usize = given.message.iter().map(Bytes::len).sum();
                reports.line(&format!(
                    "message {ticket} of this run, of {bytes} bytes, was written to {tries} connections that ended \
                     then: is it longer than its receivers take?"
                ));
                let waits = |state: &mut State| !state.ends;
                let waited = (self.changed).wait_timeout_while(state, TRY_AGAIN, waits);
                (state, _) = waited.expect("no holder panics here");
            }
            let before = |other: &Given| other.ticket < given.ticket;
            let at = state.waiting.partition_point(before);
            state.waiting.insert(at, given);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Sends messages to the last byte.
fn send(out: &mut BufWriter<TcpStream>, protocol: Protocol, portion: &Portion) -> io::Result<()> {
    for given in portion {
        link::write(out, protocol, &given.message)?;
    }
    out.flush()
}

impl Pusher {
    /// Opens one.
    ///
    /// # Errors
    /// As [`crate::Puller::open`].
    pub fn open(options: SocketOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            is_reversed: planted(Fault::LastIsFirst),
        });
        let (protocol, bytes_max) = (options.protocol, options.held_bytes_max);
        let reports = options.reports.clone();
        let theirs = shared.clone();
        // A fault is this thread's.
        let is_lost = planted(Fault::LostWithLink);
        let serve = move |id: u64, stream: &mut Stream| {
            let mut out = BufWriter::with_capacity(64 << 10, stream.socket().try_clone()?);
            while let Some(portion) = theirs.next(id, protocol, stream)? {
                let answers = stream.take_unsent();
                let sent = out.write_all(&answers);
                match sent.and_then(|()| send(&mut out, protocol, &portion)) {
                    Ok(()) => theirs.done(portion),
                    Err(error) => {
                        match is_lost {
                            true => theirs.done(portion),
                            false => theirs.again(portion, &reports),
                        }
                        // What it has is not for a connection that is lost.
                        drop(out.into_parts());
                        return Err(error);
                    }
                }
            }
            Ok(())
        };
        Ok(Self {
            places: Places::open(options, Side::Push, Box::new(serve))?,
            shared,
            bytes_max,
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

    /// How many are connected and wait for a message.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.shared.state().free.len()
    }

    /// Takes a message, if less is held than the bound. Gives it back otherwise.
    ///
    /// # Errors
    /// The message, which is not taken.
    pub fn push(&self, message: Message) -> Result<Ticket, Message> {
        let bytes = bytes_of(&message);
        let mut state = self.shared.state();
        let is_full = state.held.saturating_add(bytes) > self.bytes_max;
        let is_ahead = !planted(Fault::AheadOfAll) && state.last - state.done_to >= AHEAD_MAX;
        if state.held > 0 && is_full || is_ahead {
            return Err(message);
        }
        state.held += bytes;
        state.last += 1;
        let ticket = state.last;
        state.waiting.push_back(Given {
            ticket,
            message: Arc::new(message),
            tries: 0,
        });
        drop(state);
        self.shared.changed.notify_all();
        Ok(ticket)
    }

    /// All messages up to this one were taken by the system of this host, for somebody who was
    /// connected.
    pub fn sent_to(&self) -> Ticket {
        let state = self.shared.state();
        match planted(Fault::SentTooEarly) {
            true => state.last,
            false => state.done_to,
        }
    }

    /// Sends no more; [`Pusher::sent_to`] is the last word then. Those that are connected have 30 s to read what was
    /// sent and to end; how many have not, and may lose some of it.
    pub fn stop(&mut self) -> usize {
        self.shared.state().ends = true;
        self.shared.changed.notify_all();
        self.places.close();
        self.places.unfinished()
    }

    /// Waits until more than `known` were sent, for `timeout` at most; returns as
    /// [`Pusher::sent_to`].
    pub fn wait(&self, known: Ticket, timeout: Duration) -> Ticket {
        let until = Instant::now() + timeout;
        let mut state = self.shared.state();
        while state.done_to <= known {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            (state, _) = waited.expect("no holder panics here");
        }
        state.done_to
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.stop();
    }
}
