//! JSON to a definition, with the key in every error.

use super::Retention;
use super::{
    DATA_BLOCK_BYTES_RANGE, DEFINITION_BYTES_MAX, DEFINITION_VERSION, Definition,
    DefinitionBuilder, DefinitionError, METADATA_BYTES_MAX_RANGE, MirrorOf, ONE_IN_RANGE,
    PARTITIONS_MAX, RETENTION_RANGE, RETRY_AFTER_MS_RANGE, TopicKind, unknown_type,
};
use crate::field::FieldPath;
use crate::overflow::{Overflow, RETRY_AFTER_MS_DEFAULT};
use crate::pattern::Pattern;
use crate::placement::Placement;
use crate::plugin::PluginRef;
use crate::quantity::{SIZE_EXAMPLES, TIME_EXAMPLES, size, time_ms};
use crate::schema::Schema;
use crate::selector::{
    FieldHash, FieldRange, MissingFromHash, MissingFromRange, Outside, SelectorKind,
};
use crate::serializer::SerializerKind;
use crate::spread::{PartOf, Spread};
use crate::validator::ValidatorKind;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::num::NonZeroU32;
use wire::Durability;

type Result<T> = std::result::Result<T, DefinitionError>;

/// Reads a definition whose ranges are still to be checked.
pub fn text(text: &str) -> Result<DefinitionBuilder> {
    members(&object(text)?)
}

/// Reads a JSON object whose keys are unique.
pub fn object(text: &str) -> Result<Map<String, Value>> {
    if text.len() > DEFINITION_BYTES_MAX {
        return Err(DefinitionError::too_long(text.len()));
    }
    let not_json =
        |error: serde_json::Error| DefinitionError::new("", format!("not JSON: {error}"));
    let mut from = serde_json::Deserializer::from_str(text);
    let value = UniqueKeys.deserialize(&mut from).map_err(not_json)?;
    from.end().map_err(not_json)?;
    match value {
        Value::Object(members) => Ok(members),
        other => Err(expected("", "an object", &other)),
    }
}

/// Reads a definition that is JSON already.
pub fn members(members: &Map<String, Value>) -> Result<DefinitionBuilder> {
    let root = Object { path: "", members };
    // First, because a later version may well have other keys.
    match root.integer("version", (1, u64::MAX))? {
        None | Some(DEFINITION_VERSION) => {}
        Some(other) => {
            return Err(DefinitionError::new(
                "version",
                format!("version {other} is not supported; this is version {DEFINITION_VERSION}"),
            ));
        }
    }
    root.only(&[
        "version",
        "validator",
        "partition_selector",
        "serializer",
        "durability",
        "retention",
        "keep_until_acknowledged",
        "overflow",
        "metadata_bytes_max",
        "data_block_bytes",
        "validate_on_server",
        "kind",
        "pins",
        "mirror_of",
        "spread",
        "part_of",
        "placement",
    ])?;
    let mut builder = Definition::builder();
    if let Some(object) = root.object("validator")? {
        builder = builder.validator(validator(&object)?);
    }
    if let Some(object) = root.object("partition_selector")? {
        builder = builder.partition_selector(partition_selector(&object)?);
    }
    if let Some(object) = root.object("serializer")? {
        builder = builder.serializer(serializer(&object)?);
    }
    if let Some(name) = root.string("durability")? {
        let durability: Durability = name
            .parse()
            .map_err(|reason: String| DefinitionError::new("durability", reason))?;
        builder = builder.durability(durability);
    }
    if let Some(value) = root.get("retention") {
        builder = builder.retention(match value {
            Value::String(text) => retention_in_words(text)?,
            Value::Object(members) => retention(&Object {
                path: "retention",
                members,
            })?,
            other => {
                let what = format!("an object or {RETENTION_EXAMPLES}");
                return Err(expected("retention", &what, other));
            }
        });
    }
    if let Some(names) = root.strings("keep_until_acknowledged")? {
        builder = builder.keep_until_acknowledged(names);
    }
    if let Some(object) = root.object("overflow")? {
        builder = builder.overflow(overflow(&object)?);
    }
    if let Some(bytes) = root.integer("metadata_bytes_max", METADATA_BYTES_MAX_RANGE)? {
        builder = builder.metadata_bytes_max(bytes as u32);
    }
    if let Some(bytes) = root.integer("data_block_bytes", DATA_BLOCK_BYTES_RANGE)? {
        builder = builder.data_block_bytes(bytes as u32);
    }
    if let Some(yes) = root.boolean("validate_on_server")? {
        builder = builder.validate_on_server(yes);
    }
    match root.string("kind")? {
        None | Some("events") => {}
        Some("steps") => builder = builder.kind(TopicKind::Steps),
        Some(other) => {
            let reason = unknown_type(other, &["events", "steps"]);
            return Err(DefinitionError::new("kind", reason));
        }
    }
    if let Some(yes) = root.boolean("pins")? {
        builder = builder.pins(yes);
    }
    if let Some(object) = root.object("mirror_of")? {
        object.only(&["topic", "id", "link"])?;
        let text = |key| {
            object
                .string(key)
                .map(|text| text.unwrap_or_default().to_owned())
        };
        builder = builder.mirror_of(MirrorOf {
            topic: text("topic")?,
            id: text("id")?,
            link: text("link")?,
        });
    }
    if let Some(object) = root.object("spread")? {
        builder = builder.spread(spread(&object)?);
    }
    if let Some(object) = root.object("placement")? {
        builder = builder.placement(placement(&object)?);
    }
    if let Some(object) = root.object("part_of")? {
        object.only(&["topic", "index"])?;
        object.required("index")?;
        let index = object.integer("index", (0, PARTITIONS_MAX as u64 - 1))?;
        builder = builder.part_of(PartOf {
            topic: object.string("topic")?.unwrap_or_default().to_owned(),
            index: index.unwrap_or_default() as u32,
        });
    }
    Ok(builder)
}

/// Labels that a node has to have, texts or whole numbers.
fn placement(object: &Object<'_>) -> Result<Placement> {
    let mut placement = Placement::default();
    for (label, value) in object.members {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_u64() => number.to_string(),
            other => return Err(expected(&object.key(label), "a text", other)),
        };
        let pushed = placement.push(label, &text);
        pushed.map_err(|reason| DefinitionError::new(object.path, reason))?;
    }
    Ok(placement)
}

fn spread(object: &Object<'_>) -> Result<Spread> {
    object.only(&["partitions"])?;
    let key = object.key("partitions");
    let Value::Array(stored) = object.required("partitions")? else {
        return Err(DefinitionError::new(key, "expected a list of objects"));
    };
    let mut spread = Spread::default();
    for stored in stored {
        let Value::Object(members) = stored else {
            return Err(expected(&key, "a list of objects", stored));
        };
        let stored = Object {
            path: &key,
            members,
        };
        stored.only(&["storage", "config", "count", "placement"])?;
        let count = stored.integer("count", (1, PARTITIONS_MAX as u64))?;
        let on = match stored.object("placement")? {
            Some(labels) => placement(&labels)?,
            None => Placement::default(),
        };
        spread
            .push(
                stored.string("storage")?.unwrap_or_default(),
                stored.string("config")?.unwrap_or_default(),
                &on,
                count.unwrap_or(1) as u32,
            )
            .map_err(|reason| DefinitionError::new(key.clone(), reason))?;
    }
    Ok(spread)
}

const RETENTION_EXAMPLES: &str = "text such as \"40GB\", \"7d\" or \"40GB,7d\"";

/// What the whole topic keeps: a size, a time, or both with a comma between.
fn retention_in_words(text: &str) -> Result<Retention> {
    let refuse = || {
        let found = Value::from(text);
        Err(expected("retention", RETENTION_EXAMPLES, &found))
    };
    let in_range = |limit: u64| (RETENTION_RANGE.0..=RETENTION_RANGE.1).contains(&limit);
    let mut retention = Retention::default();
    for part in text.split(',') {
        let (place, limit) = match (size(part), time_ms(part)) {
            (Some(bytes), _) => (&mut retention.total_bytes, bytes),
            (None, Some(ms)) => (&mut retention.age_ms, ms),
            (None, None) => return refuse(),
        };
        if !in_range(limit) || place.replace(limit).is_some() {
            return refuse();
        }
    }
    Ok(retention)
}

fn retention(object: &Object<'_>) -> Result<Retention> {
    object.only(&["bytes", "total_bytes", "age_ms", "age", "count"])?;
    let age_ms = object.integer("age_ms", RETENTION_RANGE)?;
    let age = object.get("age").map(|value| {
        let text = value.as_str();
        in_words(object, "age", TIME_EXAMPLES, value, text.and_then(time_ms))
    });
    if age.is_some() && age_ms.is_some() {
        let reason = "is there beside \"age_ms\": name one of them";
        return Err(DefinitionError::new(object.key("age"), reason));
    }
    Ok(Retention {
        bytes: bytes(object, "bytes")?,
        total_bytes: bytes(object, "total_bytes")?,
        age_ms: age.transpose()?.or(age_ms),
        count: object.integer("count", RETENTION_RANGE)?,
    })
}

/// A number of bytes, or a size in words.
fn bytes(object: &Object<'_>, key: &str) -> Result<Option<u64>> {
    let Some(value) = object.get(key) else {
        return Ok(None);
    };
    let number = value.as_u64().or_else(|| value.as_str().and_then(size));
    let (min, max) = RETENTION_RANGE;
    let what = format!("an integer from {min} to {max}, or {SIZE_EXAMPLES}");
    in_words(object, key, &what, value, number).map(Some)
}

fn in_words(
    object: &Object<'_>,
    key: &str,
    what: &str,
    value: &Value,
    number: Option<u64>,
) -> Result<u64> {
    let (min, max) = RETENTION_RANGE;
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| expected(&object.key(key), what, value))
}

fn overflow(object: &Object<'_>) -> Result<Overflow> {
    let known = Overflow::NAMES;
    match object.r#type(known)? {
        "grow" => object.plain(Overflow::Grow),
        "block" => object.plain(Overflow::Block),
        "reject" => {
            object.only(&["type", "retry_after_ms"])?;
            let given = object.integer("retry_after_ms", RETRY_AFTER_MS_RANGE)?;
            Ok(Overflow::Reject {
                retry_after_ms: given.map_or(RETRY_AFTER_MS_DEFAULT, |ms| ms as u32),
            })
        }
        "drop_oldest" => object.plain(Overflow::DropOldest),
        "drop_newest" => object.plain(Overflow::DropNewest),
        "sample" => {
            object.only(&["type", "one_in"])?;
            object.required("one_in")?;
            let given = object.integer("one_in", ONE_IN_RANGE)?.unwrap_or(1);
            Ok(Overflow::Sample {
                one_in: NonZeroU32::new(given as u32).unwrap_or(NonZeroU32::MIN),
            })
        }
        other => Err(object.unknown_type(other, known)),
    }
}

fn validator(object: &Object<'_>) -> Result<ValidatorKind> {
    let known = ValidatorKind::NAMES;
    match object.r#type(known)? {
        "none" => object.plain(ValidatorKind::None),
        "json" => object.plain(ValidatorKind::Json),
        "schema" => schema(object).map(ValidatorKind::Schema),
        "eventbridge" => {
            object.only(&["type", "pattern"])?;
            let pattern = Pattern::new(object.required("pattern")?.clone());
            pattern
                .map(ValidatorKind::EventBridge)
                .map_err(|error| DefinitionError::new("validator.pattern", error.to_string()))
        }
        "plugin" => plugin(object).map(ValidatorKind::Plugin),
        other => Err(object.unknown_type(other, known)),
    }
}

fn schema(object: &Object<'_>) -> Result<Schema> {
    object.only(&["type", "schema"])?;
    Schema::new(object.required("schema")?.clone())
        .map_err(|error| DefinitionError::new(object.key("schema"), error.to_string()))
}

fn partition_selector(object: &Object<'_>) -> Result<SelectorKind> {
    let known = SelectorKind::NAMES;
    match object.r#type(known)? {
        "round_robin" => object.plain(SelectorKind::RoundRobin),
        "random" => object.plain(SelectorKind::Random),
        "key_hash" => object.plain(SelectorKind::KeyHash),
        "explicit" => object.plain(SelectorKind::Explicit),
        "field_hash" => {
            object.only(&["type", "field", "missing"])?;
            let field = field(object)?;
            let missing = match object.get("missing") {
                None => MissingFromHash::Refuse,
                Some(Value::String(text)) if text == "refuse" => MissingFromHash::Refuse,
                Some(Value::String(text)) if text == "round_robin" => MissingFromHash::RoundRobin,
                Some(other) => {
                    let key = object.key("missing");
                    return Err(expected(&key, "\"refuse\" or \"round_robin\"", other));
                }
            };
            Ok(SelectorKind::FieldHash(FieldHash { field, missing }))
        }
        "field_range" => field_range(object),
        "plugin" => plugin(object).map(SelectorKind::Plugin),
        other => Err(object.unknown_type(other, known)),
    }
}

fn field_range(object: &Object<'_>) -> Result<SelectorKind> {
    object.only(&["type", "field", "boundaries", "missing", "outside"])?;
    let field = field(object)?;
    let key = object.key("boundaries");
    let boundaries = match object.required("boundaries")? {
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_f64().ok_or_else(|| expected(&key, "numbers", item)))
            .collect::<Result<Vec<f64>>>()?,
        other => return Err(expected(&key, "a list of numbers", other)),
    };
    let missing = match object.get("missing") {
        None => MissingFromRange::Refuse,
        Some(Value::String(text)) if text == "refuse" => MissingFromRange::Refuse,
        Some(other) => match other.as_u64().map(u32::try_from) {
            Some(Ok(partition)) => MissingFromRange::Partition(partition),
            _ => {
                let key = object.key("missing");
                return Err(expected(&key, "\"refuse\" or a partition", other));
            }
        },
    };
    let outside = match object.get("outside") {
        None => Outside::Refuse,
        Some(Value::String(text)) if text == "refuse" => Outside::Refuse,
        Some(Value::String(text)) if text == "clamp" => Outside::Clamp,
        Some(other) => {
            let key = object.key("outside");
            return Err(expected(&key, "\"refuse\" or \"clamp\"", other));
        }
    };
    FieldRange::new(field, boundaries, missing, outside)
        .map(SelectorKind::FieldRange)
        .map_err(|reason| DefinitionError::new(key, reason))
}

fn field(object: &Object<'_>) -> Result<FieldPath> {
    object.required("field")?;
    let text = object.string("field")?.unwrap_or_default();
    FieldPath::new(text).map_err(|reason| DefinitionError::new(object.key("field"), reason))
}

fn serializer(object: &Object<'_>) -> Result<SerializerKind> {
    let known = SerializerKind::NAMES;
    match object.r#type(known)? {
        "json" => object.plain(SerializerKind::Json),
        "raw" => object.plain(SerializerKind::Raw),
        "msgpack" => object.plain(SerializerKind::MessagePack),
        "schema" => schema(object).map(SerializerKind::Schema),
        "plugin" => plugin(object).map(SerializerKind::Plugin),
        other => Err(object.unknown_type(other, known)),
    }
}

fn plugin(object: &Object<'_>) -> Result<PluginRef> {
    object.only(&["type", "name", "options"])?;
    object.required("name")?;
    let name = object.string("name")?.unwrap_or_default();
    let options = match object.get("options") {
        None => Map::new(),
        Some(Value::Object(options)) => options.clone(),
        Some(other) => return Err(expected(&object.key("options"), "an object", other)),
    };
    PluginRef::new(name, options).map_err(|reason| DefinitionError::new(object.key("name"), reason))
}

/// An object of the definition, which knows where it is. A member that is
/// `null` counts as left out.
struct Object<'a> {
    path: &'a str,
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn key(&self, key: &str) -> String {
        match self.path {
            "" => key.into(),
            path => format!("{path}.{key}"),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    fn only(&self, known: &[&str]) -> Result<()> {
        match self
            .members
            .keys()
            .find(|key| !known.contains(&key.as_str()))
        {
            None => Ok(()),
            Some(key) => Err(DefinitionError::new(
                self.key(key),
                format!("unknown key; known here: {}", known.join(", ")),
            )),
        }
    }

    fn object(&self, key: &'a str) -> Result<Option<Object<'a>>> {
        match self.get(key) {
            None => Ok(None),
            // Objects are nested once, so the key is the path.
            Some(Value::Object(members)) => Ok(Some(Object { path: key, members })),
            Some(other) => Err(expected(&self.key(key), "an object", other)),
        }
    }

    fn string(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(expected(&self.key(key), "a string", other)),
        }
    }

    fn strings(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let texts = value.as_array().and_then(|values| {
            let texts = values.iter().map(|value| Some(value.as_str()?.to_owned()));
            texts.collect::<Option<Vec<_>>>()
        });
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => Err(expected(&self.key(key), "a list of strings", value)),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(yes)) => Ok(Some(*yes)),
            Some(other) => Err(expected(&self.key(key), "true or false", other)),
        }
    }

    /// An integer from `min` to `max`. Casts to a narrower type that holds
    /// `max` lose nothing.
    fn integer(&self, key: &str, (min, max): (u64, u64)) -> Result<Option<u64>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
                _ => Err(expected(
                    &self.key(key),
                    &format!("an integer from {min} to {max}"),
                    value,
                )),
            },
        }
    }

    /// The member that says which of several this is.
    fn r#type(&self, known: &[&str]) -> Result<&'a str> {
        self.string("type")?.ok_or_else(|| {
            DefinitionError::new(
                self.key("type"),
                format!("is missing; known: {}", known.join(", ")),
            )
        })
    }

    /// `kind`, whose type is all that there is of it.
    fn plain<T>(&self, kind: T) -> Result<T> {
        self.only(&["type"])?;
        Ok(kind)
    }

    /// A member that must be there.
    fn required(&self, key: &str) -> Result<&'a Value> {
        self.get(key)
            .ok_or_else(|| DefinitionError::new(self.key(key), "is missing"))
    }

    fn unknown_type(&self, found: &str, known: &[&str]) -> DefinitionError {
        DefinitionError::new(self.key("type"), unknown_type(found, known))
    }
}

fn expected(key: &str, what: &str, found: &Value) -> DefinitionError {
    let found = match found {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
        Value::String(text) if text.len() > 80 => "a long string".into(),
        other => other.to_string(),
    };
    DefinitionError::new(key, format!("expected {what}, found {found}"))
}

/// Reads any JSON value whose objects name each member once. serde_json
/// itself keeps the last of several, and then what was meant is a guess.
struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(UniqueKeys)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(Error::custom(format_args!("key {key:?} appears twice")));
            }
            let value = from.next_value_seed(UniqueKeys)?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}
