//! `thalweg_drain`: events of a queue, until nothing of it is left.

use crate::boundary::*;
use crate::driver::Connection;
use crate::event::Event;
use crate::queue::Queue;
use client::{Drained, QueueConsumer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// `thalweg_drain`.
pub struct Drain {
    /// Held by the caller that takes an event, also while it waits.
    drain: Mutex<client::Drain>,
    consumer: Arc<QueueConsumer>,
    connection: Arc<Connection>,
}

/// Begins to drain a queue.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_drain_open(
    queue: Option<&Queue>,
    idle_ms: u64,
    drain: Out<'_, *mut Drain>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let queue = given("queue", queue)?;
        let drain = given("drain", drain)?;
        drain.write(give(Drain {
            drain: Mutex::new(client::Drain::new(Duration::from_millis(idle_ms))),
            consumer: queue.consumer().clone(),
            connection: queue.connection().clone(),
        }));
        Ok(())
    })
}

/// The next event, or the end.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_drain_next(
    drain: Option<&Drain>,
    timeout_ms: i64,
    event: Out<'_, *mut Event>,
    ended: Out<'_, i32>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let drain = given("drain", drain)?;
        let event = given("event", event)?;
        let ended = given("ended", ended)?;
        event.write(std::ptr::null_mut());
        ended.write(0);
        // A callback may panic under it: nothing is half done then.
        let mut state = drain.drain.lock().unwrap_or_else(PoisonError::into_inner);
        match state.next(&drain.consumer, limit(timeout_ms))? {
            Drained::Event(next) => {
                event.write(give(Event::leased(next, drain.connection.clone())));
            }
            Drained::Waiting => {}
            Drained::Done => drop(ended.write(1)),
        }
        Ok(())
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_drain_free(drain: Option<Box<Drain>>) {
    quietly(|| drop(drain));
}
