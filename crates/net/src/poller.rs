//! Waiting for a reactor that other threads drive now and then.

use crate::contract::NetError;
use crate::reactor::{Reactor, event_descriptor, system};
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

const REACTOR: Token = Token(0);
const WAKE: Token = Token(1);

/// What a thread waits with that drives a reactor when no other thread does.
///
/// It waits for the descriptor of a reactor that is settled
/// ([`Reactor::settle`]). Another thread that drives and waits disarms it
/// meanwhile ([`PollerHandle::disarm`]): what the network brings then wakes
/// that other thread alone.
pub struct Poller {
    poll: mio::Poll,
    events: Events,
    handle: PollerHandle,
}

/// The handle of a [`Poller`] for other threads.
#[derive(Clone)]
pub struct PollerHandle {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    /// The reactor's.
    reactor: RawFd,
    /// Written to wake the thread.
    wake: OwnedFd,
}

impl Poller {
    /// A poller of `reactor`, which has to live for as long.
    ///
    /// # Errors
    /// [`NetError::System`] if the system has no descriptors left.
    pub fn new(reactor: &Reactor) -> Result<Self, NetError> {
        let wake = event_descriptor()?;
        let poll = mio::Poll::new().map_err(system("making an epoll"))?;
        let reactor = reactor.as_raw_fd();
        let registry = poll.registry();
        for (descriptor, token) in [(reactor, REACTOR), (wake.as_raw_fd(), WAKE)] {
            registry
                .register(&mut SourceFd(&descriptor), token, Interest::READABLE)
                .map_err(system("watching a reactor"))?;
        }
        let registry = registry.try_clone().map_err(system("sharing an epoll"))?;
        Ok(Self {
            poll,
            events: Events::with_capacity(2),
            handle: PollerHandle {
                shared: Arc::new(Shared {
                    registry,
                    reactor,
                    wake,
                }),
            },
        })
    }

    /// What other threads arm, disarm and wake it by.
    pub fn handle(&self) -> PollerHandle {
        self.handle.clone()
    }

    /// Waits until the reactor has something, unless it is disarmed; until it is
    /// woken, or `timeout` has passed. May return for nothing.
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), NetError> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(system("waiting for a reactor")(error))
            }
            _ => Ok(()),
        }
    }

    /// The descriptors that are open for it, the reactor's not among them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let shared = &self.handle.shared;
        vec![
            self.poll.as_raw_fd(),
            shared.registry.as_raw_fd(),
            shared.wake.as_raw_fd(),
        ]
    }
}

impl PollerHandle {
    /// The reactor does not wake the thread until [`PollerHandle::arm`].
    ///
    /// # Errors
    /// [`NetError::System`] if the system refuses, which leaves it as it was.
    pub fn disarm(&self) -> Result<(), NetError> {
        // An epoll is never writable: this waits for nothing.
        self.watch_for(Interest::WRITABLE)
    }

    /// The reactor wakes the thread again, and at once if it has something.
    ///
    /// # Errors
    /// As [`PollerHandle::disarm`].
    pub fn arm(&self) -> Result<(), NetError> {
        self.watch_for(Interest::READABLE)
    }

    fn watch_for(&self, interest: Interest) -> Result<(), NetError> {
        let Shared {
            registry, reactor, ..
        } = &*self.shared;
        registry
            .reregister(&mut SourceFd(reactor), REACTOR, interest)
            .map_err(system("arming a poller"))
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // Fails only when 2^64 - 2 wake-ups were not read, and then one is.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poller")
    }
}

impl fmt::Debug for PollerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PollerHandle")
    }
}
