//! A schema and an event together must not end the process that judges them.

use serde_json::{Value, json};
use topic::{Schema, Steps, Validator};

/// A schema in which `chain` applicators lead from each level of the metadata
/// to the next: what `wrap` makes, and references, without which JSON would
/// nest too deeply, after every `refer_every`.
fn chained(chain: u32, refer_every: u32, wrap: impl Fn(Value) -> Value) -> Value {
    let mut schema = json!({"additionalProperties": {"$ref": "#/$defs/0"}});
    let mut defs = serde_json::Map::new();
    for step in 1..chain {
        if step % refer_every == 0 {
            defs.insert(step.to_string(), schema);
            schema = json!({"$ref": format!("#/$defs/{step}")});
        } else {
            schema = wrap(schema);
        }
    }
    defs.insert("0".into(), schema);
    json!({"$ref": "#/$defs/0", "$defs": defs})
}

fn nested(depth: u32) -> Vec<u8> {
    let depth = depth as usize;
    [
        &b"{\"a\":".repeat(depth - 1)[..],
        b"{}",
        &b"}".repeat(depth - 1),
    ]
    .concat()
}

/// Half of what a thread usually has, so that callers may use the other half.
const STACK_BYTES: usize = 1 << 20;

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let running = thread.spawn(test).expect("a thread");
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The longest chains with the deepest metadata that they are let to see.
/// An overflow cannot be caught: it ends this test's process.
#[test]
fn no_schema_and_no_metadata_overflow_the_stack() {
    on_a_small_stack(|| {
        type Wrap = fn(Value) -> Value;
        let kinds: [(&str, u32, Wrap); 7] = [
            ("$ref", 1, |v| v),
            ("allOf", 10, |v| json!({"allOf": [v]})),
            (
                "two of allOf",
                10,
                |v| json!({"allOf": [v, {"type": "object"}]}),
            ),
            ("anyOf", 10, |v| json!({"anyOf": [{"type": "string"}, v]})),
            ("if", 10, |v| json!({"if": {"type": "object"}, "then": v})),
            (
                "dependentSchemas",
                10,
                |v| json!({"dependentSchemas": {"a": v}}),
            ),
            (
                "unevaluatedItems",
                10,
                |v| json!({"allOf": [v], "unevaluatedItems": false}),
            ),
        ];
        for (name, refer_every, wrap) in kinds {
            for chain in [2, 10, 50, 100] {
                let schema = Schema::new(chained(chain, refer_every, wrap)).unwrap();
                // Of the stack alone: the budget of work is another bound.
                let passes = |depth| match schema
                    .validate_within(&nested(depth), &mut Steps::new(u64::MAX))
                {
                    Ok(()) => true,
                    Err(error) => {
                        let error = error.to_string();
                        assert!(
                            error.contains("nested deeper than"),
                            "{name}, {chain}: {error}"
                        );
                        false
                    }
                };
                let deepest = (1..).take_while(|depth| passes(*depth)).last();
                // Anything is judged by ordinary schemas, and something by all.
                let least = if chain <= 10 { 127 } else { 30 };
                assert!(deepest >= Some(least), "{name}, {chain}: {deepest:?}");
            }
        }
    });
}

#[test]
fn schemas_that_would_overflow_it_are_refused() {
    on_a_small_stack(|| {
        let wraps: [fn(Value) -> Value; 2] = [
            |v| json!({"allOf": [v]}),
            |v| json!({"allOf": [v], "unevaluatedProperties": false}),
        ];
        for wrap in wraps {
            for chain in [110, 4000] {
                let error = Schema::new(chained(chain, 10, wrap))
                    .unwrap_err()
                    .to_string();
                assert!(error.contains("more than 100 schemas"), "{error}");
            }
        }
    });
}
