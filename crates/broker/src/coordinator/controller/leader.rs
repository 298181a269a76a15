//! The end of a table's protocol that leads: whatever log the table's commands are in.

use super::claims::Claims;
use super::registering::Registering;
use super::snapshot::Snapshot;
use super::window::{Numbers, Window};
use super::{CommandToken, ControlError, Home, LEADER, is_of_clients, undecided};
use crate::coordinator::table::Table;
use crate::faults::{Fault, Planted};
use crate::ids::LinkId;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use wire::record::{NodeRecord, NodeState, ProposedRecord, Record};
use wire::table::{
    Entries, Entry, Follow, Leads, Propose, Refused, Register, Registered, TableMessage, Unled,
};
use wire::{Codec, ErrorCode, ErrorReply, NodeId, TableId};

/// Nodes that may follow. Of each, one number is kept in the table. One more is not answered.
pub(super) const FOLLOWERS_MAX: usize = 4096;
/// Bytes of proposals of one follower that are under way. One is taken in any case; one beyond the
/// bound is refused, to be proposed again.
pub(super) const PROPOSED_BYTES_MAX: usize = 16 << 20;
/// Pieces and lists of entries that a follower has not recorded. The next one is not made before it
/// has: what waits is the table itself, and the window of its latest entries.
pub(super) const UNTAKEN_MAX: u32 = 4;

/// The log of a table's commands. The order in which they are decided is that of [`TableLog::submit`].
pub trait TableLog {
    /// The table with all that was decided.
    fn table(&self) -> &Table;

    /// Takes records as one command: all of them are decided or none, to survive any loss of power.
    /// Answered by [`TableLog::poll_completion`].
    fn submit(&mut self, records: Vec<Record>);

    /// What became of the next command, in the order of their submission. It is in the table by then, or was refused
    /// together with all that were submitted behind it before this was polled.
    fn poll_completion(&mut self) -> Option<Result<(), ControlError>>;

    /// The next command with a record that was decided, in order. It is there before the completion of that command.
    fn poll_entry(&mut self) -> Option<Entry>;

    /// Why nothing is decided any more, if so.
    fn failure(&self) -> Option<String>;
}

/// Those who follow a table, and what is under way in its log. What a follower proposes is one more command of that.
///
/// After each call that is given the log comes [`TableLeader::advance`], and then what there is to be sent:
/// [`TableLeader::poll_message`].
pub struct TableLeader {
    /// Whose the commands of the table's log are that are under way, in their order. Of a follower
    /// they have a bound ([`PROPOSED_BYTES_MAX`]), and one refusal at most is among them; of this node
    /// there are as many as requests that wait for one.
    under_way: VecDeque<UnderWay>,
    window: Window,
    /// The table as it is sent in pieces, for as long as there is a follower that needs it.
    snapshot: Weak<Snapshot>,
    followers: BTreeMap<NodeId, Follower>,
    /// The follower that the last message was for.
    polled: NodeId,
    /// The id that the table is to get.
    id: Option<TableId>,
    registering: Registering,
    /// How many refusals there were that waited for their turn.
    last_refusal: u64,
    planted: Planted,
}

/// A command that is not decided.
struct UnderWay {
    origin: Origin,
    claims: Claims,
}

/// Who has submitted a command.
enum Origin {
    /// This node.
    Own(CommandToken),
    /// This node: one that is refused, and not in the log.
    Void(CommandToken, ControlError),
    /// The controller: the table's id.
    Id,
    /// The controller: nodes that have registered.
    Nodes,
    /// A follower. What it proposed when it had seen other than this number of refusals is void.
    Of {
        node: NodeId,
        refusals: u64,
        bytes: usize,
    },
    /// A follower: a proposal that is refused, and not in the log. It goes in the order of the log,
    /// as a refusal of one before it takes it along.
    VoidOf {
        node: NodeId,
        serial: u64,
        refused: Refused,
    },
}

/// A node that follows, or has.
#[derive(Default)]
struct Follower {
    feed: Feed,
    /// How many refusals it has seen when it has seen all that were sent, or are to be.
    refusals: u64,
    /// A refusal to be sent, behind the entries up to this index. There is never a second one: what
    /// could be refused behind it is void until the follower has seen it.
    refused: Option<(u64, Refused)>,
    /// The refusal that waits among the commands under way. What is proposed behind it is void.
    refusing: Option<u64>,
    /// Numbers of its proposals in the table's log.
    under_way: VecDeque<u64>,
    under_way_bytes: usize,
    untaken: u32,
}

/// What a follower is sent next.
#[derive(Default)]
enum Feed {
    /// It has no link, or is not led on this one.
    #[default]
    None,
    /// An answer to this.
    Answer(Follow),
    /// Why it is not led any more.
    End(String),
    /// The table in pieces, from this one on.
    Pieces(Arc<Snapshot>, usize),
    /// The entries behind this index.
    Entries(u64),
}

impl fmt::Debug for TableLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableLeader")
            .field("end", &self.window.end())
            .field("under_way", &self.under_way.len())
            .field("followers", &self.followers.len())
            .finish_non_exhaustive()
    }
}

impl TableLeader {
    /// Leads a table whose log counts records, and that has come to this index.
    pub(crate) fn new(end: u64, planted: Planted) -> Self {
        Self::behind(Window::new(end, Numbers::OfRecords), planted)
    }

    /// Stands by for a table that several may lead, one after the other, whose commands have places in one log. It has
    /// come to this place.
    ///
    /// It is to hear of all that the log decides, whichever of them leads: by [`TableLeader::advance`] and [`TableLeader::pass`].
    /// Nobody is led by it before a message is given to it.
    pub fn standby(end: u64) -> Self {
        Self::behind(Window::new(end, Numbers::OfPlaces), Planted::default())
    }

    /// The same, with a fault that a simulation plants.
    #[cfg(feature = "testing")]
    pub fn plant(&mut self, fault: Option<Fault>) {
        self.planted = Planted::of(fault);
        self.registering = Registering::new(self.planted);
    }

    fn behind(window: Window, planted: Planted) -> Self {
        Self {
            window,
            under_way: VecDeque::new(),
            snapshot: Weak::new(),
            followers: BTreeMap::new(),
            polled: LEADER,
            id: None,
            registering: Registering::new(planted),
            last_refusal: 0,
            planted,
        }
    }

    /// The log has come to this place, with no command for the table behind those that it has given.
    pub fn pass(&mut self, place: u64) {
        self.window.pass(place);
    }

    /// The table is another one, of this place: what was decided between is not known.
    pub fn restored(&mut self, place: u64) {
        self.resign();
        self.window = Window::new(place, Numbers::OfPlaces);
    }

    /// Another leads, or may: nobody is led from here, and nothing is known of what is under way. Those who follow ask
    /// again for what they do not know to be decided, and servers that register ask again.
    pub fn resign(&mut self) {
        self.under_way.clear();
        self.followers.clear();
        self.snapshot = Weak::new();
        self.id = None;
        self.registering = Registering::new(self.planted);
    }

    /// The table gets this id, unless it has one. Nobody is led before.
    pub fn identify(&mut self, log: &mut dyn TableLog, id: TableId) {
        if log.table().id() == TableId(0) {
            self.id = Some(id);
            self.submit_id(log);
        }
    }

    /// Gives the table the id that it is to get.
    fn submit_id(&mut self, log: &mut dyn TableLog) {
        let mut origins = self.under_way.iter().map(|it| &it.origin);
        let is_under_way = origins.any(|origin| matches!(origin, Origin::Id));
        if let Some(id) = self.id.filter(|_| !is_under_way) {
            self.submit_to_table(log, Origin::Id, vec![Record::Table(id)]);
        }
    }

    fn submit_to_table(&mut self, log: &mut dyn TableLog, origin: Origin, records: Vec<Record>) {
        let claims = Claims::of(&records);
        self.under_way.push_back(UnderWay { origin, claims });
        log.submit(records);
    }

    /// Submits a command of this node, unless it is refused. Answered by [`TableLeader::poll_own`].
    pub(crate) fn submit_own(
        &mut self,
        log: &mut dyn TableLog,
        token: CommandToken,
        records: Vec<Record>,
    ) {
        // What was refused and is not polled takes this one with it.
        let void = self.under_way.iter().find_map(|it| match &it.origin {
            Origin::Void(_, error) => Some(error.clone()),
            _ => None,
        });
        let refused = || {
            self.admit(log.table(), &records)
                .map_err(ControlError::Refused)
                .err()
        };
        let origin = match void.or_else(refused) {
            None => return self.submit_to_table(log, Origin::Own(token), records),
            Some(error) => Origin::Void(token, error),
        };
        let claims = Claims::default();
        self.under_way.push_back(UnderWay { origin, claims });
    }

    /// Whether table and commands under way let records be applied.
    fn admit(&self, table: &Table, records: &[Record]) -> Result<(), ErrorReply> {
        if self.planted.is(Fault::NameTwice) {
            return Ok(());
        }
        table.admits(records)?;
        self.refuse_to_remove_followers(records)?;
        let mut claims = self.under_way.iter().map(|it| &it.claims);
        claims.try_for_each(|claims| claims.refuse(records, table))
    }

    /// A node that follows serves, and would go on serving what the table has no more.
    fn refuse_to_remove_followers(&self, records: &[Record]) -> Result<(), ErrorReply> {
        for record in records {
            if let Record::Node(NodeRecord { node, state, .. }) = record
                && *state == NodeState::Removed
                && let Some(follower) = self.followers.get(node)
                && !matches!(follower.feed, Feed::None)
            {
                let message = format!("node {node} runs: end its server before it is removed");
                return Err(ErrorReply::fatal(ErrorCode::Unsupported, message));
            }
        }
        Ok(())
    }

    fn propose(&mut self, log: &mut dyn TableLog, node: NodeId, propose: Propose) {
        let Some(follower) = self.followers.get_mut(&node) else {
            return;
        };
        // It is not led on this link: it proposes this again on the next one.
        if !matches!(follower.feed, Feed::Pieces(..) | Feed::Entries(_)) {
            return;
        }
        let Propose {
            number,
            refusals,
            mut records,
        } = propose;
        // It builds on what is refused: its follower ends it when it sees that refusal.
        let is_void = refusals != follower.refusals || follower.refusing.is_some();
        if is_void && !self.planted.is(Fault::BuiltOnRefused) {
            return;
        }
        let is_decided = number <= log.table().proposed(node);
        let is_known = is_decided || follower.under_way.contains(&number);
        if is_known && !self.planted.is(Fault::ProposedTwice) {
            // Its entry tells.
            return;
        }
        // One of nothing says to its node, when it is decided, that all is there that was decided before.
        if !records.iter().all(is_of_clients) {
            let message = "a proposal is records of the table, and of nothing else";
            let error = ErrorReply::fatal(ErrorCode::Malformed, message);
            self.refuse_in_order(log, node, number, error);
            return;
        }
        if let Err(error) = self.admit(log.table(), &records) {
            self.refuse_in_order(log, node, number, error);
            return;
        }
        let Some(follower) = self.followers.get_mut(&node) else {
            return;
        };
        records.push(Record::Proposed(ProposedRecord { node, number }));
        let bytes = records.iter().map(|it| it.to_bytes().len()).sum::<usize>();
        if follower.under_way_bytes > 0 && follower.under_way_bytes + bytes > PROPOSED_BYTES_MAX {
            let message =
                format!("node {node} has proposed more than {PROPOSED_BYTES_MAX} bytes at once");
            let error = ErrorReply::retryable(ErrorCode::LimitExceeded, 100, message);
            self.refuse_in_order(log, node, number, error);
            return;
        }
        follower.under_way.push_back(number);
        follower.under_way_bytes += bytes;
        let origin = Origin::Of {
            node,
            refusals: follower.refusals,
            bytes,
        };
        self.submit_to_table(log, origin, records);
    }

    /// Refuses a proposal when all before it are decided: one of them may be refused too, and the
    /// follower that hears of this one alone takes that one for decided when a later one is.
    fn refuse_in_order(
        &mut self,
        log: &mut dyn TableLog,
        node: NodeId,
        number: u64,
        error: ErrorReply,
    ) {
        let Some(follower) = self.followers.get_mut(&node) else {
            return;
        };
        let refused = Refused { number, error };
        if self.planted.is(Fault::RefusedAtOnce) {
            self.refuse(node, refused);
            return;
        }
        self.last_refusal += 1;
        let serial = self.last_refusal;
        follower.refusing = Some(serial);
        let origin = Origin::VoidOf {
            node,
            serial,
            refused,
        };
        if self.window.counts_places() {
            // Another may lead by now, and have decided what is refused here: not if this is decided.
            self.submit_to_table(log, origin, Vec::new());
            return;
        }
        let claims = Claims::default();
        self.under_way.push_back(UnderWay { origin, claims });
    }

    /// Refuses a proposal, and all that its follower builds on it.
    fn refuse(&mut self, node: NodeId, refused: Refused) {
        let Some(follower) = self.followers.get_mut(&node) else {
            return;
        };
        follower.refusals += 1;
        follower.refusing = None;
        // What the log has passed without a change is sent to nobody.
        follower.refused = Some((self.window.last(), refused));
    }

    /// A proposal is in the table, or was refused with all that were under way.
    fn proposal_ended(
        &mut self,
        (node, refusals, bytes): (NodeId, u64, usize),
        result: &Result<(), ControlError>,
    ) {
        let Some(follower) = self.followers.get_mut(&node) else {
            return;
        };
        let number = follower.under_way.pop_front();
        follower.under_way_bytes -= bytes;
        let (Err(error), Some(number)) = (result, number) else {
            return;
        };
        if let ControlError::Failed(..) = error {
            // It may be in the log: the next start knows, and tells when it is asked again.
            follower.feed = Feed::End(error.to_string());
        } else if refusals == follower.refusals {
            let error = undecided(error);
            self.refuse(node, Refused { number, error });
        }
    }

    /// A refusal has come to its turn.
    fn void_ended(&mut self, node: NodeId, serial: u64, refused: Refused) {
        let follower = self.followers.get(&node);
        // A refusal of a proposal before it, or a new link, has taken it along.
        if follower.is_some_and(|it| it.refusing == Some(serial)) {
            self.refuse(node, refused);
        }
    }

    /// Takes what the log has decided, up to the first command of this node. Says whether there was any.
    pub fn advance(&mut self, log: &mut dyn TableLog) -> bool {
        while let Some(entry) = log.poll_entry() {
            self.window.push(entry);
        }
        let mut any = false;
        while let Some(next) = self.under_way.front() {
            let result = match next.origin {
                Origin::Own(_) | Origin::Void(..) => break,
                // It is not in the log: nothing completes it.
                Origin::VoidOf { .. } if !self.window.counts_places() => Ok(()),
                Origin::VoidOf { .. } | Origin::Id | Origin::Nodes | Origin::Of { .. } => {
                    match log.poll_completion() {
                        Some(result) => result,
                        None => break,
                    }
                }
            };
            any = true;
            match self.under_way.pop_front().map(|it| it.origin) {
                Some(Origin::Of {
                    node,
                    refusals,
                    bytes,
                }) => self.proposal_ended((node, refusals, bytes), &result),
                Some(Origin::VoidOf {
                    node,
                    serial,
                    refused,
                }) => self.void_ended(node, serial, refused),
                Some(Origin::Nodes) => self.registering.decided(&result),
                // It is tried again when somebody follows.
                Some(Origin::Id) if result.is_ok() => self.id = None,
                _ => {}
            }
        }
        if any {
            self.submit_nodes(log);
        }
        any
    }

    /// A server asks on this link which node it is. Answered by [`TableLeader::poll_registered`], when that is decided.
    pub fn register(&mut self, link: LinkId, register: Register) {
        self.registering.register(link, register);
    }

    /// A node that has registered is to have this state. What became of it the table says: the leader may end first.
    pub fn set_state(&mut self, node: NodeId, state: NodeState) {
        self.registering.set_state(node, state);
    }

    /// The next answer to a server that has registered, and its link. Polled when [`TableLeader::advance`] was called.
    pub fn poll_registered(&mut self) -> Option<(LinkId, Result<Registered, ErrorReply>)> {
        self.registering.poll_answer()
    }

    /// Submits what is to be said of nodes that have registered, if nothing about nodes is under way. Called before the log
    /// goes on: changes of nodes that came with them go first.
    pub fn submit_nodes(&mut self, log: &mut dyn TableLog) {
        let mut claims = self.under_way.iter().map(|it| &it.claims);
        if !self.registering.is_waiting() || claims.any(Claims::have_node) {
            return;
        }
        if let Some(records) = self.registering.next_command(log.table()) {
            self.submit_to_table(log, Origin::Nodes, records);
        }
    }

    /// What became of the next command of this node.
    pub(crate) fn poll_own(
        &mut self,
        log: &mut dyn TableLog,
    ) -> Option<(CommandToken, Result<(), ControlError>)> {
        self.advance(log);
        let decided = match self.under_way.front().map(|it| &it.origin) {
            Some(Origin::Void(token, error)) => (*token, Err(error.clone())),
            Some(Origin::Own(token)) => (*token, log.poll_completion()?),
            _ => return None,
        };
        self.under_way.pop_front();
        self.submit_nodes(log);
        Some(decided)
    }

    /// A link to a node stands, new, or is gone: it begins when it says how far it has come.
    pub fn linked(&mut self, peer: NodeId) {
        if let Some(follower) = self.followers.get_mut(&peer) {
            follower.feed = Feed::None;
            // One that comes again says all that is kept of it.
            if follower.under_way.is_empty() {
                self.followers.remove(&peer);
            }
        }
    }

    /// Some time has passed: what was refused for want of space is tried again.
    pub fn retry(&mut self, log: &mut dyn TableLog) {
        self.submit_id(log);
    }

    /// A message of another node came on its link.
    pub fn take_message(&mut self, log: &mut dyn TableLog, from: NodeId, message: TableMessage) {
        match message {
            TableMessage::Follow(follow) => {
                let is_known = self.followers.contains_key(&from);
                if follow.node != from || !is_known && self.followers.len() >= FOLLOWERS_MAX {
                    return;
                }
                let follower = self.followers.entry(from).or_default();
                follower.refusals = follow.refusals;
                follower.refused = None;
                // What was on its way on the last link is proposed again.
                follower.refusing = None;
                follower.untaken = 0;
                follower.feed = Feed::Answer(follow);
                self.submit_id(log);
            }
            TableMessage::Propose(propose) => self.propose(log, from, propose),
            TableMessage::Took(took) => {
                if let Some(follower) = self.followers.get_mut(&from) {
                    follower.untaken = follower.untaken.saturating_sub(took.count);
                }
            }
            // A leader says these.
            TableMessage::Leads(_)
            | TableMessage::Unled(_)
            | TableMessage::Piece(_)
            | TableMessage::Entries(_)
            | TableMessage::Refused(_)
            | TableMessage::Registered(_) => {}
            // A node that has an id says this on no link of its own.
            TableMessage::Register(_) => {}
        }
    }

    /// The next message for another node, to be sent on its link.
    pub fn poll_message(&mut self, log: &dyn TableLog) -> Option<(NodeId, TableMessage)> {
        // From the one on that had the last message: all together are gone through once.
        let last = self.polled;
        let rounds = [
            (Bound::Included(last), Bound::Unbounded),
            (Bound::Unbounded, Bound::Excluded(last)),
        ];
        for (mut from, until) in rounds {
            while let Some((&node, _)) = self.followers.range((from, until)).next() {
                if let Some(message) = self.next_for(log, node) {
                    self.polled = node;
                    return Some((node, message));
                }
                from = Bound::Excluded(node);
            }
        }
        None
    }

    fn next_for(&mut self, log: &dyn TableLog, node: NodeId) -> Option<TableMessage> {
        let is_ready = self.id.is_none();
        let follower = self.followers.get_mut(&node)?;
        let (table, window) = (log.table(), &self.window);
        if !matches!(follower.feed, Feed::None | Feed::End(_))
            && let Some(reason) = log.failure()
        {
            follower.feed = Feed::End(format!("{} failed: {reason}", Home::Table));
        }
        if let Feed::End(reason) = &mut follower.feed {
            let reason = std::mem::take(reason);
            follower.feed = Feed::None;
            let reason = format!("the node that leads decides nothing: {reason}");
            return Some(TableMessage::Unled(Unled { reason }));
        }
        if let Feed::Answer(follow) = &follower.feed {
            // A copy that has more has it of a later leader: this one is about to hear of that, or of what it lacks.
            let is_behind = window.counts_places() && follow.index > window.end();
            if !is_ready || is_behind {
                return None;
            }
            let proposed = follower.under_way.back().copied().unwrap_or(0);
            // Of what the log has behind this without a change nothing is sent: the follower would wait for it.
            let index = match self.planted.is(Fault::PlacesCounted) {
                true => window.end(),
                false => window.last().max(follow.index.min(window.end())),
            };
            let leads = Leads {
                table: table.id(),
                index,
                proposed: proposed.max(table.proposed(node)),
            };
            let is_of_it = follow.table == table.id()
                || follow.table == TableId(0)
                || self.planted.is(Fault::ForeignLeader);
            follower.feed = match is_of_it && follow.index <= window.end() {
                true if window.has(follow.index) => Feed::Entries(follow.index),
                true => {
                    let behind = follow.index;
                    Feed::Pieces(shared(&mut self.snapshot, table, window, behind), 0)
                }
                // The follower sees it by the answer.
                false => Feed::None,
            };
            return Some(TableMessage::Leads(leads));
        }
        if let Feed::Entries(sent) = follower.feed
            && let Some((_, refused)) = follower.refused.take_if(|(behind, _)| *behind <= sent)
        {
            return Some(TableMessage::Refused(refused));
        }
        if follower.untaken >= UNTAKEN_MAX {
            return None;
        }
        let message = match &mut follower.feed {
            Feed::None | Feed::Answer(_) | Feed::End(_) => return None,
            Feed::Pieces(snapshot, next) => {
                let piece = snapshot.piece(*next);
                *next += 1;
                if piece.is_last {
                    follower.feed = Feed::Entries(piece.index);
                }
                TableMessage::Piece(piece)
            }
            Feed::Entries(sent) => {
                if !window.has(*sent) {
                    let snapshot = shared(&mut self.snapshot, table, window, *sent);
                    follower.feed = Feed::Pieces(snapshot, 0);
                    return self.next_for(log, node);
                }
                let (after, entries) = (*sent, window.behind(*sent));
                *sent = entries.last()?.index;
                TableMessage::Entries(Entries { after, entries })
            }
        };
        follower.untaken += 1;
        Some(message)
    }
}

/// The table for a follower that has come so far: one that others are sent too, if the entries
/// behind it are there, or as it is now.
fn shared(
    latest: &mut Weak<Snapshot>,
    table: &Table,
    window: &Window,
    behind: u64,
) -> Arc<Snapshot> {
    let known = latest.upgrade();
    let known = known.filter(|it| it.index() >= behind && window.has(it.index()));
    known.unwrap_or_else(|| {
        let snapshot = Arc::new(Snapshot::of(table, window.end()));
        *latest = Arc::downgrade(&snapshot);
        snapshot
    })
}

#[cfg(test)]
impl TableLeader {
    /// How many copies of the table are kept for followers.
    pub fn copies(&self) -> usize {
        let feeds = self.followers.values().map(|follower| &follower.feed);
        let mut copies: Vec<_> = feeds
            .filter_map(|feed| match feed {
                Feed::Pieces(snapshot, _) => Some(Arc::as_ptr(snapshot)),
                _ => None,
            })
            .collect();
        copies.sort_unstable();
        copies.dedup();
        copies.len()
    }
}

#[cfg(test)]
mod tests;
