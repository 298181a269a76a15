//! What options and arguments may be: what cannot be right is refused by the
//! call that gives it, with the value, the bounds and the remedy, and never
//! reaches a timer, the server or the memory of others.

use crate::error::ClientError;
use crate::options::{ConsumerOptions, DriverOptions, GroupMember, ProducerOptions};
use crate::queue::QueueConsumerOptions;
use crate::requester::RequesterOptions;
use crate::topic_state::TopicState;
use crate::when::When;
use std::collections::BTreeSet;
use std::time::Duration;
use topic::SESSION_TIMEOUT_MS;
use wire::message::PartitionDescription;

/// Batches of one partition that may be sent and not acknowledged: each is kept
/// in memory, and more than this keep no connection busier.
const BATCHES_IN_FLIGHT_MAX: usize = 65_536;

/// The most threads of a producer.
const THREADS_MAX: usize = 256;

/// The longest that a client's thread may look on its processor before it sleeps.
const SPIN_MAX: Duration = Duration::from_secs(1);

/// The shortest time that a program may stay away from its consumer: it is
/// looked for four times in it.
const PROCESSING_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// The longest key that a consumer may read the events of: it travels in a request.
const KEY_BYTES_MAX: usize = 64 << 10;

fn refuse(reason: String) -> Result<(), ClientError> {
    Err(ClientError::Invalid(reason))
}

/// A time that a wait may take: not nothing, for then the wait is over before it
/// has begun. [`Duration::MAX`] is for ever.
fn some_time(name: &str, time: Duration, default: &str) -> Result<(), ClientError> {
    match time.is_zero() {
        true => refuse(format!(
            "{name} is 0: it would be over before anything is done; give a time above 0 ({default} \
             is the default), or one without end"
        )),
        false => Ok(()),
    }
}

fn some_bytes(name: &str, bytes: u64, default: &str) -> Result<(), ClientError> {
    match bytes {
        0 => refuse(format!(
            "{name} is 0: nothing could be held; give a number of bytes from 1 ({default} is the \
             default)"
        )),
        _ => Ok(()),
    }
}

fn session_timeout(time: Duration) -> Result<(), ClientError> {
    let millis = time.as_millis();
    let (least, most) = SESSION_TIMEOUT_MS.into_inner();
    if (u128::from(least)..=u128::from(most)).contains(&millis) {
        return Ok(());
    }
    refuse(format!(
        "session_timeout is {:.3} s, not between {} and {} s (10 s is the default)",
        time.as_secs_f64(),
        f64::from(least) / 1e3,
        most / 1000
    ))
}

fn processing_timeout(time: Option<Duration>) -> Result<(), ClientError> {
    match time {
        Some(time) if time < PROCESSING_TIMEOUT_MIN => refuse(format!(
            "processing_timeout is {:.3} s, and {} s at least; without one the program may stay \
             away for ever",
            time.as_secs_f64(),
            PROCESSING_TIMEOUT_MIN.as_secs_f64()
        )),
        _ => Ok(()),
    }
}

fn instance(name: Option<&String>) -> Result<(), ClientError> {
    match name {
        Some(name) => topic::check_instance_name(name).map_err(ClientError::invalid),
        None => Ok(()),
    }
}

/// How many partitions are asked for at once: before anything is made for them.
pub(crate) fn partition_count(count: usize) -> Result<(), ClientError> {
    topic::check_partition_count(count).map_err(ClientError::invalid)
}

impl DriverOptions {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        topic::check_namespace(&self.namespace).map_err(ClientError::invalid)?;
        topic::check_client_name(&self.client_name).map_err(ClientError::invalid)?;
        some_time("connect_timeout", self.connect_within(), "10 s")?;
        some_time("request_timeout", self.request_timeout, "120 s")?;
        some_bytes("memory_bytes_max", self.memory_bytes_max, "512 MiB")?;
        if self.spin > SPIN_MAX {
            return refuse(format!(
                "spin is {:.3} s, and {} s at most: that long a processor would do nothing else \
                 (0 is the default)",
                self.spin.as_secs_f64(),
                SPIN_MAX.as_secs()
            ));
        }
        Ok(())
    }
}

impl ProducerOptions {
    pub(crate) fn check(&self, topic: &TopicState) -> Result<(), ClientError> {
        if let Some(name) = &self.name {
            topic::check_producer_name(name).map_err(ClientError::invalid)?;
        }
        if self.batch.count_max == Some(0) || self.batch.bytes_max == 0 {
            return refuse("a batch of 0 events or bytes can never be full".to_owned());
        }
        if self.threads > THREADS_MAX {
            return refuse(format!(
                "{} threads; a producer has {THREADS_MAX} at most",
                self.threads
            ));
        }
        if !(1..=BATCHES_IN_FLIGHT_MAX).contains(&self.batches_in_flight_max) {
            return refuse(format!(
                "batches_in_flight_max is {}, not between 1 and {BATCHES_IN_FLIGHT_MAX} (4 is the \
                 default)",
                self.batches_in_flight_max
            ));
        }
        some_bytes("budget_bytes", self.budget_bytes, "64 MiB")?;
        some_time("ack_timeout", self.ack_timeout, "120 s")?;
        self.check_durability(topic)
    }

    fn check_durability(&self, topic: &TopicState) -> Result<(), ClientError> {
        let Some(asked) = self.durability else {
            return Ok(());
        };
        let weaker = |partition: &&PartitionDescription| asked < partition.durability;
        match topic.partitions().iter().find(weaker) {
            None => Ok(()),
            Some(partition) => refuse(format!(
                "durability {asked} is less than partition {} of {} promises, {}",
                partition.partition, topic.name, partition.durability
            )),
        }
    }
}

impl GroupMember {
    fn check(&self) -> Result<(), ClientError> {
        self.group.check().map_err(ClientError::invalid)?;
        instance(self.instance.as_ref())?;
        session_timeout(self.session_timeout)?;
        processing_timeout(self.processing_timeout)
    }
}

impl ConsumerOptions {
    /// All but whether the topic has these partitions.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        some_bytes("credit_bytes", self.credit_bytes, "16 MiB")?;
        if self.group.is_some() && matches!(self.start, When::Last(_)) {
            return refuse(
                "a new group begins at beginning or latest, not some events ago".to_owned(),
            );
        }
        if let Some(partitions) = &self.partitions {
            let mut seen = BTreeSet::new();
            if let Some(twice) = partitions.iter().find(|index| !seen.insert(**index)) {
                return refuse(format!(
                    "partitions names {twice} twice: a consumer reads each partition once"
                ));
            }
        }
        if let Some(key) = &self.key
            && key.len() > KEY_BYTES_MAX
        {
            return refuse(format!(
                "key has {} bytes; a consumer reads events of a key of {KEY_BYTES_MAX} at most",
                key.len()
            ));
        }
        if self.latest {
            self.check_latest()?;
        }
        let Some(member) = &self.group else {
            return Ok(());
        };
        if self.merge_wait.is_some() {
            return refuse(
                "a group's member has no merge_wait: its partitions come and go".to_owned(),
            );
        }
        if self.partitions.is_some() {
            return refuse(
                "a group's member reads what it is assigned: partitions is to be none".to_owned(),
            );
        }
        member.check()
    }

    /// What does not go together with the newest events only.
    fn check_latest(&self) -> Result<(), ClientError> {
        if self.group.is_some() {
            return refuse(
                "a group's member has no latest: the group is to get each event once, and latest \
                 passes events over"
                    .to_owned(),
            );
        }
        if self.key.is_some() {
            return refuse(
                "latest and key do not go together: the newest event of a partition may have \
                 another key, and the newest one of the key is not known"
                    .to_owned(),
            );
        }
        if self.merge_wait.is_some() {
            return refuse(
                "latest and merge_wait do not go together: merge_wait holds events back until \
                 older ones have come, and latest passes the older ones over"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl QueueConsumerOptions {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.prefetch_events == 0 {
            return refuse("prefetch_events is 0: nothing could be delivered".to_owned());
        }
        some_bytes("prefetch_bytes", self.prefetch_bytes, "16 MiB")?;
        self.queue.check().map_err(ClientError::invalid)?;
        instance(self.instance.as_ref())?;
        session_timeout(self.session_timeout)?;
        processing_timeout(self.processing_timeout)
    }
}

impl RequesterOptions {
    pub(crate) fn check(&self, topic: &TopicState) -> Result<(), ClientError> {
        self.producer.check(topic)
    }
}
