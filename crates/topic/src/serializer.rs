//! How metadata becomes the bytes of an event and back.

mod by_schema;
mod msgpack;

use crate::plugin::{PluginError, PluginRef, Plugins};
use crate::schema::Schema;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Turns metadata into the bytes that travel, and back.
///
/// Implementations are shared by threads and must be pure: equal input gives
/// equal output, and `deserialize` undoes `serialize`, up to what means the
/// same, like white space in JSON. They must not panic on any input; bytes
/// from elsewhere may be anything. Metadata of no bytes is that of an event
/// that has none.
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
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SerializerKind {
    /// Metadata is JSON text, in the event as the producer wrote it.
    #[default]
    Json,
    /// Metadata is bytes without a meaning to Thalweg.
    Raw,
    /// Metadata is JSON text, and MessagePack in the event.
    MessagePack,
    /// Metadata is JSON text, and in the event what its schema does not say.
    Schema(Schema),
    /// What a plugin makes of it.
    Plugin(PluginRef),
}

impl SerializerKind {
    /// The names of all kinds, in the order in which messages list them.
    pub const NAMES: &[&str] = &["json", "raw", "msgpack", "schema", "plugin"];

    /// The name in a definition.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Raw => "raw",
            Self::MessagePack => "msgpack",
            Self::Schema(_) => "schema",
            Self::Plugin(_) => "plugin",
        }
    }

    /// The plugin, if it is one.
    pub fn plugin(&self) -> Option<&PluginRef> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// A serializer of this kind, to be shared.
    ///
    /// # Errors
    /// Of plugins only.
    pub fn build(&self, plugins: &dyn Plugins) -> Result<Arc<dyn Serializer>, PluginError> {
        Ok(match self {
            // Both leave the bytes alone; they differ in what a client may
            // expect of them, which is why the kind is in the definition.
            Self::Json | Self::Raw => Arc::new(Identity),
            Self::MessagePack => Arc::new(msgpack::MessagePack),
            Self::Schema(schema) => Arc::new(by_schema::BySchema::new(schema.source())),
            Self::Plugin(plugin) => plugins.serializer(plugin)?,
        })
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
    use crate::plugin::NoPlugins;

    #[test]
    fn bytes_go_through_unchanged_and_are_not_copied_back() {
        for kind in [SerializerKind::Json, SerializerKind::Raw] {
            let serializer = kind.build(&NoPlugins).unwrap();
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
        let msgpack = SerializerKind::MessagePack.build(&NoPlugins).unwrap();
        assert!(!msgpack.is_identity());
    }

    #[test]
    fn a_plugin_that_is_nowhere_is_named() {
        let plugin = PluginRef::new("energy:libenergy.so", Default::default()).unwrap();
        let error = SerializerKind::Plugin(plugin).build(&NoPlugins);
        assert_eq!(
            error.err().expect("there are none").to_string(),
            "plugin \"energy:libenergy.so\": this client looks nowhere for plugins"
        );
    }
}
