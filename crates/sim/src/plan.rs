//! What a seed chooses: the topic, the machine, the clients, and what goes wrong when.

use crate::machine::MachinePlan;
use crate::planted::Planted;
use crate::random::Random;
use broker::Limits;
use client::{
    GroupMember, GroupOptions, PartitionStorage, ProducerOptions, QueueConsumerOptions,
    QueueOptions,
};
use log::testing::Survival;
use net::testing::sim::SimFaults;
use std::collections::BTreeSet;
use std::time::Duration;
use topic::{Definition, Overflow, Retention, SelectorKind};
use wire::Durability;

/// The topic of runs that have one.
pub const TOPIC: &str = "stream";

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Every connection is cut.
    Cut,
    /// Every connection falls silent, half-open.
    Silence,
    /// The server is killed and comes back.
    Kill,
    /// The machine loses power and comes back.
    PowerLoss(Survival),
    /// No space is left on the disk, for a while.
    DiskFull,
    /// One of the next disk operations fails; the server is restarted later.
    DiskError(u64),
    /// A producer's process is killed and comes back.
    ProducerDies(usize),
    /// A second process of a producer's name starts while the first one lives.
    ProducerFenced(usize),
    /// A consumer's process is killed and comes back.
    ConsumerDies(usize),
    /// A consumer goes back.
    Seek(usize),
    /// The server's process is stopped for so long.
    Stop(u64),
    /// Something happens to one program.
    Trouble(Who, Trouble),
}

/// A program, by its place in the list of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// One that pushes.
    Producer(usize),
    /// One that shares a queue's events.
    Worker(usize),
    /// One that shares a group's partitions.
    Member(usize),
    /// One that asks.
    Requester(usize),
    /// One that replies.
    Answerer(usize),
}

/// What happens to one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is killed and comes back.
    Dies,
    /// It leaves as it should, and comes back.
    Leaves,
    /// It is stopped for so long, nanoseconds, as by SIGSTOP.
    Stops(u64),
    /// Nothing gets from it or to it for so long.
    CutOff(u64),
    /// Its connections are slow from now on.
    Slow,
    /// A second process of its instance name starts while it lives.
    Replaced,
}

/// A run, as its seed wants it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub machine: MachinePlan,
    pub definition: Definition,
    pub partitions: Vec<PartitionStorage>,
    /// What each partition promises.
    pub levels: Vec<Durability>,
    pub faults: SimFaults,
    pub mishaps: Vec<(u64, Mishap)>,
    /// When the chaos ends.
    pub heals_at: u64,
    pub producers: Vec<ProducerPlan>,
    pub consumers: Vec<ConsumerPlan>,
    pub workers: Vec<WorkerPlan>,
    pub members: Vec<MemberPlan>,
    pub requesters: Vec<RequesterPlan>,
    pub answerers: Vec<AnswererPlan>,
    /// Whom the topic keeps what they have not acknowledged for.
    pub kept_for: BTreeSet<String>,
    /// Whether nothing goes wrong with requests.
    pub is_calm: bool,
}

/// A topic.
#[derive(Debug, Clone)]
pub struct TopicPlan {
    pub definition: Definition,
    pub partitions: Vec<PartitionStorage>,
    /// What each partition promises.
    pub levels: Vec<Durability>,
    /// Whether each partition is on a node of its own.
    pub is_spread: bool,
}

impl TopicPlan {
    /// What it is made with.
    pub fn made_with(&self) -> (Definition, Vec<PartitionStorage>) {
        if !self.is_spread {
            return (self.definition.clone(), self.partitions.clone());
        }
        let mut spread = topic::Spread::default();
        for storage in &self.partitions {
            let pushed = spread.push(
                &storage.kind,
                &storage.config,
                &topic::Placement::default(),
                1,
            );
            pushed.expect("the simulation's topics have few partitions");
        }
        let definition = self.definition.with_spread(spread);
        (definition.expect("they can be spread"), Vec::new())
    }

    /// Whether producers may ask for more than the topic promises.
    pub fn can_raise(&self) -> bool {
        self.levels.iter().all(|level| *level != Durability::Memory)
    }
}

/// Partitions whose segments are full after a few batches.
const SMALL_SEGMENTS: &str = r#"{"segment_bytes":3000,"checkpoint_bytes":2000,"allocate_bytes_min":4096,"allocate_bytes_max":4096,"index_bytes":1000,"direct_bytes_min":4096}"#;

/// A producer's program.
#[derive(Debug, Clone)]
pub struct ProducerPlan {
    pub topic: String,
    pub options: ProducerOptions,
    /// Events that it pushes, over all its lives.
    pub event_count: u64,
    /// How long it thinks between pushes, nanoseconds.
    pub pause_ns: std::ops::Range<u64>,
    /// The largest data.
    pub data_bytes_max: u64,
    /// How many keys its events have; none if 0.
    pub keys: u64,
    /// Whether nothing goes wrong, so that no producer may fail.
    pub is_calm: bool,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
    /// Whether nobody may lead the table for a while.
    pub may_lack_leader: bool,
    /// It looks at its topic once in so many times that it acts; never if that is 0.
    pub looks_one_in: u64,
}

/// A consumer's program.
#[derive(Debug, Clone)]
pub struct ConsumerPlan {
    pub topic: String,
    pub name: String,
    pub credit_bytes: u64,
    /// Whether it wants only a part of the data.
    pub selects: bool,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
    /// How long it thinks between pulls.
    pub pause_ns: std::ops::Range<u64>,
    /// It looks at its topic once in so many times that it acts; never if that is 0.
    pub looks_one_in: u64,
}

/// A worker's program: a consumer of a queue.
#[derive(Debug, Clone)]
pub struct WorkerPlan {
    pub name: String,
    pub queue: String,
    pub instance: Option<String>,
    pub options: QueueConsumerOptions,
    /// How long it thinks between pulls, nanoseconds.
    pub pause_ns: std::ops::Range<u64>,
    /// How long it works at an event.
    pub think_ns: std::ops::Range<u64>,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
}

/// The program of a group's member.
#[derive(Debug, Clone)]
pub struct MemberPlan {
    pub name: String,
    pub group: String,
    pub member: GroupMember,
    pub credit_bytes: u64,
    /// How long it thinks between pulls, nanoseconds.
    pub pause_ns: std::ops::Range<u64>,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
}

/// A program that asks.
#[derive(Debug, Clone)]
pub struct RequesterPlan {
    pub name: String,
    pub producer: ProducerOptions,
    /// Requests that it sends, over all its lives.
    pub request_count: u64,
    /// How long it thinks between them, nanoseconds.
    pub pause_ns: std::ops::Range<u64>,
    /// How long it gives those that are not to be answered whatever happens.
    pub deadline_ms: std::ops::Range<u64>,
    pub starts_at: u64,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
}

/// A program that gets requests.
#[derive(Debug, Clone)]
pub struct AnswererPlan {
    pub name: String,
    /// Its queue; else it is an independent consumer.
    pub queue: Option<QueuePlan>,
    /// Its name as an independent one.
    pub consumer: String,
    /// It never replies.
    pub is_silent: bool,
    /// How long it thinks between pulls, nanoseconds.
    pub pause_ns: std::ops::Range<u64>,
    /// How long it works at a request.
    pub think_ns: std::ops::Range<u64>,
    /// Whether the disk fails, so that partitions may.
    pub disk_fails: bool,
}

/// The queue of a program that replies.
#[derive(Debug, Clone)]
pub struct QueuePlan {
    pub name: String,
    pub options: QueueConsumerOptions,
}

/// How much goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    Calm,
    /// All of it.
    Chaos,
    /// All of it, where consumers share: members of queues and groups.
    Sharing,
    /// All of it, or nothing, where programs ask and others reply.
    Asking,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64, weather: Weather, planted: Option<Planted>) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let of_topic = topic(random);
        let heals_at = random.within(4 * SECOND..12 * SECOND);
        let is_calm = weather == Weather::Calm;
        let can_raise = of_topic.can_raise();
        let TopicPlan {
            definition,
            partitions,
            levels,
            ..
        } = of_topic;
        let producers: Vec<_> = (0..2)
            .map(|index| ProducerPlan {
                is_calm,
                ..producer(random, index, can_raise)
            })
            .collect();
        let faults = match random.below(4) {
            _ if is_calm => SimFaults::none(),
            0 => SimFaults::none(),
            1 => SimFaults {
                cut_one_in: 4,
                silent_one_in: 20,
                ..SimFaults::chaos()
            },
            _ => SimFaults::chaos(),
        };
        let mut plan = Self {
            seed,
            machine: machine(random, planted),
            definition,
            partitions,
            levels,
            faults,
            mishaps: Vec::new(),
            heals_at,
            producers,
            consumers: (0..2).map(|index| consumer(random, index)).collect(),
            workers: Vec::new(),
            members: Vec::new(),
            requesters: Vec::new(),
            answerers: Vec::new(),
            kept_for: BTreeSet::new(),
            is_calm: false,
        };
        match weather {
            Weather::Calm => {}
            Weather::Chaos => plan.add_mishaps(random),
            Weather::Sharing => plan.share(random),
            Weather::Asking => plan.ask(random),
        }
        plan
    }

    /// Has consumers that share in the place of independent ones.
    fn share(&mut self, random: &mut Random) {
        let count = random.within(1..5) as usize;
        let disk = self.partitions[0].clone();
        self.partitions = vec![disk; count];
        self.levels = vec![Durability::Synced; count];
        let keys = random.pick(&[0, 1, 4, 20]);
        for producer in &mut self.producers {
            producer.options.durability = None;
            producer.data_bytes_max = producer.data_bytes_max.min(3_000);
            producer.keys = keys;
        }
        self.consumers.truncate(random.below(3) as usize);
        let deliveries_max = random.pick(&[1, 2, 3, 5, 20]);
        for queue in 0..random.within(1..3) {
            let options = QueueOptions {
                lease_ms: random.pick(&[300, 1_000, 3_000]),
                deliveries_max,
                ordered_by_key: random.one_in(2),
                ..QueueOptions::default()
            };
            for index in 0..random.within(1..4) {
                let worker = worker(random, queue, index, &options);
                self.workers.push(worker);
            }
        }
        let group = GroupOptions {
            revoke_timeout_ms: random.pick(&[300, 2_000]),
        };
        for number in 0..random.within(0..3) {
            for index in 0..random.within(1..4) {
                self.members.push(member(random, number, index, &group));
            }
        }
        self.keep(random);
        self.add_troubles(random);
    }

    /// Has the topic keep, or not, what its consumers have not acknowledged:
    /// all but one independent consumer are spared by retention, and some
    /// producers wait for them.
    fn keep(&mut self, random: &mut Random) {
        let mut builder = Definition::builder()
            .partition_selector(SelectorKind::Explicit)
            .durability(Durability::Synced);
        if random.one_in(2) {
            let workers = self.workers.iter().map(|worker| worker.queue.clone());
            let members = self.members.iter().map(|member| member.group.clone());
            let consumers = self.consumers.first().map(|one| one.name.clone());
            let names: BTreeSet<String> = workers.chain(members).chain(consumers).collect();
            self.kept_for = names.clone();
            builder = builder.keep_until_acknowledged(names.into_iter().collect());
            // Without a limit what all have acknowledged goes at once.
            if random.one_in(2) {
                builder = builder.retention(Retention {
                    count: Some(random.within(1..30)),
                    ..Retention::default()
                });
                // Or producers wait for those who share.
                if random.one_in(2) {
                    builder = builder.overflow(Overflow::Block);
                }
            }
            for partition in &mut self.partitions {
                partition.config = SMALL_SEGMENTS.to_owned();
            }
        }
        let definition = builder.build();
        self.definition = definition.expect("the simulation's topics are good");
    }

    /// Has programs that ask and programs that reply, and nobody who consumes.
    fn ask(&mut self, random: &mut Random) {
        self.partitions.truncate(1);
        self.levels = vec![Durability::Synced];
        self.definition = Definition::builder()
            .durability(Durability::Synced)
            .build()
            .expect("the simulation's topics are good");
        self.producers.truncate(1);
        for producer in &mut self.producers {
            producer.options.durability = None;
            producer.event_count = 3;
        }
        self.consumers.clear();
        let is_calm = random.one_in(4);
        let options = QueueOptions {
            lease_ms: random.pick(&[300, 1_000, 3_000]),
            // What nobody replies to comes again, for ever.
            deliveries_max: 0,
            ..QueueOptions::default()
        };
        for index in 0..random.within(1..4) {
            let worker = worker(random, 0, index, &options);
            let queue = QueuePlan {
                name: worker.queue,
                options: QueueConsumerOptions {
                    instance: None,
                    processing_timeout: None,
                    renew: is_calm || worker.options.renew,
                    ..worker.options
                },
            };
            let name = format!("worker-{index}");
            self.answerers.push(answerer(random, name, Some(queue)));
        }
        for index in 0..random.below(4) {
            let mut listener = answerer(random, format!("listener-{index}"), None);
            // Some are clients of one consumer.
            listener.consumer = format!("listener-{}", index / 2);
            listener.is_silent = random.one_in(3);
            self.answerers.push(listener);
        }
        for index in 0..random.within(1..4) {
            self.requesters.push(requester(random, index));
        }
        if !is_calm {
            self.add_troubles(random);
            return;
        }
        self.faults = SimFaults::none();
        self.is_calm = true;
        for answerer in &mut self.answerers {
            answerer.pause_ns = 1..10 * MILLISECOND;
            answerer.think_ns = 0..MILLISECOND;
        }
        for requester in &mut self.requesters {
            requester.starts_at = 3 * SECOND;
            requester.deadline_ms = 3_000..5_000;
        }
        self.heals_at = 4 * SECOND;
    }

    fn add_troubles(&mut self, random: &mut Random) {
        for _ in 0..random.within(3..14) {
            let at = random.below(self.heals_at);
            let long = random.within(SECOND / 20..4 * SECOND);
            let mishap = match random.below(20) {
                0 => Mishap::Cut,
                1 => Mishap::Silence,
                2..=4 => Mishap::Kill,
                5 | 6 => Mishap::PowerLoss(match random.below(5) {
                    0 => Survival::Nothing,
                    1 => Survival::All,
                    _ => Survival::Some(random.number()),
                }),
                7 => Mishap::DiskFull,
                8 => Mishap::DiskError(random.below(40)),
                9 => Mishap::Stop(long),
                _ => {
                    let who = match random.below(5) {
                        _ if self.workers.is_empty() => self.who_asks(random),
                        0 => Who::Producer(random.below(self.producers.len() as u64) as usize),
                        1 | 2 if !self.members.is_empty() => {
                            Who::Member(random.below(self.members.len() as u64) as usize)
                        }
                        _ => Who::Worker(random.below(self.workers.len() as u64) as usize),
                    };
                    let trouble = match random.below(12) {
                        0..=2 => Trouble::Dies,
                        3..=5 => Trouble::Stops(long),
                        6..=8 => Trouble::CutOff(long),
                        9 => Trouble::Slow,
                        10 => Trouble::Leaves,
                        _ => Trouble::Replaced,
                    };
                    Mishap::Trouble(who, trouble)
                }
            };
            self.mishaps.push((at, mishap));
        }
        self.end_mishaps();
    }

    fn who_asks(&self, random: &mut Random) -> Who {
        let (requesters, answerers) = (self.requesters.len(), self.answerers.len());
        match random.below((requesters + answerers) as u64) as usize {
            one if one < requesters => Who::Requester(one),
            one => Who::Answerer(one - requesters),
        }
    }

    fn add_mishaps(&mut self, random: &mut Random) {
        for _ in 0..random.within(2..9) {
            let at = random.below(self.heals_at);
            let who = random.below(2) as usize;
            let mishap = match random.below(16) {
                0 => Mishap::Cut,
                1 => Mishap::Silence,
                2 | 3 => Mishap::Kill,
                4..=6 => Mishap::PowerLoss(match random.below(5) {
                    0 => Survival::Nothing,
                    1 => Survival::All,
                    _ => Survival::Some(random.number()),
                }),
                7 => Mishap::DiskFull,
                8 | 9 => Mishap::DiskError(random.below(40)),
                10 | 11 => Mishap::ProducerDies(who),
                12 => Mishap::ProducerFenced(who),
                13 | 14 => Mishap::ConsumerDies(who),
                _ => Mishap::Seek(who),
            };
            self.mishaps.push((at, mishap));
            if mishap == Mishap::DiskFull {
                // Cursors that are to be moved again and again are worth a look.
                for _ in 0..random.below(4) {
                    let soon = at + random.below(SECOND);
                    self.mishaps.push((soon, Mishap::Seek(who)));
                }
            }
        }
        self.end_mishaps();
    }

    fn end_mishaps(&mut self) {
        self.mishaps.sort_by_key(|(at, _)| *at);
        let fails =
            |(_, mishap): &(u64, Mishap)| matches!(mishap, Mishap::DiskFull | Mishap::DiskError(_));
        let disk_fails = self.mishaps.iter().any(fails);
        for producer in &mut self.producers {
            producer.disk_fails = disk_fails;
        }
        for consumer in &mut self.consumers {
            consumer.disk_fails = disk_fails;
        }
        for worker in &mut self.workers {
            worker.disk_fails = disk_fails;
        }
        for member in &mut self.members {
            member.disk_fails = disk_fails;
        }
        for requester in &mut self.requesters {
            requester.disk_fails = disk_fails;
        }
        for answerer in &mut self.answerers {
            answerer.disk_fails = disk_fails;
        }
    }
}

pub(crate) fn topic(random: &mut Random) -> TopicPlan {
    let small = r#"{"segment_bytes":20000,"checkpoint_bytes":8000,"allocate_bytes_min":4096,"allocate_bytes_max":8192,"index_bytes":2000,"direct_bytes_min":4096,"background_sync_bytes":6000}"#;
    let mut storage = |kind: &str| PartitionStorage {
        kind: kind.to_owned(),
        config: match kind {
            "disk" if random.one_in(2) => small.to_owned(),
            _ => String::new(),
        },
    };
    let (disk, other, memory) = (storage("disk"), storage("disk"), storage("memory"));
    let builder = Definition::builder()
        .partition_selector(SelectorKind::Explicit)
        .data_block_bytes(random.pick(&[512, 4096]));
    let (builder, partitions, levels) = match random.below(6) {
        0 | 1 => (
            builder.durability(Durability::Written),
            vec![disk, other],
            vec![Durability::Written; 2],
        ),
        2 => (
            builder.durability(Durability::Synced),
            vec![disk, other],
            vec![Durability::Synced; 2],
        ),
        _ => (
            builder,
            vec![disk, memory, other],
            vec![Durability::Synced, Durability::Memory, Durability::Synced],
        ),
    };
    let builder = match random.one_in(5) {
        true => builder.retention(Retention {
            count: Some(random.within(20..60)),
            ..Retention::default()
        }),
        false => builder,
    };
    let definition = builder.build().expect("the simulation's topics are good");
    TopicPlan {
        definition,
        partitions,
        levels,
        is_spread: false,
    }
}

pub(crate) fn machine(random: &mut Random, planted: Option<Planted>) -> MachinePlan {
    let defaults = Limits::default();
    let is_narrow = random.one_in(3);
    MachinePlan {
        limits: Limits {
            heartbeat: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(2),
            data_bytes_max: if is_narrow { 128 << 10 } else { 8 << 20 },
            produce_credit_bytes_max: if is_narrow { 16 << 10 } else { 1 << 20 },
            read_bytes_max: random.pick(&[2_000, 64 << 10]),
            internal_bytes_max: random.pick(&[20_000, 1 << 20]),
            drain_timeout: Duration::from_secs(5),
            ..defaults
        },
        internal_config: r#"{"segment_bytes":16384,"checkpoint_bytes":8192,"allocate_bytes_min":4096,"allocate_bytes_max":16384}"#.to_owned(),
        sync_ns: random.pick(&[MILLISECOND / 5..2 * MILLISECOND, MILLISECOND..40 * MILLISECOND]),
        operation_ns: random.pick(&[1000..50_000, 10_000..5 * MILLISECOND]),
        inline_one_in: random.pick(&[1, 2, 0]),
        turn_ends_one_in: random.pick(&[0, 2, 10]),
        fault: planted.and_then(Planted::broker),
        planted,
    }
}

pub(crate) fn producer(random: &mut Random, index: usize, can_raise: bool) -> ProducerPlan {
    let defaults = ProducerOptions::default();
    let raises = can_raise && random.one_in(6);
    let data_bytes_max = match random.below(10) {
        0 => 600_000,
        1..=5 => 20_000,
        _ => 3_000,
    };
    ProducerPlan {
        topic: TOPIC.to_owned(),
        options: ProducerOptions {
            name: (index == 0 || random.one_in(3)).then(|| format!("producer-{index}")),
            batch: client::BatchPolicy {
                count_max: Some(random.within(1..12) as u32),
                bytes_max: random.pick(&[2_000, 1 << 20]),
                linger: match random.below(3) {
                    0 => client::Linger::Adaptive,
                    1 => client::Linger::Wait(Duration::from_millis(random.below(60))),
                    _ => client::Linger::UntilFull,
                },
            },
            batches_in_flight_max: random.within(1..6) as usize,
            budget_bytes: random.pick(&[80_000, 4 << 20]),
            at_budget: client::AtBudget::Fail,
            durability: raises.then_some(Durability::Synced),
            inline_bytes_max: random.pick(&[100, 1_000]),
            ack_timeout: Duration::from_secs(60),
            ..defaults
        },
        event_count: random.within(20..90),
        pause_ns: 1..random.pick(&[20 * MILLISECOND, 150 * MILLISECOND]),
        data_bytes_max,
        keys: 0,
        is_calm: false,
        disk_fails: false,
        may_lack_leader: false,
        looks_one_in: 0,
    }
}

fn worker(random: &mut Random, queue: u64, index: u64, options: &QueueOptions) -> WorkerPlan {
    let name = format!("worker-{queue}-{index}");
    let instance = random.one_in(3).then(|| name.clone());
    WorkerPlan {
        queue: format!("queue-{queue}"),
        options: QueueConsumerOptions {
            queue: options.clone(),
            instance: instance.clone(),
            session_timeout: Duration::from_millis(random.pick(&[500, 1_500, 4_000])),
            processing_timeout: random.one_in(8).then_some(Duration::from_millis(700)),
            prefetch_events: random.pick(&[1, 3, 20]),
            prefetch_bytes: random.pick(&[2_000, 1 << 20]),
            renew: random.one_in(3),
            // Of the machine's clock, not the simulated one.
            job_end: None,
            ..QueueConsumerOptions::default()
        },
        name,
        instance,
        pause_ns: 1..random.pick(&[10 * MILLISECOND, 300 * MILLISECOND]),
        think_ns: 0..random.pick(&[1, 50 * MILLISECOND, 800 * MILLISECOND]),
        disk_fails: false,
    }
}

fn member(random: &mut Random, number: u64, index: u64, group: &GroupOptions) -> MemberPlan {
    let name = format!("member-{number}-{index}");
    MemberPlan {
        group: format!("group-{number}"),
        member: GroupMember {
            group: group.clone(),
            instance: random.one_in(3).then(|| name.clone()),
            session_timeout: Duration::from_millis(random.pick(&[500, 1_500, 4_000])),
            processing_timeout: random.one_in(8).then_some(Duration::from_millis(700)),
            ..GroupMember::default()
        },
        name,
        credit_bytes: random.pick(&[3_000, 1 << 20]),
        pause_ns: 1..random.pick(&[10 * MILLISECOND, 300 * MILLISECOND]),
        disk_fails: false,
    }
}

fn requester(random: &mut Random, index: u64) -> RequesterPlan {
    RequesterPlan {
        name: format!("requester-{index}"),
        producer: ProducerOptions {
            at_budget: client::AtBudget::Fail,
            inline_bytes_max: random.pick(&[100, 5_000]),
            // A request is given up at its own deadline.
            ack_timeout: Duration::from_secs(400),
            ..ProducerOptions::default()
        },
        request_count: random.within(5..30),
        pause_ns: 1..random.pick(&[20 * MILLISECOND, 300 * MILLISECOND]),
        deadline_ms: 10..random.pick(&[300, 4_000]),
        starts_at: 0,
        disk_fails: false,
    }
}

fn answerer(random: &mut Random, name: String, queue: Option<QueuePlan>) -> AnswererPlan {
    AnswererPlan {
        consumer: name.clone(),
        name,
        queue,
        is_silent: false,
        pause_ns: 1..random.pick(&[10 * MILLISECOND, 300 * MILLISECOND]),
        think_ns: 0..random.pick(&[1, 50 * MILLISECOND, 800 * MILLISECOND]),
        disk_fails: false,
    }
}

pub(crate) fn consumer(random: &mut Random, index: usize) -> ConsumerPlan {
    ConsumerPlan {
        topic: TOPIC.to_owned(),
        name: format!("consumer-{index}"),
        credit_bytes: random.pick(&[3_000, 100_000, 1 << 20]),
        selects: index == 1 && random.one_in(2),
        disk_fails: false,
        pause_ns: 1..random.pick(&[10 * MILLISECOND, 300 * MILLISECOND]),
        looks_one_in: 0,
    }
}
