//! The step behind the one that a program reads, asked for before it does.
//!
//! ```text
//!  Asked ──the server gives a step──► Came: what stands of it is asked for ──the program asks for it──► taken
//! ```
//!
//! The first of two goes on from one to the other: the client's thread when the answer comes, or the
//! program's when it waits for the answer.

use crate::blocks::BlockMemory;
use crate::preload::{Layouts, Preloaded, Standing};
use crate::records::table_of;
use client::{Answered, ClientError, Pending, StepsFetched, TopicHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use wire::step::StepTable;

/// A turn's step, and what is read of it before the program asks.
pub(crate) struct Came {
    pub fetched: StepsFetched,
    /// Its table, where something is.
    pub table: Option<Arc<StepTable>>,
    pub layouts: Layouts,
    pub preloaded: Option<Preloaded>,
}

/// A turn that is asked for.
pub(crate) struct Ahead {
    pub turn: u64,
    answered: Answered,
    asked: Arc<Asked>,
}

struct Asked {
    topic: TopicHandle,
    memory: Arc<BlockMemory>,
    /// Held for as long as a request takes to begin, never for an answer.
    state: Mutex<State>,
}

struct State {
    standing: Standing,
    progress: Progress,
}

enum Progress {
    Asked(Pending<StepsFetched>),
    Came(Result<Box<Came>, ClientError>),
    Taken,
}

impl Came {
    /// Begins to read what stands.
    pub fn new(
        topic: &TopicHandle,
        fetched: StepsFetched,
        standing: &Standing,
        memory: &BlockMemory,
    ) -> Self {
        let mut came = Self {
            fetched,
            table: None,
            layouts: Layouts::new(),
            preloaded: None,
        };
        came.preload(topic, standing, memory);
        came
    }

    fn preload(&mut self, topic: &TopicHandle, standing: &Standing, memory: &BlockMemory) {
        if self.table.is_none() {
            let at = self.fetched.given.position.offset;
            let mut records = self.fetched.records.events();
            // A record that cannot be read is told of when the program takes the step.
            let own = records.find(|event| event.id().offset == at);
            self.table = own.and_then(|mut own| table_of(&mut own).ok().map(Arc::new));
        }
        self.preloaded = self
            .table
            .as_ref()
            .and_then(|table| Preloaded::begin(topic, table, standing, memory, &mut self.layouts));
    }
}

impl Ahead {
    pub fn new(
        (topic, memory): (&TopicHandle, &Arc<BlockMemory>),
        turn: u64,
        pending: Pending<StepsFetched>,
        standing: Standing,
    ) -> Self {
        let answered = pending.answered();
        let asked = Arc::new(Asked {
            topic: topic.clone(),
            memory: memory.clone(),
            state: Mutex::new(State {
                standing,
                progress: Progress::Asked(pending),
            }),
        });
        let on_answer = asked.clone();
        answered.on_done(Box::new(move || {
            // Who holds it goes on by himself.
            match on_answer.state.try_lock() {
                Ok(mut state) => on_answer.go_on(&mut state),
                Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => {}
            }
        }));
        Self {
            turn,
            answered,
            asked,
        }
    }

    /// Whether the step has come.
    pub fn has_come(&self) -> bool {
        self.answered.wait(Duration::ZERO)
    }

    /// The step; itself if none comes in that time.
    pub fn wait(self, timeout: Duration) -> Result<Result<Came, ClientError>, Self> {
        if !self.answered.wait(timeout) {
            return Err(self);
        }
        let mut state = self.asked.lock();
        self.asked.go_on(&mut state);
        let progress = std::mem::replace(&mut state.progress, Progress::Taken);
        drop(state);
        Ok(match progress {
            Progress::Came(came) => came.map(|came| *came),
            Progress::Asked(_) | Progress::Taken => Err(ClientError::Closed),
        })
    }

    /// From now on this stands, also of this step.
    pub fn set_standing(&self, standing: Standing) {
        let mut state = self.asked.lock();
        state.standing = standing;
        let State { standing, progress } = &mut *state;
        if let Progress::Came(Ok(came)) = progress {
            came.preload(&self.asked.topic, standing, &self.asked.memory);
        }
        self.asked.go_on(&mut state);
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_on(&self, state: &mut State) {
        let Progress::Asked(pending) = &mut state.progress else {
            return;
        };
        if let Some(answer) = pending.try_get() {
            let came = |fetched| Came::new(&self.topic, fetched, &state.standing, &self.memory);
            state.progress = Progress::Came(answer.map(came).map(Box::new));
        }
    }
}

impl Drop for Ahead {
    /// Its step is given again to who asks for it.
    fn drop(&mut self) {
        if let Progress::Asked(pending) = &self.asked.lock().progress {
            pending.cancel();
        }
    }
}
