//! What stands between clients and the server. Data alone: the runner starts it.

use crate::document::{Fields, ScenarioError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What passes bytes on between the sites of producers and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proxy {
    /// `thalweg relay`.
    Relay,
    /// HAProxy, a pair.
    Haproxy,
    /// stunnel, a pair.
    Stunnel,
    /// nginx, a pair.
    Nginx,
}

/// What becomes of the lines that a proxy logs. Into a pipe that nobody reads it blocks at 64 KiB: the launcher of
/// the published study did that to stunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyLog {
    /// Somebody reads them.
    Read,
    /// They go into a pipe that nobody reads, as published.
    Unread,
}

/// What stands at the entrance of a managed service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entrance {
    /// `thalweg gateway`.
    Gateway,
    /// HAProxy as a balancer, and one that routes by SNI behind it.
    Haproxy,
}

/// An architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Clients reach the server.
    Direct,
    /// Proxies at both sites.
    Proxied {
        /// Which.
        by: Proxy,
        /// Thousandths of a core that each has. The published ones had 300. No bound if it is not given.
        cores_thousandths: Option<u64>,
        /// Their log.
        log: ProxyLog,
    },
    /// A service that a facility runs, behind one entrance.
    Managed {
        /// Which.
        by: Entrance,
    },
}

/// Pairs of proxies, by their words. The first one is our own.
const PROXIES: [(&str, Proxy); 4] = [
    ("relay", Proxy::Relay),
    ("haproxy", Proxy::Haproxy),
    ("stunnel", Proxy::Stunnel),
    ("nginx", Proxy::Nginx),
];

/// Entrances, likewise.
const ENTRANCES: [(&str, Entrance); 2] = [
    ("gateway", Entrance::Gateway),
    ("haproxy", Entrance::Haproxy),
];

/// The word of a part.
fn word<T: PartialEq>(table: &[(&'static str, T)], part: &T) -> &'static str {
    let found = table.iter().find(|(_, one)| one == part);
    found.expect("the tables have all of them").0
}

/// The part of a word, or the first one.
fn part<T: Copy>(table: &[(&'static str, T)], word: Option<&str>) -> Option<T> {
    let word = word.unwrap_or(table[0].0);
    table
        .iter()
        .find(|(one, _)| *one == word)
        .map(|(_, part)| *part)
}

impl Architecture {
    /// Its name, as on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Proxied { .. } => "proxied",
            Self::Managed { .. } => "managed",
        }
    }

    /// Its name, and what it is made with: `proxied:haproxy`.
    pub fn label(&self) -> String {
        match self {
            Self::Direct => self.name().to_owned(),
            Self::Proxied { by, .. } => format!("{}:{}", self.name(), word(&PROXIES, by)),
            Self::Managed { by } => format!("{}:{}", self.name(), word(&ENTRANCES, by)),
        }
    }

    /// One by its name, with parts of our own; `proxied:haproxy` names other ones.
    pub fn named(name: &str) -> Option<Self> {
        let (name, by) = match name.split_once(':') {
            Some((name, by)) => (name, Some(by)),
            None => (name, None),
        };
        match name {
            "direct" if by.is_none() => Some(Self::Direct),
            "proxied" => Some(Self::Proxied {
                by: part(&PROXIES, by)?,
                cores_thousandths: None,
                log: ProxyLog::Read,
            }),
            "managed" => Some(Self::Managed {
                by: part(&ENTRANCES, by)?,
            }),
            _ => None,
        }
    }

    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ScenarioError> {
        const KEY: &str = "architecture";
        let expected = "one of \"direct\", \"proxied\", \"managed\", as \"proxied:haproxy\" too, or a table with proxied or managed";
        match fields.value(KEY) {
            None => Ok(Self::Direct),
            Some(table @ Value::Object(_)) => Self::table(fields.inside(KEY, table)?),
            Some(value) => value
                .as_str()
                .and_then(Self::named)
                .ok_or_else(|| fields.wrong(KEY, &value, expected)),
        }
    }

    fn table(mut fields: Fields) -> Result<Self, ScenarioError> {
        let logs = [("read", ProxyLog::Read), ("unread", ProxyLog::Unread)];
        if let Some(by) = fields.word("managed", &ENTRANCES)? {
            fields.end(&["managed"])?;
            return Ok(Self::Managed { by });
        }
        let Some(by) = fields.word("proxied", &PROXIES)? else {
            return Err(fields.missing("proxied", "a proxy, or managed and an entrance"));
        };
        let proxied = Self::Proxied {
            by,
            cores_thousandths: fields.number("cores_thousandths", 1..=1_000_000)?,
            log: fields.word("log", &logs)?.unwrap_or(ProxyLog::Read),
        };
        fields.end(&["proxied", "cores_thousandths", "log"])?;
        Ok(proxied)
    }
}
