//! The life of an instance: what is done when something happens. Plain state; the drawing is in the README.
//!
//! A keeper hands [`Life::handle`] what happened and carries out what it gives back, in order, and hands in
//! [`Event::Tick`] when [`Life::due`] says so.

use std::time::Duration;

/// The bounds of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How long a start may take.
    pub start: Duration,
    /// How long an orderly end may take before it is forced.
    pub stop: Duration,
    /// Without a connection for so long, it is stopped; `None` is never.
    pub idle: Option<Duration>,
}

/// The wait before the first start after a failure; it doubles up to the longest.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// Who has served for so long has not failed to start.
const GOOD_AFTER: Duration = Duration::from_secs(60);

/// Why a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nobody needs it for now.
    Rest,
    /// Somebody came meanwhile: it is started again.
    Again,
    /// Its time is over, or it was deleted.
    Archive,
    /// The gateway ends.
    Leave,
}

/// Where an instance is in its life. Times are since the gateway's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is no process, and nobody needs one.
    Provisioned,
    /// A process was started, and does not serve yet.
    Starting {
        /// When it is given up.
        until: Duration,
    },
    /// It serves.
    Ready {
        /// Since when.
        since: Duration,
    },
    /// The process was asked to end.
    Stopping {
        /// When it is forced to.
        until: Duration,
        /// What comes then.
        then: Then,
    },
    /// The process ended by itself, or did not start; it is started again.
    Failed {
        /// When.
        again: Duration,
    },
    /// Its files were moved aside. The end.
    Archived,
}

impl State {
    /// Its name, for people and programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Provisioned => "provisioned",
            Self::Starting { .. } => "starting",
            Self::Ready { .. } => "ready",
            Self::Stopping { .. } => "stopping",
            Self::Failed { .. } => "failed",
            Self::Archived => "archived",
        }
    }
}

/// What happens to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was provisioned, or somebody connects.
    Wanted,
    /// Its process says that it serves.
    Serves,
    /// Its process has ended.
    Ended,
    /// For so long nobody has been connected.
    Idle(Duration),
    /// It was deleted, or its time is over.
    Remove,
    /// The gateway ends.
    Leave,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Start a process.
    Start,
    /// Ask the process to end.
    Terminate,
    /// Force it to.
    Kill,
    /// Tell that it serves.
    Announce,
    /// Move its files aside.
    Archive,
}

/// The life of one instance.
#[derive(Debug)]
pub struct Life {
    state: State,
    bounds: Bounds,
    /// Starts on end that came to nothing.
    failures: u32,
}

impl Life {
    /// Of an instance without a process.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            state: State::Provisioned,
            bounds,
            failures: 0,
        }
    }

    /// Of one whose process was found serving.
    pub fn adopted(bounds: Bounds, now: Duration) -> Self {
        Self {
            state: State::Ready { since: now },
            ..Self::new(bounds)
        }
    }

    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// When time matters next.
    pub fn due(&self) -> Option<Duration> {
        match self.state {
            State::Starting { until } | State::Stopping { until, .. } => Some(until),
            State::Failed { again } => Some(again),
            State::Provisioned | State::Ready { .. } | State::Archived => None,
        }
    }

    /// Takes what happened, and says what is to be done about it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Act> {
        use State::*;
        match (self.state, event) {
            (Provisioned, Event::Wanted) => self.start(now),
            (Failed { again }, Event::Tick) if now >= again => self.start(now),
            (Starting { .. }, Event::Serves) => {
                self.state = Ready { since: now };
                vec![Act::Announce]
            }
            (Ready { since }, Event::Ended) => {
                if now >= since + GOOD_AFTER {
                    self.failures = 0;
                }
                self.fail(now)
            }
            (Starting { .. }, Event::Ended) => self.fail(now),
            (Starting { until }, Event::Tick) if now >= until => {
                // It ends at once, and counts as failed then.
                self.state = Starting {
                    until: now + self.bounds.stop,
                };
                vec![Act::Kill]
            }
            (Ready { .. }, Event::Idle(quiet)) if self.is_idle(quiet) => self.stop(now, Then::Rest),
            (Stopping { until, then }, Event::Tick) if now >= until => {
                let until = now + self.bounds.stop;
                self.state = Stopping { until, then };
                vec![Act::Kill]
            }
            (
                Stopping {
                    until,
                    then: Then::Rest,
                },
                Event::Wanted,
            ) => {
                let then = Then::Again;
                self.state = Stopping { until, then };
                Vec::new()
            }
            (Stopping { then, .. }, Event::Ended) => match then {
                Then::Archive => self.archive(),
                Then::Again => self.start(now),
                Then::Rest | Then::Leave => {
                    self.state = Provisioned;
                    Vec::new()
                }
            },
            (Provisioned | Failed { .. }, Event::Remove) => self.archive(),
            (Starting { .. } | Ready { .. }, Event::Remove) => self.stop(now, Then::Archive),
            (Stopping { until, .. }, Event::Remove) => {
                let then = Then::Archive;
                self.state = Stopping { until, then };
                Vec::new()
            }
            (Starting { .. } | Ready { .. }, Event::Leave) => self.stop(now, Then::Leave),
            (Stopping { until, then }, Event::Leave) if then != Then::Archive => {
                let then = Then::Leave;
                self.state = Stopping { until, then };
                Vec::new()
            }
            (Failed { .. }, Event::Leave) => {
                self.state = Provisioned;
                Vec::new()
            }
            // What else there is was overtaken by something.
            _ => Vec::new(),
        }
    }

    fn is_idle(&self, quiet: Duration) -> bool {
        self.bounds.idle.is_some_and(|idle| quiet >= idle)
    }

    fn start(&mut self, now: Duration) -> Vec<Act> {
        self.state = State::Starting {
            until: now + self.bounds.start,
        };
        vec![Act::Start]
    }

    fn stop(&mut self, now: Duration, then: Then) -> Vec<Act> {
        self.state = State::Stopping {
            until: now + self.bounds.stop,
            then,
        };
        vec![Act::Terminate]
    }

    fn fail(&mut self, now: Duration) -> Vec<Act> {
        let wait = AGAIN
            .saturating_mul(1 << self.failures.min(16))
            .min(AGAIN_MAX);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Failed { again: now + wait };
        Vec::new()
    }

    fn archive(&mut self) -> Vec<Act> {
        self.state = State::Archived;
        vec![Act::Archive]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn life() -> Life {
        Life::new(Bounds {
            start: 10 * S,
            stop: 30 * S,
            idle: Some(60 * S),
        })
    }

    #[test]
    fn an_instance_starts_when_it_is_wanted_rests_when_idle_and_starts_again() {
        let mut life = life();
        assert_eq!(life.handle(S, Event::Wanted), [Act::Start]);
        assert_eq!(life.handle(S, Event::Wanted), []);
        assert_eq!(life.handle(2 * S, Event::Serves), [Act::Announce]);
        assert_eq!(life.handle(3 * S, Event::Idle(59 * S)), []);
        assert_eq!(life.handle(4 * S, Event::Idle(60 * S)), [Act::Terminate]);
        assert_eq!(life.handle(5 * S, Event::Ended), []);
        assert_eq!(life.state(), State::Provisioned);
        assert_eq!(life.handle(6 * S, Event::Wanted), [Act::Start]);
    }

    #[test]
    fn one_that_dies_is_started_again_later_and_later_but_soon_if_it_had_served() {
        let mut life = life();
        life.handle(S, Event::Wanted);
        let mut waits = Vec::new();
        let mut now = S;
        for _ in 0..10 {
            life.handle(now, Event::Ended);
            let again = life.due().unwrap();
            waits.push((again - now).as_millis());
            assert_eq!(life.handle(again - S / 10, Event::Tick), []);
            assert_eq!(life.handle(again - S / 10, Event::Wanted), []);
            assert_eq!(life.handle(again, Event::Tick), [Act::Start]);
            now = again;
        }
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000];
        assert_eq!(waits, expected);
        life.handle(now, Event::Serves);
        life.handle(now + GOOD_AFTER, Event::Ended);
        assert_eq!(life.due(), Some(now + GOOD_AFTER + AGAIN));
    }

    #[test]
    fn a_start_or_an_end_that_takes_too_long_is_forced() {
        let mut life = life();
        life.handle(S, Event::Wanted);
        assert_eq!(life.handle(11 * S, Event::Tick), [Act::Kill]);
        assert_eq!(life.handle(12 * S, Event::Ended), []);
        assert_eq!(life.state().name(), "failed");
        life.handle(20 * S, Event::Tick);
        life.handle(20 * S, Event::Serves);
        assert_eq!(life.handle(21 * S, Event::Remove), [Act::Terminate]);
        assert_eq!(life.handle(50 * S, Event::Tick), []);
        assert_eq!(life.handle(51 * S, Event::Tick), [Act::Kill]);
        assert_eq!(life.handle(52 * S, Event::Ended), [Act::Archive]);
        assert_eq!(life.state(), State::Archived);
    }

    /// Whatever happens in whatever order: a process is only started where there is none, archived
    /// files have none, and what was removed is archived once its process has ended.
    #[test]
    fn in_any_order_there_is_one_process_and_archived_files_have_none() {
        crate::chance::seeds(1..2000, |chance| {
            let mut life = life();
            let (mut now, mut runs, mut removed) = (Duration::ZERO, false, false);
            for _ in 0..60 {
                now += Duration::from_millis(chance.below(20_000) as u64);
                let event = match chance.below(7) {
                    0 | 1 => Event::Wanted,
                    2 => Event::Serves,
                    3 => Event::Ended,
                    4 => Event::Idle(S * chance.below(120) as u32),
                    5 if chance.below(5) == 0 => Event::Remove,
                    6 if chance.below(5) == 0 => Event::Leave,
                    _ => Event::Tick,
                };
                if matches!(event, Event::Serves | Event::Ended) && !runs {
                    continue;
                }
                if event == Event::Ended {
                    runs = false;
                }
                removed |= event == Event::Remove;
                for act in life.handle(now, event) {
                    match act {
                        Act::Start => {
                            assert!(!runs && !removed);
                            runs = true;
                        }
                        Act::Archive => assert!(!runs && removed),
                        Act::Terminate | Act::Kill => assert!(runs),
                        Act::Announce => assert!(runs),
                    }
                }
            }
            if removed && !runs {
                assert_eq!(life.state(), State::Archived);
            }
        });
    }
}
