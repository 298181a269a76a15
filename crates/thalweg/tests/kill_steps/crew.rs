//! The processes, each in a place where another one follows it, and what they say.

use crate::journal::{Entry, MARK, Role, Said, Who};
use crate::rank::{Part, READERS};
use crate::rig::{Log, Rig, ServerProcess, WATCHDOG, collect};
use crate::{PART, content};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

/// What all have said, in the order in which it was heard.
#[derive(Clone, Default)]
pub struct Journal {
    shared: Arc<(Mutex<Vec<Entry>>, Condvar)>,
}

impl Journal {
    pub fn add(&self, entry: Entry) {
        self.shared.0.lock().unwrap().push(entry);
        self.shared.1.notify_all();
    }

    pub fn len(&self) -> usize {
        self.shared.0.lock().unwrap().len()
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.shared.0.lock().unwrap().clone()
    }

    /// Waits until the entries are as wanted; false when that has not come about.
    fn wait_until(&self, mut is_so: impl FnMut(&[Entry]) -> bool) -> bool {
        let entries = self.shared.0.lock().unwrap();
        let waiting = |entries: &mut Vec<Entry>| !is_so(entries);
        let waited = self.shared.1.wait_timeout_while(entries, WATCHDOG, waiting);
        !waited.unwrap().1.timed_out()
    }
}

struct Place {
    who: Who,
    child: Child,
    errors: Log,
}

/// The server and all ranks.
pub struct Crew {
    rig: Rig,
    server: Option<ServerProcess>,
    pub journal: Journal,
    places: BTreeMap<(Role, u32), Place>,
    lives: u64,
    killed: BTreeSet<u64>,
    /// What a failure says first.
    title: String,
}

impl Crew {
    pub fn new(rig: Rig, server: ServerProcess, title: String) -> Self {
        let mut crew = Self {
            rig,
            server: Some(server),
            journal: Journal::default(),
            places: BTreeMap::new(),
            lives: 0,
            killed: BTreeSet::new(),
            title,
        };
        let ranks = [
            (Role::Write, content::RANKS),
            (Role::Read, READERS),
            (Role::Live, READERS),
        ];
        for (role, ranks) in ranks {
            (0..ranks).for_each(|rank| crew.start(role, rank));
        }
        crew
    }

    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// How many processes there were.
    pub fn lives(&self) -> u64 {
        self.lives
    }

    pub fn places(&self) -> Vec<(Role, u32)> {
        self.places.keys().copied().collect()
    }

    pub fn start(&mut self, role: Role, rank: u32) {
        self.lives += 1;
        let who = Who {
            role,
            rank,
            life: self.lives,
        };
        let part = Part {
            who,
            group_file: self.rig.group_file(),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_rank", "--ignored", "--nocapture"])
            .env(PART, serde_json::to_string(&part).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = collect(child.stderr.take().unwrap());
        let said = BufReader::new(child.stdout.take().unwrap());
        let journal = self.journal.clone();
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                // A last line may be cut off by the kill.
                let entry = line.strip_prefix(MARK).map(serde_json::from_str);
                entry
                    .and_then(Result::ok)
                    .into_iter()
                    .for_each(|entry| journal.add(entry));
            }
            journal.add(Entry::now(who, Said::Gone));
        });
        let place = Place { who, child, errors };
        self.places.insert((role, rank), place);
    }

    /// Kills a rank, and hears all that it has said. Gives which life that was.
    pub fn kill(&mut self, role: Role, rank: u32) -> u64 {
        let mut place = self.places.remove(&(role, rank)).expect("it runs");
        let life = place.who.life;
        self.killed.insert(life);
        place.child.kill().unwrap();
        place.child.wait().unwrap();
        let is_gone = |entry: &Entry| entry.who.life == life && entry.said == Said::Gone;
        self.wait("the end of a killed process", |entries| {
            entries.iter().any(is_gone)
        });
        life
    }

    /// Kills the server and starts it anew; if `twice`, kills it while it recovers, too.
    pub fn restart_server(&mut self, twice: bool) {
        let test = Who {
            role: Role::Audit,
            rank: 0,
            life: 0,
        };
        self.server.take().expect("it runs").kill();
        self.journal.add(Entry::now(test, Said::ServerKilled));
        if twice {
            let unready = self.rig.serve_unready(&[]);
            unready.wait_for_a_sign();
            unready.kill();
        }
        self.server = Some(self.rig.serve(&[]));
    }

    /// Waits until what was said is as wanted, and no process is gone that was not killed.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut(&[Entry]) -> bool) {
        let mut looked_at = 0;
        let mut lost = None;
        let came = self.journal.wait_until(|entries| {
            let is_lost =
                |entry: &&Entry| entry.said == Said::Gone && !self.killed.contains(&entry.who.life);
            lost = entries[looked_at..]
                .iter()
                .find(is_lost)
                .map(|entry| entry.who)
                .or(lost);
            looked_at = entries.len();
            lost.is_some() || is_so(entries)
        });
        assert!(
            came,
            "{}: {what} did not come about. {}",
            self.title,
            self.last_said()
        );
        if let Some(who) = lost {
            let errors = self
                .places
                .get(&(who.role, who.rank))
                .map(|place| place.errors.whole());
            panic!(
                "{}: {who:?} has ended: {}",
                self.title,
                errors.unwrap_or_default()
            );
        }
    }

    /// The last lines of each process that runs.
    fn last_said(&self) -> String {
        let entries = self.journal.entries();
        let last = self.places.values().map(|place| {
            let own = entries.iter().filter(|entry| entry.who == place.who);
            let last: Vec<_> = own.rev().take(3).map(Entry::to_string).collect();
            format!(
                "{:?}:\n{}\n{}",
                place.who,
                last.join("\n"),
                place.errors.text()
            )
        });
        last.collect::<Vec<_>>().join("\n")
    }

    /// Tells all which run is the last one, and waits for the ends of the writers, and then of the readers.
    pub fn finish(&mut self, last_run: u64) {
        for place in self.places.values_mut() {
            let stdin = place.child.stdin.as_mut().expect("it was asked for");
            stdin.write_all(format!("{last_run}\n").as_bytes()).unwrap();
        }
        let all: BTreeSet<u64> = self.places.values().map(|place| place.who.life).collect();
        // From now on they end by themselves.
        self.killed.extend(&all);
        let gone = |entries: &[Entry]| {
            let gone = entries.iter().filter(|entry| entry.said == Said::Gone);
            let gone: BTreeSet<u64> = gone.map(|entry| entry.who.life).collect();
            gone.is_superset(&all)
        };
        self.wait("the end of all processes", gone);
        for place in self.places.values_mut() {
            let status = place.child.wait().unwrap();
            let errors = place.errors.whole();
            assert!(
                status.success(),
                "{}: {:?}: {errors}",
                self.title,
                place.who
            );
        }
        self.places.clear();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for place in self.places.values_mut() {
            // It may have ended.
            let _ = place.child.kill();
            let _ = place.child.wait();
        }
    }
}
