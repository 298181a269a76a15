//! Whether a consumer stands: its connection is up, its subscriptions or its
//! membership are, and the server gives out events. Only then may a pull that
//! found nothing say so.
//!
//! The core notes what hinders a consumer ([`Standing::note`]); a pull
//! asks at the end of its time ([`Standing::verdict`]), and reports what it
//! waits for where its time has no end ([`Standing::report`]).

use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::mailbox::{Liveness, Mailbox};
use crate::options::Waiting;
use memory::Deadline;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use wire::{ErrorCode, ErrorReply};

/// So often a pull without a deadline reports that it waits for the server.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// For so long after a consumer stands again a pull does not say that there is
/// nothing: what the server has for it may be on its way.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// What keeps events from a consumer.
#[derive(Debug, Clone)]
pub(crate) enum Hindrance {
    /// There is no connection.
    Away,
    /// The server ends: it gives out nothing new.
    Ending,
    /// The server was asked for a subscription or membership, which it has not
    /// answered.
    Unanswered,
    /// The server refuses a subscription or membership for now.
    Refused(ErrorReply),
    /// The server was started anew, and waits for members of before until then.
    Recovering { until: Duration },
}

impl Hindrance {
    /// What it means that the server refuses something for now.
    pub fn of_refusal(reply: &ErrorReply) -> Self {
        match reply.code {
            ErrorCode::Draining => Self::Ending,
            _ => Self::Refused(reply.clone()),
        }
    }
}

/// How long a pull waits, in as many looks as its caller likes.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    timeout: Option<Duration>,
    deadline: Deadline,
}

impl Patience {
    /// From now on for `timeout`; `None` is for ever.
    pub fn within(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            deadline: Deadline::within(timeout),
        }
    }

    /// When it ends.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Whether its time has passed.
    pub fn has_passed(&self) -> bool {
        self.deadline.has_passed()
    }
}

/// What one look of a pull gave.
#[derive(Debug)]
pub enum Pulled<T> {
    /// Events, at least one.
    Events(Vec<T>),
    /// The pull's time has passed, and nothing was there: the consumer stood,
    /// and the server had nothing for it.
    Nothing,
    /// This look is over, and the pull's time is not: look again.
    NotYet,
}

/// [`Pulled`], of one event.
pub(crate) enum Look<T> {
    Event(T),
    Nothing,
    NotYet,
}

impl<T> Look<T> {
    /// The event, if there is one.
    pub fn event(self) -> Option<T> {
        match self {
            Self::Event(event) => Some(event),
            Self::Nothing | Self::NotYet => None,
        }
    }
}

#[derive(Default)]
struct State {
    hindrance: Option<Hindrance>,
    /// Since when there is a hindrance, or was, on the core's clock.
    hindered_at: Duration,
    /// Whether the consumer has ever stood: before, nobody could pull.
    has_stood: bool,
    /// Whether the server had a part in it: a program that stayed away, and
    /// joins again, knows of that.
    is_servers: bool,
    /// When the last one ended in which the server had a part, and what it was.
    ended: Option<(Duration, Hindrance)>,
    /// When somebody was notified of it last.
    reported_at: Option<Duration>,
}

/// Whether one consumer stands. Guarded by a lock of its own, which is held
/// for a look; the core alone writes the hindrance.
pub(crate) struct Standing {
    /// The consumer, in words.
    title: String,
    state: Mutex<State>,
}

impl Standing {
    pub fn new(title: String) -> Self {
        Self {
            title,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics here")
    }

    /// For the core: what hinders the consumer now, if something does. True if
    /// the caller that waits is to look again.
    pub fn note(&self, now: Duration, hindrance: Option<Hindrance>) -> bool {
        let mut state = self.lock();
        let (has_stood, is_over) = (state.has_stood, hindrance.is_none());
        state.has_stood |= is_over;
        let was_servers = state.is_servers;
        let is_servers = !matches!(hindrance, None | Some(Hindrance::Unanswered));
        state.is_servers = !is_over && (was_servers || is_servers);
        match (&hindrance, state.hindrance.take()) {
            (None, None) => return false,
            (None, Some(before)) => {
                state.ended = (has_stood && was_servers).then_some((now, before));
            }
            (Some(_), None) => state.hindered_at = now,
            (Some(_), Some(_)) => {}
        }
        state.hindrance = hindrance;
        true
    }

    /// At the end of a pull that found nothing: whether that means that there
    /// was nothing.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], [`ClientError::Recovering`], or what the
    /// server has against it for now.
    pub fn verdict(&self, node: &Liveness) -> Result<(), ClientError> {
        let now = node.now();
        let state = self.lock();
        if let Some(hindrance) = &state.hindrance {
            let recovers = matches!(hindrance, Hindrance::Recovering { .. });
            if recovers && planted(Fault::RecoveringIsNothing) {
                return Ok(());
            }
            return Err(self.error(hindrance, "", now, node));
        }
        match &state.ended {
            Some((at, hindrance)) if now < *at + SETTLED_AFTER => {
                let lately = "it is back, and what it has may be on its way: ";
                Err(self.error(hindrance, lately, now, node))
            }
            _ => Ok(()),
        }
    }

    /// Until when a pull waits for news in one go: for one look, that ends by
    /// `look`. One without a deadline is reported, if it is time.
    pub fn wait_until(
        &self,
        patience: &Patience,
        look: Deadline,
        (mailbox, node): (&Mailbox, &Liveness),
    ) -> Deadline {
        let until = patience.deadline.earlier(look);
        let report = match patience.timeout {
            Some(_) => None,
            None => self.report(mailbox, node),
        };
        report.map_or(until, |again| until.earlier(Deadline::after(again)))
    }

    /// While a pull waits that has no deadline: reports what it waits for, now
    /// and then. Says when to look again, if it waits for the server.
    fn report(&self, mailbox: &Mailbox, node: &Liveness) -> Option<Duration> {
        let now = node.now();
        let mut state = self.lock();
        let since = now.saturating_sub(state.hindered_at);
        let Some(hindrance) = state.hindrance.clone() else {
            let was_told = state.reported_at.take().is_some();
            let ended = state.ended.as_ref().map_or(now, |(at, _)| *at);
            let since = ended.saturating_sub(state.hindered_at);
            drop(state);
            if was_told {
                self.notify(mailbox, since, None);
            }
            return None;
        };
        let before = state.reported_at.unwrap_or(state.hindered_at);
        let due = before + REPORT_EVERY;
        if now < due {
            return Some(due - now);
        }
        state.reported_at = Some(now);
        drop(state);
        let reason = self.error(&hindrance, "", now, node);
        self.notify(mailbox, since, Some(reason));
        Some(REPORT_EVERY)
    }

    fn notify(&self, mailbox: &Mailbox, since: Duration, reason: Option<ClientError>) {
        if let Some(on_waiting) = mailbox.on_waiting() {
            on_waiting(&Waiting {
                consumer: self.title.clone(),
                since,
                reason,
            });
        }
    }

    /// What a pull says of it; `lately` is what is said before, where it is over.
    fn error(
        &self,
        hindrance: &Hindrance,
        lately: &str,
        now: Duration,
        node: &Liveness,
    ) -> ClientError {
        let unreachable = |reason: String| ClientError::Unreachable {
            address: node.address(),
            reason: format!("{lately}{reason}"),
        };
        let title = &self.title;
        match hindrance {
            Hindrance::Away => {
                let silence = node.silence(now).as_secs_f64();
                unreachable(format!(
                    "{title} waits, and the last sign of life came {silence:.1} s ago"
                ))
            }
            Hindrance::Ending => unreachable(format!(
                "the server ends, and {title} waits for the next one"
            )),
            Hindrance::Unanswered => unreachable(format!(
                "the server is connected, and has not let {title} in yet"
            )),
            // It is sought where it is said to be, as one that is away.
            Hindrance::Refused(reply) if reply.code == ErrorCode::NotLeader => {
                unreachable(reply.to_string())
            }
            Hindrance::Refused(reply) if lately.is_empty() => ClientError::Server(reply.clone()),
            Hindrance::Refused(reply) => unreachable(reply.to_string()),
            Hindrance::Recovering { until } => ClientError::Recovering {
                what: title.clone(),
                left: until.saturating_sub(now),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::sync::Arc;

    fn ground() -> (Arc<Mailbox>, Standing) {
        let mailbox = Mailbox::new(Clock::simulated());
        let standing = Standing::new("consumer c of t".to_owned());
        standing.note(Duration::ZERO, None);
        (mailbox, standing)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_that_was_never_hindered_says_that_there_was_nothing() {
        let (mailbox, standing) = ground();
        assert!(standing.verdict(&mailbox.liveness).is_ok());
    }

    #[test]
    fn one_that_has_just_come_back_says_nothing_of_what_there_is() {
        let (mailbox, standing) = ground();
        // That it begins is no coming back.
        let begins = Standing::new("consumer b of t".to_owned());
        begins.note(seconds(9), Some(Hindrance::Unanswered));
        begins.note(seconds(9), None);
        mailbox.clock().set(seconds(9));
        assert!(begins.verdict(&mailbox.liveness).is_ok());
        assert!(standing.note(seconds(10), Some(Hindrance::Away)));
        mailbox.clock().set(seconds(11));
        let error = standing.verdict(&mailbox.liveness).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(error.is_retryable());
        assert!(standing.note(seconds(12), None));
        assert!(!standing.note(seconds(12), None), "that is no news");
        mailbox
            .clock()
            .set(seconds(12) + Duration::from_millis(900));
        let error = standing.verdict(&mailbox.liveness).unwrap_err();
        assert!(error.to_string().contains("it is back"), "{error}");
        mailbox.clock().set(seconds(13));
        assert!(standing.verdict(&mailbox.liveness).is_ok());
    }

    #[test]
    fn a_queue_that_recovers_says_until_when() {
        let (mailbox, standing) = ground();
        let until = seconds(20);
        standing.note(seconds(10), Some(Hindrance::Recovering { until }));
        mailbox.clock().set(seconds(12));
        let error = standing.verdict(&mailbox.liveness).unwrap_err();
        assert!(error.is_retryable());
        let ClientError::Recovering { left, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*left, seconds(8));
    }

    #[test]
    fn who_waits_for_ever_reports_it_every_ten_seconds_and_the_end_once() {
        let (mailbox, standing) = ground();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let hears = reported.clone();
        mailbox.set_on_waiting(Arc::new(move |waiting: &Waiting| {
            hears.lock().unwrap().push(waiting.to_string());
        }));
        assert_eq!(standing.report(&mailbox, &mailbox.liveness), None);
        standing.note(seconds(100), Some(Hindrance::Away));
        for second in 100..135 {
            mailbox.clock().set(seconds(second));
            let again = standing
                .report(&mailbox, &mailbox.liveness)
                .expect("it looks again");
            assert!(again <= REPORT_EVERY);
        }
        standing.note(seconds(135), None);
        mailbox.clock().set(seconds(136));
        assert_eq!(standing.report(&mailbox, &mailbox.liveness), None);
        assert_eq!(standing.report(&mailbox, &mailbox.liveness), None);
        // An outage that nobody was notified of ends in silence as well.
        standing.note(seconds(140), Some(Hindrance::Away));
        mailbox.clock().set(seconds(141));
        standing.report(&mailbox, &mailbox.liveness);
        standing.note(seconds(142), None);
        standing.report(&mailbox, &mailbox.liveness);
        let reported = reported.lock().unwrap();
        assert_eq!(reported.len(), 4, "{reported:?}");
        assert!(reported[0].starts_with("consumer c of t has waited for 10 s: no server"));
        assert!(reported[2].starts_with("consumer c of t has waited for 30 s"));
        assert_eq!(reported[3], "consumer c of t goes on, after 35 s");
    }

    #[test]
    fn a_topic_that_is_at_another_node_is_unreachable_until_it_is_found() {
        let (mailbox, standing) = ground();
        for (code, is_unreachable) in [
            (ErrorCode::NotLeader, true),
            (ErrorCode::LimitExceeded, false),
        ] {
            let reply = ErrorReply::retryable(code, 0, "why");
            standing.note(seconds(1), Some(Hindrance::of_refusal(&reply)));
            let error = standing.verdict(&mailbox.liveness).unwrap_err();
            let unreachable = matches!(error, ClientError::Unreachable { .. });
            assert_eq!(unreachable, is_unreachable, "{error}");
        }
    }
}
