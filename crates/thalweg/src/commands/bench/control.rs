//! How the benchmark and its client processes talk: over a topic of the very
//! server that is measured, before and after what is measured. So it needs no
//! other connection, wherever the processes run and whoever launched them.

use super::job::{Done, Job};
use super::work::WAIT;
use crate::failure::{About, Code, Failure};
use client::{
    Consumer, ConsumerOptions, Definition, Driver, Event, PartitionStorage, Producer,
    ProducerOptions,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use wire::Durability;

/// What a client is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Get ready for this.
    Prepare(Box<Job>),
    /// Do it.
    Begin,
    /// The benchmark is over.
    End,
}

/// What a client tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is there, or it has prepared.
    Ready,
    /// It did its work.
    Done(Box<Done>),
    /// It could not.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct ToClients {
    /// Which clients, from the first to behind the last.
    ranks: Range<usize>,
    order: Order,
}

#[derive(Serialize, Deserialize)]
struct FromClient {
    rank: usize,
    answer: Answer,
}

const ORDERS: u32 = 0;
const ANSWERS: u32 = 1;
/// How often the benchmark looks whether its clients still live.
const LOOK: Duration = Duration::from_millis(200);

fn topic_name(run: &str) -> String {
    format!("bench-control-{run}")
}

/// One side's end of the topic.
struct End {
    producer: Producer,
    consumer: Consumer,
    to: u32,
}

impl End {
    fn open(driver: &Driver, run: &str, name: &str, to: u32) -> Result<Self, Failure> {
        let subject = topic_name(run);
        let topic = driver.open_topic(&subject).about(&subject)?;
        let options = ConsumerOptions {
            partitions: Some(vec![match to {
                ORDERS => ANSWERS,
                _ => ORDERS,
            }]),
            ..ConsumerOptions::default()
        };
        Ok(Self {
            producer: topic.producer(ProducerOptions::default()).about(&subject)?,
            consumer: topic.consumer(name, options).about(&subject)?,
            to,
        })
    }

    fn send(&self, message: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).expect("messages become JSON");
        let event = Event {
            metadata: &text,
            partition: Some(self.to),
            ..Event::default()
        };
        self.producer.push(event).about("the benchmark's topic")?;
        self.producer.flush(WAIT).about("the benchmark's topic")
    }

    fn hear<T: DeserializeOwned>(&self, wait: Duration) -> Result<Option<T>, Failure> {
        let event = self
            .consumer
            .pull(Some(wait))
            .about("the benchmark's topic")?;
        event
            .map(|event| serde_json::from_slice(event.metadata()))
            .transpose()
            .map_err(|error| Failure::new(Code::Failure, "the benchmark's topic", error))
    }
}

/// The benchmark's end.
pub struct Chair {
    end: End,
    run: String,
    clients: usize,
}

impl Chair {
    /// Makes the topic; one that a benchmark of the same name left is removed.
    pub fn open(driver: &Driver, run: &str, clients: usize) -> Result<Self, Failure> {
        let subject = topic_name(run);
        if driver.topic_exists(&subject).about(&subject)? {
            driver.delete_topic(&subject).about(&subject)?;
        }
        let definition = Definition::builder().durability(Durability::Memory);
        let definition = definition
            .build()
            .map_err(|error| Failure::usage(&subject, error))?;
        let storage = PartitionStorage {
            kind: "memory".to_owned(),
            config: String::new(),
        };
        driver
            .create_topic(&subject, &definition, &[storage.clone(), storage])
            .about(&subject)?;
        Ok(Self {
            end: End::open(driver, run, "chair", ORDERS)?,
            run: run.to_owned(),
            clients,
        })
    }

    /// Tells some clients, at once: each hears everything that is told, so that one
    /// order for each of them would cost the square of their number, and the
    /// last to begin would begin late.
    pub fn send(&self, ranks: Range<usize>, order: Order) -> Result<(), Failure> {
        self.end.send(&ToClients { ranks, order })
    }

    /// Hears the first `count` clients, in the order of their ranks. `alive`
    /// is asked now and then, and fails when one of them is gone.
    pub fn hear(
        &self,
        count: usize,
        mut alive: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Vec<Answer>, Failure> {
        let mut answers = BTreeMap::new();
        let mut heard = Instant::now();
        while answers.len() < count {
            match self.end.hear::<FromClient>(LOOK)? {
                Some(from) => {
                    if let Answer::Failed(what) = &from.answer {
                        let subject = format!("client {}", from.rank);
                        return Err(Failure::new(Code::Failure, subject, what));
                    }
                    answers.insert(from.rank, from.answer);
                    heard = Instant::now();
                }
                None => alive()?,
            }
            if heard.elapsed() > 5 * WAIT {
                let silent: Vec<usize> = (0..count)
                    .filter(|rank| !answers.contains_key(rank))
                    .collect();
                let what = format!("clients {silent:?} say nothing");
                return Err(Failure::new(Code::Timeout, "the benchmark's topic", what));
            }
        }
        Ok(answers.into_values().collect())
    }

    /// Ends all clients.
    pub fn end(self, driver: &Driver) -> Result<(), Failure> {
        self.send(0..self.clients, Order::End)?;
        // Whoever is told to end still reads that.
        self.hear(self.clients, || Ok(()))?;
        drop(self.end);
        let subject = topic_name(&self.run);
        driver.delete_topic(&subject).about(&subject)
    }
}

/// A client's end.
pub struct Seat {
    end: End,
    rank: usize,
}

impl Seat {
    /// Takes the place of client `rank`. Waits for the topic, which the
    /// benchmark may not have made yet.
    pub fn take(driver: &Driver, run: &str, rank: usize) -> Result<Self, Failure> {
        let began = Instant::now();
        let subject = topic_name(run);
        while !driver.topic_exists(&subject).about(&subject)? {
            if began.elapsed() > WAIT {
                let what = format!("no benchmark made it for {WAIT:?}");
                return Err(Failure::new(Code::Timeout, subject, what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let seat = Self {
            end: End::open(driver, run, &format!("client-{rank}"), ANSWERS)?,
            rank,
        };
        seat.send(Answer::Ready)?;
        Ok(seat)
    }

    /// Tells the benchmark.
    pub fn send(&self, answer: Answer) -> Result<(), Failure> {
        self.end.send(&FromClient {
            rank: self.rank,
            answer,
        })
    }

    /// The next order for this client.
    pub fn hear(&self) -> Result<Order, Failure> {
        let began = Instant::now();
        loop {
            match self.end.hear::<ToClients>(LOOK)? {
                Some(to) if to.ranks.contains(&self.rank) => return Ok(to.order),
                Some(_) => {}
                // Longer than any repetition of others takes.
                None if began.elapsed() > 10 * WAIT => {
                    let what = "the benchmark says nothing any more";
                    return Err(Failure::new(Code::Timeout, "the benchmark's topic", what));
                }
                None => {}
            }
        }
    }
}
