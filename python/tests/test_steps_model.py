"""Steps against a model in numpy: what ranks wrote at random is what any number of ranks reads, live and later.

`THALWEG_STEPS_SEEDS=500` tries so many cases, from `THALWEG_SEED` on; a failure says which one it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest

import thalweg
from thalweg import _steps, steps

Array: TypeAlias = np.ndarray[Any, Any]

FIRST = int(os.environ.get("THALWEG_SEED", "0"))
COUNT = int(os.environ.get("THALWEG_STEPS_SEEDS", "40"))
# Cases in which a planted fault has to be found.
FAULTY = range(5)

DTYPES = ["u1", "<i2", ">i4", "<u8", "<f2", "<f4", ">f8", "<c16", "?", "S3", "<U2", "<M8[s]", "V3"]
ORDERED = "iufbM"
DIMENSIONS_MAX = 4


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """An array of any dtype, with what is no number in some."""
    kind = np.dtype(dtype)
    numbers = rng.integers(0, 100, shape)
    if kind.kind in "SU":
        return np.array(np.array(numbers, str), kind)
    if kind.kind == "V":
        return rng.integers(0, 255, (*shape, kind.itemsize), np.uint8).view(kind).reshape(shape)
    array = np.array(numbers - 50 if kind.kind in "ifc" else numbers, kind)
    if kind.kind in "fM" and rng.random() < 0.3:
        array[rng.random(shape) < rng.choice([0.3, 1])] = "nat" if kind.kind == "M" else np.nan
    return array


# What is written.


@dataclass
class Put:
    """A block as a rank puts it."""

    rank: int
    array: Array
    start: tuple[int, ...]
    knows_extremes: bool


@dataclass
class Variable:
    """A variable of one step, and what all of its blocks make."""

    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    joined: int = 0
    puts: list[Put] = field(default_factory=list)
    """In the order of ranks, and of a rank's puts."""
    values: dict[int, Array] = field(default_factory=dict)
    """By rank, without dimensions; text is of Python's objects."""

    def whole(self) -> tuple[Array, Array]:
        """The array, and which of its elements somebody has put."""
        if self.kind in ("value", "local value"):
            of_ranks = [self.values[rank] for rank in sorted(self.values)]
            values = np.stack(of_ranks) if self.kind == "local value" else of_ranks[0]
            values = values.astype(object if self.dtype == "str" else self.dtype)
            return values, np.ones(values.shape, bool)
        if self.kind == "joined":
            array = np.concatenate([put.array for put in self.puts], self.joined)
            return array.astype(self.dtype), np.ones(array.shape, bool)
        array, is_there = np.zeros(self.shape, self.dtype), np.zeros(self.shape, bool)
        for put in self.puts:
            box = tuple(map(slice, put.start, np.add(put.start, put.array.shape)))
            array[box], is_there[box] = put.array, True
        return array, is_there

    def extremes(self) -> tuple[Any, Any]:
        """The least and the greatest element of all blocks, or None if that is not known."""
        for rank in {put.rank for put in self.puts}:
            of_rank = [put for put in self.puts if put.rank == rank]
            known = all(put.knows_extremes or not put.array.size for put in of_rank)
            if not known or not any(put.knows_extremes for put in of_rank):
                return None, None
        return least_and_greatest(np.concatenate([put.array.reshape(-1) for put in self.puts]))


def least_and_greatest(array: Array) -> tuple[Any, Any]:
    """What is no number, or no time, counts if there is nothing else."""
    if not array.size or array.dtype.kind not in ORDERED:
        return None, None
    return np.fmin.reduce(array.reshape(-1)), np.fmax.reduce(array.reshape(-1))


@dataclass
class Model:
    """All that is written and read in one case."""

    seed: int
    writers: int
    readers: int
    replayers: int
    partitions: int
    steps: list[dict[str, Variable]]
    attributes: list[dict[int, dict[str, Any]]]
    """What each rank sets in each step."""

    @classmethod
    def of(cls, seed: int) -> Model:
        rng = np.random.default_rng(seed)
        writers, readers, replayers = rng.integers(1, 6, 3).tolist()
        model = cls(seed, writers, readers, replayers, int(rng.integers(1, 4)), [], [])
        kinds = ["array"] * 4 + ["joined", "joined", "local", "value", "local value"]
        variables = {}
        for index in range(int(rng.integers(1, 8))):
            kind = str(rng.choice(kinds))
            names = [*DTYPES, "str"] if kind.endswith("value") else DTYPES
            least = 1 if kind == "joined" else 0
            dimensions = int(rng.integers(least, DIMENSIONS_MAX + 1))
            variables[f"v{index}"] = kind, str(rng.choice(names)), dimensions
        for _ in range(int(rng.integers(2, 6))):
            is_empty = rng.random() < 0.15
            step = {}
            for name, (kind, dtype, dimensions) in variables.items():
                variable = cls.variable(rng, writers, kind, dtype, dimensions)
                if not is_empty and (variable.puts or variable.values):
                    step[name] = variable
            model.steps.append(step)
            ranks = [rank for rank in range(writers) if rng.random() < 0.4]
            sets = {rank: {f"a{rng.integers(3)}": int(rng.integers(5))} for rank in ranks}
            model.attributes.append(sets)
        return model

    @staticmethod
    def variable(
        rng: np.random.Generator, writers: int, kind: str, dtype: str, dimensions: int
    ) -> Variable:
        """One step of a variable; without puts and values if no rank has it."""
        variable = Variable(kind, dtype)
        if kind.endswith("value"):
            for rank in np.flatnonzero(rng.random(writers) < 0.7).tolist():
                text = np.array("µ" * int(rng.integers(4)) + str(rank), object)
                variable.values[rank] = text if dtype == "str" else drawn(rng, (), dtype)
            return variable
        shape = tuple(rng.integers(0, 8, dimensions).tolist())
        if kind == "array":
            variable.shape = shape
            boxes = divided(rng, [slice(0, length) for length in shape], int(rng.integers(1, 9)))
            if rng.random() < 0.3:
                # One that lies over others.
                cuts = [sorted(rng.integers(0, length + 1, 2).tolist()) for length in shape]
                boxes.append([slice(*cut) for cut in cuts])
            boxes = [box for box in boxes if rng.random() < 0.9]
        else:
            boxes = [[slice(0, length) for length in shape] for _ in range(int(rng.integers(0, 8)))]
            variable.joined = int(rng.integers(0, max(dimensions, 1)))
        # Some ranks have nothing.
        able = rng.integers(0, writers, int(rng.integers(1, writers + 1)))
        all_know = rng.random() < 0.7
        for box, rank in zip(boxes, np.sort(rng.choice(able, len(boxes))).tolist(), strict=True):
            lengths = [along.stop - along.start for along in box]
            if kind == "joined":
                lengths[variable.joined] = int(rng.integers(0, 5))
            elif kind == "local":
                lengths = rng.integers(0, 6, dimensions).tolist()
            start = tuple(along.start for along in box)
            array = drawn(rng, tuple(lengths), dtype)
            knows = bool(all_know or rng.random() < 0.5)
            variable.puts.append(Put(int(rank), array, start, knows))
        return variable

    def attributes_at(self, step: int) -> dict[str, Any]:
        """All attributes of a step: of ranks that set one in the same step the lowest counts."""
        all_of_them: dict[str, Any] = {}
        for sets in self.attributes[: step + 1]:
            for rank in sorted(sets, reverse=True):
                all_of_them.update(sets[rank])
        return all_of_them


def divided(rng: np.random.Generator, whole: list[slice], count: int) -> list[list[slice]]:
    """Boxes that are `whole` together, some of them empty."""
    boxes = [whole]
    while len(boxes) < count and whole:
        box = boxes.pop(int(rng.integers(len(boxes))))
        along = int(rng.integers(len(whole)))
        cut = int(rng.integers(box[along].start, box[along].stop + 1))
        boxes.append([*box[:along], slice(box[along].start, cut), *box[along + 1 :]])
        boxes.append([*box[:along], slice(cut, box[along].stop), *box[along + 1 :]])
    return [boxes[place] for place in rng.permutation(len(boxes)).tolist()]


def write(driver: thalweg.Driver, name: str, model: Model, rank: int) -> None:
    rng = np.random.default_rng([model.seed, rank])
    partitions = model.partitions
    with steps.Writer(driver, name, rank=rank, ranks=model.writers, partitions=partitions) as writer:
        for step, attributes in zip(model.steps, model.attributes, strict=True):
            with writer.step(attributes.get(rank)) as s:
                for variable, of_it in step.items():
                    put_blocks(s, variable, of_it, rank, rng)


def put_blocks(
    s: steps.StepInProgress, name: str, variable: Variable, rank: int, rng: np.random.Generator
) -> None:
    """Puts what a rank has of a variable, in any way there is."""
    if rank in variable.values:
        value = variable.values[rank]
        value = value.item() if variable.dtype == "str" else value
        s.value(name, value, local=variable.kind == "local value")
    for put in variable.puts:
        if put.rank != rank:
            continue
        ways: dict[str, dict[str, Any]] = {
            "array": {"shape": variable.shape, "start": put.start},
            "joined": {"join": variable.joined},
            "local": {"local": True},
        }
        where = {**ways[variable.kind], "extremes": put.knows_extremes}
        way = rng.integers(4)
        if way == 0:
            s.span(name, put.array.shape, put.array.dtype, **where)[...] = put.array
        elif way == 1:
            s.put(name, np.array(put.array, order="F"), **where)
        else:
            s.put(name, put.array, borrow=bool(way == 2), **where)


# What is read.


def same(got: Any, wanted: Array) -> bool:
    """Whether it is the same bit for bit; of text of any length, element for element."""
    if wanted.dtype == object:
        return bool(np.asarray(got, object).tolist() == wanted.tolist())
    # An element by itself has neither byte order nor length.
    got = got if isinstance(got, np.ndarray) else np.asarray(got, wanted.dtype)
    is_alike = got.dtype == wanted.dtype and got.shape == wanted.shape
    return is_alike and bool(got.tobytes() == wanted.tobytes())


def same_element(got: Any, wanted: Any) -> bool:
    if got is None or wanted is None:
        return got is wanted
    return bool(got == wanted) or bool(got != got and wanted != wanted)


def index_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A selection as numpy knows it."""
    if rng.random() < 0.2:
        return ...
    index: list[Any] = []
    for length in shape:
        if length and rng.random() < 0.25:
            index.append(int(rng.integers(-length, length)))
            continue
        start, stop = rng.integers(-length - 1, length + 2, 2).tolist()
        if rng.random() < 0.7:
            start, stop = sorted([abs(start), abs(stop)])
        index.append(slice(start, stop, int(rng.choice([1, 1, 1, 2, 3]))))
    if index and rng.random() < 0.2:
        index[int(rng.integers(len(index))) :] = [...]
    return tuple(index)


def check_step(step: steps.Step, model: Model, rng: np.random.Generator) -> None:
    """Reads some of a step, which has to be what the model has."""
    of_step = model.steps[step.number]
    assert set(step) == set(of_step)
    assert dict(step.attrs) == model.attributes_at(step.number)
    wanted: dict[str, Any] = {}
    out: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for name, variable in of_step.items():
        found = step[name]
        assert found.kind == variable.kind, name
        if variable.kind == "local":
            check_blocks(found, variable, rng)
            continue
        whole, is_there = variable.whole()
        assert found.shape == whole.shape and found.dtype == whole.dtype, name
        check_extremes(found, variable, rng)
        index = index_of(rng, whole.shape)
        array, is_read = np.array(whole[index]), np.array(is_there[index])
        if whole.dtype != object and rng.random() < 0.5:
            into = given(rng, array.shape, variable.dtype)
            out[name] = into
            array = np.where(is_read, array, into) if array.shape else array
            if not array.shape and not is_read:
                array = np.array(into)
        wanted[name], expected[name] = index, array.astype(whole.dtype)
    if rng.random() < 0.5:
        got = step.get_many(wanted, out=out)
    else:
        got = {name: step[name].read(wanted[name], out=out.get(name)) for name in wanted}
    for name, array in expected.items():
        assert same(got[name], array), f"{name} {wanted[name]}: {got[name]!r} is not {array!r}"
        assert name not in out or got[name] is out[name]


def given(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """An array to read into, which may lie anywhere."""
    if not shape or rng.random() < 0.5:
        return drawn(rng, shape, dtype)
    wide = drawn(rng, (*shape[:-1], 2 * shape[-1]), dtype)
    return wide[..., ::2]


def check_blocks(found: steps.Variable, variable: Variable, rng: np.random.Generator) -> None:
    """The blocks of a variable, as they were put."""
    blocks = found.blocks
    assert [block.rank for block in blocks] == [put.rank for put in variable.puts]
    for block, put in zip(blocks, variable.puts, strict=True):
        array = put.array.astype(variable.dtype)
        assert block.shape == array.shape and block.dtype == array.dtype
        index = index_of(rng, array.shape)
        got = block[index]
        assert same(got, np.array(array[index])), f"{block} {index}"
    check_extremes(found, variable, rng)


def check_extremes(found: steps.Variable, variable: Variable, rng: np.random.Generator) -> None:
    if not variable.puts:
        return
    least, greatest = variable.extremes()
    assert same_element(found.min, least), f"{found}: {found.min} is not {least}"
    assert same_element(found.max, greatest), f"{found}: {found.max} is not {greatest}"
    if least is None:
        return
    place = int(rng.integers(len(variable.puts)))
    block, put = found.blocks[place], variable.puts[place]
    if put.array.size:
        least, greatest = least_and_greatest(put.array)
        assert same_element(block.min, least) and same_element(block.max, greatest), block


def read(
    driver: thalweg.Driver, name: str, model: Model, label: str, rank: int, ranks: int
) -> None:
    """A rank of a reading program: each reads other boxes."""
    rng = np.random.default_rng([model.seed, 1000 + ranks, rank])
    numbers = []
    with steps.Reader(driver, name, name=label, rank=rank, ranks=ranks, start="oldest") as reader:
        while (step := reader.next(60)) is not None:
            assert step.ranks == model.writers and step.skipped == 0
            check_step(step, model, rng)
            numbers.append(step.number)
    assert numbers == list(range(len(model.steps)))


def together(ranks: int, act: Callable[[int], None]) -> list[Future[None]]:
    """Begins an act of each rank, in threads of their own."""
    pool = ThreadPoolExecutor(ranks)
    return [pool.submit(act, rank) for rank in range(ranks)]


def all_of(*acts: Future[None]) -> None:
    """Waits for all, and raises what failed first: others fail by it."""
    for act in as_completed(acts):
        act.result()


def replay(driver: thalweg.Driver, name: str, model: Model, label: str, ranks: int) -> None:
    all_of(*together(ranks, lambda rank: read(driver, name, model, label, rank, ranks)))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_what_is_read_is_what_a_model_in_numpy_has(
    driver: thalweg.Driver, name: str, seed: int
) -> None:
    model = Model.of(seed)
    steps.create_stream(driver, name, partitions=model.partitions)
    readers = model.readers
    live = together(readers, lambda rank: read(driver, name, model, "live", rank, readers))
    written = together(model.writers, lambda rank: write(driver, name, model, rank))
    all_of(*written, *live)
    replay(driver, name, model, "replay", model.replayers)
    rng = np.random.default_rng(seed)
    stored = steps.open_run(driver, name)
    for place in rng.permutation(len(stored)).tolist():
        check_step(stored[place], model, rng)


# Faults that this test has to find.


@pytest.fixture(scope="module")
def stored(driver: thalweg.Driver) -> list[tuple[str, Model]]:
    """Cases that were written right."""
    cases = []
    for seed in FAULTY:
        model, name = Model.of(seed), f"model-{seed}"
        all_of(*together(model.writers, partial(write, driver, name, model)))
        cases.append((name, model))
    return cases


def a_box_further_on(patch: pytest.MonkeyPatch) -> None:
    right = _steps._along

    def wrong(name: str, shape: Any, index: Any) -> Any:
        along, dropped = right(name, shape, index)
        moved = [
            (start + 1, count, step) if 0 < count and start + count * step < length else (start, count, step)
            for (start, count, step), length in zip(along, shape, strict=True)
        ]  # fmt: skip
        return moved, dropped

    patch.setattr(_steps, "_along", wrong)


def holes_of_out_are_cleared(patch: pytest.MonkeyPatch) -> None:
    right = _steps.read

    def wrong(native: Any, gets: Any) -> None:
        for get in gets:
            if get.buffer is not None:
                get.buffer[...] = 0
        right(native, gets)

    patch.setattr(_steps, "read", wrong)


def a_step_is_left_out(patch: pytest.MonkeyPatch) -> None:
    right = steps.Reader.next

    def wrong(reader: steps.Reader, timeout: float | None = None) -> steps.Step | None:
        step = right(reader, timeout)
        return right(reader, timeout) if step is not None and step.number == 1 else step

    patch.setattr(steps.Reader, "next", wrong)


def the_last_byte_is_another(patch: pytest.MonkeyPatch) -> None:
    right = _steps.read

    def wrong(native: Any, gets: Any) -> None:
        right(native, gets)
        for get in gets:
            if get.buffer is not None and get.buffer.size:
                get.buffer[-1] ^= 1

    patch.setattr(_steps, "read", wrong)


def the_least_is_the_greatest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps.Variable, "min", property(lambda variable: variable.max))


def an_attribute_is_left_out(patch: pytest.MonkeyPatch) -> None:
    right = _steps.attribute_values
    patch.setattr(_steps, "attribute_values", lambda given: right(given[1:]))


@pytest.mark.parametrize(
    "fault",
    [
        a_box_further_on, holes_of_out_are_cleared, a_step_is_left_out,
        the_last_byte_is_another, the_least_is_the_greatest, an_attribute_is_left_out,
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(
    driver: thalweg.Driver,
    stored: list[tuple[str, Model]],
    fault: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, model in stored:
        replay(driver, name, model, "right", 1)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        for name, model in stored:
            replay(driver, name, model, fault.__name__, 1)
