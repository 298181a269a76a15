//! What is asked for in a body.

use crate::names::quoted;
use crate::options::Limits;
use crate::record::Resources;
use serde_json::{Map, Value};

/// The longest message that a server can take, bytes.
const MESSAGE_BYTES_MAX: u64 = 1 << 31;
const NODES_MAX: u64 = 64;

/// An instance that is asked for.
#[derive(Debug, PartialEq)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// The project that it is meant for, if the body says so.
    pub project: Option<String>,
    /// What it may use.
    pub resources: Resources,
}

/// Reads a body. Takes any bytes. Keys that are not known are left alone: the interface that this one is like has
/// more of them.
///
/// # Errors
/// Says what is wrong, and what would be right.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Asked, String> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("the body is no JSON: {error}"))?;
    let body = value.as_object().ok_or("the body is no object of JSON")?;
    match body
        .get("kind")
        .map(|kind| kind.as_str().unwrap_or_default())
    {
        None | Some("general") => {}
        Some(other) => {
            return Err(format!(
                "kind {} is not known: the one that there is, is general",
                quoted(other)
            ));
        }
    }
    let text = |key: &str| -> Result<Option<String>, String> {
        match body.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{key} is to be a text")),
        }
    };
    let name = text("name")?.ok_or("the body has no name for the instance")?;
    let empty = Map::new();
    let settings = match body.get("resourceSettings") {
        None | Some(Value::Null) => &empty,
        Some(settings) => settings
            .as_object()
            .ok_or("resourceSettings is to be an object")?,
    };
    let number = |key, usual, least, most| number(settings, key, usual, least, most);
    let resources = Resources {
        cpus: number("cpus", 1, 1, limits.cpus_max.into())? as u32,
        ram_gbs: number("ram-gbs", 1, 1, limits.ram_gbs_max.into())? as u32,
        nodes: number("nodes", 1, 1, NODES_MAX)? as u32,
        message_bytes_max: number("max-msg-size", 0, 0, MESSAGE_BYTES_MAX)?,
    };
    Ok(Asked {
        project: text("project")?,
        name,
        resources,
    })
}

/// A whole number within bounds, which may be written as a text.
fn number(
    settings: &Map<String, Value>,
    key: &str,
    usual: u64,
    least: u64,
    most: u64,
) -> Result<u64, String> {
    let value = match settings.get(key) {
        None | Some(Value::Null) => return Ok(usual),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64(),
    };
    match value {
        Some(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!(
            "{key} is to be a whole number from {least} to {most}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As S3M's pages have it.
    pub const PUBLISHED: &str = r#"{"kind": "general", "name": "my-rabbit", "resourceSettings": {"cpus": 4, "ram-gbs": 8,
        "nodes": 3, "max-msg-size": 536870912}}"#;

    fn read(text: &str) -> Result<Asked, String> {
        parse(text.as_bytes(), &Limits::default())
    }

    #[test]
    fn the_published_body_is_understood() {
        let asked = read(PUBLISHED).unwrap();
        assert_eq!((asked.name.as_str(), asked.project), ("my-rabbit", None));
        let resources = Resources {
            cpus: 4,
            ram_gbs: 8,
            nodes: 3,
            message_bytes_max: 536_870_912,
        };
        assert_eq!(asked.resources, resources);
        let least = read(r#"{"name": "x", "other": [1]}"#).unwrap();
        assert_eq!(least.resources, Resources::default());
        let texts = read(r#"{"name": "x", "resourceSettings": {"cpus": "2"}}"#).unwrap();
        assert_eq!(texts.resources.cpus, 2);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (body, why) in [
            ("", "no JSON"),
            ("[]", "no object"),
            ("{}", "no name"),
            (r#"{"name": 7}"#, "name is to be a text"),
            (
                r#"{"name": "x", "kind": "shared"}"#,
                "the one that there is, is general",
            ),
            (r#"{"name": "x", "kind": 7}"#, "general"),
            (r#"{"name": "x", "project": 7}"#, "project is to be a text"),
            (
                r#"{"name": "x", "resourceSettings": 7}"#,
                "resourceSettings",
            ),
            (
                r#"{"name": "x", "resourceSettings": {"cpus": 0}}"#,
                "from 1 to 64",
            ),
            (
                r#"{"name": "x", "resourceSettings": {"cpus": -1}}"#,
                "from 1 to 64",
            ),
            (
                r#"{"name": "x", "resourceSettings": {"cpus": 1e99}}"#,
                "from 1 to 64",
            ),
            (
                r#"{"name": "x", "resourceSettings": {"ram-gbs": 257}}"#,
                "from 1 to 256",
            ),
            (
                r#"{"name": "x", "resourceSettings": {"max-msg-size": 4294967296}}"#,
                "max-msg-size",
            ),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(why), "{body}: {error}");
        }
        let deep = "[".repeat(50_000);
        assert!(read(&deep).is_err());
    }
}
