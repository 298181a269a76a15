//! A session: streams over several connections, as plain state.
//!
//! Whoever carries it calls, in this order:
//!
//! 1. [`Session::attach`] for a connection that both sides have proved themselves on, and [`Session::lost`] when it is gone;
//! 2. [`Session::receive`] for each frame that comes by it, and [`Session::next`] for what is to be sent by it;
//! 3. [`Session::open`], [`Session::write`], [`Session::finish`], [`Session::read`] and [`Session::reset`] for streams;
//! 4. [`Session::tick`] now and then;
//! 5. [`Session::wakes`] after each of these: who has something to do now.

use crate::account::Account;
use crate::faults::{Fault, planted};
use crate::frame::{DATA_BYTES_MAX, Frame, Reason, StreamId};
use crate::memory::{Memory, Shares};
use crate::rates::{Rates, lower};
use crate::receiving::{Found, Receiving, WINDOW_BYTES, WINDOW_BYTES_MAX};
use crate::sending::Sending;
use bytes::Bytes;
use net::Bucket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

mod stage;
mod terms;

use stage::Stage;
pub use terms::{Broken, Next, Read, Side, Stripe, Wake};

/// Connections of a session at once.
pub const STRIPES_MAX: usize = 16;
/// Streams of a session at once.
pub const STREAMS_MAX: usize = 1024;
/// So many it may have, however many others have.
const STREAMS_ALWAYS: usize = 4;
/// How often each side is heard on each connection, at least.
pub const PING_EVERY: Duration = Duration::from_secs(10);
/// After so long without a sign the other side is taken to be gone.
pub const SILENT_MAX: Duration = Duration::from_secs(20);
/// A stream with so much waiting goes by every connection that has nothing else to do.
const FAT_BYTES: usize = 128 << 10;
/// Where so much waits of all streams that are read, ...
const ALL_QUEUED_BYTES: usize = 4 << 20;
/// ... no more than this does of each: what lies for long has left the processor's cache when it is sent.
const SHARE_BYTES: usize = 64 << 10;
/// Streams that have ended and may be heard of again.
const ENDED_MAX: usize = 4096;
/// Last words of streams that are sent again when their connection is lost.
const LAST_WORDS_MAX: usize = 4096;
/// How often the other side is asked what has arrived, at most, where memory is short.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Before the first round trip was measured.
const RTT_FIRST: Duration = Duration::from_millis(100);

const _: () = assert!(
    SILENT_MAX.as_secs() >= 2 * PING_EVERY.as_secs(),
    "one ping may be lost"
);

#[derive(Debug)]
struct Connection {
    /// Frames that go by this connection and no other.
    control: VecDeque<Frame>,
    /// Streams at home here that have something to send.
    ready: VecDeque<StreamId>,
    heard: Instant,
    pinged: Instant,
    is_dropped: bool,
    /// It has nothing to send, and waits to be woken.
    is_idle: bool,
}

/// Where a stream is at home.
type Home = Option<usize>;

#[derive(Debug)]
struct Stream {
    sending: Sending,
    receiving: Receiving,
    home: Home,
    /// It stands in the list of its home.
    is_listed: bool,
    opening: Opening,
    reset: Option<Reason>,
    /// What of it is in the session's sum of what waits.
    flowing: usize,
    /// What of it is in the process's sum of what is held.
    held: u64,
    /// The Credit that says that all has arrived, and the connection that it went by last.
    last_credit: Option<(usize, Frame)>,
}

/// How far the opening of a stream is.
#[derive(Debug, PartialEq, Eq)]
enum Opening {
    /// It has to be said.
    Wanted(String),
    /// It was said by this connection, which everything goes by until the other side knows the stream.
    Said(String, usize),
    /// Both sides know the stream.
    Known,
}

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    side: Side,
    connections: [Option<Connection>; STRIPES_MAX],
    streams: BTreeMap<StreamId, Stream>,
    next_stream: u32,
    /// Streams of the other side that have ended.
    ended: BTreeSet<StreamId>,
    /// Last words of streams: resets, and that all has arrived. Any connection may take them.
    control: VecDeque<Frame>,
    /// Streams whose Credit is due.
    credits: VecDeque<StreamId>,
    /// Frames of `control` that may be on their way, with the connection that they went by. Nobody would say
    /// them again: their streams are forgotten.
    last_words: VecDeque<(usize, Frame)>,
    rates: Rates,
    sends: Bucket,
    takes: Bucket,
    /// What it has of the memory of all sessions.
    shares: Shares,
    /// Bytes that wait to be sent, of all streams of which the other side takes some.
    queued: usize,
    /// Streams whose writers wait for memory.
    short: BTreeSet<StreamId>,
    /// When the other side was last asked, for them, what has arrived.
    asked: Instant,
    heard: Instant,
    started: Instant,
    stage: Stage,
    account: Account,
    wakes: Vec<Wake>,
}

impl Session {
    /// A session without a connection yet, which shares that memory with others.
    pub fn new(side: Side, rates: Rates, memory: &Memory, now: Instant) -> Self {
        // The sender keeps to the rate; the receiver enforces it with some play, so that two buckets in a row
        // don't make less of it.
        let takes = rates.takes.map(|rate| rate.saturating_add(rate / 32));
        Self {
            side,
            connections: Default::default(),
            streams: BTreeMap::new(),
            next_stream: match side {
                Side::Joined => 2,
                Side::Offered => 1,
            },
            ended: BTreeSet::new(),
            control: VecDeque::new(),
            credits: VecDeque::new(),
            last_words: VecDeque::new(),
            rates,
            sends: Bucket::new(rates.sends, now),
            takes: Bucket::new(takes, now),
            shares: memory.shares(),
            queued: 0,
            short: BTreeSet::new(),
            asked: now,
            heard: now,
            started: now,
            stage: Stage::Open,
            account: Account::default(),
            wakes: Vec::new(),
        }
    }

    /// Takes a connection. `None` if there are as many as there may be. Of a session that is over it says so first.
    pub fn attach(&mut self, now: Instant) -> Option<Stripe> {
        let place = self.connections.iter().position(Option::is_none)?;
        self.heard = now;
        let ping = || Frame::Ping(self.clock(now));
        let first = self.over().map_or_else(ping, Frame::Goodbye);
        self.connections[place] = Some(Connection {
            control: VecDeque::from([first]),
            ready: VecDeque::new(),
            heard: now,
            pinged: now,
            is_dropped: false,
            is_idle: true,
        });
        let homeless: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.home.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in homeless {
            self.find_home(id);
        }
        self.wake(place);
        Some(Stripe(place as u8))
    }

    /// A connection is gone; what went by it is sent by others.
    pub fn lost(&mut self, stripe: Stripe) {
        let place = usize::from(stripe.0);
        if self.connections[place].take().is_none() {
            return;
        }
        if self.over().is_none() {
            self.account.cuts += 1;
        }
        for (by, frame) in std::mem::take(&mut self.last_words) {
            match by == place {
                true => self.control.push_back(frame),
                false => self.last_words.push_back((by, frame)),
            }
        }
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            let stream = self.streams.get_mut(&id).expect("it was there");
            if !planted(Fault::NothingAgain) {
                stream.sending.lost(stripe.0);
            }
            if let Opening::Said(name, by) = &stream.opening
                && *by == place
            {
                stream.opening = Opening::Wanted(name.clone());
            }
            // A Credit may have been under way.
            stream.receiving.say_again();
            self.credits.push_back(id);
            let stream = self.streams.get_mut(&id).expect("it was there");
            if stream.home == Some(place) {
                stream.home = None;
                stream.is_listed = false;
                self.find_home(id);
            }
            self.list(id);
        }
        self.wake_any();
    }

    /// How many connections there are.
    pub fn stripes(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// Why it is over, if it is.
    pub fn over(&self) -> Option<Reason> {
        self.stage.over()
    }

    /// Whether this side has ended it, whose word may be under way still.
    pub fn has_left(&self) -> bool {
        matches!(self.stage, Stage::Left(_))
    }

    /// Opens a stream to a target of the other side.
    ///
    /// # Errors
    /// [`Reason::Full`], or why the session is over.
    pub fn open(&mut self, now: Instant, name: &str) -> Result<StreamId, Reason> {
        if let Some(why) = self.over() {
            return Err(why);
        }
        if self.next_stream > u32::MAX - 2 || !self.has_place() {
            self.account.refused += 1;
            return Err(Reason::Full);
        }
        let id = StreamId(self.next_stream);
        self.next_stream += 2;
        self.add(now, id, Opening::Wanted(name.to_owned()));
        self.list(id);
        Ok(id)
    }

    /// Takes a place for one more stream, if there is one here and among all sessions.
    fn has_place(&mut self) -> bool {
        match self.streams.len() {
            ..STREAMS_ALWAYS => {
                self.shares.streams.hold(1);
                true
            }
            STREAMS_ALWAYS..STREAMS_MAX => self.shares.streams.take(1) == 1,
            _ => false,
        }
    }

    /// One more stream, whose place was taken.
    fn add(&mut self, now: Instant, id: StreamId, opening: Opening) {
        self.account.streams += 1;
        let stream = Stream {
            sending: Sending::new(WINDOW_BYTES),
            receiving: Receiving::new(now),
            home: None,
            is_listed: false,
            opening,
            reset: None,
            flowing: 0,
            held: 0,
            last_credit: None,
        };
        self.streams.insert(id, stream);
        self.find_home(id);
    }

    /// Bytes that a stream takes now; `None` if there is no such stream any more. With 0 its writer is woken when
    /// there may be more.
    pub fn room(&mut self, id: StreamId) -> Option<usize> {
        let stream = self.streams.get(&id)?;
        if stream.reset.is_some() {
            return None;
        }
        let share = match self.queued < ALL_QUEUED_BYTES || planted(Fault::OwnQueues) {
            true => usize::MAX,
            false => SHARE_BYTES.saturating_sub(stream.sending.queued()),
        };
        // However little memory is left, each stream moves.
        let least = (SHARE_BYTES as u64).saturating_sub(stream.held);
        let held = self.shares.sends.spare().max(least);
        let wanted = stream.sending.room().min(share);
        let room = wanted.min(usize::try_from(held).unwrap_or(usize::MAX));
        if room == 0 && wanted > 0 && self.short.insert(id) {
            // What has arrived of it is held until the other side says so, which it does for a quarter of a window.
            self.wake_any();
        }
        Some(room)
    }

    /// There may be memory again for those who wait for it.
    fn wake_short(&mut self) {
        let short = std::mem::take(&mut self.short).into_iter();
        self.wakes.extend(short.map(Wake::Writable));
    }

    /// When the other side may be asked what has arrived.
    fn asks_at(&self) -> Instant {
        self.asked + self.account.rtt.unwrap_or_default().max(ASK_EVERY)
    }

    /// The other side asks: what it was not told of has its Credit.
    fn owe_unsaid(&mut self) {
        for (id, stream) in &mut self.streams {
            if stream.receiving.has_unsaid() && !stream.receiving.is_credit_due() {
                stream.receiving.say_again();
                self.credits.push_back(*id);
            }
        }
    }

    /// Sends bytes of a stream, at most as many as it has room for.
    pub fn write(&mut self, id: StreamId, bytes: Bytes) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.reset.is_none()
        {
            stream.sending.push(bytes);
            self.count(id);
            self.list(id);
        }
    }

    /// Counts anew what waits of a stream, and what is held.
    fn count(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let (flowing, held) = (stream.sending.flowing(), stream.sending.held());
        self.queued = self.queued - stream.flowing + flowing;
        stream.flowing = flowing;
        match held.checked_sub(stream.held) {
            Some(more) => self.shares.sends.hold(more),
            None => self.shares.sends.give(stream.held - held),
        }
        stream.held = held;
    }

    /// No more bytes of a stream come from this side.
    pub fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sending.finish();
            self.list(id);
        }
    }

    /// Reads of a stream.
    pub fn read(&mut self, id: StreamId) -> Read {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Read::Reset(self.over().unwrap_or(Reason::Gone));
        };
        if let Some(reason) = stream.reset {
            self.forget(id);
            return Read::Reset(reason);
        }
        let found = stream.receiving.take();
        if stream.receiving.is_credit_due() {
            self.owe_credit(id);
        }
        match found {
            Found::Bytes(bytes) => {
                self.account.bytes_in += bytes.len() as u64;
                Read::Bytes(bytes)
            }
            Found::Nothing => Read::Nothing,
            Found::End => {
                self.forget_if_done(id);
                Read::End
            }
        }
    }

    /// When the reader may go on behind so many bytes, by the rate that was agreed: `None` is now.
    pub fn takes(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        self.takes.take(bytes);
        self.takes.opens(now)
    }

    /// Ends a stream without an order.
    pub fn reset(&mut self, id: StreamId, reason: Reason) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let is_known = stream.reset.is_none() && !matches!(stream.opening, Opening::Wanted(_));
        self.forget(id);
        if is_known {
            self.control.push_back(Frame::Reset { stream: id, reason });
            self.wake_any();
        }
    }

    /// Ends the session, and tells the other side.
    pub fn leave(&mut self, reason: Reason) {
        if self.over().is_none() {
            let places: Vec<usize> = self.places().collect();
            for place in places {
                let connection = self.connections[place].as_mut().expect("it is there");
                connection.control.push_back(Frame::Goodbye(reason));
                self.wake(place);
            }
            self.end(Stage::Left(reason));
        }
    }

    fn end(&mut self, stage: Stage) {
        let (None, Some(reason)) = (self.over(), stage.over()) else {
            return;
        };
        self.stage = stage;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.fail(id, reason);
        }
        self.wakes.push(Wake::Over(reason));
    }

    /// A frame has come. Once this side has left it counts for nothing.
    ///
    /// # Errors
    /// [`Broken`]: the session can't go on with who sends that.
    pub fn receive(&mut self, now: Instant, stripe: Stripe, frame: Frame) -> Result<(), Broken> {
        if self.has_left() {
            return Ok(());
        }
        let place = usize::from(stripe.0);
        self.heard = now;
        if let Some(connection) = self.connections[place].as_mut() {
            connection.heard = now;
        }
        match frame {
            Frame::Open { stream, name } => self.opened(now, stream, name)?,
            Frame::Data {
                stream,
                offset,
                bytes,
            } => {
                self.account.wire_in += bytes.len() as u64;
                let Some(known) = self.known(stream) else {
                    return Ok(());
                };
                known.receiving.data(offset, bytes).map_err(Broken)?;
                self.received(stream);
            }
            Frame::Close { stream, offset } => {
                let Some(known) = self.known(stream) else {
                    return Ok(());
                };
                known.receiving.close(offset).map_err(Broken)?;
                self.received(stream);
            }
            Frame::Credit {
                stream,
                received,
                limit,
            } => {
                let Some(known) = self.streams.get_mut(&stream) else {
                    return Ok(());
                };
                known.opening = Opening::Known;
                if !known.sending.credit(received, limit) {
                    return Err(Broken("bytes have arrived that were not sent"));
                }
                self.count(stream);
                self.list(stream);
                self.wakes.push(Wake::Writable(stream));
                self.wake_short();
                self.forget_if_done(stream);
            }
            Frame::Reset { stream, reason } => self.was_reset(stream, reason),
            Frame::Ping(token) => {
                if let Some(connection) = self.connections[place].as_mut() {
                    if connection.control.len() > 64 {
                        return Err(Broken("it pings without listening"));
                    }
                    connection.control.push_back(Frame::Pong(token));
                    self.wake(place);
                }
                if !planted(Fault::Unasked) {
                    self.owe_unsaid();
                }
            }
            Frame::Pong(token) => {
                let sample = Duration::from_micros(self.clock(now).saturating_sub(token));
                // Towards less at once, towards more slowly: queues are no distance.
                self.account.rtt = Some(match self.account.rtt {
                    Some(rtt) if sample > rtt => rtt + (sample - rtt) / 8,
                    _ => sample,
                });
                self.wake_short();
            }
            Frame::Rate(rate) => {
                let asked = (rate > 0).then_some(rate);
                self.sends.set(lower(self.rates.sends, asked), now);
                self.wake_all();
            }
            Frame::Goodbye(reason) => self.end(Stage::Ended(reason)),
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) => {
                return Err(Broken("a greeting in the middle of a session"));
            }
        }
        Ok(())
    }

    fn opened(&mut self, now: Instant, id: StreamId, name: String) -> Result<(), Broken> {
        let is_theirs = match self.side {
            Side::Joined => id.0 % 2 == 1,
            Side::Offered => id.0.is_multiple_of(2) && id.0 > 0,
        };
        if !is_theirs {
            return Err(Broken("a stream with a number of this side"));
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            // Said again: the answer was lost.
            stream.receiving.say_again();
            self.owe_credit(id);
            return Ok(());
        }
        if self.ended.contains(&id) && !planted(Fault::OpenedTwice) || self.over().is_some() {
            return Ok(());
        }
        if !self.has_place() {
            // Nobody has to keep answers for who does not read them.
            if self.control.len() >= 2 * STREAMS_MAX {
                return Err(Broken(
                    "streams beyond the most, and no look at the answers",
                ));
            }
            self.account.refused += 1;
            self.note_ended(id);
            self.control.push_back(Frame::Reset {
                stream: id,
                reason: Reason::Full,
            });
            self.wake_any();
            return Ok(());
        }
        self.add(now, id, Opening::Known);
        let stream = self.streams.get_mut(&id).expect("it was added");
        stream.receiving.say_again();
        self.wakes.push(Wake::Opened(id, name));
        self.owe_credit(id);
        Ok(())
    }

    /// A stream's other side is to hear what it may send, once.
    fn owe_credit(&mut self, id: StreamId) {
        if !self.credits.contains(&id) {
            self.credits.push_back(id);
        }
        self.wake_any();
    }

    /// A stream that is there. Who sends to one that is not is told, once for each time.
    fn known(&mut self, id: StreamId) -> Option<&mut Stream> {
        let is_known = self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.reset.is_none());
        if !is_known {
            if !self.streams.contains_key(&id) && self.control.len() < STREAMS_MAX {
                self.control.push_back(Frame::Reset {
                    stream: id,
                    reason: Reason::Gone,
                });
                self.wake_any();
            }
            return None;
        }
        self.streams.get_mut(&id)
    }

    /// Something has come of a stream.
    fn received(&mut self, id: StreamId) {
        let stream = self.streams.get(&id).expect("it was found");
        if stream.receiving.is_readable() {
            self.wakes.push(Wake::Readable(id));
        }
        if stream.receiving.is_credit_due() {
            self.owe_credit(id);
        }
    }

    fn was_reset(&mut self, id: StreamId, reason: Reason) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        // The other side has forgotten a stream that it had all of: its last word was lost.
        if reason == Reason::Gone && stream.receiving.is_whole() && stream.sending.settle() {
            return self.forget_if_done(id);
        }
        self.fail(id, reason);
    }

    /// A stream has failed: its reader finds that, and its writer.
    fn fail(&mut self, id: StreamId, reason: Reason) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.reset.is_none() {
            stream.reset = Some(reason);
            self.wakes.push(Wake::Failed(id, reason));
            self.wakes.push(Wake::Readable(id));
            self.wakes.push(Wake::Writable(id));
        }
    }

    /// Looks after what time brings: pings, silence.
    pub fn tick(&mut self, now: Instant) {
        // Other sessions may have given memory back.
        self.wake_short();
        let clock = self.clock(now);
        let places: Vec<usize> = self.places().collect();
        for &place in &places {
            let connection = self.connections[place].as_mut().expect("it is there");
            if now.saturating_duration_since(connection.heard) >= SILENT_MAX
                && !connection.is_dropped
            {
                connection.is_dropped = true;
                self.wakes.push(Wake::Drop(Stripe(place as u8)));
            } else if now.saturating_duration_since(connection.pinged) >= PING_EVERY {
                connection.pinged = now;
                connection.control.push_back(Frame::Ping(clock));
                self.wake(place);
            }
        }
        if now.saturating_duration_since(self.heard) >= SILENT_MAX && self.over().is_none() {
            let ids: Vec<StreamId> = self.streams.keys().copied().collect();
            for id in ids {
                let stream = &self.streams[&id];
                // If the other side comes back, it is to know as well.
                let is_news =
                    stream.reset.is_none() && !matches!(stream.opening, Opening::Wanted(_));
                if is_news && self.control.len() < 4 * STREAMS_MAX {
                    self.control.push_back(Frame::Reset {
                        stream: id,
                        reason: Reason::Cut,
                    });
                }
                self.fail(id, Reason::Cut);
            }
            self.heard = now;
        }
    }

    /// What a connection sends next. It is sent, or the connection is lost.
    pub fn next(&mut self, now: Instant, stripe: Stripe) -> Next {
        let place = usize::from(stripe.0);
        let next = self.find_next(now, place);
        if let Some(connection) = self.connections[place].as_mut() {
            connection.is_idle = !matches!(next, Next::Frame(_));
        }
        next
    }

    fn find_next(&mut self, now: Instant, place: usize) -> Next {
        let Some(connection) = self.connections[place].as_mut() else {
            return Next::Idle;
        };
        if let Some(frame) = connection.control.pop_front() {
            return Next::Frame(frame);
        }
        if let Some(frame) = self.control.pop_front() {
            self.keep_last_word(place, &frame);
            return Next::Frame(frame);
        }
        if let Some(frame) = self.next_credit(now, place) {
            return Next::Frame(frame);
        }
        let next = self.next_data(now, place);
        if self.short.is_empty() || matches!(next, Next::Frame(_)) {
            return next;
        }
        let asks = self.asks_at();
        match next {
            _ if asks <= now => {
                self.asked = now;
                Next::Frame(Frame::Ping(self.clock(now)))
            }
            Next::At(at) => Next::At(at.min(asks)),
            _ => Next::At(asks),
        }
    }

    fn keep_last_word(&mut self, place: usize, frame: &Frame) {
        self.last_words.push_back((place, frame.clone()));
        if self.last_words.len() > LAST_WORDS_MAX {
            self.last_words.pop_front();
        }
    }

    fn next_credit(&mut self, now: Instant, place: usize) -> Option<Frame> {
        while let Some(id) = self.credits.pop_front() {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            if !stream.receiving.is_credit_due() || stream.reset.is_some() {
                continue;
            }
            // Nothing may be said of a stream before it is opened.
            if matches!(stream.opening, Opening::Wanted(_)) {
                continue;
            }
            let rtt = self
                .account
                .rtt
                .unwrap_or(RTT_FIRST)
                .max(Duration::from_millis(1));
            let most = match self.takes.rate() {
                Some(rate) => (rate as f64 * rtt.as_secs_f64() * 2.0) as u64,
                None => u64::MAX,
            };
            let spare = self.shares.windows.take(WINDOW_BYTES_MAX);
            let (received, limit, grown) = stream.receiving.credit(now, rtt, most, spare);
            let is_last = stream.receiving.is_whole();
            self.shares.windows.give(spare - grown);
            let frame = Frame::Credit {
                stream: id,
                received,
                limit,
            };
            if is_last {
                stream.last_credit = Some((place, frame.clone()));
            }
            return Some(frame);
        }
        None
    }

    fn next_data(&mut self, now: Instant, place: usize) -> Next {
        // Openings and ends are control: they pass without tokens.
        let opens = match planted(Fault::FreeData) {
            true => None,
            false => self.sends.opens(now),
        };
        let own = self.connections[place]
            .as_ref()
            .map_or(0, |own| own.ready.len());
        for _ in 0..own {
            let list = &mut self.connections[place].as_mut().expect("it is there").ready;
            let Some(id) = list.pop_front() else { break };
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            if let Opening::Wanted(name) = &stream.opening {
                let name = name.clone();
                stream.opening = Opening::Said(name.clone(), place);
                stream.is_listed = false;
                self.list(id);
                return Next::Frame(Frame::Open { stream: id, name });
            }
            if let Some(frame) = self.piece_of(id, place, opens.is_none()) {
                return Next::Frame(frame);
            }
        }
        if opens.is_none()
            && let Some(id) = self.fat_elsewhere(place)
            && let Some(frame) = self.piece_of(id, place, true)
        {
            return Next::Frame(frame);
        }
        let waits = self.connections[place]
            .as_ref()
            .is_some_and(|own| !own.ready.is_empty());
        match opens {
            Some(at) if waits => Next::At(at),
            _ => Next::Idle,
        }
    }

    /// The next frame of a stream that was taken from the list of its home, or stands in that of another.
    fn piece_of(&mut self, id: StreamId, place: usize, has_tokens: bool) -> Option<Frame> {
        let max = match self.sends.rate() {
            Some(rate) => (rate / 50).clamp(4096, DATA_BYTES_MAX as u64) as usize,
            None => DATA_BYTES_MAX,
        };
        let stream = self.streams.get_mut(&id)?;
        let is_home = stream.home == Some(place);
        if is_home {
            stream.is_listed = false;
        }
        let had_room = stream.sending.room() > 0;
        let queued = stream.sending.queued();
        let frame = match has_tokens || queued == 0 {
            true => stream.sending.next(id, place as u8, max),
            false => None,
        };
        let has_room = stream.sending.room() > 0;
        self.count(id);
        if let Some(Frame::Data { bytes, .. }) = &frame {
            self.sends.take(bytes.len());
            self.account.bytes_out += bytes.len() as u64;
        }
        if has_room && (!had_room || frame.is_some()) {
            self.wakes.push(Wake::Writable(id));
        }
        if is_home {
            self.list_quietly(id);
        }
        frame
    }

    /// A stream at home elsewhere that has more waiting than its home sends.
    fn fat_elsewhere(&self, place: usize) -> Option<StreamId> {
        let others = self
            .connections
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != place);
        let mut fronts = others.filter_map(|(_, other)| other.as_ref()?.ready.front().copied());
        fronts.find(|id| {
            self.streams.get(id).is_some_and(|stream| {
                stream.opening == Opening::Known && stream.sending.queued() >= FAT_BYTES
            })
        })
    }

    /// Puts a stream on the list of its home, if it has something to send, and wakes that.
    fn list(&mut self, id: StreamId) {
        if let Some(home) = self.list_quietly(id) {
            self.wake(home);
            let stream = &self.streams[&id];
            if stream.sending.queued() >= FAT_BYTES {
                self.wake_all();
            }
        }
    }

    fn list_quietly(&mut self, id: StreamId) -> Home {
        let stream = self.streams.get_mut(&id)?;
        let home = stream.home?;
        let is_ready = stream.sending.is_ready() || matches!(stream.opening, Opening::Wanted(_));
        if !is_ready || stream.reset.is_some() {
            return None;
        }
        if !stream.is_listed {
            stream.is_listed = true;
            let connection = self.connections[home].as_mut()?;
            connection.ready.push_back(id);
        }
        Some(home)
    }

    /// The connection with the fewest streams that wait is a stream's home.
    fn find_home(&mut self, id: StreamId) {
        let mut streams = [0_usize; STRIPES_MAX];
        for stream in self.streams.values() {
            if let Some(home) = stream.home {
                streams[home] += 1;
            }
        }
        let best = self.places().min_by_key(|&place| {
            let waiting = self.connections[place]
                .as_ref()
                .map_or(0, |c| c.ready.len());
            (waiting, streams[place])
        });
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.home = best;
        }
        self.list(id);
    }

    fn forget_if_done(&mut self, id: StreamId) {
        let is_done = self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.sending.is_done() && stream.receiving.is_done());
        // What its last Credit says is said before it is forgotten.
        let is_due = self
            .streams
            .get(&id)
            .is_some_and(|s| s.receiving.is_credit_due());
        if is_done && !is_due {
            self.forget(id);
        } else if is_done {
            let stream = self.streams.get_mut(&id).expect("it was found");
            let (received, limit, _) =
                stream
                    .receiving
                    .credit(self.heard, Duration::ZERO, WINDOW_BYTES, 0);
            self.control.push_back(Frame::Credit {
                stream: id,
                received,
                limit,
            });
            self.wake_any();
            self.forget(id);
        }
    }

    fn forget(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(&id) {
            self.shares.streams.give(1);
            self.shares.windows.give(stream.receiving.grown());
            self.shares.sends.give(stream.held);
            self.queued -= stream.flowing;
            self.short.remove(&id);
            self.wake_short();
            // As long as the stream was there, it was said again with every connection that was lost.
            if let Some((place, frame)) = stream.last_credit {
                self.keep_last_word(place, &frame);
            }
            self.note_ended(id);
        }
    }

    fn note_ended(&mut self, id: StreamId) {
        self.ended.insert(id);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_first();
        }
    }

    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        (0..STRIPES_MAX).filter(|place| self.connections[*place].is_some())
    }

    /// Wakes a connection, if it does not send now: it asks again when it has.
    fn wake(&mut self, place: usize) {
        if let Some(connection) = self.connections[place].as_mut()
            && std::mem::take(&mut connection.is_idle)
        {
            self.wakes.push(Wake::Stripe(Stripe(place as u8)));
        }
    }

    fn wake_all(&mut self) {
        for place in 0..STRIPES_MAX {
            self.wake(place);
        }
    }

    /// Wakes a connection that has nothing to do, for what any of them may send.
    fn wake_any(&mut self) {
        let is_idle = |place: &usize| {
            self.connections[*place]
                .as_ref()
                .is_some_and(|connection| connection.is_idle)
        };
        let idle = (0..STRIPES_MAX).find(is_idle);
        if let Some(place) = idle {
            self.wake(place);
        }
    }

    /// Who has something to do now.
    pub fn wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.wakes)
    }

    /// What has passed.
    pub fn account(&self) -> Account {
        Account {
            open: self.streams.len() as u64,
            stripes: self.stripes() as u64,
            ..self.account.clone()
        }
    }

    /// Microseconds since it began: what pings carry.
    fn clock(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.started).as_micros();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
