//! How deep a validator gets without going deeper into the metadata.
//!
//! Draft 2020-12 calls keywords that apply schemas to the very value that
//! they stand for "in-place applicators" (core, section 10.2): `$ref`,
//! `allOf`, `if`, … The validator calls itself for each, so its stack grows
//! with the longest chain of them, times the depth of the metadata. A few
//! kilobytes of schema and one event could make that any number, and a stack
//! that overflows ends the process; hence the limits, which are checked here
//! and in [`super`].

use super::{DIALECT, NothingElsewhere, SchemaError, bad_reference};
use jsonschema::{Draft, Registry, Uri, uri};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The longest chain that a schema may have. Compiling one with
/// `unevaluatedProperties` at each step takes 0.1 s and 0.5 MB of stack, and
/// grows with the cube of the length.
pub const CHAIN_MAX: u32 = 100;
/// The base of a schema without an `$id`, as in `jsonschema`.
const BASE: &str = "json-schema:///";

/// What is to be known of a schema before it is compiled.
pub struct Explored {
    /// The longest chain of in-place applicators, at most [`CHAIN_MAX`].
    pub chain: u32,
    /// The addresses of the subschemas that are reachable from the root.
    pub schemas: HashSet<*const Value>,
}

/// Looks at the schema.
///
/// Takes any JSON. Subschemas that say that they are of another draft are
/// refused, because their keywords are others, and so are references that
/// lead nowhere. What else is wrong counts nothing: compiling complains.
pub fn explore(source: &Value) -> Result<Explored, SchemaError> {
    let registry = Registry::new()
        .draft(Draft::Draft202012)
        .retriever(NothingElsewhere)
        .add(BASE, source)
        .and_then(|builder| builder.prepare());
    let registry = registry.map_err(|error| bad_reference(&error))?;
    let base = uri::from_str(BASE).map_err(|error| bad_reference(&error))?;
    let mut graph = Graph::default();
    graph.explore(&registry, source, Arc::new(base))?;
    let mut dialects = graph
        .nodes
        .iter()
        .filter_map(|node| node.value.get("$schema"));
    if let Some(other) = dialects.find(|dialect| !is_ours(dialect)) {
        return Err(SchemaError {
            pointer: String::new(),
            reason: format!("$schema is {other}; it must be {DIALECT:?} or left out"),
        });
    }
    let mut longest = 0;
    for node in 0..graph.nodes.len() {
        longest = longest.max(graph.chain_from(node, 0)?);
    }
    Ok(Explored {
        chain: longest,
        schemas: graph.by_address.into_keys().collect(),
    })
}

/// The subschemas that are reachable from the root, and their in-place edges.
#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    /// Nodes by the address of their value: the registry borrows the source,
    /// so that one subschema has one address however it is reached.
    by_address: HashMap<*const Value, usize>,
    /// Nodes by their `$dynamicAnchor`.
    dynamic: HashMap<&'a str, Vec<usize>>,
}

struct Node<'a> {
    value: &'a Value,
    base: Arc<Uri<String>>,
    in_place: Vec<usize>,
    dynamic_ref: Option<&'a str>,
    chain: Chain,
}

#[derive(Clone, Copy)]
enum Chain {
    Unknown,
    /// Being computed: what meets this has gone in a circle.
    Open,
    Known(u32),
}

/// What a keyword's value holds, and whether the schemas in it see the same value.
enum Holds {
    Schema,
    List,
    Map,
}

const KEYWORDS: &[(&str, Holds, bool)] = &[
    ("allOf", Holds::List, true),
    ("anyOf", Holds::List, true),
    ("oneOf", Holds::List, true),
    ("not", Holds::Schema, true),
    ("if", Holds::Schema, true),
    ("then", Holds::Schema, true),
    ("else", Holds::Schema, true),
    ("dependentSchemas", Holds::Map, true),
    // Of earlier drafts; what the library makes of it must not matter.
    ("dependencies", Holds::Map, true),
    ("properties", Holds::Map, false),
    ("patternProperties", Holds::Map, false),
    ("additionalProperties", Holds::Schema, false),
    ("unevaluatedProperties", Holds::Schema, false),
    ("propertyNames", Holds::Schema, false),
    ("prefixItems", Holds::List, false),
    ("items", Holds::Schema, false),
    ("contains", Holds::Schema, false),
    ("unevaluatedItems", Holds::Schema, false),
];

impl<'a> Graph<'a> {
    fn explore(
        &mut self,
        registry: &'a Registry<'_>,
        root: &'a Value,
        base: Arc<Uri<String>>,
    ) -> Result<(), SchemaError> {
        self.node(registry, root, base)?;
        // Nodes are appended as they are met, so this is a breadth-first walk.
        let mut index = 0;
        while index < self.nodes.len() {
            self.expand(registry, index)?;
            index += 1;
        }
        Ok(())
    }

    /// The node of a subschema, made if it is new.
    fn node(
        &mut self,
        registry: &Registry<'_>,
        value: &'a Value,
        base: Arc<Uri<String>>,
    ) -> Result<usize, SchemaError> {
        let index = self.nodes.len();
        let known = *self.by_address.entry(value).or_insert(index);
        if known < index {
            return Ok(known);
        }
        let text = |key| value.get(key).and_then(Value::as_str);
        if let Some(anchor) = text("$dynamicAnchor") {
            self.dynamic.entry(anchor).or_default().push(index);
        }
        let base = match text("$id") {
            Some(id) => {
                let resolved = registry.resolve_uri(&base.borrow(), id);
                resolved.map_err(|error| bad_reference(&error))?
            }
            None => base,
        };
        self.nodes.push(Node {
            value,
            base,
            in_place: Vec::new(),
            dynamic_ref: text("$dynamicRef").and_then(|to| to.rsplit_once('#').map(|it| it.1)),
            chain: Chain::Unknown,
        });
        Ok(index)
    }

    fn expand(&mut self, registry: &'a Registry<'_>, index: usize) -> Result<(), SchemaError> {
        let Node {
            value, ref base, ..
        } = self.nodes[index];
        let base = Arc::clone(base);
        let mut in_place = Vec::new();
        for key in ["$ref", "$dynamicRef"] {
            let Some(reference) = value.get(key).and_then(Value::as_str) else {
                continue;
            };
            let target = registry.resolver((*base).clone()).lookup(reference);
            let target = target.map_err(|error| bad_reference(&error))?;
            let target_base = target.resolver().base_uri();
            in_place.push(self.node(registry, target.contents(), target_base)?);
        }
        for (keyword, holds, same_value) in KEYWORDS {
            let Some(held) = value.get(keyword) else {
                continue;
            };
            let schemas: Vec<&Value> = match (holds, held) {
                (Holds::Schema, schema) => vec![schema],
                (Holds::List, Value::Array(schemas)) => schemas.iter().collect(),
                (Holds::Map, Value::Object(schemas)) => schemas.values().collect(),
                _ => continue,
            };
            for schema in schemas {
                let child = self.node(registry, schema, Arc::clone(&base))?;
                if *same_value {
                    in_place.push(child);
                }
            }
        }
        self.nodes[index].in_place = in_place;
        Ok(())
    }

    /// The longest chain that begins at the node, which `behind` others led to.
    fn chain_from(&mut self, index: usize, behind: u32) -> Result<u32, SchemaError> {
        match self.nodes[index].chain {
            Chain::Known(chain) => return Ok(chain),
            Chain::Open => return Err(refuse("refers to itself without going into the metadata")),
            Chain::Unknown if behind > CHAIN_MAX => return Err(too_long()),
            Chain::Unknown => self.nodes[index].chain = Chain::Open,
        }
        let mut next = self.nodes[index].in_place.clone();
        // Where a dynamic reference leads depends on the way that led to it.
        if let Some(anchor) = self.nodes[index].dynamic_ref {
            next.extend(self.dynamic.get(anchor).into_iter().flatten());
        }
        let mut longest = 0;
        for node in next {
            longest = longest.max(1 + self.chain_from(node, behind + 1)?);
        }
        if longest > CHAIN_MAX {
            return Err(too_long());
        }
        self.nodes[index].chain = Chain::Known(longest);
        Ok(longest)
    }
}

fn is_ours(dialect: &Value) -> bool {
    dialect
        .as_str()
        .is_some_and(|it| it.trim_end_matches('#') == DIALECT)
}

fn too_long() -> SchemaError {
    refuse(&format!(
        "applies more than {CHAIN_MAX} schemas to one value, each by way of the one before \
         ($ref, allOf, if and the like)"
    ))
}

fn refuse(what: &str) -> SchemaError {
    SchemaError {
        pointer: String::new(),
        reason: format!("the schema {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chain_max(source: &Value) -> Result<u32, SchemaError> {
        explore(source).map(|explored| explored.chain)
    }

    /// A chain of this many references, the last to `last`.
    fn references(count: usize, last: Value) -> Value {
        let mut defs = serde_json::Map::new();
        for i in 1..count {
            let next = json!({"$ref": format!("#/$defs/{}", i + 1)});
            defs.insert(i.to_string(), next);
        }
        defs.insert(count.to_string(), last);
        json!({"$ref": "#/$defs/1", "$defs": defs})
    }

    #[test]
    fn chains_are_as_long_as_they_are() {
        let cases = [
            (json!({}), 0),
            (
                json!({"properties": {"a": {"items": {"type": "integer"}}}}),
                0,
            ),
            (json!({"allOf": [true, {"not": {"anyOf": [{}, {}]}}]}), 3),
            (json!({"if": {}, "then": {"else": {"oneOf": [{}]}}}), 3),
            (
                json!({"dependentSchemas": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}),
                2,
            ),
            // Deeper in the metadata a new chain begins.
            (
                json!({"not": {"properties": {"a": {"not": {"not": {}}}}}}),
                2,
            ),
            (
                json!({"properties": {"a": {"$ref": "#"}}, "allOf": [{}]}),
                2,
            ),
            (
                json!({"items": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}}),
                2,
            ),
            // References by anchor, by id, and within what has one.
            (
                json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "not": {}}}}),
                2,
            ),
            (
                json!({"$id": "https://e.x/a/", "$ref": "b", "$defs": {"b": {
                    "$id": "b", "$ref": "#/$defs/c", "$defs": {"c": {"not": {}}}}}}),
                3,
            ),
            // No schema at all: not for this check to say.
            (
                json!({"$ref": 1, "allOf": {}, "properties": [], "not": 5}),
                1,
            ),
            (references(50, json!({})), 50),
        ];
        for (source, chain) in cases {
            assert_eq!(chain_max(&source), Ok(chain), "{source}");
        }
    }

    #[test]
    fn the_draft_itself_and_dynamic_trees_are_fine() {
        let draft = json!({"$ref": "https://json-schema.org/draft/2020-12/schema"});
        assert!(chain_max(&draft).is_ok_and(|chain| (2..10).contains(&chain)));
        // From the draft's own release notes: a tree that is made strict.
        let strict_tree = json!({
            "$id": "https://example.com/strict-tree",
            "$dynamicAnchor": "node",
            "$ref": "tree",
            "unevaluatedProperties": false,
            "$defs": {"tree": {
                "$id": "tree",
                "$dynamicAnchor": "node",
                "type": "object",
                "properties": {
                    "data": true,
                    "children": {"type": "array", "items": {"$dynamicRef": "#node"}}
                }
            }}
        });
        assert_eq!(chain_max(&strict_tree), Ok(2));
    }

    #[test]
    fn circles_are_refused() {
        for source in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}}),
            json!({"$dynamicAnchor": "x", "not": {"$dynamicRef": "#x"}}),
            references(3, json!({"$ref": "#/$defs/2"})),
        ] {
            let error = chain_max(&source).expect_err(&source.to_string());
            assert_eq!(
                error.to_string(),
                "the schema refers to itself without going into the metadata"
            );
        }
    }

    #[test]
    fn long_chains_are_refused_from_whichever_end_they_are_met() {
        let longest = CHAIN_MAX as usize;
        assert_eq!(chain_max(&references(longest, json!({}))), Ok(CHAIN_MAX));
        for count in [longest + 1, 5000] {
            let error = chain_max(&references(count, json!({}))).unwrap_err();
            assert!(
                error.to_string().contains("more than 100 schemas"),
                "{error}"
            );
        }
        // The tail is measured first here, as it is a property of the root.
        let mut source = references(longest, json!({}));
        let tail = source["$defs"]["2"].clone();
        source["properties"] = json!({"a": tail});
        source["not"] = json!({"$ref": "#/$defs/1"});
        let error = chain_max(&source).unwrap_err();
        assert!(
            error.to_string().contains("more than 100 schemas"),
            "{error}"
        );
    }
}
