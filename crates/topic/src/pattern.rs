//! Patterns of metadata in the style of EventBridge's event patterns.

mod matcher;
#[cfg(test)]
mod tests;

use crate::json_text::check_json;
use crate::steps::Steps;
use crate::validator::{ValidationError, Validator};
use matcher::{Matcher, text_matchers};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Matchers that a pattern may have, so that judging one event stays cheap.
pub const MATCHERS_MAX: usize = 4096;

/// A pattern that was checked. Clones share it.
///
/// A pattern is an object that has a condition for each of some fields, all of
/// which have to hold: a value, a list of which one has to match, or an object
/// that is a pattern for the object there. A field that the pattern does not
/// name may be anything. `docs/reference/topic-definition.md` has the rules.
#[derive(Clone)]
pub struct Pattern(Arc<Checked>);

struct Checked {
    source: Value,
    all: All,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Where in the pattern, as a JSON pointer; empty is the whole.
    pointer: String,
    reason: String,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "at {:?}: ", self.pointer)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// Checks a pattern.
    ///
    /// # Errors
    /// Where it is wrong, and why.
    pub fn new(source: Value) -> Result<Self, PatternError> {
        let mut reading = Reading {
            at: Vec::new(),
            matchers: 0,
        };
        let all = match &source {
            Value::Object(members) => reading.all(members)?,
            _ => return Err(reading.refuse("expected an object".to_owned())),
        };
        Ok(Self(Arc::new(Checked { source, all })))
    }

    /// The pattern as it was given.
    pub fn source(&self) -> &Value {
        &self.0.source
    }
}

impl Validator for Pattern {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        self.validate_within(metadata, &mut Steps::of_event(metadata.len()))
    }

    fn validate_within(&self, metadata: &[u8], steps: &mut Steps) -> Result<(), ValidationError> {
        let instance: Value = serde_json::from_slice(metadata).map_err(|error| {
            match check_json(metadata) {
                Err(error) => ValidationError::NotJson(error),
                // Good JSON that is nested too deeply or has numbers that no
                // double holds.
                Ok(()) => ValidationError::Refused(format!("a pattern cannot judge it: {error}")),
            }
        })?;
        let mismatch = steps.run(|| self.0.all.mismatch(&instance));
        match mismatch.map_err(ValidationError::TooMuchWork)? {
            None => Ok(()),
            Some(field) => Err(ValidationError::Refused(format!(
                "it does not match the topic's pattern at {field:?}"
            ))),
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.source())
    }
}

/// Conditions on an object, all of which have to hold.
pub(crate) struct All(Vec<Condition>);

enum Condition {
    Field { field: Field, rule: Rule },
    AnyOf(Vec<All>),
}

enum Rule {
    /// One of these matches what is there.
    Some(Vec<Alternative>),
    /// An object is there that matches.
    Within(All),
}

enum Alternative {
    /// Whether the field is there at all.
    Exists(bool),
    Matches(Matcher),
}

/// A member's name, with dots between several that lie within each other.
struct Field {
    name: String,
    parts: Vec<String>,
}

impl Field {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parts: name.split('.').map(str::to_owned).collect(),
        }
    }

    /// A member whose name has the dots in it comes first.
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        let members = value.as_object()?;
        members.get(&self.name).or_else(|| {
            let mut parts = self.parts.iter();
            parts.try_fold(value, |value, part| value.as_object()?.get(part))
        })
    }
}

impl All {
    fn matches(&self, value: &Value) -> bool {
        self.mismatch(value).is_none()
    }

    /// The first field of the pattern that `value` does not match.
    fn mismatch(&self, value: &Value) -> Option<&str> {
        self.0.iter().find_map(|condition| match condition {
            Condition::Field { field, rule } => {
                let found = field.find(value);
                (!rule.matches(found)).then_some(field.name.as_str())
            }
            Condition::AnyOf(several) => {
                let one = several.iter().any(|all| all.matches(value));
                (!one).then_some("$or")
            }
        })
    }
}

impl Rule {
    fn matches(&self, found: Option<&Value>) -> bool {
        match self {
            Self::Within(all) => found.is_some_and(|value| value.is_object() && all.matches(value)),
            Self::Some(alternatives) => alternatives.iter().any(|alternative| match alternative {
                Alternative::Exists(is_there) => found.is_some() == *is_there,
                Alternative::Matches(matcher) => found.is_some_and(|value| match value {
                    // Of a list one element has to match.
                    Value::Array(elements) => elements.iter().any(|one| matcher.matches(one)),
                    one => matcher.matches(one),
                }),
            }),
        }
    }
}

/// Reads a pattern; serde_json has bounded how deep it is.
struct Reading {
    /// Where it is, for errors.
    at: Vec<String>,
    matchers: usize,
}

type Read<T> = Result<T, PatternError>;

impl Reading {
    fn refuse(&self, reason: impl Into<String>) -> PatternError {
        let escaped = |part: &String| format!("/{}", part.replace('~', "~0").replace('/', "~1"));
        PatternError {
            pointer: self.at.iter().map(escaped).collect(),
            reason: reason.into(),
        }
    }

    fn within<T>(
        &mut self,
        part: impl Into<String>,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<T> {
        self.at.push(part.into());
        let value = read(self)?;
        self.at.pop();
        Ok(value)
    }

    fn count(&mut self) -> Read<()> {
        self.matchers += 1;
        match self.matchers > MATCHERS_MAX {
            true => Err(self.refuse(format!("more than {MATCHERS_MAX} conditions"))),
            false => Ok(()),
        }
    }

    fn all(&mut self, members: &Map<String, Value>) -> Read<All> {
        let conditions = members.iter().map(|(name, value)| {
            self.within(name, |reading| match name.as_str() {
                "$or" => reading.any_of(value).map(Condition::AnyOf),
                _ => {
                    let field = Field::new(name);
                    let rule = reading.rule(value)?;
                    Ok(Condition::Field { field, rule })
                }
            })
        });
        conditions.collect::<Read<_>>().map(All)
    }

    fn any_of(&mut self, value: &Value) -> Read<Vec<All>> {
        let several = value.as_array().filter(|several| !several.is_empty());
        let several = several.ok_or_else(|| self.refuse("expected a list of objects"))?;
        let read = several.iter().enumerate().map(|(index, one)| {
            self.within(index.to_string(), |reading| match one {
                Value::Object(members) => reading.all(members),
                _ => Err(reading.refuse("expected an object")),
            })
        });
        read.collect()
    }

    fn rule(&mut self, value: &Value) -> Read<Rule> {
        match value {
            Value::Object(members) => self.all(members).map(Rule::Within),
            Value::Array(several) if several.is_empty() => {
                Err(self.refuse("an empty list, which nothing matches"))
            }
            Value::Array(several) => {
                let read = several.iter().enumerate().map(|(index, one)| {
                    self.within(index.to_string(), |reading| reading.alternative(one))
                });
                read.collect::<Read<_>>().map(Rule::Some)
            }
            one => {
                let one = self.alternative(one)?;
                Ok(Rule::Some(vec![one]))
            }
        }
    }

    fn alternative(&mut self, value: &Value) -> Read<Alternative> {
        self.count()?;
        match value {
            Value::Object(members) => self.only(members, |reading, name, value| match name {
                "exists" => match value {
                    Value::Bool(yes) => Ok(Alternative::Exists(*yes)),
                    _ => Err(reading.refuse("expected true or false")),
                },
                _ => reading.matcher(name, value).map(Alternative::Matches),
            }),
            Value::Array(_) => Err(self.refuse("a list in a list, which nothing matches")),
            one => Ok(Alternative::Matches(Matcher::Equals(one.clone()))),
        }
    }

    /// The one member that a rule has.
    fn only<T>(
        &mut self,
        members: &Map<String, Value>,
        read: impl FnOnce(&mut Self, &str, &Value) -> Read<T>,
    ) -> Read<T> {
        let mut each = members.iter();
        match (each.next(), each.next()) {
            (Some((name, value)), None) => self.within(name, |reading| read(reading, name, value)),
            _ => Err(self.refuse(format!(
                "expected one rule, found {} members",
                members.len()
            ))),
        }
    }

    fn matcher(&mut self, name: &str, value: &Value) -> Read<Matcher> {
        match name {
            "anything-but" => {
                let not = match value {
                    Value::Object(members) => self.only(members, Self::matcher)?,
                    Value::Array(several) => {
                        let each = several.iter().enumerate();
                        let each = each.map(|(index, one)| match one {
                            Value::Object(_) | Value::Array(_) => self
                                .within(index.to_string(), |reading| {
                                    Err(reading.refuse("expected a string or a number"))
                                }),
                            one => self.count().map(|()| Matcher::Equals(one.clone())),
                        });
                        Matcher::AnyOf(each.collect::<Read<_>>()?)
                    }
                    one => Matcher::Equals(one.clone()),
                };
                Ok(Matcher::Not(Box::new(not)))
            }
            "numeric" => Matcher::numeric(value).map_err(|reason| self.refuse(reason)),
            // As Mofka has it: on the members of the object at the field.
            "$or" => self.any_of(value).map(Matcher::Objects),
            _ => match text_matchers(name, value) {
                Some(Ok(several)) => {
                    for _ in &several {
                        self.count()?;
                    }
                    Ok(Matcher::AnyOf(several))
                }
                Some(Err(reason)) => Err(self.refuse(reason)),
                None => Err(self.refuse(
                    "no such rule; known: anything-but, cidr, equals-ignore-case, exists, \
                     numeric, prefix, suffix, wildcard, $or",
                )),
            },
        }
    }
}
