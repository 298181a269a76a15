//! What a node of a table has of the one that leads: what has come, and what it has to say, each by the link that it has
//! heard of. Filled and emptied by the simulation.

use broker::PeerInput;
use broker::controller::LEADER;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::table::TableMessage;

/// A share of a node's mailbox: the node may be opened on a thread of its own.
#[derive(Clone, Default)]
pub struct Mailbox(Arc<Mutex<Boxes>>);

#[derive(Default)]
struct Boxes {
    /// Each with the number of its link, if it is a new one.
    inputs: VecDeque<(u64, PeerInput)>,
    /// Each with the number of the link that the node had heard of last.
    outputs: VecDeque<(u64, TableMessage)>,
    link: u64,
}

impl Boxes {
    fn hear(&mut self) -> Option<PeerInput> {
        let (link, input) = self.inputs.pop_front()?;
        if matches!(input, PeerInput::Up(_)) {
            self.link = link;
        }
        Some(input)
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Boxes> {
        self.0.lock().expect("no holder panics")
    }

    /// The node's link to the one that leads stands, new, and has this number.
    pub fn linked(&self, link: u64) {
        self.lock().inputs.push_back((link, PeerInput::Up(LEADER)));
    }

    /// It is gone.
    pub fn cut(&self) {
        self.lock().inputs.push_back((0, PeerInput::Down(LEADER)));
    }

    /// A message came by it.
    pub fn came(&self, message: TableMessage) {
        let input = PeerInput::Message(LEADER, message);
        self.lock().inputs.push_back((0, input));
    }

    /// Whether something has come that the node has not heard.
    pub fn is_full(&self) -> bool {
        !self.lock().inputs.is_empty()
    }

    /// The next thing that has come.
    pub fn hear(&self) -> Option<PeerInput> {
        self.lock().hear()
    }

    /// What has come, up to the next new link: what the node says meanwhile is for the one before.
    pub fn hear_all(&self) -> Vec<PeerInput> {
        let mut boxes = self.lock();
        let mut heard: Vec<_> = boxes.hear().into_iter().collect();
        while let Some((_, next)) = boxes.inputs.front()
            && !matches!(next, PeerInput::Up(_))
        {
            heard.extend(boxes.hear());
        }
        heard
    }

    /// The node has something to say.
    pub fn say(&self, message: TableMessage) {
        let mut boxes = self.lock();
        let link = boxes.link;
        boxes.outputs.push_back((link, message));
    }

    /// The next thing that the node has said, and by which link.
    pub fn said(&self) -> Option<(u64, TableMessage)> {
        self.lock().outputs.pop_front()
    }
}
