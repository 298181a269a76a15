//! Parts whose data stays with the rank that wrote them, until a reader wants it.
//!
//! ```text
//!           wanted, or the writer leaves              acknowledged
//!   Kept ────────────────────────────────► Sending ─────────────────► gone: the server has it
//!    │                                        │ fails, or there is no room on the way: Kept again,
//!    │                                        │ and asked for again
//!    └── dropped, retention took it, or it is released and the room is needed ──► gone
//! ```
//!
//! A thread of the writer waits for what the server wants, and sends it, while the program computes.

use crate::error::StepError;
use crate::faults::{Fault, planted};
use bytes::Bytes;
use client::{Answered, AtBudget, ClientError, Event, Producer, TopicHandle};
use memory::Deadline;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::message::{HoldParts, PartsWanted};
use wire::step::{Part, PartData, STEP_VERSION};
use wire::{Codec, Rank, Run, Step};

/// How long what has failed is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long what found no room on the way is not tried again.
const NO_ROOM_RETRY_AFTER: Duration = Duration::from_millis(10);

/// Where the data of a part that is here goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Sending,
}

struct KeptPart {
    data: Vec<Bytes>,
    bytes: u64,
    state: State,
}

/// Whether the thread goes on.
enum Life {
    Serving,
    /// The server wants nothing of it any more, or does not know it: why.
    Failed(ClientError),
    Ended,
}

struct Kept {
    parts: BTreeMap<Step, KeptPart>,
    bytes: u64,
    /// Of steps before this one nothing is kept.
    from: Step,
    released_before: Step,
    left_before: Step,
    life: Life,
    /// The request that the thread waits for.
    asked: Option<Answered>,
}

/// What the writer and its thread share.
struct Shared {
    topic: TopicHandle,
    producer: Arc<Producer>,
    partition: u32,
    run: Run,
    rank: Rank,
    bytes_max: u64,
    session_timeout: Duration,
    kept: Mutex<Kept>,
    /// Signalled when there is more room, or less to do.
    changed: Condvar,
}

/// What a rank keeps of its parts. Dropped, it is lost.
pub(crate) struct Held(Arc<Shared>);

/// Whose parts they are, and for how long.
pub(crate) struct Holder {
    pub topic: TopicHandle,
    pub producer: Arc<Producer>,
    pub partition: u32,
    pub run: Run,
    pub rank: Rank,
    pub bytes_max: u64,
    pub session_timeout: Duration,
}

impl Held {
    /// Begins to serve what will be kept.
    pub fn begin(holder: Holder) -> Result<Self, StepError> {
        let shared = Arc::new(Shared {
            topic: holder.topic,
            producer: holder.producer,
            partition: holder.partition,
            run: holder.run,
            rank: holder.rank,
            bytes_max: holder.bytes_max,
            session_timeout: holder.session_timeout,
            kept: Mutex::new(Kept {
                parts: BTreeMap::new(),
                bytes: 0,
                from: Step(0),
                released_before: Step(0),
                left_before: Step(0),
                life: Life::Serving,
                asked: None,
            }),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        let thread = memory::thread::spawn("thalweg-held", move || own.serve());
        thread.map_err(|error| StepError::Invalid(format!("the thread of held parts: {error}")))?;
        Ok(Self(shared))
    }

    /// # Errors
    /// A part that is longer than all there is.
    pub fn check_length(&self, bytes: u64) -> Result<(), StepError> {
        let bytes_max = self.0.bytes_max;
        match bytes <= bytes_max {
            true => Ok(()),
            false => Err(StepError::Invalid(format!(
                "a part of {bytes} bytes; the budget of held parts has {bytes_max}"
            ))),
        }
    }

    /// Waits until there is room for a part: steps that are released make it, oldest first.
    ///
    /// # Errors
    /// A deadline, which says which steps are in the way; why nothing can be sent any more.
    pub fn make_room(&self, bytes: u64, deadline: Deadline) -> Result<(), StepError> {
        let shared = &*self.0;
        let mut kept = shared.lock();
        loop {
            if kept.has_room(bytes, shared.bytes_max)? {
                return Ok(());
            }
            if deadline.has_passed() {
                let what = format!(
                    "room for {bytes} bytes in the budget of held parts of rank {}: {}",
                    shared.rank,
                    kept.describe(shared.bytes_max)
                );
                return Err(ClientError::Timeout { what }.into());
            }
            let left = deadline.left().min(RETRY_AFTER);
            let waited = shared.changed.wait_timeout(kept, left);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether there is room for a part, or can be made now.
    ///
    /// # Errors
    /// Why nothing can be sent any more.
    pub fn has_room(&self, bytes: u64) -> Result<bool, StepError> {
        self.0.lock().has_room(bytes, self.0.bytes_max)
    }

    /// That the run is over for the rank, if nothing can be sent any more.
    pub fn lost(&self) -> Option<StepError> {
        let Life::Failed(error) = &self.0.lock().life else {
            return None;
        };
        let rank = self.0.rank;
        Some(StepError::RunEnded {
            run: self.0.run,
            reason: format!("rank {rank} can send nothing more of what it keeps: {error}"),
        })
    }

    /// Keeps a part, which is about to be announced.
    pub fn keep(&self, step: Step, data: Vec<Bytes>, bytes: u64) {
        let mut kept = self.0.lock();
        let state = State::Kept;
        kept.bytes += bytes;
        kept.parts.insert(step, KeptPart { data, bytes, state });
    }

    /// Keeps a part no more: its step was dropped, or could not be announced.
    pub fn forget(&self, step: Step) {
        self.0.lock().remove(step);
        self.0.changed.notify_all();
    }

    /// Sends all that readers may want yet, and waits for it. Says which steps.
    pub fn send_left(&self, deadline: Deadline) -> Result<Vec<Step>, StepError> {
        let left: Vec<Step> = {
            let kept = self.0.lock();
            let steps = kept.parts.keys().copied();
            steps.filter(|step| *step >= kept.released_before).collect()
        };
        let sends = !planted(Fault::SendNothingLeft);
        for step in left.iter().filter(|_| sends) {
            self.0.clone().send(*step);
        }
        let mut kept = self.0.lock();
        while left.iter().any(|step| kept.parts.contains_key(step)) {
            if let Life::Failed(error) = &kept.life {
                return Err(error.clone().into());
            }
            if deadline.has_passed() || !sends {
                let what = format!("held parts to be sent: {}", kept.describe(self.0.bytes_max));
                return Err(ClientError::Timeout { what }.into());
            }
            let wait = deadline.left().min(NO_ROOM_RETRY_AFTER);
            let waited = self.0.changed.wait_timeout(kept, wait);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
            let failed = left.iter().find(|step| {
                let part = kept.parts.get(step);
                part.is_some_and(|part| part.state == State::Kept)
            });
            if let Some(step) = failed.copied() {
                drop(kept);
                self.0.clone().send(step);
                kept = self.0.lock();
            }
        }
        Ok(left)
    }

    /// Keeps nothing any more, and says so to the server.
    pub fn leave(&self, timeout: Duration) {
        if self.end() {
            let mut hold = self.0.request(&self.0.lock());
            hold.from = Step(u64::MAX);
            let mut told = self.0.topic.begin_hold_parts(&hold);
            // If it is not told, it finds out when the session timeout is over.
            drop(told.wait_for(Some(timeout)));
        }
    }

    /// Ends the thread. Says whether it was there.
    fn end(&self) -> bool {
        let mut kept = self.0.lock();
        let was = std::mem::replace(&mut kept.life, Life::Ended);
        kept.parts.clear();
        kept.bytes = 0;
        kept.wake();
        self.0.changed.notify_all();
        matches!(was, Life::Serving)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

impl Kept {
    fn remove(&mut self, step: Step) {
        if let Some(part) = self.parts.remove(&step) {
            self.bytes -= part.bytes;
        }
    }

    /// Has the thread tell the server what has changed.
    fn wake(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.cancel();
        }
    }

    /// Whether there is room for a part, once what nobody is known to want is given up. There is none
    /// where nothing can be sent: a step would be committed that nobody can be given.
    fn has_room(&mut self, bytes: u64, bytes_max: u64) -> Result<bool, StepError> {
        if let Life::Failed(error) = &self.life {
            return Err(error.clone().into());
        }
        self.give_up_until(bytes_max.saturating_sub(bytes));
        Ok(self.bytes.saturating_add(bytes) <= bytes_max)
    }

    /// Gives up what nobody is known to want, until no more than so many bytes are here.
    fn give_up_until(&mut self, bytes: u64) {
        let before = match planted(Fault::FreeUnreleased) {
            true => Step(u64::MAX),
            false => self.released_before,
        };
        let mut is_less = false;
        while self.bytes > bytes {
            let first = self.parts.first_key_value();
            let Some((step, part)) = first.map(|(step, part)| (*step, part)) else {
                break;
            };
            if step >= before || part.state == State::Sending {
                break;
            }
            self.remove(step);
            self.from = self.from.max(Step(step.0 + 1));
            is_less = true;
        }
        if is_less {
            self.wake();
        }
    }

    /// Of what nobody can ask for, nothing is kept.
    fn learn(&mut self, wanted: &PartsWanted) {
        self.released_before = wanted.released_before;
        self.left_before = wanted.left_before;
        let left = self.parts.range(..wanted.left_before);
        let left: Vec<Step> = left.map(|(step, _)| *step).collect();
        left.into_iter().for_each(|step| self.remove(step));
    }

    /// For people.
    fn describe(&self, bytes_max: u64) -> String {
        let steps = (self.parts.first_key_value(), self.parts.last_key_value());
        let (Some((first, _)), Some((last, _))) = steps else {
            return format!("none of {bytes_max} bytes are taken");
        };
        let why = match self.released_before.cmp(first) {
            std::cmp::Ordering::Greater => "is being sent",
            _ => "is not released by the readers that are attached, or not committed",
        };
        format!(
            "steps {first} to {last} have {} of {bytes_max} bytes, and step {first} {why}",
            self.bytes
        )
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, kept: &Kept) -> HoldParts {
        let sending = kept.parts.iter();
        let sending = sending.filter(|(_, part)| part.state == State::Sending);
        HoldParts {
            run: self.run,
            rank: self.rank,
            producer: self.producer.id().unwrap_or_default(),
            epoch: self.producer.epoch().unwrap_or_default(),
            session_timeout_ms: crate::waiting::milliseconds(self.session_timeout),
            from: kept.from,
            sending: sending.map(|(step, _)| *step).collect(),
            released_before: kept.released_before,
            left_before: kept.left_before,
        }
    }

    /// The thread: waits for what is wanted, and sends it.
    fn serve(self: Arc<Self>) {
        loop {
            let mut asked = {
                let mut kept = self.lock();
                if !matches!(kept.life, Life::Serving) {
                    return;
                }
                let asked = self.topic.begin_hold_parts(&self.request(&kept));
                kept.asked = Some(asked.answered());
                asked
            };
            let Some(answer) = asked.wait_for(None) else {
                continue;
            };
            let mut kept = self.lock();
            kept.asked = None;
            match answer {
                Ok(wanted) => {
                    kept.learn(&wanted);
                    drop(kept);
                    self.changed.notify_all();
                    // All of them: a short part finds room where a long one does not.
                    let wanted = wanted.steps.into_iter();
                    let unsent = wanted.filter(|step| !self.clone().send(*step));
                    if unsent.count() > 0 {
                        self.wait_for_change(NO_ROOM_RETRY_AFTER);
                    }
                }
                // What it is to say has changed.
                Err(ClientError::Cancelled) => {}
                Err(error) if error.is_retryable() || error.is_timeout() => {
                    drop(kept);
                    self.wait_for_change(RETRY_AFTER);
                }
                Err(error) => {
                    kept.life = Life::Failed(error);
                    self.changed.notify_all();
                    return;
                }
            }
        }
    }

    /// Waits until something has been sent, or so long.
    fn wait_for_change(&self, moment: Duration) {
        let waited = self.changed.wait_timeout(self.lock(), moment);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends a part's data, if it is here and is not under way. Never blocks. Says whether there was
    /// room for it on the way.
    fn send(self: Arc<Self>, step: Step) -> bool {
        let data = {
            let mut kept = self.lock();
            let part = kept.parts.get_mut(&step);
            let Some(part) = part.filter(|part| part.state == State::Kept) else {
                return true;
            };
            part.state = State::Sending;
            part.data.clone()
        };
        let part = Part {
            version: STEP_VERSION,
            run: self.run,
            step,
            rank: self.rank,
            data: PartData::Sent,
            attributes: Vec::new(),
            variables: Vec::new(),
        };
        let event = Event {
            metadata: &part.to_bytes(),
            data,
            partition: Some(self.partition),
            ..Event::default()
        };
        // Who waits here tells the server no more that it is there.
        match self.producer.push_or(event, AtBudget::Fail) {
            Ok(pushed) => {
                let (own, outcome) = (Arc::downgrade(&self), pushed.clone());
                pushed.on_done(Box::new(move || {
                    if let (Some(own), Some(outcome)) = (own.upgrade(), outcome.try_get()) {
                        own.was_sent(step, outcome.map(drop));
                    }
                }));
                true
            }
            Err(ClientError::Budget(_)) => {
                if let Some(part) = self.lock().parts.get_mut(&step) {
                    part.state = State::Kept;
                }
                false
            }
            // Its producer has failed, and takes nothing more.
            Err(error) => {
                let mut kept = self.lock();
                if let Some(part) = kept.parts.get_mut(&step) {
                    part.state = State::Kept;
                }
                if matches!(kept.life, Life::Serving) {
                    kept.life = Life::Failed(error);
                }
                drop(kept);
                self.changed.notify_all();
                true
            }
        }
    }

    fn was_sent(&self, step: Step, outcome: Result<(), ClientError>) {
        let mut kept = self.lock();
        match outcome {
            Ok(()) => kept.remove(step),
            Err(error) => {
                if let Some(part) = kept.parts.get_mut(&step) {
                    part.state = State::Kept;
                }
                let is_for_now = error.is_retryable() || error.is_timeout();
                if !is_for_now && matches!(kept.life, Life::Serving) {
                    kept.life = Life::Failed(error);
                }
                kept.wake();
            }
        }
        self.changed.notify_all();
    }
}
