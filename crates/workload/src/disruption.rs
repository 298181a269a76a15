//! What is done to a run on purpose, as data: `kill consumer@30%`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after some time.
    Stop,
    /// A consumer waits between messages, a producer likewise, for some time.
    Slow,
    /// Nothing passes between clients and server, for some time.
    Cut,
    /// The token that clients have is good no more, until there is another one, if one comes.
    ExpireToken,
}

/// To whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A producer, from 0.
    Producer(u64),
    /// A consumer, from 0.
    Consumer(u64),
    /// The server.
    Server,
    /// The proxy, or the entrance.
    Proxy,
    /// All connections together.
    Line,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// When this share of all deliveries is received.
    Percent(u64),
    /// So many milliseconds after go.
    After(u64),
}

/// One thing that is done to a run.
///
/// As text: `ACT WHOM@WHEN`, with `for TIME` behind it where it ends: `kill consumer@30%`, `stop producer 3@50% for
/// 5s`, `slow consumer@10% for 10s`, `cut@40% for 5s`, `expire token@2s`. A token that expires may have an end of that:
/// `expire token@2s for 3s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Disruption {
    /// What is done.
    pub act: Act,
    /// To whom.
    pub target: Target,
    /// When.
    pub moment: Moment,
    /// For how many milliseconds. 0 for what has no end.
    pub lasting_ms: u64,
}

/// How long a member that is slow waits before each message, in milliseconds.
pub const SLOW_PAUSE_MS: u64 = 20;

/// The longest time that a disruption may wait or last: an hour.
const LASTING_MS_MAX: u64 = 3_600_000;

/// What a disruption looks like, for errors.
pub(crate) const EXPECTED: &str = "ACT WHOM@WHEN [for TIME], as in \"kill consumer@30%\", \"stop producer 3@50% for 5s\", \
     \"slow consumer@10% for 5s\", \"cut@40% for 5s\", \"expire token@2s\"";

impl Disruption {
    /// Whether its member has no report any more.
    pub fn ends_member(&self) -> bool {
        self.act == Act::Kill && matches!(self.target, Target::Producer(_) | Target::Consumer(_))
    }
}

impl FromStr for Disruption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| format!("{text:?} is no disruption; {EXPECTED}"))
    }
}

fn parse(text: &str) -> Option<Disruption> {
    let (what, when) = text.trim().split_once('@')?;
    let (at, lasting) = match when.split_once(" for ") {
        Some((at, lasting)) => (at, Some(milliseconds(lasting)?)),
        None => (when, None),
    };
    let moment = match at.trim().strip_suffix('%') {
        Some(percent) => Moment::Percent(digits(percent).filter(|percent| *percent <= 100)?),
        None => Moment::After(milliseconds(at)?),
    };
    let words: Vec<&str> = what.split_whitespace().collect();
    let (act, whom) = words.split_first()?;
    let (act, target) = match (*act, whom) {
        ("cut", []) => (Act::Cut, Target::Line),
        ("expire", ["token"]) => (Act::ExpireToken, Target::Line),
        ("kill", whom) => (Act::Kill, target(whom)?),
        ("stop", whom) => (Act::Stop, target(whom)?),
        ("slow", whom) => (Act::Slow, target(whom).filter(is_member)?),
        _ => return None,
    };
    let is_right = match act {
        Act::Stop | Act::Slow | Act::Cut => lasting.is_some(),
        Act::Kill => lasting.is_none(),
        // A new token that comes at once is no end of anything.
        Act::ExpireToken => lasting != Some(0),
    };
    if !is_right {
        return None;
    }
    Some(Disruption {
        act,
        target,
        moment,
        lasting_ms: lasting.unwrap_or(0),
    })
}

fn is_member(target: &Target) -> bool {
    matches!(target, Target::Producer(_) | Target::Consumer(_))
}

fn target(words: &[&str]) -> Option<Target> {
    match words {
        ["server"] => Some(Target::Server),
        ["proxy"] => Some(Target::Proxy),
        ["consumer"] => Some(Target::Consumer(0)),
        ["producer"] => Some(Target::Producer(0)),
        ["consumer", index] => digits(index).map(Target::Consumer),
        ["producer", index] => digits(index).map(Target::Producer),
        _ => None,
    }
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// `5s` or `200ms`.
fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let milliseconds = match text.strip_suffix("ms") {
        Some(count) => digits(count)?,
        None => digits(text.strip_suffix('s')?)?.checked_mul(1000)?,
    };
    (milliseconds <= LASTING_MS_MAX).then_some(milliseconds)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Producer(index) => write!(f, "producer {index}"),
            Self::Consumer(index) => write!(f, "consumer {index}"),
            Self::Server => f.write_str("server"),
            Self::Proxy => f.write_str("proxy"),
            Self::Line => f.write_str("line"),
        }
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.act {
            Act::Kill => write!(f, "kill {}", self.target)?,
            Act::Stop => write!(f, "stop {}", self.target)?,
            Act::Slow => write!(f, "slow {}", self.target)?,
            Act::Cut => f.write_str("cut")?,
            Act::ExpireToken => f.write_str("expire token")?,
        }
        match self.moment {
            Moment::Percent(percent) => write!(f, "@{percent}%")?,
            Moment::After(milliseconds) => write!(f, "@{milliseconds}ms")?,
        }
        match (self.act, self.lasting_ms) {
            (Act::Kill, _) | (Act::ExpireToken, 0) => Ok(()),
            (Act::Stop | Act::Slow | Act::Cut | Act::ExpireToken, ms) => write!(f, " for {ms}ms"),
        }
    }
}

impl From<Disruption> for String {
    fn from(disruption: Disruption) -> Self {
        disruption.to_string()
    }
}

impl TryFrom<String> for Disruption {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for (text, full) in [
            ("kill consumer@30%", "kill consumer 0@30%"),
            ("kill server@5s", "kill server@5000ms"),
            (
                "stop producer 3@50% for 5s",
                "stop producer 3@50% for 5000ms",
            ),
            ("slow consumer 1@0% for 20ms", "slow consumer 1@0% for 20ms"),
            ("cut@40% for 5s", "cut@40% for 5000ms"),
            ("expire token@250ms", "expire token@250ms"),
            ("expire token@2s for 3s", "expire token@2000ms for 3000ms"),
        ] {
            let disruption: Disruption = text.parse().unwrap();
            assert_eq!(disruption.to_string(), full);
            assert_eq!(full.parse(), Ok(disruption));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "kill",
            "kill consumer",
            "kill consumer@101%",
            "kill consumer@-1%",
            "kill consumer@30% for 5s",
            "kill consumer x@30%",
            "kill everybody@30%",
            "stop consumer@30%",
            "slow server@30% for 5s",
            "cut@40%",
            "cut line@40% for 5s",
            "cut@40% for 5",
            "cut@40% for 2h",
            "expire token@2s for 0s",
            "expire tokens@2s",
            "cut@1% for 99999999999999999999s",
        ] {
            assert!(text.parse::<Disruption>().is_err(), "{text}");
        }
    }
}
