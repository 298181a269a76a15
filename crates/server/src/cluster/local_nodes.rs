//! The nodes of this server, as the service of the cluster reaches them.

use crate::exchange::Mailbox;
use cluster::service::LocalNodes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::table::{Registered, TableMessage};
use wire::{DirectoryId, ErrorReply, NodeId};

/// A mailbox for each node, and which node each shard is.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    boxes: BTreeMap<NodeId, Arc<Mailbox>>,
    registered: BTreeMap<DirectoryId, Result<Registered, ErrorReply>>,
}

impl Mailboxes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// A node's mailbox, which is there from now on.
    pub fn of(&self, node: NodeId) -> Arc<Mailbox> {
        self.state().boxes.entry(node).or_default().clone()
    }

    /// Which node the shard with this data directory is, or why it is none. Waits at most as long for it.
    pub fn wait_for(
        &self,
        directory: DirectoryId,
        within: Duration,
    ) -> Option<Result<Registered, ErrorReply>> {
        let until = Instant::now() + within;
        let mut state = self.state();
        loop {
            if let Some(answer) = state.registered.remove(&directory) {
                return Some(answer);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.came.wait_timeout(state, left);
            state = waited.expect("no holder panics here").0;
        }
    }
}

/// What a service is given of them.
pub(super) struct Reached(pub Arc<Mailboxes>);

impl Reached {
    fn put(&self, node: NodeId, put: impl FnOnce(&Mailbox)) {
        let mailbox = self.0.state().boxes.get(&node).cloned();
        if let Some(mailbox) = mailbox {
            put(&mailbox);
        }
    }
}

impl LocalNodes for Reached {
    fn linked(&mut self, node: NodeId, link: u64) {
        self.put(node, |mailbox| mailbox.linked(link));
    }

    fn cut(&mut self, node: NodeId) {
        self.put(node, Mailbox::cut);
    }

    fn message(&mut self, node: NodeId, message: TableMessage) {
        self.put(node, |mailbox| mailbox.message(message));
    }

    fn registered(&mut self, directory: DirectoryId, result: Result<Registered, ErrorReply>) {
        self.0.state().registered.insert(directory, result);
        self.0.came.notify_all();
    }
}
