//! Producers' identities: given, taken up again, fenced.

use super::commands::Decided;
use super::lent::Lent;
use super::served_topic::Topics;
use super::table::Table;
use crate::ctx::Ctx;
use crate::effects::{Effect, PartitionAct};
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, fenced, refuse};
use std::collections::{BTreeMap, VecDeque};
use wire::batch::Header;
use wire::message::OpenProducer;
use wire::record::{ProducerRecord, Record};
use wire::{ErrorCode, ProducerEpoch, ProducerId, SessionId, TopicId};

/// So many producers without a name are known by their sessions; of more, the latest.
const NAMELESS_MAX: usize = 65_536;

/// Producers: those with a name are in the table, of the others it is known which session each
/// is of, since the server was started.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    sessions: BTreeMap<ProducerId, SessionId>,
    /// In the order in which they were first seen.
    order: VecDeque<ProducerId>,
}

impl Producers {
    /// Opens a producer, or takes one up again. One with a name gets a new life, and its caller
    /// the answer when that is durable.
    pub fn open(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        open: OpenProducer,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        lent.drain.refuse_begun()?;
        let namespace = lent.sessions.namespace(caller.link);
        lent.topics.of(namespace, topic)?;
        if open.name.is_empty() {
            let session = lent.sessions.id(caller.link);
            let (producer, epoch) = match open.resume {
                ProducerId(0) => (ProducerId(lent.ctx.random.id()), ProducerEpoch(0)),
                resumed => {
                    self.check_nameless(topic, resumed, session, lent.commands.table())?;
                    (resumed, open.resume_epoch)
                }
            };
            self.note(producer, session);
            let opened = Effect::ProducerOpened(caller, topic, producer, epoch);
            lent.ctx.effects.push_back(opened);
            return Ok(());
        }
        topic::check_producer_name(&open.name)
            .map_err(|error| refuse(ErrorCode::InvalidEvent, error.to_string()))?;
        let current = lent.commands.producer(topic, &open.name);
        let current = current.map(|record| (record.producer, record.epoch));
        let resumed = (open.resume, open.resume_epoch);
        if open.resume != ProducerId(0) {
            return match current {
                Some((producer, epoch)) if (producer, epoch) == resumed => {
                    let opened = Effect::ProducerOpened(caller, topic, producer, epoch);
                    lent.ctx.effects.push_back(opened);
                    Ok(())
                }
                Some((producer, epoch)) if producer == open.resume => {
                    Err(fenced(epoch, open.resume_epoch))
                }
                _ => Err(refuse(
                    ErrorCode::ProducerExpired,
                    format!(
                        "producer {:?} is not known by id {}",
                        open.name, open.resume
                    ),
                )),
            };
        }
        let (producer, epoch) = match current {
            Some((producer, epoch)) => (producer, ProducerEpoch(epoch.0 + 1)),
            None => {
                let limit = lent.ctx.options.limits.named_producers_max;
                let entry = lent.commands.table().topic(topic);
                if entry.is_some_and(|entry| entry.producers.len() >= limit) {
                    return Err(refuse(
                        ErrorCode::LimitExceeded,
                        format!("the topic has {limit} named producers (named_producers_max)"),
                    ));
                }
                (ProducerId(lent.ctx.random.id()), ProducerEpoch(1))
            }
        };
        let record = ProducerRecord {
            namespace: namespace.to_owned(),
            name: open.name,
            topic,
            producer,
            epoch,
        };
        let records = vec![Record::Producer(record.clone())];
        let decided = Decided::ProducerOpened(caller, record);
        lent.commands.submit(records, decided, lent.ctx);
        Ok(())
    }

    /// Refuses to go on as a producer that is known as another session's, or by its name. One
    /// that is not known may have been opened before the server was started.
    fn check_nameless(
        &self,
        topic: TopicId,
        producer: ProducerId,
        session: SessionId,
        table: &Table,
    ) -> Result<(), Refused> {
        let entry = table.topic(topic);
        let is_named = entry.is_some_and(|entry| entry.epochs.contains_key(&producer));
        let known = self.sessions.get(&producer);
        if !is_named && known.is_none_or(|known| *known == session) {
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

    fn note(&mut self, producer: ProducerId, session: SessionId) {
        if self.sessions.insert(producer, session).is_some() {
            return;
        }
        self.order.push_back(producer);
        if self.order.len() > NAMELESS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.sessions.remove(&oldest);
        }
    }
}

/// A named producer's new life is durable.
pub(super) fn opened(caller: RequestId, record: &ProducerRecord, topics: &Topics, ctx: &mut Ctx) {
    let (topic, producer, epoch) = (record.topic, record.producer, record.epoch);
    // What waits of an older life is refused, so that it is never appended behind the new
    // one's first batch.
    for (_, storage) in topics.storages(topic) {
        let act = PartitionAct::Fence(producer, epoch);
        ctx.effects.push_back(Effect::Partition(storage, act));
    }
    let opened = Effect::ProducerOpened(caller, topic, producer, epoch);
    ctx.effects.push_back(opened);
}

/// Refuses what a named producer's ended life sends, on every partition
/// from the moment its successor was opened.
pub(crate) fn check_epoch(header: &Header, table: &Table, ctx: &Ctx) -> Result<(), Refused> {
    trace::passes!("its producer's epoch is checked");
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
        std::cmp::Ordering::Less
            if !ctx.planted(Fault::NoFencing) && !ctx.planted(Fault::FenceForgotten) =>
        {
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
