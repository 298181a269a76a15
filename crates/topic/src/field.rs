//! One field of JSON metadata, found without building the rest.
//!
//! The text is walked up to the field and no further: members that are passed
//! are skipped, not built, and what follows is not looked at. serde_json's own
//! skipping does it; a faster walker (sonic-rs: 40-300 ns) brings a dozen
//! crates of vector code for what is one of several costs of a push.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The longest path, in bytes.
pub const FIELD_PATH_BYTES_MAX: usize = 1024;

/// Where a field is: names of members with dots between them, `sensor.id`. In
/// a list, a part that is a number is the index of an element, from 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldPath {
    parts: Vec<String>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number written without fraction and exponent that 64 bits hold.
    Integer(i128),
    /// Any other number.
    Double(f64),
    /// A string, its escapes resolved.
    Text(Cow<'a, str>),
    /// An object or a list.
    Compound,
}

impl FieldPath {
    /// The path that `text` writes.
    ///
    /// # Errors
    /// Why it is none.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > FIELD_PATH_BYTES_MAX {
            return Err(format!(
                "a path of {} bytes; the limit is {FIELD_PATH_BYTES_MAX}",
                text.len()
            ));
        }
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        if parts.iter().any(String::is_empty) {
            return Err(format!(
                "expected names with dots between them, found {text:?}"
            ));
        }
        Ok(Self { parts })
    }

    /// The field's value, `None` if there is none. Of members of one name
    /// the first counts. Metadata of no bytes has no fields.
    ///
    /// # Errors
    /// Where the text stops being JSON, if that is before the field's end.
    pub fn find<'a>(&self, metadata: &'a [u8]) -> Result<Option<FieldValue<'a>>, String> {
        if metadata.is_empty() {
            return Ok(None);
        }
        let mut found = None;
        let walk = Walk {
            parts: &self.parts,
            found: &mut found,
        };
        let mut from = serde_json::Deserializer::from_slice(metadata);
        let walked = walk.deserialize(&mut from);
        match (found, walked) {
            // Finding the field ends the walk, by an error.
            (Some(value), _) => Ok(Some(value)),
            (None, Ok(())) => Ok(None),
            (None, Err(error)) => Err(format!("metadata is not JSON: {error}")),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("."))
    }
}

/// Goes down one step of the path for each level of the text.
struct Walk<'p, 'a> {
    parts: &'p [String],
    found: &'p mut Option<FieldValue<'a>>,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<(), D::Error> {
        match self.parts {
            [] => {
                *self.found = Some(from.deserialize_any(Leaf)?);
                Ok(())
            }
            _ => from.deserialize_any(self),
        }
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut from: A) -> Result<(), A::Error> {
        let (first, rest) = self.parts.split_first().expect("a step is left");
        while let Some(same) = from.next_key_seed(SameName(first))? {
            if same {
                let parts = rest;
                from.next_value_seed(Walk {
                    parts,
                    found: &mut *self.found,
                })?;
                if self.found.is_some() {
                    return Err(A::Error::custom("found"));
                }
                // The first of its name led nowhere, and others don't count.
                break;
            }
            from.next_value::<IgnoredAny>()?;
        }
        while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut from: A) -> Result<(), A::Error> {
        let (first, rest) = self.parts.split_first().expect("a step is left");
        // Leading zeros would give one element several names.
        let index = first.parse::<usize>().ok();
        let index = index.filter(|index| index.to_string() == *first);
        let mut at = 0;
        loop {
            if index == Some(at) {
                let walk = Walk {
                    parts: rest,
                    found: &mut *self.found,
                };
                if from.next_element_seed(walk)?.is_none() {
                    return Ok(());
                }
                if self.found.is_some() {
                    return Err(A::Error::custom("found"));
                }
            } else if from.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Whether a member's name is this one.
struct SameName<'p>(&'p str);

impl<'a> DeserializeSeed<'a> for SameName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for SameName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// The value at the path's end.
struct Leaf;

impl<'a> Visitor<'a> for Leaf {
    type Value = FieldValue<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(FieldValue::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(FieldValue::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(FieldValue::Integer(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(FieldValue::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(FieldValue::Double(value))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'a str) -> Result<Self::Value, E> {
        Ok(FieldValue::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(FieldValue::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Compound)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        while from.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Compound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(path: &str, text: &'a str) -> Result<Option<FieldValue<'a>>, String> {
        FieldPath::new(path).unwrap().find(text.as_bytes())
    }

    #[test]
    fn values_of_each_kind_are_found() {
        let text = r#"{"skip": {"a": [1, {"b": 2}]}, "a": {"b": [null, true, 7, -7, 1.5,
            "x", "\u00e9", {}, [], 18446744073709551615, 7.0, 1e3]}, "c.d": 9}"#;
        let expected = [
            FieldValue::Null,
            FieldValue::Bool(true),
            FieldValue::Integer(7),
            FieldValue::Integer(-7),
            FieldValue::Double(1.5),
            FieldValue::Text("x".into()),
            FieldValue::Text("é".into()),
            FieldValue::Compound,
            FieldValue::Compound,
            FieldValue::Integer(u64::MAX.into()),
            FieldValue::Double(7.0),
            FieldValue::Double(1000.0),
        ];
        for (index, value) in expected.into_iter().enumerate() {
            assert_eq!(find(&format!("a.b.{index}"), text), Ok(Some(value)));
        }
        for nowhere in ["b", "a.c", "a.b.12", "a.b.00", "a.b.x", "a.b.2.c", "c.d"] {
            assert_eq!(find(nowhere, text), Ok(None), "{nowhere}");
        }
    }

    #[test]
    fn the_first_of_a_name_counts() {
        assert_eq!(
            find("a", r#"{"a": 1, "a": 2}"#),
            Ok(Some(FieldValue::Integer(1)))
        );
        assert_eq!(find("a.b", r#"{"a": 1, "a": {"b": 2}}"#), Ok(None));
    }

    #[test]
    fn the_text_is_walked_up_to_the_field_alone() {
        assert_eq!(
            find("a", r#"{"a": 1, nonsense"#),
            Ok(Some(FieldValue::Integer(1)))
        );
        let error = find("a", r#"{"b": 1, nonsense"#).unwrap_err();
        assert!(error.starts_with("metadata is not JSON: "), "{error}");
        assert!(find("a", r#"{"a": 1e999}"#).is_err());
        assert_eq!(find("a", ""), Ok(None));
        for scalar in ["1", "\"a\"", "null", "[1]", "-1", "1.5", "true"] {
            assert_eq!(find("a", scalar), Ok(None), "{scalar}");
        }
        // Nothing is walked deeper than JSON may nest.
        assert!(find("a", &"[".repeat(100_000)).is_err());
    }

    #[test]
    fn paths_are_names_with_dots_between_them() {
        for bad in ["", ".", "a.", ".a", "a..b"] {
            assert!(FieldPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(FieldPath::new(&"a".repeat(FIELD_PATH_BYTES_MAX + 1)).is_err());
        assert_eq!(FieldPath::new("a.b.0").unwrap().to_string(), "a.b.0");
    }
}
