//! Servers of one cluster, on directories of their own, and clients that know of one of them.

#[path = "cluster/growing.rs"]
mod growing;
#[path = "cluster/spread.rs"]
mod spread;
mod support;

use client::{Driver, DriverOptions, Endpoint, Event, ProducerOptions, TopicHandle};
use server::{Config, Server, ServerError, Shards};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use support::{WATCHDOG, create, names, push, read};

/// Servers that are started together, in a directory of their own.
struct Cluster {
    /// They end before their directories go.
    servers: Vec<Option<Server>>,
    parent: tempfile::TempDir,
    size: u32,
    shards: u32,
    security: &'static str,
    /// The group file, which all may write.
    file: &'static str,
}

impl Cluster {
    fn new(size: u32) -> Self {
        Self {
            parent: tempfile::tempdir().unwrap(),
            size,
            shards: 1,
            security: "tls",
            file: "group-{rank}.json",
            servers: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    fn config(&self, rank: u32) -> Config {
        Config {
            cluster: Some(self.path("cluster")),
            rank: Some(rank),
            size: Some(self.size.max(rank + 1)),
            cluster_listen: format!("{}://127.0.0.1:0", self.security),
            directory: self.path("data-{rank}"),
            group_file: Some(self.path(self.file)),
            listen: vec!["tcp://127.0.0.1:0".to_owned()],
            shards: Shards::Count(self.shards),
            // One of them is known by something more.
            cluster_labels: match rank {
                2 => vec!["disk=fast".to_owned()],
                _ => Vec::new(),
            },
            nic: match rank {
                2 => "lo".to_owned(),
                _ => String::new(),
            },
            ..Config::default()
        }
    }

    fn start_one(&self, rank: u32) -> Result<Server, ServerError> {
        Server::start(
            self.config(rank),
            Arc::new(move |line: &str| eprintln!("{rank}: {line}")),
        )
    }

    /// Starts these at once, as most of them are needed.
    fn start(&mut self, ranks: &[u32]) {
        let started: Vec<(u32, Server)> = std::thread::scope(|scope| {
            let cluster = &*self;
            let starting: Vec<_> = ranks
                .iter()
                .map(|rank| {
                    (
                        *rank,
                        scope.spawn(move || cluster.start_one(*rank).unwrap()),
                    )
                })
                .collect();
            let joined = starting.into_iter();
            joined
                .map(|(rank, server)| (rank, server.join().unwrap()))
                .collect()
        });
        for (rank, server) in started {
            let at = rank as usize;
            self.servers
                .resize_with(self.servers.len().max(at + 1), || None);
            self.servers[at] = Some(server);
        }
    }

    fn start_all(&mut self) {
        let all: Vec<u32> = (0..self.size).collect();
        self.start(&all);
    }

    fn server(&mut self, rank: u32) -> Server {
        self.servers[rank as usize].take().unwrap()
    }

    fn drain_all(&mut self) {
        for server in self.servers.iter_mut().filter_map(Option::take) {
            server.drain(WATCHDOG).unwrap();
        }
    }

    /// A client that knows of this server.
    fn connect(&self, rank: u32) -> Driver {
        let file = self.path(&self.file.replace("{rank}", &rank.to_string()));
        Driver::connect(Endpoint::GroupFile(file), DriverOptions::default()).unwrap()
    }

    /// Waits until the group file of a server names so many others.
    fn wait_for_others(&self, rank: u32, count: usize) {
        let file = self.path(&self.file.replace("{rank}", &rank.to_string()));
        let others = || {
            let text = std::fs::read_to_string(&file).unwrap();
            let found: serde_json::Value = serde_json::from_str(&text).unwrap();
            found["others"].as_array().map_or(0, Vec::len)
        };
        let until = Instant::now() + WATCHDOG;
        while others() < count {
            assert!(Instant::now() < until, "{} others", others());
            std::thread::yield_now();
        }
    }

    /// The servers that have partitions of topics.
    fn used(&self) -> BTreeSet<u32> {
        let has_some = |rank: &u32| has_partitions(&self.path(&format!("data-{rank}")));
        (0..self.servers.len() as u32).filter(has_some).collect()
    }
}

fn has_partitions(data: &Path) -> bool {
    std::fs::read_dir(data.join("partitions")).is_ok_and(|mut it| it.next().is_some())
}

fn name(number: usize) -> String {
    format!("run.{number:02}")
}

fn open(driver: &Driver, name: &str) -> TopicHandle {
    driver.open_topic(name).unwrap()
}

#[test]
fn a_client_of_any_server_has_the_topics_of_all_and_what_is_stored_stays() {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    let driver = cluster.connect(1);
    let all: Vec<String> = (0..24).map(name).collect();
    for name in &all {
        push(&create(&driver, name), &[name, "second"]);
    }
    assert_eq!(cluster.used(), BTreeSet::from([0, 1, 2]));
    let check = |cluster: &Cluster| {
        for rank in 0..3 {
            let driver = cluster.connect(rank);
            assert_eq!(names(&driver), all);
            for name in &all {
                assert_eq!(read(&open(&driver, name)), [name, "second"]);
            }
        }
    };
    check(&cluster);
    drop(driver);
    // All end and come back, at other addresses.
    cluster.drain_all();
    cluster.start_all();
    check(&cluster);
}

#[test]
fn one_server_ends_however_it_does_and_the_others_go_on() {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    let driver = cluster.connect(0);
    let all: Vec<String> = (0..12).map(name).collect();
    for name in &all {
        push(&create(&driver, name), &["kept"]);
    }
    drop(driver);
    // Each of them once: one of them led.
    for rank in 0..3 {
        let (here, gone) = ((rank + 1) % 3, cluster.server(rank));
        match rank {
            1 => gone.drain(WATCHDOG).unwrap(),
            _ => gone.kill(),
        }
        let driver = cluster.connect(here);
        // What the two have is served, and named whole.
        assert_eq!(names(&driver), all);
        let of = |rank: u32| cluster.path(&format!("data-{rank}/partitions"));
        let gone = std::fs::read_dir(of(rank)).unwrap().count();
        assert!(gone < all.len());
        drop(driver);
        cluster.start(&[rank]);
        let driver = cluster.connect(rank);
        for name in &all {
            assert_eq!(read(&open(&driver, name)), ["kept"]);
        }
    }
}

#[test]
fn a_client_goes_on_with_another_server_while_the_one_that_it_knows_is_gone() {
    let mut cluster = Cluster::new(3);
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    let driver = cluster.connect(0);
    let all: Vec<String> = (0..12).map(name).collect();
    let topics: Vec<TopicHandle> = all.iter().map(|name| create(&driver, name)).collect();
    let producers: Vec<_> = topics
        .iter()
        .map(|topic| topic.producer(ProducerOptions::default()).unwrap())
        .collect();
    let push_all = |text: &str| {
        for producer in &producers {
            producer.push(Event::new(text.as_bytes())).unwrap();
        }
    };
    push_all("before");
    for producer in &producers {
        producer.flush(WATCHDOG).unwrap();
    }
    cluster.server(0).kill();
    // Those that are there take events; the others' wait.
    push_all("meanwhile");
    let new = cluster.connect(0);
    for driver in [&driver, &new] {
        assert_eq!(names(driver), all);
    }
    // None is made where nobody is.
    let more: Vec<String> = (12..24).map(name).collect();
    for name in &more {
        push(&create(&new, name), &["new"]);
    }
    assert!(names(&driver).len() == 24);
    cluster.start(&[0]);
    for producer in &producers {
        producer.flush(WATCHDOG).unwrap();
    }
    for topic in &topics {
        assert_eq!(read(topic), ["before", "meanwhile"]);
    }
    for name in &more {
        assert_eq!(read(&open(&driver, name)), ["new"]);
    }
}

#[test]
fn a_client_that_begins_while_its_server_is_away_goes_on_when_that_is_back_elsewhere() {
    let mut cluster = Cluster::new(3);
    cluster.file = "group.json";
    cluster.start_all();
    cluster.wait_for_others(0, 2);
    let first = |cluster: &Cluster| {
        let text = std::fs::read_to_string(cluster.path("group.json")).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let endpoints = file["endpoints"].to_string();
        let mut ranks = (0..3).filter(|rank| endpoints.contains(&format!("data-{rank}/")));
        ranks.next().unwrap()
    };
    let rank: u32 = first(&cluster);
    let all: Vec<String> = (0..12).map(name).collect();
    let driver = cluster.connect(rank);
    for name in &all {
        push(&create(&driver, name), &[name]);
    }
    drop(driver);
    cluster.server(rank).kill();
    let driver = cluster.connect(rank);
    assert_eq!(names(&driver), all);
    // All of them write the file anew, another one last.
    cluster.start(&[rank]);
    for round in 0..3 {
        for name in &all {
            push(&open(&driver, name), &["more"]);
            assert_eq!(read(&open(&driver, name)).len(), 2 + round, "{name}");
        }
    }
    let status: serde_json::Value = serde_json::from_str(&driver.status().unwrap()).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_server_joins_and_gets_its_share_of_new_topics() {
    let mut cluster = Cluster::new(1);
    cluster.security = "tcp";
    cluster.start_all();
    let driver = cluster.connect(0);
    push(&create(&driver, "first"), &["a"]);
    cluster.shards = 2;
    cluster.start(&[1]);
    for number in 0..24 {
        let name = name(number);
        push(&create(&driver, &name), &[&name]);
    }
    assert_eq!(cluster.used(), BTreeSet::from([0, 1]));
    assert!(has_partitions(&cluster.path("data-1/shards/1")));
    let other = cluster.connect(1);
    for number in 0..24 {
        let name = name(number);
        assert_eq!(read(&open(&other, &name)), [name]);
    }
    assert_eq!(read(&open(&other, "first")), ["a"]);
    let status: serde_json::Value = serde_json::from_str(&driver.status().unwrap()).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
}

#[test]
fn a_data_directory_is_of_the_cluster_that_it_has_joined_and_of_no_other_server() {
    let mut cluster = Cluster::new(1);
    cluster.start_all();
    cluster.drain_all();
    let refused = |config: Config| {
        Server::start(config, Arc::new(|_: &str| {}))
            .unwrap_err()
            .to_string()
    };
    let alone = Config {
        directory: cluster.path("data-0"),
        group_file: None,
        ..Config::default()
    };
    let said = refused(alone.clone());
    assert!(said.contains("start it with --cluster"), "{said}");
    let copied = server::back_up(&cluster.path("data-0"), &cluster.path("copy"), |_, _| {});
    let said = copied.unwrap_err().to_string();
    assert!(said.contains("part of a cluster"), "{said}");
    let elsewhere = Config {
        cluster: Some(cluster.path("elsewhere")),
        ..cluster.config(0)
    };
    // The first that comes to an empty directory makes it its cluster's.
    Server::start(elsewhere, Arc::new(|_: &str| {}))
        .unwrap()
        .drain(WATCHDOG)
        .unwrap();
    let used = Config {
        directory: cluster.path("alone"),
        ..alone
    };
    Server::start(used.clone(), Arc::new(|_: &str| {}))
        .unwrap()
        .drain(WATCHDOG)
        .unwrap();
    let said = refused(Config {
        directory: used.directory,
        ..cluster.config(1)
    });
    assert!(
        said.contains("a server that was alone has used it"),
        "{said}"
    );
}

#[test]
fn a_start_that_nobody_joins_says_who_is_missing() {
    let cluster = Cluster::new(3);
    let config = Config {
        cluster_wait_ms: 200,
        ..cluster.config(1)
    };
    let error = Server::start(config, Arc::new(|_: &str| {}))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("rank-0.json") && error.contains("rank-2.json"),
        "{error}"
    );
}
