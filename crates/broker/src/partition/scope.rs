//! Subscriptions that are more than a consumer's name: of a group's member,
//! or of one key.

use crate::ids::{Asker, SharedId};
use crate::node::Node;
use crate::refusal::{Refused, malformed, refuse};
use bytes::Bytes;
use wire::batch::{Batch, Verify};
use wire::codec::Reader;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::{Codec, ErrorCode, MemberId};

/// How many events of other keys are passed before the reader is told how far
/// that was: so many it looks through again after a lost connection.
pub(super) const PASSED_EVENTS_MAX: u64 = 1024;

/// Who reads, and what of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// The group's member who reads, if one does.
    pub member: Option<(SharedId, MemberId)>,
    /// Only events with this key.
    pub key: Option<Bytes>,
}

impl Node {
    pub(crate) fn subscribe(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let subscribe = Subscribe::decode(from).map_err(malformed)?;
        self.open_subscription(asker, head.topic, subscribe, Scope::default())
    }

    pub(crate) fn subscribe_scoped(
        &mut self,
        asker: Asker,
        head: &RequestHead,
        from: &mut Reader<'_>,
    ) -> Result<(), Refused> {
        let SubscribeScoped {
            member,
            key,
            mut subscribe,
        } = SubscribeScoped::decode(from).map_err(malformed)?;
        let mut scope = Scope { member: None, key };
        if member != MemberId(0) {
            let consumer = &subscribe.consumer;
            let id = self.shared_named(asker, head.topic, consumer, ConsumerKind::Group)?;
            self.check_member(id, member)?;
            self.check_owner(id, member, subscribe.partition)?;
            self.check_membership(asker, id, member)?;
            // A group goes on where it is, whoever reads. A member that has
            // lost its connection knows better what it has seen.
            if !matches!(subscribe.start, Start::At(_)) {
                subscribe.start = Start::Cursor;
            }
            scope.member = Some((id, member));
        }
        self.open_subscription(asker, head.topic, subscribe, scope)
    }

    /// Refuses a member that has not joined on this connection: nobody would
    /// notice here when it is gone.
    fn check_membership(
        &self,
        asker: Asker,
        id: SharedId,
        member: MemberId,
    ) -> Result<(), Refused> {
        let state = self.shared.member(id, member);
        let own = state.and_then(|state| state.presence.asker());
        if own.is_some_and(|own| own.link == asker.link) {
            return Ok(());
        }
        Err(refuse(
            ErrorCode::MemberFenced,
            format!("{member} has not joined on this connection"),
        ))
    }
}

/// Those events of some batches that have the key, in batches of their own
/// where others are with them.
pub(super) fn of_key(batches: Vec<Bytes>, key: &[u8]) -> Vec<Bytes> {
    let batches = batches.into_iter();
    batches.filter_map(|batch| cut_to_key(batch, key)).collect()
}

fn cut_to_key(bytes: Bytes, key: &[u8]) -> Option<Bytes> {
    // What cannot be read although it was stored is for the consumer to judge.
    let Ok(batch) = Batch::read(bytes.clone(), Verify::Headers) else {
        return Some(bytes);
    };
    let Ok(columns) = batch.columns() else {
        return Some(bytes);
    };
    let section = batch.columns_section();
    let is_wanted = |place: Option<(u32, u32)>| {
        place.is_some_and(|(start, bytes)| section[start as usize..][..bytes as usize] == *key)
    };
    let wanted = columns.events.iter().zip(0u32..);
    let wanted: Vec<u32> = wanted
        .filter(|(event, _)| is_wanted(event.key))
        .map(|(_, index)| index)
        .collect();
    match wanted.len() {
        0 => None,
        all if all == columns.events.len() => Some(bytes),
        _ => Some(batch.cut(&columns, &wanted).into()),
    }
}
