//! The controller quorum: a few voters that agree on one log of commands.
//!
//! [`Quorum`] is one voter. Consensus is that of the crate `raft`; what is here gives it a log on
//! disk, messages as bytes, snapshots in pieces, requests that are applied once, and members that
//! come and go. See the README for the drawings.

mod applied;
mod entry;
mod frame;
mod held;
mod id;
mod interface;
mod membership;
mod message;
mod recovery;
mod requests;
mod settings;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;
mod transfer;
mod waiting;
mod wal;

pub use id::{ClusterId, DirectoryId, Identity, RequestId, VoterId};
pub use interface::{Input, Output, Refused};
pub use membership::{Change, Member, Role};
pub use message::sender;
pub use recovery::{Recovered, RecoveryError, found, join, recover};
pub use settings::{
    CHUNK_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGE_ENTRIES_BYTES, PAYLOAD_BYTES_MAX,
    SNAPSHOT_BYTES_MAX, Settings,
};

#[cfg(test)]
pub(crate) use self::{
    frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader, Record},
    message::{Body, Envelope},
};

use crate::faults::{Fault, planted};
use crate::random::Random;
use applied::{Applied, Effect};
use bytes::Bytes;
use entry::{Command, Content, Entry};
use frame::{HardState, Records};
use held::Held;
#[cfg(not(test))]
use message::{Body, Envelope};
use message::{Chunk, Received};
use raft::eraftpb::{self, EntryType, Message, MessageType};
use raft::{RawNode, SnapshotStatus, StateRole};
use requests::{ClusterTime, Memory};
use snapshot::{Snapshot, Stored};
use std::collections::VecDeque;
use std::time::Duration;
use store::Store;
use transfer::{Next, Receiving, Sending};
use waiting::{Made, Waiting};
use wal::{Part, Rotate, Wal};
use wire::codec::{Codec, Reader};

/// A leader whose disk is full tries to let another lead this often, ticks.
const FULL_TRANSFER_TICKS: u32 = 50;
/// A learner that lacks no more entries than this has caught up.
const CAUGHT_UP_ENTRIES: u64 = 64;

/// Whether a voter takes part. The drawing is in the README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Serving,
    Removed,
    Failed,
}

/// One voter of the quorum.
///
/// [`recover`] finds its log, [`Quorum::open`] makes it. Then each thing that happens is given to
/// [`Quorum::handle`], whereupon [`Quorum::poll_output`] is asked until it gives nothing more, and
/// every output is done in its order. [`Quorum::next_timer`] says when to come back at the latest.
/// The time is this process's own, from any beginning, and never goes back.
pub struct Quorum {
    settings: Settings,
    identity: Identity,
    node: RawNode<Store>,
    wal: Wal,
    applied: Applied,
    held: Held,
    waiting: Waiting,
    sending: Sending,
    receiving: Receiving,
    /// A snapshot that came and is not durable yet.
    restoring: Option<(Part, Snapshot)>,
    /// A snapshot that the state machine was asked for.
    taking: Option<Snapshot>,
    standing: Standing,
    outputs: VecDeque<Output>,
    now: Duration,
    next_tick: Duration,
    elections: Elections,
    time: ClusterTime,
    /// The last `Ready` of the library, and the last that had another term or vote.
    ready: Part,
    voted: Part,
    /// The term that this voter leads in.
    leading: Option<u64>,
    /// What was said of the leader last.
    said: (u64, Option<VoterId>),
    /// Ticks until a full leader tries again to let another lead.
    transfer_in: u32,
}

/// How long this voter waits for a leader. The library draws that by itself, from a source that no
/// seed reaches; so its draw is replaced whenever it has made one.
#[derive(Debug)]
struct Elections {
    random: Random,
    least: u64,
    greatest: u64,
    /// For which term and role the wait was drawn.
    drawn_for: Option<(u64, StateRole)>,
    ticks: usize,
}

impl Elections {
    /// To be called after each call that may change term or role: with those it draws anew.
    fn replace(&mut self, raft: &mut raft::Raft<Store>) {
        let now = Some((raft.term, raft.state));
        if self.drawn_for != now {
            self.drawn_for = now;
            self.ticks = self.random.within(self.least, self.greatest) as usize;
        }
        raft.set_randomized_election_timeout(self.ticks);
    }
}

impl Quorum {
    /// A voter with what was found of its log, at this time. `seed` is any number.
    ///
    /// # Errors
    /// If the settings cannot work: a sentence.
    pub fn open(
        settings: Settings,
        seed: u64,
        now: Duration,
        recovered: Recovered,
    ) -> Result<Self, String> {
        settings.validate()?;
        let identity = recovered.identity;
        let wal = Wal::new(&recovered);
        let entries = recovered.entries.iter().map(Entry::to_raft).collect();
        let snapshot = recovered.snapshot;
        let config = raft::Config {
            id: identity.voter.0,
            election_tick: settings.election_ticks_min,
            heartbeat_tick: settings.heartbeat_ticks,
            min_election_tick: settings.election_ticks_min,
            // The library excludes the greatest.
            max_election_tick: settings.election_ticks_max + 1,
            applied: snapshot.as_ref().map_or(0, |one| one.index),
            max_size_per_msg: MESSAGE_ENTRIES_BYTES,
            max_inflight_msgs: settings::IN_FLIGHT_MAX,
            max_uncommitted_size: settings::UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: settings::UNCOMMITTED_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let mut outputs = VecDeque::new();
        let mut applied = Applied::default();
        if let Some(stored) = &snapshot {
            let snapshot = Snapshot::from_bytes("snapshot", &stored.bytes)
                .map_err(|error| error.to_string())?;
            outputs.push_back(Output::Restore {
                index: snapshot.index,
                bytes: snapshot.state.clone(),
            });
            applied.restore(snapshot);
        }
        let mut time = ClusterTime::default();
        time.applied(applied.latest(), now, false);
        let store = Store::new(recovered.hard_state, snapshot, entries);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, store, &logger).map_err(|error| error.to_string())?;
        let elections = Elections {
            random: Random::new(Random::new(seed).number() ^ identity.voter.0),
            least: settings.election_ticks_min as u64,
            greatest: settings.election_ticks_max as u64,
            drawn_for: None,
            ticks: 0,
        };
        let (tick, sending) = (settings.tick, Sending::new(settings.chunk_bytes));
        let mut quorum = Self {
            settings,
            identity,
            node,
            wal,
            applied,
            held: Held::default(),
            waiting: Waiting::default(),
            sending,
            receiving: Receiving::default(),
            restoring: None,
            taking: None,
            standing: Standing::Serving,
            outputs,
            now,
            next_tick: now + tick,
            elections,
            time,
            ready: 0,
            voted: 0,
            leading: None,
            said: (0, None),
            transfer_in: 0,
        };
        quorum.advance();
        Ok(quorum)
    }

    /// Takes note of something that happened.
    pub fn handle(&mut self, now: Duration, input: Input) {
        self.now = self.now.max(now);
        if self.standing != Standing::Serving {
            // Callers are answered all the same; nothing else leaves this voter.
            if let Input::Propose { request, .. } | Input::ChangeVoters { request, .. } = input {
                self.answer(request, Err(Refused::NotLeader { hint: None }));
            }
            return;
        }
        match input {
            Input::Message { from, bytes } => self.message(from, &bytes),
            Input::Propose { request, payload } => self.propose(request, payload),
            Input::DiskDone { token, result } => match self.wal.done(self.now, token, result) {
                Ok(()) => self.durable(),
                Err(error) => self.fail(error.to_string()),
            },
            Input::ChangeVoters { request, change } => self.change(request, change),
            Input::TransferLeader { to } => self.node.transfer_leader(to.0),
            Input::Snapshot { index, bytes } => self.snapshot(index, bytes),
            Input::Timer => self.timer(),
        }
        self.advance();
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Timer`] is due. None if this voter waits for nothing any more.
    pub fn next_timer(&self) -> Option<Duration> {
        (self.standing == Standing::Serving).then_some(self.next_tick)
    }

    /// Whose voter this is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The term, and who leads in it as far as is known.
    pub fn leader(&self) -> (u64, Option<VoterId>) {
        let raft = &self.node.raft;
        let leader = (raft.leader_id != raft::INVALID_ID).then_some(VoterId(raft.leader_id));
        (raft.term, leader)
    }

    /// Whether this voter leads.
    pub fn leads(&self) -> bool {
        self.standing == Standing::Serving && self.node.raft.state == StateRole::Leader
    }

    /// The last index that was decided and given out.
    pub fn applied(&self) -> u64 {
        self.applied.index()
    }

    /// The members, as the applied entries left them.
    pub fn members(&self) -> impl Iterator<Item = (VoterId, Member)> + '_ {
        self.applied.members().iter()
    }

    fn memory(&self) -> Memory {
        Memory {
            requests_max: self.settings.requests_max,
            deadline: self.settings.retry_deadline,
        }
    }

    fn answer(&mut self, request: RequestId, result: Result<u64, Refused>) {
        self.outputs.push_back(Output::Answer { request, result });
    }

    fn fail(&mut self, reason: String) {
        self.standing = Standing::Failed;
        self.held = Held::default();
        self.answer_all_unknown();
        self.outputs.push_back(Output::Failed(reason));
    }

    fn remove(&mut self) {
        self.standing = Standing::Removed;
        self.held = Held::default();
        self.answer_all_unknown();
        self.outputs.push_back(Output::Removed);
    }

    fn answer_all_unknown(&mut self) {
        for (request, times) in self.waiting.take_all() {
            for _ in 0..times {
                if !planted(Fault::WaitersForgotten) {
                    self.answer(request, Err(Refused::Unknown));
                }
            }
        }
    }

    // ---- what is asked

    fn propose(&mut self, request: RequestId, payload: Bytes) {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return self.answer(request, Err(Refused::TooLarge));
        }
        if let Some(index) = self.applied.index_of(request) {
            return self.answer(request, Ok(index));
        }
        if !self.takes(request) {
            return;
        }
        let taken = self.time.now(self.now);
        let unapplied = self.node.raft.raft_log.last_index() - self.applied.index();
        let full = self.wal.is_full()
            || self.waiting.len() >= settings::WAITING_MAX
            || self.applied.is_full(taken, unapplied, self.memory());
        if full {
            return self.answer(request, Err(Refused::Full));
        }
        let content = Content::Command(Command {
            request,
            taken,
            payload,
        });
        let (index, term) = (0, 0);
        let entry = Entry {
            index,
            term,
            content,
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.identity.voter.0;
        message.set_entries(vec![entry.to_raft()].into());
        // What is not committed has its bound in the library.
        match self.node.step(message) {
            Ok(()) => self.waiting.add(request),
            Err(_) => self.answer(request, Err(Refused::Full)),
        }
    }

    fn change(&mut self, request: RequestId, change: Change) {
        if !self.takes(request) {
            return;
        }
        if let Some(index) = self.applied.index_of(request) {
            self.waiting.add(request);
            return self.made(request, index);
        }
        if let Err(why) = self.check_change(&change) {
            return self.answer(request, Err(Refused::Change(why)));
        }
        let context = entry::change_context(request, &change);
        match self.node.propose_conf_change(context, change.conf_change()) {
            Ok(()) => self.waiting.add(request),
            Err(_) => self.answer(request, Err(Refused::Full)),
        }
    }

    /// Whether a request is to be taken. Else it is answered, now or with the one that is under way.
    fn takes(&mut self, request: RequestId) -> bool {
        if self.waiting.join(request) {
            return false;
        }
        let raft = &self.node.raft;
        let hint = match (raft.state, raft.lead_transferee) {
            (StateRole::Leader, None) => return true,
            (StateRole::Leader, Some(to)) => Some(VoterId(to)),
            _ => self.leader().1,
        };
        self.answer(request, Err(Refused::NotLeader { hint }));
        false
    }

    fn check_change(&self, change: &Change) -> Result<(), &'static str> {
        let raft = &self.node.raft;
        // A leader knows which members there are once it has committed something itself.
        let under_way = raft.has_pending_conf() || self.waiting.made().next().is_some();
        if under_way || !raft.commit_to_current_term() {
            return Err("another change is under way, or the leader is new: ask again");
        }
        self.applied.members().check(change)?;
        match change {
            Change::Remove { voter } if *voter == self.identity.voter => {
                Err("it leads: let another lead before")
            }
            Change::Promote { voter } => {
                let progress = raft.prs().get(voter.0);
                let caught_up = progress.is_some_and(|one| {
                    one.recent_active
                        && one.matched + CAUGHT_UP_ENTRIES >= raft.raft_log.committed
                        && one.matched > 0
                });
                match caught_up {
                    true => Ok(()),
                    false => Err("it has not caught up: ask again"),
                }
            }
            _ => Ok(()),
        }
    }

    fn snapshot(&mut self, index: u64, bytes: Bytes) {
        let Some(mut snapshot) = self.taking.take_if(|one| one.index == index) else {
            return;
        };
        // One that came from the leader meanwhile is later.
        if self.restoring.is_some() {
            return;
        }
        snapshot.state = bytes;
        let stored = Stored::of(&snapshot);
        if stored.bytes.len() > SNAPSHOT_BYTES_MAX {
            let bytes = stored.bytes.len();
            return self.fail(format!(
                "the snapshot at {index} has {bytes} bytes, more than {SNAPSHOT_BYTES_MAX}: the \
                 log would grow without a bound"
            ));
        }
        let store = self.node.mut_store();
        store.compact(stored, self.settings.trailing_entries);
        self.wal.rotate(Rotate::Compact, self.ready);
    }

    // ---- time

    fn timer(&mut self) {
        if self.now < self.next_tick {
            return;
        }
        // Ticks that were slept through are lost: a voter that was paused first reads what has come.
        self.next_tick += self.settings.tick;
        if self.next_tick <= self.now {
            self.next_tick = self.now + self.settings.tick;
        }
        if self.may_tick() {
            self.node.tick();
        }
        let (again, failed) = self.sending.tick();
        for (to, body) in again {
            self.send(to, body);
        }
        for to in failed {
            self.node.report_snapshot(to.0, SnapshotStatus::Failure);
        }
        self.transfer_if_full();
    }

    /// Two cases in which the library panics if it begins an election: there is a snapshot that is
    /// not applied yet, and a single voter has entries that are not durable.
    fn may_tick(&self) -> bool {
        let raft = &self.node.raft;
        let alone = raft.prs().is_singleton();
        let durable = raft.raft_log.persisted == raft.raft_log.last_index();
        raft.state == StateRole::Leader || (self.restoring.is_none() && (!alone || durable))
    }

    /// A leader without space cannot count itself and takes no requests; another may have space.
    fn transfer_if_full(&mut self) {
        self.transfer_in = self.transfer_in.saturating_sub(1);
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader && raft.lead_transferee.is_none();
        if !self.wal.is_full() || !leads || self.transfer_in > 0 {
            return;
        }
        let own = self.identity.voter;
        let others = self.applied.members().voters().filter(|id| *id != own);
        let best = others
            .filter_map(|id| Some((raft.prs().get(id.0)?, id)))
            .filter(|(progress, _)| progress.recent_active)
            .max_by_key(|(progress, id)| (progress.matched, *id));
        if let Some((_, to)) = best {
            self.transfer_in = FULL_TRANSFER_TICKS;
            self.node.transfer_leader(to.0);
        }
    }

    // ---- messages

    fn message(&mut self, from: VoterId, bytes: &[u8]) {
        let Ok(envelope) = Envelope::from_bytes(bytes) else {
            return;
        };
        let sender = envelope.from;
        let ours = sender.cluster == self.identity.cluster || planted(Fault::TwoFoundings);
        if !ours || sender.voter != from || envelope.to != self.identity.voter {
            return;
        }
        if self.is_stranger(&sender) {
            // It does not stop by itself; but two that are gone need not tell each other for ever.
            if !matches!(envelope.body, Body::Gone(_)) {
                self.send(from, Body::Gone(sender.directory));
            }
            return;
        }
        match envelope.body {
            Body::Raft(message) => self.step(*message),
            Body::Chunk(chunk) => self.chunk(from, &chunk),
            Body::Received(received) => self.received(from, &received),
            // One that has this voter's id without its directory may have asked.
            Body::Gone(directory) if directory != self.identity.directory => {}
            Body::Gone(_) => self.remove(),
        }
    }

    /// Whether the sender was removed, or is another than the member of that id: one that lost its
    /// directory has forgotten whom it voted for, and what it said that it has.
    fn is_stranger(&self, sender: &Identity) -> bool {
        if planted(Fault::ReuseVoterId) {
            return false;
        }
        let members = self.applied.members();
        match members.get(sender.voter) {
            Some(member) => member.directory != sender.directory,
            None => members.is_gone(sender.voter),
        }
    }

    fn step(&mut self, message: Message) {
        let log = &self.node.raft.raft_log;
        let last = log.last_index();
        match message.get_msg_type() {
            MessageType::MsgHeartbeat
                if message.term >= self.node.raft.term && message.commit > last =>
            {
                let (from, commit) = (VoterId(message.from), message.commit);
                return self.fail(format!(
                    "{from} says that this voter has all entries up to {commit}, and its log ends \
                     at {last}: its disk has lost what was synced. Remove it from the quorum, and \
                     add a new one with an empty directory"
                ));
            }
            MessageType::MsgAppend if self.wal.unwritten() > settings::UNWRITTEN_BYTES_MAX => {
                return;
            }
            // Nobody has more of this leader's log than it has itself.
            MessageType::MsgAppendResponse if message.index > last => return,
            MessageType::MsgAppendResponse if message.reject && message.reject_hint > last => {
                return;
            }
            MessageType::MsgTimeoutNow if self.restoring.is_some() => return,
            _ => {}
        }
        // That it is of no use to the library is no error.
        let _ = self.node.step(message);
    }

    fn chunk(&mut self, from: VoterId, chunk: &Chunk) {
        let term = self.node.raft.term;
        self.receiving.forget_before(term);
        if chunk.transfer.term < term {
            return;
        }
        let (answer, complete) = self.receiving.chunk(from, chunk);
        self.send(from, Body::Received(answer));
        let Some(bytes) = complete else {
            return;
        };
        let mut reader = Reader::new("snapshot", &bytes);
        let Ok(snapshot) = Snapshot::decode(&mut reader) else {
            return;
        };
        if !reader.rest().is_empty() || snapshot.index != chunk.transfer.index {
            return;
        }
        let stored = Stored {
            index: snapshot.index,
            term: snapshot.term,
            members: snapshot.members,
            bytes,
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        message.from = from.0;
        message.to = self.identity.voter.0;
        message.term = chunk.transfer.term;
        message.set_snapshot(stored.to_raft());
        self.step(message);
    }

    fn received(&mut self, from: VoterId, received: &Received) {
        match self.sending.received(from, received) {
            Next::Chunk(chunk) => self.send(from, chunk),
            Next::Complete => self.node.report_snapshot(from.0, SnapshotStatus::Finish),
            Next::Nothing => {}
        }
    }

    fn send(&mut self, to: VoterId, body: Body) {
        let from = self.identity;
        let bytes = Envelope { from, to, body }.to_bytes().into();
        self.outputs.push_back(Output::Send { to, bytes });
    }

    fn send_all(&mut self, messages: Vec<Message>) {
        for mut message in messages {
            let to = VoterId(message.to);
            match message.get_msg_type() {
                MessageType::MsgSnapshot => {
                    let snapshot = message.take_snapshot();
                    let index = snapshot.get_metadata().index;
                    let (term, bytes) = (message.term, snapshot.data);
                    let first = self.sending.begin(to, term, index, bytes);
                    self.send(to, first);
                }
                kind if message::travels(kind) => self.send(to, Body::Raft(Box::new(message))),
                _ => {}
            }
        }
    }

    // ---- what follows

    /// Does all that follows from what was changed.
    fn advance(&mut self) {
        while self.standing == Standing::Serving {
            self.elections.replace(&mut self.node.raft);
            if !self.node.has_ready() {
                break;
            }
            self.ready();
        }
        if self.standing != Standing::Serving {
            return;
        }
        self.note_leader();
        self.answer_made();
        self.take_snapshot_if_due();
        if let Some((token, operation)) = self.wal.poll(self.now, self.node.store()) {
            self.outputs.push_back(Output::Disk { token, operation });
        }
    }

    /// Takes what the library has ready: log to be written, messages to be sent, entries that are
    /// decided.
    fn ready(&mut self) {
        let mut ready = self.node.ready();
        let part = ready.number();
        self.ready = part;
        if !ready.snapshot().is_empty() {
            self.begin_restore(part, ready.snapshot());
        }
        let mut records = Records::default();
        let entries = ready.take_entries();
        for entry in &entries {
            records.entry(&Entry::of_raft(entry));
        }
        self.node.mut_store().append(&entries);
        if planted(Fault::CommittedNotChecked) {
            self.apply_unchecked(&entries);
        }
        let mut decides_members = false;
        if let Some(state) = ready.hs() {
            let state = HardState {
                term: state.term,
                vote: state.vote,
                commit: state.commit,
            };
            let before = std::mem::replace(&mut self.node.mut_store().hard_state, state);
            if (before.term, before.vote) != (state.term, state.vote) {
                self.voted = part;
            }
            decides_members = self.node.store().has_change(before.commit, state.commit);
        }
        // That the commit index has grown needs no write of its own: it is found again. But who
        // votes is not found by those who ask the wrong members, so a decided change is written.
        if !records.is_empty() || self.voted == part || decides_members {
            records.hard_state(&self.node.store().hard_state);
            self.wal.gather(&records, part);
        }
        let (at_once, when_durable) = (ready.take_messages(), ready.take_persisted_messages());
        let decided = ready.take_committed_entries();
        self.node.advance_append_async(ready);
        self.release(at_once, self.voted);
        self.release(when_durable, self.wal.gathered());
        if self.wal.gathered() <= self.wal.durable() {
            self.node.on_persist_ready(part);
        }
        for entry in decided {
            if self.standing == Standing::Serving {
                self.apply(&entry);
            }
        }
    }

    /// Sends messages that depend on the log up to a part, now or once it is durable.
    fn release(&mut self, messages: Vec<Message>, depends_on: Part) {
        let messages = match depends_on <= self.wal.durable() {
            true => messages,
            false => self.held.keep(self.wal.gathered(), messages),
        };
        self.send_all(messages);
    }

    /// More of the log may be durable.
    fn durable(&mut self) {
        let durable = self.wal.durable();
        let all = self.wal.gathered() <= durable;
        self.node
            .on_persist_ready(if all { self.ready } else { durable });
        if let Some((_, snapshot)) = self.restoring.take_if(|(part, _)| *part <= durable) {
            let index = snapshot.index;
            self.outputs.push_back(Output::Restore {
                index,
                bytes: snapshot.state.clone(),
            });
            self.taking = None;
            self.applied.restore(snapshot);
            self.time.applied(self.applied.latest(), self.now, false);
            self.node.advance_apply_to(index);
        }
        let released = self.held.release(durable);
        self.send_all(released);
    }

    fn begin_restore(&mut self, part: Part, snapshot: &eraftpb::Snapshot) {
        let decoded = Snapshot::from_bytes("snapshot", &snapshot.data);
        let decoded = decoded.expect("it was read when it came");
        self.node.mut_store().restore(Stored {
            index: decoded.index,
            term: decoded.term,
            members: decoded.members.clone(),
            bytes: snapshot.data.clone(),
        });
        self.wal.rotate(Rotate::Restore, part);
        self.restoring = Some((part, decoded));
    }

    fn apply(&mut self, entry: &eraftpb::Entry) {
        let (index, term, memory) = (entry.index, entry.term, self.memory());
        match self.applied.apply(Entry::of_raft(entry), memory) {
            Effect::Nothing => self.note_first(term),
            Effect::Apply(command) => {
                let leads = self.node.raft.state == StateRole::Leader;
                self.time.applied(command.taken, self.now, leads);
                if !planted(Fault::CommittedNotChecked) {
                    self.outputs.push_back(Output::Apply {
                        index,
                        term,
                        payload: command.payload,
                    });
                }
                self.applied_at(command.request, Ok(index));
            }
            Effect::Again(request, first) => match entry.get_entry_type() {
                EntryType::EntryNormal => self.applied_at(request, Ok(first)),
                _ => self.made(request, first),
            },
            Effect::Refused(request, why) => self.applied_at(request, Err(Refused::Change(why))),
            Effect::Changed(request, change) => {
                let gone =
                    matches!(change, Change::Remove { voter } if voter == self.identity.voter);
                if gone {
                    return self.remove();
                }
                if let Err(error) = self.node.apply_conf_change(&change.conf_change()) {
                    return self.fail(format!("changing the members at {index}: {error}"));
                }
                self.made(request, index);
            }
        }
        self.node.advance_apply_to(index);
    }

    fn applied_at(&mut self, request: RequestId, result: Result<u64, Refused>) {
        for _ in 0..self.waiting.take(request) {
            self.answer(request, result.clone());
        }
    }

    /// A change of members is made. Who asked for it is answered later: see [`Made`].
    fn made(&mut self, request: RequestId, index: u64) {
        // What was gathered before has a commit index that covers the change.
        let part = self.wal.gathered();
        self.waiting.is_made(Made {
            request,
            index,
            part,
        });
    }

    fn answer_made(&mut self) {
        let known = self.waiting.made().filter(|one| self.is_known(one));
        let known: Vec<_> = known.map(|one| (one.request, one.index)).collect();
        for (request, index) in known {
            self.applied_at(request, Ok(index));
        }
    }

    /// Whether most of those who vote now know durably that a change is decided. Others say so when
    /// they answer an append or a heartbeat.
    fn is_known(&self, made: &Made) -> bool {
        let members = self.node.raft.prs();
        let knows = |id: &VoterId| match *id == self.identity.voter {
            true => made.part <= self.wal.durable(),
            false => {
                let progress = members.get(id.0);
                progress.is_some_and(|one| one.committed_index >= made.index)
            }
        };
        let voters = self.applied.members().voters();
        let (knowing, others): (Vec<_>, Vec<_>) = voters.partition(knows);
        knowing.len() > others.len()
    }

    /// The first entry of a term is applied: that of this leader, or of one before.
    fn note_first(&mut self, term: u64) {
        if self.leads() && self.leading == Some(term) {
            self.outputs.push_back(Output::LeaderReady { term });
        }
    }

    /// The planted fault: what was appended is applied.
    fn apply_unchecked(&mut self, entries: &[eraftpb::Entry]) {
        for entry in entries.iter().map(Entry::of_raft) {
            if let Content::Command(Command { payload, .. }) = entry.content {
                self.outputs.push_back(Output::Apply {
                    index: entry.index,
                    term: entry.term,
                    payload,
                });
            }
        }
    }

    fn note_leader(&mut self) {
        let leading = self.leads().then_some(self.node.raft.term);
        if self.leading != leading && self.leading.is_some() {
            self.answer_all_unknown();
            self.sending.clear();
        }
        self.leading = leading;
        let leader = self.leader();
        if self.said != leader {
            self.said = leader;
            let (term, leader) = leader;
            self.outputs.push_back(Output::Leader { term, leader });
        }
    }

    fn take_snapshot_if_due(&mut self) {
        let wanted = self.node.store().take_wanted();
        if self.taking.is_some() || self.restoring.is_some() {
            return;
        }
        let (entries, bytes) = self.applied.since_snapshot();
        let due =
            entries >= self.settings.snapshot_entries || bytes >= self.settings.snapshot_bytes;
        let upto = self.applied.index();
        let behind = upto > self.node.store().snapshot_index();
        // On a full disk a shorter log gives back space.
        let wanted = wanted || self.wal.is_full();
        if !(due || wanted && behind) {
            return;
        }
        let term = raft::Storage::term(self.node.store(), upto);
        let term = term.expect("what is applied is in the log, or in the last snapshot");
        self.taking = Some(self.applied.snapshot(term));
        self.outputs.push_back(Output::TakeSnapshot { upto });
    }
}
