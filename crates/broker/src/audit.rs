//! The audit trail: who came and who was refused, what was changed, what ended. Never an event, and
//! never a secret: a credential is named by its ids.
//!
//! A record is made here; the executor is given it ([`Output::Audit`](crate::node::Output::Audit)),
//! and keeps it. Of what clients can cause some of each kind are kept of each second, and the others are
//! counted, so that nobody fills a disk by knocking. Its page is `docs/operations/audit.md`.

use crate::identity::{Identity, Proof};
use crate::ids::Now;
use access::{Rules, TokenId, Trust, UnixTime};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How many records of one kind are kept of a second.
const PER_SECOND: u64 = 50;
/// The longest text in a record.
const TEXT_BYTES_MAX: usize = 512;
/// How many grants, quotas or ids are named in a record.
const LISTED_MAX: usize = 64;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audited {
    /// A client was let in.
    Connect,
    /// A client was not let in, or something that it asked for was not allowed.
    Refuse,
    /// A client has presented another credential on a connection that stands.
    Renew,
    /// A connection was ended because its credential is over.
    Expire,
    /// A token was revoked, or a connection was ended because its token was.
    Revoke,
    /// Whom the server believes, or what they may do, has changed.
    Rules,
    /// Somebody has got a certificate by a code.
    Pair,
    /// A client has something done that needs the right to manage or to administer.
    Act,
}

impl Audited {
    /// The word in a record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refuse => "refuse",
            Self::Renew => "renew",
            Self::Expire => "expire",
            Self::Revoke => "revoke",
            Self::Rules => "rules",
            Self::Pair => "pair",
            Self::Act => "act",
        }
    }

    /// Whether clients can have as many made as they like.
    fn is_frequent(self) -> bool {
        !matches!(self, Self::Rules)
    }
}

/// A record of the audit trail.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    /// When, nanoseconds since 1970.
    pub unix_ns: u64,
    /// What it is about.
    pub what: Audited,
    /// All else, by name.
    pub fields: Map<String, Value>,
}

impl AuditRecord {
    /// As a line of JSON, without its end.
    pub fn to_line(&self) -> String {
        let mut all = self.fields.clone();
        let time = UnixTime(self.unix_ns).to_string();
        all.insert("time".to_owned(), time.into());
        all.insert("unix_ns".to_owned(), self.unix_ns.into());
        all.insert("what".to_owned(), self.what.name().into());
        Value::Object(all).to_string()
    }
}

/// What was kept of a kind within a second.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    began: Duration,
    kept: u64,
    left_out: u64,
}

/// Makes records, no more than there may be.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// By kind, of those that are [`Audited::is_frequent`].
    windows: std::collections::BTreeMap<Audited, Window>,
}

impl Audit {
    /// A record, unless there were too many of its kind in this second. The first of a later second
    /// says how many were left out.
    pub fn record(
        &mut self,
        what: Audited,
        mut fields: Map<String, Value>,
        now: Now,
    ) -> Option<AuditRecord> {
        if what.is_frequent() {
            let window = self.windows.entry(what).or_default();
            if now.monotonic >= window.began + Duration::from_secs(1) {
                if window.left_out > 0 {
                    fields.insert("left_out".to_owned(), window.left_out.into());
                }
                *window = Window {
                    began: now.monotonic,
                    ..Window::default()
                };
            }
            if window.kept == PER_SECOND {
                window.left_out += 1;
                return None;
            }
            window.kept += 1;
        }
        Some(AuditRecord {
            unix_ns: now.unix_ns,
            what,
            fields,
        })
    }
}

/// Who it is, how they have proved it, and where they came from.
pub(crate) fn who(identity: &Identity, address: &str) -> Map<String, Value> {
    let how = match identity.proof {
        Proof::InProcess => "in process",
        Proof::Owner => "user of the host",
        Proof::Token => "token of the server",
        Proof::AccessToken => "token of a project",
        Proof::Certificate => "certificate",
        Proof::Issued => "credential of another issuer",
    };
    let mut fields = from(address);
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("who", text(&identity.access.subject.to_string()));
    put("how", how.into());
    put("client", text(&identity.client_name));
    put("session", format!("{:032x}", identity.session.0).into());
    if let Some(credential) = &identity.access.credential {
        put(credential.kind().word(), ids(credential.ids()));
        if let Some(issued) = credential.issued() {
            put("issuer", text(&issued.issuer));
            put("subject", text(&issued.subject));
        }
        let expires = credential.expires().map(|expires| expires.to_string());
        put("expires", json!(expires));
    }
    fields
}

/// Where somebody came from of whom nothing else is known.
pub(crate) fn from(address: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("address".to_owned(), text(address));
    fields
}

/// With something more.
pub(crate) fn with(mut fields: Map<String, Value>, name: &str, value: &str) -> Map<String, Value> {
    fields.insert(name.to_owned(), text(value));
    fields
}

/// What has changed of whom the server believes.
pub(crate) fn trust(before: &Trust, after: &Trust) -> Vec<(Audited, Map<String, Value>)> {
    let revoked = after.revoked.difference(&before.revoked);
    let revoked = revoked.map(|id| (Audited::Revoke, one("token", ids(&[*id]))));
    let issuers = (before.keys != after.keys).then(|| one("issuers", after.keys.len().into()));
    let issuers = issuers.map(|fields| (Audited::Rules, fields));
    revoked.chain(issuers).collect()
}

fn one(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

/// What the rules of a server are now.
pub(crate) fn rules(rules: &Rules) -> Map<String, Value> {
    let grants = rules.grants.0.iter().take(LISTED_MAX);
    let grants: Vec<Value> = grants.map(|grant| text(&grant.to_string())).collect();
    let quotas = &rules.quotas;
    let others = (quotas.others != access::Quota::default()).then(|| "*".to_owned());
    let tokens = quotas.tokens.keys().map(|id| format!("token:{id}"));
    let named = quotas.projects.keys().cloned().chain(others).chain(tokens);
    let named: Vec<Value> = named.take(LISTED_MAX).map(|name| text(&name)).collect();
    let mut fields = Map::new();
    fields.insert("grants".to_owned(), grants.into());
    fields.insert("quotas".to_owned(), named.into());
    fields
}

/// Whose credentials are taken besides.
pub(crate) fn others(names: &[String]) -> Map<String, Value> {
    let names = names.iter().take(LISTED_MAX).map(|name| text(name));
    one("others", names.collect::<Vec<Value>>().into())
}

fn ids(ids: &[TokenId]) -> Value {
    let ids = ids.iter().take(LISTED_MAX).map(ToString::to_string);
    ids.collect::<Vec<_>>().into()
}

fn text(text: &str) -> Value {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_refusals_some_are_kept_and_the_others_counted() {
        let mut audit = Audit::default();
        let at = |ms| Now {
            monotonic: Duration::from_millis(ms),
            unix_ns: 1_796_112_000_000_000_000,
        };
        let refusals = (0..1000).filter_map(|_| audit.record(Audited::Refuse, from("a"), at(10)));
        assert_eq!(refusals.count() as u64, PER_SECOND);
        // Nor by asking for what it may do, over and over; what clients cannot cause is kept in any case.
        let acts = (0..1000).filter_map(|_| audit.record(Audited::Act, from("a"), at(10)));
        assert_eq!(acts.count() as u64, PER_SECOND);
        assert!(audit.record(Audited::Rules, Map::new(), at(20)).is_some());
        let later = audit.record(Audited::Refuse, from("a"), at(1500)).unwrap();
        assert_eq!(
            later.to_line(),
            format!(
                "{{\"address\":\"a\",\"left_out\":{},\"time\":\"2026-12-01T08:00:00Z\",\
                 \"unix_ns\":1796112000000000000,\"what\":\"refuse\"}}",
                1000 - PER_SECOND
            )
        );
        let again = audit.record(Audited::Refuse, from("a"), at(1500)).unwrap();
        assert!(!again.fields.contains_key("left_out"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let long = "ä".repeat(TEXT_BYTES_MAX);
        let cut = text(&long);
        assert_eq!(cut.as_str().map(str::len), Some(TEXT_BYTES_MAX));
        let odd = text(&format!("x{long}"));
        assert_eq!(odd.as_str().map(str::len), Some(TEXT_BYTES_MAX - 1));
    }
}
