//! A schema that counts what it is asked to do.
//!
//! `jsonschema` has no bound on its work. So each subschema that applies others,
//! or whose own work grows with the metadata, gets one more schema in front of
//! its `allOf`: it has the keyword [`KEYWORD`], takes steps and accepts all.
//! Validators that apply subschemas to the same value, whose work multiplies,
//! come behind `allOf`, so that their work has been counted. Keywords that come
//! before it and may take long for one value are [`Late`] instead, and count for themselves.

mod pattern_cost;

use crate::steps::take;
use jsonschema::{Keyword, ValidationError, Validator};
use pattern_cost::{may_backtrack, pattern_cost};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The keyword that counts. No schema has it by chance.
pub const KEYWORD: &str = "thalweg:steps";

/// Backtracking of one match; beyond it the metadata is refused.
pub const BACKTRACK_MAX: usize = 10_000;

/// Keywords that apply a schema to the same value: one, or several.
const IN_PLACE: &[&str] = &[
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
];
/// Keywords that apply each of their schemas to whatever lies within.
const EACH_WITHIN: &[&str] = &[
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that apply each of their schemas to something else within.
const ONE_WITHIN: &[&str] = &["properties", "prefixItems"];

/// The same schema, which counts. `reachable` are the addresses of its subschemas.
pub fn counted(source: &Value, reachable: &HashSet<*const Value>) -> Value {
    match source {
        Value::Array(items) => items.iter().map(|item| counted(item, reachable)).collect(),
        Value::Object(members) => {
            let mut copy: Map<String, Value> = members
                .iter()
                .map(|(name, member)| (name.clone(), counted(member, reachable)))
                .collect();
            if reachable.contains(&std::ptr::from_ref(source)) {
                for name in ["$ref", "$dynamicRef"] {
                    if let Some(Value::String(reference)) = copy.get_mut(name) {
                        *reference = shifted(reference, 1);
                    }
                }
                let step = json!({KEYWORD: Cost::of(members).to_value()});
                match copy.get_mut("allOf") {
                    Some(Value::Array(all)) => all.insert(0, step),
                    Some(_) => {}
                    None if Cost::of(members).is_small() => {}
                    None => {
                        copy.insert("allOf".to_owned(), json!([step]));
                    }
                }
            }
            Value::Object(copy)
        }
        other => other.clone(),
    }
}

/// The most that a pattern of names may take for each 16 bytes of a name.
const NAME_COST_MAX: u64 = 16;

/// A pattern of `patternProperties` whose matches are too much work: names are matched before a
/// visit is counted.
pub fn costly_name(source: &Value) -> Option<&str> {
    match source {
        Value::Array(items) => items.iter().find_map(costly_name),
        Value::Object(members) => {
            let names = members.get("patternProperties").and_then(Value::as_object);
            let mut names = names.into_iter().flat_map(Map::keys);
            let is_costly =
                |name: &&String| may_backtrack(name) || pattern_cost(name).sized > NAME_COST_MAX;
            let costly = names.find(is_costly).map(String::as_str);
            costly.or_else(|| members.values().find_map(costly_name))
        }
        _ => None,
    }
}

/// A JSON pointer into the one schema, into the other: what stands in an
/// `allOf` stands `by` places on.
pub fn shifted(pointer: &str, by: i64) -> String {
    // Names that are no keywords: of a property, of a definition.
    const NAMED: &[&str] = &[
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "dependencies",
    ];
    let mut out: Vec<String> = Vec::new();
    let (mut is_name, mut is_place) = (false, false);
    for segment in pointer.split('/') {
        let moved = segment.parse::<i64>().ok().filter(|_| is_place);
        out.push(moved.map_or_else(|| segment.to_owned(), |at| (at + by).to_string()));
        is_place = !is_name && segment == "allOf";
        is_name = !is_name && NAMED.contains(&segment);
    }
    out.join("/")
}

/// What a visit of a subschema takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Whatever the value is.
    own: u64,
    /// For each value and 16 bytes of text within it.
    sized: u64,
}

impl Cost {
    /// Of a subschema itself, and of how those begin that it applies: they may
    /// fail before they are counted.
    fn of(members: &Map<String, Value>) -> Self {
        let mut cost = Self::alone(members);
        for (name, member) in members {
            let name = name.as_str();
            let begun = Self::of_held(member, ONE_WITHIN.contains(&name));
            if IN_PLACE.contains(&name) {
                cost.own += begun.own;
                // Each may look at all that lies within, by `contains` far below, and fail there.
                cost.sized += begun.sized + u64::from(name != "allOf");
            } else if EACH_WITHIN.contains(&name) {
                // As often as there is something within.
                cost.own += begun.own;
                cost.sized += begun.own + begun.sized;
            } else if ONE_WITHIN.contains(&name) {
                cost.own += begun.own;
                cost.sized += u64::from(begun.sized > 0);
            }
        }
        cost
    }

    /// Of what a keyword holds: a schema, or several in a list or by name.
    fn of_held(held: &Value, by_name: bool) -> Self {
        let mut cost = Self::default();
        let mut add = |schema: &Value| {
            let one = schema.as_object().map(Self::alone).unwrap_or_default();
            cost.own += 1 + one.own;
            cost.sized += one.sized;
        };
        match held {
            Value::Array(several) => several.iter().for_each(&mut add),
            Value::Object(schema) if !by_name => {
                add(held);
                // It may be several by name instead.
                schema
                    .values()
                    .filter(|it| it.is_object())
                    .for_each(&mut add);
            }
            Value::Object(several) => several.values().for_each(&mut add),
            _ => add(held),
        }
        cost
    }

    /// Of the keywords that apply no schema.
    fn alone(members: &Map<String, Value>) -> Self {
        let mut cost = Self { own: 1, sized: 0 };
        for (name, member) in members {
            match name.as_str() {
                "enum" | "const" | "required" | "dependentRequired" => {
                    cost.own += count(member) / 16
                }
                // So that a schema that applies two is counted, whatever they are.
                "$ref" | "$dynamicRef" => cost.own += 2,
                "patternProperties" => {
                    for pattern in member.as_object().into_iter().flat_map(Map::keys) {
                        cost.sized += 1;
                        cost.add_match(pattern);
                    }
                }
                "uniqueItems" => cost.sized += 4,
                "unevaluatedItems" | "unevaluatedProperties" => cost.sized += 4,
                "minLength" | "maxLength" | "contains" | "items" => cost.sized += 1,
                _ => {}
            }
        }
        cost
    }

    /// Of a match of this pattern with each text.
    fn add_match(&mut self, pattern: &str) {
        let matching = pattern_cost(pattern);
        self.own += matching.own;
        self.sized += matching.sized;
    }

    fn is_small(self) -> bool {
        self.sized == 0 && self.own <= 4
    }

    fn to_value(self) -> Value {
        json!([self.own, self.sized])
    }

    fn from_value(value: &Value) -> Option<Self> {
        Some(Self {
            own: value.get(0)?.as_u64()?,
            sized: value.get(1)?.as_u64()?,
        })
    }
}

/// How many values there are, a text counting for each 16 bytes.
fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| name.len() as u64 / 16 + count(member))
            .sum(),
        Value::String(text) => text.len() as u64 / 16,
        _ => 0,
    }
}

/// The validator of [`KEYWORD`]: accepts all, and takes steps.
pub struct Counter(Cost);

impl Counter {
    /// Of what [`counted`] has put there.
    pub fn new(value: &Value) -> Self {
        Self(Cost::from_value(value).unwrap_or_default())
    }

    fn step(&self, instance: &Value) {
        take(self.0.own);
        if self.0.sized > 0 {
            take(self.0.sized.saturating_mul(count(instance)));
        }
    }
}

impl<'i> Keyword<'i> for Counter {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.step(instance);
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.step(instance);
        true
    }
}

/// A keyword that looks at one text or number, takes steps for that and then has
/// `jsonschema` do the work.
pub struct Late {
    inner: Validator,
    work: Work,
}

/// What takes the steps.
enum Work {
    Pattern { cost: Cost, may_backtrack: bool },
    MultipleOf { is_plain: bool },
}

/// Steps for a division of numbers with large or small exponents, which takes up to 3 us.
const DIVISION: u64 = 100;

impl Late {
    /// The keyword `pattern`.
    pub fn pattern(value: &Value) -> Result<Self, ValidationError<'static>> {
        let pattern = value.as_str().unwrap_or_default();
        let work = Work::Pattern {
            cost: pattern_cost(pattern),
            may_backtrack: may_backtrack(pattern),
        };
        Self::new("pattern", value, work)
    }

    /// The keyword `multipleOf`.
    pub fn multiple_of(value: &Value) -> Result<Self, ValidationError<'static>> {
        let is_plain = is_plain(value);
        Self::new("multipleOf", value, Work::MultipleOf { is_plain })
    }

    fn new(keyword: &str, value: &Value, work: Work) -> Result<Self, ValidationError<'static>> {
        let inner = super::options()
            .build(&json!({keyword: value}))
            .map_err(|error| ValidationError::custom(super::bounded(&error)))?;
        Ok(Self { inner, work })
    }

    fn step(&self, instance: &Value) {
        match (&self.work, instance) {
            (
                Work::Pattern {
                    cost,
                    may_backtrack,
                },
                Value::String(text),
            ) => {
                let length = 1 + text.len() as u64 / 16;
                take(cost.own + cost.sized.saturating_mul(length));
                if *may_backtrack {
                    // Looking around may read all that follows, at each place anew.
                    take(4 * length.saturating_mul(length));
                }
            }
            (Work::MultipleOf { is_plain: plain }, Value::Number(_)) => {
                take(if *plain && is_plain(instance) {
                    4
                } else {
                    DIVISION
                });
            }
            _ => {}
        }
    }
}

/// Whether dividing by or into such a number is quick.
fn is_plain(number: &Value) -> bool {
    let size = number.as_f64().unwrap_or(f64::MAX).abs();
    size == 0.0 || (1e-9..1e16).contains(&size)
}

impl<'i> Keyword<'i> for Late {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.step(instance);
        self.inner
            .validate(instance)
            .map_err(|error| ValidationError::custom(super::bounded(&error)))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.step(instance);
        self.inner.is_valid(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_shifted_behind_all_of_alone() {
        for (pointer, other) in [
            ("#/allOf/0/properties/x", "#/allOf/1/properties/x"),
            ("/properties/allOf/allOf/2", "/properties/allOf/allOf/3"),
            ("/$defs/allOf/anyOf/0", "/$defs/allOf/anyOf/0"),
            (
                "other#/$defs/a/allOf/9/type",
                "other#/$defs/a/allOf/10/type",
            ),
            ("#anchor", "#anchor"),
        ] {
            assert_eq!(shifted(pointer, 1), other);
            assert_eq!(shifted(other, -1), pointer);
        }
    }
}
