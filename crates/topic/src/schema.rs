//! JSON Schema, draft 2020-12, through the `jsonschema` crate.

use crate::json_text::check_json;
use crate::validator::{ValidationError, Validator};
use jsonschema::{Draft, Retrieve, Uri};
use serde_json::Value;
use std::fmt::{self, Write};
use std::sync::Arc;

/// The only value that `$schema` may have at the root of a schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Reasons are cut at this length: they quote the metadata, which may be large.
const REASON_BYTES_MAX: usize = 512;

/// A JSON Schema that was checked and compiled. Clones share it.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    source: Value,
    validator: jsonschema::Validator,
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
        let Value::Object(members) = &source else {
            return Err(refuse("", format!("expected an object, found {source}")));
        };
        match members.get("$schema") {
            None => {}
            Some(Value::String(dialect)) if dialect.trim_end_matches('#') == DIALECT => {}
            Some(other) => {
                return Err(refuse(
                    "/$schema",
                    format!("{other} is not supported; it is {DIALECT:?} or left out"),
                ));
            }
        }
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(NothingElsewhere)
            .build(&source)
            .map_err(|error| refuse(error.instance_path().as_str(), bounded(&error)))?;
        Ok(Self(Arc::new(Compiled { source, validator })))
    }

    /// The schema as it was given.
    pub fn source(&self) -> &Value {
        &self.0.source
    }
}

impl Validator for Schema {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        let instance: Value = serde_json::from_slice(metadata).map_err(|error| {
            match check_json(metadata) {
                Err(error) => ValidationError::NotJson(error),
                // Good JSON that a schema cannot be held against: numbers
                // that no double holds.
                Ok(()) => ValidationError::Refused(format!("a schema cannot judge it: {error}")),
            }
        })?;
        self.0
            .validator
            .validate(&instance)
            .map_err(|error| ValidationError::Schema {
                keyword: error.kind().keyword().into(),
                instance_path: error.instance_path().as_str().into(),
                schema_path: error.schema_path().as_str().into(),
                reason: bounded(&error),
            })
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

/// Answers every reference that leads out of the schema.
struct NothingElsewhere;

impl Retrieve for NothingElsewhere {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(
            "references lead nowhere but into the schema itself; put what is meant under $defs"
                .into(),
        )
    }
}

/// What `error` says, without writing more of it than is kept.
fn bounded(error: &impl fmt::Display) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = REASON_BYTES_MAX - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            let fits = (0..=room).rev().find(|at| text.is_char_boundary(*at));
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
