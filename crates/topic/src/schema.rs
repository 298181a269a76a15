//! JSON Schema, draft 2020-12, through the `jsonschema` crate.

mod counted;
mod in_place;

use crate::json_text::{JSON_DEPTH_MAX, check_json};
use crate::steps::{Steps, take};
use crate::validator::{ValidationError, Validator};
use counted::{Counter, Late};
use jsonschema::{Draft, PatternOptions, ReferencingError, Retrieve, Uri, ValidationOptions};
use serde_json::Value;
use std::fmt::{self, Write};
use std::sync::Arc;

/// The only value that `$schema` may have.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Reasons are cut at this length: they quote the metadata, which may be large.
const REASON_BYTES_MAX: usize = 512;

/// How deep the validator may call itself: the schema's longest chain of
/// in-place applicators, times the levels of the metadata. Each call takes
/// up to 200 bytes of stack (measured, optimized), so this is less than half
/// of a thread's usual 2 MiB.
const LEVELS_MAX: u32 = 4000;

/// A JSON Schema that was checked and compiled. Clones share it.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    source: Value,
    validator: jsonschema::Validator,
    /// How deeply metadata may nest, which is less than [`JSON_DEPTH_MAX`]
    /// for schemas with long chains.
    depth_max: u32,
}

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Where in the schema, as a JSON pointer; empty is the whole.
    pointer: String,
    reason: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "at {:?}: ", self.pointer)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SchemaError {}

impl Schema {
    /// Checks the schema against its draft and compiles it.
    ///
    /// `format` is an annotation, as the draft has it by default. References
    /// stay within the schema; one that leads elsewhere is an error, and
    /// nothing is fetched.
    ///
    /// # Errors
    /// Where the schema is wrong, and why.
    pub fn new(source: Value) -> Result<Self, SchemaError> {
        let refuse = |pointer: &str, reason: String| SchemaError {
            pointer: pointer.into(),
            reason,
        };
        if !source.is_object() {
            return Err(refuse("", format!("expected an object, found {source}")));
        }
        // Before it is compiled: that calls itself too.
        let in_place::Explored { chain, schemas } = in_place::explore(&source)?;
        // As it is first, for what is wrong with it is to be said of the schema as it was given.
        options()
            .build(&source)
            .map_err(|error| refuse(error.instance_path().as_str(), bounded(&error)))?;
        let counted = counted::counted(&source, &schemas);
        let validator = options()
            .with_keyword(counted::KEYWORD, |_, value, _| {
                Ok(Box::new(Counter::new(value)))
            })
            .with_keyword("pattern", |_, value, _| Ok(Box::new(Late::pattern(value)?)))
            .with_keyword("multipleOf", |_, value, _| {
                Ok(Box::new(Late::multiple_of(value)?))
            })
            .build(&counted)
            .map_err(|error| refuse(error.instance_path().as_str(), bounded(&error)))?;
        Ok(Self(Arc::new(Compiled {
            source,
            validator,
            depth_max: (LEVELS_MAX / (chain + 1)).min(JSON_DEPTH_MAX),
        })))
    }

    /// Whether the schema can judge the least metadata within the budget of an event.
    ///
    /// # Errors
    /// Says for which it can't. A topic with such a schema takes hardly any event.
    pub fn check_work(&self) -> Result<(), SchemaError> {
        if let Some(pattern) = counted::costly_name(&self.0.source) {
            return Err(SchemaError {
                pointer: String::new(),
                reason: format!(
                    "asks for too much work: names of properties are held against {pattern:?} of \
                     patternProperties before that can be counted; a pattern of names neither looks \
                     around, refers back nor counts far"
                ),
            });
        }
        for metadata in ["{}", "[]", "\"\"", "0", "true", "null"] {
            let result = self.validate(metadata.as_bytes());
            if let Err(ValidationError::TooMuchWork(steps)) = result {
                return Err(SchemaError {
                    pointer: String::new(),
                    reason: format!("asks for too much work: of metadata {metadata}, {steps}"),
                });
            }
        }
        Ok(())
    }

    /// The schema as it was given.
    pub fn source(&self) -> &Value {
        &self.0.source
    }
}

impl Validator for Schema {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        self.validate_within(metadata, &mut Steps::of_event(metadata.len()))
    }

    fn validate_within(&self, metadata: &[u8], steps: &mut Steps) -> Result<(), ValidationError> {
        // Reading it takes steps as well: up to 12 ns a byte.
        let read = || take(metadata.len() as u64 / 2);
        steps.run(read).map_err(ValidationError::TooMuchWork)?;
        let instance: Value = serde_json::from_slice(metadata).map_err(|error| {
            match check_json(metadata) {
                Err(error) => ValidationError::NotJson(error),
                // Good JSON that a schema cannot be held against: numbers
                // that no double holds.
                Ok(()) => ValidationError::Refused(format!("a schema cannot judge it: {error}")),
            }
        })?;
        let Compiled {
            validator,
            depth_max,
            ..
        } = &*self.0;
        if *depth_max < JSON_DEPTH_MAX && depth(&instance) > *depth_max {
            return Err(ValidationError::Refused(format!(
                "it is nested deeper than {depth_max}, which this topic's schema cannot judge"
            )));
        }
        let judge = || {
            validator
                .validate(&instance)
                .map_err(|error| ValidationError::Schema {
                    keyword: error.kind().keyword().into(),
                    instance_path: error.instance_path().as_str().into(),
                    schema_path: counted::shifted(error.schema_path().as_str(), -1),
                    reason: bounded(&error),
                })
        };
        steps.run(judge).map_err(ValidationError::TooMuchWork)?
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.source())
    }
}

fn options<'a>() -> ValidationOptions<'a> {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(counted::BACKTRACK_MAX);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_retriever(NothingElsewhere)
        .with_pattern_options(patterns)
}

/// Answers every reference that leads out of the schema.
struct NothingElsewhere;

impl Retrieve for NothingElsewhere {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched".into())
    }
}

/// What is wrong with a reference, in words that say what to do.
fn bad_reference(error: &ReferencingError) -> SchemaError {
    let reason = match error {
        ReferencingError::Unretrievable { uri, .. } => bounded(&format_args!(
            "{uri:?} is referred to and not in the schema; nothing is fetched, so put it under \
             $defs with that as its $id"
        )),
        ReferencingError::PointerToNowhere { pointer } => bounded(&format_args!(
            "there is nothing at {pointer:?}, which is referred to"
        )),
        ReferencingError::NoSuchAnchor { anchor } => bounded(&format_args!(
            "there is no anchor {anchor:?}, which is referred to"
        )),
        other => bounded(other),
    };
    SchemaError {
        pointer: String::new(),
        reason,
    }
}

/// How deeply arrays and objects nest. Calls itself no more often than
/// [`JSON_DEPTH_MAX`] times, because the value was read from JSON.
fn depth(value: &Value) -> u32 {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// What `error` says, without writing more of it than is kept.
fn bounded(error: &impl fmt::Display) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let space = REASON_BYTES_MAX - self.0.len();
            if text.len() <= space {
                self.0.push_str(text);
                return Ok(());
            }
            let fits = (0..=space).rev().find(|at| text.is_char_boundary(*at));
            self.0.push_str(&text[..fits.unwrap_or(0)]);
            Err(fmt::Error)
        }
    }
    let mut out = Bounded(String::new());
    if write!(out, "{error}").is_err() {
        out.0.push('…');
    }
    out.0
}

#[cfg(test)]
mod tests;
