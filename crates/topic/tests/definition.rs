//! Definitions as users write them and as they are stored.

use serde_json::json;
use topic::{
    DATA_BLOCK_BYTES_MAX, DEFINITION_BYTES_MAX, Definition, FieldHash, FieldPath, FieldRange,
    METADATA_BYTES_MAX_LIMIT, MissingFromHash, MissingFromRange, NoPlugins, Outside, PluginRef,
    Retention, Schema, SelectorKind, SerializerKind, ValidatorKind,
};
use wire::{Durability, ErrorCode};

/// Stored with every topic of this version: these files never change.
const GOLDEN_DEFAULT: &str = include_str!("golden/default-v1.json");
const GOLDEN_FULL: &str = include_str!("golden/full-v1.json");
const GOLDEN_FIELD_HASH: &str = include_str!("golden/field-hash-v1.json");
const GOLDEN_FIELD_RANGE: &str = include_str!("golden/field-range-v1.json");
const GOLDEN_PLUGINS: &str = include_str!("golden/plugins-v1.json");

fn full() -> Definition {
    let schema = json!({"required": ["angle"], "type": "object"});
    Definition::builder()
        .validator(ValidatorKind::Schema(Schema::new(schema).unwrap()))
        .partition_selector(SelectorKind::KeyHash)
        .serializer(SerializerKind::Raw)
        .durability(Durability::Written)
        .retention(Retention {
            bytes: Some(1 << 40),
            total_bytes: None,
            age_ms: Some(86_400_000),
            count: Some(1_000_000),
        })
        .metadata_bytes_max(10 << 20)
        .data_block_bytes(512)
        .validate_on_server(true)
        .build()
        .unwrap()
}

fn field_hash() -> Definition {
    let field = FieldPath::new("sensor.id").unwrap();
    let missing = MissingFromHash::RoundRobin;
    Definition::builder()
        .partition_selector(SelectorKind::FieldHash(FieldHash { field, missing }))
        .serializer(SerializerKind::MessagePack)
        .build()
        .unwrap()
}

fn field_range() -> Definition {
    let field = FieldPath::new("energy").unwrap();
    let boundaries = vec![-1.5, 0.0, 250.5];
    let missing = MissingFromRange::Partition(1);
    let range = FieldRange::new(field, boundaries, missing, Outside::Clamp).unwrap();
    Definition::builder()
        .partition_selector(SelectorKind::FieldRange(range))
        .build()
        .unwrap()
}

fn plugins() -> Definition {
    let options = json!({"energy_max": 7.5, "a": [null]});
    let options = options.as_object().unwrap().clone();
    let plugin = |name: &str| PluginRef::new(name, options.clone()).unwrap();
    Definition::builder()
        .validator(ValidatorKind::Plugin(plugin("energy:libenergy.so")))
        .partition_selector(SelectorKind::Plugin(plugin("my.energy:Selector")))
        .serializer(SerializerKind::Plugin(plugin("energy:libenergy.so.1")))
        .build()
        .unwrap()
}

#[test]
fn the_default_is_as_promised() {
    let definition = Definition::default();
    assert_eq!(definition.validator(), &ValidatorKind::None);
    assert_eq!(definition.partition_selector(), &SelectorKind::RoundRobin);
    assert_eq!(definition.serializer(), &SerializerKind::Json);
    assert_eq!(definition.durability(), None);
    assert!(definition.retention().keeps_all());
    assert_eq!(definition.metadata_bytes_max(), 1 << 20);
    assert_eq!(definition.data_block_bytes(), 4096);
    assert!(!definition.validate_on_server());
    assert_eq!(Definition::builder().build(), Ok(definition.clone()));
    for text in ["{}", r#"{"version": 1}"#, GOLDEN_DEFAULT] {
        assert_eq!(
            Definition::from_json(text),
            Ok(definition.clone()),
            "{text}"
        );
    }
}

#[test]
fn stored_definitions_are_written_and_read_as_ever() {
    assert_eq!(Definition::default().to_json(), GOLDEN_DEFAULT.trim_end());
    assert_eq!(full().to_json(), GOLDEN_FULL.trim_end());
    assert_eq!(Definition::from_json(GOLDEN_FULL), Ok(full()));
    for (definition, golden) in [
        (field_hash(), GOLDEN_FIELD_HASH),
        (field_range(), GOLDEN_FIELD_RANGE),
        (plugins(), GOLDEN_PLUGINS),
    ] {
        assert_eq!(definition.to_json(), golden.trim_end());
        assert_eq!(Definition::from_json(golden), Ok(definition));
    }
}

#[test]
fn consumers_that_hold_retention_back_are_named_once() {
    let text = r#"{"keep_until_acknowledged":["archive","analysis"]}"#;
    let definition = Definition::from_json(text).unwrap();
    assert_eq!(
        definition.keep_until_acknowledged(),
        ["archive", "analysis"]
    );
    assert_eq!(Definition::from_json(&definition.to_json()), Ok(definition));
    for (bad, said) in [
        (r#"["a","a"]"#, "twice"),
        (r#"[""]"#, "empty"),
        (r#"["a",1]"#, "a list of strings"),
        (r#""a""#, "a list of strings"),
    ] {
        let text = format!(r#"{{"keep_until_acknowledged":{bad}}}"#);
        let error = Definition::from_json(&text).expect_err(bad).to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn a_policy_of_overflow_needs_a_bound_and_somebody_to_wait_for() {
    let whole = |overflow: &str| {
        format!(
            r#"{{"retention":{{"count":5}},"keep_until_acknowledged":["a"],"overflow":{overflow}}}"#
        )
    };
    for policy in [
        r#"{"type":"block"}"#,
        r#"{"type":"reject","retry_after_ms":20}"#,
        r#"{"type":"drop_oldest"}"#,
        r#"{"type":"drop_newest"}"#,
        r#"{"type":"sample","one_in":3}"#,
    ] {
        let definition = Definition::from_json(&whole(policy)).unwrap();
        let text = definition.to_json();
        assert!(text.contains(&format!(r#""overflow":{policy}"#)), "{text}");
        assert_eq!(Definition::from_json(&text), Ok(definition));
        for without in [
            format!(r#"{{"retention":{{"count":5}},"overflow":{policy}}}"#),
            format!(r#"{{"keep_until_acknowledged":["a"],"overflow":{policy}}}"#),
            format!(
                r#"{{"retention":{{"age_ms":5}},"keep_until_acknowledged":["a"],"overflow":{policy}}}"#
            ),
        ] {
            let error = Definition::from_json(&without).expect_err(&without);
            assert_eq!(error.key(), "overflow", "{error}");
        }
    }
    // The default, with or without its name, is not written.
    let plain = Definition::from_json(r#"{"overflow":{"type":"grow"}}"#).unwrap();
    assert_eq!(plain, Definition::from_json("{}").unwrap());
    assert!(!plain.to_json().contains("overflow"));
    for (bad, said) in [
        (r#"{"type":"sample"}"#, "is missing"),
        (
            r#"{"type":"sample","one_in":0}"#,
            "expected an integer from 1",
        ),
        (
            r#"{"type":"reject","retry_after_ms":0}"#,
            "expected an integer from 1",
        ),
        (r#"{"type":"drop"}"#, "known: grow, block, reject"),
        (r#"{"type":"block","one_in":3}"#, "unknown key"),
    ] {
        let error = Definition::from_json(&whole(bad))
            .expect_err(bad)
            .to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn some_keys_can_be_altered() {
    let definition = full();
    let altered = definition
        .altered(r#"{"retention":{"count":7},"metadata_bytes_max":null}"#)
        .unwrap();
    assert_eq!(altered.retention().count, Some(7));
    assert_eq!(altered.retention().bytes, None);
    assert_eq!(altered.metadata_bytes_max(), 1 << 20);
    assert_eq!(altered.validator(), definition.validator());
    assert_eq!(definition.altered("{}"), Ok(definition.clone()));
    for key in [
        "serializer",
        "partition_selector",
        "durability",
        "version",
        "name",
    ] {
        let changes = format!(r#"{{"{key}":null}}"#);
        let error = definition.altered(&changes).expect_err(key);
        assert_eq!(error.key(), key);
    }
}

#[test]
fn null_is_the_same_as_left_out() {
    let text = r#"{"version": null, "validator": null, "durability": null,
        "retention": {"bytes": null, "count": 5}, "data_block_bytes": null}"#;
    let definition = Definition::from_json(text).unwrap();
    assert_eq!(definition.durability(), None);
    assert_eq!(
        definition.retention(),
        Retention {
            count: Some(5),
            ..Retention::default()
        }
    );
}

#[test]
fn every_kind_is_read_by_its_name() {
    let more = |name: &str| match name {
        "schema" => r#", "schema": {}"#,
        "eventbridge" => r#", "pattern": {}"#,
        "plugin" => r#", "name": "a:b""#,
        "field_hash" => r#", "field": "a""#,
        "field_range" => r#", "field": "a", "boundaries": [0, 1]"#,
        _ => "",
    };
    let read = |key: &str, name: &str| {
        let text = format!(r#"{{"{key}": {{"type": "{name}"{}}}}}"#, more(name));
        Definition::from_json(&text).unwrap()
    };
    for name in SelectorKind::NAMES {
        let definition = read("partition_selector", name);
        assert_eq!(definition.partition_selector().name(), *name);
    }
    for name in SerializerKind::NAMES {
        assert_eq!(read("serializer", name).serializer().name(), *name);
    }
    for name in ValidatorKind::NAMES {
        assert_eq!(read("validator", name).validator().name(), *name);
    }
    for durability in [Durability::Memory, Durability::Written, Durability::Synced] {
        let text = format!(r#"{{"durability": "{durability}"}}"#);
        let definition = Definition::from_json(&text).unwrap();
        assert_eq!(definition.durability(), Some(durability));
    }
    for log2 in 9..=12 {
        let text = format!(r#"{{"data_block_bytes": {}}}"#, 1 << log2);
        let definition = Definition::from_json(&text).unwrap();
        assert_eq!(definition.data_block_bytes(), 1 << log2);
    }
}

#[test]
fn bad_definitions_are_refused_with_key_and_reason() {
    // Definition, key, reason.
    let cases = [
        (
            "",
            "",
            "not JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            "{",
            "",
            "not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "{} x",
            "",
            "not JSON: trailing characters at line 1 column 4",
        ),
        ("[]", "", "expected an object, found a list"),
        (
            r#"{"retention": {}, "retention": {"count": 1}}"#,
            "",
            "not JSON: key \"retention\" appears twice at line 1 column 29",
        ),
        (
            r#"{"validator": {"type": "schema", "schema": {"items": {}, "items": {}}}}"#,
            "",
            "not JSON: key \"items\" appears twice at line 1 column 64",
        ),
        (
            r#"{"version": 2, "replicas": 3}"#,
            "version",
            "version 2 is not supported; this is version 1",
        ),
        (
            r#"{"version": "1"}"#,
            "version",
            "expected an integer from 1 to 18446744073709551615, found \"1\"",
        ),
        (
            r#"{"partitions": 4}"#,
            "partitions",
            "unknown key; known here: version, validator, partition_selector, serializer, \
             durability, retention, keep_until_acknowledged, overflow, metadata_bytes_max, data_block_bytes, validate_on_server, \
             kind, pins, mirror_of, \
             spread, part_of, placement",
        ),
        (
            r#"{"kind": "tables"}"#,
            "kind",
            "unknown type \"tables\"; known: events, steps",
        ),
        (
            r#"{"kind": "steps", "overflow": {"type": "block"}}"#,
            "overflow",
            "is not to be chosen for a topic of steps",
        ),
        (
            r#"{"kind": "steps", "validator": {"type": "json"}}"#,
            "validator",
            "is not to be chosen for a topic of steps",
        ),
        (
            r#"{"validator": "json"}"#,
            "validator",
            "expected an object, found \"json\"",
        ),
        (
            r#"{"validator": {}}"#,
            "validator.type",
            "is missing; known: none, json, schema, eventbridge, plugin",
        ),
        (
            r#"{"validator": {"type": "eventbridge", "pattern": {"a": [{"prefx": "b"}]}}}"#,
            "validator.pattern",
            "at \"/a/0/prefx\": no such rule; known: anything-but, cidr, equals-ignore-case, \
             exists, numeric, prefix, suffix, wildcard, $or",
        ),
        (
            r#"{"validator": {"type": "jsonschema"}}"#,
            "validator.type",
            "unknown type \"jsonschema\"; known: none, json, schema, eventbridge, plugin",
        ),
        (
            r#"{"validator": {"type": "json", "schema": {}}}"#,
            "validator.schema",
            "unknown key; known here: type",
        ),
        (
            r#"{"validator": {"type": "schema"}}"#,
            "validator.schema",
            "is missing",
        ),
        (
            r#"{"validator": {"type": "schema", "schema": true}}"#,
            "validator.schema",
            "expected an object, found true",
        ),
        (
            r#"{"validator": {"type": "schema", "schema": {"properties": {"a": {"type": "real"}}}}}"#,
            "validator.schema",
            "at \"/properties/a/type\": \"real\" is not valid under any of the schemas listed \
             in the 'anyOf' keyword",
        ),
        (
            r#"{"validator": {"type": "schema", "schema": {"$ref": "https://example.com/a"}}}"#,
            "validator.schema",
            "\"https://example.com/a\" is referred to and not in the schema; nothing is fetched, \
             so put it under $defs with that as its $id",
        ),
        (
            r##"{"validator": {"type": "schema", "schema": {"items": {"$ref": "#/$defs/a"}}}}"##,
            "validator.schema",
            "there is nothing at \"/$defs/a\", which is referred to",
        ),
        (
            r##"{"validator": {"type": "schema", "schema": {"anyOf": [{}, {"$ref": "#"}]}}}"##,
            "validator.schema",
            "the schema refers to itself without going into the metadata",
        ),
        (
            r#"{"partition_selector": {"type": "sticky"}}"#,
            "partition_selector.type",
            "unknown type \"sticky\"; known: round_robin, random, key_hash, field_hash, \
             field_range, explicit, plugin",
        ),
        (
            r#"{"partition_selector": {"type": "key_hash", "seed": 1}}"#,
            "partition_selector.seed",
            "unknown key; known here: type",
        ),
        (
            r#"{"partition_selector": {"type": 1}}"#,
            "partition_selector.type",
            "expected a string, found 1",
        ),
        (
            r#"{"serializer": {"type": "protobuf"}}"#,
            "serializer.type",
            "unknown type \"protobuf\"; known: json, raw, msgpack, schema, plugin",
        ),
        (
            r#"{"serializer": {}}"#,
            "serializer.type",
            "is missing; known: json, raw, msgpack, schema, plugin",
        ),
        (
            r#"{"partition_selector": {"type": "field_hash"}}"#,
            "partition_selector.field",
            "is missing",
        ),
        (
            r#"{"partition_selector": {"type": "field_hash", "field": "a..b"}}"#,
            "partition_selector.field",
            "expected names with dots between them, found \"a..b\"",
        ),
        (
            r#"{"partition_selector": {"type": "field_hash", "field": "a", "missing": 1}}"#,
            "partition_selector.missing",
            "expected \"refuse\" or \"round_robin\", found 1",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a"}}"#,
            "partition_selector.boundaries",
            "is missing",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a", "boundaries": 7}}"#,
            "partition_selector.boundaries",
            "expected a list of numbers, found 7",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a", "boundaries": ["7"]}}"#,
            "partition_selector.boundaries",
            "expected numbers, found \"7\"",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a", "boundaries": [1, 0]}}"#,
            "partition_selector.boundaries",
            "boundaries ascend, but 1 is followed by 0",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a", "boundaries": [0, 1], "missing": -1}}"#,
            "partition_selector.missing",
            "expected \"refuse\" or a partition, found -1",
        ),
        (
            r#"{"partition_selector": {"type": "field_range", "field": "a", "boundaries": [0, 1], "outside": "drop"}}"#,
            "partition_selector.outside",
            "expected \"refuse\" or \"clamp\", found \"drop\"",
        ),
        (
            r#"{"validator": {"type": "plugin"}}"#,
            "validator.name",
            "is missing",
        ),
        (
            r#"{"validator": {"type": "plugin", "name": "libenergy.so"}}"#,
            "validator.name",
            "plugin name \"libenergy.so\" is not name:library.so or module:object",
        ),
        (
            r#"{"serializer": {"type": "plugin", "name": "a:/tmp/b.so"}}"#,
            "serializer.name",
            "plugin name \"a:/tmp/b.so\" has a \"/\": where plugins are looked for is up to each client",
        ),
        (
            r#"{"serializer": {"type": "plugin", "name": "a:b.so", "options": [1]}}"#,
            "serializer.options",
            "expected an object, found a list",
        ),
        (
            r#"{"serializer": {"type": "plugin", "name": "a:b.so"}, "validate_on_server": true}"#,
            "validate_on_server",
            "the server has no plugins, and serializer is the plugin \"a:b.so\"",
        ),
        (
            r#"{"durability": "fsync"}"#,
            "durability",
            "durability is memory, written or synced, not \"fsync\"",
        ),
        (
            r#"{"durability": 2}"#,
            "durability",
            "expected a string, found 2",
        ),
        (
            r#"{"retention": 5}"#,
            "retention",
            "expected an object or text such as \"40GB\", \"7d\" or \"40GB,7d\", found 5",
        ),
        (
            r#"{"retention": {"hours": 5}}"#,
            "retention.hours",
            "unknown key; known here: bytes, total_bytes, age_ms, age, count",
        ),
        (
            r#"{"retention": {"bytes": 0}}"#,
            "retention.bytes",
            "expected an integer from 1 to 9223372036854775807, or a size such as \"10GB\" or \"512MiB\", found 0",
        ),
        (
            r#"{"retention": {"count": -1}}"#,
            "retention.count",
            "expected an integer from 1 to 9223372036854775807, found -1",
        ),
        (
            r#"{"retention": {"age_ms": 1.5}}"#,
            "retention.age_ms",
            "expected an integer from 1 to 9223372036854775807, found 1.5",
        ),
        (
            r#"{"retention": {"bytes": 9223372036854775808}}"#,
            "retention.bytes",
            "expected an integer from 1 to 9223372036854775807, or a size such as \"10GB\" or \"512MiB\", found 9223372036854775808",
        ),
        (
            r#"{"retention": {"bytes": "1 gig"}}"#,
            "retention.bytes",
            "expected an integer from 1 to 9223372036854775807, or a size such as \"10GB\" or \"512MiB\", found \"1 gig\"",
        ),
        (
            r#"{"metadata_bytes_max": 0}"#,
            "metadata_bytes_max",
            "expected an integer from 1 to 67108864, found 0",
        ),
        (
            r#"{"metadata_bytes_max": 67108865}"#,
            "metadata_bytes_max",
            "expected an integer from 1 to 67108864, found 67108865",
        ),
        (
            r#"{"metadata_bytes_max": 4294967296}"#,
            "metadata_bytes_max",
            "expected an integer from 1 to 67108864, found 4294967296",
        ),
        (
            r#"{"data_block_bytes": 256}"#,
            "data_block_bytes",
            "expected an integer from 512 to 4096, found 256",
        ),
        (
            r#"{"data_block_bytes": 1000}"#,
            "data_block_bytes",
            "expected a power of two, found 1000",
        ),
        (
            r#"{"data_block_bytes": 8192}"#,
            "data_block_bytes",
            "expected an integer from 512 to 4096, found 8192",
        ),
        (
            r#"{"validate_on_server": 1}"#,
            "validate_on_server",
            "expected true or false, found 1",
        ),
    ];
    for (text, key, reason) in cases {
        let error = Definition::from_json(text).expect_err(text);
        assert_eq!((error.key(), error.reason()), (key, reason), "{text}");
        assert_eq!(error.code(), ErrorCode::InvalidTopic);
        let message = match key {
            "" => format!("topic definition: {reason}"),
            _ => format!("topic definition: key {key:?}: {reason}"),
        };
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn what_rust_code_sets_is_checked_alike() {
    let refused = |builder: topic::DefinitionBuilder| builder.build().unwrap_err().to_string();
    let builder = Definition::builder;
    let retention = Retention {
        age_ms: Some(0),
        ..Retention::default()
    };
    assert_eq!(
        refused(builder().retention(retention)),
        "topic definition: key \"retention.age_ms\": expected an integer from 1 to \
         9223372036854775807, found 0"
    );
    assert_eq!(
        refused(builder().metadata_bytes_max(METADATA_BYTES_MAX_LIMIT + 1)),
        "topic definition: key \"metadata_bytes_max\": expected an integer from 1 to 67108864, \
         found 67108865"
    );
    assert_eq!(
        refused(builder().data_block_bytes(DATA_BLOCK_BYTES_MAX * 2)),
        "topic definition: key \"data_block_bytes\": expected an integer from 512 to 4096, \
         found 8192"
    );
    assert_eq!(
        refused(builder().data_block_bytes(768)),
        "topic definition: key \"data_block_bytes\": expected a power of two, found 768"
    );
}

#[test]
fn a_definition_that_does_not_fit_a_message_is_refused() {
    let text = format!(
        r#"{{"validator": {{"type": "schema", "schema": {{"title": "{}"}}}}}}"#,
        "x".repeat(DEFINITION_BYTES_MAX)
    );
    let error = Definition::from_json(&text).unwrap_err();
    assert_eq!(
        error.to_string(),
        "topic definition: it has 262202 bytes of JSON; the limit is 262144"
    );
    let schema = Schema::new(json!({"title": "x".repeat(DEFINITION_BYTES_MAX)})).unwrap();
    let built = Definition::builder()
        .validator(ValidatorKind::Schema(schema))
        .build();
    assert!(built.unwrap_err().reason().contains("the limit is 262144"));
}

#[test]
fn ranges_of_a_field_say_how_many_partitions_there_are() {
    let definition = field_range();
    for count in [0, 2] {
        assert_eq!(definition.check_partition_count(count), Ok(()));
    }
    for count in [1, 3] {
        assert_eq!(
            definition
                .check_partition_count(count)
                .unwrap_err()
                .to_string(),
            format!(
                "topic definition: key \"partition_selector.boundaries\": 3 boundaries are for 2 \
                 partitions; the topic would have {count}"
            )
        );
    }
    assert_eq!(Definition::default().check_partition_count(77), Ok(()));
}

#[test]
fn a_plugin_may_select_where_the_server_validates() {
    let text = r#"{"partition_selector": {"type": "plugin", "name": "a:b.so"},
        "validator": {"type": "json"}, "validate_on_server": true}"#;
    let definition = Definition::from_json(text).unwrap();
    let named: Vec<_> = definition
        .plugins()
        .map(|(key, by)| (key, by.name()))
        .collect();
    assert_eq!(named, [("partition_selector", "a:b.so")]);
}

#[test]
fn metadata_beyond_the_limit_is_named_with_both_numbers() {
    let definition = Definition::builder()
        .metadata_bytes_max(10)
        .build()
        .unwrap();
    assert_eq!(definition.check_metadata_bytes(10), Ok(()));
    let error = definition.check_metadata_bytes(11).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limit exceeded: metadata of 11 bytes; the topic's metadata_bytes_max is 10"
    );
}

#[test]
fn a_definition_inside_another_file_is_checked_too() {
    let value = json!({"serializer": {"type": "raw"}});
    let definition: Definition = serde_json::from_value(value).unwrap();
    assert_eq!(definition.serializer(), &SerializerKind::Raw);
    let error = serde_json::from_value::<Definition>(json!({"retention": {"bytes": 0}}));
    assert_eq!(
        error.unwrap_err().to_string(),
        "topic definition: key \"retention.bytes\": expected an integer from 1 to \
         9223372036854775807, or a size such as \"10GB\" or \"512MiB\", found 0"
    );
}

#[test]
fn validators_are_shared_by_threads() {
    let validator = full().validator().build(&NoPlugins).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let validator = std::sync::Arc::clone(&validator);
            scope.spawn(move || {
                assert_eq!(validator.validate(br#"{"angle": 1}"#), Ok(()));
                assert!(validator.validate(b"{}").is_err());
            });
        }
    });
}

/// Whatever is one edit away from a definition is read or refused, and what
/// is read is written so that it reads the same.
#[test]
fn anything_is_read_alike_twice_or_refused() {
    let interesting = b"\0\n \"\\{}[]:,.-+0129eEntf$#/\x7f";
    let mut accepted = 0u32;
    let mut try_text = |text: &[u8]| {
        let Ok(text) = std::str::from_utf8(text) else {
            return;
        };
        if let Ok(definition) = Definition::from_json(text) {
            let again = Definition::from_json(&definition.to_json());
            assert_eq!(again.as_ref(), Ok(&definition), "{text}");
            accepted += 1;
        }
    };
    for golden in [GOLDEN_FULL, GOLDEN_FIELD_RANGE, GOLDEN_PLUGINS] {
        let bytes = golden.trim_end().as_bytes();
        for at in 0..bytes.len() {
            try_text(&bytes[..at]);
            try_text(&[&bytes[..at], &bytes[at + 1..]].concat());
            for new in interesting {
                try_text(&[&bytes[..at], &[*new], &bytes[at..]].concat());
                try_text(&[&bytes[..at], &[*new], &bytes[at + 1..]].concat());
            }
        }
    }
    assert!(accepted > 100, "only {accepted} edits left a definition");
}

/// The page shows the default as it is stored, and then one with everything.
#[test]
fn the_examples_of_the_page_are_true() {
    let page = include_str!("../../../docs/reference/topic-definition.md");
    let examples: Vec<_> = page
        .split("```json\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(example, _)| example)
        .collect();
    let [default, full] = examples[..] else {
        panic!("{} examples", examples.len());
    };
    assert_eq!(default, Definition::default().to_json());
    let full = Definition::from_json(full).unwrap();
    assert_eq!(full.durability(), Some(Durability::Synced));
    assert!(full.validate_on_server());
    // Each kind, and each key with its default, has its line.
    let names = [
        SelectorKind::NAMES,
        SerializerKind::NAMES,
        ValidatorKind::NAMES,
    ];
    for name in names.concat() {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
    }
    let stored: serde_json::Value = serde_json::from_str(default).unwrap();
    for key in stored.as_object().unwrap().keys() {
        assert!(page.contains(&format!("\n| `{key}` |")), "{key}");
    }
}

#[test]
fn retention_is_told_in_words_and_kept_in_numbers() {
    let read = |retention: serde_json::Value| {
        Definition::from_json(&json!({ "retention": retention }).to_string())
            .map(|definition| definition.retention())
            .map_err(|error| error.to_string())
    };
    let of = |total_bytes, age_ms| Retention {
        total_bytes,
        age_ms,
        ..Retention::default()
    };
    let gb = 1_000_000_000;
    let day = 86_400_000;
    for (text, expected) in [
        (json!("40GB"), of(Some(40 * gb), None)),
        (json!("7d"), of(None, Some(7 * day))),
        (json!("7d, 40GB"), of(Some(40 * gb), Some(7 * day))),
        (
            json!({"total_bytes": "40GB", "age": "7d"}),
            of(Some(40 * gb), Some(7 * day)),
        ),
        (json!({"total_bytes": 7, "age_ms": 5}), of(Some(7), Some(5))),
    ] {
        assert_eq!(read(text.clone()), Ok(expected), "{text}");
    }
    let each = read(json!({"bytes": "512MiB", "count": 3})).unwrap();
    assert_eq!((each.bytes, each.count), (Some(512 << 20), Some(3)));
    let found = |text: &str| format!("found {:?}", text);
    for (retention, key, part) in [
        (json!("10 gigs"), "retention", found("10 gigs")),
        (json!("40GB,7d,1h"), "retention", found("40GB,7d,1h")),
        (
            json!("0GB"),
            "retention",
            "such as \"40GB\", \"7d\"".to_owned(),
        ),
        (json!(40), "retention", "such as \"40GB\"".to_owned()),
        (
            json!({"bytes": "10G"}),
            "retention.bytes",
            "a size such as \"10GB\" or \"512MiB\", found \"10G\"".to_owned(),
        ),
        (
            json!({"total_bytes": 0}),
            "retention.total_bytes",
            found("")[..6].to_owned(),
        ),
        (
            json!({"age": 7}),
            "retention.age",
            "a time such as \"7d\", \"12h\", \"30m\" or \"90s\", found 7".to_owned(),
        ),
        (
            json!({"age_ms": "7d"}),
            "retention.age_ms",
            "an integer".to_owned(),
        ),
        (
            json!({"age": "7d", "age_ms": 7}),
            "retention.age",
            "age_ms".to_owned(),
        ),
        (
            json!({"count": "7"}),
            "retention.count",
            "an integer".to_owned(),
        ),
    ] {
        let error = read(retention.clone()).unwrap_err();
        assert!(
            error.contains(&format!("{key:?}")) && error.contains(&part),
            "{error}"
        );
    }
    // What is stored are numbers, which every reader of definitions knows.
    let text = r#"{"retention": "40GB,7d"}"#;
    let stored = Definition::from_json(text).unwrap().to_json();
    assert!(stored.contains(r#""retention":{"total_bytes":40000000000,"age_ms":604800000}"#));
}

#[test]
fn a_total_is_shared_by_the_partitions() {
    let retention = Retention {
        bytes: Some(300),
        total_bytes: Some(1000),
        ..Retention::default()
    };
    let shares = [0, 1, 3, 4, 7, 2000].map(|count| retention.of_partition(count).bytes);
    assert_eq!(shares, [300, 300, 300, 250, 142, 1].map(Some));
    assert_eq!(Retention::default().of_partition(3), Retention::default());
}

fn spread(count: u32) -> Definition {
    let mut spread = topic::Spread::default();
    spread
        .push(
            "disk",
            r#"{"segment_bytes":1048576}"#,
            &topic::Placement::default(),
            count,
        )
        .unwrap();
    Definition::builder()
        .retention(Retention {
            total_bytes: Some(1000),
            ..Retention::default()
        })
        .spread(spread)
        .build()
        .unwrap()
}

#[test]
fn a_spread_topic_says_how_its_partitions_are_stored_and_gets_more_of_them() {
    let definition = spread(3);
    assert_eq!(
        Definition::from_json(&definition.to_json()).unwrap(),
        definition
    );
    let more = spread(4).to_json();
    let more: serde_json::Value = serde_json::from_str(&more).unwrap();
    let grown = definition.altered(&json!({"spread": more["spread"]}).to_string());
    let grown = grown.unwrap();
    assert_eq!(grown.spread().unwrap().count(), 4);
    // Neither fewer, nor stored in another way, nor none, nor any of a topic that is not spread.
    let fewer: serde_json::Value = serde_json::from_str(&definition.to_json()).unwrap();
    let other = json!({"partitions": [{"storage": "memory", "count": 9}]});
    for spread in [&fewer["spread"], &other, &json!(null)] {
        let changes = json!({"spread": spread}).to_string();
        assert_eq!(
            grown.altered(&changes).unwrap_err().key(),
            "spread",
            "{changes}"
        );
    }
    let changes = json!({"spread": other}).to_string();
    assert_eq!(
        Definition::default().altered(&changes).unwrap_err().key(),
        "spread"
    );
    for (bad, key) in [
        (json!({"spread": {}}), "spread.partitions"),
        (
            json!({"spread": {"partitions": [{"count": 1}]}}),
            "spread.partitions",
        ),
        (
            json!({"spread": {"partitions": [{"storage": "disk", "count": 5000}]}}),
            "spread.partitions.count",
        ),
        (json!({"kind": "steps", "spread": other}), "spread"),
        (json!({"placement": ["rank"]}), "placement"),
        (json!({"placement": {"rank": [1]}}), "placement.rank"),
        (json!({"placement": {"": "1"}}), "placement"),
        (
            json!({"spread": {"partitions": [{"storage": "disk", "placement": 1}]}}),
            "spread.partitions.placement",
        ),
        (json!({"part_of": {"topic": "7"}}), "part_of.index"),
        (
            json!({"part_of": {"topic": "x", "index": 1}}),
            "part_of.topic",
        ),
        (
            json!({"spread": other, "part_of": {"topic": "7", "index": 1}}),
            "part_of",
        ),
    ] {
        assert_eq!(
            Definition::from_json(&bad.to_string()).unwrap_err().key(),
            key,
            "{bad}"
        );
    }
}

#[test]
fn a_placement_is_that_of_a_partition_or_else_of_the_topic() {
    let text = r#"{"placement": {"host": "a"}, "spread": {"partitions": [
        {"storage": "disk", "count": 2, "placement": {"rank": 1}},
        {"storage": "disk"}
    ]}}"#;
    let whole = Definition::from_json(text).unwrap();
    assert_eq!(Definition::from_json(&whole.to_json()).unwrap(), whole);
    let of_part = |index| {
        let part = whole.of_part(wire::TopicId(7), index);
        assert_eq!(Definition::from_json(&part.to_json()).unwrap(), part);
        part.placement().to_string()
    };
    assert_eq!([0, 1, 2].map(of_part), ["rank=1", "rank=1", "host=a"]);
    // Nodes of another site have other labels; and a topic is made once.
    let elsewhere = Definition::default().with_placement("rank=1".parse().unwrap());
    let of = topic::MirrorOf {
        topic: "events".into(),
        id: "7".into(),
        link: "link".into(),
    };
    assert!(elsewhere.mirrored(of).unwrap().placement().is_anywhere());
    let changes = r#"{"placement": {"rank": "2"}}"#;
    assert_eq!(elsewhere.altered(changes).unwrap_err().key(), "placement");
}

#[test]
fn a_partition_of_a_spread_topic_has_its_definition_and_a_share_of_what_it_keeps() {
    let (whole, id) = (spread(4), wire::TopicId(0x7a1));
    let part = whole.of_part(id, 2);
    assert_eq!(Definition::from_json(&part.to_json()).unwrap(), part);
    assert_eq!(part.retention().bytes, Some(250));
    let of = part.part_of().unwrap();
    assert_eq!(
        (of.topic.clone(), of.index, part.spread()),
        (id.to_string(), 2, None)
    );
    // It has one partition, and the whole topic none of its own.
    assert!(part.check_partition_count(1).is_ok() && part.check_partition_count(2).is_err());
    assert!(whole.check_partition_count(0).is_ok() && whole.check_partition_count(1).is_err());
    let changed = whole
        .altered(r#"{"metadata_bytes_max": 99, "retention": {"count": 7}}"#)
        .unwrap();
    let changes = changed.changes_to_part(id, 2);
    assert_eq!(part.altered(&changes).unwrap(), changed.of_part(id, 2));
}
