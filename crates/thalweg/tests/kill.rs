//! Kills the real server again and again while clients work, and compares
//! what they were promised with what is there.
//!
//! `make kill ROUNDS=200` runs it long. A failure prints its seed; with
//! `THALWEG_KILL_SEED` the server is killed after the same numbers of
//! acknowledgements again, though what happens in between is up to the machine.

mod rig;

use client::{
    ConsumerOptions, Driver, DriverOptions, Endpoint, Event, NodeState, ProducerOptions,
    PushFuture, TopicHandle,
};
use rig::hosts::Hosts;
use rig::{Rig, ServerProcess, WATCHDOG};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use topic::Definition;
use wire::message::{PartitionStorage, Start};
use wire::record::{GapReason, Position};
use wire::{Durability, EventId, Incarnation, Offset, PartitionIndex};

const ROUNDS_DEFAULT: u64 = 10;
const PARTITIONS: usize = 2;
const PRODUCERS: u64 = 2;
/// Events of one producer that wait for their acknowledgement.
const WINDOW: usize = 64;
/// The servers of a cluster.
const SERVERS: usize = 3;
/// How long a producer of a cluster rests behind as many events: what is written as fast as it can be is not caught up with by a copy,
/// and moves late.
const REST: Duration = Duration::from_millis(50);
/// How long one of them is away while others go on, at most; longer than its silence takes to be noticed.
const STOPPED_MAX: Duration = Duration::from_secs(4);
/// How long a cut lasts: less than other servers take to notice, more than an election, and more than it takes to be away.
const CUT_MAX: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(7),
];
/// The server is killed after at most this many acknowledgements.
const ACKNOWLEDGEMENTS_MAX: u64 = 3000;
/// So many come while a topic is given time to get from one server to another.
const MOVE_ACKNOWLEDGEMENTS: u64 = 60_000;
/// Every so many events one has data that travels outside of its batch.
const LARGE_EVERY: u64 = 97;
const LARGE_BYTES: usize = 150_000;

#[test]
fn a_killed_server_keeps_its_promises() {
    kill_again_and_again(1);
}

/// Its topics are on several threads, whose node 0 decides which there are.
#[test]
fn a_killed_server_of_several_shards_keeps_its_promises() {
    kill_again_and_again(4);
}

/// Its topics are on three servers, of which one is killed, stopped or cut off from others for a while, each time another one perhaps,
/// while a topic goes from one to another. Each server is in a network namespace of its own, where there can be such; else nothing is
/// cut. Clients know the servers by one file, and reach them by their sockets.
#[test]
fn a_cluster_of_which_one_server_is_killed_or_stopped_or_cut_off_keeps_its_promises() {
    let rig = Rig::default();
    let hosts = Hosts::new(SERVERS)
        .inspect_err(|why| eprintln!("no links are cut: {why}"))
        .ok();
    let sites: Vec<_> = (0..SERVERS)
        .map(|at| {
            let address = hosts.as_ref().map(|hosts| hosts.address(at));
            let address = address.unwrap_or_else(|| "127.0.0.1".to_owned());
            let (rank, listen) = (at.to_string(), format!("tls://{address}:0"));
            let (shared, listens) = (["--cluster", "shared"], ["--cluster-listen", &listen]);
            let ranks = ["--rank", &rank, "--size", "3"];
            let arguments = shared.iter().chain(&listens).chain(&ranks);
            let launcher = hosts.as_ref().map(|hosts| hosts.launcher(at));
            Site {
                directory: format!("data-{rank}"),
                arguments: arguments.map(ToString::to_string).collect(),
                launcher: launcher.unwrap_or_default(),
            }
        })
        .collect();
    kill_again(&rig, &sites, hosts.as_ref());
    for rank in 0..SERVERS {
        let quorum = rig.path(&format!("data-{rank}/quorum"));
        assert!(std::fs::read_dir(quorum).unwrap().next().is_some());
    }
}

/// A server's data directory, and how it is started.
struct Site {
    directory: String,
    arguments: Vec<String>,
    /// What runs it, if it is not started as it is.
    launcher: Vec<String>,
}

impl Site {
    fn serve(&self, rig: &Rig) -> ServerProcess {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        rig.serve_by(&self.launcher, &self.directory, &arguments)
    }
}

fn kill_again_and_again(shards: u32) {
    let rig = Rig::default();
    let site = Site {
        directory: "data".to_owned(),
        arguments: vec!["--shards".to_owned(), shards.to_string()],
        launcher: Vec::new(),
    };
    kill_again(&rig, &[site], None);
    if shards != 1 {
        let others = std::fs::read_dir(rig.path("data/shards")).unwrap();
        let partitions = others.map(|other| other.unwrap().path().join("partitions"));
        let used = partitions.filter(|path| std::fs::read_dir(path).unwrap().next().is_some());
        assert!(used.count() >= 1, "all topics are on the first shard");
    }
}

/// Kills or stops one of the servers in each round, or cuts it off, and checks in the end what all of them have.
fn kill_again(rig: &Rig, sites: &[Site], hosts: Option<&Hosts>) {
    let rounds = number("THALWEG_KILL_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    let seed = number("THALWEG_KILL_SEED").unwrap_or_else(rand_seed);
    eprintln!("THALWEG_KILL_SEED={seed} THALWEG_KILL_ROUNDS={rounds}");
    let mut random = Random(seed);
    // All at once: those of a cluster wait for each other.
    let started: Vec<_> = sites.iter().map(|site| site.serve(rig)).collect();
    let started = started.into_iter();
    let mut servers: Vec<_> = started.map(|one| Some(rig.until_ready(one))).collect();
    let driver = connect(rig);
    let journals = rig.path("journals");
    std::fs::create_dir(&journals).unwrap();
    let acknowledged = Arc::new(Counter::default());
    let levels = [Durability::Memory, Durability::Written, Durability::Synced];
    // So that each of several servers has some; the second of each kind is spread over all of them.
    let levels = (0..sites.len().min(2)).flat_map(|number| levels.map(|level| (level, number)));
    let loads: Vec<Load> = levels
        .map(|level| {
            let rest = (sites.len() > 1).then_some(REST);
            Load::start(rig, &driver, level, rest, &journals, &acknowledged)
        })
        .collect();
    let (mut moved, mut cuts) = (0, 0);
    for round in 0..rounds {
        let mut moving = (sites.len() > 1).then(|| Moving::start(rig, &loads, &mut random));
        // Now and then at once, while clients reconnect and resend.
        let wanted = match random.below(6) {
            0 => 0,
            _ => random.below(ACKNOWLEDGEMENTS_MAX),
        };
        acknowledged.wait_for(wanted, round);
        match random.below(4) {
            // While the topic is on its way.
            0 | 1 => {}
            // When it is there, or a while later.
            2 if moving.is_some() => {
                acknowledged.wait_at_most(MOVE_ACKNOWLEDGEMENTS, STOPPED_MAX);
            }
            _ => moving.iter_mut().for_each(Moving::kill),
        }
        let promised: Vec<_> = loads.iter().map(Load::promised_cursors).collect();
        let at = random.below(sites.len() as u64) as usize;
        let (site, server) = (&sites[at], servers[at].take().expect("it runs"));
        let what = match random.below(3) {
            0 if sites.len() > 1 => Disturbance::Stop,
            1 if hosts.is_some() => Disturbance::Cut,
            _ => Disturbance::Kill,
        };
        servers[at] = Some(match what {
            Disturbance::Stop => {
                // It says nothing, and nobody has heard of its end.
                rig::signal(server.pid(), Signal::STOP);
                acknowledged.wait_at_most(random.below(ACKNOWLEDGEMENTS_MAX), STOPPED_MAX);
                rig::signal(server.pid(), Signal::CONT);
                server
            }
            Disturbance::Cut => {
                let links = links_of(at, sites.len(), &mut random);
                let hosts = hosts.expect("links are cut where there are some");
                links.iter().for_each(|(from, to)| hosts.cut(*from, *to));
                cuts += 1;
                let longest = CUT_MAX[random.below(CUT_MAX.len() as u64) as usize];
                acknowledged.wait_at_most(u64::MAX >> 1, longest);
                links.iter().for_each(|(from, to)| hosts.mend(*from, *to));
                server
            }
            Disturbance::Kill => {
                server.kill();
                if random.below(4) == 0 {
                    // Once more, while it recovers.
                    let unready = site.serve(rig);
                    unready.wait_for_a_sign();
                    unready.kill();
                } else if sites.len() > 1 {
                    acknowledged.wait_at_most(random.below(ACKNOWLEDGEMENTS_MAX), STOPPED_MAX);
                }
                rig.until_ready(site.serve(rig))
            }
        });
        // One that is at it still begins anew in the next round.
        moving.iter_mut().for_each(Moving::kill);
        moved += u64::from(moving.is_some_and(Moving::has_moved));
        for (load, promised) in loads.iter().zip(promised) {
            load.check_cursors(&driver, &promised, round);
        }
    }
    if sites.len() > 1 {
        eprintln!("{moved} moves from server to server, links cut {cuts} times");
    }
    for load in loads {
        load.finish(&driver);
    }
    until_none_is_away(&driver);
    driver.close(WATCHDOG).unwrap();
    let journals = journals.to_str().unwrap();
    let audit = rig
        .run(&["audit", "--journal", journals, "--json"])
        .exits(0);
    let summary = rig::json_lines(&audit.stdout).pop().unwrap();
    assert_eq!(summary["findings"], 0);
    assert!(summary["journal_records"].as_u64().unwrap() > 0);
    eprintln!("{summary}");
}

/// Waits until the table has no server as away: one that was is so until the others have reached it again.
fn until_none_is_away(driver: &Driver) {
    let until = Instant::now() + WATCHDOG;
    let states = || -> Vec<NodeState> {
        let nodes = driver.list_nodes().unwrap();
        nodes.into_iter().map(|node| node.state).collect()
    };
    while states().contains(&NodeState::Away) {
        assert!(Instant::now() < until, "{:?}", states());
        std::thread::yield_now();
    }
}

/// What happens to a server.
enum Disturbance {
    Kill,
    /// It does nothing for a while.
    Stop,
    /// Servers do not hear each other for a while.
    Cut,
}

/// Links of a server that are cut together: to all others or to one, both ways or what it sends or hears alone.
fn links_of(at: usize, count: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let one = (at + 1 + random.below(count as u64 - 1) as usize) % count;
    let others = match random.below(2) {
        0 => (0..count).filter(|other| *other != at).collect(),
        _ => vec![one],
    };
    let (sends, hears) = [(true, true), (true, false), (false, true)][random.below(3) as usize];
    let links = others.into_iter().flat_map(|other| {
        let out = sends.then_some((at, other));
        out.into_iter().chain(hears.then_some((other, at)))
    });
    links.collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
        >> 32
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// How many events were acknowledged.
#[derive(Default)]
struct Counter {
    count: Mutex<u64>,
    moved: Condvar,
}

impl Counter {
    fn add_one(&self) {
        *self.count.lock().unwrap() += 1;
        self.moved.notify_all();
    }

    /// Waits for `wanted` more, or so long.
    fn wait_at_most(&self, wanted: u64, time: Duration) {
        let count = self.count.lock().unwrap();
        let goal = *count + wanted;
        let waited = self
            .moved
            .wait_timeout_while(count, time, |count| *count < goal);
        drop(waited.unwrap());
    }

    /// Waits for `wanted` more.
    fn wait_for(&self, wanted: u64, round: u64) {
        let count = self.count.lock().unwrap();
        let goal = *count + wanted;
        let (count, waited) = self
            .moved
            .wait_timeout_while(count, WATCHDOG, |count| *count < goal)
            .unwrap();
        assert!(
            !waited.timed_out(),
            "round {round}: {} of {goal} acknowledgements came",
            *count
        );
    }
}

fn connect(rig: &Rig) -> Driver {
    let options = DriverOptions {
        connect_timeout: Some(WATCHDOG),
        ..DriverOptions::default()
    };
    Driver::connect(Endpoint::GroupFile(rig.group_file()), options).unwrap()
}

/// A topic on its way from one server to another, by a command.
struct Moving(Child);

impl Moving {
    fn start(rig: &Rig, loads: &[Load], random: &mut Random) -> Self {
        let load = &loads[random.below(loads.len() as u64) as usize];
        let node = (1 + random.below(SERVERS as u64)).to_string();
        let topic = match load.is_spread {
            false => load.topic.clone(),
            true => format!("{}/{}", load.topic, random.below(PARTITIONS as u64)),
        };
        let place = ["topic", "place", &topic, "--node", &node];
        let mut command = rig.thalweg(&place);
        let command = command.args(["--timeout", "5", "--json"]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
    }

    /// Whether it has moved. It has not, where one of the two servers was killed.
    fn has_moved(self) -> bool {
        let done = self.0.wait_with_output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        done.status.success() && said.contains("paused_ms")
    }
}

/// What an event says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    producer: u64,
    number: u64,
}

impl Label {
    fn to_metadata(self) -> String {
        format!(
            r#"{{"producer":{},"number":{}}}"#,
            self.producer, self.number
        )
    }

    fn of(metadata: &[u8]) -> Self {
        let value: serde_json::Value = serde_json::from_slice(metadata).unwrap();
        let field = |name: &str| value[name].as_u64().unwrap();
        Self {
            producer: field("producer"),
            number: field("number"),
        }
    }

    fn data(self) -> Vec<u8> {
        match self.number % LARGE_EVERY {
            0 => vec![(self.producer * 31 + self.number) as u8; LARGE_BYTES],
            _ => Vec::new(),
        }
    }
}

/// Producers and a consumer of one topic.
struct Load {
    topic: String,
    /// Whether its partitions are on several servers.
    is_spread: bool,
    durability: Durability,
    stop_producing: Arc<AtomicBool>,
    producers: Vec<std::thread::JoinHandle<u64>>,
    watcher: Option<std::thread::JoinHandle<Seen>>,
    shared: Arc<Shared>,
}

/// What the threads of a load tell each other and the test.
#[derive(Default)]
struct Shared {
    /// Where each acknowledged event is.
    acknowledged: Mutex<HashMap<EventId, Label>>,
    /// Up to where the watcher's cursors are known to be durable.
    cursors: Mutex<BTreeMap<PartitionIndex, Position>>,
    /// Where the partitions end, once nothing more comes: the watcher ends there.
    ends: Mutex<Option<BTreeMap<PartitionIndex, Position>>>,
}

/// What a consumer saw.
#[derive(Default)]
struct Seen {
    events: BTreeMap<EventId, Label>,
    /// Lives whose loss was announced.
    lost: BTreeSet<(PartitionIndex, Incarnation)>,
}

impl Load {
    fn start(
        rig: &Rig,
        driver: &Driver,
        (durability, number): (Durability, usize),
        rest: Option<Duration>,
        journals: &std::path::Path,
        counter: &Arc<Counter>,
    ) -> Self {
        let topic = format!("{durability}-events-{number}");
        let kind = match durability {
            Durability::Memory => "memory",
            _ => "disk",
        };
        let storage = PartitionStorage {
            kind: kind.to_owned(),
            config: String::new(),
        };
        let definition = Definition::builder()
            .durability(durability)
            .build()
            .unwrap();
        let storages = vec![storage; PARTITIONS];
        let is_spread = number > 0;
        match is_spread {
            false => driver.create_topic(&topic, &definition, &storages),
            true => driver.create_spread_topic(&topic, &definition, &storages),
        }
        .unwrap();
        let stop_producing = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared::default());
        let producers = (0..PRODUCERS)
            .map(|index| {
                // A connection of its own: reconnects are not in step.
                let handle = connect(rig).open_topic(&topic).unwrap();
                let journal = journals.join(format!("{topic}-{index}"));
                let (stop, shared, counter) =
                    (stop_producing.clone(), shared.clone(), counter.clone());
                std::thread::spawn(move || {
                    produce(&handle, (index, journal), rest, &stop, &shared, &counter)
                })
            })
            .collect();
        let handle = connect(rig).open_topic(&topic).unwrap();
        let watched = shared.clone();
        let watcher = std::thread::spawn(move || watch(&handle, &watched));
        Self {
            topic,
            is_spread,
            durability,
            stop_producing,
            producers,
            watcher: Some(watcher),
            shared,
        }
    }

    fn promised_cursors(&self) -> BTreeMap<PartitionIndex, Position> {
        self.shared.cursors.lock().unwrap().clone()
    }

    /// A durable cursor has not moved back.
    fn check_cursors(
        &self,
        driver: &Driver,
        promised: &BTreeMap<PartitionIndex, Position>,
        round: u64,
    ) {
        let handle = driver.open_topic(&self.topic).unwrap();
        let cursors = driver.cursors(&handle, "watcher").unwrap();
        for (partition, promised) in promised {
            let cursor = cursors.iter().find(|cursor| cursor.partition == *partition);
            assert!(
                cursor.is_some_and(|cursor| cursor.position >= *promised),
                "round {round}: {} partition {partition}: the cursor was at {promised:?} and is {cursor:?}",
                self.topic
            );
        }
    }

    fn finish(mut self, driver: &Driver) {
        self.stop_producing.store(true, Ordering::Relaxed);
        let pushed: Vec<u64> = self
            .producers
            .drain(..)
            .map(|producer| producer.join().expect("a producer failed"))
            .collect();
        let handle = driver.open_topic(&self.topic).unwrap();
        let ends = partition_ends(&handle);
        *self.shared.ends.lock().unwrap() = Some(ends.clone());
        let stored = read_all(&handle, ends);
        let seen = self
            .watcher
            .take()
            .expect("it runs")
            .join()
            .expect("the watcher failed");
        let topic = &self.topic;
        let acknowledged = self.shared.acknowledged.lock().unwrap();
        eprintln!(
            "{topic}: {} pushed, {} acknowledged, {} there, {} seen, {} lives lost",
            pushed.iter().sum::<u64>(),
            acknowledged.len(),
            stored.len(),
            seen.events.len(),
            seen.lost.len()
        );
        // An id means one event for ever, whoever looks and whenever.
        for (id, label) in stored.iter().chain(&seen.events) {
            if let Some(promised) = acknowledged.get(id) {
                assert_eq!(label, promised, "{topic}: {id}");
            }
            if let Some(seen) = seen.events.get(id) {
                assert_eq!(label, seen, "{topic}: {id}");
            }
        }
        check_order(topic, &stored);
        check_order(topic, &seen.events);
        if self.durability == Durability::Memory {
            let lives: BTreeSet<_> = acknowledged
                .keys()
                .map(|id| (id.partition, id.incarnation))
                .collect();
            let live: BTreeSet<_> = handle
                .partitions()
                .iter()
                .map(|known| (known.partition, known.incarnation))
                .collect();
            let recorded: BTreeSet<_> = driver
                .gaps(topic)
                .unwrap()
                .into_iter()
                .filter(|(_, gap)| gap.reason == GapReason::MemoryLost)
                .map(|(partition, gap)| (partition, gap.incarnation))
                .collect();
            for (partition, incarnation) in lives.difference(&live) {
                assert!(
                    recorded.contains(&(*partition, *incarnation)),
                    "{topic}: partition {partition}: no gap says that incarnation {incarnation} was lost"
                );
            }
            let seen_lives: BTreeSet<_> = seen
                .events
                .keys()
                .map(|id| (id.partition, id.incarnation))
                .collect();
            for life in seen_lives.difference(&live) {
                assert!(
                    seen.lost.contains(life),
                    "{topic}: the watcher was not told that {life:?} was lost"
                );
            }
            return;
        }
        // Nothing acknowledged is missing: every number of every producer is
        // there, because in the end every push was acknowledged. None is doubled.
        let mut found: Vec<Label> = stored.values().copied().collect();
        found.sort();
        let expected: Vec<Label> = (0..PRODUCERS)
            .flat_map(|producer| {
                (0..pushed[producer as usize]).map(move |number| Label { producer, number })
            })
            .collect();
        assert_eq!(found.len(), expected.len(), "{topic}");
        assert!(found == expected, "{topic}: events are missing or doubled");
        for id in acknowledged.keys() {
            assert!(
                stored.contains_key(id),
                "{topic}: {id} was acknowledged and is not there"
            );
        }
    }
}

/// Within a partition's life each producer's events lie in the order of its pushes.
fn check_order(topic: &str, events: &BTreeMap<EventId, Label>) {
    let mut last: HashMap<(PartitionIndex, Incarnation, u64), u64> = HashMap::new();
    for (id, label) in events {
        let before = last.insert((id.partition, id.incarnation, label.producer), label.number);
        assert!(
            before.is_none_or(|before| before < label.number),
            "{topic}: {id}: {label:?} follows {before:?}"
        );
    }
}

/// Pushes until it is stopped; returns how many. All of them are acknowledged.
fn produce(
    topic: &TopicHandle,
    (index, journal): (u64, PathBuf),
    rest: Option<Duration>,
    stop: &AtomicBool,
    shared: &Shared,
    counter: &Counter,
) -> u64 {
    let options = ProducerOptions {
        journal: Some(journal),
        ..ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let mut pending: VecDeque<(Label, PushFuture)> = VecDeque::new();
    let settle = |(label, future): (Label, PushFuture)| {
        let id = future
            .wait(Some(WATCHDOG))
            .unwrap_or_else(|error| panic!("{label:?}: {error}"));
        let doubled = shared.acknowledged.lock().unwrap().insert(id, label);
        assert_eq!(doubled, None, "{id} was acknowledged twice");
        counter.add_one();
    };
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let label = Label {
            producer: index,
            number,
        };
        let metadata = label.to_metadata();
        let event = match label.data() {
            data if data.is_empty() => Event::new(metadata.as_bytes()),
            data => Event::new(metadata.as_bytes()).with_data(data),
        };
        pending.push_back((label, producer.push(event).unwrap()));
        number += 1;
        if pending.len() >= WINDOW {
            pending.pop_front().into_iter().for_each(settle);
        }
        if let Some(rest) = rest
            && number.is_multiple_of(WINDOW as u64)
        {
            std::thread::park_timeout(rest);
        }
    }
    producer.flush(WATCHDOG).unwrap();
    pending.into_iter().for_each(settle);
    producer.close(WATCHDOG).unwrap();
    number
}

/// Consumes and acknowledges until nothing more comes.
fn watch(topic: &TopicHandle, shared: &Shared) -> Seen {
    let consumer = topic
        .consumer("watcher", ConsumerOptions::default())
        .unwrap();
    let mut seen = Seen::default();
    let mut ends: BTreeMap<PartitionIndex, Position> = BTreeMap::new();
    let mut pulls = 0u64;
    let mut last_sign = Instant::now();
    loop {
        let is_at_end =
            |wanted: &BTreeMap<_, _>| wanted.iter().all(|(at, end)| ends.get(at) == Some(end));
        if shared.ends.lock().unwrap().as_ref().is_some_and(is_at_end) {
            break;
        }
        assert!(
            last_sign.elapsed() < WATCHDOG,
            "{}: nothing comes behind {ends:?}",
            topic.name()
        );
        let patience = client::Patience::within(None);
        let look = consumer.pull_look(100, &patience, Duration::from_millis(50));
        let events = match look.unwrap() {
            client::Pulled::Events(events) => events,
            _ => Vec::new(),
        };
        for (partition, gap) in consumer.take_gaps() {
            assert_eq!(
                gap.reason,
                GapReason::MemoryLost,
                "{}: {gap:?}",
                topic.name()
            );
            seen.lost.insert((partition, gap.incarnation));
        }
        let mut last = BTreeMap::new();
        for event in events {
            last_sign = Instant::now();
            let id = event.id();
            note(&mut seen.events, event);
            let end = Position {
                incarnation: id.incarnation,
                offset: id.offset.plus(1),
            };
            let before = ends.insert(id.partition, end);
            assert!(
                before.is_none_or(|before| before < end),
                "{}: {end:?} follows {before:?}",
                topic.name()
            );
            last.insert(id.partition, id);
        }
        for id in last.into_values() {
            consumer.acknowledge(id).unwrap();
        }
        pulls += 1;
        if pulls.is_multiple_of(8) {
            consumer.flush_acknowledgements(WATCHDOG).unwrap();
            *shared.cursors.lock().unwrap() = ends.clone();
        }
    }
    consumer.close().unwrap();
    seen
}

fn note(events: &mut BTreeMap<EventId, Label>, mut event: client::ConsumedEvent) {
    let id = event.id();
    let label = Label::of(event.metadata());
    assert!(
        event.take_data() == label.data(),
        "{id}: {label:?} has other data"
    );
    let doubled = events.insert(id, label);
    assert_eq!(doubled, None, "{id} was delivered twice");
}

/// Where each partition that holds events ends now.
fn partition_ends(topic: &TopicHandle) -> BTreeMap<PartitionIndex, Position> {
    topic.refresh().unwrap();
    let known = topic.partitions();
    let ends = known.iter().map(|known| {
        let offset = known.watermarks.committed;
        (
            known.partition,
            Position {
                incarnation: known.incarnation,
                offset,
            },
        )
    });
    ends.filter(|(_, end)| end.offset > Offset(0)).collect()
}

/// Everything up to `ends`.
fn read_all(
    topic: &TopicHandle,
    mut ends: BTreeMap<PartitionIndex, Position>,
) -> BTreeMap<EventId, Label> {
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        ..ConsumerOptions::default()
    };
    let consumer = topic.consumer("checker", options).unwrap();
    let mut events = BTreeMap::new();
    while !ends.is_empty() {
        let pulled = consumer.pull_batch(1000, Some(WATCHDOG)).unwrap();
        assert!(
            !pulled.is_empty(),
            "{}: {ends:?} is not reached",
            topic.name()
        );
        for event in pulled {
            let id = event.id();
            note(&mut events, event);
            if ends.get(&id.partition).is_some_and(|end| {
                end.incarnation == id.incarnation && end.offset == id.offset.plus(1)
            }) {
                ends.remove(&id.partition);
            }
        }
    }
    consumer.close().unwrap();
    events
}
