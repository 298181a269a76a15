//! Threads that look at credentials of others. They are there while there is something to look at.

use crate::examiner::{Others, unlooked};
use broker::node::JobId;
use broker::{Awaited, Examined, Look, Presented};
use issuers::TIMEOUT;
use net::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// What is looked at at once by commands, and what is by signatures.
const LONG_MAX: usize = 4;
const SHORT_MAX: usize = 2;

/// One that waits for a thread.
struct Waits {
    came: Instant,
    job: JobId,
    presented: Presented,
    awaited: Awaited,
}

/// Looks of one kind.
#[derive(Default)]
struct Lane {
    /// The node bounds how many there are that somebody awaits.
    waiting: VecDeque<Waits>,
    /// Threads that there are.
    count: usize,
}

#[derive(Default)]
struct State {
    lanes: [Lane; Look::ALL.len()],
    done: Vec<(JobId, Examined)>,
    ended: bool,
}

/// See the module.
pub(crate) struct ExamineThreads {
    others: Arc<Others>,
    waker: Waker,
    state: Arc<Mutex<State>>,
}

impl State {
    fn lane(&mut self, look: Look) -> &mut Lane {
        &mut self.lanes[look as usize]
    }

    /// Those of a lane that are not to be looked at are done.
    fn refuse(&mut self, look: Look, is_refused: impl Fn(&Waits) -> bool) {
        let waiting = std::mem::take(&mut self.lane(look).waiting);
        for one in waiting {
            match is_refused(&one) {
                true => self.done.push(one.unlooked()),
                false => self.lane(look).waiting.push_back(one),
            }
        }
    }
}

impl Waits {
    fn unlooked(self) -> (JobId, Examined) {
        let examined = Examined {
            presented: self.presented,
            result: Err(unlooked()),
        };
        (self.job, examined)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no holder panics here")
}

impl ExamineThreads {
    pub fn new(others: Arc<Others>, waker: Waker) -> Self {
        Self {
            others,
            waker,
            state: Arc::default(),
        }
    }

    /// Has something looked at. Does not wait.
    pub fn submit(&self, job: JobId, look: Look, presented: Presented, awaited: Awaited) {
        let most = match look {
            Look::Short | Look::ShortRenewal => SHORT_MAX,
            Look::Long | Look::LongRenewal => LONG_MAX,
        };
        let mut state = locked(&self.state);
        // Clients that are gone have left their places to others.
        state.refuse(look, |one| !one.awaited.is_so());
        let lane = state.lane(look);
        lane.waiting.push_back(Waits {
            came: Instant::now(),
            job,
            presented,
            awaited,
        });
        if lane.count >= most {
            return;
        }
        lane.count += 1;
        drop(state);
        let (shared, others) = (self.state.clone(), self.others.clone());
        let waker = self.waker.clone();
        let main = move || run(&shared, look, &others, &waker);
        // Nobody waits for its end: what it looks at has a time of its own.
        if memory::thread::spawn("thalweg-examine", main).is_err() {
            let mut state = locked(&self.state);
            state.lane(look).count -= 1;
            if state.lane(look).count == 0 {
                state.refuse(look, |_| true);
                drop(state);
                self.waker.wake();
            }
        }
    }

    /// Takes what was found.
    pub fn take_done(&self) -> Vec<(JobId, Examined)> {
        std::mem::take(&mut locked(&self.state).done)
    }
}

impl Drop for ExamineThreads {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.ended = true;
        for lane in &mut state.lanes {
            lane.waiting.clear();
        }
        drop(state);
        self.others.issuers().end();
    }
}

fn run(state: &Mutex<State>, look: Look, others: &Others, waker: &Waker) {
    loop {
        let mut held = locked(state);
        let ended = held.ended;
        let lane = held.lane(look);
        let Some(one) = lane.waiting.pop_front().filter(|_| !ended) else {
            lane.count -= 1;
            return;
        };
        drop(held);
        // Its client is gone, or does not wait any more, or hardly.
        let done = match !one.awaited.is_so() || one.came.elapsed() >= TIMEOUT {
            true => one.unlooked(),
            false => {
                let result = others.examine_until(&one.presented, one.came + TIMEOUT);
                let presented = one.presented;
                (one.job, Examined { presented, result })
            }
        };
        locked(state).done.push(done);
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::UnixTime;
    use issuers::Issuers;
    use net::Reactor;

    /// A command that hangs holds up no signature, and no server that ends.
    #[test]
    fn what_takes_long_holds_up_nobody_else() {
        let file = r#"{"introspection": {"command": ["sh", "-c", "echo $$ >> NUMBERS; sleep 1000"], "maps": []},
            "issuers": {"i": {"audience": "a", "algorithms": ["ES256"], "keys": "k", "maps": []}}}"#;
        let directory = tempfile::tempdir().unwrap();
        let numbers = directory.path().join("numbers");
        let file = file.replace("NUMBERS", &numbers.display().to_string());
        let others = Arc::new(Others::default());
        others.set(Arc::new(Issuers::parse(&file).unwrap()));
        let mut reactor = Reactor::new().unwrap();
        let threads = ExamineThreads::new(others, reactor.waker());
        let waits = Arc::new(());
        let submit = |job: u64, look: Look, proof: &'static str, waits: &Arc<()>| {
            let presented = Presented {
                proof: proof.into(),
                namespace: String::new(),
                now: UnixTime(1),
            };
            threads.submit(JobId(job), look, presented, Awaited::by(waits));
        };
        let next = |reactor: &mut Reactor| loop {
            while reactor.next().is_some() {}
            let mut done = threads.take_done();
            if let Some((job, examined)) = done.pop() {
                assert!(done.is_empty());
                break (job, examined.result.unwrap_err().message);
            }
            reactor.wait(None).unwrap();
        };
        // {"alg":"ES256"} and {"iss":"i"}, by nobody.
        let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJpIn0.AAAA";
        for job in 0..2 * LONG_MAX as u64 {
            let proof = &"abcdefgh"[job as usize..][..1];
            submit(job, Look::Long, proof, &waits);
        }
        submit(100, Look::Short, jwt, &waits);
        let (job, why) = next(&mut reactor);
        assert_eq!(job, JobId(100));
        assert!(why.contains("cannot be read"), "{why}");
        // Nor who is in already.
        submit(101, Look::LongRenewal, jwt, &waits);
        assert_eq!(next(&mut reactor).0, JobId(101));
        // One whose client is gone leaves its place to the next.
        let gone = Arc::new(());
        submit(102, Look::Long, "opaque", &gone);
        drop(gone);
        submit(103, Look::Long, "opaque", &waits);
        let (job, why) = next(&mut reactor);
        assert_eq!(job, JobId(102));
        assert!(why.contains("could not be looked at"), "{why}");
        // What runs ends with it.
        let begun = || std::fs::read_to_string(&numbers).unwrap_or_default();
        while begun().lines().count() < LONG_MAX {
            std::thread::yield_now();
        }
        drop(threads);
        for number in begun().lines() {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat"));
            let runs = stat.is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"));
            assert!(!runs, "{number} runs");
        }
    }
}
