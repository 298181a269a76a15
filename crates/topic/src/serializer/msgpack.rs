//! JSON metadata as MessagePack, and back, without a document in between:
//! the one format's reader drives the other's writer.

use super::{Serializer, SerializerError};
use crate::json_text::JSON_DEPTH_MAX;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer as Writer};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The MessagePack serializer.
pub struct MessagePack;

impl Serializer for MessagePack {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        if metadata.is_empty() {
            return Ok(());
        }
        let begin = out.len();
        let mut from = serde_json::Deserializer::from_slice(metadata);
        let written = Once::new(&mut from)
            .serialize(&mut rmp_serde::Serializer::new(&mut *out))
            .map_err(|error| error.to_string())
            .and_then(|()| from.end().map_err(|error| error.to_string()));
        written.map_err(|error| {
            out.truncate(begin);
            SerializerError::new(format!("metadata is not JSON: {error}"))
        })
    }

    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError> {
        let mut out = Vec::new();
        if bytes.is_empty() {
            return Ok(Cow::Owned(out));
        }
        let refuse =
            |error: String| SerializerError::new(format!("not JSON as MessagePack: {error}"));
        let mut rest = bytes;
        let mut from = rmp_serde::Deserializer::new(&mut rest);
        from.set_max_depth(JSON_DEPTH_MAX as usize + 1);
        Once::new(&mut from)
            .serialize(&mut serde_json::Serializer::new(&mut out))
            .map_err(|error| refuse(error.to_string()))?;
        match rest.len() {
            0 => Ok(Cow::Owned(out)),
            more => Err(refuse(format!("{more} bytes behind the value"))),
        }
    }
}

/// The value that a reader is about to read, to be written once.
struct Once<D>(Cell<Option<D>>);

impl<D> Once<D> {
    fn new(from: D) -> Self {
        Self(Cell::new(Some(from)))
    }
}

impl<'de, D: Deserializer<'de>> Serialize for Once<D> {
    fn serialize<S: Writer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let from = self.0.take().expect("a writer writes a value once");
        from.deserialize_any(Value(to)).map_err(S::Error::custom)
    }
}

/// Writes the value that it is shown, if JSON has such values.
struct Value<S>(S);

/// An error of the writer, as one of the reader.
fn crossing<E: serde::de::Error>(error: impl fmt::Display) -> E {
    E::custom(error)
}

impl<'de, S: Writer> Visitor<'de> for Value<S> {
    type Value = S::Ok;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<S::Ok, E> {
        self.0.serialize_unit().map_err(crossing)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<S::Ok, E> {
        self.0.serialize_bool(value).map_err(crossing)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<S::Ok, E> {
        self.0.serialize_u64(value).map_err(crossing)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<S::Ok, E> {
        self.0.serialize_i64(value).map_err(crossing)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<S::Ok, E> {
        if !value.is_finite() {
            return Err(E::custom("JSON has no infinities and no NaN"));
        }
        self.0.serialize_f64(value).map_err(crossing)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<S::Ok, E> {
        self.0.serialize_str(value).map_err(crossing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<S::Ok, A::Error> {
        let mut to = self.0.serialize_seq(from.size_hint()).map_err(crossing)?;
        while from.next_element_seed(Element(&mut to))?.is_some() {}
        to.end().map_err(crossing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<S::Ok, A::Error> {
        let mut to = self.0.serialize_map(from.size_hint()).map_err(crossing)?;
        while let Some(name) = from.next_key_seed(Name)? {
            to.serialize_key(&*name).map_err(crossing)?;
            from.next_value_seed(Member(&mut to))?;
        }
        to.end().map_err(crossing)
    }
}

/// The next element of a list, into the list that is written.
struct Element<'s, S>(&'s mut S);

impl<'de, S: SerializeSeq> DeserializeSeed<'de> for Element<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let written = self.0.serialize_element(&Once::new(from));
        written.map_err(D::Error::custom)
    }
}

/// The value of a member, into the object that is written.
struct Member<'s, S>(&'s mut S);

impl<'de, S: SerializeMap> DeserializeSeed<'de> for Member<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let written = self.0.serialize_value(&Once::new(from));
        written.map_err(D::Error::custom)
    }
}

/// The name of a member: in JSON a string.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name that is a string")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Number, json};

    fn write(text: &str) -> Vec<u8> {
        let mut out = b"before".to_vec();
        MessagePack.serialize(text.as_bytes(), &mut out).unwrap();
        assert_eq!(&out[..6], b"before");
        out.split_off(6)
    }

    fn read(bytes: &[u8]) -> Result<String, String> {
        let text = MessagePack.deserialize(bytes).map_err(|e| e.to_string())?;
        Ok(String::from_utf8(text.into_owned()).unwrap())
    }

    #[test]
    fn values_have_the_bytes_of_the_specification() {
        for (text, bytes) in [
            ("null", &b"\xc0"[..]),
            (" true ", b"\xc3"),
            ("5", b"\x05"),
            ("-1", b"\xff"),
            ("300", b"\xcd\x01\x2c"),
            ("1.5", b"\xcb\x3f\xf8\0\0\0\0\0\0"),
            ("\"a\\u0062\"", b"\xa2ab"),
            ("[1, []]", b"\x92\x01\x90"),
            ("{\"b\": 1, \"a\": {}}", b"\x82\xa1b\x01\xa1a\x80"),
        ] {
            assert_eq!(write(text), bytes, "{text}");
        }
        assert_eq!(
            read(b"\x82\xa1b\x01\xa1a\x80").unwrap(),
            r#"{"b":1,"a":{}}"#
        );
        assert_eq!(write(""), b"");
        assert_eq!(read(b"").unwrap(), "");
    }

    #[test]
    fn what_is_not_json_is_refused_and_leaves_nothing() {
        for text in [
            "{",
            "[1, 2",
            "nul",
            "1 2",
            "{\"a\": 1,}",
            "\"\\ud800\"",
            "1e999",
        ] {
            let mut out = b"before".to_vec();
            let error = MessagePack.serialize(text.as_bytes(), &mut out);
            let error = error.unwrap_err().to_string();
            assert!(
                error.starts_with("metadata is not JSON: "),
                "{text}: {error}"
            );
            assert_eq!(out, b"before", "{text}");
        }
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let depth = JSON_DEPTH_MAX as usize;
        assert_eq!(read(&write(&deep(depth))).unwrap(), deep(depth));
        let mut out = Vec::new();
        assert!(
            MessagePack
                .serialize(deep(depth + 1).as_bytes(), &mut out)
                .is_err()
        );
    }

    #[test]
    fn what_json_has_no_word_for_is_refused() {
        for (bytes, what) in [
            (&b"\xc1"[..], "the byte that is never used"),
            (b"\xc4\x01a", "bytes"),
            (b"\xd4\x05a", "an extension"),
            (b"\x81\x01\x02", "a name that is a number"),
            (b"\xcb\x7f\xf8\0\0\0\0\0\0", "NaN"),
            (b"\xca\x7f\x80\0\0", "infinity"),
            (b"\xa1\xff", "a string that is not UTF-8"),
            (b"\x92\x01", "a list cut short"),
            (
                b"\xdf\xff\xff\xff\xff",
                "a map of 4 billion members that are not there",
            ),
            (
                b"\xdb\xff\xff\xff\xffa",
                "a string of 4 GiB that is not there",
            ),
            (b"\x01\x01", "a second value"),
            (&[0x91; 10_000], "lists in lists"),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(
                error.starts_with("not JSON as MessagePack: "),
                "{what}: {error}"
            );
        }
    }

    /// A value made from the digits of a seed.
    fn any(seed: &mut u64, depth: u32) -> serde_json::Value {
        let mut next = |below: u64| {
            *seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (*seed >> 33) % below
        };
        match next(if depth == 0 { 7 } else { 9 }) {
            0 => json!(null),
            1 => json!(next(2) == 0),
            2 => json!((next(1 << 31) as i64 - (1 << 30)) << next(33)),
            3 => json!(u64::MAX >> next(64)),
            4 | 5 => {
                let bits = next(1 << 31) << 33 | next(1 << 31) << 2 | next(4);
                Number::from_f64(f64::from_bits(bits)).map_or(json!(0.1), serde_json::Value::from)
            }
            6 => {
                let texts = [
                    "",
                    "a",
                    "\u{0}\n\"\\",
                    "é€😀",
                    "a string of more than thirty-one bytes",
                ];
                json!(texts[next(5) as usize])
            }
            7 => (0..next(40)).map(|_| any(seed, depth - 1)).collect(),
            _ => {
                let count = next(20);
                let member = |index| (format!("m{index}"), any(seed, depth - 1));
                serde_json::Value::Object((0..count).map(member).collect())
            }
        }
    }

    #[test]
    fn any_json_comes_back_as_the_same_value() {
        for seed in 0..2000 {
            let value = any(&mut (seed * 77 + 1), 3);
            let text = value.to_string();
            let bytes = write(&text);
            let back = read(&bytes).unwrap();
            assert_eq!(back, text, "seed {seed}");
            // And a program that reads it with another library reads the same.
            let other: serde_json::Value = rmp_serde::from_slice(&bytes).unwrap();
            assert_eq!(other, value, "seed {seed}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut read_count = 0;
        for seed in 0..20_000u64 {
            let mut bytes = write(&any(&mut (seed / 10), 2).to_string());
            let mut state = seed;
            for _ in 0..seed % 4 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            if let Ok(text) = read(&bytes) {
                crate::check_json(text.as_bytes()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                read_count += 1;
            }
        }
        assert!(read_count > 5000, "{read_count} of 20000 were read");
    }
}
