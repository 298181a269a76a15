//! What the nodes of a process have of others: a mailbox each, and a way to those others. They are in the same process
//! ([`Exchange`]), or wherever the service of a cluster reaches them.

use crate::interruption::Patience;
use broker::PeerInput;
use broker::controller::LEADER;
use broker::node::Input;
use cluster::service::ServiceHandle;
use net::Waker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use wire::NodeId;
use wire::table::TableMessage;

/// What the nodes of a process have for each other: a mailbox each.
#[derive(Debug)]
pub(crate) struct Exchange(Vec<Arc<Mailbox>>);

/// What has come for a node, in order. What nodes may have under way for each other is bounded by their protocol: 16 MiB of
/// proposals of each that follows, and four pieces or lists of entries to it (`docs/format/table.md`).
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Whether there is something: looked at in each turn, without the lock.
    is_full: AtomicBool,
    inputs: Mutex<VecDeque<Came>>,
    came: Condvar,
    waker: OnceLock<Waker>,
}

/// Something that has come for a node.
#[derive(Debug)]
struct Came {
    input: PeerInput,
    /// Of a link that stands: its number at the service of a cluster.
    link: u64,
}

impl Mailbox {
    fn inputs(&self) -> MutexGuard<'_, VecDeque<Came>> {
        self.inputs.lock().expect("no holder panics here")
    }

    fn put(&self, input: PeerInput) {
        self.put_of(0, input);
    }

    fn put_of(&self, link: u64, input: PeerInput) {
        self.inputs().push_back(Came { input, link });
        // Release: who sees it finds what was put.
        self.is_full.store(true, Ordering::Release);
        self.came.notify_all();
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// How the service of a cluster reaches a node.
impl Mailbox {
    /// The node's link to the one that leads stands, new, and has this number.
    pub fn linked(&self, link: u64) {
        self.put_of(link, PeerInput::Up(LEADER));
    }

    /// It is gone.
    pub fn cut(&self) {
        self.put(PeerInput::Down(LEADER));
    }

    /// A message came by it.
    pub fn message(&self, message: TableMessage) {
        self.put(PeerInput::Message(LEADER, message));
    }
}

impl Exchange {
    /// For so many nodes.
    pub fn new(count: u32) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| Arc::default()).collect()))
    }

    /// A node's end of it.
    pub fn of(self: &Arc<Self>, node: NodeId) -> Peers {
        Peers {
            node,
            own: self.0[node.0 as usize].clone(),
            link: AtomicU64::new(0),
            way: Way::Exchange(self.clone()),
        }
    }

    fn mailbox(&self, node: NodeId) -> Option<&Mailbox> {
        self.0.get(node.0 as usize).map(Arc::as_ref)
    }
}

/// A node's way to the others of its table. What it sends arrives, in order, as long as the link stands.
#[derive(Debug)]
pub struct Peers {
    node: NodeId,
    own: Arc<Mailbox>,
    /// The number of the link that the node has heard of last. Of one thread at a time.
    link: AtomicU64,
    way: Way,
}

/// Where the others are.
#[derive(Debug)]
enum Way {
    /// In this process, for as long as they run.
    Exchange(Arc<Exchange>),
    /// Wherever the one is that leads the cluster's table: links come and go, and a start waits so long.
    Service(ServiceHandle, Patience),
}

impl Peers {
    /// The way of a node of a cluster, whose service fills the mailbox.
    pub fn of_cluster(
        node: NodeId,
        own: Arc<Mailbox>,
        service: ServiceHandle,
        patience: Patience,
    ) -> Self {
        Self {
            node,
            own,
            link: AtomicU64::new(0),
            way: Way::Service(service, patience),
        }
    }

    /// The node wants to follow the one that leads.
    pub fn follow(&self) {
        match &self.way {
            Way::Exchange(exchange) => {
                if let Some(leader) = exchange.mailbox(LEADER) {
                    leader.put(PeerInput::Up(self.node));
                }
            }
            Way::Service(service, _) => service.node_up(self.node),
        }
    }

    /// Whether the link to the one that leads stands from the beginning on, and ends with that one: else it comes and goes.
    pub fn is_fixed(&self) -> bool {
        self.patience().is_none()
    }

    /// How long a start waits for that one, where it comes and goes.
    pub fn patience(&self) -> Option<&Patience> {
        match &self.way {
            Way::Exchange(_) => None,
            Way::Service(_, patience) => Some(patience),
        }
    }

    /// The next thing that comes. Waits at most as long for it.
    pub fn wait_for_next(&self, within: Duration) -> Option<PeerInput> {
        let until = Instant::now() + within;
        let mut inputs = self.own.inputs();
        loop {
            if let Some(came) = inputs.pop_front() {
                return Some(self.hear(came));
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.own.came.wait_timeout(inputs, left);
            inputs = waited.expect("no holder panics here").0;
        }
    }

    /// The node hears of something.
    fn hear(&self, Came { input, link }: Came) -> PeerInput {
        if matches!(input, PeerInput::Up(_)) {
            self.link.store(link, Ordering::Relaxed);
        }
        input
    }

    /// What wakes this node when something comes for it. What has come before is found by its first turn.
    pub fn wake_with(&self, waker: Waker) {
        // There is one reactor for each node.
        let _ = self.own.waker.set(waker);
    }

    /// Sends a message to another node.
    pub fn send(&self, to: NodeId, message: TableMessage) {
        match &self.way {
            Way::Exchange(exchange) => {
                if let Some(other) = exchange.mailbox(to) {
                    other.put(PeerInput::Message(self.node, message));
                }
            }
            Way::Service(service, _) => {
                let link = self.link.load(Ordering::Relaxed);
                service.send(self.node, link, message);
            }
        }
    }

    /// Appends what has come. A new link begins a new turn: what the node says meanwhile is for the one before.
    pub fn take(&self, inputs: &mut Vec<Input>) {
        if !self.own.is_full.swap(false, Ordering::Acquire) {
            return;
        }
        let mut left = self.own.inputs();
        let links = left.iter().skip(1);
        let mut links = links.map(|came| matches!(came.input, PeerInput::Up(_)));
        let new_link = links.position(|is_link| is_link).map(|at| at + 1);
        let count = new_link.unwrap_or(left.len());
        let came: Vec<Came> = left.drain(..count).collect();
        drop(left);
        if new_link.is_some() {
            self.own.is_full.store(true, Ordering::Release);
            if let Some(waker) = self.own.waker.get() {
                waker.wake();
            }
        }
        inputs.extend(came.into_iter().map(|came| Input::Peer(self.hear(came))));
    }
}

/// The others hear of the end of a node, however it came.
impl Drop for Peers {
    fn drop(&mut self) {
        match &self.way {
            Way::Exchange(exchange) => {
                let others = exchange.0.iter();
                for other in others.filter(|other| !Arc::ptr_eq(other, &self.own)) {
                    other.put(PeerInput::Down(self.node));
                }
            }
            Way::Service(service, _) => service.node_down(self.node),
        }
    }
}
