//! The controller of a node that follows a table which another one leads.

use super::leader::{PROPOSED_BYTES_MAX, UNTAKEN_MAX};
use super::{CatchingUp, Command, CommandToken, ControlError, Controller, Home, LEADER, Single};
use crate::blocking::Blocking;
use crate::coordinator::table::Table;
use crate::faults::{Fault, Planted};
use crate::ids::{Now, StorageId};
use crate::options::NodeError;
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use std::collections::VecDeque;
use std::time::Duration;
use wire::record::{FollowedRecord, Record};
use wire::table::{
    Entries, Follow, Leads, MESSAGE_BYTES_MAX, Piece, Propose, Refused, TableMessage, Took,
};
use wire::{Codec, Durability, ErrorReply, NodeId, Offset, TableId};

/// After this time what found no space in the copy's log is written again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A copy of a table, and a ledger of this node's own. The copy's log has what the leader has decided
/// as far as this node has recorded it, and nothing else: it is read at a start, and is no authority.
///
/// What is submitted for the table is proposed to the leader, and completed when its entry is recorded
/// here. Until it is known that a proposal was decided it is asked again under the same number, on
/// one link after the other.
///
/// ```text
///            link up: Follow              Leads, of the table of which this is a copy
///   Down ────────────────────► Asked ───────────────────────────────────────────────► Led
///    ▲                           │ Leads of another table, or of one that is behind    │
///    │                           ▼                                                     │ Unled
///    └──────── link down ──── Apart ◄──────────────────────────────────────────────────┘
/// ```
pub(crate) struct Following {
    single: Single,
    node: NodeId,
    /// The table that this is a copy of; 0 if it is none yet.
    table: TableId,
    link: Link,
    /// What the leader has sent and is not recorded, in its order.
    steps: VecDeque<Step>,
    /// How many of them the copy's log has under way.
    recording: usize,
    /// Pieces of a table that are not all there.
    pieces: Vec<Record>,
    pieces_bytes: usize,
    /// How far that which came goes.
    received: u64,
    /// How far this copy was to come when the leader answered last.
    led_from: u64,
    /// The copy has lost records, and is not built on.
    anew: Option<Anew>,
    /// Commands for the table that are not completed, in the order of their submission.
    pending: VecDeque<Pending>,
    /// The number of the next proposal, once a leader has said which were used.
    next_number: Option<u64>,
    /// How many refusals were carried out here.
    refusals: u64,
    done: VecDeque<(CommandToken, Result<(), ControlError>)>,
    messages: VecDeque<TableMessage>,
    /// Pieces and lists of entries that were recorded, and of which the leader does not know that.
    took: u32,
    notices: VecDeque<String>,
    patience: Duration,
    now: Duration,
    /// When the copy's log is tried again, which had no space.
    retry_at: Option<Duration>,
    /// Nothing waits for a leader that is away.
    is_draining: bool,
    planted: Planted,
}

/// How far a copy that has lost records has come with another one.
enum Anew {
    /// What has come of the leader's table, from its beginning.
    Gathering(Box<Table>),
    /// All of it has, and what differs is to be recorded.
    Recording,
}

/// See the drawing at [`Following`].
enum Link {
    Down,
    Asked,
    Led,
    /// Why the leader is not followed.
    Apart(String),
}

/// Something to be recorded or done, in the leader's order.
struct Step {
    what: StepWhat,
    /// Whether it is the last of a message that is counted, which came on the link of now.
    is_counted: bool,
}

enum StepWhat {
    /// So far the table comes with these records.
    Entry(u64, Vec<Record>),
    /// All of the table, at this index.
    Snapshot(u64, Vec<Record>),
    Refused(Refused),
}

/// A command that is to be decided.
struct Pending {
    token: CommandToken,
    records: Vec<Record>,
    bytes: usize,
    /// Its number, once it was proposed.
    number: Option<u64>,
    /// Whether it was sent on the link of now.
    is_sent: bool,
    /// When it was submitted.
    since: Duration,
    /// Whether it is proposed although it has no records: when it is decided, all that was decided before it is here.
    is_barrier: bool,
}

impl Pending {
    /// Whether nothing is to be decided: it is done when all before it is.
    fn is_marker(&self) -> bool {
        self.records.is_empty() && !self.is_barrier
    }
}

impl Following {
    /// Follows with what was replayed: an empty table, or a copy of the leader's. A change waits for
    /// a leader as long as `patience`.
    pub fn new(mut single: Single, node: NodeId, patience: Duration, planted: Planted) -> Self {
        single.ledger.keep_to(node);
        Self {
            anew: None,
            received: single.table.followed(),
            table: single.table.id(),
            single,
            node,
            link: Link::Down,
            steps: VecDeque::new(),
            led_from: 0,
            recording: 0,
            pieces: Vec::new(),
            pieces_bytes: 0,
            pending: VecDeque::new(),
            next_number: None,
            refusals: 0,
            done: VecDeque::new(),
            messages: VecDeque::new(),
            took: 0,
            notices: VecDeque::new(),
            patience,
            now: Duration::ZERO,
            retry_at: None,
            is_draining: false,
            planted,
        }
    }

    /// The same, of which records are lost: it takes over all of the leader's table before it counts as a copy.
    pub fn anew(mut self) -> Self {
        self.received = 0;
        self.anew = Some(Anew::Gathering(Box::default()));
        self
    }

    fn submit_to_table(&mut self, token: CommandToken, records: Vec<Record>, is_barrier: bool) {
        // The caller has not seen a refusal that waits here, and builds on what goes with it.
        let refused = self
            .done
            .iter()
            .find_map(|(_, result)| result.clone().err());
        let failed = self.single.failure(Home::Table);
        let failed = failed.map(|reason| ControlError::Failed(Home::Table, reason));
        if let Some(error) = refused.or(failed) {
            self.done.push_back((token, Err(error)));
            return;
        }
        let bytes = records.iter().map(|it| it.to_bytes().len()).sum();
        self.pending.push_back(Pending {
            token,
            records,
            bytes,
            number: None,
            is_sent: false,
            since: self.now,
            is_barrier,
        });
    }

    /// A leader has answered.
    fn led(&mut self, leads: &Leads) {
        if !matches!(self.link, Link::Asked) {
            return;
        }
        if let Some(reason) = self.differs(leads)
            && !self.planted.is(Fault::ForeignLeader)
        {
            self.part(reason);
            return;
        }
        self.link = Link::Led;
        self.led_from = leads.index;
        self.table = leads.table;
        if self.next_number.is_none() {
            self.next_number = Some(leads.proposed.saturating_add(1));
            if leads.proposed > self.single.table.proposed(self.node) {
                self.notices.push_back(
                    "what this node had proposed when it ended was decided since, or will be: it is \
                     in the table, and served from the next start of this node on"
                        .into(),
                );
            }
        }
    }

    /// Why what is here is no copy of the leader's table.
    fn differs(&self, leads: &Leads) -> Option<String> {
        let (own, index) = (self.table, self.received);
        if index == 0 && !self.single.table.is_blank() && self.anew.is_none() {
            return Some(
                "this data directory has a table of its own: a node that follows begins with an \
                 empty one"
                    .into(),
            );
        }
        if own != TableId(0) && own != leads.table {
            return Some(format!(
                "the node that leads has table {}, and this node a copy of table {own}: nothing of \
                 either was changed. Join it to its own leader, or begin with an empty data directory",
                leads.table
            ));
        }
        (index > leads.index).then(|| {
            format!(
                "the table of the node that leads ends at {}, and the copy of this node at {index}: \
                 the leader has lost what it had decided, or is an older copy of itself. Nothing \
                 was changed",
                leads.index
            )
        })
    }

    /// The leader is not followed any more on this link.
    fn part(&mut self, reason: String) {
        self.notices
            .push_back(format!("the table is not followed: {reason}"));
        self.link = Link::Apart(reason);
        self.forget_link();
    }

    /// What was on its way is lost.
    fn forget_link(&mut self) {
        if let Some(Anew::Gathering(table)) = &mut self.anew {
            **table = Table::default();
            self.received = 0;
        }
        self.messages.clear();
        self.pieces.clear();
        self.pieces_bytes = 0;
        self.took = 0;
        for step in &mut self.steps {
            step.is_counted = false;
        }
        for pending in &mut self.pending {
            pending.is_sent = false;
        }
    }

    fn push(&mut self, what: StepWhat, is_counted: bool) {
        self.steps.push_back(Step { what, is_counted });
    }

    fn entries_came(&mut self, entries: Entries) {
        if entries.after != self.received {
            let (after, here) = (entries.after, self.received);
            self.part(format!(
                "entries behind {after} came where those behind {here} are next"
            ));
            return;
        }
        let untaken = self.steps.iter().filter(|step| step.is_counted).count();
        if untaken >= UNTAKEN_MAX as usize {
            self.part("more has come than can be recorded".into());
            return;
        }
        if matches!(self.anew, Some(Anew::Gathering(_))) {
            return self.gather(entries);
        }
        let count = entries.entries.len();
        if count == 0 {
            self.took += 1;
        }
        for (place, entry) in entries.entries.into_iter().enumerate() {
            self.received = entry.index;
            let is_last = place + 1 == count;
            let records = match self.planted.is(Fault::EntrySkipped) && entry.index % 5 == 0 {
                true => Vec::new(),
                false => entry.records,
            };
            self.push(StepWhat::Entry(entry.index, records), is_last);
        }
    }

    /// Entries from the beginning on: what they come to is taken over as a whole, for what is here is not to go back.
    fn gather(&mut self, entries: Entries) {
        let Some(Anew::Gathering(table)) = &mut self.anew else {
            return;
        };
        for entry in entries.entries {
            self.received = entry.index;
            entry.records.into_iter().for_each(|it| table.apply(it));
        }
        self.took += 1;
        if self.received >= self.led_from {
            let records = Table::default().records_to(table);
            self.anew = Some(Anew::Recording);
            self.push(StepWhat::Snapshot(self.received, records), false);
        }
    }

    /// A leader refuses nothing before it is known here what it has refused last: nothing is proposed.
    fn refused_came(&mut self, refused: Refused) {
        if self.has_refused() {
            self.part("a second refusal came before the first was carried out".into());
            return;
        }
        self.push(StepWhat::Refused(refused), false);
    }

    fn piece_came(&mut self, mut piece: Piece) {
        self.pieces_bytes += piece
            .records
            .iter()
            .map(|it| it.to_bytes().len())
            .sum::<usize>();
        if self.pieces_bytes > MESSAGE_BYTES_MAX {
            self.part(format!(
                "the table is longer than {MESSAGE_BYTES_MAX} bytes"
            ));
            return;
        }
        self.pieces.append(&mut piece.records);
        if !piece.is_last {
            self.took += 1;
            return;
        }
        self.received = piece.index;
        if self.anew.is_some() {
            self.anew = Some(Anew::Recording);
        }
        self.pieces_bytes = 0;
        let records = std::mem::take(&mut self.pieces);
        self.push(StepWhat::Snapshot(piece.index, records), true);
    }

    /// Has the copy's log record what it may.
    fn record(&mut self) {
        if self.single.failure(Home::Table).is_some() {
            // Nothing is tried again before the next start.
            self.retry_at = None;
            return;
        }
        if self.retry_at.is_some_and(|at| self.now < at) {
            return;
        }
        self.retry_at = None;
        while let Some(step) = self.steps.get(self.recording) {
            let (index, mut records) = match &step.what {
                StepWhat::Entry(index, records) => (*index, records.clone()),
                // Made of what is in the table by then.
                StepWhat::Snapshot(..) if self.recording > 0 => return,
                StepWhat::Snapshot(index, records) => {
                    let mut later = Table::default();
                    records.iter().for_each(|it| later.apply(it.clone()));
                    let mut changes = self.single.table.records_to(&later);
                    changes.retain(|it| Home::of(it) == Home::Table);
                    (*index, changes)
                }
                StepWhat::Refused(_) if self.recording > 0 => return,
                StepWhat::Refused(refused) => {
                    let refused = refused.clone();
                    // What was proposed before it is recorded by now.
                    self.complete_pending();
                    self.steps.pop_front();
                    self.refusals += 1;
                    self.refuse(refused.number, &refused.error);
                    continue;
                }
            };
            let node = self.node;
            records.push(Record::Followed(FollowedRecord { node, index }));
            let command = Command {
                home: Home::Table,
                records,
                durability: Durability::Synced,
            };
            self.recording += 1;
            // Completions are matched by their order.
            self.single.internal.submit(CommandToken(0), command);
        }
    }

    /// The leader has refused a proposal: with it goes all that was submitted behind it.
    fn refuse(&mut self, number: u64, error: &ErrorReply) {
        let is_before = |pending: &Pending| pending.number.is_some_and(|own| own < number);
        let from = self.pending.iter().take_while(|it| is_before(it)).count();
        self.end_from(from, &ControlError::Refused(error.clone()));
    }

    /// Ends what was submitted at this place and behind it.
    fn end_from(&mut self, place: usize, error: &ControlError) {
        let ended = self.pending.drain(place..);
        self.done
            .extend(ended.map(|pending| (pending.token, Err(error.clone()))));
    }

    /// Takes what the copy's log has recorded. Says whether that was anything.
    fn take_recorded(&mut self) -> bool {
        let mut any = false;
        while let Some((_, result)) = self.single.internal.poll_completion() {
            any = true;
            self.recording -= 1;
            if result.is_err() {
                // It was decided: here it waits.
                self.retry_at.get_or_insert(self.now + RETRY_AFTER);
            } else if let Some(step) = self.steps.pop_front() {
                if matches!(step.what, StepWhat::Snapshot(..)) {
                    self.anew = None;
                }
                self.took += u32::from(step.is_counted);
            }
        }
        any
    }

    /// Completes what is in the copy.
    fn complete_pending(&mut self) {
        let decided = self.single.table.proposed(self.node);
        while let Some(pending) = self.pending.front() {
            let is_done = match pending.number {
                Some(number) => number <= decided,
                None => pending.is_marker(),
            };
            if !is_done {
                break;
            }
            let token = pending.token;
            self.pending.pop_front();
            self.done.push_back((token, Ok(())));
        }
    }

    /// Whether a refusal came that is not carried out.
    fn has_refused(&self) -> bool {
        let is_refused = |step: &Step| matches!(step.what, StepWhat::Refused(_));
        self.steps.iter().any(is_refused)
    }

    /// Proposes what was not proposed on this link.
    fn propose(&mut self) {
        // What was refused and is still here is not to be proposed again.
        if !matches!(self.link, Link::Led) || self.has_refused() {
            return;
        }
        let sent = self.pending.iter().filter(|pending| pending.is_sent);
        let mut bytes: usize = sent.map(|pending| pending.bytes).sum();
        for pending in &mut self.pending {
            if pending.is_sent || pending.is_marker() {
                continue;
            }
            if bytes > 0 && bytes + pending.bytes > PROPOSED_BYTES_MAX / 2 {
                return;
            }
            bytes += pending.bytes;
            pending.is_sent = true;
            let number = match pending.number {
                Some(number) => number,
                None => {
                    let next = self.next_number.get_or_insert(1);
                    let number = *next;
                    *next += 1;
                    number
                }
            };
            pending.number = Some(number);
            self.messages.push_back(TableMessage::Propose(Propose {
                number,
                refusals: self.refusals,
                records: pending.records.clone(),
            }));
        }
    }

    /// The first change that no leader can have heard of, and since when it waits.
    fn first_unheard(&self) -> Option<(usize, Duration)> {
        let is_unheard = |it: &&Pending| it.number.is_none() && !it.is_marker();
        let place = self.pending.iter().position(|it| is_unheard(&it))?;
        Some((place, self.pending[place].since))
    }

    /// Ends what is not completed: nothing of the leader comes any more.
    fn end_pending(&mut self) {
        // What a leader may have heard of is in the table, or is not: nobody here knows.
        let unheard = self.pending.iter().rposition(|it| it.number.is_some());
        let unheard = unheard.map_or(0, |last| last + 1);
        let unknown = ControlError::Unknown(
            "this node ends, and it is not known whether the node that leads the table has carried \
             it out, or will"
                .into(),
        );
        let unled = self.unled();
        let ended = self.pending.drain(..).enumerate();
        self.done.extend(ended.map(|(place, pending)| {
            let error = if place < unheard { &unknown } else { &unled };
            (pending.token, Err(error.clone()))
        }));
    }

    /// Refuses what has waited too long for a leader.
    fn expire(&mut self) {
        if matches!(self.link, Link::Led) {
            return;
        }
        if self.is_draining {
            self.end_pending();
        }
        // Nothing is built on one without records, whether a leader has heard of it or not.
        let (now, patience) = (self.now, self.patience);
        let is_late = |it: &Pending| it.is_barrier && now >= it.since + patience;
        if self.pending.iter().any(is_late) {
            let error = self.unled();
            let pending = std::mem::take(&mut self.pending);
            let (late, stay): (VecDeque<_>, VecDeque<_>) = pending.into_iter().partition(is_late);
            self.pending = stay;
            let late = late.into_iter().map(|it| (it.token, Err(error.clone())));
            self.done.extend(late);
        }
        let late = self.first_unheard();
        if let Some((place, _)) = late.filter(|(_, since)| self.now >= *since + self.patience) {
            let error = self.unled();
            self.end_from(place, &error);
        }
    }

    fn unled(&self) -> ControlError {
        match &self.link {
            Link::Apart(reason) => ControlError::Apart(reason.clone()),
            _ => ControlError::Apart(format!(
                "the node that leads the table (node {LEADER}) has not been reached"
            )),
        }
    }

    /// Whether something is under way that the leader may decide soon.
    fn awaits_leader(&self) -> bool {
        let is_fresh = |pending: &Pending| self.now < pending.since + self.patience;
        matches!(self.link, Link::Led) && self.pending.iter().any(is_fresh)
    }
}

impl Controller for Following {
    fn table(&self) -> &Table {
        &self.single.table
    }

    fn set_time(&mut self, now: Now) {
        self.now = now.monotonic;
        self.single.set_time(now);
    }

    fn submit(&mut self, token: CommandToken, command: Command) {
        match command.home {
            Home::Table => self.submit_to_table(token, command.records, false),
            Home::Ledger => self.single.submit(token, command),
        }
    }

    fn submit_barrier(&mut self, token: CommandToken) {
        self.submit_to_table(token, Vec::new(), true);
    }

    fn poll_completion(&mut self) -> Option<(CommandToken, Result<(), ControlError>)> {
        let done = self.done.pop_front();
        done.or_else(|| self.single.ledger.poll_completion())
    }

    fn advance(&mut self) {
        self.record();
        self.single.advance();
        while self.take_recorded() {
            self.record();
            self.single.advance();
        }
        self.complete_pending();
        // A refusal is carried out when all before it is recorded.
        self.record();
        if let Some(reason) = self.single.failure(Home::Table) {
            self.end_from(0, &ControlError::Failed(Home::Table, reason));
        }
        self.propose();
        self.expire();
        self.complete_pending();
        if self.took > 0 && matches!(self.link, Link::Led) {
            let count = std::mem::take(&mut self.took);
            self.messages.push_back(TableMessage::Took(Took { count }));
        }
    }

    fn poll_operation(&mut self) -> Option<(StorageId, OperationToken, Operation)> {
        self.single.poll_operation()
    }

    fn complete(
        &mut self,
        storage: StorageId,
        token: OperationToken,
        result: Result<Outcome, DiskError>,
    ) {
        self.single.complete(storage, token, result);
    }

    fn end(&self, home: Home) -> Offset {
        self.single.end(home)
    }

    fn failure(&self, home: Home) -> Option<String> {
        self.single.failure(home)
    }

    fn is_idle(&self) -> bool {
        self.single.is_idle() && !self.awaits_leader()
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn close(&mut self) {
        self.end_pending();
        self.steps.truncate(self.recording);
        self.single.close();
    }

    fn is_closed(&self) -> bool {
        self.single.is_closed()
    }

    fn linked(&mut self, peer: NodeId, is_up: bool) {
        if peer != LEADER {
            return;
        }
        self.forget_link();
        self.link = match is_up {
            false => Link::Down,
            true => {
                // One that waits for entries before it is carried out before anything is proposed.
                let refusals = self.refusals + u64::from(self.has_refused());
                self.messages.push_back(TableMessage::Follow(Follow {
                    node: self.node,
                    table: self.table,
                    index: self.received,
                    refusals,
                }));
                Link::Asked
            }
        };
    }

    fn take_message(&mut self, from: NodeId, message: TableMessage) {
        let is_led = matches!(self.link, Link::Led);
        match message {
            _ if from != LEADER => {}
            TableMessage::Leads(leads) => self.led(&leads),
            TableMessage::Unled(unled) => self.part(unled.reason),
            TableMessage::Piece(piece) if is_led => self.piece_came(piece),
            TableMessage::Entries(entries) if is_led => self.entries_came(entries),
            TableMessage::Refused(refused) if is_led => self.refused_came(refused),
            // Of a leader that is not followed; or a follower says these.
            TableMessage::Piece(_)
            | TableMessage::Entries(_)
            | TableMessage::Refused(_)
            | TableMessage::Follow(_)
            | TableMessage::Propose(_)
            | TableMessage::Took(_) => {}
            // Who follows has registered before.
            TableMessage::Register(_) | TableMessage::Registered(_) => {}
        }
    }

    fn poll_message(&mut self) -> Option<(NodeId, TableMessage)> {
        Some((LEADER, self.messages.pop_front()?))
    }

    fn next_timer(&self) -> Option<Duration> {
        let late = match self.link {
            Link::Led => None,
            _ => self.first_unheard(),
        };
        let barrier = self.pending.iter().find(|it| it.is_barrier);
        let barrier = barrier.filter(|_| !matches!(self.link, Link::Led));
        let late = late.map(|(_, since)| since).into_iter();
        let late = late.chain(barrier.map(|it| it.since));
        let late = late.min().map(|since| since + self.patience);
        late.into_iter().chain(self.retry_at).min()
    }

    fn catching_up(&self) -> CatchingUp {
        if let Some(reason) = self.single.failure(Home::Table) {
            return CatchingUp::Never(reason);
        }
        match &self.link {
            Link::Apart(reason) => CatchingUp::Never(reason.clone()),
            Link::Led if self.anew.is_some() => CatchingUp::UnderWay,
            Link::Led if self.single.table.followed() >= self.led_from => CatchingUp::Done,
            _ => CatchingUp::UnderWay,
        }
    }

    fn replay_ledger(&mut self, disk: &dyn Disk) -> Result<(), NodeError> {
        let blocking = Blocking { disk };
        self.single.replay_ledger(&mut Vec::new(), &blocking)
    }

    fn poll_notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }
}
