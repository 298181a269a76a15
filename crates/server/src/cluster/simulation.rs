//! Servers at a rendezvous under one seed: they start, look, die, lose their data directories and are started twice,
//! over a directory that shows things late. A judge asks after each step what must hold.

use super::fake_share::{Random, Share, View};
use super::faults::{Fault, with};
use super::rank_file::{Membership, RECORD_FILE, Record, RunId, cluster_of};
use super::refused::Refused;
use super::rendezvous::{Arrival, Decision, Founder, Rendezvous};
use crate::host::Host;
use cluster::{ClusterId, DirectoryId, VoterId};
use std::collections::BTreeMap;
use std::ops::Range;

const STEPS: usize = 150;
/// Rounds after which all must have come to a decision, when nothing fails any more.
const ROUNDS: usize = 12;

/// A server, whether it runs or not.
struct Server {
    rank: u32,
    directory: DirectoryId,
    /// What its data directory says.
    member: Option<Membership>,
    process: Option<Process>,
    is_twin: bool,
}

struct Process {
    rendezvous: Rendezvous,
    view: View,
    /// The step at which it began.
    began: usize,
    next: Next,
}

/// What a process does next.
enum Next {
    Look,
    /// Makes its log.
    Found(Membership, Vec<Founder>),
    /// Asks a member.
    Join(ClusterId),
    Announce(Membership),
    Serve,
}

/// What is counted, to see that the seeds get somewhere.
#[derive(Debug, Default)]
struct Count {
    foundings: usize,
    joins: usize,
    refused: usize,
    wiped: usize,
    reused: usize,
    all_in: usize,
}

struct World {
    random: Random,
    share: Share,
    size: u32,
    voters: u32,
    servers: Vec<Server>,
    step: usize,
    ids: u128,
    /// When a process with this data directory last ran.
    ran: BTreeMap<DirectoryId, usize>,
    founded: Vec<(ClusterId, Vec<DirectoryId>)>,
    record: Option<String>,
    is_id_wrong: bool,
    count: Count,
}

type Judged = Result<(), String>;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let voters = [1, 3, 3, 5][random.below(4)];
        let size = voters + random.below(3) as u32;
        let mut world = Self {
            random,
            share: Share::default(),
            size,
            voters,
            servers: Vec::new(),
            step: 0,
            ids: 0,
            ran: BTreeMap::new(),
            founded: Vec::new(),
            record: None,
            is_id_wrong: false,
            count: Count::default(),
        };
        for rank in 0..size {
            world.add(rank, false);
        }
        world
    }

    fn id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    fn add(&mut self, rank: u32, is_twin: bool) {
        let directory = DirectoryId(self.id());
        self.servers.push(Server {
            rank,
            directory,
            member: None,
            process: None,
            is_twin,
        });
    }

    fn start(&mut self, at: usize, is_late: bool) -> Judged {
        let run = RunId(self.id());
        let mut view = match is_late {
            true => self.share.late_view(self.random.number()),
            false => self.share.view(),
        };
        if is_late && self.random.one_in(4) {
            view.dies_after = Some(self.random.below(30) as u32);
        }
        let server = &mut self.servers[at];
        let arrival = Arrival {
            rank: server.rank,
            size: self.size,
            voters: self.voters,
            settings: Vec::new(),
            directory: server.directory,
            peers: vec![format!("run {}", run.0)],
            endpoints: Vec::new(),
            member: server.member,
        };
        let host = Host {
            name: "node".to_owned(),
            boot_id: String::new(),
        };
        match Rendezvous::enter_as(arrival, &host, run, &mut view) {
            Ok(rendezvous) => {
                server.process = Some(Process {
                    rendezvous,
                    view,
                    began: self.step,
                    next: Next::Look,
                });
                Ok(())
            }
            Err(refused) => self.refused(at, &refused),
        }
    }

    fn kill(&mut self, at: usize) {
        let server = &mut self.servers[at];
        if server.process.take().is_some() {
            self.ran.insert(server.directory, self.step);
        }
    }

    /// A process is killed, or has a twin: nothing else that happens here is refused.
    fn refused(&mut self, at: usize, refused: &Refused) -> Judged {
        self.kill(at);
        self.count.refused += 1;
        let said = refused.to_string();
        let is_right = match refused {
            Refused::File(_) => said == "killed",
            Refused::Contradiction(_) => {
                said.contains("is started twice") || said.contains("is in use")
            }
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("rank {} is refused: {said}", self.servers[at].rank)),
        }
    }

    fn act(&mut self, at: usize) -> Judged {
        let server = &mut self.servers[at];
        let Some(process) = &mut server.process else {
            return Ok(());
        };
        let (rendezvous, view) = (&mut process.rendezvous, &mut process.view);
        match &process.next {
            Next::Look => match rendezvous.look(view) {
                Ok(None) => {}
                Ok(Some(Decision::Found {
                    cluster,
                    voter,
                    founders,
                })) => {
                    let voter = Some(voter);
                    process.next = Next::Found(Membership { cluster, voter }, founders);
                }
                Ok(Some(Decision::Join { cluster, .. })) => process.next = Next::Join(cluster),
                Ok(Some(Decision::GoOn(member))) => {
                    assert_eq!(Some(member), server.member);
                    process.next = Next::Serve;
                }
                Err(refused) => self.refused(at, &refused)?,
            },
            Next::Found(member, founders) => {
                let (member, founders) = (*member, founders.clone());
                server.member = Some(member);
                process.next = Next::Announce(member);
                self.judge_founding(at, member, &founders)?;
            }
            Next::Join(cluster) => {
                let cluster = *cluster;
                process.next = Next::Look;
                let is_there = |server: &Server| {
                    let is_member = server.member.is_some_and(|one| one.cluster == cluster);
                    is_member && server.process.is_some()
                };
                if self.servers.iter().any(is_there) {
                    self.count.joins += 1;
                    let voter = None;
                    let member = Membership { cluster, voter };
                    let server = &mut self.servers[at];
                    server.member = Some(member);
                    let process = server.process.as_mut().expect("it acts");
                    process.next = Next::Announce(member);
                }
            }
            Next::Announce(member) => match rendezvous.announce(*member, view) {
                Ok(()) => process.next = Next::Serve,
                Err(refused) => self.refused(at, &refused)?,
            },
            Next::Serve => {
                if let Err(refused) = rendezvous.check(view) {
                    self.refused(at, &refused)?;
                }
            }
        }
        self.judge_record(at)
    }

    /// Never two clusters while a data directory of a founder of the first is kept.
    fn judge_founding(&mut self, at: usize, member: Membership, founders: &[Founder]) -> Judged {
        self.count.foundings += 1;
        let directories: Vec<_> = founders.iter().map(|one| one.directory).collect();
        let is_kept = |directory: &DirectoryId| {
            let mut servers = self.servers.iter();
            servers.any(|server| server.directory == *directory)
        };
        for (other, theirs) in &self.founded {
            if *other != member.cluster && theirs.iter().any(is_kept) {
                return Err("two clusters were founded".to_owned());
            }
        }
        if member.cluster != cluster_of(&directories) {
            // Something worse may come of it.
            self.is_id_wrong = true;
        }
        if directories.len() != self.voters as usize {
            return Err("there are not as many founders as voters".to_owned());
        }
        for (one, voter) in founders.iter().zip(1..) {
            let is_own = one.directory == self.servers[at].directory;
            if one.voter != VoterId(voter) || is_own != (member.voter == Some(one.voter)) {
                return Err("the voters are not those of the founders".to_owned());
            }
        }
        self.founded.push((member.cluster, directories));
        Ok(())
    }

    /// All founders have run since the process that has just recorded them began.
    fn judge_record(&mut self, at: usize) -> Judged {
        let text = self.share.latest(RECORD_FILE);
        if text == self.record {
            return Ok(());
        }
        if self.record.is_some() {
            return Err("a record was replaced".to_owned());
        }
        self.record = text.clone();
        let record =
            Record::read(&text.expect("it was not removed")).expect("it was written whole");
        // A process that has died in this call began no later.
        let process = self.servers[at].process.as_ref();
        let Some(began) = process.map(|process| process.began) else {
            return Ok(());
        };
        for founder in &record.founders {
            let mut servers = self.servers.iter();
            let runs = servers.any(|one| one.directory == *founder && one.process.is_some());
            if !runs && self.ran.get(founder).is_none_or(|ran| *ran < began) {
                return Err("a founder is of an earlier job".to_owned());
            }
        }
        Ok(())
    }

    fn wipe(&mut self, at: usize) {
        self.kill(at);
        let directory = DirectoryId(self.id());
        let server = &mut self.servers[at];
        server.directory = directory;
        server.member = None;
        self.count.wiped += 1;
    }

    /// Something happens.
    fn happen(&mut self) -> Judged {
        self.step += 1;
        let at = self.random.below(self.servers.len());
        match self.random.below(100) {
            0..=1 => self.kill(at),
            2 => self.wipe(at),
            3 if self.random.one_in(4) => {
                let rank = self.servers[at].rank;
                self.add(rank, true);
            }
            // The job is over; the directory is used for another one.
            4 if self.random.one_in(3) => {
                let is_reused = self.random.one_in(2);
                for at in 0..self.servers.len() {
                    match is_reused {
                        true => self.wipe(at),
                        false => self.kill(at),
                    }
                }
                if is_reused && self.random.one_in(2) {
                    self.count.reused += 1;
                    self.share.forget(RECORD_FILE);
                    self.record = None;
                }
            }
            _ => match self.servers[at].process {
                Some(_) => return self.act(at),
                None => return self.start(at, true),
            },
        }
        Ok(())
    }

    /// Nothing fails any more: all servers come to be members of one cluster, if enough of it is left.
    fn heal(&mut self) -> Judged {
        for at in 0..self.servers.len() {
            if self.servers[at].is_twin {
                self.kill(at);
            }
            if let Some(process) = &mut self.servers[at].process {
                process.view.late = None;
                process.view.dies_after = None;
            }
        }
        self.servers.retain(|server| !server.is_twin);
        if !self.is_enough_left() {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            self.step += 1;
            for at in 0..self.servers.len() {
                match self.servers[at].process {
                    Some(_) => self.act(at)?,
                    None => self.start(at, false)?,
                }
            }
        }
        let is_in = |server: &Server| {
            let process = server.process.as_ref();
            process.is_some_and(|process| matches!(process.next, Next::Serve))
        };
        if !self.servers.iter().all(is_in) {
            return Err("not all have come to be members".to_owned());
        }
        let cluster = self.servers[0].member.expect("it serves").cluster;
        let has_it = |server: &Server| server.member.is_some_and(|one| one.cluster == cluster);
        if !self.servers.iter().all(has_it) {
            return Err("they are members of two clusters".to_owned());
        }
        self.count.all_in += 1;
        Ok(())
    }

    /// Whether a majority of the founders has its data directories, or there is no cluster yet.
    fn is_enough_left(&self) -> bool {
        let Some(text) = &self.record else {
            return true;
        };
        let record = Record::read(text).expect("it was written whole");
        let mut servers = self.servers.iter();
        let is_kept = |directory: &&DirectoryId| {
            let mut servers = self.servers.iter();
            servers.any(|server| server.directory == **directory)
        };
        match record.founders.is_empty() {
            true => servers.any(|server| server.member.is_some()),
            false => record.founders.iter().filter(is_kept).count() * 2 > record.founders.len(),
        }
    }
}

fn run(seed: u64) -> Result<Count, String> {
    let mut world = World::new(seed);
    let mut act = || -> Judged {
        for _ in 0..STEPS {
            world.happen()?;
        }
        world.heal()?;
        match world.is_id_wrong {
            true => Err("the id does not follow from the founders".to_owned()),
            false => Ok(()),
        }
    };
    act().map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(world.count)
}

/// What the judge says of the seeds with a fault planted.
fn judged(fault: Fault) -> Vec<String> {
    with(fault, || {
        (0..2000).filter_map(|seed| run(seed).err()).collect()
    })
}

fn says(judged: &[String], what: &str) -> bool {
    judged.iter().any(|said| said.contains(what))
}

#[test]
fn one_cluster_is_founded_whatever_happens() {
    let range = std::env::var("RENDEZVOUS_SEEDS").unwrap_or_else(|_| "0..2000".to_owned());
    let (first, end) = range
        .split_once("..")
        .expect("RENDEZVOUS_SEEDS is FIRST..END");
    let [first, end] = [first, end].map(|seed| seed.parse().expect("a seed is a number"));
    let seeds: Range<u64> = first..end;
    let mut total = Count::default();
    for seed in seeds.clone() {
        let count = run(seed).unwrap();
        total.foundings += count.foundings;
        total.joins += count.joins;
        total.refused += count.refused;
        total.wiped += count.wiped;
        total.reused += count.reused;
        total.all_in += count.all_in;
    }
    println!("{total:?}");
    // A few seeds say nothing about what they come upon.
    if seeds.end - seeds.start >= 2000 {
        let least = [
            total.foundings,
            total.joins,
            total.refused,
            total.wiped,
            total.reused,
            total.all_in,
        ];
        assert!(least.iter().all(|count| *count > 200), "{total:?}");
    }
}

#[test]
fn two_foundings_are_noticed() {
    let judged = judged(Fault::TwoFoundings);
    assert!(says(&judged, "two clusters were founded"));
    assert!(says(&judged, "the id does not follow from the founders"));
}

#[test]
fn founding_without_a_record_is_noticed() {
    assert!(says(
        &judged(Fault::RecordIgnored),
        "two clusters were founded"
    ));
}

#[test]
fn a_stale_file_that_is_believed_is_noticed() {
    let judged = judged(Fault::StaleFileBelieved);
    assert!(says(&judged, "a founder is of an earlier job"));
}
