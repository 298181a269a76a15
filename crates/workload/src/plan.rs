//! Which process does what in a run.

use crate::disruption::Target;
use crate::pace::{Loop, Rate, Schedule, Share};
use crate::pattern::Pattern;
use crate::scenario::{Amount, Backend, Run, Scenario, Url};
use crate::settings::{Confirms, Settings, queue_of};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A producer or a consumer, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Member {
    /// One that takes messages.
    Consumer(u64),
    /// One that sends them.
    Producer(u64),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(index) => write!(f, "consumer {index}"),
            Self::Producer(index) => write!(f, "producer {index}"),
        }
    }
}

/// When a producer sends its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// At once while fewer messages than these are unconfirmed.
    Window(u64),
    /// At once, and after each so many messages it waits for all of their confirms.
    Batches(u64),
    /// After the reply to the last one, or after its confirm in a pattern without replies.
    OneByOne,
    /// When it is due.
    Due(Schedule),
}

/// Where replies to a producer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replies {
    /// There are none.
    None,
    /// To a queue of its own.
    Own,
    /// To one queue of all producers.
    Shared,
}

/// What one member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Who.
    pub member: Member,
    /// Its queue of a shared stream. A broadcast has none: each consumer makes its own.
    pub queue: Option<u64>,
    /// Messages that a producer sends. Without a number it goes on until it is stopped.
    pub messages: Option<u64>,
    /// How a producer sends. Consumers have none.
    pub pace: Option<Pace>,
    /// How replies go.
    pub replies: Replies,
    /// Whether it says as it goes what it has and did: it is to be killed.
    pub keeps_journal: bool,
}

/// What all members of a run know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    /// The run's number, which stamps carry.
    pub run: u64,
    /// Who carries messages.
    pub backend: Backend,
    /// Where it is.
    pub url: Option<Url>,
    /// A file with the token of members, which may be replaced while they run. Without it the URL says who they are.
    pub credential: Option<PathBuf>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Who gets which message.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub message_bytes: u64,
    /// What its bytes are made from.
    pub seed: u64,
    /// Producers in all.
    pub producers: u64,
    /// Consumers in all.
    pub consumers: u64,
    /// What the backend is asked for.
    pub settings: Settings,
}

/// What one process is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Which process, from 0.
    pub process: u64,
    /// The run.
    pub common: Common,
    /// Its members, all consumers or all producers.
    pub tasks: Vec<Task>,
}

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanError {
    /// The loop is a share of a rate that nobody has measured.
    NotMeasured,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured => f.write_str(
                "the loop is a share of the rate of an open loop: run that first and bring its messages a second",
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// A run, process by process: consumers' first, then producers'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What each process is given.
    pub assignments: Vec<Assignment>,
    /// Deliveries to consumers, if messages are counted.
    pub deliveries: Option<u64>,
    /// How long producers send, if they are not counted.
    pub seconds: Option<u64>,
}

impl Plan {
    /// That of one run. `measured` are the messages a second, by wall time, of an open loop at the same numbers.
    ///
    /// # Errors
    /// If the loop needs a measured rate and there is none.
    pub fn new(
        scenario: &Scenario,
        run: Run,
        number: u64,
        measured: Option<f64>,
    ) -> Result<Self, PlanError> {
        let common = Common {
            run: number,
            backend: scenario.backend,
            url: scenario.url.clone(),
            credential: None,
            tls: scenario.tls,
            pattern: scenario.pattern,
            message_bytes: scenario.shape.message_bytes,
            seed: scenario.seed,
            producers: run.producers,
            consumers: run.consumers,
            settings: scenario.settings,
        };
        let consumers = (0..run.consumers).map(|index| consumer(scenario, &common, index));
        let producers = (0..run.producers)
            .map(|index| producer(scenario, &common, index, measured))
            .collect::<Result<Vec<Task>, PlanError>>()?;
        let deliveries = producers
            .iter()
            .map(|task| task.messages)
            .sum::<Option<u64>>()
            .map(|messages| messages * scenario.pattern.copies(run.consumers));
        let pack = scenario.pack as usize;
        let consumers: Vec<Task> = consumers.collect();
        let packs = consumers.chunks(pack).chain(producers.chunks(pack));
        let assignments = packs
            .zip(0..)
            .map(|(tasks, process)| Assignment {
                process,
                common: common.clone(),
                tasks: tasks.to_vec(),
            })
            .collect();
        let seconds = match scenario.amount {
            Amount::Seconds(seconds) => Some(seconds),
            Amount::Messages(_) => None,
        };
        Ok(Self {
            assignments,
            deliveries,
            seconds,
        })
    }

    /// All members, consumers first.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        let tasks = self.assignments.iter().flat_map(|one| &one.tasks);
        tasks.map(|task| task.member)
    }
}

fn queue(common: &Common, index: u64, count: u64) -> Option<u64> {
    (!common.pattern.is_broadcast()).then(|| queue_of(index, count, common.settings.queues))
}

fn consumer(scenario: &Scenario, common: &Common, index: u64) -> Task {
    let member = Member::Consumer(index);
    Task {
        member,
        keeps_journal: is_killed(scenario, member),
        queue: queue(common, index, common.consumers),
        messages: None,
        pace: None,
        replies: replies(common.pattern),
    }
}

/// Whether a scenario kills a member.
fn is_killed(scenario: &Scenario, member: Member) -> bool {
    let mut kills = scenario.disruptions.iter().filter(|one| one.ends_member());
    kills.any(|one| member_of(one.target) == Some(member))
}

/// The member that is disrupted, if it is one.
pub fn member_of(target: Target) -> Option<Member> {
    match target {
        Target::Producer(index) => Some(Member::Producer(index)),
        Target::Consumer(index) => Some(Member::Consumer(index)),
        Target::Server | Target::Proxy | Target::Line => None,
    }
}

fn replies(pattern: Pattern) -> Replies {
    match pattern {
        Pattern::WorkSharing | Pattern::Broadcast => Replies::None,
        Pattern::WorkSharingFeedback => Replies::Own,
        Pattern::BroadcastGather => Replies::Shared,
    }
}

fn producer(
    scenario: &Scenario,
    common: &Common,
    index: u64,
    measured: Option<f64>,
) -> Result<Task, PlanError> {
    let member = Member::Producer(index);
    Ok(Task {
        member,
        keeps_journal: is_killed(scenario, member),
        queue: queue(common, index, common.producers),
        messages: scenario
            .messages_of(common.consumers)
            .map(|messages| scenario.messages_each(messages, index, common.producers)),
        pace: Some(pace(scenario, index, common.producers, measured)?),
        replies: replies(common.pattern),
    })
}

/// The window of a producer that nobody confirms anything to.
const UNCONFIRMED_MAX: u64 = 1024;

fn pace(
    scenario: &Scenario,
    index: u64,
    count: u64,
    measured: Option<f64>,
) -> Result<Pace, PlanError> {
    let share = Share {
        producer: index,
        producers: count,
    };
    let window = match scenario.settings.confirms {
        Confirms::None | Confirms::Async => Pace::Window(UNCONFIRMED_MAX),
        Confirms::Each => Pace::Window(1),
        Confirms::Batch(count) => Pace::Window(count),
    };
    Ok(match (scenario.pacing, scenario.rate) {
        (Loop::Closed, _) => Pace::OneByOne,
        (Loop::Share(part), _) => {
            let measured = measured.ok_or(PlanError::NotMeasured)?;
            Pace::Due(Schedule::of_messages(measured * part, share))
        }
        (Loop::Open, Rate::Enforced) => {
            let rate = scenario
                .shape
                .rate_bytes_per_second
                .expect("a scenario whose rate is enforced has one");
            Pace::Due(Schedule::of_bytes(
                rate,
                scenario.shape.message_bytes,
                share,
            ))
        }
        (Loop::Open, Rate::Unlimited) => window,
        (Loop::Open, Rate::Published) => match scenario.settings.confirms {
            Confirms::Batch(count) => Pace::Batches(count),
            _ => window,
        },
    })
}
