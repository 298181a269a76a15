//! Why a consumer gets nothing, in one sentence, and what to do about it.

use crate::driver::Driver;
use crate::error::ClientError;
use crate::lag::Lag;
use crate::last_events::last_position;
use crate::topic_handle::TopicHandle;
use serde_json::Value;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::message::{
    ConsumerDescription, ConsumerPartition, PartitionDescription, TopicDescription,
};
use wire::record::{ConsumerKind, Gap};
use wire::{ErrorCode, PartitionIndex};

/// So many other topics are named where one is not known.
const NAMES_MAX: usize = 5;

/// What keeps events from a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// One sentence.
    pub sentence: String,
    /// The command that looks further, or changes it.
    pub next: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nnext: {}", self.sentence, self.next)
    }
}

impl Driver {
    /// Why the consumer, group or queue of this name gets no event of a topic now; without
    /// a name, why nobody does. Asks the server for the topic, the consumer and its
    /// status, one behind the other.
    ///
    /// # Errors
    /// As any call; a topic or consumer that is not known is an explanation.
    pub fn explain(&self, topic: &str, consumer: Option<&str>) -> Result<Explanation, ClientError> {
        self.explain_to(topic, consumer, None)
    }

    /// The same to a consumer that is open here: its data selector was asked so often, and has
    /// chosen nothing each time.
    pub(crate) fn explain_to(
        &self,
        topic: &str,
        consumer: Option<&str>,
        unselected: Option<u64>,
    ) -> Result<Explanation, ClientError> {
        let status = self.status()?;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let handle = match self.open_topic(topic) {
            Err(error) if error.code() == Some(ErrorCode::UnknownTopic) => {
                return Ok(unknown_topic(topic, &self.options().namespace, &status));
            }
            other => other?,
        };
        let mut facts = Facts {
            topic: self.describe_topic(topic)?,
            consumer: None,
            gaps: self.gaps(topic)?,
            idle: None,
            status: status_of(&status, &handle.id().to_string()),
            name: consumer.unwrap_or_default().to_owned(),
            unselected,
        };
        facts.idle = last_taken(&handle, &facts.topic.partitions).and_then(|taken| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
            Some(now.saturating_sub(Duration::from_nanos(taken)))
        });
        if let Some(name) = consumer {
            facts.consumer = match handle.describe_consumers(name) {
                Err(error) if error.code() == Some(ErrorCode::UnknownConsumer) => None,
                other => other?.into_iter().find(|found| found.consumer == name),
            };
        }
        Ok(facts.explain())
    }
}

/// When the server took the last event of a topic, nanoseconds since 1970: of the last events of
/// all partitions, the newest. None if there is no event, or none can be read.
fn last_taken(topic: &TopicHandle, partitions: &[PartitionDescription]) -> Option<u64> {
    let last = partitions
        .iter()
        .filter_map(|one| Some((one.partition, last_position(one)?)));
    let last: Vec<_> = last.collect();
    let events = topic.last_events(&last).into_iter().flatten().flatten();
    events.map(|event| event.append_time()).max()
}

/// A topic, as the status has it.
fn status_of(status: &Value, id: &str) -> Value {
    let topics = status["topics"].as_array().into_iter().flatten();
    let mut found = topics.filter(|topic| topic["topic"] == id);
    found.next().cloned().unwrap_or_default()
}

fn unknown_topic(name: &str, namespace: &str, status: &Value) -> Explanation {
    let topics = || status["topics"].as_array().into_iter().flatten();
    let elsewhere = topics().find(|topic| topic["name"] == name);
    let quoted = |namespace: &str| match namespace {
        "" => "the default namespace".to_owned(),
        name => format!("namespace {name:?}"),
    };
    if let Some(there) = elsewhere.and_then(|topic| topic["namespace"].as_str()) {
        return Explanation {
            sentence: format!(
                "There is no topic {name} in {}, but there is one in {}.",
                quoted(namespace),
                quoted(there)
            ),
            next: format!("thalweg why --namespace '{there}' {name}"),
        };
    }
    let others: Vec<&str> = topics()
        .filter(|topic| topic["namespace"] == namespace)
        .filter_map(|topic| topic["name"].as_str())
        .take(NAMES_MAX)
        .collect();
    let others = match others.is_empty() {
        true => "this server has none".to_owned(),
        false => format!("there are {}", others.join(", ")),
    };
    Explanation {
        sentence: format!(
            "There is no topic {name} in {}: {others}.",
            quoted(namespace)
        ),
        next: "thalweg topic list".to_owned(),
    }
}

/// What the server says of a topic and of one who reads it.
struct Facts {
    topic: TopicDescription,
    /// `None` if there is none of this name, or none is asked about.
    consumer: Option<ConsumerDescription>,
    gaps: Vec<(PartitionIndex, Gap)>,
    /// How long ago the last event came.
    idle: Option<Duration>,
    /// The topic in the server's status.
    status: Value,
    /// Empty if none is asked about.
    name: String,
    /// Events of which the data selector of the consumer, which is open here, chose nothing, if
    /// these are all that it was asked about.
    unselected: Option<u64>,
}

impl Facts {
    fn count(&self) -> u64 {
        let partitions = self.topic.partitions.iter();
        partitions
            .map(|one| one.watermarks.committed.0.saturating_sub(one.first.0))
            .sum()
    }

    fn explain(&self) -> Explanation {
        if let Some(explanation) = self.broken() {
            return explanation;
        }
        let topic = &self.topic.name;
        if self.name.is_empty() {
            return self.held_up().unwrap_or_else(|| self.of_topic());
        }
        match &self.consumer {
            None => self.unselected().unwrap_or_else(|| Explanation {
                sentence: format!(
                    "Nobody reads {topic} under the name {}, and it has no cursor: a new name begins \
                     with the first of the {} there.",
                    self.name,
                    events(self.count())
                ),
                // Not without --no-ack: the question must not move the cursor of the consumer that it is about.
                next: format!("thalweg consume {topic} --name {} --no-ack", self.name),
            }),
            Some(consumer) => match consumer.kind {
                ConsumerKind::Queue => self.of_queue(consumer),
                _ => self.of_cursors(consumer),
            },
        }
    }

    /// That the data selector of the consumer, which is open here, chose nothing. Where events
    /// are lost or go to others, that is the graver cause.
    fn unselected(&self) -> Option<Explanation> {
        let topic = &self.topic.name;
        let count = self.unselected?;
        Some(Explanation {
            sentence: format!(
                "{} of {topic} came to the consumer {}, and its data selector chose nothing of their data, \
                 so that they came without.",
                events(count),
                self.name
            ),
            next: format!("thalweg tail {topic} -n 1 --data-base64"),
        })
    }

    /// A partition that can take or give nothing.
    fn broken(&self) -> Option<Explanation> {
        let topic = &self.topic.name;
        let failed = |one: &&PartitionDescription| !one.failure.is_empty();
        if let Some(one) = self.topic.partitions.iter().find(failed) {
            return Some(Explanation {
                sentence: format!(
                    "Partition {} of {topic} takes and gives nothing until the server is started again: {}.",
                    one.partition, one.failure
                ),
                next: "thalweg status".to_owned(),
            });
        }
        let partitions = self.status["partitions"].as_array().into_iter().flatten();
        let full = partitions.filter(|one| one["full"].is_object());
        let mut full = full.map(|one| (&one["partition"], one["full"]["reason"].as_str()));
        if let Some((partition, reason)) = full.next() {
            return Some(Explanation {
                sentence: format!(
                    "Storage of partition {partition} of {topic} is full, so that producers are refused \
                     and nothing new comes: {}.",
                    reason.unwrap_or("no reason is known")
                ),
                next: format!("thalweg topic alter {topic} --retention SIZE"),
            });
        }
        if self.topic.partitions.is_empty() {
            return Some(Explanation {
                sentence: format!("{topic} has no partition, so it can hold no event."),
                next: format!("thalweg topic add-partitions {topic}"),
            });
        }
        None
    }

    /// Producers of a topic that keeps what consumers have not acknowledged, and is at its bound.
    fn held_up(&self) -> Option<Explanation> {
        let topic = &self.topic.name;
        let partitions = self.status["partitions"].as_array().into_iter().flatten();
        let count = |what: &str| -> u64 {
            let partitions = partitions.clone();
            partitions
                .filter_map(|one| one["overflow"][what].as_u64())
                .sum()
        };
        let (kept, refused) = (count("waiting_events"), count("refused_events"));
        (kept > 0 && refused > 0).then(|| Explanation {
            sentence: format!(
                "Producers of {topic} were refused {}, for it keeps the {} that a consumer in \
                 keep_until_acknowledged has not acknowledged.",
                events(refused),
                events(kept)
            ),
            next: format!("thalweg lag {topic}"),
        })
    }

    fn of_topic(&self) -> Explanation {
        let topic = &self.topic.name;
        let partitions = &self.topic.partitions;
        let ever: u64 = partitions.iter().map(|one| one.watermarks.end.0).sum();
        match (self.count(), ever) {
            (0, 0) => Explanation {
                sentence: format!("{topic} has no event: nothing was produced since it was made."),
                next: format!("thalweg produce {topic}"),
            },
            (0, _) => Explanation {
                sentence: format!(
                    "{topic} has no event any more: the {} that it had are gone{}.",
                    events(ever),
                    self.lost(|_, _| true)
                        .map_or(String::new(), |gap| format!(" ({})", gap.reason.name()))
                ),
                next: format!("thalweg gaps {topic}"),
            },
            (count, _) => Explanation {
                sentence: format!(
                    "{topic} has {}{}; who reads them, and how far, is the next table.",
                    events(count),
                    self.last_came(", the last of which came ")
                ),
                next: format!("thalweg lag {topic}"),
            },
        }
    }

    fn of_cursors(&self, consumer: &ConsumerDescription) -> Explanation {
        let topic = &self.topic.name;
        let (kind, name) = (kind_of(consumer), &consumer.consumer);
        let recovering = self.recovering(consumer);
        let behind = Lag::of(consumer, &self.topic.partitions).events;
        if behind == 0 || consumer.partitions.is_empty() {
            if let Some(unselected) = self.unselected() {
                return unselected;
            }
            if consumer.partitions.is_empty() {
                return Explanation {
                    sentence: format!(
                        "The {kind} {name} reads {topic} and has not acknowledged an event yet{}: its program has not \
                         called acknowledge, or it began with start \"latest\" and gets only what comes later.",
                        self.last_came("; the last one came ")
                    ),
                    next: format!("thalweg cursor seek {topic} --name {name} --to beginning"),
                };
            }
            return Explanation {
                sentence: format!(
                    "The {kind} {name} has read and acknowledged all of {topic}{}.",
                    self.last_came(", whose last event came ")
                ),
                next: format!("thalweg cursor seek {topic} --name {name} --to -1h"),
            };
        }
        if recovering > 0 {
            return waiting_for_members(kind, name, recovering, topic);
        }
        let present: Vec<_> = consumer.members.iter().filter(|one| one.present).collect();
        if present.is_empty() {
            return Explanation {
                sentence: format!(
                    "The {kind} {name} is {} behind in {topic}, and no program reads under that name now.",
                    events(behind)
                ),
                next: format!("thalweg consume {topic} --name {name} --no-ack"),
            };
        }
        let idle: Vec<_> = present
            .iter()
            .filter(|member| member.partitions.is_empty())
            .map(|member| member.client_name.as_str())
            .collect();
        if consumer.kind == ConsumerKind::Group && !idle.is_empty() {
            return Explanation {
                sentence: format!(
                    "The group {name} has {} members for {} partitions of {topic}: {} has none of them, \
                     and gets nothing.",
                    present.len(),
                    self.topic.partitions.len(),
                    idle.join(", ")
                ),
                next: format!("thalweg topic add-partitions {topic}"),
            };
        }
        if let Some(gap) = self.lost(|partition, gap| {
            let cursor = consumer
                .partitions
                .iter()
                .find(|one| one.partition == partition);
            cursor.is_some_and(|cursor| {
                cursor.position.incarnation == gap.incarnation && cursor.position.offset < gap.end
            })
        }) {
            return Explanation {
                sentence: format!(
                    "Events from offset {} to {} of {topic} are gone ({}) before the {kind} {name} read \
                     them; it goes on behind them.",
                    gap.first,
                    gap.end,
                    gap.reason.name()
                ),
                next: format!("thalweg gaps {topic}"),
            };
        }
        if let Some(unselected) = self.unselected() {
            return unselected;
        }
        let who: Vec<_> = present.iter().map(|one| one.client_name.as_str()).collect();
        Explanation {
            sentence: format!(
                "The {kind} {name} is {} behind in {topic}: {} reads them, and has not acknowledged them yet.",
                events(behind),
                who.join(", ")
            ),
            next: format!("thalweg lag {topic}"),
        }
    }

    fn of_queue(&self, queue: &ConsumerDescription) -> Explanation {
        let (topic, name) = (&self.topic.name, &queue.consumer);
        let describe = format!("thalweg queue describe {topic} --name {name}");
        let sum =
            |of: fn(&ConsumerPartition) -> u64| -> u64 { queue.partitions.iter().map(of).sum() };
        let left = sum(ConsumerPartition::lag);
        let (leased, delayed, dead) = (sum(|p| p.leased), sum(|p| p.delayed), sum(|p| p.dead));
        let recovering = self.recovering(queue);
        if left == 0 {
            return Explanation {
                sentence: format!(
                    "Every event of {topic} is settled in the queue {name}{}.",
                    self.last_came("; the last one came ")
                ),
                next: describe,
            };
        }
        if recovering > 0 {
            return waiting_for_members("queue", name, recovering, topic);
        }
        let ready = left.saturating_sub(leased + delayed + dead);
        if ready > 0 {
            let present = queue.members.iter().filter(|member| member.present).count();
            return Explanation {
                sentence: format!(
                    "{} of the queue {name} of {topic} {} ready, and it has {}: {}.",
                    events(ready),
                    if ready == 1 { "is" } else { "are" },
                    members(present),
                    match present {
                        0 => "no worker asks for them",
                        _ => "a worker gets them as soon as it has room for more",
                    }
                ),
                next: describe,
            };
        }
        if leased > 0 {
            let holders: Vec<_> = queue
                .members
                .iter()
                .filter(|member| member.leased_events > 0)
                .map(|member| {
                    let state = if member.present {
                        ""
                    } else {
                        ", which is away"
                    };
                    format!("{} has {}{state}", member.client_name, member.leased_events)
                })
                .collect();
            return Explanation {
                sentence: format!(
                    "Nothing of the queue {name} of {topic} is ready: the {} left are with its members, \
                     who prefetch up to 256 ({}).",
                    events(leased),
                    holders.join("; ")
                ),
                next: describe,
            };
        }
        Explanation {
            sentence: format!(
                "Nothing of the queue {name} of {topic} is ready: {} wait for their delay, {} for their way \
                 to the dead letters.",
                events(delayed),
                events(dead)
            ),
            next: describe,
        }
    }

    /// How long it gives out nothing because of members of before a restart, milliseconds.
    fn recovering(&self, consumer: &ConsumerDescription) -> u64 {
        let consumers = self.status["consumers"].as_array().into_iter().flatten();
        let mut found = consumers.filter(|one| one["name"] == consumer.consumer);
        let found = found.next().and_then(|one| one["recovering_ms"].as_u64());
        found.unwrap_or(0)
    }

    /// The last gap of a kind.
    fn lost(&self, of: impl Fn(PartitionIndex, &Gap) -> bool) -> Option<&Gap> {
        let gaps = self
            .gaps
            .iter()
            .filter(|(partition, gap)| of(*partition, gap));
        gaps.map(|(_, gap)| gap).max_by_key(|gap| gap.time)
    }

    /// How long ago the last event came, as a part of a sentence.
    fn last_came(&self, before: &str) -> String {
        let Some(idle) = self.idle else {
            return String::new();
        };
        let seconds = idle.as_secs();
        let ago = match seconds {
            0..=119 => format!("{seconds} s"),
            120..=7199 => format!("{} min", seconds / 60),
            7200..=172_799 => format!("{} h", seconds / 3600),
            _ => format!("{} days", seconds / 86_400),
        };
        format!("{before}{ago} ago")
    }
}

fn waiting_for_members(kind: &str, name: &str, recovering_ms: u64, topic: &str) -> Explanation {
    Explanation {
        sentence: format!(
            "The server was started again, and the {kind} {name} of {topic} gives out nothing for up to {:.0} s \
             more: members of before may still hold events.",
            (recovering_ms as f64 / 1000.0).ceil()
        ),
        next: format!("thalweg {kind} describe {topic} --name {name}"),
    }
}

fn kind_of(consumer: &ConsumerDescription) -> &'static str {
    match consumer.kind {
        ConsumerKind::Independent => "consumer",
        ConsumerKind::Group => "group",
        ConsumerKind::Queue => "queue",
    }
}

fn events(count: u64) -> String {
    match count {
        1 => "1 event".to_owned(),
        count => format!("{count} events"),
    }
}

fn members(count: usize) -> String {
    match count {
        0 => "no member".to_owned(),
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    }
}
