//! What a seed of a cluster chooses: servers, topics, clients, and what goes wrong when.

use crate::machine::MachinePlan;
use crate::plan::{self, ConsumerPlan, ProducerPlan, TopicPlan};
use crate::planted::Planted;
use crate::random::Random;
use log::testing::Survival;
use net::testing::sim::SimFaults;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterMishap {
    /// A server's process is killed and comes back after so long.
    Kill(usize, u64),
    /// A machine loses power and comes back.
    PowerLoss(usize, Survival, u64),
    /// All machines do, at once.
    Blackout(Survival),
    /// A server's process is stopped for so long.
    Stop(usize, u64),
    /// No space is left on a disk for so long.
    DiskFull(usize, u64),
    /// One of the next operations of a disk fails; the server is restarted later.
    DiskError(usize, u64),
    /// The link of two servers is cut, and comes back at once.
    Cut(usize, usize),
    /// Two servers do not reach each other for so long.
    Apart(usize, usize, u64),
    /// Nothing gets from the first to the second for so long.
    OneWay(usize, usize, u64),
    /// A server reaches no other one for so long.
    Alone(usize, u64),
    /// The link of two servers is so slow for so long.
    Slow(usize, usize, u64, u64),
    /// Every connection of a client is cut.
    CutClients,
    /// Every connection of a client falls silent.
    SilenceClients,
    /// Nothing gets from a producer's program or to it for so long.
    ProducerCutOff(usize, u64),
    /// The same, of a consumer's.
    ConsumerCutOff(usize, u64),
    /// A producer's process is killed and comes back.
    ProducerDies(usize),
    /// A second process of a producer's name starts while the first one lives.
    ProducerFenced(usize),
    /// A consumer's process is killed and comes back.
    ConsumerDies(usize),
    /// A consumer goes back.
    Seek(usize),
    /// Somebody begins to move a topic, or of a spread one this partition, to a server, from another one on.
    Move {
        topic: usize,
        partition: usize,
        to: usize,
        entrance: usize,
    },
    /// Who moves topics is killed.
    MoversDie,
}

/// A topic and who uses it.
#[derive(Debug, Clone)]
pub struct ClusterTopic {
    pub name: String,
    pub topic: TopicPlan,
}

/// A client's program: which topic it uses, and at which server it comes in.
#[derive(Debug, Clone)]
pub struct Client<P> {
    pub topic: usize,
    pub entrance: usize,
    pub plan: P,
}

/// A run, as its seed wants it.
#[derive(Debug, Clone)]
pub struct ClusterPlan {
    pub seed: u64,
    pub machines: Vec<MachinePlan>,
    /// So many of them vote, the first ones.
    pub voters: usize,
    /// When each is started first.
    pub starts_at: Vec<u64>,
    pub faults: SimFaults,
    pub topics: Vec<ClusterTopic>,
    pub producers: Vec<Client<ProducerPlan>>,
    pub consumers: Vec<Client<ConsumerPlan>>,
    pub mishaps: Vec<(u64, ClusterMishap)>,
    /// When the chaos ends.
    pub heals_at: u64,
}

impl ClusterPlan {
    /// The plan of a seed.
    pub fn of(seed: u64, planted: Option<Planted>) -> Self {
        let mut random = Random::new(seed ^ 0xc1_0570);
        let random = &mut random;
        let servers = random.within(2..5) as usize;
        // One that leads for good, until it dies; or a majority that elects.
        let voters = match servers > 2 && !random.one_in(3) {
            true => 3,
            false => 1,
        };
        let machines = (0..servers).map(|_| plan::machine(random, planted));
        let machines = machines.collect();
        let starts_at = (0..servers).map(|_| random.below(SECOND)).collect();
        let mut topics = Vec::new();
        let mut producers = Vec::new();
        let mut consumers = Vec::new();
        for number in 0..random.within(2..5) as usize {
            let mut topic = plan::topic(random);
            topic.is_spread = random.one_in(3);
            let can_raise = topic.can_raise();
            let name = format!("run-{number}.{}", random.below(1000));
            for index in 0..random.within(1..3) as usize {
                let mut producer = plan::producer(random, index, can_raise);
                if topic.is_spread {
                    // Each partition has 1 MiB at least.
                    producer.options.budget_bytes = 4 << 20;
                }
                producers.push(Client {
                    topic: number,
                    entrance: random.below(servers as u64) as usize,
                    plan: ProducerPlan {
                        topic: name.clone(),
                        may_lack_leader: true,
                        event_count: producer.event_count.min(40),
                        data_bytes_max: producer.data_bytes_max.min(20_000),
                        ..producer
                    },
                });
            }
            for index in 0..random.within(1..3) as usize {
                let consumer = plan::consumer(random, index);
                consumers.push(Client {
                    topic: number,
                    entrance: random.below(servers as u64) as usize,
                    plan: ConsumerPlan {
                        name: format!("consumer-{}", consumers.len()),
                        topic: name.clone(),
                        ..consumer
                    },
                });
            }
            topics.push(ClusterTopic { name, topic });
        }
        let faults = match random.below(4) {
            0 | 1 => SimFaults::none(),
            2 => SimFaults {
                cut_one_in: 4,
                silent_one_in: 20,
                ..SimFaults::chaos()
            },
            _ => SimFaults::chaos(),
        };
        let mut plan = Self {
            seed,
            machines,
            voters,
            starts_at,
            faults,
            topics,
            producers,
            consumers,
            mishaps: Vec::new(),
            heals_at: random.within(6 * SECOND..16 * SECOND),
        };
        plan.add_mishaps(random);
        plan
    }

    fn add_mishaps(&mut self, random: &mut Random) {
        let servers = self.machines.len() as u64;
        for _ in 0..random.within(4..14) {
            let at = random.below(self.heals_at);
            let one = random.below(servers) as usize;
            let other = (one + 1 + random.below(servers - 1) as usize) % servers as usize;
            let long = random.within(SECOND / 20..6 * SECOND);
            let down = random.within(SECOND / 100..3 * SECOND);
            let producer = random.below(self.producers.len() as u64) as usize;
            let consumer = random.below(self.consumers.len() as u64) as usize;
            let survival = match random.below(5) {
                0 => Survival::Nothing,
                1 => Survival::All,
                _ => Survival::Some(random.number()),
            };
            let mishap = match random.below(42) {
                0..=4 => ClusterMishap::Kill(one, down),
                5..=8 => ClusterMishap::PowerLoss(one, survival, down),
                9 => ClusterMishap::Blackout(survival),
                10 | 11 => ClusterMishap::Stop(one, long),
                12 => ClusterMishap::DiskFull(one, down),
                13 => ClusterMishap::DiskError(one, random.below(40)),
                14 | 15 => ClusterMishap::Cut(one, other),
                16 | 17 => ClusterMishap::Apart(one, other, long),
                18 | 19 => ClusterMishap::OneWay(one, other, long),
                20 | 21 => ClusterMishap::Alone(one, long),
                22 => {
                    let slow = random.within(10 * MILLISECOND..700 * MILLISECOND);
                    ClusterMishap::Slow(one, other, slow, long)
                }
                23 => ClusterMishap::CutClients,
                24 => ClusterMishap::SilenceClients,
                25 => ClusterMishap::ProducerCutOff(producer, long),
                26 => ClusterMishap::ConsumerCutOff(consumer, long),
                27 | 28 => ClusterMishap::ProducerDies(producer),
                29 => ClusterMishap::ProducerFenced(producer),
                30 | 31 => ClusterMishap::ConsumerDies(consumer),
                32..=38 => {
                    let topic = random.below(self.topics.len() as u64) as usize;
                    let partitions = self.topics[topic].topic.partitions.len();
                    ClusterMishap::Move {
                        topic,
                        partition: random.below(partitions as u64) as usize,
                        to: one,
                        entrance: other,
                    }
                }
                39 => ClusterMishap::MoversDie,
                _ => ClusterMishap::Seek(consumer),
            };
            self.mishaps.push((at, mishap));
        }
        self.mishaps.sort_by_key(|(at, _)| *at);
        let fails = |mishap: &ClusterMishap| {
            matches!(
                mishap,
                ClusterMishap::DiskFull(..) | ClusterMishap::DiskError(..)
            )
        };
        let disk_fails = self.mishaps.iter().any(|(_, mishap)| fails(mishap));
        for producer in &mut self.producers {
            producer.plan.disk_fails = disk_fails;
        }
        for consumer in &mut self.consumers {
            consumer.plan.disk_fails = disk_fails;
        }
    }
}
