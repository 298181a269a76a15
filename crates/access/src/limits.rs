//! What a block of a token limits.

use crate::name::{check_project, project_text};
use crate::network::Network;
use crate::pattern::Pattern;
use crate::time::UnixTime;
use crate::token::TokenError;
use crate::verb::Verbs;
use std::fmt;
use wire::DirectoryId;
use wire::codec::{Codec, Reader, Write};

/// The longest list of patterns or networks.
pub const LIST_MAX: usize = 32;
/// The longest note.
pub const NOTE_BYTES_MAX: usize = 128;

const WHAT: &str = "limits of a token";

/// What a block of a token limits. What is `None` is not limited by it. What several blocks say
/// holds together, so that another block never allows more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// For the names of this project alone. The first block of a token says which.
    pub project: Option<String>,
    /// For topics whose names, without the project, are of one of these patterns.
    pub topics: Option<Vec<Pattern>>,
    /// For these verbs.
    pub verbs: Option<Verbs>,
    /// From then on.
    pub not_before: Option<UnixTime>,
    /// Until then.
    pub expires: Option<UnixTime>,
    /// For clients that come from one of these networks.
    pub networks: Option<Vec<Network>>,
    /// For so many bytes of events a second.
    pub bytes_per_second: Option<u64>,
    /// For the server of this data directory.
    pub instance: Option<DirectoryId>,
    /// For one session.
    pub once: bool,
    /// For whom or what it was made, as who made it says. Limits nothing.
    pub note: Option<String>,
}

/// The kinds of limits, as numbers. They are in ascending order in a block, each once.
mod kind {
    pub const PROJECT: u16 = 1;
    pub const TOPICS: u16 = 2;
    pub const VERBS: u16 = 3;
    pub const NOT_BEFORE: u16 = 4;
    pub const EXPIRES: u16 = 5;
    pub const NETWORKS: u16 = 6;
    pub const BYTES_PER_SECOND: u16 = 7;
    pub const INSTANCE: u16 = 8;
    pub const ONCE: u16 = 9;
    pub const NOTE: u16 = 16;
}

impl Limits {
    /// Whether they can be put into a token.
    ///
    /// # Errors
    /// Says what is too long, empty, or nothing that there can be.
    pub fn check(&self) -> Result<(), String> {
        if let Some(project) = &self.project {
            check_project(project)?;
        }
        check_list("topic patterns", self.topics.as_ref().map(Vec::len))?;
        check_list("networks", self.networks.as_ref().map(Vec::len))?;
        if self.verbs.is_some_and(Verbs::is_empty) {
            return Err("a token for no verb is good for nothing".to_owned());
        }
        if let (Some(from), Some(until)) = (self.not_before, self.expires)
            && until <= from
        {
            return Err(format!(
                "a token that begins at {from} and ends at {until} is never good"
            ));
        }
        if self.bytes_per_second == Some(0) {
            return Err("a token for no byte a second is good for nothing".to_owned());
        }
        match &self.note {
            Some(note) if note.len() > NOTE_BYTES_MAX || note.contains(char::is_control) => Err(
                format!("a note is at most {NOTE_BYTES_MAX} bytes without control characters"),
            ),
            _ => Ok(()),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut entries: Vec<(u16, Vec<u8>)> = Vec::new();
        let mut add = |kind, value: Option<Vec<u8>>| {
            entries.extend(value.map(|value| (kind, value)));
        };
        let text = |text: &String| text.as_bytes().to_vec();
        let time = |time: UnixTime| time.0.to_bytes();
        add(kind::PROJECT, self.project.as_ref().map(text));
        add(kind::TOPICS, self.topics.as_ref().map(patterns_to_bytes));
        add(kind::VERBS, self.verbs.map(|verbs| vec![verbs.bits()]));
        add(kind::NOT_BEFORE, self.not_before.map(time));
        add(kind::EXPIRES, self.expires.map(time));
        add(kind::NETWORKS, self.networks.as_ref().map(Vec::to_bytes));
        let rate = self.bytes_per_second;
        add(kind::BYTES_PER_SECOND, rate.map(|rate| rate.to_bytes()));
        add(kind::INSTANCE, self.instance.map(|id| id.to_bytes()));
        add(kind::ONCE, self.once.then(Vec::new));
        add(kind::NOTE, self.note.as_ref().map(text));
        let mut out = Vec::new();
        for (kind, value) in entries {
            out.put_u16(kind);
            out.put_u16(u16::try_from(value.len()).expect("`check` bounds every limit"));
            out.put(&value);
        }
        out
    }

    /// The limits of a block's payload, to its last byte. One that is not known is an error: what
    /// it would forbid is not known either.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, TokenError> {
        let mut from = Reader::new(WHAT, payload);
        let mut limits = Self::default();
        let mut last = 0;
        while !from.rest().is_empty() {
            let kind = from.u16()?;
            if kind <= last {
                return Err(from.refuse("kind out of order", kind.into()).into());
            }
            last = kind;
            let count = from.u16()?;
            let value = from.bytes(count.into())?;
            limits.take(kind, value)?;
        }
        limits.check().map_err(TokenError::Limits)?;
        Ok(limits)
    }

    fn take(&mut self, kind: u16, value: &[u8]) -> Result<(), TokenError> {
        let mut from = Reader::new(WHAT, value);
        match kind {
            kind::PROJECT => self.project = Some(all_text(&mut from)?),
            kind::TOPICS => self.topics = Some(patterns(&mut from)?),
            kind::VERBS => {
                let bits = from.u8()?;
                let verbs = Verbs::from_bits(bits);
                self.verbs = Some(verbs.ok_or_else(|| from.refuse("verbs", bits.into()))?);
            }
            kind::NOT_BEFORE => self.not_before = Some(UnixTime(from.u64()?)),
            kind::EXPIRES => self.expires = Some(UnixTime(from.u64()?)),
            kind::NETWORKS => self.networks = Some(Vec::decode(&mut from)?),
            kind::BYTES_PER_SECOND => self.bytes_per_second = Some(from.u64()?),
            kind::INSTANCE => self.instance = Some(DirectoryId::decode(&mut from)?),
            kind::ONCE => self.once = true,
            kind::NOTE => self.note = Some(all_text(&mut from)?),
            other => return Err(TokenError::UnknownLimit(other)),
        }
        match from.rest().len() {
            0 => Ok(()),
            left => Err(from.refuse("bytes left over", left as u64).into()),
        }
    }

    /// Each limit as a sentence, in the order of the format.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(project) = &self.project {
            said.push(format!("for {}", project_text(project)));
        }
        if let Some(topics) = &self.topics {
            said.push(format!("for topics {}", list(topics)));
        }
        if let Some(verbs) = self.verbs {
            said.push(format!("may {verbs}"));
        }
        if let Some(from) = self.not_before {
            said.push(format!("not before {from}"));
        }
        if let Some(until) = self.expires {
            said.push(format!("until {until}"));
        }
        if let Some(networks) = &self.networks {
            said.push(format!("from {} only", list(networks)));
        }
        if let Some(rate) = self.bytes_per_second {
            said.push(format!("at most {rate} bytes a second"));
        }
        if let Some(instance) = self.instance {
            said.push(format!("for the server of data directory {instance} only"));
        }
        if self.once {
            said.push("for one session".to_owned());
        }
        said
    }
}

/// The items of a list, for people.
pub(crate) fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join(", ")
}

fn check_list(what: &str, count: Option<usize>) -> Result<(), String> {
    match count {
        Some(0) => Err(format!("a token for no {what} is good for nothing")),
        Some(count) if count > LIST_MAX => Err(format!(
            "a token has at most {LIST_MAX} {what} a block, and not {count}"
        )),
        _ => Ok(()),
    }
}

fn patterns_to_bytes(patterns: &Vec<Pattern>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(patterns.len() as u32);
    for pattern in patterns {
        out.put_sized(pattern.as_str().as_bytes());
    }
    out
}

fn patterns(from: &mut Reader<'_>) -> Result<Vec<Pattern>, TokenError> {
    // The length of each takes four bytes.
    let count = from.count(4)?;
    let texts = (0..count).map(|_| from.text().map(str::to_owned));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let patterns = texts.iter().map(|text| text.parse());
    patterns
        .collect::<Result<_, _>>()
        .map_err(TokenError::Limits)
}

fn all_text(from: &mut Reader<'_>) -> Result<String, TokenError> {
    let bytes = from.bytes(from.rest().len())?;
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| TokenError::Limits("a text of it is not UTF-8".to_owned()))?;
    Ok(text.to_owned())
}
