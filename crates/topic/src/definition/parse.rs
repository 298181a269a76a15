//! JSON to a definition, with the key in every error.

use super::Retention;
use super::{
    DATA_BLOCK_BYTES_RANGE, DEFINITION_BYTES_MAX, DEFINITION_VERSION, Definition,
    DefinitionBuilder, DefinitionError, METADATA_BYTES_MAX_RANGE, RETENTION_RANGE, named,
    unknown_type,
};
use crate::schema::Schema;
use crate::selector::SelectorKind;
use crate::serializer::SerializerKind;
use crate::validator::ValidatorKind;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use wire::Durability;

type Result<T> = std::result::Result<T, DefinitionError>;

/// Reads a definition whose ranges are still to be checked.
pub fn text(text: &str) -> Result<DefinitionBuilder> {
    if text.len() > DEFINITION_BYTES_MAX {
        return Err(DefinitionError::too_long(text.len()));
    }
    let not_json =
        |error: serde_json::Error| DefinitionError::new("", format!("not JSON: {error}"));
    let mut from = serde_json::Deserializer::from_str(text);
    let value = UniqueKeys.deserialize(&mut from).map_err(not_json)?;
    from.end().map_err(not_json)?;
    match value {
        Value::Object(members_of) => members(&members_of),
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
        "metadata_bytes_max",
        "data_block_bytes",
        "validate_on_server",
    ])?;
    let mut builder = Definition::builder();
    if let Some(object) = root.object("validator")? {
        builder = builder.validator(validator(&object)?);
    }
    if let Some(object) = root.object("partition_selector")? {
        builder = builder.partition_selector(object.only_type(SelectorKind::ALL, |k| k.name())?);
    }
    if let Some(object) = root.object("serializer")? {
        builder = builder.serializer(object.only_type(SerializerKind::ALL, |k| k.name())?);
    }
    if let Some(name) = root.string("durability")? {
        let durability: Durability = name
            .parse()
            .map_err(|reason: String| DefinitionError::new("durability", reason))?;
        builder = builder.durability(durability);
    }
    if let Some(object) = root.object("retention")? {
        object.only(&["bytes", "age_ms", "count"])?;
        builder = builder.retention(Retention {
            bytes: object.integer("bytes", RETENTION_RANGE)?,
            age_ms: object.integer("age_ms", RETENTION_RANGE)?,
            count: object.integer("count", RETENTION_RANGE)?,
        });
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
    Ok(builder)
}

fn validator(object: &Object<'_>) -> Result<ValidatorKind> {
    let name = object.r#type(ValidatorKind::NAMES)?;
    match name {
        "none" | "json" => object.only(&["type"])?,
        _ => object.only(&["type", "schema"])?,
    }
    match name {
        "none" => Ok(ValidatorKind::None),
        "json" => Ok(ValidatorKind::Json),
        "schema" => {
            let Some(source) = object.get("schema") else {
                return Err(DefinitionError::new(object.key("schema"), "is missing"));
            };
            let schema = Schema::new(source.clone());
            schema
                .map(ValidatorKind::Schema)
                .map_err(|error| DefinitionError::schema(&error))
        }
        other => Err(DefinitionError::new(
            object.key("type"),
            unknown_type(other, ValidatorKind::NAMES),
        )),
    }
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

    /// The type of something that has no other members.
    fn only_type<T: Copy>(&self, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
        let known: Vec<_> = all.iter().map(|one| name(*one)).collect();
        let found = self.r#type(&known)?;
        self.only(&["type"])?;
        named(found, all, name).map_err(|reason| DefinitionError::new(self.key("type"), reason))
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
