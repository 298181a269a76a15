//! Names of hosts, which are looked up by threads of their own: the system may take seconds for one.

use super::security::resolve;
use super::settings::PeerId;
use net::Waker;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What came of a name.
pub(super) struct Named {
    pub(super) peer: PeerId,
    /// As it was asked for.
    pub(super) host_and_port: String,
    pub(super) found: Result<SocketAddr, String>,
}

/// Looks names up, one of each peer at a time.
pub(super) struct Names {
    answer: Sender<Named>,
    answers: Receiver<Named>,
    under_way: BTreeSet<PeerId>,
    waker: Waker,
}

impl Names {
    /// `waker` is called when something was found.
    pub(super) fn new(waker: Waker) -> Self {
        let (answer, answers) = channel();
        Self {
            answer,
            answers,
            under_way: BTreeSet::new(),
            waker,
        }
    }

    /// Looks it up, and wakes when that is done.
    pub(super) fn ask(&mut self, peer: PeerId, host_and_port: &str) -> Result<(), String> {
        if self.under_way.contains(&peer) {
            return Err("the system still looks a former name of this peer up".to_owned());
        }
        let (answer, waker) = (self.answer.clone(), self.waker.clone());
        let host_and_port = host_and_port.to_owned();
        let thread = std::thread::Builder::new().name("peer-name".to_owned());
        let look_up = move || {
            let found = resolve(&host_and_port);
            let named = Named {
                peer,
                host_and_port,
                found,
            };
            // Who asked may be gone.
            let _ = answer.send(named);
            waker.wake();
        };
        thread
            .spawn(look_up)
            .map_err(|error| format!("a thread to look a name up: {error}"))?;
        self.under_way.insert(peer);
        Ok(())
    }

    /// What was found by now.
    pub(super) fn found(&mut self) -> Option<Named> {
        let named = self.answers.try_recv().ok()?;
        self.under_way.remove(&named.peer);
        Some(named)
    }
}
