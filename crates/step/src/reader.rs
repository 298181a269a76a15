//! A rank that reads steps.

use crate::ahead::{Ahead, Came};
use crate::attributes::Attributes;
use crate::blocks::BlockMemory;
use crate::error::StepError;
use crate::preload::{Preload, Preloaded, Standing};
use crate::records::{attributes_at, table_of, time_of_copy};
use crate::turn::{Holding, Turn};
use crate::view::{StepView, ViewParts};
use crate::waiting::{left, milliseconds, words};
use client::{
    ClientError, ConsumedEvent, Pending, Position, STANDING_TIMEOUT, StepsFetched, TopicHandle,
};
use memory::Deadline;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use topic::TopicKind;
use wire::message::{
    AttendReaders, Distribution, JoinReaders, LeaveReaders, NextStep, ReaderMember, ReleaseStep,
    StepStart, TURNS_MAX,
};
use wire::step::{RecordKind, StepTable};
use wire::{ErrorCode, MemberId, Rank, Run};

/// How long a rank may be about to leave, which nobody waits for.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Memory that is kept for what is read.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// What may be read of a step before the program asks, if it does not say.
const PRELOAD_BYTES_MAX: u64 = 256 << 20;

/// What a reader can choose. All ranks of a program choose the same.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// Name of the reading program, by which its position is kept.
    pub name: String,
    /// Which groups of the name are given a step. Default: all are, and there is one group alone,
    /// the program itself. Otherwise several groups share the steps, and the name's position is
    /// behind those that all of them have done with.
    pub distribution: Distribution,
    /// Which of the groups that share this rank is in; all of its ranks say the same. `None`: one
    /// of its own, for a program of one rank.
    pub group: Option<String>,
    /// Which rank of the program, or the group, this is, from 0.
    pub rank: u32,
    /// How many ranks read. Each is given every step of their group; which box of it a rank reads
    /// is its own choice.
    pub ranks: u32,
    /// Where to begin. Default: at the position of the name, or at the oldest step.
    pub start: StepStart,
    /// Whether only the newest step is wanted each time: others are passed over, and counted.
    pub latest: bool,
    /// How long a rank may be away. Then its group is no more: writers wait for it no longer, the
    /// other ranks hear of it ([`StepError::Incomplete`]), and a step that it shared is given to
    /// another group. Default 30 s.
    pub session_timeout: Duration,
    /// How long attaching may take, at the beginning and after the connection was lost. Default
    /// 120 s.
    pub open_timeout: Duration,
    /// What is read of each step before it is asked for: see [`Reader::preload`].
    pub preload: Preload,
    /// Most bytes of a step that are; the others are read when they are asked for. Default 256 MiB.
    /// A reader holds them twice at most: of the step that it was given last, and of the next one.
    pub preload_bytes_max: u64,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            name: "reader".to_owned(),
            distribution: Distribution::All,
            group: None,
            rank: 0,
            ranks: 1,
            start: StepStart::Cursor,
            latest: false,
            session_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(120),
            preload: Preload::Nothing,
            preload_bytes_max: PRELOAD_BYTES_MAX,
        }
    }
}

/// What [`Reader::next`] finds.
#[derive(Debug)]
pub enum Next {
    /// A step.
    Step(StepView),
    /// There was none in that time: what the server says of it, for people.
    NotReady(String),
    /// All committed steps of a run were given, and it is over. Told once; the next call goes on
    /// with the run behind it.
    End {
        /// Which one.
        run: Run,
        /// Why it ended without being closed: which ranks are gone; `None` if it was closed.
        broken: Option<String>,
    },
}

/// One rank of a program that reads steps. For one thread at a time; its steps can be read from
/// several.
///
/// All ranks of a program are given the same step in the same turn. When all have released it, the
/// position of the name moves behind it: a program that comes back goes on there, and what was not
/// released is given again. A lost connection and a restart of the server are survived. A reader
/// that is dropped and holds no step leaves its group, which goes on without it.
pub struct Reader {
    topic: TopicHandle,
    options: ReaderOptions,
    who: ReaderMember,
    /// Of its group.
    life: MemberId,
    /// Before the first record that it may be given.
    began: Position,
    attendance: Pending<()>,
    /// The turn to be asked for next.
    turn: u64,
    /// Where the records of the last turns are, the latest last.
    turns: VecDeque<Position>,
    /// The turn that was given last, if it may not be released yet.
    held: Option<Turn>,
    /// A turn that is released, of which the server has not heard yet.
    unsaid: Option<Turn>,
    /// The turn behind that one, if it is asked for by now.
    ahead: Option<Ahead>,
    standing: Standing,
    /// What was read ahead of the step that was given last.
    preloaded: Option<Arc<Preloaded>>,
    attributes: Arc<Attributes>,
    /// Which run's attributes those are, and behind which record; `None` if not all are known.
    follows: Option<(Run, Position)>,
    memory: Arc<BlockMemory>,
    lost: Option<StepError>,
}

impl Reader {
    /// Attaches to the stream `topic`.
    ///
    /// # Errors
    /// [`StepError::Invalid`] of a topic that is no stream, and of a rank that there is not;
    /// [`StepError::Client`]: a server that refuses, as a name that is in use by a program of
    /// another size.
    pub fn open(topic: &TopicHandle, options: ReaderOptions) -> Result<Self, StepError> {
        if topic.definition().kind() != TopicKind::Steps {
            let name = topic.name();
            return Err(StepError::Invalid(format!("topic {name} has no steps")));
        }
        if options.rank >= options.ranks {
            return Err(StepError::Invalid(format!(
                "rank {} of {}: ranks count from 0",
                options.rank, options.ranks
            )));
        }
        if options.distribution != Distribution::All && options.group.is_none() && options.ranks > 1
        {
            return Err(StepError::Invalid(format!(
                "{} ranks that share steps with others say which group they are",
                options.ranks
            )));
        }
        // Seeds of hash tables are random, and different each time.
        let chance = || u128::from(RandomState::new().hash_one(std::process::id()));
        let member = MemberId((chance() << 64 | chance()).max(1));
        let group = match (options.distribution, &options.group) {
            (Distribution::All, None) => String::new(),
            (_, Some(group)) => group.clone(),
            (_, None) => format!("{:032x}", member.0),
        };
        let who = ReaderMember {
            reader: options.name.clone(),
            group,
            rank: Rank(options.rank),
            member,
        };
        let join = join_request(&options, &who);
        let joined = topic.join_readers(&join, options.open_timeout)?;
        let standing = Standing {
            wanted: options.preload.clone(),
            bytes_max: options.preload_bytes_max,
        };
        Ok(Self {
            attendance: attend(topic, &who),
            topic: topic.clone(),
            options,
            who,
            life: joined.life,
            began: joined.began,
            turn: joined.turn,
            turns: VecDeque::new(),
            held: None,
            unsaid: None,
            ahead: None,
            standing,
            preloaded: None,
            attributes: Arc::default(),
            follows: None,
            memory: Arc::new(BlockMemory::new(topic.driver(), KEPT_BYTES_MAX)),
            lost: None,
        })
    }

    /// What was chosen.
    pub fn options(&self) -> &ReaderOptions {
        &self.options
    }

    /// Where it reads.
    pub fn topic(&self) -> &TopicHandle {
        &self.topic
    }

    /// Where the record of the last turn is, in partition 0: with [`StepStart::At`] the one behind
    /// it is where another reader begins that is to go on here.
    pub fn position(&self) -> Option<Position> {
        self.turns.back().copied()
    }

    /// The next step, or the end of the run, as soon as there is one, up to `timeout`. Releases
    /// the step before, if that was not done.
    ///
    /// # Errors
    /// [`StepError::Replaced`]: another life of this rank has its place; [`StepError::Incomplete`]:
    /// another rank of its group is gone; so from now on. [`StepError::Damaged`]: what a record says
    /// cannot be read; told once, the next call goes on behind it. [`StepError::Client`].
    pub fn next(&mut self, timeout: Duration) -> Result<Next, StepError> {
        // It goes with the next request, if that is at once.
        self.unsaid = self.held.take().filter(Turn::release_unsaid);
        // A program may keep its views: what they are asked for from now on is read.
        if let Some(preloaded) = self.preloaded.take() {
            preloaded.forget();
        }
        let next = self.next_turn(Deadline::after(timeout));
        self.say_released();
        next
    }

    fn next_turn(&mut self, deadline: Deadline) -> Result<Next, StepError> {
        loop {
            if let Some(lost) = &self.lost {
                return Err(lost.clone());
            }
            self.attend()?;
            match self.ask(deadline) {
                Ok(came) => {
                    let (turn, at) = (came.fetched.given.turn, came.fetched.given.position);
                    match self.given(came) {
                        Ok(Some(next)) => {
                            if matches!(next, Next::Step(_)) {
                                self.ask_ahead();
                            }
                            return Ok(next);
                        }
                        Ok(None) => {}
                        Err(error) => return Err(self.passed(turn, at, error)),
                    }
                }
                Err(ClientError::Timeout { what }) => return Ok(Next::NotReady(what)),
                Err(error) => self.refused(&error)?,
            }
        }
    }

    /// What is read of each step before the program asks for it, from the next step on and until
    /// this is called again: the bytes are on their way to this process when the server gives the
    /// step, and [`StepView::get`] and the others wait for them only if they are not there yet. What
    /// they are asked for may be a part of what was read ahead. A selection that nobody asks for
    /// costs its bytes all the same.
    ///
    /// While the program reads a step, the next one is asked for, and read ahead, as soon as it is
    /// committed; it counts as released no earlier for that. Not so for a reader of the newest steps
    /// alone, and for one that shares steps with others: theirs is chosen, and read ahead, when they
    /// ask for it.
    ///
    /// More than [`ReaderOptions::preload_bytes_max`] of a step is not read ahead, and neither is an
    /// array of which not all elements were put.
    pub fn preload(&mut self, wanted: Preload) {
        self.standing.wanted = wanted;
        if let Some(ahead) = &self.ahead {
            ahead.set_standing(self.standing.clone());
        }
    }

    /// The step of the next turn.
    fn ask(&mut self, deadline: Deadline) -> Result<Came, ClientError> {
        if let Some(ahead) = self.ahead.take().filter(|ahead| ahead.turn == self.turn) {
            if !ahead.has_come() {
                // A writer may wait for it.
                self.say_released();
            }
            match ahead.wait(left(deadline)) {
                Ok(came) => return came,
                Err(ahead) => self.ahead = Some(ahead),
            }
            let fetched = self.topic.next_step_now(&self.next_request())?;
            self.ahead = None;
            return Ok(self.came(fetched));
        }
        let fetched = self.topic.next_step(&self.next_request(), left(deadline))?;
        self.unsaid = None;
        Ok(self.came(fetched))
    }

    fn next_request(&self) -> NextStep {
        let unsaid = self.unsaid.as_ref();
        NextStep {
            who: self.who.clone(),
            turn: self.turn,
            released: unsaid.map_or(0, |turn| turn.release.turn),
        }
    }

    fn came(&self, fetched: StepsFetched) -> Came {
        Came::new(&self.topic, fetched, &self.standing, &self.memory)
    }

    /// Asks for the turn behind the one that was given, if what stands is worth that.
    fn ask_ahead(&mut self) {
        let is_own = self.options.distribution == Distribution::All && !self.options.latest;
        if !is_own || self.standing.wanted == Preload::Nothing {
            return;
        }
        let asked = self
            .topic
            .begin_next_step(&self.next_request(), STANDING_TIMEOUT);
        self.unsaid = None;
        let (from, standing) = ((&self.topic, &self.memory), self.standing.clone());
        self.ahead = Some(Ahead::new(from, self.turn, asked, standing));
    }

    /// Tells the server of a release that went with no request.
    fn say_released(&mut self) {
        if let Some(turn) = self.unsaid.take() {
            turn.say_released();
        }
    }

    /// Says that the step that was given last is read, and waits until that is noted, as
    /// [`StepView::release`] does; also after the server was started anew.
    ///
    /// # Errors
    /// As [`Reader::next`], and a deadline.
    pub fn release(&mut self, timeout: Duration) -> Result<(), StepError> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        match held.release_and_wait(timeout) {
            // Who attaches again says what it has released.
            Err(StepError::Client(error)) => self.refused(&error),
            outcome => outcome,
        }
    }

    /// Says again that the rank is there, if that was refused.
    fn attend(&mut self) -> Result<(), StepError> {
        let Some(answer) = self.attendance.try_get() else {
            return Ok(());
        };
        match answer {
            Err(error) if error.is_retryable() => {
                self.attendance = attend(&self.topic, &self.who);
                Ok(())
            }
            Err(error) => self.refused(&error),
            Ok(()) => Err(self.replaced("another life of it has attached")),
        }
    }

    /// What a call was refused with. After some of it the rank goes on.
    fn refused(&mut self, error: &ClientError) -> Result<(), StepError> {
        match error.code() {
            Some(ErrorCode::MemberFenced) => self.join_again(error),
            Some(ErrorCode::GroupIncomplete) => {
                let lost = StepError::Incomplete(words(error));
                Err(self.lost.insert(lost).clone())
            }
            _ => Err(error.clone().into()),
        }
    }

    /// The group does not know this rank: the server was started anew, the rank was away for too
    /// long, or another life of it is there, which refuses it.
    fn join_again(&mut self, why: &ClientError) -> Result<(), StepError> {
        let held = self.held.as_ref();
        let held = held.filter(|held| held.holding() != Holding::Released);
        let asked = join_request(&self.options, &self.who);
        let join = JoinReaders {
            life: self.life,
            turn: self.turn,
            // What it was to begin with may be passed by now.
            start: match self.turns.is_empty() {
                true => StepStart::At(self.began),
                false => asked.start,
            },
            released: held.map_or(self.turn - 1, |held| held.release.turn - 1),
            turns: self.turns.iter().copied().collect(),
            ..asked
        };
        match self.topic.join_readers(&join, self.options.open_timeout) {
            Ok(joined) => {
                self.turn = joined.turn;
                // It was not among the turns that were named: the server is to give it once more.
                self.ahead = None;
                self.attendance = attend(&self.topic, &self.who);
                Ok(())
            }
            Err(error) if error.code() == Some(ErrorCode::MemberFenced) => {
                let why = words(why);
                Err(self.replaced(&why))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn replaced(&mut self, why: &str) -> StepError {
        let lost = StepError::Replaced(format!(
            "rank {} of reader {:?} of {}: {why}",
            self.options.rank,
            self.options.name,
            self.topic.name()
        ));
        self.lost.insert(lost).clone()
    }

    /// What a turn has could not be read. What cannot be decoded will never be: it is told once,
    /// and the next call goes on behind it.
    fn passed(&mut self, turn: u64, at: Position, error: StepError) -> StepError {
        let StepError::Damaged(what) = error else {
            return error;
        };
        self.turn_of(turn).release();
        (self.turn, self.follows) = (turn + 1, None);
        self.had(at);
        let name = self.topic.name();
        StepError::Damaged(format!(
            "the step of record {} of {name}: {what}",
            at.offset
        ))
    }

    fn turn_of(&self, turn: u64) -> Turn {
        let who = self.who.clone();
        Turn::new(self.topic.clone(), ReleaseStep { who, turn })
    }

    /// It has had the turn whose record is there.
    fn had(&mut self, at: Position) {
        self.turns.push_back(at);
        if self.turns.len() > TURNS_MAX {
            self.turns.pop_front();
        }
    }

    /// Takes a turn. `None` if there is nothing for the program in it.
    fn given(&mut self, came: Came) -> Result<Option<Next>, StepError> {
        let StepsFetched { given, records } = came.fetched;
        let at = given.position;
        let seen = self.position();
        let mut own: Option<(Arc<StepTable>, u64)> = None;
        for mut event in records.events() {
            let offset = event.id().offset;
            let is_new =
                seen.is_none_or(|seen| seen.incarnation != at.incarnation || offset > seen.offset);
            if given.pinned {
                let time = time_of_copy(&event).unwrap_or(event.append_time());
                own = Some((Arc::new(table_of(&mut event)?), time));
            } else if offset < at.offset && is_new {
                self.follow(&mut event)?;
            } else if offset == at.offset {
                let table = match &came.table {
                    Some(table) => table.clone(),
                    None => Arc::new(table_of(&mut event)?),
                };
                own = Some((table, event.append_time()));
            }
        }
        let (table, time) = own.ok_or_else(|| {
            StepError::Damaged(format!(
                "turn {} of {}: its record at {} did not come",
                given.turn,
                self.topic.name(),
                at.offset
            ))
        })?;
        self.attributes_of(&table, at)?;
        self.turn = given.turn + 1;
        self.had(at);
        let turn = self.turn_of(given.turn);
        Ok(match table.kind {
            RecordKind::Step => {
                self.held = Some(turn.clone());
                self.preloaded = came.preloaded.map(Arc::new);
                Some(Next::Step(StepView::new(ViewParts {
                    topic: self.topic.clone(),
                    table,
                    position: at,
                    time,
                    attributes: self.attributes.clone(),
                    skipped: given.skipped,
                    lost: given.lost,
                    pool: self.memory.pool().clone(),
                    layouts: came.layouts,
                    preloaded: self.preloaded.clone(),
                    turn: Some(turn),
                })))
            }
            RecordKind::Closed | RecordKind::Broken => {
                turn.release();
                Some(Next::End {
                    run: table.run,
                    broken: (table.kind == RecordKind::Broken).then(|| table.reason.clone()),
                })
            }
            RecordKind::Opened | RecordKind::Discarded | RecordKind::Closing => {
                turn.release();
                None
            }
        })
    }

    /// A record before the turn's changes attributes.
    fn follow(&mut self, event: &mut ConsumedEvent) -> Result<(), StepError> {
        let id = event.id();
        let table = table_of(event)?;
        let at = Position {
            incarnation: id.incarnation,
            offset: id.offset,
        };
        if self.is_followed(&table, at) {
            let attributes = Arc::make_mut(&mut self.attributes);
            attributes.apply(&table.attributes, table.is_full)?;
            self.follows = Some((table.run, at));
        }
        Ok(())
    }

    /// Whether with this record all attributes of its run are known.
    fn is_followed(&self, table: &StepTable, at: Position) -> bool {
        let is_behind = |(run, last): (Run, Position)| {
            run == table.run
                && last.incarnation == at.incarnation
                && last.offset.plus(1) == at.offset
        };
        table.is_full || self.follows.is_some_and(is_behind)
    }

    /// Brings the attributes to a turn's record, be it by reading those before it.
    fn attributes_of(&mut self, table: &StepTable, at: Position) -> Result<(), StepError> {
        if self.is_followed(table, at) {
            if table.is_full || !table.attributes.is_empty() {
                let attributes = Arc::make_mut(&mut self.attributes);
                attributes.apply(&table.attributes, table.is_full)?;
            }
        } else {
            self.attributes = Arc::new(attributes_at(&self.topic, table, at)?);
        }
        self.follows = Some((table.run, at));
        Ok(())
    }
}

/// What a rank says that has not been in its group yet.
fn join_request(options: &ReaderOptions, who: &ReaderMember) -> JoinReaders {
    JoinReaders {
        who: who.clone(),
        ranks: options.ranks,
        distribution: options.distribution,
        start: options.start,
        latest: options.latest,
        session_timeout_ms: milliseconds(options.session_timeout),
        life: MemberId(0),
        turn: 0,
        released: 0,
        turns: Vec::new(),
    }
}

fn attend(topic: &TopicHandle, who: &ReaderMember) -> Pending<()> {
    topic.attend_readers(&AttendReaders { who: who.clone() })
}

impl Drop for Reader {
    /// The rank leaves its group, which goes on without it: a step that it has left unread comes
    /// again. A step that it still holds stays held, until it is dropped or the session timeout has
    /// passed.
    fn drop(&mut self) {
        // It is unread.
        self.ahead = None;
        let held = self.held.as_ref();
        let holds = held.is_some_and(|held| held.holding() == Holding::Held);
        if !holds && self.lost.is_none() {
            let who = self.who.clone();
            let leave = self
                .topic
                .begin_leave_readers(&LeaveReaders { who }, LEAVE_TIMEOUT);
            drop(leave);
        }
        self.attendance.cancel();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Reader(rank {} of {} of {:?}, turn {} of {})",
            self.options.rank,
            self.options.ranks,
            self.options.name,
            self.turn,
            self.topic.name()
        )
    }
}
