"""Steps as a data set of PyTorch. Imported when it is asked for: the package does without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from thalweg import steps
from thalweg._thalweg import Driver, Topic
from thalweg.exceptions import InvalidArgument

if TYPE_CHECKING:
    from thalweg.steps import Step, StoredRun, _Index

    _Box: TypeAlias = _Index | Mapping[str, _Index]

__all__ = ["TorchDataset"]


class TorchDataset(IterableDataset):
    """The stored steps of a run as an `IterableDataset` of PyTorch, for a `DataLoader` with any number of
    workers: a sample for each step, or for each box of each step. It is imported when it is asked for:
    `thalweg.steps` itself does without torch::

        data = steps.TorchDataset(driver, "fields", variables=["E"], shuffle=True)
        for epoch in range(10):
            data.set_epoch(epoch)
            for batch in torch.utils.data.DataLoader(data, batch_size=8, num_workers=4):
                train(batch["E"])

    Which steps there are is fixed when it is made: each epoch replays the same ones, though the run be
    written on. Samples are divided among the workers of a loader, and among the `ranks` of a
    distributed training, each to one of them. Only what a sample wants is read.

    It may be pickled, and used in a child after a fork: each process has a connection of its own.

    - `source`, `stream`: a `Driver` and the name of the stream, or the stream's `Topic`.
    - `run`: the number of a run, or, negative, the last (-1), the one before that (-2).
    - `variables`: what is read; None is all arrays that PyTorch has types for.
    - `boxes`: a sample for each of them: an index, as between the brackets of `step["E"][…]`, for all
      variables, or a dict of one for each. `tiles` makes some. None is one sample of the whole step.
    - `shuffle`: gives steps and boxes in another order each epoch, which `seed` and the epoch decide.
    - `rank`, `ranks`: which part of a distributed training this is, from 0, of how many.

    Raises `ImportError` without torch, and as `open_run`; reading a sample raises as
    `Step.get_many`.
    """

    def __init__(
        self,
        source: Driver | Topic,
        stream: str | None = None,
        *,
        run: int = -1,
        variables: Sequence[str] | None = None,
        boxes: Sequence[_Box] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__()
        if not 0 <= rank < ranks:
            raise InvalidArgument(f"rank is from 0 and below ranks, not {rank} of {ranks}")
        self._source, self._stream = source, stream
        stored = steps.open_run(source, stream, run)
        self._run, self._numbers = stored.number, stored.numbers
        self._stored: tuple[int, StoredRun] | None = (os.getpid(), stored)
        self._variables = None if variables is None else list(variables)
        self._boxes: list[_Box] = [...] if boxes is None else list(boxes)
        self._shuffle, self._seed = shuffle, seed
        self._rank, self._ranks = rank, ranks
        self._epoch = self._position = self._given = 0

    @property
    def run(self) -> int:
        """The number of its run."""
        return self._run

    @property
    def epoch(self) -> int:
        """The number of the epoch that is given next, or being given."""
        return self._epoch

    def sample(self, step: Step, box: _Box) -> Any:
        """What is made of a step and a box: a dict of an array for each variable, in this machine's byte
        order. A class of one's own may make something else."""
        if isinstance(box, Mapping):
            wanted = dict(box)
        else:
            names = self._variables
            wanted = dict.fromkeys(_arrays_of(step) if names is None else names, box)
        read = step.get_many(wanted)
        return {name: _native(array) for name, array in read.items()}

    def set_epoch(self, epoch: int) -> None:
        """Begins this epoch. To be called before the loop over a loader with workers, whose copies do not
        tell that they have ended one; a loop without workers goes on with the next by itself."""
        self._epoch, self._position, self._given = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Where it is, for `load_state_dict` of one that is made alike: also as `StatefulDataLoader` of
        torchdata asks each worker for it. Of a loader with W workers that is not stateful, none knows:
        after a number of batches that W divides, it is `{"run": data.run, "epoch": epoch,
        "position": batches * batch_size, "given": 0}`, with several `ranks` times these."""
        _, count = self._shard()
        is_alone = get_worker_info() is None
        # All shards advance alike: without workers that is a place in the order of the epoch.
        position = self._position + (self._given * count if is_alone else 0)
        return {
            "run": self._run,
            "epoch": self._epoch,
            "position": position,
            "given": 0 if is_alone else self._given,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on where the other was. Raises `InvalidArgument` if that was of another run."""
        if state["run"] != self._run:
            raise InvalidArgument(f"the state is of run {state['run']}, this is run {self._run}")
        self._epoch, self._position = state["epoch"], state["position"]
        self._given = state["given"]

    @staticmethod
    def tiles(shape: Sequence[int], lengths: Sequence[int]) -> list[tuple[slice, ...]]:
        """Boxes of these lengths that fill an array of a shape, in row-major order. What is left at the
        ends, shorter than a box, is in none: samples of a batch are alike."""
        if len(shape) != len(lengths) or any(length < 1 for length in lengths):
            raise InvalidArgument(f"tiles of {tuple(lengths)} in an array of shape {tuple(shape)}")
        counts = [whole // length for whole, length in zip(shape, lengths, strict=True)]
        return [
            tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, lengths, strict=True))
            for place in np.ndindex(*counts)
        ]

    def __iter__(self) -> Iterator[Any]:
        shard, count = self._shard()
        order = self._order()[self._position + shard :: count]
        stored = self._opened()
        step: Step | None = None
        for index in order[self._given :]:
            number = self._numbers[index // len(self._boxes)]
            if step is None or step.number != number:
                step = stored.step(number)
            made = self.sample(step, self._boxes[index % len(self._boxes)])
            self._given += 1
            yield made
        self.set_epoch(self._epoch + 1)

    def __len__(self) -> int:
        whole = len(self._numbers) * len(self._boxes)
        return len(range(self._rank, whole, self._ranks))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stored": None}

    def _shard(self) -> tuple[int, int]:
        """Which part of the samples this process gives, of how many."""
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return number * self._ranks + self._rank, count * self._ranks

    def _order(self) -> list[int]:
        count = len(self._numbers) * len(self._boxes)
        if not self._shuffle:
            return list(range(count))
        order: list[int] = np.random.default_rng((self._seed, self._epoch)).permutation(count).tolist()
        return order

    def _opened(self) -> StoredRun:
        """The run, on a connection of this process."""
        if self._stored is None or self._stored[0] != os.getpid():
            stored = steps.StoredRun(self._source, self._stream, self._run, self._numbers)
            self._stored = (os.getpid(), stored)
        return self._stored[1]

    def __repr__(self) -> str:
        return f"TorchDataset(run {self._run}, {len(self)} samples, epoch {self._epoch})"


def _arrays_of(step: Step) -> list[str]:
    """The variables of which PyTorch has the type: of numbers and booleans, which are a whole."""
    return [
        name
        for name, one in step.items()
        if one.kind != "local" and one.dtype.kind in "biufc" and one.dtype.itemsize <= 16
    ]


def _native(array: Any) -> Any:
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array
