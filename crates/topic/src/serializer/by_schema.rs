//! JSON metadata without what its schema says already: names of members,
//! types, constants. The bytes are described in `docs/format/metadata.md`.

mod shape;

use super::{Serializer, SerializerError};
use serde_json::{Map, Value};
use shape::{Member, Shape};
use std::borrow::Cow;

/// First byte of metadata: what follows.
mod form {
    /// JSON text.
    pub const TEXT: u8 = 0;
    /// What the schema describes.
    pub const SHAPED: u8 = 1;
}

/// What a member of an object is, in two bits.
mod state {
    pub const ABSENT: u8 = 0;
    /// As the schema has it.
    pub const SHAPED: u8 = 1;
    /// JSON text, for the schema has it otherwise.
    pub const TEXT: u8 = 2;
    /// `true` where the schema has a boolean, a whole number where it has a number.
    pub const OTHERWISE: u8 = 3;
}

/// First byte of a list: what its elements are.
mod elements {
    pub const TEXT: u8 = 0;
    pub const SHAPED: u8 = 1;
}

/// Serializes by a schema.
pub struct BySchema {
    shape: Shape,
}

impl BySchema {
    /// A serializer for metadata that is as `schema` has it, and for any other.
    pub fn new(schema: &Value) -> Self {
        Self {
            shape: Shape::of(schema),
        }
    }
}

impl Serializer for BySchema {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        if metadata.is_empty() {
            return Ok(());
        }
        let value: Value = serde_json::from_slice(metadata)
            .map_err(|error| SerializerError::new(format!("metadata is not JSON: {error}")))?;
        match self.shape.has(&value) {
            true => {
                out.push(form::SHAPED);
                put_shaped(&self.shape, &value, out);
            }
            false => {
                out.push(form::TEXT);
                put_json(&value, out);
            }
        }
        Ok(())
    }

    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError> {
        let Some((first, rest)) = bytes.split_first() else {
            return Ok(Cow::Borrowed(bytes));
        };
        let mut from = From { rest };
        let value = match *first {
            form::TEXT => return Ok(Cow::Borrowed(rest)),
            form::SHAPED => from.shaped(&self.shape),
            _ => None,
        };
        match value {
            Some(value) if from.rest.is_empty() => {
                let mut out = Vec::with_capacity(bytes.len() * 2);
                put_json(&value, &mut out);
                Ok(Cow::Owned(out))
            }
            _ => Err(SerializerError::new(
                "not metadata as the topic's serializer writes it",
            )),
        }
    }
}

fn put_json(value: &Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("a value is JSON, and memory takes it");
}

fn put_text(value: &Value, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    put_json(value, &mut text);
    put_bytes(&text, out);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// LEB128.
fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_integer(integer: i64, out: &mut Vec<u8>) {
    put_number(((integer << 1) ^ (integer >> 63)) as u64, out);
}

/// How a member's value is written.
fn state_of(shape: &Shape, value: Option<&Value>) -> u8 {
    match (shape, value) {
        (_, None) => state::ABSENT,
        (Shape::Boolean, Some(Value::Bool(true))) => state::OTHERWISE,
        (Shape::Number, Some(Value::Number(number))) if number.as_i64().is_some() => {
            state::OTHERWISE
        }
        (shape, Some(value)) if shape.has(value) => state::SHAPED,
        _ => state::TEXT,
    }
}

/// `shape` has `value`.
fn put_shaped(shape: &Shape, value: &Value, out: &mut Vec<u8>) {
    match (shape, value) {
        (Shape::Object(members), Value::Object(object)) => put_object(members, object, out),
        (Shape::List(element), Value::Array(list)) => {
            put_number(list.len() as u64, out);
            let shaped = list.iter().all(|one| element.has(one));
            out.push(if shaped {
                elements::SHAPED
            } else {
                elements::TEXT
            });
            for one in list {
                match shaped {
                    true => put_shaped(element, one, out),
                    false => put_text(one, out),
                }
            }
        }
        (Shape::OneOf(values), value) => {
            let index = values.iter().position(|one| one == value);
            put_number(index.expect("the shape has it") as u64, out);
        }
        (Shape::Number, Value::Number(number)) => {
            let number = number.as_f64().expect("the shape has it");
            out.extend_from_slice(&number.to_le_bytes());
        }
        (Shape::Integer, Value::Number(number)) => {
            put_integer(number.as_i64().expect("the shape has it"), out);
        }
        (Shape::Text, Value::String(text)) => put_bytes(text.as_bytes(), out),
        // In an object its state says all of it.
        (Shape::Boolean, Value::Bool(yes)) => out.push(u8::from(*yes)),
        _ => put_text(value, out),
    }
}

fn put_object(members: &[Member], object: &Map<String, Value>, out: &mut Vec<u8>) {
    let states: Vec<u8> = members
        .iter()
        .map(|member| state_of(&member.shape, object.get(&member.name)))
        .collect();
    out.extend(states.chunks(4).map(|four| {
        let each = four.iter().enumerate();
        each.fold(0, |byte, (index, state)| byte | state << (2 * index))
    }));
    for (member, state) in members.iter().zip(&states) {
        let Some(value) = object.get(&member.name) else {
            continue;
        };
        match (*state, &member.shape) {
            (state::SHAPED | state::OTHERWISE, Shape::Boolean) => {}
            (state::OTHERWISE, _) => {
                put_integer(value.as_i64().expect("its state says so"), out);
            }
            (state::SHAPED, shape) => put_shaped(shape, value, out),
            _ => put_text(value, out),
        }
    }
    let others = || {
        let known = |name: &String| members.binary_search_by(|member| member.name.cmp(name));
        object.iter().filter(move |(name, _)| known(name).is_err())
    };
    put_number(others().count() as u64, out);
    for (name, value) in others() {
        put_bytes(name.as_bytes(), out);
        put_text(value, out);
    }
}

/// Takes apart what `put_*` wrote, or what anybody did: `None` is for bytes
/// that mean nothing. Shapes bound how deep it goes, and every element takes
/// a byte at least, so that the bytes bound what is made of them.
struct From<'a> {
    rest: &'a [u8],
}

impl<'a> From<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<Value> {
        serde_json::from_slice(self.bytes()?).ok()
    }

    fn string(&mut self) -> Option<String> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        Some(text.to_owned())
    }

    fn shaped(&mut self, shape: &Shape) -> Option<Value> {
        Some(match shape {
            Shape::Object(members) => Value::Object(self.object(members)?),
            Shape::List(element) => {
                let count = self.number()?;
                let shaped = match self.byte()? {
                    elements::TEXT => false,
                    elements::SHAPED => true,
                    _ => return None,
                };
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(match shaped {
                        true => self.shaped(element)?,
                        false => self.text()?,
                    });
                }
                Value::Array(list)
            }
            Shape::OneOf(values) => {
                let index = usize::try_from(self.number()?).ok()?;
                values.get(index)?.clone()
            }
            Shape::Number => {
                let bytes = self.take(8)?.try_into().expect("eight were taken");
                // JSON has no infinities.
                Value::Number(serde_json::Number::from_f64(f64::from_le_bytes(bytes))?)
            }
            Shape::Integer => self.integer()?.into(),
            Shape::Text => self.string()?.into(),
            Shape::Boolean => match self.byte()? {
                0 => false.into(),
                1 => true.into(),
                _ => return None,
            },
            Shape::Any => self.text()?,
        })
    }

    fn object(&mut self, members: &[Member]) -> Option<Map<String, Value>> {
        let states = self.take(members.len().div_ceil(4))?;
        let mut object = Map::new();
        for (index, member) in members.iter().enumerate() {
            let state = states[index / 4] >> (2 * (index % 4)) & 3;
            let value = match (state, &member.shape) {
                (state::ABSENT, _) => continue,
                (state::SHAPED, Shape::Boolean) => false.into(),
                (state::OTHERWISE, Shape::Boolean) => true.into(),
                (state::OTHERWISE, Shape::Number) => self.integer()?.into(),
                (state::SHAPED, shape) => self.shaped(shape)?,
                (state::TEXT, _) => self.text()?,
                _ => return None,
            };
            object.insert(member.name.clone(), value);
        }
        for _ in 0..self.number()? {
            let name = self.string()?;
            object.insert(name, self.text()?);
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn serializer() -> BySchema {
        BySchema::new(&json!({
            "type": "object",
            "required": ["frame"],
            "properties": {
                "frame": {"type": "integer"},
                "energy": {"type": "number"},
                "good": {"type": "boolean"},
                "unit": {"enum": ["keV", "eV", null]},
                "format": {"const": "float32"},
                "shape": {"type": "array", "items": {"type": "integer"}},
                "note": {"type": "string"},
                "stage": {"type": "object", "properties": {"x": {"type": "number"}}},
                "free": true,
            }
        }))
    }

    fn there_and_back(serializer: &BySchema, value: &Value) -> usize {
        let mut bytes = b"before".to_vec();
        let text = value.to_string();
        serializer.serialize(text.as_bytes(), &mut bytes).unwrap();
        assert_eq!(&bytes[..6], b"before");
        let back = serializer.deserialize(&bytes[6..]).unwrap();
        assert_eq!(&serde_json::from_slice::<Value>(&back).unwrap(), value);
        bytes.len() - 6
    }

    #[test]
    fn what_the_schema_says_is_not_stored() {
        let serializer = serializer();
        let all = json!({
            "frame": 12, "energy": 12.5, "good": true, "unit": "eV", "format": "float32",
            "shape": [640, 480], "stage": {"x": 0.25}
        });
        // 1 for the form, 3 of states, 2 + 8 for numbers, 1 + 5 for the list
        // and its elements, one for the unit, 10 for the stage, the others' count.
        assert!(there_and_back(&serializer, &all) <= 32);
        assert_eq!(there_and_back(&serializer, &json!({"frame": 1})), 6);
    }

    /// Also what the schema does not have, or has otherwise: a serializer is
    /// no validator, and schemas grow.
    #[test]
    fn any_metadata_comes_back() {
        let serializer = serializer();
        for value in [
            json!(null),
            json!([1, "a"]),
            json!({}),
            json!({"frame": "x", "energy": null, "good": 1, "unit": "J", "format": 1}),
            json!({"frame": u64::MAX, "energy": u64::MAX, "good": false, "unit": null}),
            json!({"frame": i64::MIN, "energy": i64::MIN}),
            json!({"frame": 1.0, "energy": 1.0, "shape": [1, 2.5]}),
            json!({"energy": 7, "shape": [], "stage": {"y": 1, "x": true}}),
            json!({"shape": "none", "stage": [], "free": {"a": [1]}, "note": "\u{0}é"}),
            json!({"new": 1, "frame": 2, "": {}}),
        ] {
            there_and_back(&serializer, &value);
        }
        let free = BySchema::new(&json!({}));
        there_and_back(&free, &json!({"a": 1}));
        let mut bytes = Vec::new();
        serializer.serialize(b"", &mut bytes).unwrap();
        assert!(bytes.is_empty());
        assert!(serializer.deserialize(b"").unwrap().is_empty());
        let error = serializer.serialize(b"{", &mut bytes).unwrap_err();
        assert!(error.to_string().contains("not JSON"), "{error}");
        assert!(bytes.is_empty());
    }

    /// A consumer that knows an earlier schema, and one that knows a later
    /// one, read what is stored by the one the topic was made with: the
    /// serializer's does not change.
    #[test]
    fn bytes_do_not_change() {
        let mut bytes = Vec::new();
        let text = br#"{"frame": -1, "energy": 2, "good": false, "unit": "keV", "new": 3}"#;
        serializer().serialize(text, &mut bytes).unwrap();
        // In the order of names: energy, format, frame, free; good, note,
        // shape, stage; unit.
        let expected = [
            &[1, 0b00_01_00_11, 0b00_00_00_01, 0b01][..],
            &[4, 1, 0],
            &[1, 3, b'n', b'e', b'w', 1, b'3'],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn bytes_from_elsewhere_are_refused_or_read_and_never_more() {
        let serializer = serializer();
        let mut whole = Vec::new();
        let text = json!({
            "frame": 12, "energy": 12.5, "good": true, "unit": "eV", "note": "ab",
            "shape": [640, 480], "stage": {"x": 0.25}, "new": [1]
        });
        serializer
            .serialize(text.to_string().as_bytes(), &mut whole)
            .unwrap();
        for length in 1..whole.len() {
            assert!(
                serializer.deserialize(&whole[..length]).is_err(),
                "{length}"
            );
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Ok(text) = serializer.deserialize(&bytes)
                    && at > 0
                {
                    serde_json::from_slice::<Value>(&text).unwrap();
                }
            }
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(serializer.deserialize(&longer).is_err());
        // A list of more elements than there are bytes ends with the bytes.
        let list = BySchema::new(&json!({"type": "array", "items": {"const": 1}}));
        let bytes = [&[1][..], &[0xff; 9], &[1, 1]].concat();
        assert!(list.deserialize(&bytes).is_err());
    }
}
