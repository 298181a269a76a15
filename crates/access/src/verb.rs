//! What is done with a name.

use std::fmt;
use std::str::FromStr;

/// What is done with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verb {
    /// Consume and fetch events, and move the cursors of a consumer.
    Read = 1,
    /// Append events.
    Write = 2,
    /// Make, change and delete topics, and delete consumers.
    Manage = 4,
    /// Whatever is about the server itself: its state, its end.
    Admin = 8,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Manage, Self::Admin];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|verb| verb.name() == text);
        found.ok_or_else(|| format!("{text:?} is no verb; there are {}", Verbs::ALL))
    }
}

/// A set of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verbs(u8);

impl Verbs {
    /// Every verb.
    pub const ALL: Self = Self(15);
    /// What members of a project have in it by default: all but `admin`.
    pub const MEMBER: Self = Self(7);

    /// The verbs of a number that was stored; `None` if it has other bits, or none.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits != 0 && bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// A number for storing.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether a verb is among them.
    pub fn has(self, verb: Verb) -> bool {
        self.0 & verb as u8 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each, in order.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.has(*verb))
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |bits, verb| bits | verb as u8))
    }
}

impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Verb::name).collect();
        match &names[..] {
            [] => f.write_str("nothing"),
            [one] => f.write_str(one),
            [first @ .., last] => write!(f, "{} and {last}", first.join(", ")),
        }
    }
}
