//! Producers' identities: given, taken up again, fenced.

use crate::answer::Answer;
use crate::coordinator::commands::Decided;
use crate::coordinator::controller::ControlError;
use crate::coordinator::controller::undecided;
use crate::coordinator::table::Table;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::node::Node;
use crate::refusal::{Refused, fenced, refuse};
use wire::batch::Header;
use wire::message::{OpenProducer, ProducerOpened};
use wire::record::{ProducerRecord, Record};
use wire::{ErrorCode, ProducerEpoch, ProducerId, SessionId, TopicId};

impl Node {
    /// Refuses to go on as a producer that is known as another session's, or by its name. One
    /// that is not known may have been opened before the server was started.
    fn check_nameless(
        &self,
        topic: TopicId,
        producer: ProducerId,
        session: SessionId,
    ) -> Result<(), Refused> {
        let entry = self.commands.table().topic(topic);
        let is_named = entry.is_some_and(|entry| entry.epochs.contains_key(&producer));
        if !is_named && !self.nameless.is_of_another(producer, session) {
            return Ok(());
        }
        let owner = match is_named {
            true => "has a name, by which alone it is opened again",
            false => "is another session's",
        };
        Err(refuse(
            ErrorCode::ProducerFenced,
            format!("producer {producer} {owner}"),
        ))
    }

    pub(crate) fn open_producer(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        open: OpenProducer,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        let namespace = self
            .topics
            .of(self.sessions.namespace(caller.link), topic)?
            .namespace
            .clone();
        if open.name.is_empty() {
            let session = self.sessions.id(caller.link);
            let (producer, epoch) = match open.resume {
                ProducerId(0) => (ProducerId(self.ctx.random.id()), ProducerEpoch(0)),
                resumed => {
                    self.check_nameless(topic, resumed, session)?;
                    (resumed, open.resume_epoch)
                }
            };
            self.nameless.note(producer, session);
            self.reply_opened(caller, topic, producer, epoch);
            return Ok(());
        }
        topic::check_producer_name(&open.name)
            .map_err(|error| refuse(ErrorCode::InvalidEvent, error.to_string()))?;
        let key = (topic, open.name);
        let current = self
            .epoch_proposals
            .get(&key)
            .map(|(record, _)| record)
            .or_else(|| {
                let entry = self.commands.table().topic(topic)?;
                entry.producers.get(&key.1)
            });
        let current = current.map(|record| (record.producer, record.epoch));
        let resumed = (open.resume, open.resume_epoch);
        if open.resume != ProducerId(0) {
            return match current {
                Some(current) if current == resumed => {
                    self.reply_opened(caller, topic, current.0, current.1);
                    Ok(())
                }
                Some((producer, epoch)) if producer == open.resume => {
                    Err(fenced(epoch, open.resume_epoch))
                }
                _ => Err(refuse(
                    ErrorCode::ProducerExpired,
                    format!("producer {:?} is not known by id {}", key.1, open.resume),
                )),
            };
        }
        let (producer, epoch) = match current {
            Some((producer, epoch)) => (producer, ProducerEpoch(epoch.0 + 1)),
            None => {
                let limit = self.ctx.options.limits.named_producers_max;
                let entry = self.commands.table().topic(topic);
                if entry.is_some_and(|entry| entry.producers.len() >= limit) {
                    return Err(refuse(
                        ErrorCode::LimitExceeded,
                        format!("the topic has {limit} named producers (named_producers_max)"),
                    ));
                }
                (ProducerId(self.ctx.random.id()), ProducerEpoch(1))
            }
        };
        let record = ProducerRecord {
            namespace,
            name: key.1.clone(),
            topic,
            producer,
            epoch,
        };
        let proposal = self
            .epoch_proposals
            .entry(key)
            .or_insert((record.clone(), 0));
        proposal.0 = record.clone();
        proposal.1 += 1;
        let records = vec![Record::Producer(record.clone())];
        self.submit(records, Decided::ProducerOpened(caller, record));
        Ok(())
    }

    pub(crate) fn producer_opened(
        &mut self,
        caller: RequestId,
        record: ProducerRecord,
        result: Result<(), ControlError>,
    ) {
        let key = (record.topic, record.name);
        if let Some(proposal) = self.epoch_proposals.get_mut(&key) {
            proposal.1 -= 1;
            if proposal.1 == 0 {
                self.epoch_proposals.remove(&key);
            }
        }
        match result {
            Ok(()) => {
                self.fence_arrivals(record.topic, record.producer, record.epoch);
                self.reply_opened(caller, record.topic, record.producer, record.epoch);
            }
            Err(error) => self.refuse_request(caller, undecided(&error)),
        }
    }

    /// A new life has begun: what waits of an older one is refused, so that
    /// it is never appended behind the new one's first batch.
    fn fence_arrivals(&mut self, topic: TopicId, producer: ProducerId, epoch: ProducerEpoch) {
        for (_, storage) in self.topics.storages(topic) {
            self.at(storage, |partition, ctx| {
                partition.fence(producer, epoch, ctx);
            });
        }
    }

    fn reply_opened(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        producer: ProducerId,
        epoch: ProducerEpoch,
    ) {
        let storages = self.topics.storages(topic);
        let next = storages.filter_map(|(index, storage)| {
            let partition = self.partitions.get(&storage)?;
            let (appends, store) = (&partition.appends, &partition.store);
            Some((index, appends.next_sequence(producer, epoch, store)?))
        });
        let opened = ProducerOpened {
            producer,
            epoch,
            next: next.collect(),
        };
        self.answer(caller, Answer::ProducerOpened(opened));
    }
}

/// Refuses what a named producer's ended life sends, on every partition
/// from the moment its successor was opened.
pub(crate) fn check_epoch(header: &Header, table: &Table, ctx: &Ctx) -> Result<(), Refused> {
    if header.producer == ProducerId(0) {
        return Err(refuse(
            ErrorCode::InvalidEvent,
            "the batch names no producer",
        ));
    }
    let entry = table.topic(header.topic);
    let Some(current) = entry.and_then(|entry| entry.epochs.get(&header.producer)) else {
        return Ok(());
    };
    match header.epoch.cmp(current) {
        std::cmp::Ordering::Less if !ctx.planted(Fault::NoFencing) => {
            Err(fenced(*current, header.epoch))
        }
        std::cmp::Ordering::Greater => Err(refuse(
            ErrorCode::InvalidEvent,
            format!(
                "epoch {} of the producer was never given, {current} is current",
                header.epoch
            ),
        )),
        _ => Ok(()),
    }
}
