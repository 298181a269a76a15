//! Connections of relays that meet: each waits for the other side, then bytes pass. There is no key here to read them with.

use crate::client_hello::{Alert, Guest};
use crate::ingress::{Counters, say};
use crate::meeting::{Entered, Meeting, source};
use crate::options::{Limits, Meetings};
use crate::passing::{Prefixed, pass};
use crate::report::{RareLine, Report};
use rustix::net::sockopt;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

/// What an offer hears when it waits: a change_cipher_spec, which TLS 1.3 lets pass anywhere and gives no meaning (RFC 8446, 5).
const WAITS: [u8; 6] = [20, 3, 3, 0, 1, 1];
/// For how long nothing may pass between two that have met: each side of a link says something every 10 s.
const IDLE: Duration = Duration::from_secs(60);
/// After so long without a sign the relays take a connection to be gone.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// A connection that wants to meet another one.
pub struct Passenger {
    /// It.
    pub stream: TcpStream,
    /// What it has said.
    pub bytes: Vec<u8>,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Its place among all connections.
    pub _place: OwnedSemaphorePermit,
}

/// The meeting place.
pub struct Pairing {
    room: Arc<Meeting<Passenger>>,
    meetings: Meetings,
    pairs: Pairs,
    wait: Duration,
    report: Report,
    denied: RareLine,
    met: RareLine,
    full: RareLine,
}

impl Pairing {
    /// One for those who may.
    pub fn new(meetings: Meetings, limits: &Limits, report: Report) -> Self {
        Self {
            // Each link has one that waits while the others have met.
            room: Meeting::new(limits.meeting_waiting_max.max(limits.meetings_max)),
            meetings,
            pairs: Pairs::new(limits.meetings_max),
            wait: limits.meeting_wait,
            report,
            denied: RareLine::default(),
            met: RareLine::default(),
            full: RareLine::default(),
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.room.count()
    }

    /// Serves one, to its end, or until the other side's task has it.
    pub async fn serve(
        &self,
        guest: Guest,
        mut passenger: Passenger,
        counters: &Counters,
    ) -> io::Result<()> {
        let from = passenger.peer.ip();
        if matches!(guest, Guest::Offers(_)) {
            if !self.meetings.may_offer(from) {
                let text = || format!("{from} may not wait here for another relay (--meet)");
                self.denied.write(&self.report, text);
                return say(&mut passenger.stream, Alert::AccessDenied).await;
            }
            passenger.stream.write_all(&WAITS).await?;
        }
        hear_of_silence(&passenger.stream);
        let mut seat = loop {
            match self.room.enter(guest, from) {
                Entered::Waits(seat) => break seat,
                Entered::Meets(other) => match other.send(passenger) {
                    Ok(()) => return Ok(()),
                    // It has gone at this moment.
                    Err(back) => passenger = back,
                },
            }
        };
        let wait = match guest {
            Guest::Offers(_) => self.wait,
            // Shorter than who joins waits for an answer.
            Guest::Joins(_) => self.wait / 2,
        };
        let came = tokio::select! {
            came = seat.met() => came,
            () = sleep(wait) => None,
            () = speaks(&passenger.stream) => return Ok(()),
        };
        // One that was sent here at this moment is taken, too.
        let came = came.or(seat.leave());
        let (joins, offers) = match (came, guest) {
            (Some(other), Guest::Offers(_)) => (other, passenger),
            (Some(other), Guest::Joins(_)) => (passenger, other),
            // An offer comes again; who joins hears that there is none.
            (None, Guest::Offers(_)) => return passenger.stream.shutdown().await,
            (None, Guest::Joins(_)) => {
                return say(&mut passenger.stream, Alert::UnrecognizedName).await;
            }
        };
        self.pass(joins, offers, counters).await
    }

    async fn pass(
        &self,
        mut joins: Passenger,
        offers: Passenger,
        counters: &Counters,
    ) -> io::Result<()> {
        let Some(_pair) = self.pairs.enter(offers.peer.ip()) else {
            let text = || {
                let from = offers.peer.ip();
                format!(
                    "relays cannot meet: there are too many pairs, or of {from} (--meetings-max)"
                )
            };
            self.full.write(&self.report, text);
            return say(&mut joins.stream, Alert::InternalError).await;
        };
        counters.met.fetch_add(1, Ordering::Relaxed);
        let (one, other) = (joins.peer.ip(), offers.peer.ip());
        let text = || format!("relays of {one} and {other} have met");
        self.met.write(&self.report, text);
        let joined = Prefixed::new(joins.bytes, joins.stream);
        pass(joined, offers.stream, IDLE, &counters.bytes).await
    }
}

/// What stands still is closed by the kernel as soon as the relays themselves give it up, so that it is in nobody's way who
/// comes again.
fn hear_of_silence(stream: &TcpStream) {
    let silent = SILENT_MAX.as_secs() as u32;
    // None of them is needed to go on.
    let _ = sockopt::set_tcp_user_timeout(stream, silent * 1000);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, SILENT_MAX / 2);
    let _ = sockopt::set_tcp_keepintvl(stream, SILENT_MAX / 4);
    let _ = sockopt::set_tcp_keepcnt(stream, 2);
}

/// Pairs that have met: all together, and by who let them: one source has half of them at most.
struct Pairs {
    most: usize,
    /// Locked for a look.
    of: Mutex<HashMap<IpAddr, usize>>,
}

/// A pair, until it is dropped.
struct Pair<'a> {
    all: &'a Pairs,
    source: IpAddr,
}

impl Pairs {
    fn new(most: usize) -> Self {
        let of = Mutex::default();
        Self { most, of }
    }

    /// One more of this offer's, if there is room for it.
    fn enter(&self, offers: IpAddr) -> Option<Pair<'_>> {
        let source = source(offers);
        let mut of = self.of.lock().expect("no holder panics");
        let all: usize = of.values().sum();
        let own = of.get(&source).copied().unwrap_or_default();
        if all >= self.most || own >= self.most.div_ceil(2) {
            return None;
        }
        of.insert(source, own + 1);
        Some(Pair { all: self, source })
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        let mut of = self.all.of.lock().expect("no holder panics");
        if let Some(count) = of.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                of.remove(&self.source);
            }
        }
    }
}

/// Resolves when one that waits has gone, or speaks out of turn.
async fn speaks(stream: &TcpStream) {
    // What it is does not matter.
    let _ = stream.peek(&mut [0]).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_has_half_of_all_pairs() {
        let pairs = Pairs::new(8);
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        let own: Vec<_> = std::iter::from_fn(|| pairs.enter(from(1))).collect();
        assert_eq!(own.len(), 4);
        let others: Vec<_> = (2..9).filter_map(|last| pairs.enter(from(last))).collect();
        assert_eq!(others.len(), 4);
        drop(own);
        assert!(pairs.enter(from(3)).is_some());
        drop(others);
        assert!(pairs.of.lock().unwrap().is_empty());
    }
}
