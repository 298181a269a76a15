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
const CALL: Token = Token(1);

/// The thread that stands by, so that somebody drives when nobody else does.
///
/// It waits for the descriptor of a reactor that is settled
/// ([`Reactor::settle`]). Whoever drives instead and waits relieves it
/// meanwhile ([`Relief::relieve`]), and what the network brings then wakes
/// that thread alone.
pub struct Standby {
    poll: mio::Poll,
    events: Events,
    relief: Relief,
}

/// The other threads' handle of a [`Standby`].
#[derive(Clone)]
pub struct Relief {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    /// The reactor's.
    reactor: RawFd,
    /// Written by whoever calls the thread.
    call: OwnedFd,
}

impl Standby {
    /// Stands by for `reactor`, which has to live for as long.
    ///
    /// # Errors
    /// [`NetError::System`] if the system has no descriptors left.
    pub fn new(reactor: &Reactor) -> Result<Self, NetError> {
        let call = event_descriptor()?;
        let poll = mio::Poll::new().map_err(system("making an epoll"))?;
        let reactor = reactor.as_raw_fd();
        let registry = poll.registry();
        for (descriptor, token) in [(reactor, REACTOR), (call.as_raw_fd(), CALL)] {
            registry
                .register(&mut SourceFd(&descriptor), token, Interest::READABLE)
                .map_err(system("watching a reactor"))?;
        }
        let registry = registry.try_clone().map_err(system("sharing an epoll"))?;
        Ok(Self {
            poll,
            events: Events::with_capacity(2),
            relief: Relief {
                shared: Arc::new(Shared {
                    registry,
                    reactor,
                    call,
                }),
            },
        })
    }

    /// What other threads relieve and call this one by.
    pub fn relief(&self) -> Relief {
        self.relief.clone()
    }

    /// Waits until the reactor has something, unless relieved; until it is
    /// called, or `timeout` has passed. May return for nothing.
    ///
    /// # Errors
    /// [`NetError::System`] if the system cannot wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), NetError> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(system("standing by")(error))
            }
            _ => Ok(()),
        }
    }

    /// The descriptors that are open for it, the reactor's not among them.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let shared = &self.relief.shared;
        vec![
            self.poll.as_raw_fd(),
            shared.registry.as_raw_fd(),
            shared.call.as_raw_fd(),
        ]
    }
}

impl Relief {
    /// The thread need not look at the reactor until [`Relief::release`].
    ///
    /// # Errors
    /// [`NetError::System`] if the system refuses, which leaves it as it was.
    pub fn relieve(&self) -> Result<(), NetError> {
        // An epoll is never writable: this waits for nothing.
        self.watch_for(Interest::WRITABLE)
    }

    /// The thread looks at the reactor again, and at once if it has something.
    ///
    /// # Errors
    /// As [`Relief::relieve`].
    pub fn release(&self) -> Result<(), NetError> {
        self.watch_for(Interest::READABLE)
    }

    fn watch_for(&self, interest: Interest) -> Result<(), NetError> {
        let Shared {
            registry, reactor, ..
        } = &*self.shared;
        registry
            .reregister(&mut SourceFd(reactor), REACTOR, interest)
            .map_err(system("relieving who stands by"))
    }

    /// Makes the thread look up.
    pub fn call(&self) {
        // Fails only when 2^64 - 2 calls were not heard, and then it is heard.
        let _ = rustix::io::write(&self.shared.call, &1u64.to_ne_bytes());
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Standby")
    }
}

impl fmt::Debug for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relief")
    }
}
