//! The ends of what is the program's, where the client is the last to hold it.
//!
//! What ends may be a program's callback, and its end may take a lock: an
//! interpreter's, most of all. Whoever holds that lock may be waiting for
//! something of the client, and so for whoever drives it. So nothing of that
//! kind ends on a thread that drives.

use crate::watch;
use memory::fork;
use std::sync::{Mutex, MutexGuard};
use std::thread::Builder;

type End = Box<dyn FnOnce() + Send>;

/// What waits for the thread that there is as long as something does.
struct Line {
    ends: Vec<End>,
    /// The process that has the thread; in a forked child there is none.
    served_in: Option<u64>,
}

static LINE: Mutex<Line> = Mutex::new(Line {
    ends: Vec::new(),
    served_in: None,
});

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().expect("no holder panics here")
}

/// Calls `end`: here, or soon on another thread if this one drives a client
/// or serves its callbacks. It is for what happens seldom.
pub fn let_go(end: impl FnOnce() + Send + 'static) {
    if !watch::drives() {
        return end();
    }
    let mut line = line();
    line.ends.push(Box::new(end));
    let generation = fork::generation();
    if line.served_in == Some(generation) {
        return;
    }
    line.served_in = Some(generation);
    drop(line);
    let thread = Builder::new().name("thalweg-end".to_owned());
    if thread.spawn(serve).is_err() {
        serve();
    }
}

fn serve() {
    loop {
        let mut line = line();
        let ends = std::mem::take(&mut line.ends);
        if ends.is_empty() {
            line.served_in = None;
            return;
        }
        drop(line);
        ends.into_iter().for_each(watch::call_here);
    }
}
