//! Becoming a member.

use crate::coordinator::commands::{Decided, JoinUnderWay};
use crate::coordinator::controller::ControlError;
use crate::coordinator::controller::undecided;
use crate::coordinator::gaps::beginning;
use crate::coordinator::members::shared::{Member, Prefetch, Presence, Shared};
use crate::ids::RequestId;
use crate::ids::SharedId;
use crate::node::Node;
use crate::refusal::{Refused, refuse, unknown_topic};
use crate::session::Membership;
use std::time::Duration;
use topic::{GroupOptions, QueueOptions, SESSION_TIMEOUT_MS};
use wire::codec::Appended;
use wire::message::*;
use wire::record::*;
use wire::{Codec, ErrorCode, ErrorReply, MemberId, Offset, Sequence, TopicId};

impl Node {
    pub(crate) fn join(
        &mut self,
        caller: RequestId,
        topic: TopicId,
        join: Join,
    ) -> Result<(), Refused> {
        self.drain.refuse_begun()?;
        self.topics
            .of(self.sessions.namespace(caller.link), topic)?;
        check_join(&join)?;
        self.refuse_too_many(caller)?;
        let mut records = Vec::new();
        let known = self.shared.named(topic, &join.consumer);
        let made = match known {
            Some(id) => {
                self.check_known(id, &join)?;
                None
            }
            None => Some(self.new_shared(caller, topic, &join, &mut records)?),
        };
        let id = known.unwrap_or_else(|| SharedId(self.ctx.next_id()));
        if let Some(shared) = made {
            let is_queue = shared.is_queue();
            self.shared.insert(id, shared);
            if is_queue {
                self.queue_made(id);
            }
        }
        let grant = self.ctx.next_id();
        self.replace_instance(id, &join, grant, &mut records);
        self.admit(caller, id, &join, &mut records);
        let under_way = JoinUnderWay {
            caller,
            id,
            member: join.member,
            held: join.held,
            grant,
        };
        // Even if nothing changes, the answer comes after what is under way.
        self.submit(records, Decided::MemberJoined(under_way));
        self.arm_shared(id);
        self.sessions.arm(caller.link, &mut self.ctx);
        Ok(())
    }

    /// Whether a group or queue that there is can have this member.
    fn check_known(&self, id: SharedId, join: &Join) -> Result<(), Refused> {
        let Some(shared) = self.shared.get(id) else {
            return Ok(());
        };
        let consumer = &join.consumer;
        let known = shared.record.kind;
        if known != join.kind {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!("consumer {consumer:?} is a {known}, not a {}", join.kind),
            ));
        }
        if shared.deleting {
            return Err(ErrorReply::retryable(
                ErrorCode::UnknownConsumer,
                50,
                format!("{known} {consumer:?} is being deleted"),
            ));
        }
        let limit = self.ctx.options.limits.members_max;
        let holder = shared.instance(&join.instance, join.member);
        if join.before != MemberId(0) && holder.is_some_and(|holder| holder != join.before) {
            return Err(refuse(
                ErrorCode::MemberFenced,
                format!(
                    "another member of {known} {consumer:?} has the instance name {:?} now",
                    join.instance
                ),
            ));
        }
        let is_known = shared.members.contains_key(&join.member) || holder.is_some();
        if !is_known && shared.members.len() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("{known} {consumer:?} has {limit} members (members_max)"),
            ));
        }
        Ok(())
    }

    /// A group or queue of a new name, and the records that make it.
    fn new_shared(
        &self,
        caller: RequestId,
        topic: TopicId,
        join: &Join,
        records: &mut Vec<Record>,
    ) -> Result<Shared, Refused> {
        let consumer = &join.consumer;
        if self.is_independent(topic, consumer) {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!(
                    "consumer {consumer:?} is an independent one, not a {}",
                    join.kind
                ),
            ));
        }
        let Some(entry) = self.commands.table().topic(topic) else {
            return Err(unknown_topic(topic));
        };
        let limit = self.ctx.options.limits.consumers_max;
        if entry.consumer_count() >= limit {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!("the topic has {limit} consumers (consumers_max)"),
            ));
        }
        let namespace = &entry.record.namespace;
        let options = match join.kind {
            ConsumerKind::Queue => {
                let options = QueueOptions::from_json(&join.options)?;
                let dead = options.dead_letter_topic_of(&entry.record.name);
                if dead == entry.record.name {
                    return Err(refuse(
                        ErrorCode::InvalidConsumer,
                        format!(
                            "queue {consumer:?}: dead letters in its own topic, {dead:?}, \
                             would come again for ever"
                        ),
                    ));
                }
                if options.deliveries_max > 0
                    && self.commands.table().named(namespace, &dead).is_none()
                {
                    return Err(refuse(
                        ErrorCode::InvalidConsumer,
                        format!(
                            "queue {consumer:?} needs its dead-letter topic {dead:?}, which there is not"
                        ),
                    ));
                }
                options.to_json()
            }
            _ => GroupOptions::from_json(&join.options)?.to_json(),
        };
        let record = ConsumerRecord {
            namespace: self.sessions.namespace(caller.link).to_owned(),
            consumer: consumer.clone(),
            topic,
            kind: join.kind,
            options,
        };
        records.push(Record::Consumer(record.clone()));
        self.start_records(&record, join.start, records)?;
        Ok(Shared::new(record))
    }

    /// Whether the name is that of an independent consumer: it has a cursor,
    /// will have one, or reads now.
    pub(crate) fn is_independent(&self, topic: TopicId, consumer: &str) -> bool {
        let entry = self.commands.table().topic(topic);
        if self.shared.named(topic, consumer).is_some() {
            return false;
        }
        let subscribed = || {
            self.view()
                .subscriptions_of(topic)
                .any(|(_, _, subscription)| subscription.consumer == consumer)
        };
        entry.is_some_and(|entry| entry.cursors.contains_key(consumer))
            || self.cursor_proposals.names(topic, consumer)
            || subscribed()
    }

    /// Where a new group or queue begins in each partition. One that begins
    /// with the first event that ever was needs no record.
    fn start_records(
        &self,
        record: &ConsumerRecord,
        start: Start,
        records: &mut Vec<Record>,
    ) -> Result<(), Refused> {
        if matches!(start, Start::At(_) | Start::Time(_)) {
            return Err(refuse(
                ErrorCode::InvalidConsumer,
                format!(
                    "{} {:?} cannot begin at a position or time: it begins with the first event, \
                     or with what comes from now on",
                    record.kind, record.consumer
                ),
            ));
        }
        for (partition, storage) in self.topics.storages(record.topic) {
            let Some(open) = self.partitions.get(&storage) else {
                continue;
            };
            let state = open.store.state();
            let offset = match start {
                Start::Cursor | Start::At(_) | Start::Time(_) => continue,
                Start::Beginning => beginning(open.store.key, state.first, self.commands.table()),
                Start::Latest | Start::CursorOrLatest => open.store.visible,
            };
            let position = Position {
                incarnation: state.incarnation,
                offset,
            };
            records.push(match record.kind {
                ConsumerKind::Queue => Record::Settled(SettledRecord {
                    topic: record.topic,
                    consumer: record.consumer.clone(),
                    partition,
                    incarnation: position.incarnation,
                    ranges: vec![(Offset(0), position.offset)],
                    delivered: position.offset,
                    next_rejected: Sequence(0),
                }),
                _ => Record::Cursor(CursorRecord {
                    namespace: record.namespace.clone(),
                    consumer: record.consumer.clone(),
                    topic: record.topic,
                    partition,
                    position: Some(position),
                }),
            });
        }
        Ok(())
    }

    /// A static member has come back as another: what its predecessor held is
    /// its own, in the same command.
    fn replace_instance(
        &mut self,
        id: SharedId,
        join: &Join,
        grant: u64,
        records: &mut Vec<Record>,
    ) {
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let Some(old) = shared.instance(&join.instance, join.member) else {
            return;
        };
        let Some(member) = shared.members.remove(&old) else {
            return;
        };
        records.push(Record::Member(MemberRecord {
            is_member: false,
            ..member.record
        }));
        let is_queue = shared.is_queue();
        let instance = &join.instance;
        let error = refuse(
            ErrorCode::MemberFenced,
            format!("another member of the instance name {instance:?} has joined"),
        );
        if is_queue {
            self.queue_member_gone(id, old, true);
        } else {
            self.end_reading(member.presence, (id, old), &error);
            self.inherit(id, (old, join.member), grant, records);
        }
        self.end_membership(member.presence, &error);
    }

    /// Notes the member: from now on it is one, unless its record is refused.
    fn admit(&mut self, caller: RequestId, id: SharedId, join: &Join, records: &mut Vec<Record>) {
        let client_name = self.sessions.client_name(caller.link).to_owned();
        let Some(shared) = self.shared.get_mut(id) else {
            return;
        };
        let record = MemberRecord {
            topic: shared.record.topic,
            consumer: shared.record.consumer.clone(),
            member: join.member,
            instance: join.instance.clone(),
            client_name,
            session_timeout_ms: join.session_timeout_ms,
            is_member: true,
        };
        let member = Member {
            record: record.clone(),
            presence: Presence::Joining(caller),
            prefetch: Prefetch {
                events: join.prefetch_events,
                bytes: join.prefetch_bytes,
                inline_data: join.inline_data,
            },
        };
        let before = shared.members.insert(join.member, member);
        if before.as_ref().is_none_or(|before| before.record != record) {
            records.push(Record::Member(record));
        }
        if let Some(session) = self.sessions.get_mut(caller.link) {
            let membership = Membership {
                shared: id,
                member: join.member,
                session_timeout: Duration::from_millis(join.session_timeout_ms.into()),
            };
            session.memberships.insert(caller.id, membership);
        }
        let Some(before) = before else {
            return;
        };
        let error = refuse(ErrorCode::Cancelled, "the member has joined anew");
        if before
            .presence
            .caller()
            .is_some_and(|before| before.link != caller.link)
        {
            self.end_reading(before.presence, (id, join.member), &error);
        }
        self.end_membership(before.presence, &error);
        if before.present().is_some() {
            self.tell_away(id, join.member);
        }
    }

    /// A member's records are durable, or were refused.
    pub(crate) fn member_joined(
        &mut self,
        under_way: JoinUnderWay,
        result: Result<(), ControlError>,
    ) {
        let JoinUnderWay {
            caller,
            id,
            member,
            held,
            grant,
        } = under_way;
        if let Err(error) = result {
            let session = self.sessions.get_mut(caller.link);
            session.and_then(|session| session.memberships.remove(&caller.id));
            self.refuse_request(caller, undecided(&error));
            self.return_to_table(id, &error);
            if let Some(state) = self.shared.member(id, member)
                && state.presence.caller() == Some(caller)
            {
                // It was one before; this try to come back has failed.
                self.member_away(id, member);
            }
            return;
        }
        if let Some(group) = self.shared.group_mut(id) {
            group.grant_is_durable(grant);
        }
        let waits = self.sessions.waits(caller);
        let state = self.shared.member_mut(id, member);
        match state {
            Some(state) if state.presence == Presence::Joining(caller) && waits => {}
            // Nobody waits for the answer: it has its time to ask again.
            Some(state) if state.presence == Presence::Joining(caller) => {
                self.forget_membership(Presence::Joining(caller));
                self.member_away(id, member);
                return;
            }
            // It left meanwhile, was replaced, or has joined once more.
            _ => {
                let error = self.shared.fenced(id, member);
                self.refuse_request(caller, error);
                return;
            }
        }
        let Some(shared) = self.shared.get(id) else {
            return;
        };
        let options = shared.record.options.clone();
        let (settled, expired) = match shared.is_queue() {
            true => self.queue_joined(id, member, &held),
            false => (Vec::new(), held),
        };
        let joined = Joined {
            options,
            settled,
            expired,
            recovering_ms: Appended(self.tell_recovering(id, member, caller)),
        };
        self.reply_long(caller, joined.to_bytes());
        // Not before its leases are sorted: what it does not name is given back.
        if let Some(state) = self.shared.member_mut(id, member) {
            state.presence = Presence::Present(caller);
        }
        self.member_is_present(id, member);
    }
}

impl Shared {
    /// Another member of this instance name.
    fn instance(&self, instance: &str, but: MemberId) -> Option<MemberId> {
        let mut members = self.members.iter();
        members
            .find(|(id, member)| {
                **id != but && !instance.is_empty() && member.record.instance == instance
            })
            .map(|(id, _)| *id)
    }
}

/// What of a request to join can be judged by itself.
fn check_join(join: &Join) -> Result<(), Refused> {
    let invalid = |message: String| refuse(ErrorCode::InvalidConsumer, message);
    topic::check_consumer_name(&join.consumer).map_err(|error| invalid(error.to_string()))?;
    if !join.instance.is_empty() {
        topic::check_consumer_name(&join.instance)
            .map_err(|error| invalid(format!("instance name: {error}")))?;
    }
    if join.kind == ConsumerKind::Independent {
        let consumer = &join.consumer;
        return Err(invalid(format!(
            "consumer {consumer:?}: an independent consumer has no members to join"
        )));
    }
    if join.member == MemberId(0) {
        return Err(invalid("a member's id is not 0".into()));
    }
    if !SESSION_TIMEOUT_MS.contains(&join.session_timeout_ms) {
        return Err(invalid(format!(
            "session_timeout_ms is {}, not between {} and {}",
            join.session_timeout_ms,
            SESSION_TIMEOUT_MS.start(),
            SESSION_TIMEOUT_MS.end()
        )));
    }
    Ok(())
}
