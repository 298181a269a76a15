//! A consumer's cursors: acknowledgements gathered, sent, sent again, and
//! held while a seek of their partition is not answered.

use super::retry;
use super::wire_session::{Request, Route, Timer, Wire};
use crate::consumer::{Acknowledgements, ConsumerFeed};
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::promise::{Promise, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use wire::codec::Codec;
use wire::message::{CursorMove, Method, MoveCursors, MoveMemberCursors};
use wire::record::Position;
use wire::{ErrorCode, ErrorReply, MemberId, PartitionIndex};

/// Somebody waits for everything that was acknowledged to be durable.
struct Flush {
    promise: Promise,
    timeout: Duration,
    deadline: Duration,
}

/// Cursors that were sent and not answered.
struct Moving {
    id: u64,
    positions: BTreeMap<u32, Position>,
    flushes: Vec<Flush>,
    /// Others were held, for which `flushes` wait as well.
    others_held: bool,
    /// Partitions that went to others meanwhile.
    lost: BTreeSet<u32>,
}

/// Who moves cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mover {
    /// An independent consumer.
    Anybody,
    /// A group's member.
    Member(MemberId),
    /// A group's member who is apart: nothing is sent.
    Nobody,
}

pub(super) struct Cursors {
    feed: Arc<ConsumerFeed>,
    mover: Mover,
    /// Why the group has this member no more, if that is for good.
    refused: Option<ClientError>,
    /// Each partition is sent alone: one of them is not the member's any more,
    /// and it is to be found out which.
    one_by_one: bool,
    moving: Option<Moving>,
    flushes: Vec<Flush>,
    /// When what was acknowledged is sent.
    send_at: Option<Duration>,
}

impl Cursors {
    pub fn new(feed: Arc<ConsumerFeed>) -> Self {
        let mover = match feed.options.group {
            None => Mover::Anybody,
            Some(_) => Mover::Nobody,
        };
        Self {
            feed,
            mover,
            refused: None,
            one_by_one: false,
            moving: None,
            flushes: Vec::new(),
            send_at: None,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Acknowledgements> {
        self.feed.acknowledgements()
    }

    fn arm(&self, wire: &mut Wire<'_>, at: Duration) {
        wire.context.arm(at, Timer::Consumer(self.feed.key));
    }

    fn send_later(&mut self, wire: &mut Wire<'_>, wait: Duration) {
        let at = wire.now().saturating_add(wait);
        self.send_at = Some(at);
        self.arm(wire, at);
    }

    /// There are acknowledgements to be sent.
    pub fn acknowledge(&mut self, wire: &mut Wire<'_>) {
        self.send_later(wire, self.feed.options.acknowledge_interval);
    }

    /// They are to be sent at once: somebody waits for it.
    pub fn flush(&mut self, wire: &mut Wire<'_>, timeout: Duration, promise: Promise) {
        if let Some(error) = &self.refused {
            promise.resolve(Err(error.clone()));
            return;
        }
        let deadline = wire.now().saturating_add(timeout);
        self.arm(wire, deadline);
        self.flushes.push(Flush {
            promise,
            timeout,
            deadline,
        });
        self.send(wire);
    }

    /// A seek is answered, or will not be.
    pub fn sought(&mut self, wire: &mut Wire<'_>, partition: PartitionIndex) {
        if self.waiting().end_seek(partition.0) || !self.flushes.is_empty() {
            self.send(wire);
        }
    }

    /// There is a connection.
    pub fn connected(&mut self, wire: &mut Wire<'_>) {
        self.send(wire);
    }

    /// The group's member is there, or is not.
    pub fn set_mover(&mut self, wire: &mut Wire<'_>, member: Option<MemberId>) {
        self.mover = member.map_or(Mover::Nobody, Mover::Member);
        if member.is_some() {
            self.refused = None;
        }
        self.send(wire);
    }

    /// The group will not have this member again: nobody moves what is left.
    pub fn refuse(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        self.refused = Some(error.clone());
        self.fail(wire, error);
    }

    /// Whether acknowledgements of a partition are not durable yet.
    pub fn is_under_way(&self, partition: u32) -> bool {
        let moving = self.moving.as_ref();
        moving.is_some_and(|moving| moving.positions.contains_key(&partition))
            || self.waiting().positions.contains_key(&partition)
    }

    /// What is acknowledged goes out now: a partition waits to be released.
    pub fn hurry(&mut self, wire: &mut Wire<'_>) {
        self.send(wire);
    }

    /// The member is none any more: whatever is not durable is refused.
    pub fn fenced(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        let mut waiting = self.waiting();
        let mut positions = std::mem::take(&mut waiting.positions);
        waiting.scheduled = false;
        drop(waiting);
        if let Some(moving) = self.moving.take() {
            let _ = wire.end_route(moving.id);
            positions.extend(moving.positions);
            self.flushes.extend(moving.flushes);
        }
        self.one_by_one = false;
        self.send_at = None;
        if positions.is_empty() {
            return resolve(&mut self.flushes, &Ok(()));
        }
        let reported = !self.flushes.is_empty();
        resolve(&mut self.flushes, &Err(error.clone()));
        if !reported {
            let mut waiting = self.waiting();
            for partition in positions.into_keys() {
                waiting.fenced.insert(partition, error.clone());
            }
        }
    }

    /// These partitions are not the member's any more. What was acknowledged
    /// of them and is not on its way is not sent, nor is it sent again: should
    /// they come back, they are read from where the group stands, and that is
    /// not to move on beneath the reader.
    pub fn lost(&mut self, partitions: &[u32]) {
        if let Some(moving) = &mut self.moving {
            moving.lost.extend(partitions);
        }
        let mut waiting = self.waiting();
        let positions = partitions
            .iter()
            .filter_map(|partition| waiting.positions.remove(partition).map(|_| *partition));
        let gone: Vec<u32> = positions.collect();
        drop(waiting);
        self.give_up(&gone);
    }

    /// Who waits for what was acknowledged of these partitions waits in vain.
    /// Anybody else is notified that they were lost.
    fn give_up(&mut self, partitions: &[u32]) {
        let Some(partition) = partitions.first() else {
            return;
        };
        let name = &self.feed.name;
        let error = ErrorReply::fatal(
            ErrorCode::MemberFenced,
            format!("partition {partition} went to another member of group {name}"),
        );
        resolve(&mut self.flushes, &Err(ClientError::Server(error)));
    }

    pub fn disconnected(&mut self) {
        if let Some(moving) = self.moving.take() {
            self.put_back(moving);
        }
    }

    /// What was not done waits to be sent again.
    fn put_back(&mut self, moving: Moving) {
        self.flushes.extend(moving.flushes);
        let (gone, positions): (BTreeMap<_, _>, BTreeMap<_, _>) = moving
            .positions
            .into_iter()
            .partition(|(partition, _)| moving.lost.contains(partition));
        let gone: Vec<u32> = gone.into_keys().collect();
        self.give_up(&gone);
        let mut waiting = self.waiting();
        for (partition, position) in positions {
            // A seek is not undone by what was acknowledged before it.
            if waiting.sought.contains(&partition) {
                continue;
            }
            let newest = waiting.positions.entry(partition).or_insert(position);
            *newest = (*newest).max(position);
        }
        waiting.scheduled = true;
    }

    fn send(&mut self, wire: &mut Wire<'_>) {
        if self.moving.is_some() || !wire.is_up() || self.mover == Mover::Nobody {
            return;
        }
        self.send_at = None;
        let mut one_by_one = self.one_by_one;
        let mut waiting = self.waiting();
        let mut positions = waiting.take();
        if one_by_one && let Some((first, _)) = positions.first_key_value() {
            let others = positions.split_off(&(first + 1));
            one_by_one = !others.is_empty();
            waiting.positions.extend(others);
        }
        let others_held = !waiting.positions.is_empty();
        drop(waiting);
        self.one_by_one = one_by_one;
        if positions.is_empty() || planted(Fault::NoAcknowledgement) {
            if !others_held {
                resolve(&mut self.flushes, &Ok(()));
            }
            return;
        }
        let cursors = MoveCursors {
            consumer: self.feed.name.clone(),
            how: CursorMove::Acknowledge,
            positions: positions
                .iter()
                .map(|(partition, position)| (PartitionIndex(*partition), *position))
                .collect(),
        };
        let (method, body) = self.mover.request(cursors);
        let request = Request {
            method,
            topic: self.feed.topic.id,
            leader_epoch: 0,
            remaining: retry::REQUEST_TIMEOUT,
            body: &body,
            payload: Vec::new(),
            is_quiet: false,
        };
        let route = Route::Cursors {
            consumer: self.feed.key,
        };
        let id = wire.request(route, request);
        self.moving = Some(Moving {
            id,
            positions,
            flushes: std::mem::take(&mut self.flushes),
            others_held,
            lost: BTreeSet::new(),
        });
    }

    /// The answer to MoveCursors.
    pub fn moved(&mut self, wire: &mut Wire<'_>, outcome: Result<Reply, ErrorReply>) {
        let Some(mut moving) = self.moving.take() else {
            return;
        };
        match outcome {
            Ok(_) if moving.others_held => self.flushes.extend(moving.flushes),
            Ok(_) => resolve(&mut moving.flushes, &Ok(())),
            Err(error) if error.retryable => {
                self.put_back(moving);
                return self.send_later(wire, retry::STANDING.after(&error));
            }
            Err(error) if self.is_of_one(&error) && moving.positions.len() > 1 => {
                self.put_back(moving);
                self.one_by_one = true;
                return self.send(wire);
            }
            Err(error) if self.is_of_one(&error) => {
                let error = ClientError::Server(error);
                if moving.flushes.is_empty() {
                    let mut waiting = self.waiting();
                    for partition in moving.positions.into_keys() {
                        // It is notified that it was lost, and may have it again.
                        if !moving.lost.contains(&partition) {
                            waiting.fenced.insert(partition, error.clone());
                        }
                    }
                }
                resolve(&mut moving.flushes, &Err(error));
            }
            Err(error) => {
                let is_storage = error.code == ErrorCode::StorageFailed;
                let error = ClientError::Server(error);
                let reported = !moving.flushes.is_empty();
                resolve(&mut moving.flushes, &Err(error.clone()));
                if is_storage {
                    // Good once the server's disk is: the next flush or
                    // acknowledgement sends it again, and none before.
                    self.put_back(moving);
                }
                let mut waiting = self.waiting();
                waiting.scheduled = false;
                if !reported {
                    waiting.failure = Some(error);
                }
            }
        }
        let due = self.send_at.is_some_and(|at| at <= wire.now());
        if !self.flushes.is_empty() || due || self.one_by_one {
            self.send(wire);
        }
    }

    /// Whether the server refuses for one partition that is not the member's
    /// any more, which is no matter of the others.
    fn is_of_one(&self, error: &ErrorReply) -> bool {
        self.mover != Mover::Anybody && error.code == ErrorCode::MemberFenced
    }

    /// Time has passed.
    pub fn timer(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        let moving = self.moving.iter_mut();
        let late: Vec<Flush> = moving
            .flat_map(|moving| moving.flushes.extract_if(.., |one| one.deadline <= now))
            .chain(self.flushes.extract_if(.., |one| one.deadline <= now))
            .collect();
        for flush in late {
            let what = self.describe(wire, flush.timeout);
            flush.promise.resolve(Err(ClientError::Timeout { what }));
        }
        if self.send_at.is_some_and(|at| at <= now) {
            self.send(wire);
        }
    }

    /// What a flush waits for.
    fn describe(&self, wire: &Wire<'_>, timeout: Duration) -> String {
        let held: Vec<u32> = self.waiting().seeks.keys().copied().collect();
        let held = match held.is_empty() {
            true => String::new(),
            false => format!(", behind seeks of partitions {held:?} that are not answered"),
        };
        format!(
            "the cursors of consumer {} of {}{held} ({:.1} s); {}",
            self.feed.name,
            self.feed.topic.name,
            timeout.as_secs_f64(),
            wire.context.liveness.describe(wire.now())
        )
    }

    /// The consumer's handle is gone: what was acknowledged since the last
    /// cursors goes behind them, though nobody is left to hear the answer.
    pub fn close(&mut self, wire: &mut Wire<'_>) {
        if let Some(moving) = self.moving.take() {
            self.flushes.extend(moving.flushes);
        }
        self.send(wire);
    }

    /// The consumer ends.
    pub fn fail(&mut self, wire: &mut Wire<'_>, error: &ClientError) {
        if let Some(moving) = self.moving.take() {
            // The answer finds nobody.
            let _ = wire.end_route(moving.id);
            self.flushes.extend(moving.flushes);
        }
        resolve(&mut self.flushes, &Err(error.clone()));
    }
}

impl Mover {
    /// How he asks for it.
    fn request(self, moves: MoveCursors) -> (Method, Vec<u8>) {
        match self {
            Self::Member(member) => {
                let moves = MoveMemberCursors { member, moves };
                (Method::MoveMemberCursors, moves.to_bytes())
            }
            Self::Anybody | Self::Nobody => (Method::MoveCursors, moves.to_bytes()),
        }
    }
}

fn resolve(flushes: &mut Vec<Flush>, outcome: &Result<(), ClientError>) {
    for flush in flushes.drain(..) {
        let outcome = outcome.clone();
        flush.promise.resolve(outcome.map(|()| Reply::default()));
    }
}
