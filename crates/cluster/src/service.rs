//! A server's part in a cluster, running: a thread that has its [`Member`], its links and the disk of its voter.
//!
//! ```text
//!   nodes ── ServiceHandle ──► inbox ──► ┌────────────────┐ ──► LocalNodes ── nodes
//!   peers ◄───── PeerLinks ────────────► │ Member, on its │
//!                                        │ thread         │ ──► disk thread: one operation at a time
//!                                inbox ◄─┴────────────────┘ ◄──── what came of it
//! ```

mod refusals;
#[cfg(test)]
mod tests;

pub use refusals::Remark;

use crate::links::{NotSent, PeerEvent, PeerId, PeerLinks};
use crate::member::{Input, Member, Output};
use crate::quorum::{Change, Refused, RequestId};
use ::log::{Disk, Operation};
use memory::thread::JoinHandle;
use net::{NetError, Waker};
use refusals::Refusals;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use wire::table::{Register, Registered, TableMessage};
use wire::{DirectoryId, ErrorReply, NodeId};

/// The nodes of this server, as the service's thread reaches them. None of the calls may wait.
pub trait LocalNodes: Send {
    /// A node's link to the one that leads the table stands, new, and has this number.
    fn linked(&mut self, node: NodeId, link: u64);

    /// It is gone, and what was on its way.
    fn cut(&mut self, node: NodeId);

    /// A message came by it, in order.
    fn message(&mut self, node: NodeId, message: TableMessage);

    /// Which node the shard with this data directory is, or why it is none.
    fn registered(&mut self, directory: DirectoryId, result: Result<Registered, ErrorReply>);

    /// What became of a change of voters.
    fn changed(&mut self, request: RequestId, result: Result<u64, Refused>) {
        let _ = (request, result);
    }
}

/// What a service begins with.
pub struct ServiceParts {
    /// With its voter, if this server votes.
    pub member: Member,
    /// They listen. Whom they dial is in `peers`.
    pub links: PeerLinks,
    /// The other servers, and where they are.
    pub peers: BTreeMap<PeerId, Vec<String>>,
    /// The servers that vote.
    pub voters: Vec<DirectoryId>,
    /// Where the voter's log is. Nobody else may use that directory.
    pub disk: Arc<dyn Disk>,
    /// The server's nodes.
    pub nodes: Box<dyn LocalNodes>,
    /// Takes what the operator may hear.
    pub log: Box<dyn FnMut(Remark) + Send>,
}

/// What is asked of the service's thread.
enum Ask {
    Member(Input),
    Peers(BTreeMap<PeerId, Vec<String>>),
    Renew { chain: Vec<u8>, key: Vec<u8> },
}

struct Inbox {
    asked: Mutex<Vec<Ask>>,
    ends: AtomicBool,
    waker: Waker,
}

impl Inbox {
    fn asked(&self) -> MutexGuard<'_, Vec<Ask>> {
        self.asked.lock().expect("no holder panics here")
    }

    fn put(&self, ask: Ask) {
        let mut asked = self.asked();
        if !self.ends.load(Ordering::Acquire) {
            asked.push(ask);
            self.waker.wake();
        }
    }
}

/// A way to a service, for any thread. What is said when the service has ended is dropped.
#[derive(Clone)]
pub struct ServiceHandle(Arc<Inbox>);

impl std::fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServiceHandle")
    }
}

impl ServiceHandle {
    /// A shard of this server asks which node it is, until it is answered by [`LocalNodes::registered`].
    pub fn register(&self, register: Register) {
        self.0.put(Ask::Member(Input::Register(register)));
    }

    /// A node of this server runs, or is being opened: it wants to follow the table. Answered by [`LocalNodes::linked`],
    /// as soon as one leads.
    pub fn node_up(&self, node: NodeId) {
        self.0.put(Ask::Member(Input::NodeUp(node)));
    }

    /// It has ended.
    pub fn node_down(&self, node: NodeId) {
        self.0.put(Ask::Member(Input::NodeDown(node)));
    }

    /// A node's message for the one that leads, on the link that the node has heard of last ([`LocalNodes::linked`]). In order;
    /// dropped if that link is gone, as the node is about to hear.
    pub fn send(&self, node: NodeId, link: u64, message: TableMessage) {
        self.0.put(Ask::Member(Input::Node(node, link, message)));
    }

    /// A voter is to change. Answered by [`LocalNodes::changed`].
    pub fn change(&self, request: RequestId, change: Change) {
        self.0.put(Ask::Member(Input::Change { request, change }));
    }

    /// The servers that vote, in place of those before: for a server without a voter.
    pub fn set_voters(&self, voters: Vec<DirectoryId>) {
        self.0.put(Ask::Member(Input::Voters(voters)));
    }

    /// Another certificate of this server and its key, in PEM, for links from now on. One that peers would not take is
    /// written to the log, and the old one kept.
    pub fn renew(&self, chain: Vec<u8>, key: Vec<u8>) {
        self.0.put(Ask::Renew { chain, key });
    }

    /// The other servers, in place of those before, and where they are.
    pub fn set_peers(&self, peers: BTreeMap<PeerId, Vec<String>>) {
        self.0.put(Ask::Peers(peers));
    }
}

/// A running service. Dropped, it ends, and its thread is waited for.
pub struct Service {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

impl Service {
    /// Starts it. `began` is when the member's clock was 0.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(parts: ServiceParts, began: Instant) -> io::Result<Self> {
        let inbox = Arc::new(Inbox {
            asked: Mutex::default(),
            ends: AtomicBool::new(false),
            waker: parts.links.waker(),
        });
        let (operations, to_do) = channel();
        let disk = {
            let (inbox, disk) = (inbox.clone(), parts.disk.clone());
            memory::thread::spawn("thalweg-quorum", move || {
                carry_out(&to_do, &inbox, disk.as_ref())
            })?
        };
        let running = Running {
            inbox: inbox.clone(),
            parts,
            operations,
            began,
            refusals: Refusals::default(),
        };
        let thread = memory::thread::spawn("thalweg-cluster", move || {
            running.run();
            // Its channel is gone with the service.
            let _ = disk.join();
        })?;
        Ok(Self {
            inbox,
            thread: Some(thread),
        })
    }

    /// A way to it.
    pub fn handle(&self) -> ServiceHandle {
        ServiceHandle(self.inbox.clone())
    }
}

/// As after a death, but that peers hear of it at once, and nodes that their links are gone: nothing of a voter is lost by
/// that. Waits for the operation that the disk is at, for the directory is another's behind this.
impl Drop for Service {
    fn drop(&mut self) {
        self.inbox.ends.store(true, Ordering::Release);
        self.inbox.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The disk's thread: until the service has ended.
fn carry_out(to_do: &Receiver<(u64, Operation)>, inbox: &Inbox, disk: &dyn Disk) {
    while let Ok((token, operation)) = to_do.recv() {
        let result = disk.execute(operation);
        inbox.put(Ask::Member(Input::DiskDone { token, result }));
    }
}

struct Running {
    inbox: Arc<Inbox>,
    parts: ServiceParts,
    operations: Sender<(u64, Operation)>,
    began: Instant,
    refusals: Refusals,
}

impl Running {
    fn run(mut self) {
        self.parts.links.set_peers(&self.parts.peers);
        let voters = std::mem::take(&mut self.parts.voters);
        self.give(Input::Voters(voters));
        while !self.inbox.ends.load(Ordering::Acquire) {
            if let Err(error) = self.turn() {
                self.warn(format!(
                    "the links of the cluster: {error}; this server takes no part in it any more"
                ));
                break;
            }
        }
        // Under the lock: nothing is put behind this.
        let mut asked = self.inbox.asked();
        self.inbox.ends.store(true, Ordering::Release);
        asked.clear();
        drop(asked);
        for node in self.parts.member.led() {
            self.parts.nodes.cut(node);
        }
        self.parts.links.close("the server has ended");
    }

    fn turn(&mut self) -> Result<(), NetError> {
        let due = self.parts.member.next_timer();
        let timeout = due.map(|due| due.saturating_sub(self.began.elapsed()));
        for event in self.parts.links.poll(timeout)? {
            match event {
                PeerEvent::Up(PeerId(peer)) => self.give(Input::Up(DirectoryId(peer))),
                PeerEvent::Down(peer, ended) => {
                    self.warn(format!("{peer} is not reached: {ended}"));
                    self.give(Input::Down(DirectoryId(peer.0)));
                }
                PeerEvent::Message(PeerId(peer), bytes) => {
                    self.give(Input::Message(DirectoryId(peer), bytes))
                }
                PeerEvent::Refused { address, ended } => {
                    let remark = self.refusals.remark(&address, &ended, Instant::now());
                    remark.into_iter().for_each(&mut self.parts.log);
                }
                PeerEvent::AcceptFailed(error) => {
                    self.warn(format!(
                        "the system gives no connection to other servers: {error}"
                    ));
                }
            }
        }
        let asked = std::mem::take(&mut *self.inbox.asked());
        for ask in asked {
            match ask {
                Ask::Member(input) => self.give(input),
                Ask::Peers(peers) => self.parts.links.set_peers(&peers),
                Ask::Renew { chain, key } => {
                    if let Err(error) = self.parts.links.renew(&chain, &key) {
                        self.warn(format!("the old certificate is kept: {error}"));
                    }
                }
            }
        }
        if due.is_some_and(|due| self.began.elapsed() >= due) {
            self.give(Input::Timer);
        }
        Ok(())
    }

    fn warn(&mut self, line: String) {
        (self.parts.log)(Remark::Warning(line));
    }

    fn give(&mut self, input: Input) {
        self.parts.member.handle(self.began.elapsed(), input);
        while let Some(output) = self.parts.member.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        let ServiceParts {
            links, nodes, log, ..
        } = &mut self.parts;
        match output {
            Output::Send(to, bytes) => match links.send(PeerId(to.0), bytes) {
                // That it is gone comes as an event.
                Ok(()) | Err(NotSent::Down(_)) => {}
                // What is left out would be missed by nobody.
                Err(error) => links.end(PeerId(to.0), &error.to_string()),
            },
            Output::NodeLinked(node, link) => nodes.linked(node, link),
            Output::NodeCut(node) => nodes.cut(node),
            Output::Node(node, message) => nodes.message(node, message),
            Output::Disk { token, operation } => {
                // Its thread ends behind this one.
                let _ = self.operations.send((token, operation));
            }
            Output::Cut(peer, why) => links.end(PeerId(peer.0), &why),
            Output::Registered(directory, result) => nodes.registered(directory, result),
            Output::Changed { request, result } => nodes.changed(request, result),
            Output::Removed => {
                let line = "this server votes no more: it was removed from the quorum";
                log(Remark::Warning(line.to_owned()));
            }
            Output::Failed(reason) => {
                log(Remark::Warning(format!(
                    "this server votes no more until it is started again: {reason}"
                )));
            }
        }
    }
}
