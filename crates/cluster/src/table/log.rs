//! The table's commands in the quorum's log.

use crate::faults::{Fault, planted};
use crate::quorum::{PAYLOAD_BYTES_MAX, Refused, RequestId, SNAPSHOT_BYTES_MAX, Settings};
use crate::random::Random;
use broker::controller::{ControlError, Home, TableLog};
use broker::table::Table;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use wire::codec::{Codec, DecodeError, Reader};
use wire::record::Record;
use wire::table::Entry;
use wire::{ErrorCode, ErrorReply};

/// Commands that the quorum has at once; more wait here.
const PROPOSED_MAX: usize = 256;
/// A table of so many bytes gets nothing new; what makes it smaller, and what goes on with what there is, has the rest of a
/// snapshot's space.
const TABLE_BYTES_MAX: usize = SNAPSHOT_BYTES_MAX / 4 * 3;
/// A table that seems full is counted anew so often at most.
const COUNTED_EVERY: Duration = Duration::from_secs(1);
/// After how long a caller is to ask again that was refused for want of space, milliseconds.
const FULL_RETRY_MS: u32 = 1000;

/// The table as the quorum has decided it so far, and the commands of a voter that leads.
///
/// A command that the quorum refuses takes with it all behind it, for those build on it:
///
/// ```text
///      another is about to lead, or there is no space
///     ┌───────────────┐
///     ▼               │
///   Gathered ──► Proposed ──► Decided
///      │             │ refused, or one before it is
///      └─────────────┴──────► Refused
/// ```
pub(super) struct QuorumLog {
    table: Table,
    entries: VecDeque<Entry>,
    /// In the order of their submission; those that are over first, those not proposed last.
    commands: VecDeque<Command>,
    /// The quorum takes none for now: another is about to lead, or there is no space.
    is_held: bool,
    now: Duration,
    /// A command waits so long for space before it is refused: longer than two elections take. Who leads as long as that after it
    /// was asked knows of all that was decided before, so that the command was not.
    full_after: Duration,
    failure: Option<String>,
    random: Random,
    /// The bytes of the table at most: as a snapshot, and of the entries since it was counted.
    bytes: usize,
    /// Whether there were entries since, and when that was.
    is_counted: bool,
    /// Of the commands that were not refused when they were submitted.
    under_way_bytes: usize,
    counted_at: Duration,
    bytes_max: usize,
}

struct Command {
    request: RequestId,
    /// When it was submitted.
    since: Duration,
    state: State,
    /// What it counts among those under way.
    bytes: usize,
}

enum State {
    Gathered(Bytes),
    Proposed(Bytes),
    Decided,
    Refused(ControlError),
}

impl QuorumLog {
    pub(super) fn new(random: Random, settings: &Settings) -> Self {
        let elections = settings.election_ticks_max as u32 * 5 / 2;
        Self {
            table: Table::default(),
            entries: VecDeque::new(),
            commands: VecDeque::new(),
            is_held: false,
            now: Duration::ZERO,
            full_after: settings.tick * elections,
            failure: None,
            random,
            bytes: 0,
            is_counted: true,
            under_way_bytes: 0,
            counted_at: Duration::ZERO,
            bytes_max: TABLE_BYTES_MAX,
        }
    }

    /// An id that no request had.
    pub(super) fn request_id(&mut self) -> RequestId {
        let high = u128::from(self.random.number()) << 64;
        RequestId(high | u128::from(self.random.number()))
    }

    /// The next command that the quorum is to be asked for.
    pub(super) fn next_to_propose(&mut self) -> Option<(RequestId, Bytes)> {
        let is_proposed = |it: &&Command| matches!(it.state, State::Proposed(_));
        if self.is_held || self.commands.iter().filter(is_proposed).count() >= PROPOSED_MAX {
            return None;
        }
        let mut commands = self.commands.iter_mut();
        commands.find_map(|command| match &mut command.state {
            State::Gathered(payload) => {
                let payload = std::mem::take(payload);
                command.state = State::Proposed(payload.clone());
                Some((command.request, payload))
            }
            _ => None,
        })
    }

    /// Applies what was decided.
    pub(super) fn apply(&mut self, index: u64, payload: &[u8]) -> Result<(), DecodeError> {
        let records = read("command of the table", payload)?;
        for record in &records {
            self.table.apply(record.clone());
        }
        if !records.is_empty() {
            self.entries.push_back(Entry { index, records });
        }
        self.bytes += payload.len();
        self.is_counted = false;
        Ok(())
    }

    fn counted(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.is_counted = true;
        self.counted_at = self.now;
    }

    /// Why records are not asked for that make the table larger, if so.
    fn is_full(&mut self, records: &[Record]) -> Option<ErrorReply> {
        let grows = |record: &Record| match record {
            Record::Topic(_) | Record::Consumer(_) => true,
            // One that opens again has a later epoch, and no more.
            Record::Producer(it) => {
                let topic = self.table.topic(it.topic);
                topic.is_none_or(|topic| !topic.producers.contains_key(&it.name))
            }
            Record::Node(node) => self.table.nodes().get(node.node).is_none(),
            _ => false,
        };
        let is_over = |log: &Self| log.bytes + log.under_way_bytes >= log.bytes_max;
        if !is_over(self) || !records.iter().any(grows) {
            return None;
        }
        // What was deleted, and what was written twice, is in it until then.
        if !self.is_counted && self.now >= self.counted_at + COUNTED_EVERY {
            self.counted(self.snapshot().len());
        }
        let bytes = self.bytes + self.under_way_bytes;
        (bytes >= self.bytes_max).then(|| {
            let message = format!(
                "the table of the cluster has {bytes} bytes, and at most {}: delete topics, groups or queues that nobody needs",
                self.bytes_max
            );
            ErrorReply::fatal(ErrorCode::LimitExceeded, message)
        })
    }

    /// The table is as this snapshot has it; one without bytes is that of a cluster that was just founded.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.table = Table::default();
        self.entries.clear();
        if !bytes.is_empty() {
            let records = read("snapshot of the table", bytes)?;
            records.into_iter().for_each(|it| self.table.apply(it));
        }
        self.counted(bytes.len());
        Ok(())
    }

    /// The table as a snapshot.
    pub(super) fn take_snapshot(&mut self) -> Bytes {
        let bytes = self.snapshot();
        self.counted(bytes.len());
        bytes
    }

    fn snapshot(&self) -> Bytes {
        let records = self.table.records();
        let records: Vec<Record> = records
            .filter(|it| Home::of(it) == Home::Table)
            .filter(|it| {
                !matches!(it, Record::Proposed(_)) || !planted(Fault::SnapshotForgetsProposals)
            })
            .collect();
        records.to_bytes().into()
    }

    /// What became of a command, if it is one that is under way. False if that is not known: it may be decided yet, by
    /// another leader.
    pub(super) fn answered(&mut self, request: RequestId, result: Result<u64, Refused>) -> bool {
        let place = self.commands.iter().position(|it| it.request == request);
        let Some(place) = place else {
            return true;
        };
        let error = match result {
            Ok(_) => {
                self.commands[place].state = State::Decided;
                return true;
            }
            // Each is asked for under its id once, so that nothing came of it.
            Err(Refused::NotLeader { .. }) => {
                self.hold(place);
                return true;
            }
            Err(Refused::Full) if self.now < self.commands[place].since + self.full_after => {
                self.hold(place);
                return true;
            }
            Err(Refused::Unknown) => return false,
            Err(refused @ Refused::Full) => {
                let message = format!("the nodes that decide on the table: {refused}");
                ErrorReply::retryable(ErrorCode::StorageFull, FULL_RETRY_MS, message)
            }
            Err(refused @ (Refused::TooLarge | Refused::Change(_))) => {
                ErrorReply::fatal(ErrorCode::LimitExceeded, refused.to_string())
            }
        };
        let error = ControlError::Refused(error);
        let behind = match planted(Fault::BuiltOnRefused) {
            true => place + 1,
            false => self.commands.len(),
        };
        for command in self.commands.range_mut(place..behind) {
            command.state = State::Refused(error.clone());
        }
        true
    }

    /// The quorum does not take it now.
    fn hold(&mut self, place: usize) {
        self.is_held = true;
        let state = &mut self.commands[place].state;
        if let State::Proposed(payload) = state {
            *state = State::Gathered(std::mem::take(payload));
        }
    }

    /// It is so late now.
    pub(super) fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Some time has passed: the quorum may take commands again.
    pub(super) fn go_on(&mut self) {
        self.is_held = false;
    }

    /// This voter does not lead any more: nothing is known of what it has under way.
    pub(super) fn resign(&mut self) {
        self.commands.clear();
        self.under_way_bytes = 0;
        self.is_held = false;
    }

    /// Nothing is decided here any more.
    pub(super) fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.commands.clear();
        self.under_way_bytes = 0;
    }
}

/// Reads a list of records that is all of the bytes.
fn read(what: &'static str, bytes: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut from = Reader::new(what, bytes);
    let records = Codec::decode(&mut from)?;
    match from.rest() {
        [] => Ok(records),
        rest => Err(from.refuse("bytes behind the records", rest.len() as u64)),
    }
}

impl TableLog for QuorumLog {
    fn table(&self) -> &Table {
        &self.table
    }

    fn submit(&mut self, records: Vec<Record>) {
        let mut states = self.commands.iter().map(|it| &it.state);
        let is_behind = states.any(|it| matches!(it, State::Refused(_)));
        let payload = records.to_bytes();
        let state = if is_behind {
            let message = "a change of the table before this one was refused";
            let error = ErrorReply::retryable(ErrorCode::NotLeader, 100, message);
            State::Refused(ControlError::Refused(error))
        } else if payload.len() > PAYLOAD_BYTES_MAX {
            let message = format!(
                "a change of the table has {} bytes, and at most {PAYLOAD_BYTES_MAX} are decided at once",
                payload.len()
            );
            let error = ErrorReply::fatal(ErrorCode::LimitExceeded, message);
            State::Refused(ControlError::Refused(error))
        } else if let Some(error) = self.is_full(&records) {
            State::Refused(ControlError::Refused(error))
        } else {
            State::Gathered(payload.into())
        };
        let bytes = match &state {
            State::Gathered(payload) => payload.len(),
            _ => 0,
        };
        self.under_way_bytes += bytes;
        let request = self.request_id();
        let since = self.now;
        self.commands.push_back(Command {
            request,
            state,
            since,
            bytes,
        });
    }

    fn poll_completion(&mut self) -> Option<Result<(), ControlError>> {
        match self.commands.front()?.state {
            State::Gathered(_) | State::Proposed(_) => return None,
            State::Decided | State::Refused(_) => {}
        }
        let command = self.commands.pop_front()?;
        self.under_way_bytes -= command.bytes;
        match command.state {
            State::Refused(error) => Some(Err(error)),
            _ => Some(Ok(())),
        }
    }

    fn poll_entry(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::with;
    use wire::TableId;

    fn empty() -> QuorumLog {
        QuorumLog::new(Random::new(1), &Settings::default())
    }

    fn log() -> QuorumLog {
        let mut log = empty();
        for id in 1..=3 {
            log.submit(vec![Record::Table(TableId(id))]);
        }
        log
    }

    fn completions(log: &mut QuorumLog) -> Vec<bool> {
        std::iter::from_fn(|| log.poll_completion())
            .map(|it| it.is_ok())
            .collect()
    }

    #[test]
    fn what_is_behind_a_refused_change_is_refused_with_it() {
        let refused = || {
            let mut log = log();
            let (first, payload) = log.next_to_propose().unwrap();
            assert!(log.answered(first, Ok(5)));
            log.apply(5, &payload).unwrap();
            let (second, _) = log.next_to_propose().unwrap();
            log.set_time(log.full_after);
            assert!(log.answered(second, Err(Refused::Full)));
            // One that comes before the refusal was seen is built on it, too.
            log.submit(vec![Record::Table(TableId(4))]);
            let more = log.next_to_propose();
            (more.is_some(), completions(&mut log))
        };
        assert_eq!(refused(), (false, vec![true, false, false, false]));
        assert!(with(Fault::BuiltOnRefused, refused).0);
        let mut log = log();
        let (first, payload) = log.next_to_propose().unwrap();
        // There may be space before long.
        // However often it is asked for meanwhile.
        for ms in (0..2500).step_by(10) {
            log.set_time(Duration::from_millis(ms));
            assert!(log.answered(first, Err(Refused::Full)));
            assert!(log.next_to_propose().is_none() && completions(&mut log).is_empty());
            log.go_on();
            assert_eq!(log.next_to_propose(), Some((first, payload.clone())));
        }
        log.set_time(Duration::from_millis(2500));
        log.answered(first, Err(Refused::Full));
        assert_eq!(completions(&mut log), [false; 3]);
        // It was seen: what comes now is not built on it.
        log.submit(vec![Record::Table(TableId(5))]);
        assert!(log.next_to_propose().is_some());
    }

    #[test]
    fn a_change_waits_where_another_is_about_to_lead() {
        let mut log = log();
        let (first, payload) = log.next_to_propose().unwrap();
        assert!(log.answered(first, Err(Refused::NotLeader { hint: None })));
        assert!(log.next_to_propose().is_none() && completions(&mut log).is_empty());
        // It came to nothing: all are asked for in their order.
        log.go_on();
        assert_eq!(log.next_to_propose(), Some((first, payload)));
        let (second, _) = log.next_to_propose().unwrap();
        assert!(log.answered(first, Ok(1)) && log.answered(second, Ok(2)));
        assert_eq!(completions(&mut log), [true, true]);
    }

    #[test]
    fn a_change_that_another_leader_may_decide_is_not_taken_for_refused() {
        let mut log = log();
        let (first, _) = log.next_to_propose().unwrap();
        assert!(!log.answered(first, Err(Refused::Unknown)));
        assert!(completions(&mut log).is_empty());
        log.resign();
        // Its answer may come after that, and is of nobody.
        assert!(log.answered(first, Err(Refused::Unknown)));
    }

    #[test]
    fn who_asks_for_too_much_is_refused_for_good_and_who_comes_behind_may_ask_again() {
        let mut log = empty();
        let long = |bytes| {
            let definition = "x".repeat(bytes);
            let topic = wire::record::TopicRecord {
                namespace: String::new(),
                name: "t".into(),
                topic: wire::TopicId(1),
                definition,
            };
            vec![Record::Topic(topic)]
        };
        log.submit(long(PAYLOAD_BYTES_MAX));
        log.submit(long(1));
        let refused = std::iter::from_fn(|| log.poll_completion()).map(|it| match it {
            Err(ControlError::Refused(error)) => error.retryable,
            other => panic!("{other:?}"),
        });
        assert_eq!(refused.collect::<Vec<_>>(), [false, true]);
        log.submit(long(1));
        assert!(log.next_to_propose().is_some());
    }

    #[test]
    fn a_full_table_takes_what_makes_it_smaller_and_then_again_what_makes_it_larger() {
        let mut log = empty();
        log.bytes_max = 10_000;
        let topic = |id: u128| {
            vec![Record::Topic(wire::record::TopicRecord {
                namespace: String::new(),
                name: format!("t{id}"),
                topic: wire::TopicId(id),
                definition: "x".repeat(1000),
            })]
        };
        let mut index = 0;
        let mut decide = |log: &mut QuorumLog| {
            while let Some((request, payload)) = log.next_to_propose() {
                index += 1;
                log.apply(index, &payload).unwrap();
                log.answered(request, Ok(index));
            }
            std::iter::from_fn(|| log.poll_completion())
                .filter(|it| it.is_ok())
                .count()
        };
        // What is under way counts.
        (0..20).for_each(|id| log.submit(topic(id)));
        assert_eq!(decide(&mut log), 10);
        log.submit(topic(30));
        match log.poll_completion() {
            Some(Err(ControlError::Refused(error))) => {
                assert!(
                    !error.retryable && error.message.contains("delete topics"),
                    "{error}"
                );
            }
            other => panic!("{other:?}"),
        }
        for id in 0..5 {
            log.submit(vec![Record::TopicDeleted(wire::TopicId(id))]);
        }
        assert_eq!(decide(&mut log), 5);
        // It is smaller once it is counted.
        log.submit(topic(31));
        assert_eq!(decide(&mut log), 0);
        log.set_time(COUNTED_EVERY);
        log.submit(topic(31));
        assert_eq!(decide(&mut log), 1);
        let bytes = log.take_snapshot();
        assert_eq!(log.bytes, bytes.len());
    }

    #[test]
    fn what_is_no_command_or_snapshot_is_refused() {
        let mut log = log();
        let (_, payload) = log.next_to_propose().unwrap();
        let longer = [&payload[..], &[0]].concat();
        for bytes in [&longer[..], &payload[..payload.len() - 1], b"x", b""] {
            assert!(log.apply(1, bytes).is_err());
            assert_eq!(log.restore(bytes).is_err(), !bytes.is_empty());
        }
        log.apply(1, &payload).unwrap();
        let snapshot = log.snapshot();
        let table = log.table().clone();
        log.restore(b"").unwrap();
        assert_ne!(log.table(), &table);
        log.restore(&snapshot).unwrap();
        assert_eq!(log.table(), &table);
    }
}
