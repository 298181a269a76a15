//! Where a session's listeners lead, once they do.

use crate::place::{Allowed, Place, check};
use crate::plain::Plain;
use crate::session::Refused;
use relay::{Account, Code, Event, Relay};
use std::time::{Duration, Instant};

/// How far a way is.
pub enum Way {
    /// A tunnel.
    Tunnel(Relay),
    /// TCP, without encryption.
    Plain(Plain),
}

/// What has happened on a way since it was looked at last.
#[derive(Default)]
pub struct News {
    /// For the operator.
    pub lines: Vec<String>,
    /// Whether it is over.
    pub is_over: bool,
    /// A number that grows with what passes.
    pub passed: u64,
}

impl Way {
    /// Begins to end it.
    pub fn end(&self) {
        if let Self::Tunnel(relay) = self {
            relay.stopper().stop();
        }
    }

    /// Waits until it has ended, or until then. Not to be called by a task.
    pub fn ended(&self, deadline: Instant) {
        if let Self::Tunnel(relay) = self {
            let left = || deadline.saturating_duration_since(Instant::now());
            while let Some(event) = relay.event(left()) {
                if matches!(event, Event::Ended(_)) {
                    return;
                }
            }
        }
    }

    /// What has happened.
    pub fn news(&self) -> News {
        let mut news = News::default();
        match self {
            Self::Tunnel(relay) => {
                while let Some(event) = relay.event(Duration::ZERO) {
                    match event {
                        Event::Ended(ended) => {
                            news.is_over = true;
                            if let Err(why) = ended {
                                news.lines.push(format!("ends: {why}"));
                            }
                            break;
                        }
                        Event::Joined { peer, .. } => {
                            news.lines.push(format!("joined with {peer}"));
                        }
                        Event::Cut(why) => news.lines.push(format!("cut: {why}")),
                        Event::Refused(why) | Event::Note(why) => news.lines.push(why),
                        Event::Failed(_)
                        | Event::Connected
                        | Event::Bound { .. }
                        | Event::Unbound(_) => {}
                    }
                }
                let account: Account = relay.account();
                news.passed = account.bytes_in + account.bytes_out + account.streams;
            }
            Self::Plain(plain) => {
                news.passed = plain.bytes();
                let refused = plain.refused();
                if refused > 0 {
                    news.lines.push(format!(
                        "{refused} connections that the target did not take"
                    ));
                }
            }
        }
        news
    }
}

/// What an outbound session is led to.
pub enum Goal {
    /// An offer of a relay: what it has printed.
    Offer(Code, Place),
    /// Anything else.
    Places(Vec<Place>),
}

impl Goal {
    /// Reads PROD_LSTN, each of which was checked.
    ///
    /// # Errors
    /// If it cannot be, or may not be dialled. No message has a code in it.
    pub fn read(said: &[String], allowed: &[Allowed]) -> Result<Self, Refused> {
        let mut offer: Option<(Code, Place)> = None;
        let mut places = Vec::new();
        for text in said {
            match text.trim().rsplit_once('@') {
                Some((code, place)) => {
                    let code: Code = code.parse().map_err(|why| {
                        Refused::Invalid(format!("what comes before @ is no code: {why}"))
                    })?;
                    let this = (code, read_place(place, allowed)?);
                    if offer.as_ref().is_some_and(|other| *other != this) {
                        let why = "remote_listeners has several codes; one session is one tunnel";
                        return Err(Refused::Invalid(why.to_owned()));
                    }
                    offer = Some(this);
                }
                None => places.push(read_place(text, allowed)?),
            }
        }
        match (offer, places.is_empty()) {
            (Some((code, place)), true) => Ok(Self::Offer(code, place)),
            (None, _) => Ok(Self::Places(places)),
            (Some(_), false) => {
                let why = "remote_listeners has codes and addresses; it is one or the other";
                Err(Refused::Invalid(why.to_owned()))
            }
        }
    }
}

/// A place that may be dialled.
///
/// # Errors
/// If it is none, or may not be.
pub fn read_place(text: &str, allowed: &[Allowed]) -> Result<Place, Refused> {
    let place: Place = text.parse().map_err(Refused::Invalid)?;
    check(place, allowed).map_err(Refused::Denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_listeners_are_one_offer_or_places_that_may_be_dialled() {
        let allowed: Vec<Allowed> = ["relay.a.org:443", "10.0.0.1:*"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let read = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            Goal::read(&texts, &allowed)
        };
        let code = Code::new([7; 10]).to_text();
        let other = Code::new([8; 10]).to_text();
        let offer = format!("{code}@relay.a.org:443");
        assert!(matches!(read(&[&offer, &offer]), Ok(Goal::Offer(..))));
        assert!(
            matches!(read(&["10.0.0.1:1", "10.0.0.1:2"]), Ok(Goal::Places(two)) if two.len() == 2)
        );
        let elsewhere = format!("{code}@relay.b.org:443");
        assert!(matches!(read(&[&elsewhere]), Err(Refused::Denied(_))));
        assert!(matches!(read(&["10.0.0.2:1"]), Err(Refused::Denied(_))));
        let two = format!("{other}@relay.a.org:443");
        assert!(matches!(read(&[&offer, &two]), Err(Refused::Invalid(_))));
        assert!(matches!(
            read(&[&offer, "10.0.0.1:1"]),
            Err(Refused::Invalid(_))
        ));
        for text in [
            "",
            "@",
            "x@relay.a.org:443",
            "7-olive@relay.a.org:443",
            "relay.a.org",
        ] {
            assert!(matches!(read(&[text]), Err(Refused::Invalid(_))), "{text}");
        }
        let near = format!("{code}x@relay.a.org:443");
        let Err(Refused::Invalid(why)) = read(&[&near]) else {
            panic!("it is no code");
        };
        assert!(!why.contains(&code[4..]), "{why}");
    }
}
