//! Connections of relays that meet: each waits for the other side, then bytes pass. There is no key here to read them with.

use crate::client_hello::{Alert, Guest};
use crate::ingress::{Counters, say};
use crate::meeting::{Entered, Meeting};
use crate::options::{Limits, Meetings};
use crate::passing::{Prefixed, pass};
use crate::report::{RareLine, Report};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// What an offer hears when it waits: a change_cipher_spec, which TLS 1.3 lets pass anywhere and gives no meaning (RFC 8446, 5).
const WAITS: [u8; 6] = [20, 3, 3, 0, 1, 1];
/// For how long nothing may pass between two that have met: each side of a link says something every 10 s.
const IDLE: Duration = Duration::from_secs(60);

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
    pairs: Semaphore,
    wait: Duration,
    report: Report,
    denied: RareLine,
    met: RareLine,
}

impl Pairing {
    /// One for those who may.
    pub fn new(meetings: Meetings, limits: &Limits, report: Report) -> Self {
        Self {
            room: Meeting::new(limits.meeting_waiting_max),
            meetings,
            pairs: Semaphore::new(limits.meetings_max),
            wait: limits.meeting_wait,
            report,
            denied: RareLine::default(),
            met: RareLine::default(),
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
        drop(seat);
        let (joins, offers) = match (came, guest) {
            (Some(other), Guest::Offers(_)) => (other, passenger),
            (Some(other), Guest::Joins(_)) => (passenger, other),
            // An offer comes again; who joins is told that there is none.
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
        let Ok(_pair) = self.pairs.try_acquire() else {
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

/// Resolves when one that waits has gone, or speaks out of turn.
async fn speaks(stream: &TcpStream) {
    // What it is does not matter.
    let _ = stream.peek(&mut [0]).await;
}
