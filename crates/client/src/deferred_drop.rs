//! Deferred drop: the ends of what is the program's, where the client is the last to hold it.
//!
//! What ends may be a program's callback, and its end may take a lock: an
//! interpreter's, most of all. The thread that holds that lock may be waiting for
//! something of the client, and so for the driving thread. So nothing of that
//! kind ends on a thread that drives.

use crate::callbacks;
use memory::fork::ForkSlot;
use memory::thread;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

type End = Box<dyn FnOnce() + Send>;

/// What waits for the thread that there is as long as something does.
struct Line {
    ends: Vec<End>,
    /// Whether there is such a thread.
    is_served: bool,
}

/// Each process has its own: the parent's may be locked at a fork.
static LINE: ForkSlot<Mutex<Line>> = ForkSlot::new();

fn line() -> Arc<Mutex<Line>> {
    let make = || {
        Ok::<_, Infallible>(Mutex::new(Line {
            ends: Vec::new(),
            is_served: false,
        }))
    };
    let Ok(line) = LINE.get_or_make(make);
    line
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().expect("no holder panics here")
}

/// Calls `end`: here, or soon on another thread if this one drives a client
/// or serves its callbacks. It is for what happens seldom.
pub fn deferred_drop(end: impl FnOnce() + Send + 'static) {
    if !callbacks::drives() {
        return end();
    }
    let line = line();
    let mut waiting = lock(&line);
    waiting.ends.push(Box::new(end));
    if waiting.is_served {
        return;
    }
    waiting.is_served = true;
    drop(waiting);
    if thread::spawn("thalweg-end", serve).is_err() {
        serve();
    }
}

fn serve() {
    let line = line();
    loop {
        let mut waiting = lock(&line);
        let ends = std::mem::take(&mut waiting.ends);
        if ends.is_empty() {
            waiting.is_served = false;
            return;
        }
        drop(waiting);
        ends.into_iter().for_each(callbacks::call_here);
    }
}
