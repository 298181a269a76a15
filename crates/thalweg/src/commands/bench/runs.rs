//! The repetitions of a case.

use super::case::{Case, Work};
use super::clients::{Clients, Round};
use super::job::{Delays, Job, Plan, Role, assign};
use super::kept::Kept;
use super::limits::Limits;
use super::meter::Usage;
use super::peer::Server;
use crate::failure::{About, Code, Failure};
use client::{Definition, Driver, PartitionStorage};
use std::path::Path;
use topic::{Overflow, Retention, SerializerKind, ValidatorKind};

/// The queue that members share.
const QUEUE: &str = "queue";

/// One repetition beside its limits.
#[derive(Debug)]
pub struct Repetition {
    /// What the machine could do just before.
    pub limits: Limits,
    /// Of the slowest client.
    pub seconds: f64,
    /// Events that were produced, or consumed where that is measured.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
    pub clients: Usage,
    pub server: Option<Usage>,
    pub delays: Option<Delays>,
}

/// What repetitions need.
pub struct Rig<'a> {
    pub server: &'a Server,
    pub driver: &'a Driver,
    pub clients: &'a mut Clients,
    pub kept: &'a mut Kept,
    pub scratch: &'a Path,
}

impl Rig<'_> {
    /// Runs one repetition on topics of its own, which are left in place.
    pub fn repeat(&mut self, case: &Case, limits: Limits) -> Result<Repetition, Failure> {
        let names = self.topics(case)?;
        let plan = Plan {
            topics: &names,
            partitions: case.load.partitions,
            warmup: case.load.warmup,
            events: case.events,
        };
        let clients = case.load.clients;
        let round = match case.work {
            Work::Produce => self.round(produce_jobs(case, &plan, clients))?,
            Work::Consume => {
                let history = Plan {
                    warmup: 0,
                    events: plan.warmup + plan.events,
                    ..plan
                };
                self.round(fill_jobs(case, &history, clients))?;
                self.round(consume_jobs(case, &plan, clients))?
            }
            Work::Pipeline => {
                // Warm-up would lie ready for consumers before they begin.
                let plan = Plan { warmup: 0, ..plan };
                let mut jobs = produce_jobs(case, &plan, clients);
                jobs.extend(consume_jobs(case, &plan, clients));
                self.round(jobs)?
            }
            Work::Latency => {
                let meeting = self.scratch.join(format!("meeting-{}", names[0]));
                let mut jobs = produce_jobs(case, &plan, 1);
                jobs.extend(consume_jobs(case, &plan, 1));
                for (job, role) in jobs.iter_mut().zip([Role::Send, Role::Receive]) {
                    job.role = role;
                    job.meeting = Some(meeting.clone());
                }
                self.round(jobs)?
            }
            Work::Queue if case.load.live => {
                if plan.warmup > 0 {
                    self.round(live_jobs(case, &plan, 0, plan.warmup))?;
                }
                self.round(live_jobs(case, &plan, plan.warmup, plan.events))?
            }
            Work::Queue => {
                self.round(fill_jobs(case, &plan, clients))?;
                self.round(queue_jobs(case, &plan, Role::Settle))?
            }
            Work::Request => {
                let mut jobs = jobs(case, &plan, clients, Role::Ask);
                jobs.extend(queue_jobs(case, &plan, Role::Reply));
                self.round(jobs)?
            }
            Work::Broadcast => {
                let mut jobs = jobs(case, &plan, 1, Role::Broadcast);
                jobs.extend(self::jobs(case, &plan, clients, Role::Hear));
                self.round(jobs)?
            }
        };
        let repetition = summed(case, round, limits);
        let wanted = match case.work {
            Work::Broadcast => case.events * clients as u64,
            _ => case.events,
        };
        let is_complete = match case.work {
            // Independent consumers each have their own.
            Work::Consume | Work::Pipeline => true,
            // One that was delivered twice is handled twice.
            Work::Queue => repetition.events >= wanted,
            _ => repetition.events == wanted,
        };
        if !is_complete {
            let what = format!("{} events were moved, not {wanted}", repetition.events);
            return Err(Failure::new(Code::Failure, "the clients", what));
        }
        Ok(repetition)
    }

    fn round(&mut self, jobs: Vec<Job>) -> Result<Round, Failure> {
        self.clients.round(jobs, self.server, self.driver)
    }

    fn topics(&mut self, case: &Case) -> Result<Vec<String>, Failure> {
        let each = case.stored_bytes() / case.load.topics as u64;
        self.kept.make_space(self.driver, case.stored_bytes())?;
        (0..case.load.topics)
            .map(|_| {
                let name = self.kept.name(each);
                make_topic(case, &name, self.driver)?;
                Ok(name)
            })
            .collect()
    }
}

fn make_topic(case: &Case, name: &str, driver: &Driver) -> Result<(), Failure> {
    let load = &case.load;
    let mut definition = Definition::builder().serializer(SerializerKind::Raw);
    if let Some(level) = load.durability {
        definition = definition.durability(level);
    }
    if load.check {
        definition = definition.validator(ValidatorKind::Json);
    }
    if load.retention_bytes.is_some() {
        definition = definition.retention(Retention {
            bytes: load.retention_bytes,
            ..Retention::default()
        });
    }
    if load.backlog_bytes.is_some() {
        definition = definition.overflow(Overflow::Block).retention(Retention {
            bytes: load.backlog_bytes,
            ..Retention::default()
        });
    }
    let is_limited = load.retention_bytes.or(load.backlog_bytes).is_some() || load.keep_unsettled;
    if is_limited && matches!(case.work, Work::Queue | Work::Request) {
        definition = definition.keep_until_acknowledged(vec![QUEUE.to_owned()]);
    }
    if load.metadata_bytes > 1 << 20 {
        definition = definition.metadata_bytes_max(load.metadata_bytes as u32);
    }
    let definition = definition
        .build()
        .map_err(|error| Failure::usage(name, error))?;
    let storage = PartitionStorage {
        kind: load.storage.clone(),
        config: String::new(),
    };
    let storages = vec![storage; load.partitions as usize];
    driver
        .create_topic(name, &definition, &storages)
        .about(name)
        .map(|_| ())
}

fn jobs(case: &Case, plan: &Plan<'_>, clients: usize, role: Role) -> Vec<Job> {
    let shares = assign(plan, clients, matches!(role, Role::Consume | Role::Hear));
    let jobs = shares.into_iter().enumerate().map(|(rank, shares)| Job {
        role,
        shares,
        load: case.client_load(),
        name: format!("consumer-{rank}"),
        meeting: None,
        total: plan.warmup + plan.events,
    });
    jobs.collect()
}

/// Members of one queue, each of which reads all partitions.
fn queue_jobs(case: &Case, plan: &Plan<'_>, role: Role) -> Vec<Job> {
    let mut jobs = jobs(case, plan, case.load.clients, role);
    for job in &mut jobs {
        job.name = QUEUE.to_owned();
    }
    jobs
}

/// So many events are pushed and settled at the same time, behind others that
/// were before.
fn live_jobs(case: &Case, plan: &Plan<'_>, before: u64, events: u64) -> Vec<Job> {
    let plan = Plan {
        warmup: 0,
        events,
        ..*plan
    };
    let mut jobs = produce_jobs(case, &plan, case.load.clients);
    jobs.extend(queue_jobs(case, &plan, Role::Settle));
    for job in &mut jobs {
        job.total += before;
    }
    jobs
}

fn produce_jobs(case: &Case, plan: &Plan<'_>, clients: usize) -> Vec<Job> {
    jobs(case, plan, clients, Role::Produce)
}

fn consume_jobs(case: &Case, plan: &Plan<'_>, clients: usize) -> Vec<Job> {
    jobs(case, plan, clients, Role::Consume)
}

/// Makes the history that consumers read: the same batches, without waits.
fn fill_jobs(case: &Case, plan: &Plan<'_>, clients: usize) -> Vec<Job> {
    let mut jobs = produce_jobs(case, plan, clients);
    for job in &mut jobs {
        job.load.flush_every = None;
    }
    jobs
}

fn summed(case: &Case, round: Round, limits: Limits) -> Repetition {
    // Where both sides work, the consumers' events are told: they come last.
    let of_interest = match case.work {
        Work::Produce | Work::Consume => &round.done[..],
        Work::Queue if !case.load.live => &round.done[..],
        Work::Pipeline | Work::Latency | Work::Queue => &round.done[round.done.len() / 2..],
        Work::Request => &round.done[..round.done.len() / 2],
        // Who sent tells the delays, those who heard tell the bytes.
        Work::Broadcast => &round.done[1..],
    };
    let delays_of = match case.work {
        Work::Broadcast => &round.done[..1],
        _ => of_interest,
    };
    let delays: Vec<Delays> = delays_of.iter().filter_map(|done| done.delays).collect();
    Repetition {
        limits,
        seconds: round
            .done
            .iter()
            .map(|done| done.seconds)
            .fold(0.0, f64::max),
        events: of_interest.iter().map(|done| done.events).sum(),
        bytes: of_interest.iter().map(|done| done.bytes).sum(),
        clients: round.clients,
        server: round.server,
        delays: worst(&delays),
    }
}

/// Of several consumers the worst counts, percentile by percentile.
fn worst(delays: &[Delays]) -> Option<Delays> {
    delays.iter().copied().reduce(|a, b| Delays {
        count: a.count + b.count,
        min: a.min.min(b.min),
        p50: a.p50.max(b.p50),
        p90: a.p90.max(b.p90),
        p99: a.p99.max(b.p99),
        p999: a.p999.max(b.p999),
        max: a.max.max(b.max),
    })
}
