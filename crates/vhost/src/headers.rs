//! Bindings of headers exchanges: what the headers of a message must be.

use crate::arguments::{Arguments, is_same, plain, type_name};
use crate::faults::{Fault, planted};
use amqp::{Table, Value};
use std::collections::HashMap;

/// The argument that says how many fields have to match.
const MATCH: &str = "x-match";

/// What a binding asks for.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// One field is enough.
    any: bool,
    fields: Vec<(Box<[u8]>, Value)>,
}

/// The headers of one message, to be looked into for many bindings.
pub(crate) struct Headers(HashMap<Box<[u8]>, Value>);

impl Headers {
    pub fn of(table: Option<&Table>) -> Self {
        let mut headers = HashMap::new();
        for (name, value) in table.into_iter().flat_map(Table::fields) {
            headers.entry(Box::from(&*name)).or_insert(value);
        }
        Self(headers)
    }

    /// Whether a field is as a binding wants it; one without a value has to be there only.
    fn has(&self, name: &[u8], wanted: &Value) -> bool {
        match (self.0.get(name), wanted) {
            (Some(_), Value::Void) => true,
            (Some(found), wanted) => is_same(found, wanted),
            (None, _) => false,
        }
    }
}

impl Pattern {
    /// What the arguments of a binding ask for, or why they ask for nothing.
    pub fn parse(arguments: &Arguments) -> Result<Self, String> {
        let (any, with_x) = match arguments.get(MATCH) {
            None => (false, false),
            Some(value @ Value::String(_)) => match value.as_str() {
                Some("all") => (false, false),
                Some("any") => (true, false),
                Some("all-with-x") => (false, true),
                Some("any-with-x") => (true, true),
                _ => {
                    return Err(format!(
                        "Invalid x-match field value <<\"{}\">>; expected all, any, all-with-x, or any-with-x",
                        plain(&value)
                    ));
                }
            },
            Some(other) => {
                return Err(format!(
                    "Invalid x-match field type {} (value {}); expected longstr",
                    type_name(&other),
                    plain(&other)
                ));
            }
        };
        let counts = |name: &[u8]| match with_x {
            true => name != MATCH.as_bytes(),
            false => !name.starts_with(b"x-"),
        };
        let fields = arguments.table().fields();
        let fields = fields.filter(|(name, _)| counts(name));
        // Values share the bytes of the arguments, which the binding keeps anyway.
        let fields = fields.map(|(name, value)| (Box::from(&*name), value));
        let fields = fields.collect();
        Ok(Self { any, fields })
    }

    pub fn matches(&self, headers: &Headers) -> bool {
        let mut fields = self.fields.iter();
        let has = |(name, wanted): &(Box<[u8]>, Value)| headers.has(name, wanted);
        match self.any || planted(Fault::AllIsAny) {
            true => fields.any(has),
            false => fields.all(has),
        }
    }
}
