//! The result of a run, from its members' reports.

use crate::account::{Account, Counts, SentBy};
use crate::architecture::Architecture;
use crate::barrier::Absent;
use crate::faults::{Fault, planted};
use crate::latency::{Latency, Percentiles};
use crate::pace::{Loop, Rate};
use crate::pattern::Pattern;
use crate::plan::Member;
use crate::report::{ConsumerReport, ProducerReport, Report};
use crate::scenario::{Amount, Backend, Run, Scenario};
use crate::settings::Settings;
use crate::shape::Shape;
use crate::window::{Spread, Throughput, per_second};
use serde::{Deserialize, Serialize};

/// CPU seconds from go to the end, user and system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// The server's, if the runner started it.
    pub server: Option<f64>,
    /// All proxies', if there are any.
    pub proxies: Option<f64>,
    /// All producers' and consumers', if all have said so.
    pub clients: Option<f64>,
}

/// What the runner knows of a run beside its members' reports.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// The run's number.
    pub number: u64,
    /// How the server was reached: the scheme of its address.
    pub transport: String,
    /// The rate of which the loop is a share.
    pub measured: Option<f64>,
    /// CPU seconds, of which are known.
    pub cpu: Option<Cpu>,
    /// What was done on purpose.
    pub done: Vec<Done>,
    /// Whose messages were refused, and why: the first of each producer.
    pub refusals: Vec<(Member, String)>,
}

/// What was done to a run on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// As [`RunResult::faults`] has it.
    pub fault: String,
    /// How long after go.
    pub after_ms: u64,
    /// How many messages consumers had said then that they had.
    pub received: u64,
}

/// The result of a run. `docs` of a field say how it is computed; the JSON has the same names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The version of this format.
    pub format: u64,
    /// The scenario's name.
    pub name: String,
    /// Who carried messages.
    pub backend: Backend,
    /// How the server was reached: the scheme of its address, as in `tcp`.
    pub transport: String,
    /// Whether connections were encrypted.
    pub tls: bool,
    /// What stood between.
    pub architecture: Architecture,
    /// Who got which message.
    pub pattern: Pattern,
    /// What messages looked like.
    pub workload: Shape,
    /// Producers.
    pub producers: u64,
    /// Consumers.
    pub consumers: u64,
    /// Which repetition, from 0.
    pub repetition: u64,
    /// Its number, which stamps and names of topics have.
    pub number: u64,
    /// What the bytes of messages are made from.
    pub seed: u64,
    /// Clients of a process.
    pub pack: u64,
    /// Messages that producers were to send, if they were counted.
    pub wanted: Option<u64>,
    /// How long they were to send, if not.
    pub seconds: Option<u64>,
    /// How fast producers might be.
    pub rate: Rate,
    /// What they waited for.
    #[serde(rename = "loop")]
    pub pacing: Loop,
    /// Messages a second of the open loop of which the loop is a share.
    pub measured: Option<f64>,
    /// What the backend was asked for.
    pub settings: Settings,
    /// What was to be done on purpose.
    pub faults: Vec<String>,
    /// What of it was done, and when.
    pub done: Vec<Done>,
    /// Who did not last until the end, and why. Of those who could still report, the figures until then count.
    pub missing: Vec<String>,
    /// Whose messages the backend has refused, and what it said of the first.
    #[serde(default)]
    pub refusals: Vec<String>,
    /// Messages sent, each once.
    pub sent: u64,
    /// Messages that the backend has taken.
    pub confirmed: u64,
    /// What came. In a broadcast, of all consumers together.
    pub received: Counts,
    /// The sum of each consumer's own rate over its own window: as published. It can exceed what a line carries.
    pub sum_of_windows: Option<Throughput>,
    /// Messages that came, each once for each consumer that was to have it, from the first send to the last receipt.
    pub wall: Option<Throughput>,
    /// That time.
    pub wall_ns: Option<u64>,
    /// Consumers' own rates.
    pub rate_spread: Option<Spread>,
    /// Consumers' messages.
    pub message_spread: Option<Spread>,
    /// The longest time in which some consumer, between two messages, got none.
    pub silence_ns: u64,
    /// Replies, each once.
    pub replies: u64,
    /// Replies that had come before, as there are some to a message that was delivered again. No time has them.
    pub replies_repeated: u64,
    /// Replies that did not come.
    pub unanswered: u64,
    /// From sending to the reply.
    pub rtt: Option<Percentiles>,
    /// From when a message was due to the reply: coordinated omission is accounted for.
    pub rtt_from_due: Option<Percentiles>,
    /// CPU seconds a gigabyte (10^9) that came.
    pub cpu_seconds_per_gigabyte: Option<Cpu>,
}

/// The version of results.
pub const FORMAT: u64 = 1;

impl RunResult {
    /// From the reports of all members, in any order. Of those who are missing there may be some too.
    pub fn new(
        scenario: &Scenario,
        run: Run,
        reports: &[Report],
        missing: &[Absent],
        observed: Observed,
    ) -> Self {
        let consumers = sorted(reports, consumer_of, |report| report.consumer);
        let producers = sorted(reports, producer_of, |report| report.producer);
        let mut received = received(scenario.pattern, &consumers, &producers, missing);
        if !scenario.pattern.is_broadcast() && is_unknown(missing, &consumers) {
            received.unaccounted = std::mem::take(&mut received.lost);
        }
        let sent: u64 = producers.iter().map(|report| report.sent).sum();
        let copies = scenario.pattern.copies(run.consumers);
        let replies: u64 = producers.iter().map(|report| report.replies).sum();
        let rates: Vec<f64> = consumers
            .iter()
            .filter_map(|report| report.window.rate())
            .collect();
        let messages: Vec<f64> = consumers
            .iter()
            .map(|report| report.window.messages as f64)
            .collect();
        let wall_ns = wall_ns(&consumers, &producers);
        let wall = wall_ns.and_then(|ns| per_second(received.distinct, ns));
        let throughput = |rate| throughput(rate, &scenario.shape);
        let gigabytes = received.deliveries as f64 * scenario.shape.message_bytes as f64 / 1e9;
        Self {
            format: FORMAT,
            name: scenario.name.clone(),
            backend: scenario.backend,
            tls: scenario.tls || ["tls", "amqps", "rediss"].contains(&observed.transport.as_str()),
            transport: observed.transport,
            architecture: scenario.architecture,
            pattern: scenario.pattern,
            workload: scenario.shape.clone(),
            producers: run.producers,
            consumers: run.consumers,
            repetition: run.repetition,
            number: observed.number,
            seed: scenario.seed,
            pack: scenario.pack,
            wanted: scenario.wanted(run),
            seconds: match scenario.amount {
                Amount::Seconds(seconds) => Some(seconds),
                Amount::Messages(_) => None,
            },
            rate: scenario.rate,
            pacing: scenario.pacing,
            measured: observed.measured,
            settings: scenario.settings,
            faults: scenario
                .disruptions
                .iter()
                .map(ToString::to_string)
                .collect(),
            done: observed.done,
            missing: missing
                .iter()
                .map(|one| format!("{}: {}", one.member, one.why))
                .collect(),
            refusals: observed
                .refusals
                .iter()
                .map(|(member, why)| format!("{member}: {why}"))
                .collect(),
            sent,
            confirmed: producers
                .iter()
                .map(|report| report.confirmed.count())
                .sum(),
            sum_of_windows: (!rates.is_empty()).then(|| throughput(rates.iter().sum())),
            wall: wall.map(throughput),
            wall_ns,
            rate_spread: Spread::of(&rates),
            message_spread: Spread::of(&messages),
            silence_ns: consumers
                .iter()
                .map(|report| report.window.silence_ns)
                .max()
                .unwrap_or(0),
            replies,
            replies_repeated: producers.iter().map(|report| report.replies_repeated).sum(),
            unanswered: match scenario.pattern.has_replies() {
                true => (sent * copies).saturating_sub(replies),
                false => 0,
            },
            rtt: all(producers.iter().map(|report| &report.service)).percentiles(),
            rtt_from_due: all(producers
                .iter()
                .filter_map(|report| report.response.as_ref()))
            .percentiles(),
            cpu_seconds_per_gigabyte: observed.cpu.filter(|_| gigabytes > 0.0).map(|cpu| Cpu {
                server: cpu.server.map(|seconds| seconds / gigabytes),
                proxies: cpu.proxies.map(|seconds| seconds / gigabytes),
                clients: cpu.clients.map(|seconds| seconds / gigabytes),
            }),
            received,
        }
    }

    /// As JSON that people can read too.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("results have text keys alone")
    }
}

fn consumer_of(report: &Report) -> Option<&ConsumerReport> {
    match report {
        Report::Consumer(report) => Some(report),
        Report::Producer(_) => None,
    }
}

fn producer_of(report: &Report) -> Option<&ProducerReport> {
    match report {
        Report::Producer(report) => Some(&**report),
        Report::Consumer(_) => None,
    }
}

/// The reports of a role, by number: sums of fractions are the same in any order of arrival.
fn sorted<T>(
    reports: &[Report],
    of_role: impl Fn(&Report) -> Option<&T>,
    number: impl Fn(&T) -> u64,
) -> Vec<&T> {
    let mut found: Vec<&T> = reports.iter().filter_map(of_role).collect();
    found.sort_by_key(|report| number(report));
    found
}

/// Whether nobody knows what some consumer had.
fn is_unknown(missing: &[Absent], consumers: &[&ConsumerReport]) -> bool {
    let is_there = |index: u64| consumers.iter().any(|report| report.consumer == index);
    let is_silent =
        |one: &Absent| matches!(one.member, Member::Consumer(index) if !is_there(index));
    missing.iter().any(is_silent) && !planted(Fault::SilentHadNothing)
}

/// What came to all consumers.
fn received(
    pattern: Pattern,
    consumers: &[&ConsumerReport],
    producers: &[&ProducerReport],
    missing: &[Absent],
) -> Counts {
    let sent: Vec<SentBy<'_>> = producers
        .iter()
        .map(|report| SentBy {
            producer: report.producer,
            sent: report.sent,
            confirmed: &report.confirmed,
        })
        .collect();
    if pattern.is_broadcast() || planted(Fault::SumOverConsumers) {
        let mut counts = Counts::default();
        for report in consumers {
            let mut its = report.account.counts(&sent);
            let member = Member::Consumer(report.consumer);
            if missing.iter().any(|one| one.member == member) {
                its.unaccounted = std::mem::take(&mut its.lost);
            }
            counts.add(&its);
        }
        return counts;
    }
    let mut accounts = consumers.iter().map(|report| &report.account);
    let mut shared = match accounts.next() {
        Some(first) => first.clone(),
        None => Account::new(0, 0),
    };
    for account in accounts {
        shared.unite(account);
    }
    shared.counts(&sent)
}

/// From the first send to the last receipt. All clocks are one, or agree: that is the runner's to see to.
fn wall_ns(consumers: &[&ConsumerReport], producers: &[&ProducerReport]) -> Option<u64> {
    let sent = producers.iter().filter_map(|report| report.window.span_ns);
    let came = consumers.iter().filter_map(|report| report.window.span_ns);
    let first = match planted(Fault::WallFromReceipt) {
        true => came.clone().map(|(first, _)| first).min()?,
        false => sent.map(|(first, _)| first).min()?,
    };
    came.map(|(_, last)| last).max()?.checked_sub(first)
}

fn throughput(messages_per_second: f64, shape: &Shape) -> Throughput {
    Throughput {
        messages_per_second,
        events_per_second: messages_per_second * shape.events_per_message as f64,
        bytes_per_second: messages_per_second * shape.message_bytes as f64,
    }
}

fn all<'a>(distributions: impl Iterator<Item = &'a Latency>) -> Latency {
    let mut all = Latency::new();
    for one in distributions {
        all.add(one);
    }
    all
}
