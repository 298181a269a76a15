//! The file of rules, `access/rules.json`: who may do what, and how much. Its page is
//! `docs/reference/rules.md`.

use access::{Bound, Grant, Grants, Quota, Quotas, Rules, Verb, Verbs, check_project};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a file says.
///
/// # Errors
/// A sentence that names what cannot be right.
pub(crate) fn parse(text: &str) -> Result<Rules, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let document = object("the file", &document)?;
    let mut rules = Rules::default();
    for (key, value) in document {
        match key.as_str() {
            "grants" => rules.grants = Arc::new(grants(value)?),
            "quotas" => rules.quotas = quotas(value)?,
            other => return Err(unknown("the file", other, &["grants", "quotas"])),
        }
    }
    Ok(rules)
}

/// The owner's own grant stays, so that nobody locks themselves out.
fn grants(value: &Value) -> Result<Grants, String> {
    let list = value.as_array().ok_or("grants is no list")?;
    let mut grants = Grants::default();
    grants.0.truncate(1);
    for (index, value) in list.iter().enumerate() {
        let what = format!("grant {index}");
        let given = object(&what, value)?;
        let keys = ["who", "may", "on"];
        if let Some(other) = given.keys().find(|key| !keys.contains(&key.as_str())) {
            return Err(unknown(&what, other, &keys));
        }
        let text = |key: &str| {
            let text = given.get(key).and_then(Value::as_str);
            text.ok_or_else(|| format!("{what} has no text {key:?}"))
        };
        let may = given.get("may").and_then(Value::as_array);
        let may = may.ok_or_else(|| format!("{what} has no list \"may\""))?;
        let verbs = may.iter().map(|verb| {
            let verb = verb.as_str().unwrap_or_default();
            verb.parse::<Verb>()
        });
        let verbs: Verbs = verbs
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| format!("{what}: {why}"))?
            .into_iter()
            .collect();
        let grant = Grant::of(text("who")?, verbs, text("on")?);
        grants
            .0
            .push(grant.map_err(|why| format!("{what}: {why}"))?);
    }
    Ok(grants)
}

fn quotas(value: &Value) -> Result<Quotas, String> {
    let mut quotas = Quotas::default();
    for (whose, value) in object("quotas", value)? {
        if whose == "*" {
            quotas.others = quota(whose, value, &Bound::ALL)?;
        } else if let Some(id) = whose.strip_prefix("token:") {
            let id = id
                .parse()
                .map_err(|why| format!("quotas: {whose:?}: {why}"))?;
            let quota = quota(whose, value, &Bound::OF_TOKENS)?;
            quotas.tokens.insert(id, quota);
        } else {
            check_project(whose).map_err(|why| format!("quotas: {why}"))?;
            let quota = quota(whose, value, &Bound::ALL)?;
            quotas.projects.insert(whose.clone(), quota);
        }
    }
    Ok(quotas)
}

fn quota(whose: &str, value: &Value, bounds: &[Bound]) -> Result<Quota, String> {
    let what = format!("the quota of {whose:?}");
    let mut quota = Quota::default();
    for (key, value) in object(&what, value)? {
        if key == "at_bound" {
            let text = value.as_str().unwrap_or_default();
            quota.at_bound = text.parse().map_err(|why| format!("{what}: {why}"))?;
            continue;
        }
        let bound = bounds.iter().find(|bound| bound.key() == key);
        let mut keys: Vec<&str> = bounds.iter().map(|bound| bound.key()).collect();
        keys.push("at_bound");
        let bound = bound.ok_or_else(|| unknown(&what, key, &keys))?;
        let most = value.as_u64().filter(|most| *most > 0);
        let most = most.ok_or_else(|| format!("{what}: {key} is no number above 0"))?;
        quota = quota.with(*bound, most);
    }
    Ok(quota)
}

fn object<'a>(what: &str, value: &'a Value) -> Result<&'a Map<String, Value>, String> {
    value
        .as_object()
        .ok_or_else(|| format!("{what} is no object of JSON"))
}

fn unknown(what: &str, key: &str, keys: &[&str]) -> String {
    format!("{what} has no key {key:?}; there are {}", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::{AtBound, Identity, Name, Origin, UnixTime, decide};

    #[test]
    fn rules_are_read_and_the_owner_stays_owner() {
        let rules = parse(
            r#"{"grants": [{"who": "project:p", "may": ["read"], "on": "PROJECT/raw-*"}],
                "quotas": {"p": {"bytes_in_per_second": 1000, "at_bound": "refuse"},
                           "*": {"connections": 3}}}"#,
        )
        .unwrap();
        let quota = rules.quotas.of("p");
        assert_eq!(quota.most(Bound::BytesInPerSecond), Some(1000));
        assert_eq!(quota.at_bound, AtBound::Refuse);
        assert_eq!(rules.quotas.of("q").most(Bound::Connections), Some(3));
        let member = |topic: &str, verb| {
            let identity = Identity {
                subject: access::Subject::Member("p".into()),
                ..Identity::owner(Origin::default(), rules.grants.clone())
            };
            let name = Name::Topic {
                project: "p",
                topic,
            };
            decide(&identity, verb, name, UnixTime(0)).is_allowed()
        };
        assert!(member("raw-1", Verb::Read) && !member("raw-1", Verb::Write));
        assert!(!member("other", Verb::Read));
        let owner = Identity::owner(Origin::default(), rules.grants.clone());
        assert!(decide(&owner, Verb::Admin, Name::Server, UnixTime(0)).is_allowed());
        assert_eq!(parse("{}").unwrap(), Rules::default());
    }

    #[test]
    fn what_cannot_be_right_is_named() {
        for (text, part) in [
            ("[]", "no object"),
            ("{", "EOF"),
            (r#"{"quota": {}}"#, "\"quota\""),
            (r#"{"quotas": {"p": {"bytes": 1}}}"#, "\"bytes\""),
            (r#"{"quotas": {"p": {"topics": 0}}}"#, "topics is no number"),
            (
                r#"{"quotas": {"token:x": {"connections": 1}}}"#,
                "\"token:x\"",
            ),
            (r#"{"quotas": {"p/q": {"topics": 1}}}"#, "p/q"),
            (
                r#"{"quotas": {"token:00000000000000000000000000000007": {"topics": 1}}}"#,
                "no key \"topics\"; there are bytes_in_per_second",
            ),
            (r#"{"quotas": {"p": {"at_bound": "fly"}}}"#, "\"fly\""),
            (
                r#"{"grants": [{"who": "all", "may": ["read"], "on": "**"}]}"#,
                "\"all\"",
            ),
            (
                r#"{"grants": [{"who": "owner", "may": ["fly"], "on": "**"}]}"#,
                "\"fly\"",
            ),
            (
                r#"{"grants": [{"who": "owner", "may": ["read"]}]}"#,
                "\"on\"",
            ),
            (
                r#"{"grants": [{"who": "owner", "may": ["read"], "on": "**", "if": 1}]}"#,
                "\"if\"",
            ),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
