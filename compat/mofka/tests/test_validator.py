"""What may enter a topic: schemas, EventBridge patterns, components by name."""

from __future__ import annotations

from typing import Any

import pytest

from diaspora_stream.api import Driver, Exception as MofkaException, PartitionSelector, Serializer, Validator

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "number"}},
    "required": ["name"],
}


@pytest.mark.parametrize("kind", [Validator, PartitionSelector, Serializer])
def test_components_by_name(kind: Any) -> None:
    for made in (kind.from_metadata(), kind.from_metadata(type="default"), kind.from_metadata("default"),
                 kind.from_metadata({"type": "default"}), kind.from_metadata("default", {})):
        assert isinstance(made, kind) and made.type == "default"
    with pytest.raises(MofkaException, match="unknown"):
        kind.from_metadata(type="unknown")
    with pytest.raises(MofkaException):
        kind.from_metadata(17)


def test_a_schema_in_every_form() -> None:
    forms = [
        Validator.from_metadata(type="schema", schema=SCHEMA),
        Validator.from_metadata("schema", {"schema": SCHEMA}),
        Validator.from_metadata({"type": "schema", "schema": SCHEMA}),
        Validator.from_metadata(type="schema", metadata={"schema": SCHEMA}),
    ]
    assert all(form.as_dict() == {"type": "schema", "schema": SCHEMA} for form in forms)


def test_what_is_no_schema() -> None:
    for kind in ("schema", "eventbridge"):
        with pytest.raises(MofkaException, match="needs a schema"):
            Validator.from_metadata(type=kind)
        with pytest.raises(MofkaException):
            Validator.from_metadata(type=kind, schema="not-an-object")
    with pytest.raises(ValueError):
        Validator.from_metadata(type="schema", schema="not-an-object")


def test_a_schema_that_can_not_be_is_refused_when_the_topic_is_made(dialect, driver: Driver, name: str) -> None:
    with pytest.raises(MofkaException):
        driver.create_topic(name, Validator.from_metadata(type="schema", schema={"type": "fish"}))
    assert not driver.topic_exists(name)


@pytest.mark.parametrize("sugar", [False, True], ids=["validator", "schema"])
def test_metadata_that_does_not_match_is_refused_by_push(dialect, driver: Driver, name: str, storage: str, sugar: bool) -> None:
    given = {"schema": SCHEMA} if sugar else {"validator": Validator.from_metadata(type="schema", schema=SCHEMA)}
    topic = dialect.topic(driver, name, storage, **given)
    producer = dialect.producer(topic)
    for metadata in ({"name": "bob", "age": 7}, '{"name": "ann"}'):
        producer.push(metadata)
    for metadata in ({"age": 7}, {"name": 17}, '{"age": 7}', [1]):
        with pytest.raises(MofkaException):
            producer.push(metadata)
    dialect.flush(producer)
    events = dialect.take(dialect.consumer(topic, "c"), 2)
    assert [dialect.metadata(event)["name"] for event in events] == ["bob", "ann"]


@pytest.mark.parametrize(
    "schema, good, bad",
    [
        ({"items": [{"type": "integer"}, {"type": "string"}]}, [[1, "a"], [1, "a", None]], [["a"]]),
        ({"items": [{}, {}], "additionalItems": {"type": "null"}}, [[1, 2, None]], [[1, 2, 3]]),
        ({"items": [{}], "additionalItems": False}, [[1]], [[1, 2]]),
        ({"items": {"type": "integer"}}, [[1, 2]], [["a"]]),
        ({"dependencies": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
        ({"dependencies": {"a": {"required": ["c"]}}}, [{"a": 1, "c": 1}], [{"a": 1, "b": 1}]),
        ({"definitions": {"n": {"items": [{"type": "null"}]}}, "properties": {"x": {"$ref": "#/definitions/n", "minItems": 5}}},
         [{"x": [None]}], [{"x": [1]}]),
        ({"definitions": {"n": {"$id": "#n", "type": "null"}}, "anyOf": [{"$ref": "#n"}]}, [None], [1]),
    ],
)
def test_schemas_of_draft_7_mean_what_they_say(dialect, current: Driver, name: str, schema: dict, good: list, bad: list) -> None:
    topic = dialect.topic(current, name, validator=Validator.from_metadata(type="schema", schema=schema)) \
        if dialect.name != "legacy" else None
    if topic is None:
        current.create_topic(name, schema=schema, options={"num_partitions": 1, "config": {"type": "memory"}})
        topic = current.open_topic(name)
    producer = topic.producer()
    for metadata in good:
        producer.push(metadata).wait(60_000)
    for metadata in bad:
        with pytest.raises(MofkaException):
            producer.push(metadata)


MATCHES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"source": ["my.app", "other"]}, [{"source": "my.app"}, {"source": ["x", "other"]}], [{"source": "x"}, {}, {"source": []}]),
    ({"n": [None, 3, True]}, [{"n": None}, {"n": 3}, {"n": True}], [{"n": 4}, {"n": "3"}]),
    ({"s": [{"prefix": "a.c"}]}, [{"s": "a.cd"}], [{"s": "abc"}, {"s": "xa.c"}, {"s": 1}]),
    ({"s": [{"suffix": ".png"}]}, [{"s": "x.png"}], [{"s": "x.png.gz"}, {"s": "xpng"}]),
    ({"s": [{"prefix": {"equals-ignore-case": "eventB"}}]}, [{"s": "EVENTbridge"}], [{"s": "event"}]),
    ({"s": [{"equals-ignore-case": "Al[ice"}]}, [{"s": "aL[ICE"}], [{"s": "alice"}, {"s": "xAl[ice"}]),
    ({"s": [{"wildcard": "dir/*/*.png"}]}, [{"s": "dir/a/b.png"}, {"s": "dir//.png"}], [{"s": "dir/a.png"}, {"s": "dir/a/bxpng"}]),
    ({"s": [{"wildcard": "a\\*b*"}]}, [{"s": "a*bc"}], [{"s": "axb"}]),
    ({"n": [{"numeric": [">", 0, "<=", 5]}]}, [{"n": 5}, {"n": 0.1}], [{"n": 0}, {"n": 5.1}, {"n": "3"}]),
    ({"n": [{"numeric": ["=", 3.5]}]}, [{"n": 3.5}], [{"n": 3}]),
    ({"s": [{"anything-but": "x"}]}, [{"s": "y"}, {"s": 1}], [{"s": "x"}, {}]),
    ({"s": [{"anything-but": ["x", 3]}]}, [{"s": "y"}], [{"s": "x"}, {"s": 3}]),
    ({"s": [{"anything-but": {"prefix": ["in", "ex"]}}]}, [{"s": "out"}], [{"s": "init"}, {"s": "exit"}]),
    ({"s": [{"anything-but": {"wildcard": "*/lib/*"}}]}, [{"s": "/usr/bin"}], [{"s": "/usr/lib/x"}]),
    ({"s": [{"exists": True}]}, [{"s": None}], [{}]),
    ({"s": [{"exists": False}]}, [{}], [{"s": 1}]),
    ({"s": [{"exists": False}, "x"]}, [{}, {"s": "x"}], [{"s": "y"}]),
    ({"detail": {"state": ["on"], "n": [{"numeric": [">", 1]}]}}, [{"detail": {"state": "on", "n": 2}}],
     [{"detail": {"state": "on"}}, {"detail": "on"}, {}]),
    ({"detail.state": ["on"]}, [{"detail": {"state": "on"}}], [{"detail": {"state": "off"}}]),
    ({"$or": [{"a": ["x"]}, {"b": [{"prefix": "y"}]}], "c": [1]}, [{"a": "x", "c": 1}, {"b": "yes", "c": 1}],
     [{"a": "x"}, {"a": "z", "b": "z", "c": 1}]),
]


@pytest.mark.parametrize("pattern, good, bad", MATCHES)
def test_eventbridge_patterns(dialect, driver: Driver, name: str, pattern: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    topic = dialect.topic(driver, name, validator=Validator.from_metadata(type="eventbridge", schema=pattern))
    producer = dialect.producer(topic)
    for metadata in good:
        assert dialect.wait(producer.push(metadata)) is not None
    for metadata in bad:
        with pytest.raises(MofkaException):
            producer.push(metadata)
    assert driver.list_topics()[name]["validator"] == {"type": "eventbridge", "schema": pattern}


@pytest.mark.parametrize(
    "pattern",
    [{"s": [{"prefix": 1}]}, {"s": [{"numeric": [">"]}]}, {"s": [{"numeric": [">", "1"]}]},
     {"s": [{"numeric": ["~", 1]}]}, {"s": [{"exists": "yes"}]}, {"s": [{"sounds-like": "x"}]}, {"$or": {}},
     {"s": [{"prefix": "a", "suffix": "b"}]}, {"s": [{"prefix": {"wildcard": "x"}}]}],
)
def test_what_is_no_pattern(dialect, driver: Driver, name: str, pattern: Any) -> None:
    with pytest.raises(MofkaException, match="pattern"):
        driver.create_topic(name, Validator.from_metadata(type="eventbridge", schema=pattern))
    assert not driver.topic_exists(name)


def test_a_plugin_is_one_of_thalwegs(current: Driver, name: str) -> None:
    current.create_topic(
        name,
        validator=Validator.from_metadata(type="energy_validator:libenergy.so", energy_max=100),
        options={"num_partitions": 1, "config": {"type": "memory"}},
    )
    assert current.list_topics()[name]["validator"]["name"] == "energy_validator:libenergy.so"
    with pytest.raises(MofkaException, match="libenergy.so"):
        current.open_topic(name).producer()


def test_every_component_of_a_topic(dialect, driver: Driver, name: str, storage: str) -> None:
    topic = dialect.topic(
        driver, name, storage,
        validator=Validator.from_metadata(type="schema", schema={"type": "object"}),
        partition_selector=PartitionSelector.from_metadata(type="default"),
        serializer=Serializer.from_metadata(type="schema", schema={"type": "object", "properties": {"a": {"type": "integer"}}}),
    )
    for metadata in ({"a": 1}, {"a": 2, "more": [None]}):
        dialect.wait(dialect.producer(topic).push(metadata))
    events = dialect.take(dialect.consumer(topic, "c"), 2)
    assert [dialect.metadata(event) for event in events] == [{"a": 1}, {"a": 2, "more": [None]}]
    with pytest.raises(MofkaException, match="needs a schema"):
        Serializer.from_metadata(type="schema")
