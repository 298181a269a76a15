//! Ranks that write and read steps, die, come back, are killed with the server, under a seed. At the end the
//! records are compared with what was written, and with what was told to whom.

use super::harness::*;
use super::steps_harness::{Queue, Reader, Writer, plain, who};
use crate::Fault;
use log::testing::Survival;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::message::*;
use wire::step::{RecordKind, StepTable};
use wire::*;

/// Whose part lies at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    run: u64,
    step: u64,
    rank: u32,
    epoch: u32,
}

/// A writing rank that is there, and what it has asked for.
struct Alive {
    writer: Writer,
    /// The next step that it writes.
    step: u64,
    /// A step that it waits for.
    awaits: Option<(u64, u64)>,
}

struct Storm {
    ground: Ground,
    world: World,
    topic: TopicId,
    ranks: u32,
    readers: u32,
    latest: bool,
    alive: BTreeMap<u32, Alive>,
    reading: BTreeMap<u32, (Reader, Option<u64>)>,
    /// Every part that was pushed, acknowledged or not, by partition and offset where that is known.
    sent: BTreeMap<(u32, u64), Sent>,
    /// Steps that were said to be committed, and the offset of their records.
    told: BTreeMap<(u64, u64), u64>,
    /// What each turn of each life of the readers was given.
    turns: BTreeMap<(u64, u64), u64>,
    /// The life of the readers, and the last record that each rank was given in it.
    life: u64,
    seen: BTreeMap<(u64, u32), u64>,
    state: u64,
}

impl Storm {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut ground = Ground {
            fault,
            ..Ground::new()
        };
        let mut world = ground.start();
        let topic = plain(&mut world);
        Self {
            ground,
            world,
            topic,
            ranks: 1 + (seed % 4) as u32,
            readers: 1 + (seed / 4 % 3) as u32,
            latest: seed.is_multiple_of(5),
            alive: BTreeMap::new(),
            reading: BTreeMap::new(),
            sent: BTreeMap::new(),
            told: BTreeMap::new(),
            turns: BTreeMap::new(),
            life: 0,
            seen: BTreeMap::new(),
            state: seed,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn open(&mut self, rank: u32) {
        if self.world.hold_disk {
            return;
        }
        let (mut writer, id) =
            self.world
                .try_writer(self.topic, rank, self.ranks, Queue::default());
        if let Some(Ok(_)) = self.world.answer(writer.link, id) {
            let opened: RunOpened = self.world.answered(writer.link, id).unwrap();
            (writer.run, writer.next) = (opened.run, opened.next);
            let attend = AttendRun {
                run: writer.run,
                rank: Rank(rank),
                producer: writer.producer,
                epoch: writer.epoch,
            };
            let (link, topic) = (writer.link, self.topic);
            writer.attends = self
                .world
                .request(link, Method::AttendRun, topic, &attend, &[]);
            let step = writer.next.0;
            let alive = Alive {
                writer,
                step,
                awaits: None,
            };
            self.alive.insert(rank, alive);
        }
    }

    /// A rank writes its next part, unless it is far ahead.
    fn write(&mut self, rank: u32) {
        let topic = self.topic;
        let Some(alive) = self.alive.get_mut(&rank) else {
            return;
        };
        let step = alive.step;
        if step > alive.writer.next.0 + 2 {
            return;
        }
        let id = self.world.part(topic, &mut alive.writer, step, |_| {});
        alive.step += 1;
        let (run, epoch, link) = (alive.writer.run.0, alive.writer.epoch.0, alive.writer.link);
        // Its place is known by the answer, or not: then it is the next of its partition, if it is stored.
        if let Some(Ok(_)) = self.world.answer(link, id) {
            let produced: Produced = self.world.answered(link, id).unwrap();
            let part = Sent {
                run,
                step,
                rank,
                epoch,
            };
            self.sent
                .insert((1 + rank % 2, produced.base_offset.0), part);
        }
        let id = self
            .world
            .await_step(topic, &self.alive[&rank].writer, step, 0);
        if let Some(alive) = self.alive.get_mut(&rank) {
            alive.awaits = Some((step, id));
        }
    }

    /// Takes what has come for ranks that wait.
    fn hear(&mut self) {
        let mut over = Vec::new();
        for (rank, alive) in &mut self.alive {
            let link = alive.writer.link;
            let attends = self.world.answer(link, alive.writer.attends).is_some();
            if self.world.links[&link].closed.is_some() || attends {
                over.push(*rank);
                continue;
            }
            let Some((step, id)) = alive.awaits else {
                continue;
            };
            match self.world.answer(link, id) {
                Some(Ok(_)) => {
                    let decided: StepDecided = self.world.answered(link, id).unwrap();
                    alive.awaits = None;
                    alive.writer.next = Step(step + 1);
                    self.told
                        .insert((alive.writer.run.0, step), decided.position.offset.0);
                }
                Some(Err(_)) => over.push(*rank),
                None => {}
            }
        }
        for rank in over {
            self.alive.remove(&rank);
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let rank = self.below(self.ranks.into()) as u32;
        let reader = self.below(self.readers.into()) as u32;
        match self.below(100) {
            0..45 => match self.alive.contains_key(&rank) {
                true => self.write(rank),
                false => self.open(rank),
            },
            45..48 => {
                if let Some(alive) = self.alive.remove(&rank) {
                    self.world.disconnect(alive.writer.link);
                }
            }
            48..50 => self.close(),
            50..52 => {
                let time = Duration::from_millis(self.below(3000));
                self.world.pass(time);
            }
            52..54 => self.world.hold_disk = true,
            54..60 => self.world.release_disk(),
            60..61 => self.restart(false),
            61..62 => self.restart(true),
            62..64 => {
                // The program dies, all of its ranks.
                if self.reading.contains_key(&reader) {
                    for (reader, _) in std::mem::take(&mut self.reading).into_values() {
                        self.world.disconnect(reader.link);
                    }
                }
            }
            _ => self.read(reader)?,
        }
        self.hear();
        Ok(())
    }

    /// All ranks close the run, if they are there and have written alike.
    fn close(&mut self) {
        self.world.release_disk();
        self.hear();
        let steps: Vec<u64> = self.alive.values().map(|alive| alive.step).collect();
        if steps.len() != self.ranks as usize || steps.iter().any(|step| *step != steps[0]) {
            return;
        }
        for (_, alive) in std::mem::take(&mut self.alive) {
            self.world.close_run(self.topic, &alive.writer, alive.step);
            // It is gone as soon as it is answered.
            self.world.disconnect(alive.writer.link);
        }
    }

    fn restart(&mut self, power: bool) {
        self.alive.clear();
        self.reading.clear();
        self.life += 1;
        match power {
            true => self.ground.power_loss(Survival::Nothing),
            false => self.ground.kill(),
        }
        self.world = self.ground.start();
    }

    /// A rank of the readers attaches, asks, or takes what has come and is done with it.
    fn read(&mut self, rank: u32) -> Result<(), String> {
        let (topic, ranks) = (self.topic, self.readers);
        let Some((mut reader, asked)) = self.reading.remove(&rank) else {
            let start = StepStart::Cursor;
            let (mut reader, id) =
                self.world
                    .try_reader(topic, "r", rank, ranks, start, self.latest);
            if let Some(Ok(_)) = self.world.answer(reader.link, id) {
                self.world.attached(topic, &mut reader, id);
                if self.reading.is_empty() {
                    self.life += 1;
                }
                self.reading.insert(rank, (reader, None));
            }
            return Ok(());
        };
        if self.world.links[&reader.link].closed.is_some() {
            for (reader, _) in std::mem::take(&mut self.reading).into_values() {
                self.world.disconnect(reader.link);
            }
            return Ok(());
        }
        let Some(id) = asked else {
            let id = self.world.ask(topic, &reader);
            self.reading.insert(rank, (reader, Some(id)));
            return Ok(());
        };
        match self.world.answer(reader.link, id) {
            None => {
                self.reading.insert(rank, (reader, Some(id)));
            }
            Some(Err(error)) if error.code == ErrorCode::DeadlinePassed => {
                self.reading.insert(rank, (reader, None));
            }
            // Another life of the readers, or one that lost a rank.
            Some(Err(_)) => {
                for (reader, _) in std::mem::take(&mut self.reading).into_values() {
                    self.world.disconnect(reader.link);
                }
            }
            Some(Ok(_)) => {
                let (given, tables) = self.world.turn_given(&reader, id).unwrap();
                let at = given.position.offset.0;
                let same = *self.turns.entry((self.life, given.turn)).or_insert(at);
                if same != at {
                    return Err(format!("turn {} was given {same} and {at}", given.turn));
                }
                let last = self.seen.insert((self.life, rank), at);
                if last.is_some_and(|last| last >= at) {
                    return Err(format!("{at} came behind {last:?}"));
                }
                let table = tables.last().ok_or("no record came")?;
                if !matches!(
                    table.kind,
                    RecordKind::Step | RecordKind::Closed | RecordKind::Broken
                ) {
                    return Err(format!("a turn was given {:?}", table.kind));
                }
                self.world.release_turn_unheard(topic, &mut reader);
                self.reading.insert(rank, (reader, None));
            }
        }
        Ok(())
    }

    /// The records are what was written.
    fn check(&mut self) -> Result<(), String> {
        self.world.release_disk();
        self.hear();
        let records = self.world.records(self.topic);
        let mut open: Option<(u64, u64)> = None;
        let mut last_run = 0;
        for table in &records {
            let (run, step) = (table.run.0, table.step.0);
            match (table.kind, open) {
                (RecordKind::Opened, None) if run == last_run + 1 && step == 0 => {
                    open = Some((run, 0));
                    last_run = run;
                }
                (RecordKind::Step, Some((own, next))) if (run, step) == (own, next) => {
                    self.check_parts(table)?;
                    open = Some((own, next + 1));
                }
                (RecordKind::Closed | RecordKind::Broken, Some((own, next)))
                    if (run, step) == (own, next) =>
                {
                    open = None;
                }
                (RecordKind::Closing, Some(at)) if (run, step) == at => {}
                (kind, open) => return Err(format!("{kind:?} {run} {step} in {open:?}")),
            }
        }
        for ((run, step), offset) in &self.told {
            let there = records.get(*offset as usize);
            let is_it = there.is_some_and(|table| (table.run.0, table.step.0) == (*run, *step));
            if !is_it {
                return Err(format!(
                    "step {step} of run {run} was committed, and is not at {offset}"
                ));
            }
        }
        Ok(())
    }

    /// A step's parts are those of its ranks, each of one life, and all are there.
    fn check_parts(&mut self, table: &StepTable) -> Result<(), String> {
        let (run, step) = (table.run.0, table.step.0);
        if table.parts.len() != self.ranks as usize {
            return Err(format!(
                "step {step} of run {run} has {} parts",
                table.parts.len()
            ));
        }
        let link = self.world.connect();
        let described = self
            .world
            .describe(link, "s")
            .map_err(|error| error.message)?;
        for ((part, said), rank) in table.parts.iter().zip(who(table)).zip(0u32..) {
            let end = described.partitions[part.partition.0 as usize]
                .watermarks
                .durable;
            if part.offset >= end {
                return Err(format!(
                    "part {} of step {step} of run {run} is not there",
                    part.offset
                ));
            }
            let known = self.sent.get(&(part.partition.0, part.offset.0));
            let Some(known) = known else {
                continue;
            };
            let own = format!(
                "{}:{}:{}:{}",
                known.run, known.rank, known.step, known.epoch
            );
            if own != said || (known.run, known.step, known.rank) != (run, step, rank) {
                return Err(format!(
                    "{said} is in rank {rank} of step {step} of run {run}, {known:?} was sent"
                ));
            }
        }
        Ok(())
    }
}

/// How many steps were committed under this seed.
fn storm(seed: u64, fault: Option<Fault>) -> Result<usize, String> {
    let mut storm = Storm::new(seed, fault);
    for step in 0..300 {
        let stepped = storm.step();
        stepped.map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    storm
        .check()
        .map_err(|error| format!("seed {seed}: {error}"))?;
    Ok(storm.told.len())
}

#[test]
fn whatever_happens_steps_are_whole_in_order_and_each_once() {
    let runs = (0..200).map(|seed| storm(seed, None));
    let committed = runs.map(|run| run.unwrap_or_else(|error| panic!("{error}")));
    let sum: usize = committed.sum();
    assert!(
        sum > 2_000,
        "{sum} steps were committed: too little was tried"
    );
}

#[test]
fn planted_faults_of_steps_are_caught() {
    for fault in [Fault::StepsShort, Fault::StepsForgotten] {
        let caught = (0..60).find(|seed| storm(*seed, Some(fault)).is_err());
        assert!(caught.is_some(), "{fault:?} is not noticed");
    }
}
