//! Whether an event's metadata is what its topic promises.

use crate::definition::DefinitionError;
use crate::json_text::{JsonError, check_json};
use crate::pattern::Pattern;
use crate::plugin::{PluginError, PluginRef, Plugins};
use crate::schema::Schema;
use crate::steps::{OutOfSteps, Steps};
use std::fmt;
use std::sync::Arc;
use wire::ErrorCode;

/// Says whether metadata may enter a topic.
///
/// Implementations are shared by threads. They must be pure (the same bytes
/// always get the same answer, at the client and at the server), must not
/// panic on any input, and return rather than block.
pub trait Validator: Send + Sync {
    /// Looks at one event's metadata, before it is serialized.
    ///
    /// # Errors
    /// The first thing that is wrong.
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError>;

    /// [`Validator::validate`] with another budget than that of one event, of
    /// which the steps that it takes are taken. What takes a bounded time
    /// anyway need not count.
    ///
    /// # Errors
    /// As [`Validator::validate`], and [`ValidationError::TooMuchWork`].
    fn validate_within(&self, metadata: &[u8], _steps: &mut Steps) -> Result<(), ValidationError> {
        self.validate(metadata)
    }

    /// Whether every metadata passes, so that a caller may leave out the call.
    fn accepts_all(&self) -> bool {
        false
    }
}

/// Why metadata is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationError {
    /// It is not a JSON text.
    NotJson(JsonError),
    /// It is JSON that the topic's schema does not allow.
    Schema {
        /// The keyword that failed, like `required`.
        keyword: String,
        /// Where in the metadata, as a JSON pointer; empty is the whole.
        instance_path: String,
        /// Where in the schema, as a JSON pointer.
        schema_path: String,
        /// What the keyword says, cut where it becomes long.
        reason: String,
    },
    /// A validator's own reason, in one sentence.
    Refused(String),
    /// To say whether it is good would take longer than an event may.
    TooMuchWork(OutOfSteps),
}

impl ValidationError {
    /// The code under which the error travels.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidEvent
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "metadata is not JSON: {error}"),
            Self::Schema {
                keyword,
                instance_path,
                schema_path,
                reason,
            } => write!(
                f,
                "metadata does not match the topic's schema: at {instance_path:?}: {reason} \
                 (keyword {keyword:?} at {schema_path:?} of the schema)"
            ),
            Self::Refused(reason) => write!(f, "metadata is refused: {reason}"),
            Self::TooMuchWork(steps) => write!(f, "metadata is refused: {steps}"),
        }
    }
}

impl std::error::Error for ValidationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotJson(error) => Some(error),
            Self::Schema { .. } | Self::Refused(_) | Self::TooMuchWork(_) => None,
        }
    }
}

/// Which validator a topic uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ValidatorKind {
    /// Nothing is checked.
    #[default]
    None,
    /// Metadata is a JSON text, see [`check_json`].
    Json,
    /// Metadata is a JSON text that matches the schema.
    Schema(Schema),
    /// Metadata is a JSON text that matches the pattern.
    EventBridge(Pattern),
    /// What a plugin says.
    Plugin(PluginRef),
}

impl ValidatorKind {
    /// The names of all kinds, in the order in which messages list them.
    pub const NAMES: &[&str] = &["none", "json", "schema", "eventbridge", "plugin"];

    /// The name in a definition.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Json => "json",
            Self::Schema(_) => "schema",
            Self::EventBridge(_) => "eventbridge",
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

    /// Whether it can judge the least metadata within an event's budget. A new
    /// topic has none that can't; one that exists already goes on with it, for
    /// each event is held to the budget anyway.
    ///
    /// # Errors
    /// Says for which metadata it can't.
    pub fn check_work(&self) -> Result<(), DefinitionError> {
        match self {
            Self::Schema(schema) => schema
                .check_work()
                .map_err(|error| DefinitionError::new("validator.schema", error.to_string())),
            _ => Ok(()),
        }
    }

    /// The validator, to be shared. Cheap: schemas and patterns are compiled already.
    ///
    /// # Errors
    /// Of plugins only.
    pub fn build(&self, plugins: &dyn Plugins) -> Result<Arc<dyn Validator>, PluginError> {
        Ok(match self {
            Self::None => Arc::new(AcceptAll),
            Self::Json => Arc::new(JsonText),
            Self::Schema(schema) => Arc::new(schema.clone()),
            Self::EventBridge(pattern) => Arc::new(pattern.clone()),
            Self::Plugin(plugin) => plugins.validator(plugin)?,
        })
    }
}

struct AcceptAll;

impl Validator for AcceptAll {
    fn validate(&self, _: &[u8]) -> Result<(), ValidationError> {
        Ok(())
    }

    fn accepts_all(&self) -> bool {
        true
    }
}

struct JsonText;

impl Validator for JsonText {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        check_json(metadata).map_err(ValidationError::NotJson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::NoPlugins;

    #[test]
    fn none_takes_anything_and_says_so() {
        let validator = ValidatorKind::None.build(&NoPlugins).unwrap();
        assert!(validator.accepts_all());
        for metadata in [&b""[..], b"\xff\0", b"{"] {
            assert_eq!(validator.validate(metadata), Ok(()));
        }
    }

    #[test]
    fn json_takes_json_alone() {
        let validator = ValidatorKind::Json.build(&NoPlugins).unwrap();
        assert!(!validator.accepts_all());
        assert_eq!(validator.validate(b" {\"a\": [1]} "), Ok(()));
        let error = validator.validate(b"{\"a\": 1,}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "metadata is not JSON: expected a name in '\"', found '}' at byte 8"
        );
        assert_eq!(error.code(), ErrorCode::InvalidEvent);
    }
}
