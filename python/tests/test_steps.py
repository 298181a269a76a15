"""Steps: what ranks write is what ranks read, live and later, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Server

import thalweg
from thalweg import steps

_POINT = np.dtype([("x", "<f8"), ("m", "<f4", (2, 3)), ("inner", [("a", "<i2"), ("b", "S3")])])

DTYPES = [
    *("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"),
    *(">i2", ">i4", ">i8", ">u2", ">u4", ">u8"),
    *("<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "longdouble"),
    *("<c8", "<c16", ">c8", ">c16"),
    *("?", "S7", "<U5", ">U3", "V5", "<M8[ns]", "<m8[s]"),
]


def sample(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of any dtype, other bytes everywhere."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    numbers = (np.arange(count) * 7 + seed) % 100
    if kind.kind in "SU":
        return np.array([str(number) for number in numbers], kind).reshape(shape)
    if kind.kind == "V":
        raw = np.random.default_rng(seed).integers(1, 100, (count, kind.itemsize), np.uint8)
        return raw.reshape(-1).view(kind).reshape(shape)
    if kind.kind == "c":
        return (numbers - 1j * numbers).astype(kind).reshape(shape)
    return numbers.astype(kind).reshape(shape)


def one_step(driver: thalweg.Driver, name: str) -> steps.Step:
    reader = steps.Reader(driver, name, start="oldest")
    step = reader.next(60)
    assert step is not None
    return step


def same(got: Any, wanted: np.ndarray[Any, Any]) -> bool:
    return (
        got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()
    )


def test_arrays_of_every_type_come_back_as_they_were(driver: thalweg.Driver, name: str) -> None:
    arrays = {f"v{n}": sample((3, 4), dtype, n) for n, dtype in enumerate(DTYPES)}
    arrays["structure"] = sample((5,), _POINT)
    arrays["aligned"] = np.zeros(3, np.dtype([("a", "i1"), ("b", "<f8")], align=True))
    arrays["none"] = np.zeros((0, 4), "<f4")
    arrays["zero dimensions"] = np.array(2.5)
    with steps.Writer(driver, name) as writer, writer.step() as s:
        for variable, array in arrays.items():
            s.put(variable, array)
    step = one_step(driver, name)
    assert list(step) == list(arrays)
    for variable, array in arrays.items():
        assert step[variable].dtype == array.dtype and step[variable].shape == array.shape
        assert same(np.asarray(step[variable][...]), array), variable
        if array.ndim == 2 and array.size:
            assert same(step[variable][1:, ::2], np.ascontiguousarray(array[1:, ::2])), variable
    together = step.get_many(list(arrays))
    assert all(same(np.asarray(together[name]), array) for name, array in arrays.items())


def test_arrays_that_are_not_contiguous_are_copied_right(driver: thalweg.Driver, name: str) -> None:
    base = np.arange(6 * 8 * 4, dtype="<i4").reshape(6, 8, 4)
    views = {
        "transposed": base.T,
        "strided": base[::2, 1::3, ::-1],
        "fortran": np.asfortranarray(base),
        "field": sample((9,), _POINT)["x"],
        "broadcast": np.broadcast_to(np.arange(4, dtype="u1"), (5, 4)),
        "list": [[1, 2], [3, 4]],
    }
    with steps.Writer(driver, name) as writer, writer.step() as s:
        for variable, view in views.items():
            s.put(variable, view)
        changed = np.zeros(1000)
        s.put("copied", changed)
        changed[:] = 7
    step = one_step(driver, name)
    for variable, view in views.items():
        assert same(step[variable][...], np.array(view, order="C")), variable
    assert not step["copied"][...].any()


def test_selections_are_numpys(driver: thalweg.Driver, name: str) -> None:
    whole = sample((6, 7, 8), "<i4")
    with steps.Writer(driver, name) as writer, writer.step() as s:
        for row in range(6):
            s.put("E", whole[row : row + 1], shape=whole.shape, start=(row, 0, 0))
    variable = one_step(driver, name)["E"]
    for index in [
        ..., 2, -1, (1, 2, 3), np.s_[1:5], np.s_[..., 3], np.s_[:, 2:100:3], np.s_[-3:, ..., -2:],
        np.s_[5:1], (np.int64(3), slice(None)), np.s_[:, :, ::5],
    ]:  # fmt: skip
        got = variable[index]
        assert same(np.asarray(got), np.array(whole[index], order="C")), index
    assert len(variable) == 6 and variable.ndim == 3
    assert same(np.asarray(variable), whole)
    for index in [6, -7, (0, 0, 0, 0), (..., 0, ...), np.s_[::-1], [1, 2], None, True, 1.5]:
        with pytest.raises((IndexError, ValueError)):
            variable[index]  # type: ignore[index]


def test_results_are_read_into_the_callers_arrays(driver: thalweg.Driver, name: str) -> None:
    whole = sample((8, 10), "<f8")
    with steps.Writer(driver, name) as writer, writer.step() as s:
        s.put("E", whole)
        s.put("hole", np.ones(3), shape=10, start=4)
    step = one_step(driver, name)
    plain, wide, hole = np.zeros((2, 10)), np.zeros((8, 6)), np.full(10, 9.0)
    out = {"E": plain, "hole": hole}
    got = step.get_many({"E": np.s_[3:5], "hole": ...}, out=out)
    assert got["E"] is plain and (plain == whole[3:5]).all()
    assert hole.tolist() == [9] * 4 + [1] * 3 + [9] * 3
    assert step["hole"][...].tolist() == [0] * 4 + [1] * 3 + [0] * 3
    assert step["E"].read(np.s_[:, ::4], out=wide[:, ::2]) is not None
    assert (wide[:, ::2] == whole[:, ::4]).all() and not wide[:, 1::2].any()
    for bad in [np.zeros((2, 9)), np.zeros((2, 10), "<f4"), np.broadcast_to(0.0, (2, 10))]:
        with pytest.raises(thalweg.InvalidArgument):
            step["E"].read(np.s_[3:5], out=bad)
    with pytest.raises(thalweg.InvalidArgument):
        step.get_many({"E": ...}, out={"B": plain})
    with pytest.raises(KeyError):
        step.get_many(["B"])


def test_spans_are_filled_in_place_and_may_be_kept(driver: thalweg.Driver, name: str) -> None:
    kept = []
    with steps.Writer(driver, name) as writer:
        for number in range(4):
            with writer.step() as s:
                s.put("small", np.arange(3))
                array = s.span("E", (300, 500), "<f4")
                array[...] = number
                s.span("j", 5, ">i2", join=0)[:] = number
                assert s.span("none", (0, 3), "f8", join=0).shape == (0, 3)
            kept.append(array)
            array[...] = 99
    with steps.Reader(driver, name, start="oldest") as reader:
        for step in reader:
            assert (step["E"][...] == step.number).all()
            assert step["E"].min == step["E"].max == step.number
            assert step["j"][...].tolist() == [step.number] * 5
    assert all((array == 99).all() for array in kept)


def test_joined_local_and_empty_blocks_values_and_extremes(
    driver: thalweg.Driver, name: str
) -> None:
    def write(rank: int) -> None:
        with steps.Writer(driver, name, rank=rank, ranks=3) as writer, writer.step() as s:
            s.put("joined", np.full((2, rank), rank, "<i8"), join=-1)
            s.put("local", np.arange(rank + 1) + 10 * rank, local=True)
            s.value("rank", rank, local=True)
            s.value("word", f"w{rank}", local=True)
            s.value("dt", 0.5)
            s.value("title", "Ünï")
            s.put("empty", np.zeros((0, 3)), join=0)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    step = one_step(driver, name)
    assert step["joined"][...].tolist() == [[1, 2, 2]] * 2
    assert (step["joined"].min, step["joined"].max) == (1, 2)
    assert step["joined"].kind == "joined" and step["local"].kind == "local"
    blocks = step["local"].blocks
    assert [block[...].tolist() for block in blocks] == [[0], [10, 11], [20, 21, 22]]
    assert [block[-1] for block in blocks] == [0, 11, 22]
    assert [(block.rank, block.start, block.shape) for block in blocks][2] == (2, (0,), (3,))
    assert (blocks[1].min, blocks[1].max) == (10, 11)
    with pytest.raises(IndexError, match="blocks"):
        step["local"][...]
    assert step["rank"][...].tolist() == [0, 1, 2] and step["rank"][1] == 1
    assert step["word"][...].tolist() == ["w0", "w1", "w2"] and step["word"][2] == "w2"
    assert step["dt"][...] == 0.5 and step["dt"].shape == ()
    assert step["title"][...] == "Ünï"
    assert step["empty"].shape == (0, 3) and step["empty"][...].shape == (0, 3)
    assert step["empty"].min is None


def test_attributes_hold_from_the_step_on_in_which_they_are_set(
    driver: thalweg.Driver, name: str
) -> None:
    values = {
        "i": 3, "f": 0.25, "b": True, "s": "µ", "texts": ["a", ""], "numbers": np.arange(3, dtype=">i2"),
        "complex": 1j, "f4": np.float32(0.1), "empty": np.zeros(0),
    }  # fmt: skip
    with steps.Writer(driver, name) as writer:
        writer.attrs.update(values)
        for number in range(3):
            with writer.step(attrs={"time": number * 0.5}):
                pass
        assert writer.attrs["time"] == 1.0 and writer.attrs["texts"] == ["a", ""]
        with pytest.raises(thalweg.InvalidArgument):
            writer.attrs["x"] = {"a": 1}
        with pytest.raises(thalweg.InvalidArgument):
            writer.step(attrs={"x": object()})
    for step in steps.Reader(driver, name, start="oldest"):
        assert step.attrs["time"] == step.number * 0.5
        for key, value in values.items():
            got = step.attrs[key]
            assert type(got) is type(value) and np.array_equal(got, value), key


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (3, 2), (2, 5)])
def test_ranks_write_and_others_read_live_and_replay(
    driver: thalweg.Driver, name: str, writers: int, readers: int
) -> None:
    rng = np.random.default_rng(writers)
    fields = rng.random((5, 12, 9))
    cuts = np.linspace(0, 12, writers + 1).astype(int)

    def write(rank: int) -> None:
        rows = slice(cuts[rank], cuts[rank + 1])
        with steps.Writer(driver, name, rank=rank, ranks=writers, partitions=2) as writer:
            for number, field in enumerate(fields):
                with writer.step({"time": number * 0.1}) as s:
                    s.put("E", field[rows], shape=field.shape, start=(rows.start, 0))

    def read(rank: int, ranks: int, label: str) -> list[np.ndarray[Any, Any]]:
        columns = np.array_split(np.arange(9), ranks)[rank]
        box = np.s_[:, columns[0] : columns[-1] + 1]
        with steps.Reader(driver, name, name=label, rank=rank, ranks=ranks) as reader:
            found = [(step.number, step.attrs["time"], step["E"][box]) for step in reader]
        assert [(n, t) for n, t, _ in found] == [(n, n * 0.1) for n in range(5)]
        return [array for _, _, array in found]

    def together(ranks: int, label: str) -> list[np.ndarray[Any, Any]]:
        with ThreadPoolExecutor(ranks) as pool:
            parts = list(pool.map(read, range(ranks), [ranks] * ranks, [label] * ranks))
        return [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]

    # The stream is made, so that a reader finds it.
    with ThreadPoolExecutor(writers + 1) as pool:
        written = [pool.submit(write, rank) for rank in range(writers)]
        while not driver.topic_exists(name):
            pass
        live = pool.submit(together, readers, "live")
        for future in written:
            future.result(100)
        assert np.array_equal(live.result(100), fields)
    assert np.array_equal(together(readers + 1, "replay"), fields)


def test_an_exception_in_a_step_drops_what_was_put(driver: thalweg.Driver, name: str) -> None:
    with steps.Writer(driver, name) as writer:
        with pytest.raises(ZeroDivisionError), writer.step({"bad": 1}) as s:
            s.put("E", np.ones(3))
            1 / 0  # noqa: B018
        with writer.step() as s:
            assert s.number == 0
            s.put("B", np.ones(3))
            with pytest.raises(thalweg.InvalidArgument):
                s.put("B", np.ones(3, "i4"))
            with pytest.raises(thalweg.InvalidArgument):
                s.put("C", np.ones(3), shape=3, start=1)
            with pytest.raises(thalweg.InvalidArgument):
                s.put("C", np.array([object()]))
        with pytest.raises(thalweg.InvalidArgument):
            s.put("B", np.ones(3))
    step = one_step(driver, name)
    assert list(step) == ["B"] and "bad" not in step.attrs


def test_a_writer_left_by_an_exception_breaks_its_run(driver: thalweg.Driver, name: str) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        steps.Writer(driver, name, session_timeout=0.2) as writer,
    ):
        with writer.step(wait="committed") as s:
            s.put("E", np.ones(3))
        1 / 0  # noqa: B018
    assert writer.closed
    with steps.Reader(driver, name, start="oldest") as reader:
        assert next(reader)["E"][...].sum() == 3
        with pytest.raises(thalweg.RunBroken) as raised:
            next(reader)
        assert raised.value.run == writer.run
        with pytest.raises(thalweg.Timeout):
            reader.next(0.01)
    (run,) = steps.runs(driver, name)
    assert (run.state, run.count, run.first, run.last, run.ranks) == ("broken", 1, 0, 0, 1)
    assert run.reason is not None and run.nbytes >= 24


KILLED = """
import sys, numpy, thalweg
from thalweg import steps
with thalweg.Driver(sys.argv[1], connect_timeout=60) as driver:
    writer = steps.Writer(driver, "s", rank=int(sys.argv[2]), ranks=2, session_timeout=0.5)
    while True:
        with writer.step() as s:
            s.put("E", numpy.full(10_000, s.number), join=0)
        print(s.number, flush=True)
        if s.number == 4:
            sys.stdin.read()
"""


def test_a_killed_writer_breaks_the_run_after_its_whole_steps(server: Server) -> None:
    with server.connect() as driver:
        command = [sys.executable, "-c", KILLED, server.group_file]
        pipe = subprocess.PIPE
        ranks = [
            subprocess.Popen([*command, str(rank)], stdin=pipe, stdout=pipe, text=True)
            for rank in range(2)
        ]
        try:
            for rank in ranks:
                assert rank.stdout is not None
                assert [int(rank.stdout.readline()) for _ in range(5)] == list(range(5))
            ranks[1].kill()
            found = []
            with (
                pytest.raises(thalweg.RunBroken, match="rank 1|1"),
                steps.Reader(driver, "s") as reader,
            ):
                for step in reader:
                    assert (step["E"][...] == step.number).all()
                    assert step["E"].shape == (20_000,)
                    found.append(step.number)
            assert found == list(range(5))
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()


def test_a_step_is_given_again_whose_reader_failed(driver: thalweg.Driver, name: str) -> None:
    with steps.Writer(driver, name) as writer:
        for number in range(4):
            with writer.step() as s:
                s.value("n", number)
    with pytest.raises(ZeroDivisionError), steps.Reader(driver, name, name="r") as reader:
        for step in reader:
            if step.number == 1:
                del step
                1 / 0  # noqa: B018
    with steps.Reader(driver, name, name="r") as reader:
        assert next(reader).number == 1
        assert next(reader).number == 2
        position = reader.position
    with steps.Reader(driver, name, name="r") as reader:
        assert next(reader).number == 3
        assert reader.next() is None
    reader = steps.Reader(driver, name, name="early", start="oldest")
    early = next(reader)
    early.release()
    step = next(reader)
    early.release()
    reader.close(release=False)
    step.release()
    with steps.Reader(driver, name, name="early") as reader:
        assert [step.number for step in reader] == [1, 2, 3]
    with steps.Reader(driver, name, name="other", start=position) as reader:
        assert next(reader).number == 3
        next(reader, None)


def test_starts_and_latest(driver: thalweg.Driver, name: str) -> None:
    for _ in range(2):
        with steps.Writer(driver, name) as writer:
            for number in range(3):
                with writer.step() as s:
                    s.value("n", number)

    def first(**options: Any) -> tuple[int, int, int]:
        with steps.Reader(driver, name, name=f"r{next(_numbers)}", **options) as reader:
            step = next(reader)
            return step.run, step.number, step.skipped

    one, two = (run.number for run in steps.runs(driver, name))
    assert first(start="oldest") == (one, 0, 0)
    assert first(start=("run", two)) == (two, 0, 0)
    assert first(start="newest")[:2] == (two, 2)
    run, number, skipped = first(start="oldest", latest=True)
    assert number == 2 and skipped > 0
    with pytest.raises(thalweg.InvalidArgument):
        first(start="yesterday")
    with pytest.raises(thalweg.UnknownTopic):
        steps.Reader(driver, f"{name}-not-there")
    with pytest.raises(thalweg.Timeout), steps.Reader(driver, name, start="next") as reader:
        reader.next(0.01)


_numbers = itertools.count()


def test_runs_follow_one_another_for_a_reader(driver: thalweg.Driver, name: str) -> None:
    for _ in range(2):
        with steps.Writer(driver, name) as writer, writer.step() as s:
            s.value("n", 1)
    with steps.Reader(driver, name) as reader:
        found = [[step.run for step in reader] for _ in range(2)]
    assert found == [[run.number] for run in steps.runs(driver, name)]


def test_a_queue_that_is_full_discards_steps(driver: thalweg.Driver, name: str) -> None:
    options: dict[str, Any] = {"queue": 1, "when_full": "discard", "storage": "memory"}
    steps.Writer(driver, name, writer="first").close()
    with (
        steps.Reader(driver, name, start="next") as reader,
        steps.Writer(driver, name, **options) as writer,
    ):
        ended = []
        for number in range(3):
            with writer.step({"number": number}, wait="committed") as s:
                s.value("n", number)
            ended.append(s.ended.discarded is None)
        assert ended == [True, False, False]
        assert next(reader).number == 0
        reader.close()
    with pytest.raises(thalweg.InvalidArgument):
        steps.Writer(driver, name, queue=0)


def test_a_step_that_has_no_room_in_time_is_not_lost(driver: thalweg.Driver, name: str) -> None:
    steps.Writer(driver, name).close()
    with steps.Reader(driver, name, start="next") as reader:
        writer = steps.Writer(driver, name, queue=1, timeout=0.2)

        def committed() -> steps.StepEnded:
            # The deadline is for calls that must not be answered.
            while True:
                with contextlib.suppress(thalweg.Timeout):
                    return writer.wait(60)

        with contextlib.suppress(thalweg.Timeout), writer.step() as s:
            s.value("n", 0)
        assert committed() == steps.StepEnded(0, None)
        with pytest.raises(thalweg.Timeout), writer.step() as s:
            s.value("n", 1)
        with pytest.raises(thalweg.InvalidArgument), writer.step():
            pass
        next(reader).release()
        assert committed() == steps.StepEnded(1, None)
        writer.close(60)
        assert next(reader)["n"][...] == 1


def test_a_reader_is_closed_by_another_thread(driver: thalweg.Driver, name: str) -> None:
    steps.Writer(driver, name).close()
    reader = steps.Reader(driver, name, start="next")
    found: list[steps.Step] = []
    thread = threading.Thread(target=lambda: found.extend(reader))
    thread.start()
    reader.close()
    thread.join()
    assert reader.closed and found == [] and list(reader) == []
    waiting = steps.Reader(driver, name, name="main", start="next")
    threading.Timer(0.05, waiting.close).start()
    assert list(waiting) == []


def test_wrong_arguments_are_refused(driver: thalweg.Driver, topic: thalweg.Topic) -> None:
    with pytest.raises(thalweg.InvalidArgument):
        steps.Writer(topic)
    with pytest.raises(thalweg.InvalidArgument):
        steps.Writer(driver)
    with pytest.raises(thalweg.InvalidArgument):
        steps.Reader("s", "s")  # type: ignore[arg-type]
    with pytest.raises(thalweg.InvalidArgument):
        steps.Writer(driver, "wrong", rank=2, ranks=2)


def test_a_topic_of_steps_is_a_stream(driver: thalweg.Driver, name: str) -> None:
    steps.Writer(driver, name).close()
    topic = driver.open_topic(name)
    with steps.Writer(topic) as writer, writer.step() as s:
        s.put("E", np.arange(3))
    with steps.Reader(topic) as reader:
        assert [len(list(reader)) for _ in range(2)] == [0, 1]


def test_readers_begin_before_a_writer_of_a_stream_that_is_made(
    driver: thalweg.Driver, name: str
) -> None:
    for _ in range(2):
        steps.create_stream(driver, name, partitions=2, retention={"count": 2})
    # One is for records, two for what is pinned.
    assert len(driver.open_topic(name).partitions) == 5
    with steps.Reader(driver, name) as reader, steps.Writer(driver, name, readers=1) as writer:
        with writer.step() as s:
            s.put("E", np.arange(3))
        assert next(reader)["E"][1] == 1
    driver.create_topic(f"{name}-events", storage="memory")
    with pytest.raises(thalweg.InvalidArgument, match="no steps"):
        steps.create_stream(driver, f"{name}-events")


def test_a_pinned_step_stays_and_is_given_first(driver: thalweg.Driver, name: str) -> None:
    steps.create_stream(driver, name, retention={"count": 2})
    with steps.Writer(driver, name) as writer:
        for number in range(10):
            with writer.step(wait="committed", pin=number == 3) as s:
                s.put("E", np.full(4, number))
        with steps.Reader(driver, name, start="oldest") as reader:
            first, second = next(reader), next(reader)
            assert (first.number, first["E"][0], first.lost) == (3, 3, 0)
            assert second.number > 4
            assert second.lost > 0
        assert steps.open_run(driver, name).step(3)["E"][1] == 3


def test_a_server_that_is_killed_between_steps_is_no_matter(server: Server) -> None:
    with server.connect() as driver:
        with (
            steps.Writer(driver, "s", durability="synced") as writer,
            steps.Reader(driver, "s") as reader,
        ):
            for number in range(6):
                if number in (2, 4):
                    server.kill()
                    server.start()
                with writer.step() as s:
                    s.put("E", np.full(1000, number))
                assert (next(reader)["E"][...] == number).all()


INTERRUPTED = {
    "next": "reader = steps.Reader(driver, 's'); wait_in(next, reader)",
    "committed": """
with writer.step() as s: pass
wait_in(writer.wait)
""",
    "interrupted and again": """
try:
    threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
    with writer.step(wait='committed') as s: pass
except KeyboardInterrupt:
    other = steps.Writer(driver, 's', rank=1, ranks=2, writer='two')
    with other.step() as s: pass
    writer.wait()
    with writer.step() as s: pass
    wait_in(writer.wait)
""",
    "no room, and again": """
full = steps.Writer(driver, 'full', queue=1)
reader = steps.Reader(driver, 'full')
with full.step() as s: pass
assert next(reader).number == 0
try:
    threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
    with full.step() as s: pass
except KeyboardInterrupt:
    # At once, though there is no room yet.
    assert full.next_step == 1
    reader.close()
    assert full.wait().number == 1
    with writer.step() as s: pass
    wait_in(writer.wait)
""",
    "third step": """
def write():
    for _ in range(3):
        with writer.step() as s: pass
wait_in(write)
""",
    "close": "pause(); wait_in(writer.close)",
    "get": """
alone = steps.Writer(driver, 'alone')
with alone.step(wait='committed') as s:
    s.put('E', numpy.zeros(1 << 20))
step = next(steps.Reader(driver, 'alone'))
pause()
wait_in(step['E'].read)
""",
}


@pytest.mark.parametrize("wait", INTERRUPTED)
def test_ctrl_c_ends_a_wait(
    wait: str, server: Server, run_script: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    from test_interrupt import PRELUDE

    begin = """
from thalweg import steps
driver = thalweg.Driver(group_file, connect_timeout=60)
writer = steps.Writer(driver, 's', ranks=2, writer='two')
"""
    done = run_script(PRELUDE + begin + INTERRUPTED[wait], server.group_file, server.pid)
    assert done.stdout == "interrupted\n", done.stderr


def test_a_step_that_came_for_an_interrupted_call_is_given_to_the_next(
    driver: thalweg.Driver, name: str
) -> None:
    def raising(*_: Any) -> None:
        raise InterruptedError

    with steps.Writer(driver, name) as writer:
        reader = steps.Reader(driver, name)
        before = signal.signal(signal.SIGUSR1, raising)
        try:
            for number in range(5):
                main = threading.get_ident()
                timer = threading.Timer(0.02, signal.pthread_kill, [main, signal.SIGUSR1])
                timer.start()
                with pytest.raises(InterruptedError):
                    reader.next(60)
                timer.join()
                with writer.step() as s:
                    s.value("n", number)
                step = reader.next(60)
                assert step is not None and step["n"][...] == number
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_while_one_waits(driver: thalweg.Driver, name: str) -> None:
    steps.Writer(driver, name).close()
    reader = steps.Reader(driver, name)
    assert reader.next(60) is None
    got: list[steps.Step | None] = []
    thread = threading.Thread(target=lambda: got.append(reader.next(60)))
    thread.start()
    with steps.Writer(driver, name) as writer, writer.step() as s:
        s.put("E", np.arange(4))
    thread.join()
    assert got[0] is not None and got[0]["E"][...].tolist() == [0, 1, 2, 3]


def test_a_step_as_a_dataset(driver: thalweg.Driver, name: str) -> None:
    pytest.importorskip("xarray")
    whole = sample((6, 8), "<f8")
    with steps.Writer(driver, name) as writer:
        writer.attrs["E/_ARRAY_DIMENSIONS"] = ["y", "x"]
        writer.attrs["E/unit"] = "V/m"
        for number in range(4):
            with writer.step({"time": number * 0.1}) as s:
                s.put("E", whole + number)
                s.put("l", np.arange(3), local=True)
                s.put("p", np.arange(number), join=0)
                s.value("title", "t")
                s.value("n", number)
    step = one_step(driver, name)
    dataset = step.to_xarray()
    assert dataset.E.dims == ("y", "x") and dataset.E.attrs == {"unit": "V/m"}
    assert dataset.attrs["time"] == 0.0 and set(dataset) == {"E", "p", "title", "n"}
    assert np.array_equal(dataset.E[1:3, ::-2], whole[1:3, ::-2])
    assert np.array_equal(dataset.E.isel(x=[5, 1]), whole[:, [5, 1]])
    assert dataset.title.item() == "t"
    run = steps.open_dataset(driver, name)
    assert run.E.dims == ("step", "y", "x") and run.step.values.tolist() == [0, 1, 2, 3]
    assert np.array_equal(run.E[1:3, 2], np.stack([whole[2] + 1, whole[2] + 2]))
    assert run.n.values.tolist() == [0, 1, 2, 3] and "p" not in run
    assert float(run.E.sel(step=3)[0, 0]) == whole[0, 0] + 3
    with pytest.raises(thalweg.OutOfRange):
        steps.open_dataset(driver, name, run=-2)


def _blocks(driver: thalweg.Driver, name: str) -> None:
    """Three steps of a field of four blocks, and of one that has a hole."""

    def write(rank: int) -> None:
        with steps.Writer(driver, name, rank=rank, ranks=2) as writer:
            for number in range(3):
                with writer.step(attrs={"E/_ARRAY_DIMENSIONS": ["y", "x"]}) as s:
                    for half in range(2):
                        block = np.full((2, 3), 100 * number + 10 * rank + half)
                        s.put("E", block, shape=(4, 6), start=(2 * rank, 3 * half))
                    s.put("ragged", np.arange(rank + 1), shape=7, start=4 * rank)
                    s.value("t", float(number))

    with ThreadPoolExecutor() as ranks:
        list(ranks.map(write, range(2)))


def test_the_chunks_of_a_dataset_are_the_blocks_that_were_written(
    driver: thalweg.Driver, name: str
) -> None:
    pytest.importorskip("xarray")
    dask = pytest.importorskip("dask")
    _blocks(driver, name)
    plain = steps.open_dataset(driver, name)
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            lazy = steps.open_dataset(driver, name, chunks={})
            assert lazy.E.chunks == ((1, 1, 1), (2, 2), (3, 3))
            assert lazy.t.chunks == ((1, 1, 1),)
            assert lazy.identical(plain) and lazy.load().identical(plain)
    lazy = steps.open_dataset(driver, name, chunks={"step": 2, "x": -1})
    assert lazy.E.chunks == ((2, 1), (2, 2), (6,))
    assert float(lazy.E.sum()) == float(plain.E.sum())
    assert lazy.E[1:, 1, ::-2].compute().identical(plain.E[1:, 1, ::-2].compute())
    # A task may go to another process.
    again = pickle.loads(pickle.dumps(lazy.E))
    assert again.compute(scheduler="synchronous").equals(plain.E)
    with pytest.raises(thalweg.InvalidArgument, match="'z'"):
        steps.open_dataset(driver, name, chunks={"z": 1})


def test_a_stored_run_and_a_driver_may_be_pickled(driver: thalweg.Driver, name: str) -> None:
    _blocks(driver, name)
    stored = pickle.loads(pickle.dumps(steps.open_run(driver, name)))
    assert [int(step["E"][0, 0]) for step in stored] == [0, 100, 200]
    other = pickle.loads(pickle.dumps(driver))
    assert steps.runs(other, name)[0].count == 3
    with steps.Reader(other, name) as reader, steps.Writer(other, f"{name}-2") as writer:
        assert next(reader)["t"][...] == 0.0
        steps.create_stream(other, f"{name}-2")
        assert writer.next_step == 0


def test_the_steps_of_a_run_are_read_in_any_order(driver: thalweg.Driver, name: str) -> None:
    with pytest.raises(thalweg.UnknownTopic):
        steps.open_run(driver, name)
    with steps.Writer(driver, name) as writer:
        for number in range(4):
            with writer.step(wait="committed") as s:
                s.put("E", np.full(3, number))
        # Also while it is written.
        stored = steps.open_run(driver, name)
    assert (stored.number, stored.numbers, len(stored)) == (writer.run, [0, 1, 2, 3], 4)
    assert [int(step["E"][0]) for step in stored] == [0, 1, 2, 3]
    assert [stored[-1].number, stored.step(2).number] == [3, 2]
    assert [step.number for step in stored[::-2]] == [3, 1]
    with pytest.raises(IndexError):
        stored[4]
    with pytest.raises(thalweg.OutOfRange):
        stored.step(4)
    with pytest.raises(thalweg.OutOfRange, match="no run 7"):
        steps.open_run(driver, name, run=7)


def test_a_child_after_fork_is_told(driver: thalweg.Driver, name: str, tmp_path: Path) -> None:
    import os

    writer = steps.Writer(driver, name, session_timeout=0.1)
    reader = steps.Reader(driver, name, session_timeout=0.1)
    child = os.fork()
    if child == 0:
        try:
            writer.step().__enter__()
        except thalweg.Forked:
            # What it lets go of is the parent's.
            del writer, reader
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(thalweg.Timeout):
        reader.next(0.3)
    with writer, writer.step() as s:
        s.value("n", 1)
    with reader:
        assert [step["n"][...] for step in reader] == [1]


def test_closing_waits_for_the_readers_of_a_stream_in_memory(
    driver: thalweg.Driver, name: str
) -> None:
    steps.create_stream(driver, name, storage="memory")
    steps.create_stream(driver, f"{name}-disk")
    reader = steps.Reader(driver, name, name="slow")
    on_disk = steps.Reader(driver, f"{name}-disk", name="slow")
    with steps.Writer(driver, f"{name}-disk") as kept:
        with kept.step(wait="committed") as s:
            s.value("n", 1)
        step = on_disk.next(60)
        assert kept.close() is None and step is not None
    with pytest.warns(RuntimeWarning, match='"slow" have not released step 0 of run 1'):  # noqa: SIM117
        with steps.Writer(driver, name, close_timeout=0.1) as writer:
            with writer.step() as s:
                s.value("n", 1)
    assert writer.closed and writer.close() is None
    with ThreadPoolExecutor(1) as pool, steps.Writer(driver, name) as writer:
        with writer.step() as s:
            s.value("n", 2)
        closing = pool.submit(writer.close)
        found = [step.number for step in reader] + [step.number for step in reader]
        assert found == [0, 0] and closing.result(100) is None
    reader.close()
    on_disk.close()
