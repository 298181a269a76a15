//! What of a schema is of use for storing what it describes.

use serde_json::{Map, Value};

/// Shapes that lie within each other at most; below it is JSON text.
const DEPTH_MAX: u32 = 32;

/// What a schema says of a value.
pub(super) enum Shape {
    /// An object with these members among others, in the order of their names.
    Object(Vec<Member>),
    List(Box<Shape>),
    /// One of these.
    OneOf(Vec<Value>),
    /// A double.
    Number,
    /// 64 bits with a sign.
    Integer,
    Text,
    Boolean,
    /// Nothing that is of use.
    Any,
}

/// A member that the schema names.
pub(super) struct Member {
    pub name: String,
    pub shape: Shape,
}

impl Shape {
    /// Of a schema that was checked. Keywords that it does not know, it
    /// leaves alone: what they forbid is written all the same.
    pub fn of(schema: &Value) -> Self {
        Self::at(schema, 0)
    }

    fn at(schema: &Value, depth: u32) -> Self {
        let Value::Object(schema) = schema else {
            return Self::Any;
        };
        if depth == DEPTH_MAX {
            return Self::Any;
        }
        if let Some(value) = schema.get("const") {
            return Self::OneOf(vec![value.clone()]);
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return Self::OneOf(values.clone());
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => Self::object(schema, depth),
            Some("array") => match schema.get("items") {
                Some(items) if !schema.contains_key("prefixItems") => {
                    Self::List(Box::new(Self::at(items, depth + 1)))
                }
                _ => Self::Any,
            },
            Some("number") => Self::Number,
            Some("integer") => Self::Integer,
            Some("string") => Self::Text,
            Some("boolean") => Self::Boolean,
            _ => Self::Any,
        }
    }

    fn object(schema: &Map<String, Value>, depth: u32) -> Self {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return Self::Any;
        };
        let mut members: Vec<Member> = properties
            .iter()
            .map(|(name, schema)| Member {
                name: name.clone(),
                shape: Self::at(schema, depth + 1),
            })
            .collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Self::Object(members)
    }

    /// Whether it has `value`, so that this can be written by it and is the
    /// same when it is read.
    pub fn has(&self, value: &Value) -> bool {
        match self {
            Self::Object(_) => value.is_object(),
            Self::List(_) => value.is_array(),
            Self::OneOf(values) => values.contains(value),
            Self::Number => value.is_f64(),
            Self::Integer => value.as_i64().is_some(),
            Self::Text => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Any => true,
        }
    }
}
