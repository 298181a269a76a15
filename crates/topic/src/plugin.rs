//! Plugins: validators, partition selectors and serializers that users bring.
//!
//! A definition names them and carries their options; who finds and loads them
//! is behind [`Plugins`]. Nothing here runs foreign code.

use crate::selector::PartitionSelector;
use crate::serializer::Serializer;
use crate::validator::Validator;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// The longest name of a plugin.
pub const PLUGIN_NAME_BYTES_MAX: usize = 256;

/// A plugin, as a definition names it.
///
/// The name is `name:library.so`, something that a shared library offers, or
/// `module:object`, an object of Python. It never has a `/`: where libraries
/// and modules are looked for is each client's business, for a definition
/// comes from others.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginRef {
    name: String,
    options: Map<String, Value>,
}

impl PluginRef {
    /// A plugin of this name, with options that are handed to it.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn new(name: impl Into<String>, options: Map<String, Value>) -> Result<Self, String> {
        let name = name.into();
        let fault = if name.len() > PLUGIN_NAME_BYTES_MAX {
            "is longer than 256 bytes"
        } else if name.chars().any(char::is_control) {
            "has a control character"
        } else if name.contains('/') {
            "has a \"/\": where plugins are looked for is up to each client"
        } else if !matches!(name.split_once(':'), Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(':'))
        {
            "is not name:library.so or module:object"
        } else {
            return Ok(Self { name, options });
        };
        let mut shown: String = name.chars().take(80).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        Err(format!("plugin name {shown:?} {fault}"))
    }

    /// The whole name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is before the colon, and what behind it.
    pub fn parts(&self) -> (&str, &str) {
        self.name
            .split_once(':')
            .expect("a plugin's name has a colon")
    }

    /// Whether the name is of something in a shared library.
    pub fn is_library(&self) -> bool {
        let (_, place) = self.parts();
        place.ends_with(".so") || place.contains(".so.")
    }

    /// The options.
    pub fn options(&self) -> &Map<String, Value> {
        &self.options
    }

    /// The options as JSON text, an object.
    pub fn options_json(&self) -> String {
        serde_json::to_string(&self.options).expect("options are JSON")
    }
}

/// Why a plugin cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError {
    name: String,
    reason: String,
}

impl PluginError {
    /// An error of this plugin: what is wrong, and where it was looked for.
    pub fn new(plugin: &PluginRef, reason: impl Into<String>) -> Self {
        Self {
            name: plugin.name.clone(),
            reason: reason.into(),
        }
    }

    /// The plugin's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is wrong.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {:?}: {}", self.name, self.reason)
    }
}

impl std::error::Error for PluginError {}

/// Finds plugins and makes what they offer. A client has one.
///
/// What comes out keeps the obligations of its trait. An implementation that
/// calls foreign code holds that code to them: it checks what comes back, lets
/// no panic or exception through and hands out no memory that can be overrun.
pub trait Plugins: Send + Sync {
    /// The validator of this name.
    ///
    /// # Errors
    /// Names the plugin and where it was looked for, or what it says against
    /// its options.
    fn validator(&self, plugin: &PluginRef) -> Result<Arc<dyn Validator>, PluginError>;

    /// A partition selector of this name, for one producer. The caller asks
    /// it only about events that ask for no partition themselves, of topics
    /// that have one.
    ///
    /// # Errors
    /// As [`Plugins::validator`].
    fn partition_selector(
        &self,
        plugin: &PluginRef,
    ) -> Result<Box<dyn PartitionSelector>, PluginError>;

    /// The serializer of this name.
    ///
    /// # Errors
    /// As [`Plugins::validator`].
    fn serializer(&self, plugin: &PluginRef) -> Result<Arc<dyn Serializer>, PluginError>;
}

/// No plugins: each is missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPlugins;

impl NoPlugins {
    fn missing(plugin: &PluginRef) -> PluginError {
        PluginError::new(plugin, "this client looks nowhere for plugins")
    }
}

impl Plugins for NoPlugins {
    fn validator(&self, plugin: &PluginRef) -> Result<Arc<dyn Validator>, PluginError> {
        Err(Self::missing(plugin))
    }

    fn partition_selector(
        &self,
        plugin: &PluginRef,
    ) -> Result<Box<dyn PartitionSelector>, PluginError> {
        Err(Self::missing(plugin))
    }

    fn serializer(&self, plugin: &PluginRef) -> Result<Arc<dyn Serializer>, PluginError> {
        Err(Self::missing(plugin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_two_parts_and_no_place() {
        let library = PluginRef::new("energy:libenergy.so", Map::new()).unwrap();
        assert_eq!(library.parts(), ("energy", "libenergy.so"));
        assert!(library.is_library());
        assert!(
            PluginRef::new("energy:libenergy.so.1", Map::new())
                .unwrap()
                .is_library()
        );
        let python = PluginRef::new("my.plugins:Energy", Map::new()).unwrap();
        assert!(!python.is_library());
        assert_eq!(python.options_json(), "{}");
        for (name, fault) in [
            ("energy", "is not name:library.so or module:object"),
            (":lib.so", "is not name:library.so or module:object"),
            ("energy:", "is not name:library.so or module:object"),
            ("a:b:c", "is not name:library.so or module:object"),
            (
                "a:/tmp/lib.so",
                "has a \"/\": where plugins are looked for is up to each client",
            ),
            ("a:\0", "has a control character"),
        ] {
            let error = PluginRef::new(name, Map::new()).unwrap_err();
            assert_eq!(error, format!("plugin name {name:?} {fault}"));
        }
        let long = format!("a:{}", "b".repeat(PLUGIN_NAME_BYTES_MAX));
        let error = PluginRef::new(long, Map::new()).unwrap_err();
        assert!(error.ends_with("…\" is longer than 256 bytes"), "{error}");
    }
}
