//! Kills the real server, ranks that write steps and ranks that read them, again and again, and compares what each of them was
//! told with what is there.
//!
//! `make kill-steps ROUNDS=200` runs it long. A failure prints its seed; with `THALWEG_KILL_SEED` the same are killed in the same
//! order, though what happens in between is up to the machine. A program of its own, because it is its own ranks: each is a
//! process that runs `a_rank` alone.

mod audit;
mod content;
mod crew;
mod falsified;
mod journal;
mod rank;
#[path = "../rig/mod.rs"]
mod rig;

use audit::audit;
use crew::{Crew, Journal};
use journal::{Entry, Role, Said, Who};
use rank::{READERS, STREAM};
use rig::{Rig, WATCHDOG};
use std::time::Instant;
use step::{Next, ReaderOptions, StepStart, Stream};

/// The environment variable that says to a process which rank it is.
const PART: &str = "THALWEG_TEST_PART";
const ROUNDS_DEFAULT: u64 = 5;
/// Something is killed after at most so many more lines of the journals: some hundred steps.
const LINES_MAX: u64 = 4000;

#[test]
#[ignore = "a rank, which the test beside it starts"]
fn a_rank() {
    if let Ok(part) = std::env::var(PART) {
        rank::play(&serde_json::from_str(&part).unwrap());
    }
}

#[test]
fn steps_are_whole_and_in_order_and_none_is_lost() {
    let rounds = number("THALWEG_KILL_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    let seed = number("THALWEG_KILL_SEED").unwrap_or_else(rand_seed);
    let title = format!("THALWEG_KILL_SEED={seed} THALWEG_KILL_ROUNDS={rounds}");
    eprintln!("{title}");
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&[
        "steps",
        "create",
        STREAM,
        "--parts",
        "2",
        "--durability",
        "written",
    ])
    .ok();
    let mut crew = Crew::new(rig, server, title.clone());
    let mut random = Random(seed);
    for _ in 0..rounds {
        // Now and then at once, while others come back.
        let lines = match random.below(6) {
            0 => 0,
            _ => random.below(LINES_MAX) as usize,
        };
        let goal = crew.journal.len() + lines;
        crew.wait("progress", |entries| entries.len() >= goal);
        strike(&mut crew, &mut random);
    }
    // A run that is begun when nobody is killed any more, and is not broken.
    let last = last_run(&crew.journal) + 2;
    crew.finish(last);
    replay(&crew, last);
    let entries = crew.journal.entries();
    match audit(&entries) {
        Ok(summary) => eprintln!(
            "{} processes, {} lines: {summary:?}",
            crew.lives(),
            entries.len()
        ),
        Err(findings) => panic!(
            "{title}: {} findings:\n{}\n{}",
            findings.len(),
            findings[..findings.len().min(20)].join("\n"),
            kept(&entries, seed)
        ),
    }
}

/// What is killed in a round, and started anew.
fn strike(crew: &mut Crew, random: &mut Random) {
    let places = crew.places();
    match random.below(8) {
        0 | 1 => crew.restart_server(random.below(4) == 0),
        2 => {
            let one = places[random.below(places.len() as u64) as usize];
            replace(crew, &[one], None);
        }
        3 => {
            let rank = random.below(content::RANKS.into()) as u32;
            replace(crew, &[(Role::Write, rank)], None);
        }
        4 => break_run(crew, random.below(content::RANKS.into()) as u32),
        5 => {
            let role = [Role::Read, Role::Live][random.below(2) as usize];
            let ranks: Vec<_> = (0..READERS).map(|rank| (role, rank)).collect();
            replace(crew, &ranks, None);
        }
        6 => {
            let ranks: Vec<_> = (0..content::RANKS)
                .map(|rank| (Role::Write, rank))
                .collect();
            replace(crew, &ranks, None);
        }
        _ => {
            let is_chosen = |_: &(Role, u32)| random.below(2) == 0;
            let chosen: Vec<_> = places.into_iter().filter(is_chosen).collect();
            replace(crew, &chosen, Some(random.below(4) == 0));
        }
    }
}

/// Kills ranks, and then the server, if it is said how; starts them anew.
fn replace(crew: &mut Crew, ranks: &[(Role, u32)], server: Option<bool>) {
    for (role, rank) in ranks {
        crew.kill(*role, *rank);
    }
    if let Some(twice) = server {
        crew.restart_server(twice);
    }
    for (role, rank) in ranks {
        crew.start(*role, *rank);
    }
}

/// Kills a rank that writes, and starts it when the others were told that their run is broken, or are in the next one, where
/// one who has never been is waited for.
fn break_run(crew: &mut Crew, rank: u32) {
    let life = crew.kill(Role::Write, rank);
    let mut looked_at = 0;
    let mut last = 0;
    crew.wait("the end of a run without one of its ranks", |entries| {
        if looked_at == 0 {
            last = runs_opened(entries, |who| who.rank == rank)
                .max()
                .unwrap_or(0);
            looked_at = entries
                .iter()
                .rposition(|entry| entry.who.life == life)
                .unwrap_or(0);
        }
        let of_others = |who: &Who| who.rank != rank;
        let new = &entries[looked_at..];
        runs_opened(entries, of_others).any(|run| run > last)
            || new
                .iter()
                .any(|entry| matches!(entry.said, Said::Ended { .. }) && of_others(&entry.who))
    });
    crew.start(Role::Write, rank);
}

fn runs_opened(entries: &[Entry], of: impl Fn(&Who) -> bool) -> impl Iterator<Item = u64> {
    entries.iter().filter_map(move |entry| match entry.said {
        Said::Opened { run, .. } if of(&entry.who) => Some(run),
        _ => None,
    })
}

fn last_run(journal: &Journal) -> u64 {
    runs_opened(&journal.entries(), |_| true).max().unwrap_or(0)
}

/// Reads all that is stored, with a reader of its own.
fn replay(crew: &Crew, last: u64) {
    let who = Who {
        role: Role::Audit,
        rank: 0,
        life: 0,
    };
    let say = |said| crew.journal.add(Entry::now(who, said));
    let stream = Stream::open(&rank::connect(crew.rig().group_file()), STREAM).unwrap();
    let options = ReaderOptions {
        name: "audit".to_owned(),
        start: StepStart::Oldest,
        ..ReaderOptions::default()
    };
    let mut reader = stream.reader(options).unwrap();
    let began = Instant::now();
    loop {
        let next = reader.next(WATCHDOG).unwrap();
        let offset = || reader.position().expect("it was given a record").offset.0;
        match next {
            Next::Step(view) => {
                let (run, step, offset) = (view.run().0, view.number().0, offset());
                let content = rank::look(&view).unwrap();
                say(Said::Seen {
                    run,
                    step,
                    offset,
                    content,
                });
            }
            Next::End { run, broken } => {
                let (run, offset, broken) = (run.0, offset(), broken.is_some());
                say(Said::RunOver {
                    run,
                    broken,
                    offset,
                });
                if run >= last {
                    break;
                }
            }
            Next::NotReady(why) => assert!(began.elapsed() < WATCHDOG, "{why}"),
        }
    }
}

/// Where the journal of a failure is kept.
fn kept(entries: &[Entry], seed: u64) -> String {
    let path = std::env::temp_dir().join(format!("thalweg-kill-steps-{seed}"));
    let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    format!("the journal is kept: {}", path.display())
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
        content::mix(self.0) % bound
    }
}
