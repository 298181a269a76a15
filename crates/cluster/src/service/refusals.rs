//! Connections that came to no link: what is said of them, and how loudly.

use crate::links::{Ended, Reason};
use std::time::{Duration, Instant};

/// One warning is written in this time: anybody can cause as many as they like.
const WARNED_EVERY: Duration = Duration::from_secs(10);
/// Connections that end without a reason are normal for this long. A server whose own attempt is no longer wanted ends it,
/// however far it has come.
const LOST_FOR: Duration = Duration::from_secs(5);
/// Two that are further apart than this have nothing to do with each other.
const LOST_APART: Duration = Duration::from_secs(10);

/// What an operator may hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// Something that may have to be mended, in a sentence.
    Warning(String),
    /// What goes on in a cluster that is well, for one who looks for more.
    Detail(String),
}

/// What came before.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    warned: Option<Instant>,
    /// The first and the last of connections without a reason, none of which is far from the next.
    lost: Option<(Instant, Instant)>,
}

impl Refusals {
    /// What is said of a connection from this address that came to no link.
    pub fn remark(&mut self, address: &str, ended: &Ended, now: Instant) -> Option<Remark> {
        let line = format!("a connection from {address} became no link of the cluster: {ended}");
        if self.is_normal(ended, now) {
            return Some(Remark::Detail(line));
        }
        if self.warned.is_some_and(|at| now - at < WARNED_EVERY) {
            return None;
        }
        self.warned = Some(now);
        Some(Remark::Warning(line))
    }

    /// Both ends of a link dial, and one of the connections goes.
    fn is_normal(&mut self, ended: &Ended, now: Instant) -> bool {
        match ended {
            Ended::Here(goodbye) | Ended::There(goodbye) => {
                matches!(goodbye.reason, Reason::Crossed | Reason::Stands)
            }
            Ended::Lost(_) => {
                let before = self.lost.filter(|(_, last)| now - *last < LOST_APART);
                let first = before.map_or(now, |(first, _)| first);
                self.lost = Some((first, now));
                now - first < LOST_FOR
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Goodbye;

    fn refused(reason: Reason) -> Ended {
        let text = format!("{reason:?}");
        Ended::Here(Goodbye { reason, text })
    }

    fn is_warning(remark: Option<Remark>) -> bool {
        matches!(remark, Some(Remark::Warning(_)))
    }

    #[test]
    fn what_ends_because_both_ends_have_dialled_is_no_warning() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        let text = "it ended the connection before TLS was agreed on".to_owned();
        let there = Ended::There(Goodbye {
            reason: Reason::Crossed,
            text: "crossed".to_owned(),
        });
        for ended in [
            refused(Reason::Crossed),
            refused(Reason::Stands),
            there,
            Ended::Lost(text),
        ] {
            let remark = refusals.remark("tls://n1:7001", &ended, began);
            let Some(Remark::Detail(line)) = remark else {
                panic!("{ended}: {remark:?}");
            };
            let said = format!("tls://n1:7001 became no link of the cluster: {ended}");
            assert!(line.ends_with(&said), "{line}");
        }
    }

    #[test]
    fn what_is_refused_is_a_warning_and_not_each() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        for reason in [Reason::Certificate, Reason::Cluster, Reason::Peer] {
            let mut refusals = Refusals::default();
            assert!(is_warning(refusals.remark("a", &refused(reason), began)));
        }
        let cluster = refused(Reason::Cluster);
        assert!(is_warning(refusals.remark("a", &cluster, began)));
        assert_eq!(refusals.remark("a", &cluster, began), None);
        assert!(is_warning(refusals.remark(
            "a",
            &cluster,
            began + WARNED_EVERY
        )));
    }

    #[test]
    fn connections_that_end_without_a_reason_for_longer_are_a_warning() {
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        let lost = Ended::Lost("it ended".to_owned());
        let mut is_warned = |now| is_warning(refusals.remark("a", &lost, now));
        // One now and then is none of a row.
        for _ in 0..3 {
            assert!(!is_warned(now));
            now += LOST_APART;
        }
        let began = now;
        while now < began + LOST_FOR {
            assert!(!is_warned(now));
            now += Duration::from_secs(1);
        }
        assert!(is_warned(now));
    }
}
