//! What a seed of a cluster chooses: servers, topics, clients, and what goes wrong when.

use super::site::FailsAt;
use crate::machine::MachinePlan;
use crate::plan::{self, ConsumerPlan, ProducerPlan, TopicPlan};
use crate::planted::Planted;
use crate::random::Random;
use log::testing::Survival;
use net::testing::sim::SimFaults;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// A program looks at its topic once in so many times that it acts.
const LOOKS_ONE_IN: u64 = 6;

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
    /// The connections of a producer's program have so many bytes a second from now on.
    ProducerLags(usize, u64),
    /// The same, of a consumer's.
    ConsumerLags(usize, u64),
    /// A producer's process is killed and comes back.
    ProducerDies(usize),
    /// A second process of a producer's name starts while the first one lives.
    ProducerFenced(usize),
    /// A consumer's process is killed and comes back.
    ConsumerDies(usize),
    /// A consumer goes back.
    Seek(usize),
    /// Somebody begins to move a topic, or of a spread one this partition, to a server, from another one on; early, before it was yielded.
    Move {
        topic: usize,
        partition: usize,
        to: usize,
        entrance: usize,
        is_early: bool,
    },
    /// Who moves topics is killed.
    MoversDie,
    /// A producer's program is stopped for so long, and looks at its topic then.
    ProducerSleeps(usize, u64),
    /// A server's power goes while its voter writes.
    Fails(usize, FailsAt, Failing),
    /// A server is killed, and has a directory of no topic when it is back after so long.
    Unnamed(usize, u64),
    /// A topic is to have one partition more.
    Grow(usize),
    /// Another server joins.
    Joins(usize),
    /// A server ends and does not come back: its node is to be removed, and the next server joins.
    EndsForGood(usize),
}

/// What happens when the power of a server goes while its voter writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing {
    /// This server is killed in the same moment.
    pub other: usize,
    /// After so long the first one is back.
    pub down: u64,
    /// After so long the other one is.
    pub away: u64,
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
    /// Behind those of the servers that there are from the beginning, those of servers that join later, and those of strangers.
    pub machines: Vec<MachinePlan>,
    /// So many servers there are from the beginning.
    pub servers: usize,
    /// So many of them vote, the first ones.
    pub voters: usize,
    /// So many servers are of another cluster, which was to have one of the voters.
    pub strangers: usize,
    /// When each is started first, if it is there from the beginning.
    pub starts_at: Vec<Option<u64>>,
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
        let starts_at = (0..servers).map(|_| Some(random.below(SECOND)));
        let starts_at = starts_at.collect();
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
                        looks_one_in: LOOKS_ONE_IN,
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
                        looks_one_in: LOOKS_ONE_IN,
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
            servers,
            voters,
            strangers: 0,
            starts_at,
            faults,
            topics,
            producers,
            consumers,
            mishaps: Vec::new(),
            heals_at: random.within(6 * SECOND..16 * SECOND),
        };
        plan.add_mishaps(random);
        let changes = &mut Random::new(seed ^ 0xc4_a26e);
        plan.last_longer(changes);
        if changes.one_in(3) {
            plan.replace_a_server(changes, planted);
        }
        if changes.one_in(3) {
            plan.fence_and_grow(changes);
        }
        if changes.one_in(3) {
            plan.move_early(changes);
        }
        if changes.one_in(3) {
            plan.lag_and_move(changes);
        }
        if plan.voters > 1 && changes.one_in(2) {
            plan.fail_a_voter(changes);
        }
        if changes.one_in(6) {
            let place = changes.below(servers as u64) as usize;
            let at = changes.within(SECOND..plan.heals_at);
            let down = changes.within(SECOND / 100..2 * SECOND);
            plan.mishaps.push((at, ClusterMishap::Unnamed(place, down)));
        }
        if plan.voters > 1 && changes.one_in(6) {
            plan.found_twice(changes, planted);
        }
        if changes.one_in(8) {
            plan.move_quietly(changes);
        }
        plan.mishaps.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Two servers were founded as voters of another cluster, together with one of this.
    fn found_twice(&mut self, random: &mut Random, planted: Option<Planted>) {
        self.strangers = 2;
        for _ in 0..self.strangers {
            self.machines.push(plan::machine(random, planted));
            self.starts_at.push(Some(random.below(3 * SECOND)));
        }
    }

    /// Some producers are at work for as long as things go wrong.
    fn last_longer(&mut self, random: &mut Random) {
        for producer in &mut self.producers {
            if random.one_in(3) {
                producer.plan.event_count = random.within(40..120);
                producer.plan.pause_ns = 1..600 * MILLISECOND;
            }
        }
    }

    /// A server joins late, ends for good, and another one takes its place.
    fn replace_a_server(&mut self, random: &mut Random, planted: Option<Planted>) {
        let place = self.servers;
        for _ in 0..2 {
            self.machines.push(plan::machine(random, planted));
            self.starts_at.push(None);
        }
        let joins_at = random.within(2 * SECOND..5 * SECOND);
        let ends_at = joins_at + random.within(SECOND / 5..3 * SECOND);
        self.mishaps.push((joins_at, ClusterMishap::Joins(place)));
        self.mishaps
            .push((ends_at, ClusterMishap::EndsForGood(place)));
        self.heals_at = self.heals_at.max(ends_at);
    }

    /// A producer sleeps while another process takes over its name, and its topic grows.
    fn fence_and_grow(&mut self, random: &mut Random) {
        let who = random.below(self.producers.len() as u64) as usize;
        let topic = self.producers[who].topic;
        let producer = &mut self.producers[who].plan;
        producer.event_count = 100;
        producer.pause_ns = 1..300 * MILLISECOND;
        let sleeps_at = random.within(SECOND..5 * SECOND);
        let time = random.within(SECOND..4 * SECOND);
        let grows_at = sleeps_at + random.below(time);
        self.mishaps.extend([
            (sleeps_at, ClusterMishap::ProducerSleeps(who, time)),
            (sleeps_at, ClusterMishap::ProducerFenced(who)),
            (grows_at, ClusterMishap::Grow(topic)),
        ]);
        self.heals_at = self.heals_at.max(sleeps_at + time);
    }

    /// A topic moves while much is under way, to a producer's node and from a consumer's: batches that are half there, and answers that come
    /// when the topic is elsewhere.
    fn lag_and_move(&mut self, random: &mut Random) {
        let consumer = random.below(self.consumers.len() as u64) as usize;
        let Client {
            topic,
            entrance,
            plan,
        } = &mut self.consumers[consumer];
        plan.credit_bytes = 1 << 20;
        plan.pause_ns = 1..10 * MILLISECOND;
        plan.looks_one_in = 2;
        let (topic, to) = (*topic, *entrance);
        let at = random.within(SECOND..5 * SECOND);
        let rate = random.within(20_000..200_000);
        let producers = self.producers.iter_mut().enumerate();
        for (who, producer) in producers.filter(|(_, producer)| producer.topic == topic) {
            producer.plan.event_count = 100;
            producer.plan.pause_ns = 1..100 * MILLISECOND;
            producer.plan.data_bytes_max = 20_000;
            self.mishaps
                .push((at, ClusterMishap::ProducerLags(who, rate)));
        }
        let partitions = self.topics[topic].topic.partitions.len();
        let moves = ClusterMishap::Move {
            topic,
            partition: random.below(partitions as u64) as usize,
            to,
            entrance: random.below(self.servers as u64) as usize,
            is_early: false,
        };
        self.mishaps.extend([
            (at - SECOND / 5, ClusterMishap::Seek(consumer)),
            (
                at - SECOND / 10,
                ClusterMishap::ConsumerLags(consumer, rate),
            ),
            (at + random.below(SECOND / 2), moves),
        ]);
    }

    /// Nothing happens but that a topic goes from server to server, while much of it is on slow connections.
    fn move_quietly(&mut self, random: &mut Random) {
        self.mishaps.clear();
        self.faults = SimFaults::none();
        let consumer = random.below(self.consumers.len() as u64) as usize;
        let topic = self.consumers[consumer].topic;
        for client in self.consumers.iter_mut().filter(|it| it.topic == topic) {
            client.plan.credit_bytes = 1 << 20;
            client.plan.pause_ns = 1..10 * MILLISECOND;
            client.plan.looks_one_in = 2;
        }
        for client in self.producers.iter_mut().filter(|it| it.topic == topic) {
            client.plan.event_count = 150;
            client.plan.pause_ns = 1..150 * MILLISECOND;
            client.plan.data_bytes_max = 20_000;
        }
        for turn in 0..self.servers {
            let at = (3 + 3 * turn as u64) * SECOND;
            let rate = random.within(20_000..100_000);
            let slow = |(who, client): (usize, &Client<ProducerPlan>)| {
                let slow = ClusterMishap::ProducerLags(who, rate);
                (client.topic == topic).then_some((at, slow))
            };
            let producers = self.producers.iter().enumerate().filter_map(slow);
            self.mishaps.extend(producers);
            self.mishaps.extend([
                (at, ClusterMishap::Seek(consumer)),
                (at, ClusterMishap::ConsumerLags(consumer, rate)),
                (
                    at + random.below(SECOND / 2),
                    ClusterMishap::Move {
                        topic,
                        partition: 0,
                        to: (self.consumers[consumer].entrance + turn) % self.servers,
                        entrance: random.below(self.servers as u64) as usize,
                        is_early: false,
                    },
                ),
            ]);
        }
        self.heals_at = (3 + 3 * self.servers as u64) * SECOND;
    }

    /// Two voters do not reach each other, and the third one loses its power while it writes: an entry, or in an election a vote.
    fn fail_a_voter(&mut self, random: &mut Random) {
        let first = random.below(3) as usize;
        let turn = 1 + random.below(2) as usize;
        let (other, third) = ((first + turn) % 3, (first + 2 * turn) % 3);
        let at = random.within(SECOND..self.heals_at);
        let apart = ClusterMishap::Apart(other, third, 8 * SECOND);
        self.mishaps.push((at, apart));
        let fails_at = match random.one_in(2) {
            // Nobody leads any more when it is back: one of the two asks for its vote.
            true => {
                let down = random.within(3 * SECOND / 2..5 * SECOND / 2);
                self.mishaps.push((at, ClusterMishap::Kill(first, down)));
                FailsAt::Vote
            }
            false => FailsAt::Any,
        };
        let failing = Failing {
            other,
            down: random.within(20 * MILLISECOND..200 * MILLISECOND),
            away: random.within(2 * SECOND..4 * SECOND),
        };
        self.mishaps
            .push((at, ClusterMishap::Fails(first, fails_at, failing)));
        self.heals_at = self.heals_at.max(at + 8 * SECOND);
    }

    /// Somebody has a topic go who has not asked for it to be yielded.
    fn move_early(&mut self, random: &mut Random) {
        let topic = random.below(self.topics.len() as u64) as usize;
        let partitions = self.topics[topic].topic.partitions.len();
        let servers = self.servers as u64;
        let at = random.within(SECOND..self.heals_at);
        let early = ClusterMishap::Move {
            topic,
            partition: random.below(partitions as u64) as usize,
            to: random.below(servers) as usize,
            entrance: random.below(servers) as usize,
            is_early: true,
        };
        self.mishaps.push((at, early));
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
                        is_early: false,
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
