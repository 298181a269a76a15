//! What is open of a spread topic follows the partitions that are added to it.
//!
//! A producer or a consumer of a spread topic has a lane or a handle for each of its partitions. The core looks at topics in use now and
//! then, and programs ask by [`crate::TopicHandle::refresh`]. When the definition is seen to have more partitions, the topic's state calls
//! who follows it; that one has the partitions opened, and what is open of them added, on the runtime's thread. What fails is tried again
//! at the next look.
//!
//! ```text
//!  description ─► TopicState ─► follow ─► partitions opened ─► lanes, handles opened ─► added ─► answer to all who wait
//!                                  └── under way already: waits for that ──────────────────────────┘
//! ```

use crate::core::Opening;
use crate::deferred_drop::deferred_drop;
use crate::error::ClientError;
use crate::mailbox::Command;
use crate::promise::{Pending, Promise, Reply};
use crate::topic_handle::TopicHandle;
use crate::topic_state::OnGrown;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use topic::Spread;
use wire::ErrorCode;

/// What has something open of each partition of a spread topic.
pub(crate) trait Follows: Sized + Send + Sync + 'static {
    /// How it follows the topic, if it does.
    fn following(&self) -> Option<&Following>;

    /// Of how many partitions it has something open: of the first ones.
    fn known(&self) -> usize;

    /// Opens what it has of these partitions, which are behind those that it knows, and adds it. Does not wait.
    fn add(this: &Arc<Self>, parts: &[TopicHandle]) -> Pending<()>;
}

/// How something follows a spread topic, in one process.
pub(crate) struct Following {
    pub topic: TopicHandle,
    state: Mutex<State>,
    /// Held for as long as this is: the topic's state has a weak one.
    on_grown: OnceLock<Arc<OnGrown>>,
}

#[derive(Default)]
struct State {
    /// Those who wait for what is under way; `None` if nothing is.
    waiting: Option<Vec<Promise>>,
    /// Why the partitions that were added last could not be opened.
    failure: Option<ClientError>,
}

impl Following {
    pub fn new(topic: TopicHandle) -> Self {
        Self {
            topic,
            state: Mutex::default(),
            on_grown: OnceLock::new(),
        }
    }

    /// From now on `follower` gets what partitions are added, if it follows its topic.
    pub fn start<F: Follows>(follower: &Arc<F>) {
        let Some(following) = follower.following() else {
            return;
        };
        let weak = Arc::downgrade(follower);
        let on_grown: Arc<OnGrown> = Arc::new(move || follow(&weak));
        let topic = &following.topic;
        topic.state.add_follower(&on_grown);
        // It is started once.
        let _ = following.on_grown.set(on_grown);
        if let Ok(session) = topic.driver.session() {
            let mailbox = &session.mailbox;
            mailbox.send(Command::Open {
                opening: Box::new(Opening::Topic {
                    topic: topic.state.clone(),
                    key: mailbox.next_key(),
                }),
                timeout: topic.driver.request_timeout(),
                promise: Promise::new(mailbox),
            });
        }
    }

    /// Why partitions that were added could not be opened, as long as that is so.
    pub fn failure(&self) -> Option<ClientError> {
        self.lock().failure.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    fn is_done(&self, outcome: Result<(), ClientError>) {
        let mut state = self.lock();
        // Who adds a partition makes it a moment later.
        let is_due = |error: &ClientError| error.code() == Some(ErrorCode::UnknownTopic);
        state.failure = outcome.err().filter(|error| !is_due(error));
        let waiting = state.waiting.take().unwrap_or_default();
        drop(state);
        for promise in waiting {
            promise.resolve(Ok(Reply::default()));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.is_done(Ok(()));
    }
}

fn follow<F: Follows>(weak: &Weak<F>) -> Pending<()> {
    let Some(follower) = weak.upgrade() else {
        return Pending::ready(());
    };
    let followed = begin(&follower);
    release(follower);
    followed.unwrap_or_else(|| Pending::ready(()))
}

/// Begins to add what is missing; `None` if nothing is, or nothing can be done.
fn begin<F: Follows>(follower: &Arc<F>) -> Option<Pending<()>> {
    let following = follower.following()?;
    let topic = &following.topic;
    if count_of(topic) <= follower.known() {
        return None;
    }
    let session = topic.driver.session().ok()?;
    let (mailbox, timeout) = (&session.mailbox, topic.driver.request_timeout());
    let promise = Promise::new(mailbox);
    let what = format!("partitions that were added to {}", topic.name());
    let answer = Pending::new(promise.clone(), what, timeout, |_| Ok(()));
    let mut state = following.lock();
    let is_first = state.waiting.is_none();
    state.waiting.get_or_insert_default().push(promise);
    drop(state);
    if !is_first {
        return Some(answer);
    }
    run(follower, following);
    Some(answer)
}

/// How many partitions the topic has, as far as this client knows.
fn count_of(topic: &TopicHandle) -> usize {
    topic.definition_now().spread().map_or(0, Spread::count) as usize
}

/// Adds what is missing, then what has come meanwhile, then answers all who wait.
fn run<F: Follows>(follower: &Arc<F>, following: &Following) {
    let topic = &following.topic;
    let session = match topic.driver.session() {
        Ok(session) => session,
        Err(error) => return following.is_done(Err(error)),
    };
    let (mailbox, timeout) = (&session.mailbox, topic.driver.request_timeout());
    let before = follower.known();
    let weak = Arc::downgrade(follower);
    let opened = topic.clone().with_parts();
    let added = opened.and_then(mailbox, timeout, {
        let weak = weak.clone();
        move |topic| {
            let (topic, follower) = match (topic, weak.upgrade()) {
                (Ok(topic), Some(follower)) => (topic, follower),
                (Err(error), _) => return Pending::failed(error),
                (_, None) => return Pending::failed(ClientError::Closed),
            };
            let parts = topic.parts().unwrap_or_default();
            let new = parts.get(follower.known()..).unwrap_or_default();
            let added = F::add(&follower, new);
            release(follower);
            added
        }
    });
    added.hand_to(move |outcome| {
        if let Some(follower) = weak.upgrade() {
            if let Some(following) = follower.following() {
                let known = follower.known();
                let is_behind = known > before && known < count_of(&following.topic);
                match outcome {
                    Ok(()) if is_behind => run(&follower, following),
                    outcome => following.is_done(outcome),
                }
            }
            release(follower);
        }
    });
}

/// Lets go of what may be the last one of it, on a thread that drives: what is the program's ends elsewhere.
pub(crate) fn release<T: Send + Sync + 'static>(held: Arc<T>) {
    if let Some(last) = Arc::into_inner(held) {
        deferred_drop(move || drop(last));
    }
}
