//! Deliveries of a channel that its client has not settled.

use crate::faults::{Fault, planted};
use crate::id::QueueId;
use std::collections::BTreeMap;

/// A message that was delivered, as its owner knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct Delivered<M> {
    pub queue: QueueId,
    pub message: M,
}

/// Which consumer of a channel got a message; tags of consumers may come again, these do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConsumerKey(pub u64);

/// One delivery.
#[derive(Debug)]
pub(crate) struct Delivery<M> {
    pub delivered: Delivered<M>,
    /// Nobody's if it was fetched by `basic.get`.
    pub consumer: Option<ConsumerKey>,
}

/// A tag that settles nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownTag(pub u64);

/// Deliveries by their tags. What needs no acknowledgement has a tag, and is not kept.
#[derive(Debug)]
pub(crate) struct Unacked<M> {
    deliveries: BTreeMap<u64, Delivery<M>>,
    /// The last tag that was given.
    last: u64,
}

impl<M> Unacked<M> {
    pub const fn new() -> Self {
        let deliveries = BTreeMap::new();
        Self {
            deliveries,
            last: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// The tag of a delivery that needs no acknowledgement.
    pub const fn pass(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The tag of one that does.
    pub fn keep(&mut self, delivery: Delivery<M>) -> u64 {
        let tag = self.pass();
        self.deliveries.insert(tag, delivery);
        tag
    }

    /// Takes what a tag settles: its delivery, or with `multiple` all up to it, and with 0 all.
    ///
    /// With `multiple` the tag may be that of a delivery that needed no acknowledgement, if there is one below that did:
    /// programs count deliveries of all their consumers together.
    pub fn settle(&mut self, tag: u64, multiple: bool) -> Result<Vec<Delivery<M>>, UnknownTag> {
        if !multiple || planted(Fault::MultipleIsOne) {
            let delivery = self.deliveries.remove(&tag);
            return delivery.map(|one| vec![one]).ok_or(UnknownTag(tag));
        }
        if tag == 0 {
            return Ok(self.take_all());
        }
        if tag > self.last {
            return Err(UnknownTag(tag));
        }
        let mut settled = Vec::new();
        while let Some(first) = self.deliveries.first_entry()
            && *first.key() <= tag
        {
            settled.push(first.remove());
        }
        match settled.is_empty() {
            true => Err(UnknownTag(tag)),
            false => Ok(settled),
        }
    }

    /// Takes all of them, in the order of their tags.
    pub fn take_all(&mut self) -> Vec<Delivery<M>> {
        std::mem::take(&mut self.deliveries).into_values().collect()
    }

    /// Those of a queue, in the order of their tags.
    pub fn of(&self, queue: QueueId) -> impl Iterator<Item = &M> {
        let delivered = self.deliveries.values().map(|one| &one.delivered);
        let of_it = delivered.filter(move |one| one.queue == queue);
        of_it.map(|one| &one.message)
    }

    /// How many are of a consumer, or of none.
    #[cfg(test)]
    pub fn count_of(&self, consumer: Option<ConsumerKey>) -> usize {
        let of_it = |delivery: &&Delivery<M>| delivery.consumer == consumer;
        self.deliveries.values().filter(of_it).count()
    }
}
