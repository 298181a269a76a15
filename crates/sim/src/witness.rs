//! Listens to what the server and its clients say to each other about groups
//! and queues, and compares it with what must hold.

use crate::handed::handed;
use crate::leases::{Asked, Given, Leases, Turns};
use crate::shares::{Allowed, Shares};
use crate::trace::{Trace, Violation};
use broker::node::LinkId;
use net::{Message, Received};
use std::collections::BTreeMap;
use wire::codec::Reader;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::ConsumerKind;
use wire::{Codec, Incarnation, MemberId};

const MILLISECOND: u64 = 1_000_000;

/// What a client has asked for and is waiting for.
enum Question {
    Join(Join),
    Settle {
        name: Name,
        sequence: u64,
        asked: Asked,
    },
    Extend(ExtendLeases),
    Moves {
        moves: MoveMemberCursors,
        allowed: Allowed,
    },
    Subscribe {
        group: String,
        subscribe: Subscribe,
    },
    Describe,
}

/// Why somebody is a member no more, for sure or perhaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Live,
    /// It left, or another one of its instance name took over.
    Over,
}

struct Member {
    link: LinkId,
    /// The request that the membership goes by, on that connection.
    id: u64,
    instance: String,
    timeout_ns: u64,
    /// What it may have unsettled.
    prefetch: (u32, u64),
    heard_at: u64,
    fate: Fate,
    /// The server's run in which it has joined.
    run: u64,
}

impl Member {
    fn is_gone(&self, now: u64) -> bool {
        self.fate == Fate::Over || now >= self.heard_at.saturating_add(self.timeout_ns)
    }
}

type Name = (String, MemberId);

/// Who listens.
pub struct Witness {
    pub leases: Leases,
    pub shares: Shares,
    members: BTreeMap<Name, Member>,
    /// What was asked on each connection, by the request's number.
    questions: BTreeMap<(LinkId, u64), Question>,
    /// What was asked in which settlement of a member, in this run.
    settlements: BTreeMap<(Name, u64), Asked>,
    run: u64,
    violation: Option<Violation>,
    trace: Trace,
}

impl Witness {
    pub fn new(deliveries_max: u32, turns: Turns, revoke_ns: u64, trace: Trace) -> Self {
        Self {
            leases: Leases::new(deliveries_max, turns),
            shares: Shares::new(revoke_ns),
            members: BTreeMap::new(),
            questions: BTreeMap::new(),
            settlements: BTreeMap::new(),
            run: 0,
            violation: None,
            trace,
        }
    }

    /// What was noticed that must not be.
    pub fn violation(&mut self) -> Result<(), Violation> {
        match self.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    fn note(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }

    /// The server's process has ended.
    pub fn crashed(&mut self, now: u64) {
        self.questions.clear();
        self.settlements.clear();
        self.leases.crashed();
        // Who is gone by now may be waited for no more.
        for member in self.members.values_mut() {
            if !member.is_gone(now) {
                member.heard_at = u64::MAX;
            }
        }
    }

    /// A server begins: everybody has his time to come back.
    pub fn started(&mut self, now: u64) {
        self.run += 1;
        for member in self.members.values_mut() {
            if member.heard_at == u64::MAX {
                member.heard_at = now;
            }
        }
    }

    /// A sign of life of whoever is on a connection.
    fn heard(&mut self, now: u64, link: LinkId) {
        let mut late = Vec::new();
        for (name, member) in &mut self.members {
            if member.link == link && member.run == self.run {
                if member.is_gone(now) {
                    late.push(name.clone());
                }
                member.heard_at = now;
            }
        }
        for (consumer, member) in late {
            self.loosen(&consumer, member);
        }
    }

    fn loosen(&mut self, consumer: &str, member: MemberId) {
        self.leases.loosen(consumer, member);
        self.shares.loosen(consumer, member);
    }

    /// The server is about to be handed a message.
    pub fn received(&mut self, now: u64, link: LinkId, message: &Received) {
        self.heard(now, link);
        if message.kind != FrameKind::Request {
            return;
        }
        let mut from = Reader::new("a request", &message.head);
        let Ok(head) = RequestHead::decode(&mut from) else {
            return;
        };
        let key = (link, message.id);
        match head.method {
            Method::Join => {
                if let Ok(join) = Join::decode(&mut from) {
                    self.trace.say(now, || format!("server: is asked {join:?}"));
                    self.joins(now, key, join);
                }
            }
            Method::Leave => {
                if let Ok(leave) = Leave::decode(&mut from) {
                    self.trace
                        .say(now, || format!("server: is asked {leave:?}"));
                    let name = (leave.consumer, leave.member);
                    self.end(&name);
                }
            }
            Method::Settle => {
                if let Ok(settle) = Settle::decode(&mut from) {
                    self.trace
                        .say(now, || format!("server: is asked {settle:?}"));
                    self.settles(now, key, settle);
                }
            }
            Method::ExtendLeases => {
                if let Ok(extend) = ExtendLeases::decode(&mut from) {
                    self.questions.insert(key, Question::Extend(extend));
                }
            }
            Method::Release => {
                if let Ok(release) = Release::decode(&mut from) {
                    self.trace
                        .say(now, || format!("server: is asked {release:?}"));
                    let (group, member) = (&release.consumer, release.member);
                    self.shares.released(group, member, &release.partitions);
                }
            }
            Method::MoveMemberCursors => {
                if let Ok(moves) = MoveMemberCursors::decode(&mut from) {
                    self.trace
                        .say(now, || format!("server: is asked {moves:?}"));
                    let group = &moves.moves.consumer;
                    let positions = &moves.moves.positions;
                    let allowed = self.shares.acknowledges(group, moves.member, positions);
                    let question = Question::Moves { moves, allowed };
                    self.questions.insert(key, question);
                }
            }
            Method::SubscribeScoped => {
                if let Ok(scoped) = SubscribeScoped::decode(&mut from)
                    && scoped.member != MemberId(0)
                {
                    self.trace
                        .say(now, || format!("server: is asked {scoped:?}"));
                    let question = Question::Subscribe {
                        group: scoped.subscribe.consumer.clone(),
                        subscribe: scoped.subscribe,
                    };
                    self.questions.insert(key, question);
                }
            }
            Method::DescribeConsumers => {
                self.questions.insert(key, Question::Describe);
            }
            _ => {}
        }
    }

    fn joins(&mut self, now: u64, key: (LinkId, u64), join: Join) {
        let name = (join.consumer.clone(), join.member);
        let others = self.members.iter();
        let replaced: Vec<Name> = others
            .filter(|((consumer, member), known)| {
                *consumer == join.consumer
                    && *member != join.member
                    && !join.instance.is_empty()
                    && known.instance == join.instance
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in replaced {
            self.end(&name);
        }
        let timeout_ns = u64::from(join.session_timeout_ms) * MILLISECOND;
        let before = self.members.get(&name);
        let before = before.map(|before| (before.run, before.is_gone(now)));
        // A server that could not record that it was gone waits for it.
        let run = before.map_or(self.run, |(run, _)| run);
        if before.is_some_and(|(_, is_gone)| is_gone) {
            self.loosen(&name.0, name.1);
        }
        let member = Member {
            link: key.0,
            id: key.1,
            instance: join.instance.clone(),
            timeout_ns,
            prefetch: (join.prefetch_events, join.prefetch_bytes),
            heard_at: now,
            fate: Fate::Live,
            run,
        };
        self.members.insert(name, member);
        self.questions.insert(key, Question::Join(join));
    }

    /// A member is perhaps none any more.
    fn end(&mut self, name: &Name) {
        if let Some(member) = self.members.get_mut(name) {
            member.fate = Fate::Over;
        }
        self.loosen(&name.0, name.1);
    }

    fn settles(&mut self, now: u64, key: (LinkId, u64), settle: Settle) {
        let name = (settle.consumer.clone(), settle.member);
        let again = self.settlements.get(&(name.clone(), settle.sequence));
        let asked = match again {
            // The answer that it had, if that is remembered.
            Some(asked) => asked.again(),
            None => {
                let settlements = &settle.settlements;
                self.leases.settle(&name.0, name.1, settlements, now)
            }
        };
        let sequence = settle.sequence;
        self.settlements
            .insert((name.clone(), sequence), asked.clone());
        let question = Question::Settle {
            name,
            sequence,
            asked,
        };
        self.questions.insert(key, question);
    }

    /// The server has sent a message.
    pub fn sent(&mut self, now: u64, link: LinkId, message: &Message) {
        let key = (link, message.id);
        match message.kind {
            FrameKind::Leased => {
                let result = self.leased(now, key, message);
                self.note(result);
            }
            FrameKind::Assigned => {
                let result = self.assigned(now, key, message);
                self.note(result);
            }
            FrameKind::Reply => {
                if let Some(question) = self.questions.remove(&key) {
                    let result = self.answered(now, question, message);
                    self.note(result);
                }
            }
            FrameKind::ErrorReply => self.refused(&key),
            _ => {}
        }
    }

    fn member_of(&self, key: (LinkId, u64)) -> Option<Name> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| (member.link, member.id) == key);
        found.map(|(name, _)| name.clone())
    }

    fn leased(&mut self, now: u64, key: (LinkId, u64), message: &Message) -> Result<(), Violation> {
        let head = Leased::from_bytes("leased", &message.head)
            .map_err(|error| Violation(format!("the server sends malformed leases: {error}")))?;
        let Some((queue, member)) = self.member_of(key) else {
            return Violation::because("events are given to somebody who is no member");
        };
        let name = (queue.clone(), member);
        let prefetch = self.members.get(&name).map_or((0, 0), |one| one.prefetch);
        let members = &self.members;
        let is_gone = |member: MemberId| {
            let member = members.get(&(queue.clone(), member));
            member.is_none_or(|member| member.is_gone(now))
        };
        let given = Given {
            queue: &queue,
            member,
            lease_ms: head.lease_ms,
            prefetch,
            now,
        };
        self.trace.say(now, || {
            format!("server: gives {member} of {queue} {:?}", head.leases)
        });
        let handed = handed(&head, &message.payload)?;
        self.leases.given(given, &handed, is_gone)
    }

    fn assigned(
        &mut self,
        now: u64,
        key: (LinkId, u64),
        message: &Message,
    ) -> Result<(), Violation> {
        let head = Assigned::from_bytes("assigned", &message.head)
            .map_err(|error| Violation(format!("the server sends malformed shares: {error}")))?;
        let Some((group, member)) = self.member_of(key) else {
            return Violation::because("partitions are given to somebody who is no member");
        };
        let members = &self.members;
        let is_gone = |member: MemberId| {
            let member = members.get(&(group.clone(), member));
            member.is_none_or(|member| member.is_gone(now))
        };
        self.trace
            .say(now, || format!("server: tells {member} {head:?}"));
        let told = (&head.partitions[..], &head.revoking[..]);
        self.shares.assigned(&group, member, told, now, is_gone)
    }

    fn answered(
        &mut self,
        now: u64,
        question: Question,
        message: &Message,
    ) -> Result<(), Violation> {
        let payload = message.payload.concat();
        let body = match message.head.is_empty() {
            true => &payload[..],
            false => &message.head[..],
        };
        let malformed =
            |error: wire::DecodeError| Violation(format!("the server answers malformed: {error}"));
        match question {
            Question::Join(join) => {
                let joined = Joined::from_bytes("joined", body).map_err(malformed)?;
                let member = join.member;
                self.trace
                    .say(now, || format!("server: answers {member} {joined:?}"));
                let name = (join.consumer, join.member);
                let mut is_adopted = false;
                if let Some(member) = self.members.get_mut(&name) {
                    is_adopted = member.run != self.run;
                    member.run = self.run;
                }
                let given = Given {
                    queue: &name.0,
                    member: name.1,
                    lease_ms: 0,
                    prefetch: (0, 0),
                    now,
                };
                let answer = (&joined.settled[..], &joined.expired[..]);
                self.leases.joined(given, &join.held, answer, is_adopted);
                Ok(())
            }
            Question::Settle {
                name,
                sequence,
                asked,
            } => {
                let settled = Settled::from_bytes("settled", body).map_err(malformed)?;
                self.trace.say(now, || {
                    format!("server: answers {} of {}: {settled:?}", sequence, name.1)
                });
                self.leases.settled(&name.0, &asked, &settled.expired)
            }
            Question::Extend(extend) => {
                let extended =
                    LeasesExtended::from_bytes("leases extended", body).map_err(malformed)?;
                let given = Given {
                    queue: &extend.consumer,
                    member: extend.member,
                    lease_ms: extended.lease_ms,
                    prefetch: (0, 0),
                    now,
                };
                self.leases
                    .extended(given, &extend.leases, &extended.expired)
            }
            Question::Moves { moves, allowed } => {
                let MoveMemberCursors { member, moves } = moves;
                let (group, positions) = (&moves.consumer, &moves.positions);
                self.trace.say(now, || {
                    format!("server: has moved {group} for {member} to {positions:?}")
                });
                self.shares.acknowledged(group, member, positions, &allowed)
            }
            Question::Subscribe { group, subscribe } => {
                let subscribed = Subscribed::from_bytes("subscribed", body).map_err(malformed)?;
                let partition = subscribe.partition;
                self.trace.say(now, || {
                    format!("server: answers {group}, {partition}: {subscribed:?}")
                });
                match subscribe.start {
                    Start::Cursor => {
                        let position = subscribed.position;
                        self.shares.stands(&group, subscribe.partition, position)
                    }
                    _ => Ok(()),
                }
            }
            Question::Describe => {
                let list = ConsumerList::from_bytes("consumers", body).map_err(malformed)?;
                self.described(&list)
            }
        }
    }

    /// Groups stand where their members have acknowledged, by now: whoever
    /// asked hears of it later.
    fn described(&mut self, list: &ConsumerList) -> Result<(), Violation> {
        let consumers = list.consumers.iter();
        for group in consumers.filter(|one| one.kind == ConsumerKind::Group) {
            for stands in &group.partitions {
                let (partition, position) = (stands.partition, stands.position);
                if position.incarnation > Incarnation(0) {
                    self.shares.stands(&group.consumer, partition, position)?;
                }
            }
        }
        Ok(())
    }

    fn refused(&mut self, key: &(LinkId, u64)) {
        match self.questions.remove(key) {
            Some(Question::Settle {
                name,
                sequence,
                asked,
            }) => {
                self.leases.not_settled(&name.0, &asked);
                // Sent again, it is done anew.
                self.settlements.remove(&(name, sequence));
            }
            Some(Question::Moves { .. }) => self.shares.refused_count += 1,
            Some(Question::Join(join)) => self.loosen(&join.consumer, join.member),
            _ => {}
        }
    }
}
