//! How metadata becomes the bytes of an event and back.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Turns metadata into the bytes that travel, and back.
///
/// Implementations are shared by threads and must be pure: equal input gives
/// equal output, and `deserialize` undoes `serialize`. They must not panic on
/// any input; bytes from elsewhere may be anything.
pub trait Serializer: Send + Sync {
    /// Appends the serialized form of `metadata` to `out`.
    ///
    /// # Errors
    /// When the metadata has no serialized form; `out` is then as it was.
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError>;

    /// The metadata that `bytes` stand for, borrowed where they are the same.
    ///
    /// # Errors
    /// When `bytes` are not something that `serialize` makes.
    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError>;

    /// Whether both directions leave the bytes as they are, so that a caller
    /// may leave out the call and the copy.
    fn is_identity(&self) -> bool {
        false
    }
}

/// Metadata that has no serialized form, or bytes that are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerializerError {
    reason: String,
}

impl SerializerError {
    /// An error for this reason: one sentence that names what was wrong.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

impl fmt::Display for SerializerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SerializerError {}

/// Which serializer a topic uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SerializerKind {
    /// Metadata is JSON text, in the event as the producer wrote it.
    #[default]
    Json,
    /// Metadata is bytes without a meaning to Thalweg.
    Raw,
}

impl SerializerKind {
    /// All kinds, in the order in which messages list them.
    pub const ALL: &[Self] = &[Self::Json, Self::Raw];

    /// The name in a definition.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Raw => "raw",
        }
    }

    /// A serializer of this kind, to be shared.
    pub fn build(self) -> Arc<dyn Serializer> {
        // Both leave the bytes alone; they differ in what a client may expect
        // of them, which is why the kind is kept in the definition.
        match self {
            Self::Json | Self::Raw => Arc::new(Identity),
        }
    }
}

impl fmt::Display for SerializerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SerializerKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        crate::definition::named(text, Self::ALL, |kind| kind.name())
    }
}

struct Identity;

impl Serializer for Identity {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        out.extend_from_slice(metadata);
        Ok(())
    }

    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError> {
        Ok(Cow::Borrowed(bytes))
    }

    fn is_identity(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_through_unchanged_and_are_not_copied_back() {
        for kind in SerializerKind::ALL {
            let serializer = kind.build();
            let mut out = b"before".to_vec();
            for metadata in [&b""[..], b"{\"a\": 1}", b"\xff\0 not text"] {
                out.truncate(6);
                serializer.serialize(metadata, &mut out).unwrap();
                assert_eq!(&out[..6], b"before");
                assert_eq!(&out[6..], metadata);
                let back = serializer.deserialize(&out[6..]).unwrap();
                assert_eq!(&*back, metadata);
                assert!(matches!(back, Cow::Borrowed(_)));
            }
            assert!(serializer.is_identity());
        }
    }

    #[test]
    fn names_round_trip_and_unknown_ones_list_the_known() {
        for kind in SerializerKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert_eq!(
            "avro".parse::<SerializerKind>(),
            Err(r#"unknown type "avro"; known: json, raw"#.into())
        );
    }
}
