//! `inproc://name`: two sides of one process, joined by two queues.
//!
//! Nothing is bounded here: what may be under way is bounded by the credits
//! that the two sides grant each other, as on any other link.

use crate::address;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::regions::{Range, RegionError, Regions, check_chunk, place_in};
use crate::seal::{CHANGED, Seal};
use bytes::Bytes;
use memory::{Buffer, Target, copies};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use wire::checksum::crc32c;
use wire::message::Region;

const SCHEME: &str = "inproc";

/// Messages that are handed over together at most, while there are more to
/// receive: one taking of the other side's lock does for all of them.
const HANDED_OVER_MAX: usize = 16;

/// Who listens in this process, by name. Held for a look-up only.
static LISTENERS: Mutex<BTreeMap<String, Weak<Listening>>> = Mutex::new(BTreeMap::new());

/// Links within this process. Addresses are `inproc://name`.
#[derive(Debug, Default)]
pub struct Inproc {
    options: LinkOptions,
}

impl Inproc {
    /// Links within this process that have these options.
    pub fn new(options: LinkOptions) -> Self {
        Self { options }
    }
}

fn listeners() -> MutexGuard<'static, BTreeMap<String, Weak<Listening>>> {
    LISTENERS.lock().expect("no holder panics here")
}

impl Transport for Inproc {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let name = address::rest(SCHEME, address)?;
        let mut listeners = listeners();
        if listeners
            .get(name)
            .is_some_and(|listening| listening.strong_count() > 0)
        {
            let text = format!("listening at {address}: somebody of this process does already");
            return Err(NetError::Address(text));
        }
        let listening = Arc::new(Listening {
            name: name.to_owned(),
            waiting: Mutex::default(),
            options: self.options.clone(),
        });
        listeners.insert(name.to_owned(), Arc::downgrade(&listening));
        Ok(Box::new(InprocListener { listening }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let name = address::rest(SCHEME, address)?;
        let listening = listeners().get(name).and_then(Weak::upgrade);
        let listening = listening.ok_or_else(|| {
            NetError::Refused(format!(
                "connecting to {address}: nobody listens in this process"
            ))
        })?;
        let ends = [Arc::<End>::default(), Arc::default()];
        let [ours, theirs] = [0, 1].map(|side| (ends[side].clone(), ends[1 - side].clone()));
        let accepted = InprocLink::new(theirs, address, &listening.options);
        listening.bring(accepted);
        Ok(Box::new(InprocLink::new(ours, address, &self.options)))
    }
}

/// What a listener and those who connect share.
struct Listening {
    name: String,
    /// Guards links that wait to be accepted, and who is to be notified.
    waiting: Mutex<Waiting>,
    options: LinkOptions,
}

#[derive(Default)]
struct Waiting {
    links: VecDeque<InprocLink>,
    notify: Option<Notify>,
}

impl Listening {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics here")
    }

    fn bring(&self, link: InprocLink) {
        let mut waiting = self.waiting();
        waiting.links.push_back(link);
        let notify = waiting.notify.clone();
        drop(waiting);
        if let Some(notify) = notify {
            notify();
        }
    }
}

struct InprocListener {
    listening: Arc<Listening>,
}

impl Listener for InprocListener {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.listening.name)
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let link = self.listening.waiting().links.pop_front();
        Ok(link.map(|link| Box::new(link) as Box<dyn Link>))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, notify: Notify) {
        self.listening.waiting().notify = Some(notify.clone());
        notify();
    }
}

impl Drop for InprocListener {
    fn drop(&mut self) {
        let mut listeners = listeners();
        let ours = listeners
            .get(&self.listening.name)
            .is_some_and(|listening| std::ptr::eq(listening.as_ptr(), &*self.listening));
        if ours {
            listeners.remove(&self.listening.name);
        }
        drop(listeners);
        // Links that nobody accepted go with the listener; their other sides see it.
    }
}

/// One side of a pair. What the other side sends is put in here.
#[derive(Default)]
struct End {
    /// Guards everything of this side that the other side touches. A region's
    /// bytes are written under it, so that reclaiming them waits for that.
    state: Mutex<EndState>,
    /// Whether there is something to take in, so that a driver that is awake finds
    /// out without the lock. Set and cleared under it.
    stirs: AtomicBool,
    /// Bytes of payloads that were put in here and not yet received.
    queued_bytes: AtomicU64,
}

#[derive(Default)]
struct EndState {
    lanes: Lanes,
    regions: Regions,
    notify: Option<Notify>,
    /// Whether the owner is disarmed, and is to be notified of what comes.
    rests: bool,
    /// Why the other side is gone.
    closed: Option<String>,
}

/// Messages on their way, in order in each lane.
#[derive(Default)]
struct Lanes {
    control: VecDeque<Message>,
    bulk: VecDeque<Message>,
}

impl Lanes {
    fn len(&self) -> usize {
        self.control.len() + self.bulk.len()
    }

    fn push(&mut self, message: Message) {
        match message.lane {
            Lane::Control => self.control.push_back(message),
            Lane::Bulk => self.bulk.push_back(message),
        }
    }

    fn pop(&mut self) -> Option<Message> {
        self.control.pop_front().or_else(|| self.bulk.pop_front())
    }

    /// Moves everything behind what `into` has.
    fn move_to(&mut self, into: &mut Self) {
        let lanes = [
            (&mut self.control, &mut into.control),
            (&mut self.bulk, &mut into.bulk),
        ];
        for (from, into) in lanes {
            match into.is_empty() {
                // Either's memory is used again.
                true => std::mem::swap(from, into),
                false => into.append(from),
            }
        }
    }
}

impl End {
    fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().expect("no holder panics here")
    }

    /// Changes the state and notifies the owner of this end: by its `notify` if it
    /// rests, else it looks.
    fn change(&self, change: impl FnOnce(&mut EndState)) {
        let mut state = self.state();
        change(&mut state);
        self.stirs.store(true, Ordering::Release);
        let notify = match std::mem::take(&mut state.rests) {
            true => state.notify.clone(),
            false => None,
        };
        drop(state);
        if let Some(notify) = notify {
            notify();
        }
    }

    fn stirs(&self) -> bool {
        self.stirs.load(Ordering::Acquire)
    }
}

struct InprocLink {
    ours: Arc<End>,
    theirs: Arc<End>,
    capabilities: Capabilities,
    peer: Peer,
    options: LinkOptions,
    events: VecDeque<LinkEvent>,
    /// What was sent and not yet put into the other side's end.
    sent: Lanes,
    sent_bytes: u64,
    /// What was taken out of our end and not yet received.
    arrived: Lanes,
    /// Why the other side is gone, once all that it sent was taken.
    closed: Option<String>,
    is_down: bool,
}

impl InprocLink {
    fn new((ours, theirs): (Arc<End>, Arc<End>), address: &str, options: &LinkOptions) -> Self {
        Self {
            ours,
            theirs,
            capabilities: Capabilities {
                payload_bytes_max: options.payload_bytes_max,
                one_sided: true,
                ordered: true,
                memory_kinds: vec![0],
                stripes: None,
                bytes_alone: false,
            },
            peer: Peer {
                address: address.to_owned(),
                uid: Some(rustix::process::geteuid().as_raw()),
                pid: Some(std::process::id()),
                in_process: true,
                certificates: Vec::new(),
            },
            options: options.clone(),
            events: VecDeque::from([LinkEvent::Up]),
            sent: Lanes::default(),
            sent_bytes: 0,
            arrived: Lanes::default(),
            closed: None,
            is_down: false,
        }
    }

    fn hand_over(&mut self) {
        if self.sent.len() == 0 {
            return;
        }
        let bytes = std::mem::take(&mut self.sent_bytes);
        // Relaxed: a figure for its sender.
        self.theirs.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = &mut self.sent;
        self.theirs.change(|state| sent.move_to(&mut state.lanes));
    }

    fn take_in(&mut self) {
        if !self.ours.stirs() {
            return;
        }
        let mut state = self.ours.state();
        self.ours.stirs.store(false, Ordering::Relaxed);
        state.lanes.move_to(&mut self.arrived);
        self.closed = self.closed.take().or_else(|| state.closed.clone());
    }

    fn go_down(&mut self, error: NetError) {
        if self.is_down {
            return;
        }
        self.hand_over();
        self.is_down = true;
        let reason = error.to_string();
        self.theirs
            .change(|state| state.closed = state.closed.take().or(Some(reason)));
        self.events.push_back(LinkEvent::Down(error));
    }

    /// Queues an answer, before the end of the link if that waits to be reported.
    fn answer(&mut self, event: LinkEvent) {
        let at = match self.events.back() {
            Some(LinkEvent::Down(_)) => self.events.len() - 1,
            _ => self.events.len(),
        };
        self.events.insert(at, event);
    }

    /// What a message is at the receiver. Its head is handed over; its
    /// payload is gathered into memory that the receiver may write into.
    fn receive(&mut self, message: Message) -> Result<Received, NetError> {
        let bytes = message.payload_bytes();
        if bytes > self.options.payload_bytes_max {
            return Err(NetError::Protocol(format!(
                "{} sent a payload of {bytes} bytes; the limit is {}",
                self.peer.address, self.options.payload_bytes_max
            )));
        }
        let mut payload = match bytes {
            0 => Buffer::empty(),
            bytes => self.options.pool.take(bytes as usize),
        };
        let mut at = 0;
        for piece in &message.payload {
            copies::copy(piece, &mut payload[at..at + piece.len()]);
            at += piece.len();
        }
        Ok(Received {
            kind: message.kind,
            flags: message.flags,
            id: message.id,
            head: message.head,
            payload,
        })
    }

    fn read_now(&mut self, read: RegionRead) -> Result<(Buffer, Vec<u32>), NetError> {
        self.check_open()?;
        let RegionRead {
            region,
            offset,
            mut into,
            block_bytes,
        } = read;
        check_chunk("read", into.len() as u64).map_err(NetError::Region)?;
        let offset = place_in(&region, offset, into.len()).map_err(NetError::Region)?;
        let range = Range {
            key: &region.key,
            offset,
            bytes: into.len() as u64,
        };
        // The memory is shared from here on: withdrawing it does not wait.
        let exposed = self.theirs.state().regions.exposed(range);
        let exposed = exposed.map_err(|error| NetError::Region(error.to_string()))?;
        let from = &exposed.bytes;
        let mut checksums = Vec::new();
        if block_bytes == 0 {
            copies::copy(from, &mut into);
        } else {
            // Block by block, so that each is in the cache for the second use.
            let blocks = from.chunks(block_bytes as usize);
            for (from, into) in blocks.zip(into.chunks_mut(block_bytes as usize)) {
                checksums.push(crc32c(from));
                copies::copy(from, into);
            }
        }
        if !exposed.holds(&checksums, block_bytes) {
            return Err(NetError::Region(CHANGED.to_owned()));
        }
        Ok((into, checksums))
    }

    fn write_now(&mut self, write: &RegionWrite) -> Result<(), NetError> {
        self.check_open()?;
        let bytes = write.pieces.iter().map(Bytes::len).sum();
        check_chunk("write", bytes as u64).map_err(NetError::Region)?;
        let offset = place_in(&write.region, write.offset, bytes).map_err(NetError::Region)?;
        let range = Range {
            key: &write.region.key,
            offset,
            bytes: bytes as u64,
        };
        let mut state = self.theirs.state();
        let key = match state.regions.check_lent(range) {
            Ok(key) => key,
            // Reclaimed meanwhile: the bytes are lost, as on any other link.
            Err(RegionError::Gone) => return Ok(()),
            Err(error) => return Err(NetError::Region(error.to_string())),
        };
        let mut at = offset as usize;
        for piece in &write.pieces {
            let range = at..at + piece.len();
            let into = state.regions.lent(key, range).expect("checked above");
            copies::copy(piece, into);
            at += piece.len();
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), NetError> {
        if self.is_down {
            let text = format!("{} is down", self.peer.address);
            return Err(NetError::Closed(text));
        }
        match &self.ours.state().closed {
            Some(reason) => Err(NetError::Closed(reason.clone())),
            None => Ok(()),
        }
    }
}

impl Link for InprocLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn send(&mut self, message: Message) {
        message.check();
        if self.is_down {
            return;
        }
        self.sent_bytes += message.payload_bytes();
        self.sent.push(message);
    }

    fn expose(&mut self, bytes: Bytes) -> Region {
        self.ours.state().regions.expose(bytes, None)
    }

    fn expose_sealed(&mut self, bytes: Bytes, seal: Arc<Seal>) -> Region {
        self.ours.state().regions.expose(bytes, Some(seal))
    }

    fn withdraw(&mut self, region: &Region) {
        self.ours.state().regions.withdraw(region);
    }

    fn lend(&mut self, target: Target) -> Region {
        self.ours.state().regions.lend(target)
    }

    fn reclaim(&mut self, region: &Region) -> Option<Target> {
        self.ours.state().regions.reclaim(region)
    }

    fn read(&mut self, token: BulkToken, read: RegionRead) {
        let result = self.read_now(read);
        self.answer(LinkEvent::ReadDone { token, result });
    }

    fn write(&mut self, token: BulkToken, write: RegionWrite) {
        let result = self.write_now(&write);
        self.answer(LinkEvent::WriteDone { token, result });
    }

    fn cancel(&mut self, _token: BulkToken) {
        // Every operation is done, and its answer queued, when it is asked.
    }

    fn queued_bytes(&self) -> u64 {
        // Relaxed: a figure, as in `hand_over`.
        self.sent_bytes + self.theirs.queued_bytes.load(Ordering::Relaxed)
    }

    fn flush(&mut self) -> bool {
        self.hand_over();
        self.events.is_empty() && !self.is_down
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        if self.arrived.len() == 0 || self.sent.len() >= HANDED_OVER_MAX {
            self.hand_over();
        }
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.is_down {
            return None;
        }
        self.take_in();
        let Some(message) = self.arrived.pop() else {
            let closed = self.closed.take()?;
            self.go_down(NetError::Closed(closed));
            return self.events.pop_front();
        };
        // Relaxed: as in `hand_over`.
        self.ours
            .queued_bytes
            .fetch_sub(message.payload_bytes(), Ordering::Relaxed);
        match self.receive(message) {
            Ok(received) => Some(LinkEvent::Message(received)),
            Err(error) => {
                self.go_down(error);
                self.events.pop_front()
            }
        }
    }

    fn look(&mut self) -> Option<bool> {
        Some(self.ours.stirs())
    }

    fn rest(&mut self) -> bool {
        // Under the lock: the next change finds that this end rests.
        let mut state = self.ours.state();
        state.rests = !self.ours.stirs();
        state.rests
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Notify
    }

    fn attach(&mut self, notify: Notify) {
        // At once: it is armed from then on.
        self.ours.state().notify = Some(notify.clone());
        notify();
    }

    fn close(&mut self, reason: &str) {
        self.go_down(NetError::Closed(reason.to_owned()));
    }
}

impl Drop for InprocLink {
    fn drop(&mut self) {
        let address = &self.peer.address;
        let error = NetError::Closed(format!("the other side of {address} was dropped"));
        self.go_down(error);
        // What nobody will read any more is given back now, not when the
        // other side goes.
        let mut state = self.ours.state();
        let lanes = std::mem::take(&mut state.lanes);
        let regions = std::mem::take(&mut state.regions);
        drop(state);
        drop((lanes, regions));
    }
}
