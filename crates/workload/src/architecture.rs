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

impl Architecture {
    /// Its name, as on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Proxied { .. } => "proxied",
            Self::Managed { .. } => "managed",
        }
    }

    /// One by its name, with parts of our own.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "direct" => Some(Self::Direct),
            "proxied" => Some(Self::Proxied {
                by: Proxy::Relay,
                cores_thousandths: None,
                log: ProxyLog::Read,
            }),
            "managed" => Some(Self::Managed {
                by: Entrance::Gateway,
            }),
            _ => None,
        }
    }

    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ScenarioError> {
        const KEY: &str = "architecture";
        let expected =
            "one of \"direct\", \"proxied\", \"managed\", or a table with proxied or managed";
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
        let proxies = [
            ("relay", Proxy::Relay),
            ("haproxy", Proxy::Haproxy),
            ("stunnel", Proxy::Stunnel),
            ("nginx", Proxy::Nginx),
        ];
        let entrances = [
            ("gateway", Entrance::Gateway),
            ("haproxy", Entrance::Haproxy),
        ];
        let logs = [("read", ProxyLog::Read), ("unread", ProxyLog::Unread)];
        if let Some(by) = fields.word("managed", &entrances)? {
            fields.end(&["managed"])?;
            return Ok(Self::Managed { by });
        }
        let Some(by) = fields.word("proxied", &proxies)? else {
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
