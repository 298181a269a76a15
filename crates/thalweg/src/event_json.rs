//! Events as lines of JSON: what `consume` prints and `produce --input
//! events` reads. The fields are in `docs/reference/cli.md`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use client::ConsumedEvent;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::fmt::Write;
use wire::PartitionIndex;
use wire::record::Gap;

/// An event as a line, without its line break. `data` are fields about its
/// data, which begin with a comma.
pub fn event_line(event: &ConsumedEvent, data: &str) -> String {
    let id = event.id();
    let mut line = format!(
        r#"{{"type":"event","partition":{},"incarnation":{},"offset":{}"#,
        id.partition, id.incarnation, id.offset
    );
    push_metadata(&mut line, event.metadata());
    if let Some(key) = event.key() {
        push_bytes(&mut line, "key", key);
    }
    let headers = event.headers();
    if !headers.is_empty() {
        push_headers(&mut line, &headers);
    }
    if let Some(time) = event.producer_time() {
        push(&mut line, "producer_time", time);
    }
    push(&mut line, "append_time", event.append_time());
    if event.tombstone() {
        push(&mut line, "tombstone", true);
    }
    push(&mut line, "data_bytes", event.data_bytes_total());
    line.push_str(data);
    line.push('}');
    line
}

/// A gap as a line, without its line break.
pub fn gap_line(partition: PartitionIndex, gap: &Gap) -> String {
    format!(
        r#"{{"type":"gap","partition":{partition},"incarnation":{},"first":{},"end":{},"reason":"{}","time":{}}}"#,
        gap.incarnation, gap.first, gap.end, gap.reason, gap.time
    )
}

/// Fields about data, as [`event_line`] takes them.
pub fn data_base64(data: &[u8]) -> String {
    format!(r#","data_base64":"{}""#, BASE64.encode(data))
}

/// Fields about data, as [`event_line`] takes them.
pub fn data_file(path: &str) -> String {
    format!(r#","data_file":{}"#, quoted(path))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text becomes JSON")
}

fn push(line: &mut String, name: &str, value: impl std::fmt::Display) {
    write!(line, r#","{name}":{value}"#).expect("a text takes all that is written to it");
}

/// JSON as it is, if it is JSON on one line; else as text, else as base64.
fn push_metadata(line: &mut String, metadata: &[u8]) {
    let text = std::str::from_utf8(metadata).ok();
    let json = text.filter(|_| topic::check_json(metadata).is_ok());
    match json {
        Some(json) if !json.contains(['\n', '\r']) => push(line, "metadata", json),
        // White space outside of texts is all that can break the line.
        Some(json) => push(line, "metadata", json.replace(['\n', '\r'], " ")),
        None => push_bytes(line, "metadata", metadata),
    }
}

/// As text, or as base64 under another name. Metadata has three names, so
/// that text is never taken for JSON.
fn push_bytes(line: &mut String, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) if name == "metadata" => push(line, "metadata_text", quoted(text)),
        Ok(text) => push(line, name, quoted(text)),
        Err(_) => push(
            line,
            &format!("{name}_base64"),
            quoted(&BASE64.encode(bytes)),
        ),
    }
}

fn push_headers(line: &mut String, headers: &[(String, Bytes)]) {
    let texts = headers
        .iter()
        .map(|(name, value)| match std::str::from_utf8(value) {
            Ok(text) => format!("[{},{}]", quoted(name), quoted(text)),
            Err(_) => format!(
                r#"[{},{{"base64":"{}"}}]"#,
                quoted(name),
                BASE64.encode(value)
            ),
        });
    push(
        line,
        "headers",
        format!("[{}]", texts.collect::<Vec<_>>().join(",")),
    );
}

/// A line of input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    metadata_text: Option<String>,
    metadata_base64: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(default)]
    headers: Vec<(String, HeaderValue)>,
    producer_time: Option<u64>,
    #[serde(default)]
    tombstone: bool,
    partition: Option<u32>,
    data_text: Option<String>,
    data_base64: Option<String>,
    data_file: Option<String>,
    // What `consume` prints and the server gives anew is read over.
    #[serde(rename = "incarnation")]
    _incarnation: Option<IgnoredAny>,
    #[serde(rename = "offset")]
    _offset: Option<IgnoredAny>,
    #[serde(rename = "append_time")]
    _append_time: Option<IgnoredAny>,
    #[serde(rename = "data_bytes")]
    _data_bytes: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    Text(String),
    Base64 { base64: String },
}

/// An event that was read from a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InputEvent {
    /// Its metadata.
    pub metadata: Bytes,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<(String, Bytes)>,
    /// The producer's time.
    pub producer_time: Option<u64>,
    /// Whether it is a tombstone.
    pub tombstone: bool,
    /// The partition asked for.
    pub partition: Option<u32>,
    /// Its data.
    pub data: Bytes,
}

/// Reads a line of input; `None` for a line that is no event.
pub fn read_line(text: &str) -> Result<Option<InputEvent>, String> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match line.kind.as_deref() {
        None | Some("event") => {}
        Some("gap" | "summary") => return Ok(None),
        Some(other) => return Err(format!("type {other:?} is neither event nor gap")),
    }
    let metadata = match (line.metadata, line.metadata_text, line.metadata_base64) {
        (Some(json), None, None) => Bytes::copy_from_slice(json.get().as_bytes()),
        (None, Some(text), None) => text.into(),
        (None, None, Some(text)) => decode("metadata_base64", &text)?,
        (None, None, None) => Bytes::new(),
        _ => return Err("metadata is given more than once".to_owned()),
    };
    let key = match (line.key, line.key_base64) {
        (Some(text), None) => Some(text.into()),
        (None, Some(text)) => Some(decode("key_base64", &text)?),
        (None, None) => None,
        _ => return Err("the key is given more than once".to_owned()),
    };
    let data = match (line.data_text, line.data_base64, line.data_file) {
        (Some(text), None, None) => text.into(),
        (None, Some(text), None) => decode("data_base64", &text)?,
        (None, None, Some(path)) => std::fs::read(&path)
            .map_err(|error| format!("data_file {path}: {error}"))?
            .into(),
        (None, None, None) => Bytes::new(),
        _ => return Err("data is given more than once".to_owned()),
    };
    let headers = line.headers.into_iter().map(|(name, value)| match value {
        HeaderValue::Text(text) => Ok((name, text.into())),
        HeaderValue::Base64 { base64 } => Ok((name, decode("headers", &base64)?)),
    });
    Ok(Some(InputEvent {
        metadata,
        key,
        headers: headers.collect::<Result<_, String>>()?,
        producer_time: line.producer_time,
        tombstone: line.tombstone,
        partition: line.partition,
        data,
    }))
}

fn decode(field: &str, text: &str) -> Result<Bytes, String> {
    BASE64
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| format!("{field}: {error}"))
}
