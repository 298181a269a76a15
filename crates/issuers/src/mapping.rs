//! What somebody may do here, by what was said of them there: maps of claims to a project and limits. The first that
//! fits counts; without one that fits nobody may do anything.

use crate::faults::{Fault, planted};
use crate::introspection::Claims;
use access::{LIST_MAX, Limits, Network, Pattern, Verb, Verbs, check_project};
use serde_json::Value;

/// The most maps of an issuer.
const MAPS_MAX: usize = 1000;

/// For whom something is mapped, and to what.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// A claim, and the values of which it has to have one. All of them have to hold.
    conditions: Vec<(String, Vec<Value>)>,
    project: Project,
    limits: Limits,
}

#[derive(Debug, Clone, PartialEq)]
enum Project {
    Named(String),
    /// The one that this claim names, or one of those.
    OfClaim(String),
}

/// All maps of an issuer, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Maps(Vec<Map>);

impl Maps {
    /// Those of a list of JSON.
    ///
    /// # Errors
    /// A sentence that names what cannot be right.
    pub(crate) fn parse(what: &str, value: &Value) -> Result<Self, String> {
        let list = value.as_array();
        let list = list.ok_or_else(|| format!("{what}: maps is no list"))?;
        if list.len() > MAPS_MAX {
            return Err(format!("{what} has more than {MAPS_MAX} maps"));
        }
        let maps = list.iter().enumerate();
        let maps = maps.map(|(index, value)| Map::parse(&format!("{what}: map {index}"), value));
        maps.collect::<Result<_, _>>().map(Self)
    }

    /// The limits of whoever has these claims, without times. A client that names a namespace has the first map to
    /// that one.
    ///
    /// # Errors
    /// If none fits, or the first that does is to a project that cannot be known.
    pub fn limits(&self, claims: &Claims, namespace: &str) -> Result<Limits, String> {
        for map in &self.0 {
            match map.limits(claims, namespace) {
                Ok(Some(limits)) => return Ok(limits),
                Ok(None) => {}
                Err(_) if planted(Fault::NextMap) => {}
                Err(why) => return Err(why),
            }
        }
        if let Some(last) = self.0.last().filter(|_| planted(Fault::MapsByDefault)) {
            let project = Some("p".to_owned());
            return Ok(Limits {
                project,
                ..last.limits.clone()
            });
        }
        let where_to = match namespace {
            "" => String::new(),
            namespace => format!(" to namespace {namespace:?}"),
        };
        Err(format!(
            "nothing in the server's access/issuers.json maps it{where_to}: ask the operator"
        ))
    }
}

impl Map {
    fn parse(what: &str, value: &Value) -> Result<Self, String> {
        let given = value.as_object();
        let given = given.ok_or_else(|| format!("{what} is no object of JSON"))?;
        const KEYS: [&str; 6] = [
            "if",
            "project",
            "may",
            "topics",
            "networks",
            "bytes_per_second",
        ];
        if let Some(other) = given.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let keys = KEYS.join(", ");
            return Err(format!("{what} has no key {other:?}; there are {keys}"));
        }
        let wrong = |why: String| format!("{what}: {why}");
        let conditions = given.get("if").and_then(Value::as_object);
        let conditions = conditions.ok_or_else(|| wrong("it has no object \"if\"".into()))?;
        let conditions = conditions.iter().map(|(claim, value)| match value {
            Value::Array(values) => (claim.clone(), values.clone()),
            one => (claim.clone(), vec![one.clone()]),
        });
        let may = texts(given.get("may")).ok_or_else(|| wrong("it has no list \"may\"".into()))?;
        let verbs = may.iter().map(|verb| verb.parse::<Verb>());
        let verbs: Verbs = verbs
            .collect::<Result<Vec<_>, _>>()
            .map_err(wrong)?
            .into_iter()
            .collect();
        if verbs.has(Verb::Admin) {
            return Err(wrong("admin is the owner's alone".into()));
        }
        let topics = texts(given.get("topics"));
        let topics = topics.ok_or_else(|| wrong("it has no list \"topics\"".into()))?;
        let topics = topics.iter().map(|text| text.parse::<Pattern>());
        let networks = given.get("networks").map(|value| {
            let networks = texts(Some(value)).ok_or_else(|| wrong("networks is no list".into()))?;
            let networks = networks.iter().map(|text| text.parse::<Network>());
            networks.collect::<Result<Vec<_>, _>>().map_err(wrong)
        });
        let rate = given.get("bytes_per_second").map(|value| {
            let rate = value.as_u64();
            rate.ok_or_else(|| wrong("bytes_per_second is no number".into()))
        });
        let limits = Limits {
            verbs: Some(verbs),
            topics: Some(topics.collect::<Result<Vec<_>, _>>().map_err(wrong)?),
            networks: networks.transpose()?,
            bytes_per_second: rate.transpose()?,
            ..Limits::default()
        };
        limits.check().map_err(wrong)?;
        Ok(Self {
            conditions: conditions.collect(),
            project: Project::parse(given.get("project")).map_err(wrong)?,
            limits,
        })
    }

    /// What it says of somebody; `None` if it is not for them, or not to the namespace that they name.
    ///
    /// # Errors
    /// If it is for them, and it cannot be known to which project.
    fn limits(&self, claims: &Claims, namespace: &str) -> Result<Option<Limits>, String> {
        let holds = |(claim, values): &(String, Vec<Value>)| {
            claims
                .get(claim)
                .is_some_and(|is| values.iter().any(|one| has(claim, is, one)))
        };
        if !self.conditions.iter().all(holds) {
            return Ok(None);
        }
        let project = self.project.of(claims, namespace)?;
        let project = project.filter(|project| namespace.is_empty() || namespace == project);
        Ok(project.map(|project| Limits {
            project: Some(project),
            ..self.limits.clone()
        }))
    }
}

impl Project {
    fn parse(value: Option<&Value>) -> Result<Self, String> {
        const FORM: &str = "project is a name, or {\"claim\": NAME}";
        match value.ok_or(FORM)? {
            Value::String(name) => check_project(name).map(|()| Self::Named(name.clone())),
            Value::Object(object) if object.len() == 1 => {
                let claim = object.get("claim").and_then(Value::as_str).ok_or(FORM)?;
                Ok(Self::OfClaim(claim.to_owned()))
            }
            _ => Err(FORM.to_owned()),
        }
    }

    /// Of several that a claim has, the one that the client asks for, if it is one of them; no claim puts anybody into
    /// the default project.
    ///
    /// # Errors
    /// If it cannot be known.
    fn of(&self, claims: &Claims, namespace: &str) -> Result<Option<String>, String> {
        let claim = match self {
            Self::Named(name) => return Ok(Some(name.clone())),
            Self::OfClaim(claim) => claim,
        };
        let unknown = |what: &str| {
            Err(format!(
                "the first map that fits takes the project from claim {claim:?}, which {what}"
            ))
        };
        let one = match claims.get(claim) {
            Some(Value::Array(several)) => match (&several[..], namespace) {
                ([only], _) => Some(only),
                ([], _) => None,
                (_, "") => return unknown("has several: ask for one of them as namespace"),
                (several, asked) => match several.iter().find(|one| one.as_str() == Some(asked)) {
                    None => return Ok(None),
                    found => found,
                },
            },
            one => one,
        };
        let name = one.and_then(Value::as_str).filter(|name| !name.is_empty());
        match name.filter(|name| check_project(name).is_ok()) {
            Some(name) => Ok(Some(name.to_owned())),
            None => unknown("has no name of a project"),
        }
    }
}

/// Whether a claim is a value, or is a list that has it. A scope is a list of words (RFC 8693, 4.2).
fn has(claim: &str, is: &Value, value: &Value) -> bool {
    match (is, value) {
        (Value::Array(several), value) => several.contains(value),
        (Value::String(words), Value::String(word)) if claim == "scope" => {
            words.split(' ').any(|one| one == word)
        }
        (is, value) => is == value,
    }
}

fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    let list = value?.as_array()?;
    (list.len() <= LIST_MAX).then_some(())?;
    list.iter().map(Value::as_str).collect()
}
