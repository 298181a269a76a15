"""Bounded reads as tables and labelled arrays."""

from __future__ import annotations

import numpy as np
import pytest
import thalweg

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
xr = pytest.importorskip("xarray")


def test_events_are_rows_and_what_one_lacks_is_missing(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"angle": 0.5, "sensor": {"id": 7}})
        producer.push({"angle": 1.5, "note": "late"}, key=b"k", time=17)
        producer.push(None)
    frame = topic.read().to_pandas()
    assert list(frame.columns) == [
        "angle",
        "sensor.id",
        "note",
        "_partition",
        "_offset",
        "_append_time",
        "_time",
        "_key",
    ]
    assert frame["angle"].tolist()[:2] == [0.5, 1.5] and np.isnan(frame["angle"][2])
    assert frame["note"][1] == "late" and frame["_offset"].tolist() == [0, 1, 2]
    assert str(frame["_append_time"].dt.tz) == "UTC" and frame["_time"].isna().tolist() == [
        True,
        False,
        True,
    ]
    assert frame["_time"][1].value == 17

    table = topic.read().to_arrow()
    assert table["angle"].to_pylist() == [0.5, 1.5, None]
    assert table["sensor"].to_pylist() == [{"id": 7}, None, None]
    assert table.schema.field("_offset").type == pa.uint64()
    assert table.schema.field("_append_time").type == pa.timestamp("ns", "UTC")
    assert table["_append_time"].combine_chunks().cast(pa.int64()).to_pylist() == [
        event.append_time for event in topic.read()
    ]


def test_a_topic_without_events_is_a_table_without_rows(topic: thalweg.Topic) -> None:
    assert len(topic.read().to_pandas()) == 0
    assert topic.read().to_arrow().num_rows == 0
    assert topic.read().to_xarray().sizes["event"] == 0


def test_arrays_are_one_variable_with_their_metadata_along_it(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        for number in range(4):
            producer.push_array(
                np.full((2, 3), number, dtype="u2"), angle=number / 2, tag=f"t{number}"
            )
    data = topic.read(start=1).to_xarray()
    assert data["data"].dims == ("event", "dim_0", "dim_1") and data["data"].dtype == np.uint16
    assert data["data"].values[:, 0, 0].tolist() == [1, 2, 3]
    assert data["angle"].values.tolist() == [0.5, 1.0, 1.5]
    assert data["tag"].values.tolist() == ["t1", "t2", "t3"]
    assert data["_offset"].values.tolist() == [1, 2, 3]
    assert float(data["data"].mean("event")[0, 0]) == 2.0
    assert "shape" not in data.coords

    frame = topic.read().to_pandas()
    assert frame["_data"][3].shape == (2, 3) and frame["_data"][3][0, 0] == 3
    # Where the data stays, nothing of it is in the table.
    assert "_data" not in topic.read(data=False).to_pandas()
    assert topic.read(data=False).to_arrow().column_names.count("_data") == 0
    assert topic.read().to_arrow()["_data"][3].as_py() == np.full((2, 3), 3, dtype="u2").tobytes()


def test_metadata_that_is_no_object_is_a_column_of_its_own(
    driver: thalweg.Driver, name: str
) -> None:
    topic = driver.create_topic(name, serializer="raw")
    with topic.producer() as producer:
        producer.push(b"\x00\x01")
        producer.push([1, 2])
    assert topic.read().to_pandas()["_metadata"][0] == b"\x00\x01"


def test_what_makes_no_table_says_which_event_and_field(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"a": 1})
        producer.push({"a": "one"})
    with pytest.raises(thalweg.InvalidArgument, match="field 'a'.*to_pandas"):
        topic.read().to_arrow()
    assert topic.read().to_pandas()["a"].tolist() == [1, "one"]
    with topic.producer() as producer:
        producer.push_array(np.eye(2))
        producer.push_array(np.eye(3))
    with pytest.raises(thalweg.InvalidArgument, match=r"\(3, 3\)"):
        topic.read(start=2).to_xarray()
    with pytest.raises(thalweg.InvalidArgument, match="has no array"):
        topic.read(end=3).to_xarray()
    with topic.producer() as producer:
        producer.push({"_offset": 3})
    with pytest.raises(thalweg.InvalidArgument, match="_offset"):
        topic.read(start=-1).to_pandas()


def test_no_value_is_changed_moved_or_lost(topic: thalweg.Topic) -> None:
    large = 1732000000123456789
    with topic.producer() as producer:
        producer.push({"t": large, "few": 3})
        producer.push({})
    assert topic.read().to_pandas()["t"][0] == large
    assert topic.read().to_xarray()["t"].values[0] == large
    assert topic.read().to_xarray()["few"].values[0] == 3.0
    with topic.producer() as producer:
        producer.push({"a.b": 1, "a": {"b": 2}})
    with pytest.raises(thalweg.InvalidArgument, match="'a.b' twice"):
        topic.read().to_pandas()
    for name in ("event", "data"):
        with topic.producer() as producer:
            producer.push({name: 7})
        assert topic.read(start=-1).to_pandas()[name][0] == 7
        with pytest.raises(thalweg.InvalidArgument, match=f"'{name}'"):
            topic.read(start=-1).to_xarray()


def test_data_in_another_form_than_its_metadata_says_is_bytes(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"dtype": "<u2", "shape": [4, 4], "compressed": True}, b"xyz")
        producer.push_array(np.eye(2))
    frame = topic.read().to_pandas()
    assert frame["_data"][0] == b"xyz" and frame["_data"][1].shape == (2, 2)
