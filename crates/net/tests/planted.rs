//! The conformance suite is worth something: a transport with a fault in it
//! does not pass.

use bytes::Bytes;
use memory::Target;
use net::testing::conformance::{Place, check_all};
use net::*;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use wire::message::Region;

/// What is wrong with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing: the suite passes, so that it is the faults that it fails for.
    None,
    /// A message is lost now and then.
    Loses,
    /// Two messages of one lane change places.
    Reorders,
    /// A bit of a payload is flipped.
    Damages,
    /// Control messages wait like others.
    NeverOvertakes,
    /// Checksums of blocks are those of other bytes.
    WrongChecksums,
    /// A read is answered with bytes from one further on.
    ReadsElsewhere,
    /// A write of a region comes behind the message that was sent after it.
    WritesLate,
    /// A cancelled operation is answered twice.
    AnswersTwice,
    /// What is open is not answered when the link ends.
    DiesInSilence,
    /// The end is reported twice.
    DiesTwice,
    /// Reclaimed memory is copied, and the copy is handed out.
    CopiesWhatWasLent,
    /// What was said before closing is dropped.
    ClosesAtOnce,
    /// Any payload is taken.
    KnowsNoLimit,
    /// Says that a link is up before it is, or twice.
    UpTwice,
}

struct Faulty {
    inner: Inproc,
    fault: Fault,
}

impl Transport for Faulty {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        let inner = self.inner.listen(address)?;
        let fault = self.fault;
        Ok(Box::new(FaultyListener { inner, fault }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        Ok(FaultyLink::of(self.inner.connect(address)?, self.fault))
    }
}

struct FaultyListener {
    inner: Box<dyn Listener>,
    fault: Fault,
}

impl Listener for FaultyListener {
    fn address(&self) -> String {
        self.inner.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        let inner = self.inner.accept()?;
        Ok(inner.map(|inner| FaultyLink::of(inner, self.fault)))
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }
}

struct FaultyLink {
    inner: Box<dyn Link>,
    fault: Fault,
    sent: u64,
    held: Option<Message>,
    late: VecDeque<(BulkToken, RegionWrite)>,
    extra: VecDeque<LinkEvent>,
    lent: Vec<Region>,
    down: bool,
}

impl FaultyLink {
    fn of(inner: Box<dyn Link>, fault: Fault) -> Box<dyn Link> {
        Box::new(Self {
            inner,
            fault,
            sent: 0,
            held: None,
            late: VecDeque::new(),
            extra: VecDeque::new(),
            lent: Vec::new(),
            down: false,
        })
    }
}

impl Link for FaultyLink {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn peer(&self) -> &Peer {
        self.inner.peer()
    }

    fn send(&mut self, mut message: Message) {
        self.sent += 1;
        match self.fault {
            Fault::Loses if self.sent == 7 => return,
            Fault::Reorders if self.sent == 3 => {
                self.held = Some(message);
                return;
            }
            Fault::Damages if self.sent == 5 => {
                if let Some(piece) = message.payload.iter_mut().find(|piece| !piece.is_empty()) {
                    let mut bytes = piece.to_vec();
                    bytes[0] ^= 1;
                    *piece = bytes.into();
                }
            }
            Fault::NeverOvertakes => message.lane = Lane::Bulk,
            Fault::KnowsNoLimit => {
                let piece = message.payload.first().cloned().unwrap_or_default();
                if message.payload_bytes() > self.capabilities().payload_bytes_max {
                    message.payload = vec![piece];
                }
            }
            _ => {}
        }
        self.inner.send(message);
        if let Some(held) = self.held.take() {
            self.inner.send(held);
        }
    }

    fn expose(&mut self, bytes: Bytes) -> Region {
        self.inner.expose(bytes)
    }

    fn withdraw(&mut self, region: &Region) {
        self.inner.withdraw(region);
    }

    fn lend(&mut self, target: Target) -> Region {
        let region = self.inner.lend(target);
        self.lent.push(region.clone());
        region
    }

    fn reclaim(&mut self, region: &Region) -> Option<Target> {
        if self.fault == Fault::CopiesWhatWasLent {
            let place = self.lent.iter().position(|other| other == region);
            if self.sent == 0 && place.is_some() {
                // The memory goes on being written, and nobody sees it.
                let bytes = vec![0u8; region.bytes as usize];
                return Some(Target::new(bytes));
            }
        }
        self.inner.reclaim(region)
    }

    fn read(&mut self, token: BulkToken, mut read: RegionRead) {
        if self.fault == Fault::ReadsElsewhere
            && read.offset + read.into.len() as u64 + 1 < read.region.bytes
        {
            read.offset += 1;
        }
        self.inner.read(token, read);
    }

    fn write(&mut self, token: BulkToken, write: RegionWrite) {
        match self.fault {
            Fault::WritesLate => self.late.push_back((token, write)),
            _ => self.inner.write(token, write),
        }
    }

    fn cancel(&mut self, token: BulkToken) {
        self.inner.cancel(token);
        if self.fault == Fault::AnswersTwice {
            let result = Err(NetError::Cancelled);
            self.extra.push_back(LinkEvent::ReadDone { token, result });
        }
    }

    fn queued_bytes(&self) -> u64 {
        self.inner.queued_bytes()
    }

    fn poll(&mut self) -> Option<LinkEvent> {
        if let Some(event) = self.extra.pop_front() {
            return Some(event);
        }
        let event = self.inner.poll();
        if event.is_none() {
            for (token, write) in self.late.drain(..) {
                self.inner.write(token, write);
            }
        }
        match (self.fault, event) {
            (Fault::UpTwice, Some(LinkEvent::Up)) => {
                self.extra.push_back(LinkEvent::Up);
                Some(LinkEvent::Up)
            }
            (Fault::DiesTwice, Some(LinkEvent::Down(error))) => {
                self.extra.push_back(LinkEvent::Down(error.clone()));
                Some(LinkEvent::Down(error))
            }
            (Fault::DiesInSilence, Some(LinkEvent::WriteDone { .. })) if self.down => self.poll(),
            (
                Fault::WrongChecksums,
                Some(LinkEvent::ReadDone {
                    token,
                    result: Ok((buffer, mut checksums)),
                }),
            ) => {
                if let Some(first) = checksums.first_mut() {
                    *first ^= 1;
                }
                let result = Ok((buffer, checksums));
                Some(LinkEvent::ReadDone { token, result })
            }
            (_, event) => event,
        }
    }

    fn is_due(&self) -> bool {
        self.inner.is_due() || !self.extra.is_empty()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.inner.descriptors()
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }

    fn close(&mut self, reason: &str) {
        self.down = true;
        match self.fault {
            Fault::ClosesAtOnce => self.inner.close("for no reason"),
            _ => self.inner.close(reason),
        }
    }
}

struct Here {
    transport: Faulty,
}

impl Place for Here {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn fresh_address(&mut self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("inproc://planted-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    fn idle(&mut self) {
        // In one thread, what has not happened by now never will.
        panic!("nothing more happens");
    }
}

#[test]
fn every_planted_fault_is_caught() {
    let faults = [
        Fault::None,
        Fault::Loses,
        Fault::Reorders,
        Fault::Damages,
        Fault::NeverOvertakes,
        Fault::WrongChecksums,
        Fault::ReadsElsewhere,
        Fault::WritesLate,
        Fault::AnswersTwice,
        Fault::DiesInSilence,
        Fault::DiesTwice,
        Fault::CopiesWhatWasLent,
        Fault::ClosesAtOnce,
        Fault::KnowsNoLimit,
        Fault::UpTwice,
    ];
    // A caught fault is a panic; the trace of each would only hide a failure.
    std::panic::set_hook(Box::new(|_| {}));
    let passed: Vec<_> = faults
        .into_iter()
        .filter(|fault| {
            let options = LinkOptions {
                payload_bytes_max: 5_000_000,
                ..LinkOptions::default()
            };
            let transport = Faulty {
                inner: Inproc::new(options),
                fault: *fault,
            };
            catch_unwind(AssertUnwindSafe(|| check_all(&mut Here { transport }))).is_ok()
        })
        .collect();
    drop(std::panic::take_hook());
    assert_eq!(passed, [Fault::None], "these pass the suite");
}
