//! What is made for a run, and removed.

use super::{CONNECT, SILENCE, failed};
use crate::failure::{Code, Failure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Why;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often it is looked whether something is so.
const LOOK: Duration = Duration::from_millis(100);
/// As many copies as the brokers say.
const AS_CONFIGURED: TopicReplication<'_> = TopicReplication::Fixed(-1);

pub struct Admin {
    client: AdminClient<DefaultClientContext>,
    name: String,
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for what the client's own thread brings. That has a deadline for each request.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(SILENCE))
        .operation_timeout(Some(SILENCE))
}

impl Admin {
    /// Connects, and sees that somebody is there.
    pub fn connect(config: &ClientConfig, name: String) -> Result<Self, Failure> {
        let client: Result<AdminClient<_>, KafkaError> = config.create();
        let client = client.map_err(|error| failed(&name, "a client", &error))?;
        match client.inner().fetch_metadata(None, CONNECT) {
            Ok(_) => Ok(Self { client, name }),
            Err(error) => {
                let what = format!("no server within {} s: {error}", CONNECT.as_secs());
                Err(Failure::new(Code::NoServer, name, what))
            }
        }
    }

    /// Makes topics, and waits until each of their partitions has a leader.
    pub fn create(&self, topics: &[(String, u64)], batch_bytes: u64) -> Result<(), Failure> {
        let batch_bytes = batch_bytes.to_string();
        let new = topics.iter().map(|(topic, partitions)| {
            NewTopic::new(topic, *partitions as i32, AS_CONFIGURED)
                .set("max.message.bytes", &batch_bytes)
                .set("retention.ms", "-1")
                .set("retention.bytes", "-1")
        });
        let new: Vec<NewTopic<'_>> = new.collect();
        let made = wait(self.client.create_topics(&new, &options()));
        for made in made.map_err(|error| failed(&self.name, "making topics", &error))? {
            made.map_err(|(topic, why)| self.refused(&format!("to make the topic {topic}"), why))?;
        }
        let began = Instant::now();
        while !self.has_leaders(topics)? {
            if began.elapsed() >= SILENCE {
                let seconds = SILENCE.as_secs();
                let what = format!("partitions of the run have no leader after {seconds} s");
                return Err(Failure::new(Code::Timeout, &self.name, what));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn has_leaders(&self, topics: &[(String, u64)]) -> Result<bool, Failure> {
        for (topic, partitions) in topics {
            let metadata = self.client.inner().fetch_metadata(Some(topic), SILENCE);
            let metadata = metadata.map_err(|error| failed(&self.name, topic, &error))?;
            let found = metadata.topics().first();
            let led = found.map_or(0, |found| {
                let partitions = found.partitions().iter();
                partitions.filter(|one| one.leader() >= 0).count()
            });
            if led as u64 != *partitions {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes topics, those that are there.
    pub fn delete_topics(&self, topics: &[(String, u64)]) -> Result<(), Failure> {
        let names: Vec<&str> = topics.iter().map(|(topic, _)| &**topic).collect();
        let deleted = wait(self.client.delete_topics(&names, &options()));
        for deleted in deleted.map_err(|error| failed(&self.name, "removing topics", &error))? {
            match deleted {
                Ok(_) | Err((_, Why::UnknownTopicOrPartition | Why::UnknownTopic)) => {}
                Err((topic, why)) => {
                    return Err(self.refused(&format!("to remove the topic {topic}"), why));
                }
            }
        }
        Ok(())
    }

    /// Removes groups, those that are there. A member that was killed is one until its session ends.
    pub fn delete_groups(&self, groups: &[String]) -> Result<(), Failure> {
        let mut left: Vec<String> = groups.to_vec();
        let began = Instant::now();
        loop {
            let names: Vec<&str> = left.iter().map(String::as_str).collect();
            let deleted = wait(self.client.delete_groups(&names, &options()));
            let deleted = deleted.map_err(|error| failed(&self.name, "removing groups", &error))?;
            let mut busy = Vec::new();
            for deleted in deleted {
                match deleted {
                    Ok(_) | Err((_, Why::GroupIdNotFound)) => {}
                    Err((group, Why::NonEmptyGroup)) if began.elapsed() < SILENCE => {
                        busy.push(group);
                    }
                    Err((group, why)) => {
                        return Err(self.refused(&format!("to remove the group {group}"), why));
                    }
                }
            }
            if busy.is_empty() {
                return Ok(());
            }
            left = busy;
            std::thread::sleep(LOOK);
        }
    }

    fn refused(&self, what: &str, why: Why) -> Failure {
        let what = format!("the broker refuses {what}: {why}");
        Failure::new(Code::Failure, &self.name, what)
    }
}
