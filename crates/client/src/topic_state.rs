//! What is known of a topic, shared by its handles.

use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::{Liveness, Mailbox};
use crate::promise::Pending;
use memory::fork::ForkSlot;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use topic::{Definition, Plugins, Serializer};
use wire::message::{PartitionDescription, TopicDescription};
use wire::{Durability, TopicId};

/// What is called when a topic may have more partitions. The answer comes when that is seen to, whether or not it could be done.
pub(crate) type OnGrown = dyn Fn() -> Pending<()> + Send + Sync;

/// What is known of a topic; shared by all handles, producers and consumers of it.
pub(crate) struct TopicState {
    pub name: Arc<str>,
    pub id: TopicId,
    /// As it was when the topic was opened: what cannot change is here.
    pub definition: Definition,
    /// How often it was seen to have been altered since: read by every push.
    alterations: AtomicU32,
    /// Whether somebody has asked for it to be looked at.
    is_suspected: AtomicBool,
    /// As it was seen last. Held for a look or a change only; each process has
    /// its own, for the parent's may be locked at a fork.
    altered: ForkSlot<Mutex<Option<Arc<Definition>>>>,
    /// Where what the definition names comes from, if it is a plugin.
    pub plugins: Arc<dyn Plugins>,
    /// Made when it is first needed: a program that only describes needs no plugin.
    serializer: OnceLock<Arc<dyn Serializer>>,
    /// The index of the first partition: that of a partition of a spread topic is its index there.
    pub first: u32,
    /// How many partitions there are: read by every push, so kept apart.
    partition_count: AtomicU32,
    /// As they were when the topic was opened: what a forked child starts from.
    opened: Vec<PartitionDescription>,
    partitions: ForkSlot<RwLock<Vec<PartitionDescription>>>,
    /// What is known of the node where it is, if that is another one than the first. Each process has its own connections.
    node: ForkSlot<RwLock<Option<Arc<Liveness>>>>,
    /// What follows the partitions of a spread topic. Each process has its own.
    followers: ForkSlot<Mutex<Vec<Weak<OnGrown>>>>,
}

impl TopicState {
    pub fn new(
        description: TopicDescription,
        plugins: Arc<dyn Plugins>,
    ) -> Result<Self, ClientError> {
        let definition = Definition::from_json(&description.definition).map_err(|error| {
            ClientError::Invalid(format!(
                "topic {}: the server's definition is not understood: {error}",
                description.name
            ))
        })?;
        Ok(Self {
            name: description.name.into(),
            id: description.topic,
            first: definition.part_of().map_or(0, |of| of.index),
            definition,
            alterations: AtomicU32::new(0),
            is_suspected: AtomicBool::new(false),
            altered: ForkSlot::new(),
            plugins,
            serializer: OnceLock::new(),
            partition_count: AtomicU32::new(description.partitions.len() as u32),
            opened: description.partitions,
            partitions: ForkSlot::new(),
            node: ForkSlot::new(),
            followers: ForkSlot::new(),
        })
    }

    /// The serializer, shared by all producers and consumers.
    pub fn serializer(&self) -> Result<&Arc<dyn Serializer>, ClientError> {
        if let Some(serializer) = self.serializer.get() {
            return Ok(serializer);
        }
        let made = self.definition.serializer().build(&*self.plugins)?;
        Ok(self.serializer.get_or_init(|| made))
    }

    /// How often the definition was seen to have changed.
    #[inline]
    pub fn alterations(&self) -> u32 {
        // Acquire: a thread that sees it finds the definition.
        self.alterations.load(Ordering::Acquire)
    }

    /// The definition as it was seen last, if it has changed.
    pub fn altered(&self) -> Option<Arc<Definition>> {
        let altered = self.seen_altered();
        let altered = altered.lock().expect("no holder panics here");
        altered.clone()
    }

    /// It may have been altered. False if that was said before and nobody has
    /// looked since.
    pub fn suspect(&self) -> bool {
        // Relaxed: a hint, after which the command is sent.
        !self.is_suspected.swap(true, Ordering::Relaxed)
    }

    /// It is about to be looked at, or was just now.
    pub fn looked_at(&self) {
        self.is_suspected.store(false, Ordering::Relaxed);
    }

    /// Takes over a newer definition. One that is not understood, as a later
    /// version may have it, is left to the next open of the topic.
    fn update_definition(&self, text: &str) {
        let altered = self.seen_altered();
        let mut altered = altered.lock().expect("no holder panics here");
        let known = altered.as_deref().unwrap_or(&self.definition);
        if known.to_json() == text {
            return;
        }
        if let Ok(definition) = Definition::from_json(text)
            && definition != *known
        {
            *altered = Some(Arc::new(definition));
            self.alterations.fetch_add(1, Ordering::Release);
        }
    }

    fn seen_altered(&self) -> Arc<Mutex<Option<Arc<Definition>>>> {
        let make = || {
            // A child knows that it was altered, not how: it begins with what
            // the topic was opened with, and asks when it is asked to.
            let opened = (self.alterations() > 0).then(|| Arc::new(self.definition.clone()));
            Ok::<_, Infallible>(Mutex::new(opened))
        };
        let Ok(altered) = self.altered.get_or_make(make);
        altered
    }

    /// This is called whenever more is known of the topic, as long as there is another one of it.
    pub fn add_follower(&self, follower: &Arc<OnGrown>) {
        let Ok(followers) = self
            .followers
            .get_or_make(|| Ok::<_, Infallible>(Mutex::default()));
        let mut followers = followers.lock().expect("no holder panics here");
        followers.retain(|one| one.strong_count() > 0);
        followers.push(Arc::downgrade(follower));
    }

    /// Has what follows the topic see to partitions that were added. The answers come when that is over.
    pub fn call_followers(&self) -> Vec<Pending<()>> {
        let Some(followers) = self.followers.get_ref() else {
            return Vec::new();
        };
        let followers = followers.lock().expect("no holder panics here").clone();
        let followers = followers.iter().filter_map(Weak::upgrade);
        followers.map(|follower| follower()).collect()
    }

    fn known(&self) -> Arc<RwLock<Vec<PartitionDescription>>> {
        let make = || Ok::<_, Infallible>(RwLock::new(self.opened.clone()));
        let Ok(known) = self.partitions.get_or_make(make);
        known
    }

    /// Whether the node where it is can be heard, which is the one that `mailbox` knows of as long as nothing else was said.
    pub fn liveness(&self, mailbox: &Mailbox) -> Arc<Liveness> {
        let elsewhere = self.node.get_ref();
        let elsewhere =
            elsewhere.and_then(|node| node.read().expect("no holder panics here").clone());
        elsewhere.unwrap_or_else(|| mailbox.liveness.clone())
    }

    /// It is at the node of which this is known; `None` is the first one.
    pub fn is_at(&self, node: Option<Arc<Liveness>>) {
        if node.is_none() && self.node.get_ref().is_none() {
            return;
        }
        let Ok(known) = self
            .node
            .get_or_make(|| Ok::<_, Infallible>(RwLock::default()));
        *known.write().expect("no holder panics here") = node;
    }

    #[inline]
    pub fn partition_count(&self) -> u32 {
        // Only ever grows, and what it counts is published by the lock.
        self.partition_count.load(Ordering::Relaxed)
    }

    /// The indices of the partitions.
    pub fn indices(&self) -> Range<u32> {
        self.first..self.first + self.partition_count()
    }

    pub fn partitions(&self) -> Vec<PartitionDescription> {
        self.known().read().expect("no holder panics here").clone()
    }

    /// What an ack of a partition means, and the epoch of its leader; 0 is not known.
    pub fn leadership(&self, partition: u32) -> (Durability, u32) {
        let known = self.known();
        let known = known.read().expect("no holder panics here");
        let of = |partition: &PartitionDescription| (partition.durability, partition.leader_epoch);
        let unknown = (Durability::Memory, 0);
        let place = partition.checked_sub(self.first);
        let known = place.and_then(|place| known.get(place as usize));
        known.map_or(unknown, of)
    }

    /// Takes over a newer description. False if it is of another topic.
    pub fn update(&self, description: TopicDescription) -> bool {
        if description.topic != self.id {
            return false;
        }
        self.update_definition(&description.definition);
        let count = description.partitions.len() as u32;
        let known = self.known();
        let mut known = known.write().expect("no holder panics here");
        let mut partitions = description.partitions;
        for (new, old) in partitions.iter_mut().zip(known.iter()) {
            // A node that has lost the partition may describe it as it was: its leader is not gone back to.
            if new.leader_epoch < old.leader_epoch && !planted(Fault::LowerEpoch) {
                *new = old.clone();
            }
        }
        // Partitions are only ever added.
        partitions.extend(known.drain(..).skip(count as usize));
        *known = partitions;
        drop(known);
        self.partition_count.fetch_max(count, Ordering::Relaxed);
        // Nobody waits for them here.
        drop(self.call_followers());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topic::NoPlugins;
    use wire::message::{PartitionStorage, Watermarks};
    use wire::{Incarnation, Offset, PartitionIndex};

    /// A topic whose partitions' leaders are of these epochs, with as many bytes as `bytes`.
    fn described(epochs: &[u32], bytes: u64) -> TopicDescription {
        let partitions = epochs.iter().enumerate();
        let partitions = partitions.map(|(index, epoch)| PartitionDescription {
            partition: PartitionIndex(index as u32),
            storage: PartitionStorage {
                kind: "memory".into(),
                config: String::new(),
            },
            durability: Durability::Memory,
            incarnation: Incarnation(1),
            leader_epoch: *epoch,
            ended: Vec::new(),
            first: Offset(0),
            watermarks: Watermarks {
                end: Offset(0),
                durable: Offset(0),
                committed: Offset(0),
            },
            bytes,
            failure: String::new(),
        });
        TopicDescription {
            name: "events".into(),
            topic: TopicId(1),
            definition: Definition::default().to_json(),
            partitions: partitions.collect(),
        }
    }

    #[test]
    fn a_description_that_is_behind_takes_no_partition_back_to_an_earlier_leader() {
        let state = TopicState::new(described(&[3, 3], 10), Arc::new(NoPlugins)).unwrap();
        let known = |state: &TopicState| {
            let partitions = state.partitions().into_iter();
            partitions
                .map(|one| (one.leader_epoch, one.bytes))
                .collect::<Vec<_>>()
        };
        // It is behind with the first partition alone.
        assert!(state.update(described(&[2, 4], 20)));
        assert_eq!(known(&state), [(3, 10), (4, 20)]);
        assert_eq!(state.leadership(0).1, 3);
        // Of the same leader the later one counts, and partitions are not taken away.
        assert!(state.update(described(&[3], 30)));
        assert_eq!(known(&state), [(3, 30), (4, 20)]);
        assert!(state.update(described(&[3, 5, 1], 40)));
        assert_eq!(known(&state), [(3, 40), (5, 40), (1, 40)]);
        assert_eq!(state.partition_count(), 3);
    }
}
