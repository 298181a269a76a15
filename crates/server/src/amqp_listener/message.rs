//! A message as an event of a topic, and an event as a message. The page is `docs/format/amqp-message.md`.

use amqp::{Array, Content, Properties, RawProperties, ShortBytes, ShortString, Table, Value};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use wire::batch::{BatchBuilder, EventParts, Headers};

/// The event's header that has a message's exchange, key and properties as they came.
const HEADER: &str = "amqp";
/// The member of an event's metadata that has the same, to be read.
const MEMBER: &str = "amqp";
/// The version of the header.
const VERSION: u8 = 1;
/// Persistent, as a delivery mode.
const PERSISTENT: u8 = 2;

/// A message, and how it was published.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub exchange: ShortString,
    pub routing_key: ShortString,
    pub content: Content,
}

impl Message {
    /// Its headers, if it has them.
    pub fn headers(&self) -> Option<Table> {
        self.content.properties.fields().headers
    }

    /// Bytes that it takes in memory, about.
    pub fn bytes(&self) -> u64 {
        (self.content.body.len() + self.content.properties.as_bytes().len() + 64) as u64
    }

    /// As an event. Each queue that gets it has the same.
    pub fn encode(&self) -> Encoded {
        let properties = &self.content.properties;
        let header = header(&self.exchange, &self.routing_key, properties);
        Encoded {
            metadata: metadata(&self.exchange, &self.routing_key, &properties.fields()),
            headers: Headers::bytes_of(&[(HEADER, &header)]),
            body: self.content.body.clone(),
        }
    }
}

/// A message as an event.
#[derive(Debug)]
pub(super) struct Encoded {
    metadata: Vec<u8>,
    headers: Vec<u8>,
    body: Bytes,
}

impl Encoded {
    /// Appends it to a batch.
    pub fn push(&self, builder: &mut BatchBuilder) {
        let shared = std::slice::from_ref(&self.body);
        builder.push(EventParts {
            metadata: &self.metadata,
            shared: match self.body.is_empty() {
                true => &[],
                false => shared,
            },
            headers: Some(&self.headers),
            ..EventParts::default()
        });
    }
}

/// An event of a queue's topic, as it was delivered.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub metadata: &'a [u8],
    pub data: Bytes,
    pub headers: Option<&'a [u8]>,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The queue's name: the routing key of an event that has none.
    pub queue: &'a str,
}

impl Event<'_> {
    /// The message that it is. A native producer's event is one with properties that say the same.
    pub fn message(self) -> Message {
        let header = self
            .headers
            .and_then(|headers| Headers::find(headers, HEADER));
        if let Some((exchange, routing_key, properties)) = header.and_then(read_header) {
            let body = self.data;
            return Message {
                exchange,
                routing_key,
                content: Content { properties, body },
            };
        }
        self.native()
    }

    fn native(self) -> Message {
        let metadata: Option<Json> = serde_json::from_slice(self.metadata).ok();
        let object = metadata.as_ref().and_then(Json::as_object);
        let said = object.and_then(|object| object.get(MEMBER)?.as_object());
        let text = |name: &str| said.and_then(|said| said.get(name)?.as_str());
        let short = |name: &str| text(name).and_then(short_bytes);
        let number = |name: &str| said.and_then(|said| said.get(name)?.as_u64());
        let octet = |name: &str| number(name).and_then(|number| u8::try_from(number).ok());
        // Without data the metadata is what there is to be said.
        let is_told = self.data.is_empty() && said.is_none() && !self.metadata.is_empty();
        let headers = match said {
            Some(said) => said.get("headers").and_then(Json::as_object),
            None => object.filter(|_| !is_told),
        };
        let kind = match is_told && metadata.is_some() {
            true => "application/json",
            false => "application/octet-stream",
        };
        let properties = Properties {
            content_type: short("content_type").or_else(|| short_bytes(kind)),
            content_encoding: short("content_encoding"),
            headers: headers.and_then(|headers| table(headers, 0)),
            delivery_mode: Some(octet("delivery_mode").unwrap_or(PERSISTENT)),
            priority: octet("priority"),
            correlation_id: short("correlation_id"),
            reply_to: short("reply_to"),
            expiration: short("expiration"),
            message_id: short("message_id"),
            timestamp: number("timestamp").or(Some(self.time / 1_000_000_000)),
            kind: short("type"),
            user_id: short("user_id"),
            app_id: short("app_id"),
            cluster_id: None,
        };
        let raw = properties.encode();
        // Tables have bounds that JSON does not.
        let raw = RawProperties::decode(raw.as_bytes().clone()).unwrap_or_else(|_| {
            let without = Properties {
                headers: None,
                ..properties
            };
            without.encode()
        });
        Message {
            exchange: ShortString::truncated(text("exchange").unwrap_or_default()),
            routing_key: ShortString::truncated(text("routing_key").unwrap_or(self.queue)),
            content: Content {
                properties: raw,
                body: match is_told {
                    true => Bytes::copy_from_slice(self.metadata),
                    false => self.data,
                },
            },
        }
    }
}

fn short_bytes(text: &str) -> Option<ShortBytes> {
    ShortBytes::try_from(text.as_bytes()).ok()
}

fn header(exchange: &str, routing_key: &str, properties: &RawProperties) -> Vec<u8> {
    let mut out = vec![VERSION];
    for text in [exchange, routing_key] {
        out.push(u8::try_from(text.len()).expect("a short string has 255 bytes at most"));
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(properties.as_bytes());
    out
}

fn read_header(bytes: &[u8]) -> Option<(ShortString, ShortString, RawProperties)> {
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (exchange, rest) = short_of(rest)?;
    let (routing_key, rest) = short_of(rest)?;
    let properties = RawProperties::decode(Bytes::copy_from_slice(rest)).ok()?;
    Some((exchange, routing_key, properties))
}

fn short_of(bytes: &[u8]) -> Option<(ShortString, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    let text = std::str::from_utf8(text).ok()?;
    Some((ShortString::try_from(text).ok()?, rest))
}

/// What a native consumer reads.
fn metadata(exchange: &str, routing_key: &str, properties: &Properties) -> Vec<u8> {
    let mut said = Map::new();
    said.insert("exchange".to_owned(), exchange.into());
    said.insert("routing_key".to_owned(), routing_key.into());
    let texts = [
        ("content_type", &properties.content_type),
        ("content_encoding", &properties.content_encoding),
        ("correlation_id", &properties.correlation_id),
        ("reply_to", &properties.reply_to),
        ("expiration", &properties.expiration),
        ("message_id", &properties.message_id),
        ("type", &properties.kind),
        ("user_id", &properties.user_id),
        ("app_id", &properties.app_id),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            said.insert(name.to_owned(), text_json(text));
        }
    }
    let numbers = [
        ("delivery_mode", properties.delivery_mode.map(u64::from)),
        ("priority", properties.priority.map(u64::from)),
        ("timestamp", properties.timestamp),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            said.insert(name.to_owned(), number.into());
        }
    }
    if let Some(headers) = &properties.headers {
        said.insert("headers".to_owned(), table_json(headers));
    }
    let mut object = Map::new();
    object.insert(MEMBER.to_owned(), Json::Object(said));
    Json::Object(object).to_string().into_bytes()
}

/// A text, or the hexadecimal digits of bytes that are none.
fn text_json(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut object = Map::new();
            object.insert("hex".to_owned(), hex.into());
            Json::Object(object)
        }
    }
}

fn table_json(table: &Table) -> Json {
    let fields = table.fields();
    let fields = fields.map(|(name, value)| {
        let name = String::from_utf8_lossy(&name).into_owned();
        (name, value_json(&value))
    });
    Json::Object(fields.collect())
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::F32(value) => f64::from(*value).into(),
        Value::F64(value) => (*value).into(),
        Value::Decimal { scale, digits } => {
            (f64::from(*digits) / 10f64.powi(i32::from(*scale))).into()
        }
        Value::String(bytes) | Value::Bytes(bytes) => text_json(bytes),
        Value::Array(array) => array.values().map(|value| value_json(&value)).collect(),
        Value::Timestamp(value) => (*value).into(),
        Value::Table(table) => table_json(table),
        Value::Void => Json::Null,
        integer => integer.as_integer().into(),
    }
}

/// How deep JSON is followed into tables.
const DEPTH_MAX: usize = 16;

fn table(object: &Map<String, Json>, depth: usize) -> Option<Table> {
    let fields = object.iter();
    let fields = fields.map(|(name, json)| Some((name.as_str(), value(json, depth + 1)?)));
    Some(Table::of(fields.collect::<Option<Vec<_>>>()?))
}

fn value(json: &Json, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    Some(match json {
        Json::Null => Value::Void,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::I64(integer),
            None => Value::F64(number.as_f64()?),
        },
        Json::String(text) => Value::text(text),
        Json::Array(values) => {
            let values = values.iter().map(|one| value(one, depth + 1));
            Value::Array(Array::of(values.collect::<Option<Vec<_>>>()?))
        }
        Json::Object(object) => Value::Table(table(object, depth)?),
    })
}

/// A table without a field.
pub(super) fn without(table: &Table, name: &str) -> Table {
    let fields: Vec<_> = table.fields().collect();
    let kept = fields
        .iter()
        .filter(|(known, _)| **known != *name.as_bytes());
    let kept = kept.filter_map(|(known, value)| Some((known.as_str()?, value.clone())));
    Table::of(kept.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::batch::{Batch, Origin, Verify};
    use wire::{ProducerEpoch, ProducerId, Sequence, TopicId};

    fn sample() -> Message {
        let headers = Table::of([
            ("retries", Value::I32(3)),
            ("when", Value::Timestamp(1_700_000_000)),
            ("raw", Value::Bytes(Bytes::from_static(b"\xff\x00"))),
        ]);
        let properties = Properties {
            content_type: short_bytes("text/plain"),
            headers: Some(headers),
            delivery_mode: Some(2),
            correlation_id: short_bytes("c-1"),
            ..Properties::default()
        };
        Message {
            exchange: ShortString::truncated("logs"),
            routing_key: ShortString::truncated("a.b"),
            content: Content {
                properties: properties.encode(),
                body: Bytes::from_static(b"body"),
            },
        }
    }

    #[test]
    fn a_message_comes_back_as_it_went_and_can_be_read() {
        let message = sample();
        let mut builder = BatchBuilder::default();
        message.encode().push(&mut builder);
        let origin = Origin {
            topic: TopicId(1),
            producer: ProducerId(1),
            epoch: ProducerEpoch(1),
            first_sequence: Sequence(0),
        };
        let bytes = builder.seal(origin, 4096).to_vec();
        let batch = Batch::read(bytes.as_slice(), Verify::Sections).unwrap();
        let columns = batch.columns().unwrap();
        let event = columns.events[0];
        let (at, length) = event.headers.unwrap();
        let section = batch.columns_section();
        let event = Event {
            metadata: batch.metadata_section(),
            data: Bytes::copy_from_slice(batch.inline_section().unwrap()),
            headers: Some(&section[at as usize..(at + length) as usize]),
            time: 0,
            queue: "q",
        };
        let json: Json = serde_json::from_slice(event.metadata).unwrap();
        assert_eq!(json["amqp"]["routing_key"], "a.b");
        assert_eq!(json["amqp"]["headers"]["retries"], 3);
        assert_eq!(json["amqp"]["headers"]["raw"]["hex"], "ff00");
        assert_eq!(event.message(), message);
    }

    fn native(metadata: &str, data: &'static [u8]) -> (Message, Properties) {
        let event = Event {
            metadata: metadata.as_bytes(),
            data: Bytes::from_static(data),
            headers: None,
            time: 5_000_000_000,
            queue: "jobs",
        };
        let message = event.message();
        let fields = message.content.properties.fields();
        (message, fields)
    }

    #[test]
    fn an_event_of_a_native_producer_is_a_message_with_sensible_properties() {
        let (message, fields) = native(r#"{"run": 7, "tags": ["a"]}"#, b"pixels");
        assert_eq!(&message.content.body[..], b"pixels");
        assert_eq!(&*message.routing_key, "jobs");
        assert_eq!(fields.headers.unwrap().get("run"), Some(Value::I64(7)));
        assert_eq!(fields.timestamp, Some(5));
        assert_eq!(fields.delivery_mode, Some(2));

        let (message, fields) = native(r#"{"run": 7}"#, b"");
        assert_eq!(&message.content.body[..], br#"{"run": 7}"#);
        assert_eq!(&*fields.content_type.unwrap(), b"application/json");
        assert_eq!(fields.headers, None);

        let said =
            r#"{"amqp": {"routing_key": "k", "content_type": "x/y", "headers": {"a": null}}}"#;
        let (message, fields) = native(said, b"z");
        assert_eq!(&*message.routing_key, "k");
        assert_eq!(&*fields.content_type.unwrap(), b"x/y");
        assert_eq!(fields.headers.unwrap().get("a"), Some(Value::Void));
    }

    #[test]
    fn what_is_no_metadata_of_ours_is_no_reason_to_lose_the_body() {
        for metadata in ["", "null", "7", "{", "{\"amqp\": 3}"] {
            let (message, _) = native(metadata, b"body");
            assert_eq!(&message.content.body[..], b"body", "{metadata}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        let (_, fields) = native(&deep, b"body");
        assert_eq!(fields.headers, None);
        // Any bytes are a header or none.
        for length in 0..40u8 {
            assert!(read_header(&vec![length; usize::from(length)]).is_none());
        }
    }
}
