//! `inproc://name`: two sides of one process, joined by two queues.
//!
//! Nothing is bounded here: what may be under way is bounded by the credits
//! that the two sides grant each other, as on any other link.

use crate::address;
use crate::contract::*;
use crate::options::LinkOptions;
use crate::regions::{Range, RegionError, Regions, check_chunk, place_in};
use bytes::Bytes;
use memory::{Buffer, Target, copies};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use wire::checksum::crc32c;
use wire::message::Region;

const SCHEME: &str = "inproc";

/// Whoever listens in this process, by name. Held for a look-up only.
static LISTENERS: Mutex<BTreeMap<String, Weak<Door>>> = Mutex::new(BTreeMap::new());

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

fn listeners() -> MutexGuard<'static, BTreeMap<String, Weak<Door>>> {
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
            .is_some_and(|door| door.strong_count() > 0)
        {
            let text = format!("listening at {address}: somebody of this process does already");
            return Err(NetError::Address(text));
        }
        let door = Arc::new(Door {
            name: name.to_owned(),
            waiting: Mutex::default(),
            options: self.options.clone(),
        });
        listeners.insert(name.to_owned(), Arc::downgrade(&door));
        Ok(Box::new(InprocListener { door }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let name = address::rest(SCHEME, address)?;
        let door = listeners().get(name).and_then(Weak::upgrade);
        let door = door.ok_or_else(|| {
            NetError::Refused(format!(
                "connecting to {address}: nobody listens in this process"
            ))
        })?;
        let ends = [Arc::<End>::default(), Arc::default()];
        let [ours, theirs] = [0, 1].map(|side| (ends[side].clone(), ends[1 - side].clone()));
        let accepted = InprocLink::new(theirs, address, &door.options);
        door.bring(accepted);
        Ok(Box::new(InprocLink::new(ours, address, &self.options)))
    }
}

/// What a listener and those who connect share.
struct Door {
    name: String,
    /// Guards links that wait to be accepted, and who is to be told.
    waiting: Mutex<Waiting>,
    options: LinkOptions,
}

#[derive(Default)]
struct Waiting {
    links: VecDeque<InprocLink>,
    bell: Option<Bell>,
}

impl Door {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder panics here")
    }

    fn bring(&self, link: InprocLink) {
        let mut waiting = self.waiting();
        waiting.links.push_back(link);
        let bell = waiting.bell.clone();
        drop(waiting);
        if let Some(bell) = bell {
            bell();
        }
    }
}

struct InprocListener {
    door: Arc<Door>,
}

impl Listener for InprocListener {
    fn address(&self) -> String {
        format!("{SCHEME}://{}", self.door.name)
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let link = self.door.waiting().links.pop_front();
        Ok(link.map(|link| Box::new(link) as Box<dyn Link>))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Bell
    }

    fn attach(&mut self, bell: Bell) {
        self.door.waiting().bell = Some(bell.clone());
        bell();
    }
}

impl Drop for InprocListener {
    fn drop(&mut self) {
        let mut listeners = listeners();
        let ours = listeners
            .get(&self.door.name)
            .is_some_and(|door| std::ptr::eq(door.as_ptr(), &*self.door));
        if ours {
            listeners.remove(&self.door.name);
        }
        drop(listeners);
        // Links that nobody accepted go with the door; their other sides see it.
    }
}

/// One side of a pair. What the other side sends is put in here.
#[derive(Default)]
struct End {
    /// Guards everything of this side that the other side touches. A region's
    /// bytes are written under it, so that reclaiming them waits for that.
    state: Mutex<EndState>,
}

#[derive(Default)]
struct EndState {
    control: VecDeque<Message>,
    bulk: VecDeque<Message>,
    queued_bytes: u64,
    regions: Regions,
    bell: Option<Bell>,
    /// Whether the bell was rung since the owner last found nothing to do.
    rung: bool,
    /// Why the other side is gone.
    closed: Option<String>,
}

impl End {
    fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().expect("no holder panics here")
    }

    /// Changes the state and tells the owner of this end.
    fn tell(&self, change: impl FnOnce(&mut EndState)) {
        let mut state = self.state();
        change(&mut state);
        let bell = match state.rung {
            true => None,
            false => state.bell.clone(),
        };
        state.rung |= bell.is_some();
        drop(state);
        if let Some(bell) = bell {
            bell();
        }
    }
}

struct InprocLink {
    ours: Arc<End>,
    theirs: Arc<End>,
    capabilities: Capabilities,
    peer: Peer,
    options: LinkOptions,
    events: VecDeque<LinkEvent>,
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
            },
            peer: Peer {
                address: address.to_owned(),
                uid: Some(rustix::process::geteuid().as_raw()),
                pid: Some(std::process::id()),
                in_process: true,
            },
            options: options.clone(),
            events: VecDeque::from([LinkEvent::Up]),
            is_down: false,
        }
    }

    fn go_down(&mut self, error: NetError) {
        if std::mem::replace(&mut self.is_down, true) {
            return;
        }
        let reason = error.to_string();
        self.theirs
            .tell(|state| state.closed = state.closed.take().or(Some(reason)));
        self.events.push_back(LinkEvent::Down(error));
    }

    /// Queues an answer, before the end of the link if that waits to be told.
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
        let from = exposed.map_err(|error| NetError::Region(error.to_string()))?;
        let mut checksums = Vec::new();
        if block_bytes == 0 {
            copies::copy(&from, &mut into);
        } else {
            // Block by block, so that each is in the cache for the second use.
            let blocks = from.chunks(block_bytes as usize);
            for (from, into) in blocks.zip(into.chunks_mut(block_bytes as usize)) {
                checksums.push(crc32c(from));
                copies::copy(from, into);
            }
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
        self.theirs.tell(|state| {
            state.queued_bytes += message.payload_bytes();
            match message.lane {
                Lane::Control => state.control.push_back(message),
                Lane::Bulk => state.bulk.push_back(message),
            }
        });
    }

    fn expose(&mut self, bytes: Bytes) -> Region {
        self.ours.state().regions.expose(bytes)
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
        self.theirs.state().queued_bytes
    }

    fn flush(&mut self) -> bool {
        // What is sent is put there at once.
        self.events.is_empty() && !self.is_down
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.is_down {
            return None;
        }
        let mut state = self.ours.state();
        let message = state.control.pop_front().or_else(|| state.bulk.pop_front());
        let Some(message) = message else {
            state.rung = false;
            let closed = state.closed.clone();
            drop(state);
            self.go_down(NetError::Closed(closed?));
            return self.events.pop_front();
        };
        state.queued_bytes -= message.payload_bytes();
        drop(state);
        match self.receive(message) {
            Ok(received) => Some(LinkEvent::Message(received)),
            Err(error) => {
                self.go_down(error);
                self.events.pop_front()
            }
        }
    }

    fn readiness(&mut self) -> Readiness<'_> {
        Readiness::Bell
    }

    fn attach(&mut self, bell: Bell) {
        let mut state = self.ours.state();
        state.bell = Some(bell.clone());
        state.rung = true;
        drop(state);
        bell();
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
        let (control, bulk) = (
            std::mem::take(&mut state.control),
            std::mem::take(&mut state.bulk),
        );
        let regions = std::mem::take(&mut state.regions);
        drop(state);
        drop((control, bulk, regions));
    }
}
