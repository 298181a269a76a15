//! What the nodes of a process have for each other: a mailbox each.

use broker::PeerInput;
use broker::node::Input;
use net::Waker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use wire::NodeId;
use wire::table::TableMessage;

/// What the nodes of a process have for each other: a mailbox each.
#[derive(Debug)]
pub(crate) struct Exchange(Vec<Mailbox>);

/// What has come for a node, in order. What nodes may have under way for each other is bounded by their protocol: 16 MiB of
/// proposals of each that follows, and four pieces or lists of entries to it (`docs/format/table.md`).
#[derive(Debug, Default)]
struct Mailbox {
    /// Whether there is something: looked at in each turn, without the lock.
    is_full: AtomicBool,
    inputs: Mutex<VecDeque<PeerInput>>,
    came: Condvar,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    fn inputs(&self) -> MutexGuard<'_, VecDeque<PeerInput>> {
        self.inputs.lock().expect("no holder panics here")
    }

    fn put(&self, input: PeerInput) {
        self.inputs().push_back(input);
        // Release: who sees it finds what was put.
        self.is_full.store(true, Ordering::Release);
        self.came.notify_all();
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

impl Exchange {
    /// For so many nodes.
    pub fn new(count: u32) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| Mailbox::default()).collect()))
    }

    /// A node's end of it.
    pub fn of(self: &Arc<Self>, node: NodeId) -> Peers {
        Peers {
            node,
            exchange: self.clone(),
        }
    }
}

/// A node's way to the others of its process. What it sends arrives, in order, as long as both run.
#[derive(Debug)]
pub struct Peers {
    node: NodeId,
    exchange: Arc<Exchange>,
}

impl Peers {
    /// A link to another node stands, new.
    pub fn link(&self, to: NodeId) {
        if let Some(other) = self.exchange.0.get(to.0 as usize) {
            other.put(PeerInput::Up(self.node));
        }
    }

    /// The next thing that comes. Waits at most as long for it.
    pub fn wait_for_next(&self, within: Duration) -> Option<PeerInput> {
        let until = Instant::now() + within;
        let own = self.own();
        let mut inputs = own.inputs();
        loop {
            if let Some(input) = inputs.pop_front() {
                return Some(input);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = own.came.wait_timeout(inputs, left);
            inputs = waited.expect("no holder panics here").0;
        }
    }

    fn own(&self) -> &Mailbox {
        &self.exchange.0[self.node.0 as usize]
    }

    fn others(&self) -> impl Iterator<Item = &Mailbox> {
        let boxes = self.exchange.0.iter().enumerate();
        boxes
            .filter(|(at, _)| *at != self.node.0 as usize)
            .map(|(_, other)| other)
    }

    /// What wakes this node when something comes for it. What has come before is found by its first turn.
    pub fn wake_with(&self, waker: Waker) {
        // There is one reactor for each node.
        let _ = self.own().waker.set(waker);
    }

    /// Sends a message to another node.
    pub fn send(&self, to: NodeId, message: TableMessage) {
        if let Some(other) = self.exchange.0.get(to.0 as usize) {
            other.put(PeerInput::Message(self.node, message));
        }
    }

    /// Appends what has come.
    pub fn take(&self, inputs: &mut Vec<Input>) {
        let own = self.own();
        if own.is_full.swap(false, Ordering::Acquire) {
            inputs.extend(own.inputs().drain(..).map(Input::Peer));
        }
    }
}

/// The others hear of the end of a node, however it came.
impl Drop for Peers {
    fn drop(&mut self) {
        for other in self.others() {
            other.put(PeerInput::Down(self.node));
        }
    }
}
