use super::*;
use serde_json::json;

/// What a detector might promise about its frames.
fn frame() -> Schema {
    Schema::new(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["angle", "shape"],
        "properties": {
            "angle": {"type": "number", "minimum": 0, "exclusiveMaximum": 360},
            "shape": {"type": "array", "prefixItems": [{"$ref": "#/$defs/side"}, {"$ref": "#/$defs/side"}], "items": false},
            "dtype": {"enum": ["float32", "uint16"]},
            "run": {"type": "string", "pattern": "^run-[0-9]+$"},
            "taken": {"type": "string", "format": "date-time"}
        },
        "unevaluatedProperties": false,
        "$defs": {"side": {"type": "integer", "minimum": 1}}
    }))
    .unwrap()
}

#[test]
fn what_matches_passes() {
    let schema = frame();
    for metadata in [
        r#"{"angle": 0, "shape": [2, 640]}"#,
        r#" {"shape": [1, 1.0], "angle": 359.9, "dtype": "uint16", "run": "run-17"} "#,
        // A format is an annotation: draft 2020-12, section 7.2.1.
        r#"{"angle": 1, "shape": [], "taken": "yesterday"}"#,
    ] {
        assert_eq!(schema.validate(metadata.as_bytes()), Ok(()), "{metadata}");
    }
}

#[test]
fn what_does_not_match_is_refused_with_keyword_and_place() {
    let schema = frame();
    // Metadata, keyword, place in the metadata, place in the schema.
    let cases = [
        (r#"[]"#, "type", "", "/type"),
        (r#"{"angle": 1}"#, "required", "", "/required"),
        (
            r#"{"angle": "1", "shape": []}"#,
            "type",
            "/angle",
            "/properties/angle/type",
        ),
        (
            r#"{"angle": 360, "shape": []}"#,
            "exclusiveMaximum",
            "/angle",
            "/properties/angle/exclusiveMaximum",
        ),
        (
            r#"{"angle": 1, "shape": [5, 0]}"#,
            "minimum",
            "/shape/1",
            "/$defs/side/minimum",
        ),
        (
            r#"{"angle": 1, "shape": [], "dtype": "int8"}"#,
            "enum",
            "/dtype",
            "/properties/dtype/enum",
        ),
        (
            r#"{"angle": 1, "shape": [], "run": "17"}"#,
            "pattern",
            "/run",
            "/properties/run/pattern",
        ),
        (
            r#"{"angle": 1, "shape": [], "colour": 1}"#,
            "unevaluatedProperties",
            "",
            "/unevaluatedProperties",
        ),
    ];
    for (metadata, want_keyword, want_instance, want_schema) in cases {
        match schema.validate(metadata.as_bytes()) {
            Err(ValidationError::Schema {
                keyword,
                instance_path,
                schema_path,
                ..
            }) => {
                assert_eq!(keyword, want_keyword, "{metadata}");
                assert_eq!(instance_path, want_instance, "{metadata}");
                assert_eq!(schema_path, want_schema, "{metadata}");
            }
            other => panic!("{metadata}: {other:?}"),
        }
    }
    let error = schema.validate(br#"{"angle": "x", "shape": []}"#);
    assert_eq!(
        error.unwrap_err().to_string(),
        "metadata does not match the topic's schema: at \"/angle\": \"x\" is not of type \
         \"number\" (keyword \"type\" at \"/properties/angle/type\" of the schema)"
    );
}

#[test]
fn what_is_no_json_is_refused_as_such() {
    let schema = frame();
    for metadata in [
        &b""[..],
        b"{\"angle\": 1,}",
        b"{} {}",
        b"\"\xff\"",
        b"\"\\ud800\"",
    ] {
        let error = schema.validate(metadata).unwrap_err();
        assert!(matches!(error, ValidationError::NotJson(_)), "{error}");
    }
    let deep = [b"[".repeat(200), b"]".repeat(200)].concat();
    assert!(matches!(
        schema.validate(&deep),
        Err(ValidationError::NotJson(_))
    ));
    let error = schema.validate(b"1e999").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata is refused: a schema cannot judge it: number out of range at line 1 column 5"
    );
}

#[test]
fn recursive_schemas_work() {
    let tree = Schema::new(json!({
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "leaf": {"type": "integer"}},
        "additionalProperties": false
    }))
    .unwrap();
    assert_eq!(
        tree.validate(br#"{"left": {"right": {"leaf": 1}}}"#),
        Ok(())
    );
    let error = tree.validate(br#"{"left": {"right": {"leaf": "x"}}}"#);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("\"/left/right/leaf\"")
    );
}

#[test]
fn bad_schemas_are_refused_with_place_and_reason() {
    let cases = [
        (json!(true), "expected an object, found true"),
        (json!("a.json"), "expected an object, found \"a.json\""),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            "$schema is \"http://json-schema.org/draft-07/schema#\"; it must be \
             \"https://json-schema.org/draft/2020-12/schema\" or left out",
        ),
        (
            json!({"$ref": "a", "$defs": {"a": {"$id": "a", "$schema": 5}}}),
            "$schema is 5; it must be \"https://json-schema.org/draft/2020-12/schema\" or left out",
        ),
        (
            json!({"properties": 5}),
            "at \"/properties\": 5 is not of type \"object\"",
        ),
        (
            json!({"properties": {"a": {"minimum": "0"}}}),
            "at \"/properties/a/minimum\": \"0\" is not of type \"number\"",
        ),
        (
            json!({"properties": {"a": {"pattern": "(("}}}),
            "at \"/properties/a/pattern\": \"((\" is not a \"regex\"",
        ),
    ];
    for (source, message) in cases {
        let error = Schema::new(source.clone()).expect_err(&source.to_string());
        assert_eq!(error.to_string(), message, "{source}");
    }
}

#[test]
fn references_stay_within_the_schema() {
    for reference in [
        "https://example.com/frame.json",
        "http://localhost:1/frame.json",
        "file:///etc/passwd",
        "urn:example:frame",
        "#/$defs/missing",
        "#missing",
    ] {
        for source in [
            json!({"$ref": reference}),
            json!({"$defs": {"a": {"items": {"$ref": reference}}}, "properties": {"b": {"$ref": "#/$defs/a"}}}),
            json!({"properties": {"b": {"$dynamicRef": reference}}}),
        ] {
            let error = Schema::new(source.clone()).expect_err(&source.to_string());
            let named = reference.trim_start_matches('#');
            assert!(error.to_string().contains(named), "{source}: {error}");
        }
    }
    // Resources that the schema brings along are within it.
    let bundle = Schema::new(json!({
        "$id": "https://example.com/frame",
        "$ref": "side",
        "$defs": {"side": {"$id": "side", "$anchor": "it", "type": "integer"}}
    }))
    .unwrap();
    assert_eq!(bundle.validate(b"1"), Ok(()));
    assert!(bundle.validate(b"\"1\"").is_err());
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let schema = Schema::new(json!({"type": "object"})).unwrap();
    for pad in 0..4 {
        let metadata = format!("\"{}{}\"", "x".repeat(pad), "😀".repeat(100_000));
        let error = schema
            .validate(metadata.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.len() < 2 * REASON_BYTES_MAX, "{} bytes", error.len());
        assert!(error.contains('…'), "{error}");
    }
}

/// The limit on backtracking makes this an answer, not a hang.
#[test]
fn a_pattern_that_explodes_is_refused_in_the_end() {
    let schema = Schema::new(json!({"pattern": "^(?=(a+)+$)\\1b$"})).unwrap();
    let metadata = format!("\"{}!\"", "a".repeat(40));
    let error = schema.validate(metadata.as_bytes()).unwrap_err();
    assert!(matches!(error, ValidationError::Schema { ref keyword, .. } if keyword == "pattern"));
}

/// Levels of schemas, each of which is made of the next by `level`.
fn levels(count: usize, last: Value, level: impl Fn(Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for i in 0..count {
        let next = json!({"$ref": format!("#/$defs/l{}", i + 1)});
        defs.insert(format!("l{i}"), level(next));
    }
    defs.insert(format!("l{count}"), last);
    json!({"$ref": "#/$defs/l0", "$defs": defs})
}

/// Schemas of a few hundred bytes whose work multiplies with each level, and
/// metadata for which it does.
fn multiplying(count: usize) -> Vec<(Value, String)> {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let three = |next: &Value| json!([next, next, next]);
    let nested = "[".repeat(count) + "1" + &"]".repeat(count);
    let mut objects = "1".to_owned();
    for _ in 0..count {
        objects = format!("{{\"ab\": {objects}}}");
    }
    vec![
        (
            levels(count, json!({}), |next| json!({"oneOf": three(&next)})),
            "{}".to_owned(),
        ),
        (
            levels(count, text.clone(), |next| json!({"oneOf": three(&next)})),
            "{}".to_owned(),
        ),
        (
            levels(count, text.clone(), |next| json!({"anyOf": three(&next)})),
            "{}".to_owned(),
        ),
        (
            levels(count, text, |next| json!({"not": {"anyOf": three(&next)}})),
            "{}".to_owned(),
        ),
        (
            levels(
                count,
                json!({}),
                |next| json!({"if": next, "then": next, "else": next}),
            ),
            "{}".to_owned(),
        ),
        (
            levels(
                count,
                number.clone(),
                |next| json!({"patternProperties": {"a": next, "b": next, "^a": next}}),
            ),
            objects,
        ),
        (
            levels(
                count,
                number,
                |next| json!({"anyOf": [{"contains": next}, {"items": next}], "items": next}),
            ),
            nested,
        ),
    ]
}

#[test]
fn work_that_multiplies_ends_at_its_budget() {
    for count in [15, 20, 30] {
        for (source, metadata) in multiplying(count) {
            let schema = Schema::new(source.clone()).unwrap();
            let result = schema.validate(metadata.as_bytes());
            // What is remembered of references may do with less.
            if let Err(error) = result {
                assert!(
                    matches!(error, ValidationError::TooMuchWork(_)),
                    "{source}: {error}"
                );
            }
        }
    }
}

#[test]
fn the_least_metadata_shows_a_schema_that_asks_for_too_much() {
    let one_of = |next: Value| json!({"oneOf": [next, next, next]});
    let schema = Schema::new(levels(20, json!({}), one_of)).unwrap();
    let error = schema.check_work().unwrap_err().to_string();
    for words in ["of metadata {}", "250006 steps", "validation budget"] {
        assert!(error.contains(words), "{error}");
    }
    Schema::new(levels(4, json!({}), one_of))
        .unwrap()
        .check_work()
        .unwrap();
}

/// Large metadata of a plain schema is no such work.
#[test]
fn budgets_leave_space_for_large_metadata() {
    let field = json!({"type": "string", "pattern": "^[a-z]+[0-9]*$", "maxLength": 100});
    let fields: serde_json::Map<String, Value> = (0..100)
        .map(|i| (format!("field_{i}"), field.clone()))
        .collect();
    let record = json!({
        "type": "object",
        "properties": fields,
        "required": ["field_1"],
        "additionalProperties": false
    });
    let schema = Schema::new(json!({
        "$defs": {"record": record},
        "anyOf": [
            {"type": "array", "items": {"$ref": "#/$defs/record"}},
            {"type": "array", "items": {"type": "integer"}, "uniqueItems": true},
            {"$ref": "#/$defs/record"}
        ]
    }))
    .unwrap();
    let one: serde_json::Map<String, Value> = (0..100)
        .map(|i| (format!("field_{i}"), json!("abc123")))
        .collect();
    let records = json!(vec![one.clone(); 500]).to_string();
    let numbers = json!((0..150_000).collect::<Vec<u32>>()).to_string();
    for metadata in [json!(one).to_string(), records, numbers] {
        assert_eq!(
            schema.validate(metadata.as_bytes()),
            Ok(()),
            "{} bytes",
            metadata.len()
        );
    }
}

#[test]
fn counting_is_not_seen() {
    let schema = Schema::new(json!({
        "allOf": [{"required": ["a"]}, {"$ref": "#/allOf/2/properties/b"}, {"properties": {
            "a": {"allOf": [{"type": "object"}, {"properties": {"allOf": {"minimum": 5}}}]},
            "b": {"type": "object"}
        }}]
    }))
    .unwrap();
    assert_eq!(schema.validate(br#"{"a": {"allOf": 7}}"#), Ok(()));
    let path = |metadata: &str| match schema.validate(metadata.as_bytes()) {
        Err(ValidationError::Schema { schema_path, .. }) => schema_path,
        other => panic!("{other:?}"),
    };
    assert_eq!(path("{}"), "/allOf/0/required");
    assert_eq!(
        path(r#"{"a": {"allOf": 1}}"#),
        "/allOf/2/properties/a/allOf/1/properties/allOf/minimum"
    );
    let error = Schema::new(json!({"allOf": []})).unwrap_err().to_string();
    assert!(error.contains("/allOf"), "{error}");
    let error = Schema::new(json!({"allOf": [{"type": "x"}]}))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/allOf/0/type"), "{error}");
}

/// Work of one keyword on one value is counted before it is done, wherever the keyword stands.
#[test]
fn one_value_takes_no_boundless_work() {
    let text = format!("\"{}\"", "a".repeat(200_000));
    let mixed: String = (0..200_000u32)
        .map(|i| ['a', 'b'][(i.wrapping_mul(2_654_435_761) >> 31) as usize])
        .collect();
    let mixed = format!("\"{mixed}\"");
    let exponents = format!("[{}0]", "1e300,".repeat(100_000));
    let look_around = "(?=(?:[ab]*c))b";
    let counted = "a[ab]{500}[^ab]|b[ab]{500}[^ab]";
    for (source, metadata) in [
        (json!({"pattern": look_around}), &text),
        (json!({"not": {"pattern": look_around}}), &text),
        (json!({"pattern": counted}), &mixed),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"pattern": counted}}}),
            &mixed,
        ),
        (json!({"items": {"multipleOf": 0.125}}), &exponents),
    ] {
        let error = Schema::new(source.clone())
            .unwrap()
            .validate(metadata.as_bytes())
            .unwrap_err();
        assert!(
            matches!(error, ValidationError::TooMuchWork(_)),
            "{source}: {error}"
        );
    }
}

/// Names of properties are matched before anything is counted: their patterns are simple ones.
#[test]
fn a_pattern_of_names_that_is_much_work_is_refused_when_a_topic_is_made() {
    let of = |pattern: &str| json!({"items": {"patternProperties": {pattern: {"type": "number"}}}});
    for pattern in [
        "(?=(?:[ab]*c))b",
        r"^(a+)+\1$",
        "a[ab]{500}[^ab]|b[ab]{500}[^ab]",
    ] {
        let error = Schema::new(of(pattern)).unwrap().check_work().unwrap_err();
        assert!(error.to_string().contains("patternProperties"), "{error}");
    }
    for pattern in [
        "^x-",
        "^[a-z]+[0-9]*$",
        "^(motor|detector)_[0-9]{1,4}$",
        "^S_",
        ".*",
    ] {
        assert_eq!(
            Schema::new(of(pattern)).unwrap().check_work(),
            Ok(()),
            "{pattern}"
        );
    }
}
