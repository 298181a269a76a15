//! What ranks of writers and readers of steps say (the stream, a topic, is in the request's head).
//! The states that this is about are on the page `docs/concept/steps.md`.

use crate::codec::{Codec, DecodeError, Reader, Write, record};
use crate::id::*;
use crate::record::Position;
use crate::step::Attribute;

/// What happens to a step for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum WhenFull {
    /// Its writers wait.
    #[default]
    Block = 0,
    /// It is dropped as a whole, and a record says so.
    Discard = 1,
}

impl Codec for WhenFull {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Block),
            1 => Ok(Self::Discard),
            other => Err(from.refuse("when full", u64::from(other))),
        }
    }
}

/// Which groups of readers are given a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Distribution {
    /// Each group is given every step.
    #[default]
    All = 0,
    /// One of the groups that share a name is given it, each in its turn.
    RoundRobin = 1,
    /// One of the groups that share a name is given it: the first that asks.
    OnDemand = 2,
}

impl Codec for Distribution {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::All),
            1 => Ok(Self::RoundRobin),
            2 => Ok(Self::OnDemand),
            other => Err(from.refuse("distribution", u64::from(other))),
        }
    }
}

record! {
    /// A rank opens a run, joins one that is open, or takes its own place in one again.
    pub struct OpenRun {
        /// Name of the writing program. A run that is open goes on under the same name alone.
        pub writer: String,
        pub ranks: u32,
        pub rank: Rank,
        /// The named producer by which the rank writes its parts, and its life.
        pub producer: ProducerId,
        pub epoch: ProducerEpoch,
        /// How long a rank may be away before the run is broken, milliseconds.
        pub session_timeout_ms: u32,
        /// The first step waits until so many reader groups have attached.
        pub readers_min: u32,
        /// Most committed steps that attached readers have not released; 0 is without a limit.
        pub queue_steps: u32,
        /// Most bytes of them; 0 is without a limit.
        pub queue_bytes: u64,
        pub when_full: WhenFull,
        /// How the writers ask that steps are given to groups of readers. Kept in the run's record
        /// for readers to see; it binds nobody.
        pub distribution: Distribution,
    }
}

record! {
    /// The rank is in the run.
    pub struct RunOpened {
        pub run: Run,
        /// Behind the last step with a record: where the rank goes on.
        pub next: Step,
        /// The run before this one of the stream; 0 is none.
        pub before: Run,
        /// Attributes of the run so far, encoded as in a part.
        pub attributes: Vec<Attribute>,
    }
}

record! {
    /// Says that a rank is there, until the connection ends. Answered when the run is over for it.
    pub struct AttendRun {
        pub run: Run,
        pub rank: Rank,
        pub producer: ProducerId,
        pub epoch: ProducerEpoch,
    }
}

record! {
    /// The run is over.
    pub struct RunEnded {
        /// Why; empty if it was closed.
        pub reason: String,
    }
}

record! {
    /// Whether a step may be written. Decided once a step, for all of its ranks.
    pub struct AdmitStep {
        pub run: Run,
        pub rank: Rank,
        pub step: Step,
        /// It is to be pinned: its parts will come to the partition for those.
        pub pinned: bool,
    }
}

record! {
    /// The step is decided.
    pub struct StepAdmitted {
        /// It is dropped: its parts are to carry attributes alone.
        pub discarded: bool,
    }
}

record! {
    /// Asks for what has become of a step.
    pub struct AwaitStep {
        pub run: Run,
        pub step: Step,
    }
}

record! {
    /// The step has a record.
    pub struct StepDecided {
        /// Where the record is, in partition 0.
        pub position: Position,
        /// Why it was dropped; empty if it is there.
        pub discarded: String,
    }
}

record! {
    /// A rank has written its last step. When all have, the run is closed.
    pub struct CloseRun {
        pub run: Run,
        pub rank: Rank,
        pub producer: ProducerId,
        pub epoch: ProducerEpoch,
        /// How many steps it has written of the run, discarded ones included.
        pub steps: u64,
    }
}

record! {
    /// Waits until the readers that are attached have released the steps of a run.
    pub struct AwaitReaders {
        pub run: Run,
        /// Those before this one.
        pub step: Step,
    }
}

record! {
    /// A rank that keeps the data of its parts waits for what is wanted of it. Asked again with
    /// each change; without the request it counts as away.
    pub struct HoldParts {
        pub run: Run,
        pub rank: Rank,
        pub producer: ProducerId,
        pub epoch: ProducerEpoch,
        /// How long it may be away before what it keeps is lost, milliseconds.
        pub session_timeout_ms: u32,
        /// Of steps before this one it keeps nothing more. The greatest number: it leaves.
        pub from: Step,
        /// Steps whose data it was asked for, and is sending.
        pub sending: Vec<Step>,
        /// The answer that it has, if any: it is asked for another one.
        pub released_before: Step,
        pub left_before: Step,
    }
}

record! {
    /// What is wanted of a rank that keeps its parts: one answer to [`HoldParts`].
    pub struct PartsWanted {
        /// Steps whose data is to be sent, in parts that say so.
        pub steps: Vec<Step>,
        /// All readers that are attached have released the steps before this one, and they have
        /// records: there may be done without them, if the room is needed.
        pub released_before: Step,
        /// Steps before this one have left the stream: nobody can ask for them.
        pub left_before: Step,
    }
}

/// Where readers begin whose name has no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStart {
    /// At the name's cursor, or at the oldest step that is there.
    Cursor,
    /// At the oldest step that is there.
    Oldest,
    /// At the next step that is committed.
    Next,
    /// At the newest step that is there, or the next one if there is none.
    Newest,
    /// At the beginning of this run.
    Run(Run),
    /// At the beginning of the run that is open, or of the next one.
    OpenRun,
    /// At the record at this position, or the first behind it.
    At(Position),
}

impl Codec for StepStart {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Cursor => out.put_u8(0),
            Self::Oldest => out.put_u8(1),
            Self::Next => out.put_u8(2),
            Self::Newest => out.put_u8(3),
            Self::Run(run) => {
                out.put_u8(4);
                run.encode(out);
            }
            Self::OpenRun => out.put_u8(5),
            Self::At(position) => {
                out.put_u8(6);
                position.encode(out);
            }
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8()? {
            0 => Self::Cursor,
            1 => Self::Oldest,
            2 => Self::Next,
            3 => Self::Newest,
            4 => Self::Run(Run::decode(from)?),
            5 => Self::OpenRun,
            6 => Self::At(Position::decode(from)?),
            other => return Err(from.refuse("start of steps", u64::from(other))),
        })
    }
}

/// A rank that attaches names no more turns than this: a rank is no further ahead of its group.
pub const TURNS_MAX: usize = 64;

record! {
    /// A rank of a group of readers.
    pub struct ReaderMember {
        /// Name of the reading program, by which its position is kept.
        pub reader: String,
        /// Which of the groups that share the steps of that name; empty if none are shared.
        pub group: String,
        pub rank: Rank,
        /// Who the asker is: a number that it chose at random, and says again when it joins anew.
        pub member: MemberId,
    }
}

record! {
    /// A rank attaches to its reader group.
    pub struct JoinReaders {
        pub who: ReaderMember,
        pub ranks: u32,
        /// Which groups are given a step; all that share a name say the same.
        pub distribution: Distribution,
        /// Where the group begins; the first rank that attaches decides.
        pub start: StepStart,
        /// Whether each turn is given the newest step there is, and others are passed over.
        pub latest: bool,
        /// How long a rank may be away before its turn is given up, milliseconds.
        pub session_timeout_ms: u32,
        /// The life of the group that it was in, if it attaches again; 0 is a new life of the rank.
        pub life: MemberId,
        /// The turn that it asks for next, if it attaches again.
        pub turn: u64,
        /// The last turn that it has released.
        pub released: u64,
        /// Where the records of the turns before `turn` are, the last one last: all of them, or the
        /// last [`TURNS_MAX`]. For a server that was restarted.
        pub turns: Vec<Position>,
    }
}

record! {
    /// The rank is attached.
    pub struct ReadersJoined {
        /// The turn that it may ask for next, from 1.
        pub turn: u64,
        /// The life of its group: the member that began it.
        pub life: MemberId,
        /// Before the first record that it may be given: where it begins if it attaches again before
        /// it has had a turn.
        pub began: Position,
    }
}

record! {
    /// Says that a rank of a reader group is there, until the connection ends.
    pub struct AttendReaders {
        pub who: ReaderMember,
    }
}

record! {
    /// A rank has done with all turns, and is waited for no more.
    pub struct LeaveReaders {
        pub who: ReaderMember,
    }
}

record! {
    /// Asks for the step of a turn; the same one is given to all ranks of the group.
    pub struct NextStep {
        pub who: ReaderMember,
        pub turn: u64,
        /// The last turn that the rank has done with, so that no [`ReleaseStep`] need say so; 0 says
        /// nothing.
        pub released: u64,
    }
}

record! {
    /// A turn's step: its record is the last event of the payload, behind those that changed
    /// attributes since the turn before.
    pub struct StepGiven {
        pub turn: u64,
        /// Where the record is, in partition 0.
        pub position: Position,
        /// Steps that were passed over since the turn before.
        pub skipped: u64,
        /// What of the records since the turn before is gone, as events; retention took them.
        pub lost: u64,
        /// The step is pinned, and retention has passed it: the payload is the copy of its record
        /// alone, whose own offset is another one.
        pub pinned: bool,
        /// Length of each batch in the payload.
        pub batch_bytes: Vec<u64>,
    }
}

record! {
    /// A rank has done with a turn. When all have, the group's cursor moves.
    pub struct ReleaseStep {
        pub who: ReaderMember,
        pub turn: u64,
    }
}
