//! What ranks of writers and readers of steps ask of a stream. The crate `step` makes writers and
//! readers of it.
//!
//! A call that waits is refused by the server when its time is over, and says then what keeps it;
//! that is a [`ClientError::Timeout`] here. A call that stands ([`TopicHandle::attend_run`],
//! [`TopicHandle::attend_readers`]) says that a rank is there: it is sent again after a reconnect,
//! and to be cancelled when the rank leaves.

use crate::error::ClientError;
use crate::fetched::{FetchedBatches, Metadata};
use crate::promise::{Pending, Reply};
use crate::topic_handle::TopicHandle;
use std::time::Duration;
use wire::codec::{Codec, DecodeError};
use wire::message::{
    AdmitStep, AttendReaders, AttendRun, AwaitReaders, AwaitStep, CloseRun, Fetched, HoldParts,
    JoinReaders, LeaveReaders, Method, NextStep, OpenRun, PartsWanted, ReaderMember, ReadersJoined,
    ReleaseStep, RunEnded, RunOpened, StepAdmitted, StepDecided, StepGiven, Watermarks,
};
use wire::{Offset, PartitionIndex, Rank};

/// How long a call lasts that stands for as long as its rank is there.
pub const STANDING_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long the server has to say why nothing else was answered.
const WHY_TIMEOUT: Duration = Duration::from_millis(1);
const WHY_GRACE: Duration = Duration::from_secs(2);

/// The partition of records.
const RECORDS: PartitionIndex = PartitionIndex(0);
/// That of copies of pinned records.
const PINNED_RECORDS: PartitionIndex = PartitionIndex(topic::PINNED_RECORDS);

/// A turn's step, as the server gives it.
#[derive(Debug)]
pub struct StepsFetched {
    /// Which record it is.
    pub given: StepGiven,
    /// Verified records: the last one is the turn's, those before changed attributes.
    pub records: FetchedBatches,
}

impl TopicHandle {
    /// Opens a run of steps, or joins one that is open. Its beginning is durable then.
    ///
    /// # Errors
    /// As any call; [`wire::ErrorCode::InvalidTopic`] of a topic that has no steps.
    pub fn open_run(&self, open: &OpenRun, timeout: Duration) -> Result<RunOpened, ClientError> {
        self.begin_open_run(open, timeout).wait()
    }

    /// [`TopicHandle::open_run`], not waited for.
    pub fn begin_open_run(&self, open: &OpenRun, timeout: Duration) -> Pending<RunOpened> {
        let what = format!(
            "rank {} of {} of writer {:?} of {} to be in a run",
            open.rank,
            open.ranks,
            open.writer,
            self.name()
        );
        self.begin_step_call(timeout, Method::OpenRun, open, what, |reply| {
            RunOpened::from_bytes("run opened", &reply.head)
        })
    }

    /// Says that a rank of a run is there, until the answer comes: the run is over for it.
    pub fn attend_run(&self, attend: &AttendRun) -> Pending<RunEnded> {
        let what = format!("the end of run {} of {}", attend.run, self.name());
        let method = Method::AttendRun;
        self.begin_step_call(STANDING_TIMEOUT, method, attend, what, |reply| {
            RunEnded::from_bytes("run ended", &reply.head)
        })
    }

    /// Waits until there is room for a step, or until it is decided that it is dropped.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], which says who keeps the room; [`wire::ErrorCode::RunEnded`].
    pub fn admit_step(
        &self,
        admit: &AdmitStep,
        timeout: Duration,
    ) -> Result<StepAdmitted, ClientError> {
        self.begin_admit_step(admit, timeout).wait()
    }

    /// [`TopicHandle::admit_step`], not waited for.
    pub fn begin_admit_step(&self, admit: &AdmitStep, timeout: Duration) -> Pending<StepAdmitted> {
        let what = format!(
            "room for step {} of run {} of {}",
            admit.step,
            admit.run,
            self.name()
        );
        self.begin_step_call(timeout, Method::AdmitStep, admit, what, |reply| {
            StepAdmitted::from_bytes("step admitted", &reply.head)
        })
    }

    /// Waits until a step has a record that is durable.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], which says which ranks are behind; [`wire::ErrorCode::RunEnded`] if
    /// there will be none.
    pub fn await_step(
        &self,
        step: &AwaitStep,
        rank: Rank,
        timeout: Duration,
    ) -> Result<StepDecided, ClientError> {
        self.begin_await_step(step, rank, timeout).wait()
    }

    /// [`TopicHandle::await_step`], not waited for.
    pub fn begin_await_step(
        &self,
        step: &AwaitStep,
        rank: Rank,
        timeout: Duration,
    ) -> Pending<StepDecided> {
        let what = format!(
            "rank {rank}'s step {} of run {} of {} to be committed",
            step.step,
            step.run,
            self.name()
        );
        self.begin_step_call(timeout, Method::AwaitStep, step, what, |reply| {
            StepDecided::from_bytes("step decided", &reply.head)
        })
    }

    /// What has become of a step, or why nothing has yet: which ranks are behind.
    pub fn why_undecided(&self, step: &AwaitStep) -> Result<StepDecided, String> {
        let what = format!("step {} of run {}", step.step, step.run);
        let prefix = format!("{what} (0.0 s): ");
        let (timeout, method) = ((WHY_TIMEOUT, Some(WHY_GRACE)), Method::AwaitStep);
        let asked =
            self.driver
                .begin_call_that_waits(timeout, method, self.id(), step, what, |reply| {
                    StepDecided::from_bytes("step decided", &reply.head)
                        .map_err(ClientError::damaged)
                });
        asked.wait().map_err(|error| match error {
            ClientError::Timeout { what } => match what.strip_prefix(&prefix) {
                Some(why) => why.to_owned(),
                None => what,
            },
            other => other.to_string(),
        })
    }

    /// Says that a rank has written its last step.
    ///
    /// # Errors
    /// As any call; [`wire::ErrorCode::RunEnded`] if the run is over without it.
    pub fn close_run(&self, close: &CloseRun, timeout: Duration) -> Result<(), ClientError> {
        self.begin_close_run(close, timeout).wait()
    }

    /// [`TopicHandle::close_run`], not waited for.
    pub fn begin_close_run(&self, close: &CloseRun, timeout: Duration) -> Pending<()> {
        let what = format!(
            "run {} of {} to be closed by rank {}",
            close.run,
            self.name(),
            close.rank
        );
        self.begin_step_call(timeout, Method::CloseRun, close, what, |_| Ok(()))
    }

    /// Waits until the readers that are attached have released the steps of a run before one.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], which says who has not.
    pub fn await_readers(&self, wait: &AwaitReaders, timeout: Duration) -> Result<(), ClientError> {
        self.begin_await_readers(wait, timeout).wait()
    }

    /// [`TopicHandle::await_readers`], not waited for.
    pub fn begin_await_readers(&self, wait: &AwaitReaders, timeout: Duration) -> Pending<()> {
        let what = format!(
            "readers to release the {} steps of run {} of {}",
            wait.step,
            wait.run,
            self.name()
        );
        self.begin_step_call(timeout, Method::AwaitReaders, wait, what, |_| Ok(()))
    }

    /// Says what a rank keeps of its parts, until there is something that it does not know:
    /// which steps' data is wanted, which steps are not needed any more.
    pub fn begin_hold_parts(&self, hold: &HoldParts) -> Pending<PartsWanted> {
        let what = format!(
            "what is wanted of rank {} of run {} of {}",
            hold.rank,
            hold.run,
            self.name()
        );
        let method = Method::HoldParts;
        self.begin_step_call(STANDING_TIMEOUT, method, hold, what, |reply| {
            PartsWanted::from_bytes("parts wanted", &reply.head)
        })
    }

    /// Attaches a rank to its reader group.
    ///
    /// # Errors
    /// As any call; [`wire::ErrorCode::InvalidConsumer`] if the name is of something else or the group
    /// has another size; [`wire::ErrorCode::MemberFenced`] if the rank attaches again and somebody else
    /// has its place, or its group is another one.
    pub fn join_readers(
        &self,
        join: &JoinReaders,
        timeout: Duration,
    ) -> Result<ReadersJoined, ClientError> {
        self.begin_join_readers(join, timeout).wait()
    }

    /// [`TopicHandle::join_readers`], not waited for.
    pub fn begin_join_readers(
        &self,
        join: &JoinReaders,
        timeout: Duration,
    ) -> Pending<ReadersJoined> {
        let what = format!(
            "rank {} of {} of {} to be attached to {}",
            join.who.rank,
            join.ranks,
            readers(&join.who),
            self.name()
        );
        self.begin_step_call(timeout, Method::JoinReaders, join, what, |reply| {
            ReadersJoined::from_bytes("readers joined", &reply.head)
        })
    }

    /// Says that a rank of a reader group is there, until the answer comes: somebody else has
    /// its place.
    pub fn attend_readers(&self, attend: &AttendReaders) -> Pending<()> {
        let what = format!(
            "the end of rank {} of {} of {}",
            attend.who.rank,
            readers(&attend.who),
            self.name()
        );
        let method = Method::AttendReaders;
        self.begin_step_call(STANDING_TIMEOUT, method, attend, what, |_| Ok(()))
    }

    /// The step of a turn, as soon as there is one.
    ///
    /// # Errors
    /// [`ClientError::Timeout`]: there was none in that time, and the same turn may be asked for
    /// again; [`wire::ErrorCode::MemberFenced`] if the group does not know the rank, as after a
    /// restart of the server; [`wire::ErrorCode::GroupIncomplete`] if the group has lost another
    /// one and is no more; [`ClientError::Damaged`].
    pub fn next_step(
        &self,
        next: &NextStep,
        timeout: Duration,
    ) -> Result<StepsFetched, ClientError> {
        self.begin_next_step(next, timeout).wait()
    }

    /// [`TopicHandle::next_step`], not waited for.
    pub fn begin_next_step(&self, next: &NextStep, timeout: Duration) -> Pending<StepsFetched> {
        self.step_of_turn(next, (timeout, None))
    }

    fn step_of_turn(
        &self,
        next: &NextStep,
        timeout: (Duration, Option<Duration>),
    ) -> Pending<StepsFetched> {
        let what = format!(
            "step of turn {} for rank {} of {} of {}",
            next.turn,
            next.who.rank,
            readers(&next.who),
            self.name()
        );
        let state = self.state.clone();
        let (driver, method) = (&self.driver, Method::NextStep);
        let answer =
            driver.begin_call_that_waits(timeout, method, self.id(), next, what, |reply| {
                let given = StepGiven::from_bytes("step given", &reply.head);
                Ok((given.map_err(ClientError::damaged)?, reply.payload))
            });
        answer.then(move |(given, payload)| {
            let end = Offset(given.position.offset.0.saturating_add(1));
            let fetched = Fetched {
                incarnation: given.position.incarnation,
                watermarks: Watermarks {
                    end,
                    durable: end,
                    committed: end,
                },
                batch_bytes: given.batch_bytes.clone(),
            };
            let partition = match given.pinned {
                true => PINNED_RECORDS,
                false => RECORDS,
            };
            let records =
                FetchedBatches::new(&state, partition, fetched, payload, Metadata::Deserialized)?;
            Ok(StepsFetched { given, records })
        })
    }

    /// The step of a turn, if there is one already.
    ///
    /// # Errors
    /// As [`TopicHandle::next_step`]; [`ClientError::Timeout`] says what the turn waits for.
    pub fn next_step_now(&self, next: &NextStep) -> Result<StepsFetched, ClientError> {
        self.step_of_turn(next, (WHY_TIMEOUT, Some(WHY_GRACE)))
            .wait()
    }

    /// Says that a rank has done with a turn.
    ///
    /// # Errors
    /// As [`TopicHandle::next_step`].
    pub fn release_step(
        &self,
        release: &ReleaseStep,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        self.begin_release_step(release, timeout).wait()
    }

    /// [`TopicHandle::release_step`], not waited for.
    pub fn begin_release_step(&self, release: &ReleaseStep, timeout: Duration) -> Pending<()> {
        let what = format!(
            "turn {} to be released by rank {} of {} of {}",
            release.turn,
            release.who.rank,
            readers(&release.who),
            self.name()
        );
        self.begin_step_call(timeout, Method::ReleaseStep, release, what, |_| Ok(()))
    }

    /// Says that a rank has done with all turns, and is waited for no more: its group goes on
    /// without it, or is over if all have left. Not waited for.
    ///
    /// # Errors
    /// As [`TopicHandle::next_step`].
    pub fn begin_leave_readers(&self, leave: &LeaveReaders, timeout: Duration) -> Pending<()> {
        let what = format!(
            "rank {} of {} of {} to leave",
            leave.who.rank,
            readers(&leave.who),
            self.name()
        );
        self.begin_step_call(timeout, Method::LeaveReaders, leave, what, |_| Ok(()))
    }

    fn begin_step_call<T: 'static>(
        &self,
        timeout: Duration,
        method: Method,
        body: &impl Codec,
        what: String,
        read: impl FnOnce(Reply) -> Result<T, DecodeError> + Send + 'static,
    ) -> Pending<T> {
        self.driver
            .begin_call_that_waits((timeout, None), method, self.id(), body, what, |reply| {
                read(reply).map_err(ClientError::damaged)
            })
    }
}

/// For people.
fn readers(who: &ReaderMember) -> String {
    match who.group.is_empty() {
        true => format!("reader {:?}", who.reader),
        false => format!("group {:?} of reader {:?}", who.group, who.reader),
    }
}
