"""Steps of arrays: what a simulation's ranks write and other programs read, now or later.

A *stream* is a topic of steps. Each rank of a writing program puts its blocks of the step's
variables; when all ranks have ended the step it is committed, and readers have it as a whole::

    from thalweg import Driver, steps

    with Driver() as driver, steps.Writer(driver, "fields") as writer:
        with writer.step(attrs={"time": 0.1}) as step:
            step.put("E", field)

    with Driver() as driver, steps.Reader(driver, "fields", name="viewer") as reader:
        for step in reader:
            print(step.number, step["E"][100:200].mean())
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from thalweg import _steps
from thalweg._thalweg import (
    Driver,
    Topic,
    _StepReader,
    _StepStream,
    _StepView,
    _StepWriter,
)
from thalweg.exceptions import Closed, InvalidArgument, OutOfRange, RunBroken, Timeout

if TYPE_CHECKING:
    import xarray

    # Not in `__all__`, so that `import *` does without torch.
    from thalweg._torch import TorchDataset as TorchDataset

    _Array: TypeAlias = np.ndarray[Any, Any]
    _One: TypeAlias = SupportsIndex | slice | EllipsisType
    _Index: TypeAlias = _One | tuple[_One, ...]
    _Start: TypeAlias = Literal["cursor", "oldest", "newest", "next", "open"] | tuple[Any, ...]
    _Wait: TypeAlias = Literal["accepted", "committed"]
    _Durability: TypeAlias = Literal["memory", "written", "synced"]
    _Distribution: TypeAlias = Literal["all", "round_robin", "on_demand"]
    _Preload: TypeAlias = Literal["all"] | Mapping[str, _Index] | Sequence[str] | None

__all__ = [
    "Block",
    "Reader",
    "Run",
    "Step",
    "StepEnded",
    "StepInProgress",
    "StoredRun",
    "Variable",
    "Writer",
    "create_stream",
    "open_dataset",
    "open_run",
    "runs",
]


def __getattr__(name: str) -> Any:
    if name == "TorchDataset":
        from thalweg._torch import TorchDataset

        return TorchDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Writing.


@dataclass(frozen=True)
class StepEnded:
    """What has become of a step that was ended."""

    number: int
    """Its number in the run."""
    discarded: str | None
    """Why it was dropped, with `when_full="discard"`; None if it was not, or that is not known yet."""


class Writer:
    """One rank of a program that writes steps to a stream, which is made if it is not there.

    Each rank opens a writer of its own; ranks need not know of one another. The ranks of a name write a *run*: it begins when the first
    of them opens it, and is closed when all have called `close`, as the end of the `with` block does. Step n is committed when every rank
    has ended its step n; a rank that is two steps ahead of the others waits for them.

    Leaving the `with` block by an exception does not close the run, nor does the end of a program that was killed: the run stays open for
    `session_timeout`, in which a program of the same names may take it up behind the last step that is committed, and is broken then.
    What is committed stays.

    May be used by several threads, one call after the other; not in a child after `os.fork()`.

    - `source`, `stream`: a `Driver` and the name of the stream, or the stream's `Topic`.
    - `rank`, `ranks`: which rank this is, from 0, of how many. All say the same of the options.
    - `writer`: the name of the writing program.
    - `queue`: the most committed steps that attached readers have not released; None is without a limit: the retention of the stream
      bounds what is kept.
    - `queue_bytes`: the same in bytes of data.
    - `when_full`: what becomes of a step that does not fit: `"block"` has writers wait, `"discard"` drops it as a whole.
    - `distribution`: how reading programs are asked to be given steps, as of a `Reader`. It is kept with the run for them to see, and
      binds nobody; ADIOS2's readers keep to it.
    - `readers`: opening waits until so many reading programs are attached, up to `open_timeout`.
    - `session_timeout`: for how many seconds a rank may be away before the run is broken.
    - `timeout`: seconds that each wait of a step may take.
    - `close_timeout`: seconds that `close` waits until readers that are attached have released all steps, where these are in the server's
      memory alone (`storage="memory"`).
    - `keep`: `"writer"`, of a stream in memory, has up to `held_bytes` stay in this program until they are first read, and be lost with it
      (`OutOfRange`). For room, steps that all attached readers have released leave the stream, oldest first; if that does not help,
      `when_full` decides.
    - `partitions`, `storage`, `retention`, `durability`: how the stream is made, where it is: over how many partitions data is spread,
      `"disk"` or `"memory"`, what is kept (a dict as of `Driver.create_topic`), and what an accepted step survives, which of a stream
      that is there may be more than it promises.

    Raises `Timeout`, which says what was waited for, `InvalidArgument`, `ServerError` while another program writes the stream.
    """

    def __init__(
        self,
        source: Driver | Topic,
        stream: str | None = None,
        *,
        rank: int = 0,
        ranks: int = 1,
        writer: str = "writer",
        queue: int | None = None,
        queue_bytes: int | None = None,
        when_full: Literal["block", "discard"] = "block",
        distribution: _Distribution = "all",
        readers: int = 0,
        session_timeout: float = 30.0,
        open_timeout: float = 600.0,
        timeout: float = 600.0,
        close_timeout: float = 60.0,
        keep: Literal["server", "writer"] = "server",
        held_bytes: int = 1 << 30,
        partitions: int = 1,
        storage: str = "disk",
        retention: Mapping[str, Any] | None = None,
        durability: _Durability | None = None,
    ) -> None:
        if queue is not None and queue < 1:
            raise InvalidArgument(f"queue is a number of steps from 1, or None, not {queue}")
        kept = _steps.retention(retention)
        self._native = _StepWriter(
            _steps.opened(source),
            stream,
            name=writer,
            rank=rank,
            ranks=ranks,
            queue_steps=queue or 0,
            queue_bytes=queue_bytes or 0,
            when_full=when_full,
            distribution=distribution,
            readers=readers,
            session_timeout=session_timeout,
            open_timeout=open_timeout,
            timeout=timeout,
            close_timeout=close_timeout,
            keep=keep,
            held_bytes=held_bytes,
            partitions=partitions,
            storage=storage,
            retention=kept,
            durability=durability,
        )
        self._rank, self._ranks = rank, ranks

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._native.stream

    @property
    def run(self) -> int:
        """The number of the run that it writes."""
        return self._native.run

    @property
    def rank(self) -> int:
        """Which rank this is."""
        return self._rank

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self._ranks

    @property
    def next_step(self) -> int:
        """The number of the step that is being written, or of the next one. A rank that took up a
        run goes on behind its last committed step."""
        return self._native.step()

    @property
    def closed(self) -> bool:
        """Whether it was closed, or left by an exception."""
        return self._native.closed

    @property
    def attrs(self) -> MutableMapping[str, Any]:
        """The attributes of the run: numbers, strings, and lists of them. What is set holds from the step on that is being written, or
        else the next one. Of several ranks that set one in the same step, the lowest counts."""
        return _steps.WriterAttributes(self._native)

    def step(
        self, attrs: Mapping[str, Any] | None = None, *, wait: _Wait = "accepted", pin: bool = False
    ) -> StepInProgress:
        """Begins a step, which the end of its `with` block ends.

        That waits until this rank's blocks are as durable as the stream promises (`"accepted"`), or until the step is committed, all
        ranks having ended it (`"committed"`); before that, for room in the queue. An exception in the block drops what was put and
        leaves the writer as it was: the next step has this number.

        - `attrs`: attributes of the run from this step on; see `attrs`.
        - `pin`: retention leaves the step, and late readers are given it first. All ranks say the same. Where too much is pinned already
          the end raises `InvalidEvent`; `wait` sends it unpinned.

        The block's end raises `Timeout`, whose step is not lost: `wait` goes on with it; `RunBroken` if another rank is gone or another
        life of this one has taken its place.
        """
        return StepInProgress(self, attrs or {}, wait, pin)

    def wait(self, timeout: float | None = None, *, wait: _Wait = "committed") -> StepEnded:
        """Waits until the step that was ended last is committed, or accepted; up to `timeout` seconds, None being the writer's `timeout`,
        which counts in any case for a step that has come to no room yet. Raises as the end of a step does."""
        number, discarded = self._native.wait(wait, timeout)
        return StepEnded(number, discarded or None)

    def close(self, timeout: float | None = None) -> str | None:
        """Says that this rank has written its last step, and waits until that is committed, up to `timeout` seconds, None being the
        writer's `timeout`. When all ranks have, the run is closed. Of a stream in memory it waits for its readers then, up to the
        writer's `close_timeout`, and says which of them are behind if any are, as a warning, too; a stream on disk keeps their steps,
        and None is returned. Does nothing the second time. Raises as the end of a step does."""
        behind = self._native.close(timeout)
        if behind is not None:
            warnings.warn(f"{self!r}: {behind}", RuntimeWarning, stacklevel=2)
        return behind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self._native.give_up()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"Writer({self.stream!r}, rank {self.rank} of {self.ranks}, run {self.run}{state})"


class StepInProgress:
    """A step that is being written: what `Writer.step` gives, to be used in a `with` block."""

    def __init__(self, writer: Writer, attrs: Mapping[str, Any], wait: _Wait, pin: bool) -> None:
        if wait not in ("accepted", "committed"):
            raise InvalidArgument(f'wait is "accepted" or "committed", not {wait!r}')
        self._native = writer._native
        # Refused here, before anything is put.
        self._attrs = [_steps.attribute(name, value) for name, value in attrs.items()]
        self._wait, self._pin = wait, pin
        self._number: int | None = None
        self._ended: StepEnded | None = None

    @property
    def number(self) -> int:
        """Its number in the run."""
        if self._number is None:
            raise InvalidArgument("the step begins with its `with` block")
        return self._number

    @property
    def ended(self) -> StepEnded:
        """What has become of it, once its block is left."""
        if self._ended is None:
            raise InvalidArgument("the step is not ended yet")
        return self._ended

    def put(
        self,
        name: str,
        array: npt.ArrayLike,
        *,
        shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
        start: SupportsIndex | Sequence[SupportsIndex] | None = None,
        join: int | None = None,
        local: bool = False,
        extremes: bool = True,
        borrow: bool = False,
    ) -> None:
        """Puts a block of a variable. Several puts of a name are several blocks of it.

        - `array`: any array of numbers, booleans, times, text or bytes of a fixed length, or structures; also a view that is not
          contiguous. It is copied before this returns.
        - `shape`, `start`: the lengths of the whole array that all ranks make, and where the block begins in it. Without them the block
          is the whole.
        - `join`: the dimension along which the blocks follow one another, in the order of the ranks.
        - `local`: whether the block is an array by itself, and no part of a whole.
        - `extremes`: whether readers are told its least and greatest element.
        - `borrow`: sends it from where it lies, if that is in one piece: it must not be changed until the step is ended.

        Raises `InvalidArgument`, and leaves the step as it was: a variable that was put with another type, kind or shape, a block outside
        of its array, Python objects.
        """
        block = np.asarray(array)
        belongs = _steps.belongs_to(name, block.shape, shape, start, join, local)
        # Not `ascontiguousarray`, which makes one dimension of none.
        whole = np.asarray(block, order="C")
        dtype = _steps.text_of(block.dtype)
        borrow = borrow or whole is not block
        self._native.put(
            name, _steps.bytes_of(whole), dtype, belongs, list(block.shape), extremes, borrow
        )

    def span(
        self,
        name: str,
        block_shape: SupportsIndex | Sequence[SupportsIndex],
        dtype: npt.DTypeLike,
        *,
        shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
        start: SupportsIndex | Sequence[SupportsIndex] | None = None,
        join: int | None = None,
        local: bool = False,
        extremes: bool = True,
    ) -> _Array:
        """Puts a block that is made in place: an array of `block_shape` and `dtype` to be filled until the step's block is left, which is
        sent from where it is, over shared memory without a copy. What it holds at first is undefined. The other arguments and errors
        are those of `put`."""
        kind = np.dtype(dtype)
        count = _steps.lengths("block_shape", block_shape)
        belongs = _steps.belongs_to(name, tuple(count), shape, start, join, local)
        text = _steps.text_of(kind)
        memory = self._native.memory(math.prod(count) * kind.itemsize)
        self._native.put_memory(name, memory, text, belongs, count, extremes)
        return np.ndarray(tuple(count), kind, memory)

    def value(self, name: str, value: Any, *, local: bool = False) -> None:
        """Puts a single value: a number, or a str of any length up to 1 MiB. It is one for all ranks,
        the lowest rank's counting; with `local` each rank has its own, and readers have an array
        of them. Raises `InvalidArgument` as `put` does."""
        if isinstance(value, str):
            self._native.put_value(name, _steps.TEXT, value.encode(), local)
            return
        array = np.asarray(value)
        if array.ndim != 0:
            raise InvalidArgument(
                f"variable {name!r}: a value is one element, not an array of shape {array.shape}, "
                f"which is for put"
            )
        self._native.put_value(name, _steps.text_of(array.dtype), array.tobytes(), local)

    def __enter__(self) -> Self:
        if self._number is not None:
            raise InvalidArgument("the step was begun before")
        self._number = self._native.begin(self._pin)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None:
        if exc_type is not None:
            if not self._native.closed:
                self._native.drop_step()
            return
        for attribute in self._attrs:
            self._native.set_attribute(*attribute)
        number, discarded = self._native.end(self._wait)
        self._ended = StepEnded(number, discarded or None)

    def __repr__(self) -> str:
        return f"StepInProgress({self._native.stream!r}, step {self._number})"


# Reading.


class Reader:
    """One rank of a program that reads the steps of a stream.

    Iterating gives the steps of a run, each as soon as it is committed, and ends with the run; iterating anew goes on with the next run.
    Asking for the next step releases the one before; when all ranks of the reader have released a step, the position of its name moves
    behind it, durably. A program that comes back under the name goes on there: a step is given again whose reader died. Lost connections
    and restarts of the server are survived.

    Leaving the `with` block releases the last step, leaving it by an exception does not.

    May be used by several threads, one call after the other; not in a child after `os.fork()`.

    - `source`, `stream`: a `Driver` and the name of the stream, or the stream's `Topic`.
    - `name`: the name of the reading program, under which its position is kept.
    - `distribution`: `"all"`: the program is given every step. Otherwise several programs share the steps of the name, and each step is
      given to one of them: `"round_robin"`: to each in its turn; `"on_demand"`: to the first that asks. A step of a program that has gone
      without releasing it is given to another; after a restart of the server, some may be given again.
    - `group`: the name of one such program, which all of its ranks say; None for one of one rank.
    - `rank`, `ranks`: which rank this is, from 0, of how many. All are given the same steps, and each reads what it likes of them.
    - `start`: where to begin. `"cursor"`: at the position of the name, or the oldest step; `"oldest"`, `"newest"`; `"next"`: at the next
      one that is committed; `("run", n)`: at the beginning of that run; `"open"`: at the beginning of the run that is open, or of the
      next; or a `position` of a reader: behind that.
    - `latest`: gives the newest step each time; `Step.skipped` says how many were passed over.
    - `session_timeout`: for how many seconds a rank may be away before its step goes back, and the other ranks are told
      `GroupIncomplete`.
    - `open_timeout`: seconds that attaching may take.
    - `preload`: what is read of each step before it is asked for, as `preload` has it.
    - `preload_bytes_max`: the most bytes of a step that are; what exceeds them is read when it is asked for. A reader has them in memory
      twice at most: of the step that it was given, and of the next one.

    Raises `UnknownTopic`, `InvalidArgument`, `Timeout`, and `MemberFenced` where another life of this rank has its place.
    """

    def __init__(
        self,
        source: Driver | Topic,
        stream: str | None = None,
        *,
        name: str = "reader",
        distribution: _Distribution = "all",
        group: str | None = None,
        rank: int = 0,
        ranks: int = 1,
        start: _Start = "cursor",
        latest: bool = False,
        session_timeout: float = 30.0,
        open_timeout: float = 120.0,
        preload: _Preload = None,
        preload_bytes_max: int = 256 << 20,
    ) -> None:
        self._native = _StepReader(
            _steps.opened(source),
            stream,
            name=name,
            distribution=distribution,
            group=group,
            rank=rank,
            ranks=ranks,
            start=start,
            latest=latest,
            session_timeout=session_timeout,
            open_timeout=open_timeout,
            preload=_steps.standing(preload),
            preload_bytes_max=preload_bytes_max,
        )
        self._name, self._rank, self._ranks = name, rank, ranks

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._native.stream

    @property
    def name(self) -> str:
        """The name of the reading program."""
        return self._name

    @property
    def rank(self) -> int:
        """Which rank this is."""
        return self._rank

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self._ranks

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    @property
    def position(self) -> _Start:
        """Where it is, to be the `start` of another reader, which begins behind the step that was given last; `"cursor"` as long as none
        was."""
        at = self._native.position()
        return ("at", at[0], at[1] + 1) if at else "cursor"

    def next(self, timeout: float | None = None) -> Step | None:
        """The next step, as soon as there is one; None when the run has ended, of which all committed steps were given then. Releases the
        step before. The call behind the end goes on with the next run.

        Raises `Timeout` if there is none within `timeout` seconds, None being for ever; the next call goes on. Raises `RunBroken`, once,
        where a run has ended without being closed, after all of its committed steps were given."""
        came = self._native.next(timeout)
        return Step(came, self._native) if isinstance(came, _StepView) else None

    def preload(self, wanted: _Preload) -> None:
        """Has this read of each step before the program asks for it, from the next step on and until this is called again: indexing a
        variable then waits for nothing, or less. While the program is at work on a step the next one is read, as soon as it is committed, unless
        the reader shares its steps or has the newest ones alone: then it is read when it is given.

        - `wanted`: what is wanted of each variable, by name: integers and slices that count from 0, as between the brackets of `step["E"][…]`;
          `...` is all of it, and of a local array all blocks. A slice ends with the array at the latest: shapes may change. A list of names
          wants all of each, `"all"` all variables, None nothing.

        What is indexed may be a part of it: `reader.preload({"E": np.s_[:100]})` serves `step["E"][10:20, 3]`. Anything else is read when it is
        asked for, with the same result; so is an array of which not all elements were put, and what exceeds `preload_bytes_max`.

        Raises `InvalidArgument` of an index that needs the shape, as negative ones do.
        """
        self._native.preload(_steps.standing(wanted))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        try:
            step = self.next()
        except Closed:
            # Another thread closed it while this one waited, or before.
            step = None
        if step is None:
            raise StopIteration
        return step

    def close(self, *, release: bool = True, timeout: float = 120.0) -> None:
        """Leaves the stream; another thread that waits for a step is given none. Releases the step that was given last, up to `timeout`
        seconds, unless `release` is False: then it is given again to the next reader of the name. Does nothing the second time."""
        self._native.close(timeout if release else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None:
        # What a run says at its end is no failure of a step.
        ended = exc_type is not None and issubclass(exc_type, (RunBroken, Timeout))
        self.close(release=exc_type is None or ended)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"Reader({self.stream!r}, {self.name!r}, rank {self.rank} of {self.ranks}{state})"


class Step(Mapping[str, "Variable"]):
    """A step that is committed: `step["E"]` is a variable of it, of which nothing is read before it is
    indexed. Usable by several threads."""

    def __init__(self, native: _StepView, reader: _StepReader | None = None) -> None:
        self._native = native
        self._reader = reader
        self._attrs: dict[str, Any] | None = None
        self._names: dict[str, None] | None = None

    @property
    def number(self) -> int:
        """Its number in the run, from 0."""
        return self._native.number

    @property
    def run(self) -> int:
        """The number of its run."""
        return self._native.run

    @property
    def writer(self) -> str:
        """The name of the program that has written it."""
        return self._native.writer

    @property
    def ranks(self) -> int:
        """How many ranks have."""
        return self._native.ranks

    @property
    def time(self) -> int:
        """When it was committed, nanoseconds since 1970."""
        return self._native.time

    @property
    def skipped(self) -> int:
        """How many steps were passed over since the one before, because only the newest is wanted."""
        return self._native.skipped

    @property
    def lost(self) -> int:
        """How many records since the one before retention has taken unread."""
        return self._native.lost

    @property
    def nbytes(self) -> int:
        """Bytes of data of all its variables."""
        return self._native.nbytes

    @property
    def attrs(self) -> Mapping[str, Any]:
        """All attributes of the run, as they are at this step. Lists of numbers are arrays."""
        if self._attrs is None:
            self._attrs = _steps.attribute_values(self._native.attributes())
        return self._attrs

    def get_many(
        self,
        wanted: Mapping[str, _Index] | Sequence[str],
        *,
        out: Mapping[str, _Array] | None = None,
    ) -> dict[str, Any]:
        """Reads of several variables, with one request.

        - `wanted`: what is wanted of each, as between the brackets of `step["E"][…]`; `...` is all. A list of names wants all of each.
        - `out`: arrays to read into, of the right shape and dtype; contiguous ones without a copy.

        Gives an array of each, that of `out` where there is one. Elements that nobody has put are 0, and in arrays of `out` what they
        were. Raises `KeyError`, `IndexError`, `InvalidArgument`; `OutOfRange` if retention has taken the step meanwhile, `Damaged`,
        `Timeout`.
        """
        if not isinstance(wanted, Mapping):
            wanted = dict.fromkeys(wanted, ...)
        given = dict(out or {})
        if unknown := given.keys() - wanted.keys():
            raise InvalidArgument(f"out has {sorted(unknown)}, of which nothing is wanted")
        gets = [self[name]._get(index, given.get(name)) for name, index in wanted.items()]
        _steps.read(self._native, gets)
        return {get.variable: get.result() for get in gets}

    def release(self, timeout: float | None = None) -> None:
        """Says that the step is read, and waits until that is noted, up to `timeout` seconds: without it the next step's coming says so.
        Of a step that is not a reader's last one it does nothing."""
        if self._reader is not None and not self._reader.closed:
            self._reader.release(self._native, timeout)

    def to_xarray(self) -> xarray.Dataset:
        """The step as an `xarray.Dataset`: nothing is read before it is used. Attributes are those of the dataset, and `NAME/ATTRIBUTE` of
        the variable NAME. Dimensions are called as the attribute `NAME/_ARRAY_DIMENSIONS` says, a list of strings, or `NAME_dim_0`, ….
        Local arrays are left out: they are no whole. Raises `ImportError` without xarray."""
        from thalweg import _xarray

        return _xarray.dataset(self)

    def __getitem__(self, name: str) -> Variable:
        if name not in self:
            raise KeyError(name)
        return Variable(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._known()

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _known(self) -> dict[str, None]:
        if self._names is None:
            self._names = dict.fromkeys(self._native.names())
        return self._names

    def __repr__(self) -> str:
        return f"Step({self.number} of run {self.run}, {len(self)} variables, {self.nbytes} bytes)"


class Variable:
    """A variable of a step, of which nothing is read before it is indexed, by integers, slices of positive steps and `...`;
    `numpy.asarray` reads all of it."""

    def __init__(self, step: Step, name: str) -> None:
        self._native = step._native
        _, kind, dtype, shape, count = self._native.variable(name)
        self._name, self._kind, self._count = name, kind, count
        self._text = dtype
        self._shape = tuple(shape)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def kind(self) -> str:
        """How its blocks make a whole: `"array"`, `"joined"`; `"value"`, one for all; `"local value"`,
        one of each rank; or `"local"`: each block is an array by itself."""
        return self._kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the whole. Of a local array empty: its blocks have shapes."""
        return self._shape

    @property
    def ndim(self) -> int:
        """How many dimensions the whole has."""
        return len(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements, as it was put. Text of any length is of Python objects."""
        return np.dtype(object) if self._text == _steps.TEXT else _steps.dtype_of(self._text)

    @property
    def blocks(self) -> list[Block]:
        """Its blocks in the order of the ranks, and of a rank's puts."""
        blocks = self._native.blocks(self._name)
        return [Block(self, index, *block) for index, block in enumerate(blocks)]

    @property
    def min(self) -> Any:
        """Its least element, or None if that is not known. Nothing is read."""
        return _steps.extreme(self._text, self._native.extremes(self._name)[0])

    @property
    def max(self) -> Any:
        """Its greatest element, or None if that is not known. Nothing is read."""
        return _steps.extreme(self._text, self._native.extremes(self._name)[1])

    def read(self, index: _Index = ..., *, out: _Array | None = None) -> Any:
        """As `variable[index]`, into `out` if that is given: an array of the right shape and dtype,
        whose elements that nobody has put stay what they were. Raises as `Step.get_many`."""
        get = self._get(index, out)
        _steps.read(self._native, [get])
        return get.result()

    def __getitem__(self, index: _Index) -> Any:
        return self.read(index)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError(f"variable {self._name!r} has no dimensions")
        return self._shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> _Array:
        if copy is False:
            raise ValueError("a variable is read: there is no array of it before")
        array = np.asarray(self.read())
        return array if dtype is None else array.astype(dtype, copy=False)

    def _get(self, index: _Index, out: _Array | None) -> _steps.Get:
        if self._kind == "local":
            if index is not ... or self._count != 1:
                raise IndexError(
                    f"variable {self._name!r} is local: its {self._count} blocks are arrays by "
                    f"themselves, .blocks[i][...] reads one"
                )
            block = self.blocks[0]
            return _steps.Get(self, 0, block.shape, index, out)
        return _steps.Get(self, None, self._shape, index, out)

    def __repr__(self) -> str:
        return f"Variable({self._name!r}, {self._kind}, shape {self._shape}, {self.dtype})"


class Block:
    """A block of a variable as a rank has put it; indexed as a `Variable` is, from its own beginning."""

    def __init__(
        self,
        variable: Variable,
        index: int,
        rank: int,
        start: Sequence[int],
        shape: Sequence[int],
        least: bytes,
        greatest: bytes,
    ) -> None:
        self._variable, self._index = variable, index
        self._rank, self._start, self._shape = rank, tuple(start), tuple(shape)
        self._least, self._greatest = least, greatest

    @property
    def rank(self) -> int:
        """Which rank has put it."""
        return self._rank

    @property
    def start(self) -> tuple[int, ...]:
        """Where it begins in the whole; of a local array zeros."""
        return self._start

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return self._variable.dtype

    @property
    def min(self) -> Any:
        """Its least element, or None if that is not known."""
        return _steps.extreme(self._variable._text, self._least)

    @property
    def max(self) -> Any:
        """Its greatest element, or None if that is not known."""
        return _steps.extreme(self._variable._text, self._greatest)

    def read(self, index: _Index = ..., *, out: _Array | None = None) -> Any:
        """As `Variable.read`."""
        get = _steps.Get(self._variable, self._index, self._shape, index, out)
        _steps.read(self._variable._native, [get])
        return get.result()

    def __getitem__(self, index: _Index) -> Any:
        return self.read(index)

    def __repr__(self) -> str:
        return f"Block(rank {self.rank}, start {self.start}, shape {self.shape})"


# What is stored.


@dataclass(frozen=True)
class Run:
    """A run of a stream, of which something is stored."""

    number: int
    """Its number; runs of a stream count from 1."""
    writer: str
    """The name of the writing program."""
    ranks: int
    """How many ranks write."""
    state: Literal["open", "closed", "broken"]
    """Whether it is being written, was closed by all ranks, or ended without that."""
    reason: str | None
    """Why it is broken."""
    first: int | None
    """The number of the first step that is stored; None if there is none."""
    last: int | None
    """The number of the last one."""
    count: int
    """How many steps are stored."""
    discarded: int
    """How many were dropped because the queue was full."""
    nbytes: int
    """Bytes of data of the stored steps."""
    first_time: int
    """When its first stored record was made, nanoseconds since 1970."""
    last_time: int
    """When its last one was."""


def runs(source: Driver | Topic, stream: str | None = None) -> list[Run]:
    """The runs of a stream that are stored now, in order. No data is read, and nobody's position moves.

    Raises `UnknownTopic`, `InvalidArgument` of a topic that is no stream, `Timeout`.
    """
    return _runs(_StepStream(_steps.opened(source), stream))


def _runs(native: _StepStream) -> list[Run]:
    found = []
    for (number, writer, ranks, state, reason), span, (count, *rest) in native.runs():
        first, last = span or (None, None)
        why = reason if state == "broken" else None
        found.append(Run(number, writer, ranks, state, why, first, last, count, *rest))
    return found


def create_stream(
    driver: Driver,
    stream: str,
    *,
    partitions: int = 1,
    storage: str = "disk",
    retention: Mapping[str, Any] | None = None,
    durability: _Durability | None = None,
) -> None:
    """Makes a stream that is not there, so that readers may begin before its writers; a stream that is there stays as it is. The arguments
    are those of `Writer`, which makes its stream as well.

    Raises `InvalidArgument`, also of a topic that is no stream, `InvalidTopic`, `Timeout`.
    """
    _StepStream.create(
        _steps.opened(driver),
        stream,
        partitions=partitions,
        storage=storage,
        retention=_steps.retention(retention),
        durability=durability,
    )


class StoredRun(Sequence[Step]):
    """The steps of a run that were stored when it was opened, in order: `stored[0]` is the first of them, `stored[-1]` the last, a slice a
    list. Nobody's position moves, and nothing of a step's data is read before it is indexed. Usable by several threads; it may be
    pickled into another process, which makes a connection of its own."""

    def __init__(
        self,
        source: Driver | Topic,
        stream: str | None,
        number: int,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self._source, self._stream, self._number = source, stream, number
        self._native = _StepStream(_steps.opened(source), stream)
        self._steps = list(self._native.steps(number) if numbers is None else numbers)

    @property
    def number(self) -> int:
        """The number of the run."""
        return self._number

    @property
    def numbers(self) -> list[int]:
        """The numbers of its steps. They need not be dense: steps may have been discarded, or taken by retention."""
        return list(self._steps)

    def step(self, number: int) -> Step:
        """The step of that number. Raises `OutOfRange` if it is not stored (any more), `Timeout`."""
        return Step(self._native.step(self._number, number))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Step | list[Step]:
        if isinstance(index, slice):
            return [self.step(number) for number in self._steps[index]]
        return self.step(self._steps[index])

    def __len__(self) -> int:
        return len(self._steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRun, (self._source, self._stream, self._number, self._steps)

    def __repr__(self) -> str:
        return f"StoredRun({self._number}, {len(self)} steps)"


def open_run(source: Driver | Topic, stream: str | None = None, run: int = -1) -> StoredRun:
    """The stored steps of a run, to be read in any order, also while it is written: what is committed later is not among them.

    - `run`: the number of a run, or, negative, the last (-1), the one before that (-2).

    Raises `OutOfRange` if there is no such run, and as `runs`.
    """
    numbers = [one.number for one in runs(source, stream)]
    try:
        number = numbers[run] if run < 0 else numbers[numbers.index(run)]
    except (IndexError, ValueError):
        raise OutOfRange(f"there is no run {run}; those that are stored: {numbers}") from None
    return StoredRun(source, stream, number)


def open_dataset(
    source: Driver | Topic,
    stream: str | None = None,
    run: int = -1,
    *,
    chunks: Mapping[str, int] | None = None,
) -> xarray.Dataset:
    """The stored steps of a run as an `xarray.Dataset` with a dimension `step`, of which nothing is read before it is used.

    - `run`: the number of a run, or, negative, the last (-1), the one before that (-2).
    - `chunks`: has arrays of dask, whose chunks are a step each and the blocks that were written, as far as these are a grid; or so
      many elements along the dimensions that are named here, -1 being all: `{"step": 10}`. `{}` is the blocks. dask computes them in
      threads or other processes. None does without dask.

    Variables are those of the first stored step that have one shape and dtype in all steps that are read; each step that is needed is
    asked for once. The coordinate `step` has the steps' numbers; dimensions and attributes are as of `Step.to_xarray`, those of the
    last step. What the first and the last step do not have alike is left out: joined arrays whose length varies, for example.

    Raises `ImportError` without xarray, or dask where it is asked for, `OutOfRange` if there is no such run or it has no steps, and as
    `runs`.
    """
    from thalweg import _xarray

    stored = open_run(source, stream, run)
    if not stored:
        raise OutOfRange(f"run {stored.number} has no steps that are stored")
    return _xarray.stacked(stored, chunks)
