//! The newest event of a topic, looked at a few times a second, and only when somebody asks.
//!
//! Events are read where they lie: of a partition that has moved on, its last event, and of that
//! the bytes that a picture shows. What came in between is not read.

use super::array::Plan;
use super::picture::Sampled;
use client::{
    ClientError, ConsumedEvent, DataWanted, Driver, Target, TopicDescription, TopicHandle,
    last_position,
};
use jiff::Timestamp;
use memory::Buffer;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::record::Position;
use wire::{EventId, PartitionIndex, TopicId};

/// The server is asked no more often, however many pages there are.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often gaps are asked for.
const GAPS_EVERY: Duration = Duration::from_secs(2);
/// Rates are of so long.
const RATE_OVER: Duration = Duration::from_secs(5);
/// Of so many partitions that have moved on the last event is looked at; of others another time.
const PARTITIONS_MAX: usize = 64;
/// So much of an event's metadata is shown.
const METADATA_BYTES_MAX: usize = 4 << 10;
/// So much of a sentence about an event.
const SENTENCE_BYTES_MAX: usize = 512;

/// What is newest in a topic. Shared by all pages.
pub struct Newest {
    driver: Driver,
    topic: String,
    /// Held while the server is asked: who asks at the same time gets the same.
    looks: Mutex<Looks>,
}

/// What was seen at a look.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub topic: String,
    /// Why the server could not be asked; the rest is from before then.
    pub away: Option<String>,
    pub frame: Option<Arc<Frame>>,
    /// Events that became visible since the topic began.
    pub events: u64,
    /// Events a second.
    pub rate: Option<f64>,
    /// Why events are missing, and how many.
    pub gaps: Vec<(&'static str, u64)>,
}

/// An event, as it is shown.
#[derive(Debug)]
pub struct Frame {
    /// What no other event has, in letters that an address may have.
    pub name: String,
    pub id: EventId,
    /// As text, not more than a page can show.
    pub metadata: String,
    /// What the array is: its dtype and shape.
    pub array: Option<String>,
    /// Of all of its data.
    pub bytes: u64,
    /// From when the server took it until it was read here, if that was looked for all the time.
    pub lag: Option<Duration>,
    /// How long ago the server had taken it when it was read.
    age: Duration,
    read: Instant,
    /// The picture, or in a sentence why there is none.
    pub sampled: Result<Sampled, String>,
}

impl Frame {
    /// How long ago the server took it.
    pub fn age(&self) -> Duration {
        self.age + self.read.elapsed()
    }
}

/// A partition that has moved on, and where its last event lies.
type Moved = (PartitionIndex, Position);

#[derive(Default)]
struct Looks {
    /// None if it is to be opened again.
    topic: Option<TopicHandle>,
    /// Which topic `ends`, `counts` and `seen` are about.
    id: Option<TopicId>,
    /// When the server was asked.
    last: Option<Instant>,
    /// When it had answered then, or was found to be away.
    ended: Option<Instant>,
    /// When it was asked for gaps.
    gaps: Option<Instant>,
    /// Where the event lies that was the last of each partition.
    ends: BTreeMap<PartitionIndex, Position>,
    /// The partition that is looked at first, if it has moved on.
    turn: PartitionIndex,
    /// How many events there were at looks before.
    counts: VecDeque<(Instant, u64)>,
    seen: Seen,
}

impl Newest {
    pub fn new(driver: Driver, topic: String) -> Self {
        let looks = Looks {
            seen: Seen {
                topic: topic.clone(),
                ..Seen::default()
            },
            ..Looks::default()
        };
        Self {
            driver,
            topic,
            looks: Mutex::new(looks),
        }
    }

    /// What is newest now, or was a moment ago.
    pub fn look(&self) -> Seen {
        let asked = Instant::now();
        let mut looks = self.looks.lock().expect("no holder panics");
        if looks.is_fresh(asked) {
            return looks.seen.clone();
        }
        looks.last = Some(Instant::now());
        let looked = self.look_now(&mut looks);
        looks.ended = Some(Instant::now());
        looks.seen.away = looked.err().map(|error| {
            // A topic that was made anew is another one.
            if !error.is_retryable() {
                looks.topic = None;
            }
            error.to_string()
        });
        looks.seen.clone()
    }

    fn look_now(&self, looks: &mut Looks) -> Result<(), ClientError> {
        let (topic, described) = match &looks.topic {
            Some(topic) => (topic.clone(), topic.refresh()?),
            None => {
                let topic = self.driver.open_topic(&self.topic)?;
                let described = topic.refresh()?;
                looks.begin(topic.clone());
                (topic, described)
            }
        };
        looks.count(&described);
        if looks.gaps.is_none_or(|asked| asked.elapsed() >= GAPS_EVERY) {
            looks.seen.gaps = self.gaps()?;
            looks.gaps = Some(Instant::now());
        }
        if let Some(mut frame) = newest(&topic, &described, looks)? {
            // What lay there before anybody looked says nothing of how fast it came.
            frame.lag = looks.seen.rate.is_some().then_some(frame.age);
            looks.seen.frame = Some(Arc::new(frame));
        }
        Ok(())
    }

    /// How many events are missing, by reason.
    fn gaps(&self) -> Result<Vec<(&'static str, u64)>, ClientError> {
        let mut by_reason: Vec<(&'static str, u64)> = Vec::new();
        for (_, gap) in self.driver.gaps(&self.topic)? {
            let events = gap.end.0.saturating_sub(gap.first.0);
            let reason = gap.reason.name();
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += events,
                None => by_reason.push((reason, events)),
            }
        }
        Ok(by_reason)
    }
}

impl Looks {
    /// Whether what was seen is good for somebody who asked then. Who has waited for a look of
    /// another asks no more: where the server is away, each would wait for its answer in turn.
    fn is_fresh(&self, asked: Instant) -> bool {
        self.ended.is_some_and(|ended| ended >= asked)
            || self.last.is_some_and(|last| last.elapsed() < LOOK_EVERY)
    }

    /// Which of the partitions that have moved on are looked at now: those whose turn it is.
    fn in_turn(&mut self, mut moved: Vec<Moved>) -> Vec<Moved> {
        let turn = moved.partition_point(|(partition, _)| *partition < self.turn);
        moved.rotate_left(turn);
        moved.truncate(PARTITIONS_MAX);
        if let Some((last, _)) = moved.last() {
            self.turn = PartitionIndex(last.0 + 1);
        }
        moved
    }

    /// The topic was opened: again, or another one under its name.
    fn begin(&mut self, topic: TopicHandle) {
        if self.id.replace(topic.id()) != Some(topic.id()) {
            self.ends.clear();
            self.counts.clear();
            self.seen.frame = None;
        }
        self.topic = Some(topic);
    }

    fn count(&mut self, described: &TopicDescription) {
        let ends = described.partitions.iter();
        let events = ends.map(|partition| partition.watermarks.committed.0).sum();
        let now = Instant::now();
        while let Some((time, _)) = self.counts.front()
            && now.duration_since(*time) > RATE_OVER
        {
            self.counts.pop_front();
        }
        self.seen.events = events;
        self.seen.rate = self.counts.front().map(|(time, before)| {
            events.saturating_sub(*before) as f64 / now.duration_since(*time).as_secs_f64()
        });
        self.counts.push_back((now, events));
    }
}

/// The newest of the last events of those partitions that have moved on; `None` if none has.
fn newest(
    topic: &TopicHandle,
    described: &TopicDescription,
    looks: &mut Looks,
) -> Result<Option<Frame>, ClientError> {
    let moved = described.partitions.iter().filter_map(|partition| {
        let last = last_position(partition)?;
        let is_known = looks.ends.get(&partition.partition) == Some(&last);
        (!is_known).then_some((partition.partition, last))
    });
    let moved = moved.collect();
    let moved = looks.in_turn(moved);
    let events = topic.last_events(&moved);
    let mut found: Vec<ConsumedEvent> = Vec::new();
    let mut looked_at = Vec::new();
    let mut failed = Ok(None);
    for (moved, event) in moved.into_iter().zip(events) {
        match event {
            Ok(event) => {
                looked_at.push(moved);
                found.extend(event);
            }
            Err(error) => failed = Err(error),
        }
    }
    // A partition that can't be read is no reason not to see the others.
    let Some(event) = found.into_iter().max_by_key(ConsumedEvent::append_time) else {
        looks.ends.extend(looked_at);
        return failed;
    };
    let id = event.id();
    let metadata: Option<Value> = serde_json::from_slice(event.metadata()).ok();
    let metadata = metadata.unwrap_or_default();
    let plan = Plan::of(&metadata, event.data_bytes_total());
    let sampled = match plan {
        Ok(plan) => read(topic, id, &plan)?,
        Err(sentence) => Err(sentence),
    };
    // Nothing failed that is to be tried again.
    looks.ends.extend(looked_at);
    let now = Timestamp::now().as_nanosecond();
    let age = now.saturating_sub(i128::from(event.append_time()));
    let array = metadata.get("dtype").zip(metadata.get("shape"));
    Ok(Some(Frame {
        name: format!(
            "{}-{}-{}-{}",
            topic.id().0,
            id.partition,
            id.incarnation,
            id.offset
        ),
        id,
        metadata: text(event.metadata(), METADATA_BYTES_MAX),
        array: array.map(|(dtype, shape)| {
            let words = format!("{dtype} {shape}").replace('"', "");
            text(words.as_bytes(), SENTENCE_BYTES_MAX)
        }),
        bytes: event.data_bytes_total(),
        // The server's clock may be ahead of this one.
        age: Duration::from_nanos(u64::try_from(age).unwrap_or(0)),
        lag: None,
        read: Instant::now(),
        // What the metadata says may stand in it.
        sampled: sampled.map_err(|sentence| text(sentence.as_bytes(), SENTENCE_BYTES_MAX)),
    }))
}

/// Reads what a picture needs. An event that can't be read has no picture; an error is one of the
/// connection.
fn read(
    topic: &TopicHandle,
    id: EventId,
    plan: &Plan,
) -> Result<Result<Sampled, String>, ClientError> {
    let wanted = DataWanted {
        partition: id.partition,
        incarnation: id.incarnation,
        offset: id.offset,
        segments: plan.segments.clone(),
    };
    let into = Target::from(Buffer::zeroed(plan.bytes() as usize));
    let mut read = match topic.read_data(&[wanted], vec![into]) {
        Ok(read) => read,
        Err(error) if error.is_retryable() => return Err(error),
        Err(error) => return Ok(Err(format!("Its data can't be read: {error}."))),
    };
    let bytes = read.first_mut().expect("as many come back as were given");
    Ok(Ok(Sampled {
        shape: plan.shape,
        values: plan.sample(bytes.as_mut()),
        are_bytes: plan.values.are_bytes(),
    }))
}

/// As text, not more than so much of it.
fn text(bytes: &[u8], bytes_max: usize) -> String {
    let shown = &bytes[..bytes.len().min(bytes_max)];
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if shown.len() < bytes.len() {
        text.push_str(&format!("… ({} bytes)", bytes.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Incarnation, Offset};

    /// While the server was away for ten seconds, others have come: none asks it again for that.
    #[test]
    fn who_waited_for_a_look_gets_what_it_saw() {
        let now = Instant::now();
        let before = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let looks = Looks {
            last: Some(before(10)),
            ended: Some(now),
            ..Looks::default()
        };
        assert!(looks.is_fresh(before(5)));
        assert!(!looks.is_fresh(now + Duration::from_millis(1)));
        assert!(!Looks::default().is_fresh(now));
    }

    #[test]
    fn every_partition_has_its_turn_however_many_move_on() {
        let mut looks = Looks::default();
        let position = Position {
            incarnation: Incarnation(1),
            offset: Offset(0),
        };
        let moved = || (0..150).map(|index| (PartitionIndex(index), position));
        let mut seen = vec![0; 150];
        for _ in 0..3 {
            for (partition, _) in looks.in_turn(moved().collect()) {
                seen[partition.0 as usize] += 1;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
        // Of few, each is looked at each time, and once.
        let few = looks.in_turn(moved().take(3).collect());
        assert_eq!(few.len(), 3);
        assert_eq!(looks.in_turn(Vec::new()).len(), 0);
    }
}
