//! A definition to JSON: all keys in a fixed order, the type of each part first.

use super::{DEFINITION_VERSION, Definition, MirrorOf, Retention, TopicKind};
use crate::overflow::Overflow;
use crate::placement::Placement;
use crate::plugin::PluginRef;
use crate::selector::{MissingFromHash, MissingFromRange, Outside, SelectorKind};
use crate::serializer::SerializerKind;
use crate::spread::{PartOf, Spread};
use crate::validator::ValidatorKind;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Stored<'a> {
            version: u64,
            validator: &'a ValidatorKind,
            partition_selector: &'a SelectorKind,
            serializer: &'a SerializerKind,
            #[serde(skip_serializing_if = "Option::is_none")]
            durability: Option<String>,
            retention: Retention,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            keep_until_acknowledged: &'a [String],
            #[serde(skip_serializing_if = "is_grow")]
            overflow: Overflow,
            metadata_bytes_max: u32,
            data_block_bytes: u32,
            validate_on_server: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            kind: Option<&'static str>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            pins: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            mirror_of: Option<&'a MirrorOf>,
            #[serde(skip_serializing_if = "Option::is_none")]
            spread: Option<&'a Spread>,
            #[serde(skip_serializing_if = "Option::is_none")]
            part_of: Option<&'a PartOf>,
            #[serde(skip_serializing_if = "Placement::is_anywhere")]
            placement: &'a Placement,
        }
        Stored {
            version: DEFINITION_VERSION,
            validator: &self.validator,
            partition_selector: &self.partition_selector,
            serializer: &self.serializer,
            durability: self.durability.map(|durability| durability.to_string()),
            retention: self.retention,
            keep_until_acknowledged: &self.keep_until_acknowledged,
            overflow: self.overflow,
            metadata_bytes_max: self.metadata_bytes_max,
            data_block_bytes: self.data_block_bytes,
            validate_on_server: self.validate_on_server,
            kind: (self.kind == TopicKind::Steps).then_some(self.kind.name()),
            pins: self.pins,
            mirror_of: self.mirror_of.as_ref(),
            spread: self.spread.as_ref(),
            part_of: self.part_of.as_ref(),
            placement: &self.placement,
        }
        .serialize(serializer)
    }
}

fn is_grow(overflow: &Overflow) -> bool {
    *overflow == Overflow::Grow
}

impl Serialize for Overflow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut to = serializer.serialize_map(None)?;
        to.serialize_entry("type", self.name())?;
        match self {
            Self::Grow | Self::Block | Self::DropOldest | Self::DropNewest => {}
            Self::Reject { retry_after_ms } => {
                to.serialize_entry("retry_after_ms", retry_after_ms)?;
            }
            Self::Sample { one_in } => to.serialize_entry("one_in", one_in)?,
        }
        to.end()
    }
}

fn plugin_members<M: SerializeMap>(to: &mut M, plugin: &PluginRef) -> Result<(), M::Error> {
    to.serialize_entry("name", plugin.name())?;
    to.serialize_entry("options", plugin.options())
}

impl Serialize for ValidatorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut to = serializer.serialize_map(None)?;
        to.serialize_entry("type", self.name())?;
        match self {
            Self::None | Self::Json => {}
            Self::Schema(schema) => to.serialize_entry("schema", schema.source())?,
            Self::EventBridge(pattern) => to.serialize_entry("pattern", pattern.source())?,
            Self::Plugin(plugin) => plugin_members(&mut to, plugin)?,
        }
        to.end()
    }
}

impl Serialize for SelectorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut to = serializer.serialize_map(None)?;
        to.serialize_entry("type", self.name())?;
        match self {
            Self::RoundRobin | Self::Random | Self::KeyHash | Self::Explicit => {}
            Self::FieldHash(by) => {
                to.serialize_entry("field", &by.field.to_string())?;
                let missing = match by.missing {
                    MissingFromHash::Refuse => "refuse",
                    MissingFromHash::RoundRobin => "round_robin",
                };
                to.serialize_entry("missing", missing)?;
            }
            Self::FieldRange(range) => {
                to.serialize_entry("field", &range.field().to_string())?;
                to.serialize_entry("boundaries", range.boundaries())?;
                match range.missing() {
                    MissingFromRange::Refuse => to.serialize_entry("missing", "refuse")?,
                    MissingFromRange::Partition(index) => to.serialize_entry("missing", &index)?,
                }
                let outside = match range.outside() {
                    Outside::Refuse => "refuse",
                    Outside::Clamp => "clamp",
                };
                to.serialize_entry("outside", outside)?;
            }
            Self::Plugin(plugin) => plugin_members(&mut to, plugin)?,
        }
        to.end()
    }
}

impl Serialize for SerializerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut to = serializer.serialize_map(None)?;
        to.serialize_entry("type", self.name())?;
        match self {
            Self::Json | Self::Raw | Self::MessagePack => {}
            Self::Schema(schema) => to.serialize_entry("schema", schema.source())?,
            Self::Plugin(plugin) => plugin_members(&mut to, plugin)?,
        }
        to.end()
    }
}
