use super::*;
use serde_json::json;

fn pattern(source: Value) -> Pattern {
    Pattern::new(source).unwrap()
}

fn matches(source: Value, metadata: Value) -> bool {
    pattern(source)
        .validate(metadata.to_string().as_bytes())
        .is_ok()
}

fn refused(source: Value) -> String {
    Pattern::new(source).unwrap_err().to_string()
}

/// Each rule with values that match it and values that do not.
#[test]
fn rules_and_values() {
    let cases: Vec<(Value, Vec<Value>, Vec<Value>)> = vec![
        (json!("a"), vec![json!("a")], vec![json!("A"), json!(1)]),
        (
            json!(["a", 1, null, true]),
            vec![json!("a"), json!(1), json!(1.0), json!(null), json!(true)],
            vec![json!("1"), json!(false), json!(2), json!({})],
        ),
        (
            json!([u64::MAX]),
            vec![json!(u64::MAX)],
            vec![json!(u64::MAX - 1)],
        ),
        (
            json!([{"anything-but": "a"}]),
            vec![json!("b"), json!(1), json!(null)],
            vec![json!("a")],
        ),
        (
            json!([{"anything-but": ["a", 2]}]),
            vec![json!("b"), json!(1)],
            vec![json!("a"), json!(2), json!(2.0)],
        ),
        (
            json!([{"anything-but": {"prefix": ["a", "b"]}}]),
            vec![json!("cab")],
            vec![json!("ax"), json!("bx")],
        ),
        (
            json!([{"anything-but": {"suffix": {"equals-ignore-case": "X"}}}]),
            vec![json!("xa")],
            vec![json!("ax"), json!("aX")],
        ),
        (
            json!([{"anything-but": {"wildcard": "a*b"}}]),
            vec![json!("ba")],
            vec![json!("ab"), json!("a-b")],
        ),
        (
            json!([{"prefix": "ab"}]),
            vec![json!("ab"), json!("abc")],
            vec![json!("Ab"), json!("a"), json!(1)],
        ),
        (
            json!([{"prefix": {"equals-ignore-case": ["aB", "c"]}}]),
            vec![json!("ABc"), json!("Cx")],
            vec![json!("xab")],
        ),
        (
            json!([{"suffix": ["ab", "c"]}]),
            vec![json!("xab"), json!("c")],
            vec![json!("abx")],
        ),
        (
            json!([{"equals-ignore-case": "Straße"}]),
            vec![json!("STRAßE")],
            vec![json!("strasse")],
        ),
        (
            json!([{"numeric": ["<", 42, ">=", 10]}]),
            vec![json!(10), json!(41.9)],
            vec![json!(42), json!(9.9), json!("11"), json!(null)],
        ),
        (
            json!([{"numeric": ["=", 300]}]),
            vec![json!(3e2)],
            vec![json!(301)],
        ),
        (
            json!([{"wildcard": "a*b*c"}]),
            vec![
                json!("abc"),
                json!("a--b--c"),
                json!("abbc"),
                json!("abcbc"),
            ],
            vec![json!("ab"), json!("abcd"), json!("xabc"), json!("acb")],
        ),
        (
            json!([{"wildcard": "a*a"}]),
            vec![json!("aa")],
            vec![json!("a")],
        ),
        (
            json!([{"wildcard": "*"}]),
            vec![json!(""), json!("a.b")],
            vec![json!(1)],
        ),
        (
            json!([{"wildcard": r"a\*\\*.b"}]),
            vec![json!(r"a*\x.b")],
            vec![json!(r"ax\x.b"), json!(r"a*\xb")],
        ),
        (
            json!([{"cidr": "10.1.0.0/16"}]),
            vec![json!("10.1.255.3")],
            vec![json!("10.2.0.0"), json!("::1"), json!("x")],
        ),
        (
            json!([{"cidr": "2001:db8::/0"}]),
            vec![json!("::1")],
            vec![json!("1.2.3.4")],
        ),
        // Of a list one element has to match.
        (
            json!(["a", {"prefix": "b"}]),
            vec![json!(["x", "a"]), json!(["bc"])],
            vec![json!([]), json!(["x"]), json!([["a"]])],
        ),
    ];
    for (rule, good, bad) in cases {
        for value in good {
            assert!(
                matches(json!({"f": rule}), json!({"f": value})),
                "{rule} {value}"
            );
        }
        for value in bad {
            assert!(
                !matches(json!({"f": rule}), json!({"f": value})),
                "{rule} {value}"
            );
        }
        // A field that is not there matches no rule on its value.
        assert!(!matches(json!({"f": rule}), json!({"g": 1})), "{rule}");
    }
}

#[test]
fn fields_are_there_or_not() {
    let there = json!({"f": [{"exists": true}]});
    let absent = json!({"f": [{"exists": false}]});
    for (metadata, is_there) in [
        (json!({"f": null}), true),
        (json!({"f": {"g": 1}}), true),
        (json!({"g": 1}), false),
        (json!([1]), false),
    ] {
        assert_eq!(matches(there.clone(), metadata.clone()), is_there);
        assert_eq!(matches(absent.clone(), metadata), !is_there);
    }
    let either = json!({"f": [{"exists": false}, "a"]});
    assert!(matches(either.clone(), json!({})));
    assert!(matches(either.clone(), json!({"f": "a"})));
    assert!(!matches(either, json!({"f": "b"})));
}

#[test]
fn fields_lie_within_objects() {
    for source in [
        json!({"a": {"b": {"c": [1]}}}),
        json!({"a.b.c": [1]}),
        json!({"a.b": {"c": 1}}),
    ] {
        assert!(matches(source.clone(), json!({"a": {"b": {"c": 1}}})));
        assert!(!matches(source.clone(), json!({"a": {"b": 1}})));
        assert!(!matches(source.clone(), json!({"a": [{"b": {"c": 1}}]})));
        assert!(!matches(source, json!({})));
    }
    // A member whose own name has dots comes first.
    let source = json!({"a.b": 1});
    assert!(matches(source.clone(), json!({"a.b": 1, "a": {"b": 2}})));
    assert!(!matches(source, json!({"a.b": 2, "a": {"b": 1}})));
    // An object of no conditions asks for an object.
    assert!(matches(json!({"a": {}}), json!({"a": {"x": 1}})));
    assert!(!matches(json!({"a": {}}), json!({"a": 1})));
    assert!(matches(json!({}), json!([1, 2])));
}

#[test]
fn one_of_several_patterns() {
    let source = json!({"$or": [{"x": [{"numeric": [">", 0]}]}, {"y": ["a"], "z": ["b"]}], "w": 1});
    assert!(matches(source.clone(), json!({"w": 1, "x": 1})));
    assert!(matches(source.clone(), json!({"w": 1, "y": "a", "z": "b"})));
    assert!(!matches(source.clone(), json!({"w": 1, "y": "a"})));
    assert!(!matches(source, json!({"x": 1})));
    // On the members of one field, as Mofka writes it.
    let within = json!({"f": [{"$or": [{"x": [{"exists": true}]}, {"y": [1]}]}]});
    assert!(matches(within.clone(), json!({"f": {"y": 1}})));
    assert!(!matches(within.clone(), json!({"f": {"y": 2}})));
    assert!(!matches(within, json!({"f": 1})));
}

#[test]
fn what_does_not_match_is_said() {
    let pattern = pattern(json!({"a": 1, "b.c": [{"prefix": "x"}]}));
    let why = |metadata: &str| {
        pattern
            .validate(metadata.as_bytes())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        why(r#"{"a": 1, "b": {"c": "y"}}"#),
        "metadata is refused: it does not match the topic's pattern at \"b.c\""
    );
    assert!(why("{").starts_with("metadata is not JSON"), "{}", why("{"));
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    assert!(pattern.validate(deep.as_bytes()).is_err());
}

#[test]
fn wrong_patterns_are_refused_with_the_place() {
    for (source, place, words) in [
        (json!([]), "", "an object"),
        (json!({"a": []}), "/a", "empty list"),
        (json!({"a": [[1]]}), "/a/0", "list in a list"),
        (
            json!({"a": [{"prefx": "x"}]}),
            "/a/0/prefx",
            "known: anything-but",
        ),
        (
            json!({"a": [{"prefix": "x", "suffix": "y"}]}),
            "/a/0",
            "one rule",
        ),
        (json!({"a": [{}]}), "/a/0", "one rule"),
        (json!({"a": [{"prefix": 1}]}), "/a/0/prefix", "a string"),
        (
            json!({"a": [{"suffix": {"prefix": "x"}}]}),
            "/a/0/suffix",
            "a string",
        ),
        (
            json!({"a": [{"exists": 1}]}),
            "/a/0/exists",
            "true or false",
        ),
        (
            json!({"a": [{"numeric": ["<"]}]}),
            "/a/0/numeric",
            "operators",
        ),
        (
            json!({"a": [{"numeric": ["!", 1]}]}),
            "/a/0/numeric",
            "operators",
        ),
        (
            json!({"a": [{"numeric": [1, "<"]}]}),
            "/a/0/numeric",
            "operators",
        ),
        (
            json!({"a": [{"anything-but": [{"prefix": "x"}]}]}),
            "/a/0/anything-but/0",
            "a string",
        ),
        (
            json!({"a": [{"wildcard": r"a\b"}]}),
            "/a/0/wildcard",
            "backslash",
        ),
        (json!({"a": [{"cidr": "10.0.0.0/33"}]}), "/a/0/cidr", "bits"),
        (json!({"$or": {}}), "/$or", "list of objects"),
        (json!({"$or": [1]}), "/$or/0", "an object"),
        (json!({"x/y": {"~": []}}), "/x~1y/~0", "empty list"),
    ] {
        let why = refused(source);
        assert!(why.contains(words), "{why}");
        if !place.is_empty() {
            assert!(why.starts_with(&format!("at {place:?}: ")), "{why}");
        }
    }
    let many: Vec<u64> = (0..=MATCHERS_MAX as u64).collect();
    assert!(refused(json!({ "a": many })).contains("more than"));
}
