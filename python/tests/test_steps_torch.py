"""Steps as a data set of PyTorch, of which the little that it needs is made here where it is not installed."""

from __future__ import annotations

import importlib.util
import json
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Server

import thalweg
from thalweg import steps

HAS_TORCH = importlib.util.find_spec("torch") is not None


class Worker:
    """Stands for a worker of a loader."""

    def __init__(self, id: int, num_workers: int) -> None:
        self.id, self.num_workers = id, num_workers


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Worker | None], None]]:
    """Sets which worker of a loader this process is. Without torch, its place is taken."""
    current: list[Worker | None] = [None]
    if not HAS_TORCH:
        data = types.ModuleType("torch.utils.data")
        data.IterableDataset = type("IterableDataset", (), {})  # type: ignore[attr-defined]
        data.get_worker_info = lambda: current[0]  # type: ignore[attr-defined]
        for name in ("torch", "torch.utils"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "torch.utils.data", data)
        monkeypatch.delitem(sys.modules, "thalweg._torch", raising=False)
    monkeypatch.setattr("thalweg._torch.get_worker_info", lambda: current[0])
    yield lambda one: current.__setitem__(0, one)
    if not HAS_TORCH:
        sys.modules.pop("thalweg._torch", None)
        if hasattr(thalweg, "_torch"):
            del thalweg._torch


def write(driver: thalweg.Driver, name: str, count: int) -> None:
    with steps.Writer(driver, name) as writer:
        for number in range(count):
            with writer.step() as s:
                s.put("E", np.full((4, 6), number, ">f4"))
                s.put("x", np.arange(number), join=0)
                s.value("text", "no number")


def numbers(samples: Any) -> list[int]:
    return [int(sample["E"].flat[0]) for sample in samples]


def test_workers_and_ranks_share_the_samples(
    driver: thalweg.Driver, name: str, worker: Callable[[Worker | None], None]
) -> None:
    write(driver, name, 7)
    data = steps.TorchDataset(driver, name, variables=["E"])
    assert len(data) == 7
    assert numbers(data) == [0, 1, 2, 3, 4, 5, 6]
    # An epoch is a replay.
    assert data.epoch == 1
    assert numbers(data) == [0, 1, 2, 3, 4, 5, 6]
    shares = []
    for rank in range(2):
        mine = steps.TorchDataset(driver, name, variables=["E"], rank=rank, ranks=2)
        for number in range(3):
            worker(Worker(number, 3))
            shares.append(numbers(mine))
            mine.set_epoch(0)
    worker(None)
    assert shares == [[0, 6], [2], [4], [1], [3], [5]]
    with pytest.raises(thalweg.InvalidArgument):
        steps.TorchDataset(driver, name, rank=2, ranks=2)


def test_samples_are_boxes_of_arrays_that_torch_has(
    driver: thalweg.Driver, name: str, worker: Callable[[Worker | None], None]
) -> None:
    write(driver, name, 2)
    whole = list(steps.TorchDataset(driver, name))
    assert [set(sample) for sample in whole] == [{"E", "x"}] * 2
    assert whole[1]["E"].dtype.isnative and whole[1]["E"].shape == (4, 6)
    tiles = steps.TorchDataset.tiles((4, 6), (2, 4))
    assert tiles == [np.s_[0:2, 0:4], np.s_[2:4, 0:4]]
    data = steps.TorchDataset(driver, name, variables=["E"], boxes=tiles)
    assert [sample["E"].shape for sample in data] == [(2, 4)] * 4
    data = steps.TorchDataset(driver, name, boxes=[{"x": np.s_[:0], "E": np.s_[0]}])
    assert [(s["x"].shape, s["E"].shape) for s in data] == [((0,), (6,))] * 2

    class Means(steps.TorchDataset):  # type: ignore[misc, valid-type]
        def sample(self, step: steps.Step, box: Any) -> float:
            return float(step["E"][...].mean())

    assert list(Means(driver, name)) == [0.0, 1.0]


def test_an_order_is_shuffled_by_seed_and_epoch(
    driver: thalweg.Driver, name: str, worker: Callable[[Worker | None], None]
) -> None:
    write(driver, name, 20)
    data = steps.TorchDataset(driver, name, variables=["E"], shuffle=True, seed=3)
    epochs = [numbers(data) for _ in range(2)]
    assert epochs[0] != epochs[1] != list(range(20))
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 2
    data.set_epoch(0)
    halves = []
    for number in range(2):
        worker(Worker(number, 2))
        halves.append(numbers(data))
        data.set_epoch(0)
    assert halves == [epochs[0][0::2], epochs[0][1::2]]


def test_a_position_is_kept_and_taken_up(
    driver: thalweg.Driver, name: str, worker: Callable[[Worker | None], None]
) -> None:
    write(driver, name, 12)

    def make() -> Any:
        return steps.TorchDataset(driver, name, variables=["E"], shuffle=True)

    whole = numbers(make())
    data = make()
    samples = iter(data)
    had = [next(samples) for _ in range(5)]
    state = json.loads(json.dumps(data.state_dict()))
    other = make()
    other.load_state_dict(state)
    assert numbers(had) + numbers(other) == whole
    # The epoch behind it is whole again.
    assert sorted(numbers(other)) == list(range(12)) and other.epoch == 2
    # A worker's own position.
    worker(Worker(1, 2))
    data = make()
    samples = iter(data)
    had = [next(samples) for _ in range(2)]
    other = make()
    other.load_state_dict(data.state_dict())
    assert numbers(had) + numbers(other) == whole[1::2]
    # The position of a loader, of which three batches of four came.
    worker(Worker(1, 2))
    other = make()
    other.load_state_dict({"run": other.run, "epoch": 0, "position": 8, "given": 0})
    assert numbers(other) == whole[9::2]
    worker(None)
    with pytest.raises(thalweg.InvalidArgument, match="run 9"):
        other.load_state_dict({"run": 9, "epoch": 0, "position": 0, "given": 0})


IN_ANOTHER_PROCESS = """
import pickle, sys, types
try:
    import torch.utils.data
except ImportError:
    data = types.ModuleType("torch.utils.data")
    data.IterableDataset = type("IterableDataset", (), {})
    data.get_worker_info = lambda: types.SimpleNamespace(id=1, num_workers=2)
    for name in ("torch", "torch.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torch.utils.data"] = data
else:
    import thalweg._torch
    thalweg._torch.get_worker_info = lambda: types.SimpleNamespace(id=1, num_workers=2)
data = pickle.loads(bytes.fromhex(sys.argv[1]))
print([int(sample["E"][0, 0]) for sample in data])
"""


def test_it_is_pickled_to_workers(
    server: Server,
    worker: Callable[[Worker | None], None],
    run_script: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    with server.connect() as driver:
        write(driver, "s", 5)
        data = steps.TorchDataset(driver, "s", variables=["E"])
        # What is committed later is in no epoch of it, wherever it is.
        write(driver, "s", 2)
        packed = pickle.dumps(data).hex()
        done = run_script(IN_ANOTHER_PROCESS, packed)
        assert done.stdout == "[1, 3]\n", done.stderr


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_the_package_does_without_torch() -> None:
    with pytest.raises(ImportError, match="torch"):
        steps.TorchDataset  # noqa: B018
    with pytest.raises(AttributeError):
        steps.Torch  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_loader_of_torch_gives_every_sample_once(
    driver: thalweg.Driver, name: str, context: str
) -> None:
    from torch.utils.data import DataLoader

    write(driver, name, 9)
    data = steps.TorchDataset(driver, name, variables=["E"], shuffle=True)
    for epoch in range(2):
        data.set_epoch(epoch)
        loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=context)
        found = [int(one) for batch in loader for one in batch["E"][:, 0, 0]]
        assert sorted(found) == list(range(9))
