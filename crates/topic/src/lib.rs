//! Topic definitions, and the things they name: validators, partition
//! selectors, serializers, retention.
//!
//! A [`Definition`] is read from JSON once, when a topic is made or opened,
//! and is checked completely then: a program that holds one holds a good one. The
//! keys are a page: `docs/reference/topic-definition.md`. Nothing here does
//! I/O, looks at a clock or fetches what a schema refers to.

#![forbid(unsafe_code)]

mod definition;
mod field;
mod hash;
mod json_text;
mod name;
mod overflow;
mod pattern;
mod placement;
mod plugin;
mod quantity;
mod schema;
mod selector;
mod serializer;
mod sharing;
mod spread;
mod steps;
mod validator;

pub use definition::{
    DATA_BLOCK_BYTES_DEFAULT, DATA_BLOCK_BYTES_MAX, DATA_BLOCK_BYTES_MIN, DEFINITION_BYTES_MAX,
    DEFINITION_VERSION, Definition, DefinitionBuilder, DefinitionError, METADATA_BYTES_MAX_DEFAULT,
    METADATA_BYTES_MAX_LIMIT, MirrorOf, PARTITIONS_MAX, PINNED_PARTS, PINNED_RECORDS, Retention,
    TopicKind, check_partition_count,
};
pub use field::{FIELD_PATH_BYTES_MAX, FieldPath, FieldValue};
pub use hash::key_hash;
pub use json_text::{JSON_DEPTH_MAX, JsonError, check_json};
pub use name::{
    NAME_BYTES_MAX, NameError, RESERVED_PREFIX, check_client_name, check_consumer_name,
    check_instance_name, check_namespace, check_producer_name, check_topic_name, fit_client_name,
};
pub use overflow::{Overflow, RETRY_AFTER_MS_DEFAULT, RETRY_AFTER_MS_MAX};
pub use pattern::{Pattern, PatternError};
pub use placement::{PLACEMENT_LABELS_MAX, Placement};
pub use plugin::{NoPlugins, PLUGIN_NAME_BYTES_MAX, PluginError, PluginRef, Plugins};
pub use schema::{Schema, SchemaError};
pub use selector::{
    BOUNDARIES_MAX, FieldHash, FieldRange, MissingFromHash, MissingFromRange, Outside,
    PartitionSelector, SelectorError, SelectorInput, SelectorKind,
};
pub use serializer::{Serializer, SerializerError, SerializerKind};
pub use sharing::{
    GroupOptions, QueueOptions, SESSION_TIMEOUT_MS, SHARING_OPTIONS_BYTES_MAX, SharingError,
};
pub use spread::{Making, PartOf, Spread, part_name, part_of_name, spread_name};
pub use steps::{BATCH_STEPS_MAX, OutOfSteps, Steps};
pub use validator::{ValidationError, Validator, ValidatorKind};
