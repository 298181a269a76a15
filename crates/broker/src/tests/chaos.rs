//! Everything at once, under a seed: batches with retries, readers, cursors,
//! disk operations in any order, kills and power losses; compared with a model.

use super::harness::*;
use crate::Fault;
use crate::node::LinkId;
use log::testing::{EventSpec, Survival, make_batch};
use std::collections::BTreeMap;
use wire::message::*;
use wire::*;

const SEEDS: u64 = 500;
const STEPS: usize = 400;
const PRODUCER: u128 = 5;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// What must be so.
#[derive(Default)]
struct Model {
    /// Offsets of the events that were acknowledged or delivered: those are safe.
    safe: BTreeMap<u64, String>,
    /// Sent and not acknowledged: sequence and texts. Sent again after a restart.
    unanswered: Vec<(u64, Vec<String>, Option<u64>)>,
    next_sequence: u64,
    /// Cursor moves: the greatest that was answered, and that was asked for.
    cursor_answered: u64,
    cursor_asked: u64,
    moves: Vec<(u64, u64)>,
}

struct Run {
    ground: Ground,
    world: World,
    link: LinkId,
    topic: TopicId,
    subscription: u64,
    model: Model,
    random: Random,
}

impl Run {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut ground = Ground {
            fault,
            ..Ground::new()
        };
        ground.limits.internal_bytes_max = 16 * 1024;
        let mut world = ground.start();
        let link = world.connect();
        let create = CreateTopic {
            name: "t".into(),
            definition: "{}".into(),
            partitions: vec![PartitionStorage {
                kind: "disk".into(),
                config: r#"{"segment_bytes":8192,"checkpoint_bytes":4096,"direct_bytes_min":4096}"#
                    .into(),
            }],
        };
        let topic: TopicDescription = world
            .call(link, Method::CreateTopic, TopicId(0), &create)
            .unwrap();
        let subscription = world.subscribe(link, topic.topic, "c", Start::Beginning);
        world.hold_disk = true;
        Self {
            ground,
            world,
            link,
            topic: topic.topic,
            subscription,
            model: Model::default(),
            random: Random(seed),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..25 => self.produce_new(),
            25..80 => {
                let held = self.world.held_operation_count();
                if held > 0 {
                    let index = self.random.below(held);
                    self.world.release_operation(index);
                }
            }
            80..90 => self.move_cursor(),
            90..98 => self.look()?,
            _ => self.restart()?,
        }
        Ok(())
    }

    fn produce_new(&mut self) {
        if self.model.unanswered.len() >= 4 {
            return;
        }
        let sequence = self.model.next_sequence;
        let count = 1 + self.random.below(3) as u64;
        let texts = (sequence..sequence + count).map(|number| format!("event {number}"));
        self.model.next_sequence += count;
        self.model
            .unanswered
            .push((sequence, texts.collect(), None));
        self.send(self.model.unanswered.len() - 1);
    }

    /// Sends a batch; every third has external data.
    fn send(&mut self, index: usize) {
        let (sequence, texts, _) = self.model.unanswered[index].clone();
        let external = sequence % 3 == 0;
        let data = vec![sequence as u8; 5000];
        let events: Vec<EventSpec> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| EventSpec {
                metadata: text.clone().into(),
                data: if external && at == 0 {
                    data.clone()
                } else {
                    Vec::new()
                },
                external: external && at == 0,
            })
            .collect();
        let batch = make_batch(origin(self.topic, PRODUCER, 0, sequence), &events, 4096);
        let region = Region {
            key: format!("r{sequence}").into(),
            base: 0,
            bytes: data.len() as u64,
            memory_kind: 0,
            rails: 0,
        };
        let end = self.world.links.get_mut(&self.link).unwrap();
        end.exposed.insert(region.key.clone(), data.into());
        let produce = Produce {
            partition: PartitionIndex(0),
            durability: Durability::Memory,
            regions: if external { vec![region] } else { Vec::new() },
        };
        let id = self
            .world
            .request(self.link, Method::Produce, self.topic, &produce, &batch);
        self.model.unanswered[index].2 = Some(id);
    }

    fn move_cursor(&mut self) {
        let Some((last, _)) = self.model.safe.last_key_value() else {
            return;
        };
        // Late acknowledgements of smaller positions come too.
        let offset = self.random.below(*last as usize + 2) as u64;
        let id = self.world.move_cursor(
            self.link,
            self.topic,
            CursorMove::Acknowledge,
            at(1, offset),
        );
        self.model.cursor_asked = self.model.cursor_asked.max(offset);
        self.model.moves.push((id, offset));
    }

    /// Takes the answers that have come.
    fn look(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        for (sequence, texts, id) in std::mem::take(&mut self.model.unanswered) {
            let answered = id.filter(|id| self.world.answer(self.link, *id).is_some());
            let Some(id) = answered else {
                left.push((sequence, texts, id));
                continue;
            };
            let produced: Produced = self
                .world
                .answered(self.link, id)
                .map_err(|error| format!("batch {sequence}: {error}"))?;
            for (index, text) in texts.into_iter().enumerate() {
                self.is_safe(produced.base_offset.0 + index as u64, text)?;
            }
        }
        self.model.unanswered = left;
        for (id, offset) in std::mem::take(&mut self.model.moves) {
            match self.world.answer(self.link, id) {
                None => self.model.moves.push((id, offset)),
                Some(Ok(_)) => {
                    self.model.cursor_answered = self.model.cursor_answered.max(offset);
                }
                Some(Err(error)) => return Err(format!("cursor to {offset}: {error}")),
            }
        }
        for delivered in self.world.delivered(self.link, self.subscription) {
            match delivered {
                Delivered::Event(position, text) => self.is_safe(position.offset.0, text)?,
                Delivered::Gap(gap) => return Err(format!("a gap: {gap:?}")),
            }
        }
        Ok(())
    }

    /// Whatever was acknowledged or seen stays what it was.
    fn is_safe(&mut self, offset: u64, text: String) -> Result<(), String> {
        match self.model.safe.insert(offset, text.clone()) {
            Some(before) if before != text => {
                Err(format!("offset {offset} was {before:?} and is {text:?}"))
            }
            _ => Ok(()),
        }
    }

    fn restart(&mut self) -> Result<(), String> {
        self.look()?;
        match self.random.below(3) {
            0 => self.ground.kill(),
            1 => self.ground.power_loss(Survival::Nothing),
            _ => {
                let seed = self.random.below(1 << 30) as u64;
                self.ground.power_loss(Survival::Some(seed));
            }
        }
        self.world = self.ground.start();
        self.link = self.world.connect();
        let cursor = self.world.cursor(self.link, self.topic);
        let cursor = cursor.map_or(0, |cursor| cursor.offset.0);
        if !(self.model.cursor_answered..=self.model.cursor_asked).contains(&cursor) {
            return Err(format!(
                "the cursor is at {cursor}, {} was acknowledged",
                self.model.cursor_answered
            ));
        }
        self.model.cursor_answered = cursor;
        self.model.moves.clear();
        self.subscription = self
            .world
            .subscribe(self.link, self.topic, "c", Start::Beginning);
        let seen = self.world.texts(self.link, self.subscription);
        let lost = self
            .model
            .safe
            .keys()
            .next_back()
            .is_some_and(|last| *last >= seen.len() as u64);
        if lost {
            return Err(format!(
                "{} events are left of {}",
                seen.len(),
                self.model.safe.len()
            ));
        }
        // Events are stored in the order of their sequence, none twice, none left out.
        for (offset, text) in seen.into_iter().enumerate() {
            if text != format!("event {offset}") {
                return Err(format!("offset {offset} holds {text:?}"));
            }
            self.is_safe(offset as u64, text)?;
        }
        self.world.hold_disk = true;
        for index in 0..self.model.unanswered.len() {
            self.send(index);
        }
        Ok(())
    }

    /// Faults are over: everything comes to its end.
    fn heal(&mut self) -> Result<(), String> {
        self.world.release_disk();
        self.look()?;
        if let Some((sequence, ..)) = self.model.unanswered.first() {
            return Err(format!("batch {sequence} is never answered"));
        }
        let seen = self.world.texts(self.link, self.subscription).len() as u64;
        if seen != self.model.next_sequence {
            return Err(format!("{seen} events were delivered"));
        }
        self.restart()?;
        let stored = self.model.safe.len() as u64;
        match stored == self.model.next_sequence {
            true => Ok(()),
            false => Err(format!("{stored} of {} events", self.model.next_sequence)),
        }
    }
}

fn run(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let mut run = Run::new(seed, fault);
    for _ in 0..STEPS {
        run.step()?;
    }
    run.heal()
}

#[test]
fn nothing_that_was_promised_is_lost() {
    let seeds = match std::env::var("THALWEG_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("THALWEG_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    for seed in seeds {
        if let Err(what) = run(seed, None) {
            panic!(
                "{what}; again with THALWEG_SEED={seed} cargo test -p thalweg-broker nothing_that_was"
            );
        }
    }
}

#[test]
fn planted_faults_are_found_by_chance_too() {
    for fault in [
        Fault::AckEarly,
        Fault::VisibleEarly,
        Fault::CursorBack,
        Fault::CursorEarly,
        Fault::NoDeduplication,
    ] {
        let found = (0..SEEDS).any(|seed| run(seed, Some(fault)).is_err());
        assert!(found, "{fault:?} is not found");
    }
}
