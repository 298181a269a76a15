# What the extension module offers, for type checkers and editors. The words
# are the docstrings of the module itself: help(thalweg.Driver).

import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import GenericAlias, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, SupportsIndex, TypeAlias, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, TypeVar, disjoint_base

from thalweg.descriptions import Cursor, Gap, Gathered, Lag, NodeDescription, PartitionDescription, TopicDescription
from thalweg.plugins import Plugin

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import xarray

__all__ = [
    "__version__",
    "Driver",
    "Topic",
    "Producer",
    "Future",
    "EventId",
    "Consumer",
    "Reader",
    "Event",
    "QueueConsumer",
    "QueueEvent",
    "Drain",
    "Requester",
    "DataView",
    "_StepWriter",
    "_StepReader",
    "_StepView",
    "_StepStream",
    "_unhex",
    "_close_all",
    "_stop_callbacks",
]

__version__: str

# A `Future` that says no more is one of a push.
_T_co = TypeVar("_T_co", covariant=True, default=EventId)

# numpy says only from Python 3.12 on that its arrays are buffers.
_Buffer: TypeAlias = Buffer | np.ndarray[Any, Any] | np.generic
_Metadata: TypeAlias = Mapping[str, Any] | Sequence[Any] | str | Buffer | float | None
_Data: TypeAlias = _Buffer | Sequence[_Buffer] | None
_Headers: TypeAlias = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]
_Storage: TypeAlias = str | tuple[str, dict[str, Any]]
_Durability: TypeAlias = Literal["memory", "written", "synced"]
_Selector: TypeAlias = Callable[[Any, "DataView"], "DataView | None"]
_Allocator: TypeAlias = Callable[[Any, "DataView"], _Buffer]
# A point in time, or how long ago it was.
_Time: TypeAlias = datetime | timedelta | np.datetime64 | np.timedelta64
# A place in a topic: a word or a time as text, an offset, the last events, an event, a time.
_Place: TypeAlias = "str | int | EventId | _Time"

@final
class Driver:
    """A connection to a server, from which topics come.

    `Driver("thalweg.json")` connects by the group file that `thalweg serve`
    writes, and `Driver()` by the one that the environment names
    (`THALWEG_GROUP_FILE`), or by `thalweg.json`; a `thalweg://` URL, in such a file, as `address` or in
    `THALWEG_URL`, is all that it needs; `Driver(address="tcp://host:port", token=…)` without one, the token
    being the group file's, as bytes or hexadecimal; `Driver.embedded(path)`
    runs the server in this process.

    One driver serves a whole program: it may be used by all threads, and in
    children after `os.fork()`, which make connections of their own. It may be
    pickled, as may topics, producers, consumers and requesters: in another
    process the like is opened, with a connection of its own, when it is first
    used; a pickle holds the token, if one was given. A driver
    reconnects by itself, to a server that was restarted, too. Use it in a
    `with` block, or call `close`: both wait until everything that was pushed
    is acknowledged, as the end of the interpreter does.

    - `credential`: a file with a token, as `thalweg token new` makes it: who
      the program is, in place of the group file's token. By default the file that
      `THALWEG_CREDENTIAL` names, if it names one. The file is read for each connection,
      and before the token expires: a new token in it goes on. A minute before the
      end, the logger `thalweg` has a warning.
    - `namespace`: the namespace of all names; empty is the default one, or, with a
      credential, the project that it is for.
    - `client_name`: for the server's log and `thalweg status`.
    - `connect_timeout`: seconds until the first connection has to be there; a
      group file that is not there yet is waited for as long. By default 10, and
      a group file that is not there is an error at once.
    - `request_timeout`: seconds that the server may take over a request.
    - `reconnect_timeout`: for how many seconds a lost server may be away before
      pulls and iteration raise `Unreachable`; None is for ever. Whoever waits
      without a deadline meanwhile is logged every 10 s as a warning of the
      logger `thalweg`, and when it waits once more after that, that it goes on.
    - `memory_bytes_max`: bytes that producers and consumers hold together at
      most, 512 MiB by default. Each has a share: what it wants, or a quarter of
      what is left; where that is less than a 512th of all, each further one
      has a 512th (64 KiB to 1 MiB), beyond the bound.
    - `stripes`: how many connections to the server there may be, 1 to 16, which carry
      its bytes together, over `tcp://` and `tls://`: for a long line on which one does
      not reach the rate of the line. They are opened one at a time, while that helps.

    Raises `Unreachable`, `WrongServer`, `NotAllowed`, `Timeout`.
    """
    def __new__(
        cls,
        group_file: str | os.PathLike[str] | None = None,
        *,
        address: str | None = None,
        token: bytes | str | None = None,
        credential: str | os.PathLike[str] | None = None,
        namespace: str = "",
        client_name: str | None = None,
        connect_timeout: float | None = None,
        request_timeout: float = 120.0,
        reconnect_timeout: float | None = None,
        memory_bytes_max: int | None = None,
        stripes: int = 1,
    ) -> Self: ...
    @staticmethod
    def embedded(
        path: str | os.PathLike[str],
        *,
        settings: dict[str, Any] | None = None,
        namespace: str = "",
        client_name: str | None = None,
        connect_timeout: float = 10.0,
        request_timeout: float = 120.0,
        reconnect_timeout: float | None = None,
        memory_bytes_max: int | None = None,
    ) -> Driver:
        """Runs a server in this process, on the data directory `path`, and
        connects to it without a network: nobody else can.

        The directory is made if it is not there, and can be served by `thalweg
        serve` later. Closing the driver ends the server. What the server has
        to say goes to the logger `thalweg.server`. `settings` are those of
        `thalweg serve`, such as `{"memory_bytes_max": "1GiB"}`; the other
        arguments those of `Driver`. Not usable in a child after `os.fork()`.

        Raises `ServerError` if the server can't be started, for example
        because another one owns the directory.
        """
    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        storage: _Storage | list[_Storage] | None = None,
        validator: Literal["none", "json"] | dict[str, Any] | Plugin | None = None,
        partition_selector: Literal["round_robin", "random", "key_hash", "explicit"]
        | dict[str, Any]
        | Plugin
        | None = None,
        serializer: Literal["json", "raw", "msgpack"] | dict[str, Any] | Plugin | None = None,
        durability: _Durability | None = None,
        retention: str | dict[str, int | str] | None = None,
        keep_until_acknowledged: Sequence[str] | None = None,
        overflow: Literal["grow", "block", "reject", "drop_oldest", "drop_newest"]
        | dict[str, Any]
        | None = None,
        metadata_bytes_max: int | None = None,
        data_block_bytes: int | None = None,
        validate_on_server: bool = False,
        spread: bool = False,
        placement: Mapping[str, str | int] | None = None,
        beside: str | None = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Makes a topic, and opens it.

        - `partitions`: how many, 1 by default; 0 is allowed, for
          `add_partitions` to fill. Each keeps the order of its events.
        - `storage`: how they are stored: `"disk"` or `"memory"`, the pair of a
          kind and a dict with its configuration, or a list with one such for
          each partition.
        - `validator`: what is checked of metadata: None nothing, `"json"` that
          it is JSON, a dict that it matches this JSON Schema (draft 2020-12), or
          `{"type": "eventbridge", "pattern": {...}}` that it matches the pattern.
        - `partition_selector`: `"round_robin"`, `"random"`, `"key_hash"` or
          `"explicit"`; or a dict with its `type` and settings, such as
          `{"type": "field_hash", "field": "sensor.id"}` or `{"type":
          "field_range", "field": "energy", "boundaries": [0, 10, 100]}`.
        - `serializer`: `"json"`, `"msgpack"` for JSON that is stored and sent as
          MessagePack, `"raw"` for metadata that is bytes, or `{"type": "schema",
          "schema": {...}}` for JSON that is stored without what the schema says.
        - each of the three: a `Plugin`.
        - `durability`: what an acknowledgement survives: `"memory"` nothing,
          `"written"` the death of the server, `"synced"` power loss; None is
          the strongest that the storage allows.
        - `retention`: what is kept at most: the size of the topic, an age, or
          both (`"40GB"`, `"7d"`, `"40GB,7d"`); or a dict of `total_bytes` of the
          topic, and of each partition `bytes`, `age` or `age_ms`, `count`, sizes
          as numbers or text such as `"512MiB"`. None keeps everything.
        - `keep_until_acknowledged`: names of consumers; what one of them has not
          acknowledged is kept, whatever `retention` says. Without `retention`
          the rest is dropped.
        - `overflow`: what happens when those consumers are so far behind that
          `retention` would be exceeded: `"grow"`, `"block"`, `"reject"`,
          `"drop_oldest"`, `"drop_newest"`, or a dict such as `{"type":
          "sample", "one_in": 10}`.
        - `metadata_bytes_max`: limit of an event's metadata, 1 MiB by default.
        - `data_block_bytes`: how much data one checksum covers, 4096 by default.
        - `validate_on_server`: whether the server checks metadata, too.
        - `spread`: whether the partitions are spread over the nodes of a cluster:
          each is a topic by itself, `"NAME/INDEX"`, and programs see one topic.
        - `placement`: labels of the servers of a cluster on which it is made:
          `{"rank": 1}`, `{"host": "node7"}`, or the operator's own; None is any.
        - `beside`: the name of a topic on whose shard of the server this one is
          made, as that of the dead letters of its queues has to be; None leaves
          that to the name. Raises `UnknownTopic` if there is none.
        - `exist_ok`: if there is a topic of that name, it is opened as it is.
          A `UserWarning` names what differs of what was given; `Topic.alter`
          changes it.

        Raises `TopicExists`, and `InvalidTopic` with the reason; nothing is
        made then.
        """
    def open_topic(self, name: str, /) -> Topic:
        """Opens a topic. Raises `UnknownTopic`."""
    def topic_exists(self, name: str, /) -> bool:
        """Whether there is a topic of that name."""
    def delete_topic(self, name: str, /) -> None:
        """Deletes a topic with its events, cursors and gaps. Raises `UnknownTopic`."""
    def list_topics(self) -> list[TopicDescription]:
        """All topics of the namespace, a list of `TopicDescription` by name."""
    def list_nodes(self) -> list[NodeDescription]:
        """The nodes of the server's cluster, a list of `NodeDescription` by
        number; empty if the server is alone. Raises `NotAllowed` if this driver
        may not administer the server.
        """
    def describe_topic(self, name: str, /) -> TopicDescription:
        """A topic's definition and partitions as they are now, a `TopicDescription`."""
    def add_partitions(
        self,
        name: str,
        partitions: int | None = None,
        *,
        storage: _Storage | list[_Storage] | None = None,
        placement: Mapping[str, str | int] | None = None,
    ) -> TopicDescription:
        """Adds `partitions` partitions to a live topic; `storage` as for
        `create_topic`, and so is `placement`, for a topic that is spread. Producers
        and consumers that are open go on, and use them.
        """
    def alter_topic(self, name: str, /, **changes: Any) -> TopicDescription:
        """Changes the definition of a live topic: `validator`, `retention`,
        `keep_until_acknowledged`, `overflow` and `metadata_bytes_max`, each as in a topic's
        definition (`{"type": "json"}`), or None for its default. What is not
        named stays. Durable when it returns; a new validator holds for
        producers that are open as soon as they have looked, within ten seconds
        or when they refuse an event.

        Raises `UnknownTopic`, and `InvalidTopic` with the reason; nothing is
        changed then.
        """
    def cursors(self, topic: Topic, consumer: str = "") -> list[Cursor]:
        """The cursors of a topic's consumers, or of one: a list of `Cursor`."""
    def seek(
        self, topic: Topic, consumer: str, partition: int, position: int | EventId
    ) -> None:
        """Moves a consumer's durable cursor in one partition, backwards too, to
        the event with the offset or `EventId` `position`. For consumers that
        are not running; a running one has `Consumer.seek`.
        """
    def delete_consumer(self, topic: Topic, consumer: str) -> None:
        """Forgets all cursors of a consumer of a topic."""
    def gaps(self, name: str, /) -> list[Gap]:
        """Every loss recorded for a topic: a list of `Gap`."""
    def status(self) -> dict[str, Any]:
        """The server's state, as a dict."""
    def shutdown_server(self) -> None:
        """Has the server drain and end."""
    def close(self, timeout: float | None = 120.0) -> None:
        """Waits until everything that was pushed is acknowledged, up to `timeout`
        seconds, and closes the connection, with all producers and consumers.
        A second call does nothing.
        """
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...

@final
class Topic:
    """A topic of a server: where producers and consumers come from.

    Made by `Driver.create_topic` and `Driver.open_topic`. Holds no resource of
    its own; usable by several threads, and in a child after `os.fork()`.
    """
    @property
    def name(self) -> str:
        """The topic's name."""
    @property
    def id(self) -> str:
        """32 hexadecimal digits; a new topic of the same name has another id."""
    @property
    def definition(self) -> dict[str, Any]:
        """The definition that is stored with the topic, as last known, as a dict.
        Does not block; `refresh` asks the server.
        """
    @property
    def partitions(self) -> tuple[PartitionDescription, ...]:
        """The partitions as last known, a tuple of `PartitionDescription`. Does
        not block; `refresh` asks the server.
        """
    def refresh(self) -> None:
        """Asks the server for the topic's partitions as they are now."""
    def producer(
        self,
        name: str | None = None,
        *,
        batch: Literal["adaptive"] | int | None = None,
        batch_bytes: int | None = None,
        linger_ms: float | None = None,
        batches_in_flight: int = 4,
        budget_bytes: int | None = None,
        at_budget: Literal["block", "fail"] = "block",
        block_timeout: float = 120.0,
        durability: _Durability | None = None,
        journal: str | os.PathLike[str] | None = None,
        ack_timeout: float = 120.0,
        threads: int = 0,
        ordering: Literal["strict", "loose"] = "strict",
        check_borrowed: bool = False,
    ) -> Producer:
        """Opens a producer.

        - `name`: under it the producer keeps its identity across restarts of
          the program; opening it again fences the one before.
        - `batch`: `"adaptive"` sends what has gathered as soon as the batch
          before it is acknowledged; a number of events sends batches of that
          many (a flush, a close or a wait for a future sends what there is).
        - `batch_bytes`: the most bytes in a batch, 1 MiB by default.
        - `linger_ms`: how long a batch that is not full waits, milliseconds.
        - `batches_in_flight`: sent and not acknowledged, for each partition.
        - `budget_bytes`: bytes of events held until they are acknowledged, 64
          MiB by default; one larger event is let in alone.
        - `at_budget`: `"block"` lets `push` wait for space up to
          `block_timeout` seconds, `"fail"` raises `BudgetExceeded` at once.
        - `durability`: what an acknowledgement must mean, if more than the
          topic promises.
        - `journal`: a file to which every acknowledged batch is appended, for
          `thalweg audit`.
        - `ack_timeout`: seconds until an acknowledgement that does not come is
          an error. Opening the producer takes no longer either, or as long as
          the driver's `request_timeout`, if that is less.
        - `threads`: with 0, `push` validates and serializes, and raises what is
          wrong; with more, so many threads do, and the future raises it. Worth
          it for schemas and plugins that take long, not for those in Python.
        - `ordering`: how events leave the threads: `"strict"`, in the order of
          pushing, or `"loose"`, as they are done.
        - `check_borrowed`: to look for mistakes: whether data that was pushed
          with `borrow` is compared, when it is sent, with what it was when it was
          pushed. If it was changed, the event is not stored, and its future and
          all that follows raise `DataChanged`. Without it such an event is stored
          with what its memory held when it was sent. Costs a checksum of it.

        Raises `InvalidArgument`, `UnknownTopic`, `Timeout`, `Unreachable`.
        """
    def consumer(
        self,
        name: str,
        *,
        start: _Place | None = None,
        partitions: Sequence[int] | None = None,
        data: bool | _Selector | None = None,
        allocator: _Allocator | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        credit_bytes: int | None = None,
        merge_wait: float | None = None,
        inline_along: bool = False,
        latest: bool = False,
    ) -> Consumer:
        """Opens a consumer.

        - `name`: its cursors are kept under this name. Several consumers of
          one name each get everything and share the greatest cursor.
        - `start`: `"cursor"` begins behind the last acknowledged event, for a
          new name at the first one; `"cursor_or_latest"` for a new name behind
          the last one; `"beginning"`, `"latest"`, an offset (in each
          partition), the `EventId` of the first event wanted, or a negative number:
          with so many last events of each partition. A time begins with the first batch
          that the server took then or later: an aware datetime, a `datetime64` (UTC), a
          timedelta (so long ago), or a str such as `"-15m"`, `"-7d"`, `"2026-11-23"` or
          `"2026-11-23 04:00"` (of this machine's time zone), `"2026-11-23T04:00:00Z"`.
        - `partitions`: the indices of those to read; None reads all.
        - `data`: True gets all data of every event, False none. A function
          `select(metadata, data)` gets the parsed metadata and a `DataView` of
          the whole and returns a `DataView` of what is wanted, or None; only
          that travels.
        - `allocator`: a function `allocate(metadata, view)` that returns a
          writable buffer of `view.nbytes` bytes, such as a numpy array. The
          data is received in it without a copy; it is `event.buffer` then. Without
          one, and without a function `data`, large data is read as soon as its
          event arrives, for up to two batches, into memory that is used again
          once nobody has a view of it any more.
        - `inline_along`: True brings short data along with its event, and the
          function `data` picks from it here; to ask the server for what it
          picked, batch by batch, costs more where that is most of it. False
          brings nothing but what was picked.
        - `on_gap`: a function `on_gap(gap)` that is called when events are
          lost, instead of a `GapWarning`.
        - `credit_bytes`: bytes of batches that may wait here for each
          partition, 16 MiB by default.
        - `merge_wait`: events of all partitions come in the order in which the
          server appended them. One is held back while there may be an older
          one: until every partition has one here, or for this many seconds (a
          quarter more at most) after it arrived; what comes later still is
          handed out at once. With None partitions take turns.
        - `latest`: True for viewers: of each partition only the newest event comes. One that
          has not been pulled when a newer one arrives is passed over, and counted by
          `Consumer.skipped`; one at most waits here, and the last event of a quiet topic
          always comes. Large data travels when its event is pulled. Begins with the newest
          event there is (-1), unless `start` says where the count is to begin. Not with
          `merge_wait`.

        The functions are called on a thread that pulls. Raises
        `InvalidArgument`, `UnknownPartition`, `OutOfRange`, `Timeout`,
        `Unreachable`.
        """
    def read(
        self,
        *,
        start: _Place | None = None,
        end: _Place | Mapping[int, int | EventId] | None = None,
        partitions: Sequence[int] | None = None,
        data: bool | _Selector | None = None,
        allocator: _Allocator | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        credit_bytes: int | None = None,
    ) -> Reader:
        """Reads what the topic has now, or a part of that, and ends: without a name
        and a cursor. Use it in a `with` block, or iterate to the end.

        - `start`: `"beginning"` (also None), or a place as for `consumer`: an offset (in
          each partition), `-10` for the last ten events of each, an `EventId`, a time.
        - `end`: `"now"` ends behind what is visible when the read begins, so
          also while events are pushed. Others end there too, or sooner: a time, as
          for `start`, before the first event that the server appended then or
          later; an offset (in each partition) or an `EventId` (in its partition)
          before that event; a dict has an offset or an `EventId` for each
          partition that is to end sooner.
        - `partitions`: the indices of those to read; None reads all.
        - `data`, `allocator`, `on_gap`, `credit_bytes`: as for `consumer`.

        The functions are called on a thread that iterates. Blocks until the server
        has said where the topic ends. Raises `InvalidArgument`, `UnknownPartition`,
        `StorageError` if what a partition has is not known, `Timeout`, `Unreachable`.
        """
    def group(
        self,
        name: str,
        *,
        start: Literal["beginning", "latest"] = "beginning",
        instance: str | None = None,
        session_timeout: float = 10.0,
        processing_timeout: float | None = None,
        revoke_timeout: float = 30.0,
        on_assigned: Callable[[list[int]], object] | None = None,
        on_revoking: Callable[[list[int]], object] | None = None,
        on_lost: Callable[[list[int]], object] | None = None,
        data: bool | _Selector | None = None,
        allocator: _Allocator | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        credit_bytes: int | None = None,
        inline_along: bool = False,
    ) -> Consumer:
        """Joins a group: its members, in any number of programs, share the
        topic's partitions, and each reads those that it is assigned, in order.

        - `name`: the group's; made if it is not known. A name that is a queue's or
          an independent consumer's is refused.
        - `start`: where a new group begins: `"beginning"` or `"latest"`. A
          known one goes on behind what was acknowledged.
        - `instance`: a name of this member: a program that comes back under
          the same one within the session timeout takes over the partitions of
          its predecessor, and fences it.
        - `session_timeout`: seconds that the server may hear nothing of this
          program before its partitions go to others. The client gives signs of
          life by itself.
        - `processing_timeout`: seconds that the program may stay away from its
          consumer; then it leaves by itself. None is for ever.
        - `revoke_timeout`: seconds that a member has to release a partition that
          goes to another; the group's, set by whoever uses the name first.
        - `on_assigned`, `on_revoking`, `on_lost`: functions that are called
          with a list of partition indices: those that came, those that are to
          go, and those that were taken away already. When `on_revoking`
          returns, what was acknowledged is sent and the partitions are
          released: acknowledge there what is finished. What is acknowledged
          of a lost partition raises `MemberFenced`.
        - `data`, `allocator`, `inline_along`, `on_gap`, `credit_bytes`: as for
          `consumer`.

        The functions are called on a thread that pulls, from within the pull:
        a program that does not pull loses partitions after the revoke timeout.
        What they raise is raised by the pull; the partitions have come or gone
        all the same. Events of a partition that went are not pulled any more.
        Raises `InvalidArgument`, `Timeout`, `Unreachable`.
        """
    def queue(
        self,
        name: str,
        *,
        lease: float = 30.0,
        deliveries_max: int = 20,
        dead_letter_topic: str | None = None,
        ordered_by_key: bool = False,
        start: Literal["beginning", "latest"] = "beginning",
        instance: str | None = None,
        session_timeout: float = 10.0,
        processing_timeout: float | None = None,
        prefetch: int = 256,
        prefetch_bytes: int | None = None,
        data: bool | _Selector | None = None,
        allocator: _Allocator | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        renew: bool = False,
        job_end: float | datetime | Literal[False] | None = None,
        wind_down: float = 60.0,
    ) -> QueueConsumer:
        """Joins a queue: its members, in any number of programs, share the
        topic's events, each under a lease.

        - `name`: the queue's; made if it is not known. A name that is a group's or
          an independent consumer's is refused.
        - `lease`: seconds that a member has to settle an event, or to extend
          its lease; then others get it.
        - `deliveries_max`: how often an event is delivered at most; 0 is without limit.
        - `dead_letter_topic`: where an event goes that is rejected, or comes
          back after its last delivery; the topic's name with `.dead` behind it
          by default. Made if it is missing.
        - `ordered_by_key`: while an event of a key is out, no later one of
          that key is given out.
        - `start`: where a new queue begins: `"beginning"` or `"latest"`.
        - `instance`: a name of this member: a program that comes back under
          the same one within the session timeout takes over what its
          predecessor held, and fences it.
        - `session_timeout`: seconds that the server may hear nothing of this
          program before its events go to others. The client gives signs of
          life by itself.
        - `processing_timeout`: seconds that the program may stay away from its
          consumer; then it leaves by itself. None is for ever.
        - `prefetch`, `prefetch_bytes`: the most events, and bytes of them (16
          MiB by default), that are here and not settled. With long tasks use
          few, so that no worker waits for what lies with another.
        - `data`, `allocator`, `on_gap`: as for `consumer`.
        - `renew`: whether leases of pulled events are extended in the
          background, however long the program takes.
        - `job_end`: when the batch job ends: seconds since 1970, or an aware
          datetime; None is what the batch system says in the environment
          (`SLURM_JOB_END_TIME`), False never. From `wind_down` seconds before it
          on nothing new is handed out and iteration ends; a quarter of that
          before it, what is not settled goes to others, uncounted.

        `lease`, `deliveries_max`, `dead_letter_topic` and `ordered_by_key` are the
        queue's: whoever uses the name first sets them, others get what was set
        (`QueueConsumer.options`). Durable when it returns. Raises
        `InvalidArgument`, `Timeout`, `Unreachable`.
        """
    def requester(
        self,
        *,
        data: bool = True,
        budget_bytes: int | None = None,
        block_timeout: float = 120.0,
        durability: _Durability | None = None,
    ) -> Requester:
        """Opens a requester: it sends requests to this topic, whose workers are
        members of a queue, and gets their replies.

        Replies come over the topic `TOPIC.replies`, which is made if it is
        missing.

        - `data`: whether data of replies is wanted; without it they have
          metadata alone.
        - `budget_bytes`: bytes of requests held until they are stored, 64 MiB
          by default; one larger request is let in alone. At that bound a
          request waits for space, up to `block_timeout` seconds.
        - `durability`: what a request survives, if more than the topic promises.

        Raises `InvalidArgument`, `Timeout`, `Unreachable`.
        """
    def fetch(
        self,
        partition: int,
        position: int | EventId,
        *,
        bytes_max: int = 1048576,
        timeout: float = 0.0,
    ) -> list[Event]:
        """Reads events of one partition without a consumer: no subscription, no
        cursor. Returns a list, empty if there is nothing.

        `position` is the offset or the `EventId` to begin at; `bytes_max` the
        most bytes of batches, of which at least one comes; `timeout` the
        seconds to wait for a first event. The events have no data with them:
        `read_data` reads what is wanted of it. Events that are gone are
        skipped with a `GapWarning`.

        Raises `OutOfRange`, `UnknownPartition`, `Damaged`.
        """
    def explain(self, consumer: str | None = None) -> str:
        """Why the consumer, group or queue of this name gets no event now, or, with None, why
        nobody does: one sentence, and in a second line the command that looks further, as
        `thalweg why` says it. Asks the server. Raises `Unreachable`.
        """
    def alter(self, **changes: Any) -> TopicDescription:
        """Changes the topic's definition, as `Driver.alter_topic` does."""
    def delete(self) -> None:
        """Deletes the topic with its events, cursors and gaps. Raises `UnknownTopic`."""
    def gaps(self) -> list[Gap]:
        """Every loss recorded for the topic: a list of `Gap`."""
    def lag(self) -> list[Lag]:
        """How far each consumer, group and queue of the topic is behind: a list of `Lag`, as `thalweg lag`
        prints it. Asks the server. Raises `UnknownTopic`, `Timeout`, `Unreachable`.
        """
    def cursors(self, consumer: str = "") -> list[Cursor]:
        """The cursors of the topic's consumers, or of one: a list of `Cursor`."""
    def seek(
        self, consumer: str, to: _Place, *, partitions: Sequence[int] | None = None
    ) -> list[Cursor]:
        """Moves a consumer's durable cursors, backwards too, to where `to` is: a place as
        `start` of `consumer`. `partitions` are the indices of those that are meant, None all;
        of an `EventId` it is its own. Returns where the cursors are now, a list of `Cursor`.
        For consumers that are not running; a running one has `Consumer.seek`.

        Raises `InvalidArgument`, `OutOfRange`, `UnknownPartition`, `Timeout`, `Unreachable`.
        """
    def delete_consumer(self, consumer: str) -> None:
        """Forgets all cursors of a consumer of the topic."""
    def read_data(
        self, event: Event, view: DataView | None = None, *, buffer: _Buffer | None = None
    ) -> Any:
        """Reads data of one event, all of it or what `view` selects.

        `event` is an `Event`, however it was got; `view` a `DataView` of its
        data, `thalweg.DataView(event.data_size)` being the whole; `buffer` a
        writable, contiguous buffer of as many bytes as are selected, in which
        the data is received without a copy. Returns `buffer`, or a read-only
        `memoryview` if there is none. The bytes are checked against the
        checksums that the producer made.

        Raises `InvalidArgument`, `OutOfRange`, `Damaged`.
        """
    def _driver(self) -> Driver:
        """The driver that it belongs to."""
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Producer:
    """Sends events to one topic.

    Made by `Topic.producer`. May be used by several threads; events of one
    thread keep their order within a partition. Use it in a `with` block, or
    call `close`: both wait until everything is acknowledged. Usable in a
    child after `os.fork()`, where it is another producer to the server.
    """
    def push(
        self,
        metadata: _Metadata = None,
        data: _Data = None,
        *,
        key: bytes | str | None = None,
        headers: _Headers | None = None,
        time: int | datetime | None = None,
        partition: int | None = None,
        tombstone: bool = False,
        borrow: bool = False,
    ) -> Future[EventId]:
        """Sends one event and returns its future at once.

        `metadata` is a dict (or anything else that has a JSON form), a str of
        JSON, bytes as they are, or None for none; that a str or bytes are JSON is
        checked only by a topic with a validator, such as `validator="json"`; an array or a table is data, and
        a NaN or an infinity, which JSON has not, is refused. `data` is anything with the
        buffer protocol, such as bytes or a numpy array in C order, or a list
        of such: then the event's data is their concatenation. Data is copied
        before `push` returns, without the GIL where it is large, and is yours to
        change or use again at once; `bytes`, which can't change, are kept in place
        of that. With `borrow`, data above 64 KiB is not copied: it is sent from
        where it lies and kept alive, and you promise not to change it until the
        future is resolved; `check_borrowed` of `Topic.producer` finds who does.

        `key` is bytes or str, `headers` a dict or a list of pairs of a str and
        bytes or str, `time` the producer's own time: nanoseconds since 1970 or
        an aware datetime. `partition` overrules the topic's selector;
        `tombstone` says that the event deletes its key.

        Does not block unless the producer's budget is full, see
        `Topic.producer`. Raises `InvalidEvent` if the event is refused,
        `UnknownPartition`, `BudgetExceeded`, `Closed`, and what the producer has
        failed with.
        """
    def push_array(
        self,
        array: npt.ArrayLike,
        metadata: Mapping[str, Any] | None = None,
        /,
        *,
        key: bytes | str | None = None,
        headers: _Headers | None = None,
        time: int | datetime | np.datetime64 | None = None,
        partition: int | None = None,
        borrow: bool = False,
        **fields: Any,
    ) -> Future[EventId]:
        """Sends an array as one event, which `Event.array` gives back, and returns its
        future at once.

        `array` is a numpy array, or what numpy makes one of, of any shape and of any
        dtype without Python objects, structured ones and Fortran's order too; one whose
        memory is not in one piece is copied. The event's metadata is `metadata`, a
        mapping or None, and `fields`, to which `dtype` and `shape` are added (and `order`
        `"F"`, if the first index changes fastest); its data is the array's bytes.
        `key`, `headers`, `time`, `partition` and `borrow` are as for `push`; a field of
        one of these names goes into `metadata`.

        Raises `InvalidArgument` for an array that bytes alone do not make again, and for
        a field that is there twice; and what `push` does.
        """
    def push_many(
        self,
        metadata: Iterable[_Metadata] | Mapping[str, Any] | str | bytes | None = None,
        data: Sequence[_Data] | _Buffer | None = None,
        *,
        partition: int | None = None,
        borrow: bool = False,
    ) -> list[Future[EventId]]:
        """Sends many events, in order, and returns their futures.

        `metadata` is a list with one entry an event, each as for `push`, or
        one dict, str or bytes (or None) for all of them. `data` is a list with
        one entry an event, each as for `push`, or an array of two or more
        dimensions in C order, whose first axis counts the events: event i has
        the data `data[i]`. Lists and arrays must agree in length. Data is copied
        before it returns, or borrowed with `borrow`, as by `push`.

        If an event is refused, those before it were sent; the error says so.
        """
    def flush(self, timeout: float | None = 120.0) -> None:
        """Waits until everything that was pushed before is acknowledged, up to
        `timeout` seconds; None waits for ever.

        Raises `Timeout`, which says what is outstanding, or what became of a push.
        """
    def begin_flush(self) -> Future[None]:
        """Returns at once, with the future of what `flush` waits for. What
        waits for its batch to be full is sent.
        """
    def close(self, timeout: float | None = 120.0) -> None:
        """Flushes, and takes no more events. A second call does nothing."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def name(self) -> str | None:
        """Its name, or None."""
    @property
    def id(self) -> str:
        """Its id, 32 hexadecimal digits; a named producer keeps it across restarts."""
    @property
    def epoch(self) -> int:
        """Which life of the producer this is; a newer one fences it."""
    @property
    def topic(self) -> Topic:
        """The topic that it sends to."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...

@final
class EventId:
    """Where an event is: its partition, the partition's life, and its offset.

    Ids are compared, hashed and pickled as the triple of numbers that they are.
    """
    def __new__(cls, partition: int, incarnation: int, offset: int) -> Self: ...
    @property
    def partition(self) -> int:
        """The partition's place in its topic, from 0."""
    @property
    def incarnation(self) -> int:
        """Which life of the partition, from 1: offsets mean something only within one."""
    @property
    def offset(self) -> int:
        """The event's place in the partition, from 0."""
    def __hash__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __lt__(self, value: EventId, /) -> bool: ...
    def __le__(self, value: EventId, /) -> bool: ...
    def __gt__(self, value: EventId, /) -> bool: ...
    def __ge__(self, value: EventId, /) -> bool: ...
    def __getnewargs__(self) -> tuple[int, int, int]: ...

@final
class Future(Generic[_T_co]):
    """What becomes of something that was begun: its result, once that is there,
    or an error.

    Of a push it is the event's id, once the event is as durable as the topic
    promises; until then data that was borrowed must not be changed. Of a flush
    (`begin_flush`) it is None, once all events before it are. Of a settlement
    (`acknowledge`, `return_to_queue`, `reject`) it is None, once that is
    durable; of a request the reply.

    Wait for it with `result`, in a coroutine with `await`, or not at all:
    `close` of a producer or consumer waits for what it has under way. May be
    used by several threads and tasks.
    """
    def result(self, timeout: float | None = None) -> _T_co:
        """The result, when it is there. Waits up to `timeout` seconds; None waits
        as long as the deadline lets it that the thing itself has: that of a
        push, for example, is its producer's.

        Raises `Timeout` if it is still unknown then (which may be tried
        again), or what went wrong: `LeaseExpired`, for example, if a settled
        event was not this consumer's any more.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None if there is a result. Waits as `result` does, and
        raises `Timeout` as it does.
        """
    def done(self) -> bool:
        """Whether the outcome is known. Does not block."""
    def add_done_callback(self, function: Callable[[Self], object], /) -> None:
        """Calls `function(future)` once the outcome is known: now, if it is, or
        later on a thread of Thalweg's. What it raises is reported, not raised.
        """
    def __await__(self) -> Generator[Any, None, _T_co]: ...
    @classmethod
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Consumer:
    """Receives the events of a topic, partition by partition in their order.

    Made by `Topic.consumer`. Iterate over it, for ever; or call `pull`. In a
    coroutine, `async for` does the same. Events arrive by themselves while the
    consumer is open; where it begins and what of the data it gets is said when
    it is made. Usable in a child after `os.fork()`, where it begins again at
    its cursor.
    """
    def pull(self, timeout: float | None = None) -> Event | None:
        """The next event. None means one thing: the consumer was connected and
        subscribed for `timeout` seconds, and nothing was there for it.

        While the server is away the pull waits. If its time passes meanwhile,
        or just after the server came back, it raises `Unreachable`, and
        `Recovering` in a group that waits for members of before the server's
        start; both are `retryable`, lose nothing, and the next pull goes on. A timeout
        of 0 looks at what has arrived, and raises in the same way; None waits
        for ever. What a selector or allocator raises is raised here,
        and the event stays where it is: the next pull asks again.

        Raises `Closed`, `Unreachable`, `Recovering`, `Damaged`; in
        a group what a callback raises, and `MemberFenced` once when the program
        stayed away for longer than its processing timeout (the next pull joins
        again), and for good when a successor of the same instance name took over.
        """
    def pull_batch(self, count: int, timeout: float | None = None) -> list[Event]:
        """Up to `count` events: those that lie ready, or else the first ones that
        come within `timeout` seconds; an empty list where `pull` gives None.
        """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Event]: ...
    def acknowledge(self, id: EventId, /) -> None:
        """Does what `Event.acknowledge` does, for an id that was kept."""
    def flush(self, timeout: float | None = 120.0) -> None:
        """Waits until all acknowledgements are durable, up to `timeout` seconds."""
    def seek(self, partition: int, position: int | EventId) -> None:
        """Moves the consumer's durable cursor in one partition, backwards if need
        be, and goes on there: `position` is the offset or the `EventId` of the
        event that comes next. Durable when it returns.

        To be called when no other thread is pulling. Within a function `data` or
        `allocator` of this consumer it raises `InvalidArgument`, as `pull` does.
        """
    def position(self, partition: int) -> tuple[int, int] | None:
        """The next event to be pulled from `partition`, as the pair of the
        partition's incarnation and an offset; None if it is not known yet.
        """
    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it reads now, a tuple of their indices: for a member
        of a group, those that it is assigned.
        """
    @property
    def gaps(self) -> list[Gap]:
        """What was lost of that which this consumer would have got, as it met it:
        a list of `Gap`. Without `on_gap` each is a `GapWarning`, too.
        """
    @property
    def skipped(self) -> int:
        """How many events it passed over because there were newer ones, an int, of all partitions
        together since it was opened: with `latest`; without it 0. In each partition these, the
        events that were pulled and those that were lost are all from where it began to the last
        one that was pulled.
        """
    def close(self, timeout: float | None = 120.0) -> None:
        """Waits until all acknowledgements are durable, up to `timeout` seconds,
        and ends the subscription. Iteration ends. A second call does nothing.
        """
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def name(self) -> str:
        """Its name, under which its cursors are kept."""
    def explain(self) -> str:
        """Why this consumer gets no event now, or events without data: one sentence, and in a second
        line the command that looks further, as `thalweg why` says it. Asks the server. Raises
        `Unreachable`.
        """
    @property
    def topic(self) -> Topic:
        """The topic that it reads."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def _look(self) -> Event | None:
        """The next event, if it is here. None says nothing of what there is: the
        server may be away.
        """
    def _call_when_ready(self, function: Callable[[], object], /) -> None:
        """Calls `function()` once, when there is an event or the consumer is closed."""

@final
class Reader:
    """Reads what a topic had when the read began, and ends. It has no name and no
    cursor: nothing is acknowledged, and nobody else is concerned.

    Made by `Topic.read`. Iterate over it, once; in a coroutine, `async for` does
    the same. Events of one partition come in their order; partitions take turns.
    `close`, the end of a `with` block, or letting go of it ends the read early.
    Lost connections and restarts of the server are survived. Threads that share
    one share the events. Not usable in a child after `os.fork()`, which raises
    `Forked`: read anew there.

    Iterating raises `Damaged`, `Closed` when the driver is closed, `ServerError`;
    and what a selector or allocator raises: the next step asks again.
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Event]: ...
    def _call_when_ready(self, function: Callable[[], object], /) -> None:
        """Calls `function()` once, when there may be an event, or the end."""
    def _look(self) -> tuple[Event | None, float | None]:
        """An event if there is one, and in how many seconds to look again if no
        function is called before; raises `StopAsyncIteration` at the end.
        """
    def to_arrow(self) -> pyarrow.Table:
        """Reads to the end, and returns a `pyarrow.Table` with a row for each event.

        A column for each field of the metadata, null where an event has none, objects as
        structs (`_metadata` for metadata that is no object); then `_partition`, `_offset`
        and `_append_time`; and `_time`, `_key` and `_data` (bytes), if an event has one.
        All of it is in memory at once: `Topic.read(data=False)` leaves the data where it is.

        Raises `InvalidArgument` if a field has not one type in all events, `ImportError`
        without pyarrow, and what iterating raises.
        """
    def to_pandas(self) -> pandas.DataFrame:
        """Reads to the end, and returns a `pandas.DataFrame` with a row for each event.

        The columns are those of `to_arrow`, but fields of fields are columns of their own,
        `outer.inner`; `_data` holds arrays of events that `Producer.push_array` made, bytes of
        others. Raises `ImportError` without pandas, and what iterating raises.
        """
    def to_xarray(self) -> xarray.Dataset:
        """Reads to the end, and returns an `xarray.Dataset` with a dimension `event`.

        Its variable `data` has the arrays of events that `Producer.push_array` made, behind
        each other, with the dimensions `event`, `dim_0`, …; what `to_pandas` has as columns are
        coordinates along `event`. The arrays are in memory twice while it is made.

        Raises `InvalidArgument` if the arrays are not of one shape and dtype or only some
        events have one, `ImportError` without xarray, and what iterating raises.
        """
    @property
    def gaps(self) -> list[Gap]:
        """What was lost of that which was to be read, as it was met: a list of
        `Gap`. Without `on_gap` each is a `GapWarning`, too.
        """
    def close(self) -> None:
        """Ends the read. Iteration ends. Does not wait for the server; a second call
        does nothing.
        """
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def topic(self) -> Topic:
        """The topic that it reads."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

@disjoint_base
class Event:
    """One event of a topic, as a consumer got it.

    Nothing of it is copied or parsed before it is asked for. It keeps what
    came with it in memory, so do not gather events for long: take from them
    what is needed.
    """
    @property
    def id(self) -> EventId:
        """Where it is. Within one partition and incarnation, offsets grow."""
    @property
    def metadata(self) -> Any:
        """The metadata, parsed from JSON when it is first asked for. None if the
        event has none; bytes on a topic whose serializer is `raw`.

        Raises `InvalidArgument` (a `ValueError`) if it is not JSON;
        `metadata_bytes` has it in any case.
        """
    @property
    def metadata_bytes(self) -> bytes:
        """The metadata as its producer wrote it."""
    @property
    def data(self) -> memoryview:
        """The data that was selected, as a `memoryview` of bytes without a copy:
        of `buffer` if an allocator gave one, else read-only. Empty if a function
        `data` selected nothing.

        Raises `InvalidArgument` (a `ValueError`) if it was not read: the event is
        of `Topic.fetch`, or of a consumer with `data=False`. `Topic.read_data`
        reads it.
        """
    @property
    def buffer(self) -> Any:
        """The object that the allocator returned for this event, now filled; None
        without an allocator.
        """
    @property
    def data_size(self) -> int:
        """Length of the event's whole data in bytes, selected or not."""
    def numpy(
        self,
        dtype: npt.DTypeLike | None = None,
        shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    ) -> np.ndarray[Any, Any]:
        """The selected data as a numpy array, without a copy.

        `dtype` and `shape` are those of numpy; what is left out is taken from
        the metadata's `dtype`, and `shape` and `order`, if it is an object that has them.
        Without either: bytes, in one dimension. The array is read-only unless
        an allocator gave the memory, and keeps that memory alive.

        Raises `ValueError` if the data has another length or the dtype holds Python
        objects, and as `data` does.
        """
    def array(self) -> np.ndarray[Any, Any]:
        """The array that `Producer.push_array` made this event of: its dtype, its shape and
        its order are those that the metadata says. Without a copy, as by `numpy`.

        Raises `InvalidArgument` if the metadata has no `dtype` and `shape`, `ValueError` if
        not all of the data is here, and as `data` does.
        """
    @property
    def key(self) -> bytes | None:
        """The key as bytes, or None; an empty key is a key."""
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers as a tuple of pairs of a str and bytes."""
    @property
    def time(self) -> int | None:
        """The producer's own time, nanoseconds since 1970, or None."""
    @property
    def append_time(self) -> int:
        """When the server took the event, nanoseconds since 1970."""
    @property
    def tombstone(self) -> bool:
        """Whether the event deletes its key."""
    def reply(
        self, metadata: _Metadata = None, data: _Data = None, *, borrow: bool = False
    ) -> Future[EventId]:
        """Replies to a request that reached a consumer, as
        `Requester.broadcast` sends it; `QueueEvent.reply` is that of a queue.
        `metadata`, `data` and `borrow` are as for `Producer.push`.

        The future is the reply's id in the topic `TOPIC.replies`, when it is
        durable. Does not block, but for a consumer's first reply, which opens
        that topic, and while too much is not stored yet.

        Raises `InvalidEvent` if the event is no request or the reply is
        refused, `Timeout`; `ValueError` for an event that was read without a
        consumer.
        """
    def acknowledge(self) -> None:
        """Says that this event and all before it in its partition are done with:
        a consumer of the same name will begin behind it.

        Does not block. Acknowledgements are sent together, at least every 50
        ms, and become durable then; `Consumer.flush` and `close` wait for that.
        Never moves the consumer's position back.
        """

@final
class QueueConsumer:
    """Gets single events of a topic, each under a lease: while it lasts, no other
    member of the queue gets the event.

    Made by `Topic.queue`. Iterate over it, for ever; over `drain()`, until nothing
    is left; or call `pull`. In a coroutine, `async for` does the same. Each event is to be settled by
    itself: acknowledged, returned, or rejected; use it in a `with` block. May be used by several
    threads, which share the events.

    Every event is handled at least once: one whose settlement is durable is
    never delivered again; one whose lease expires, whose member dies, or that
    is dropped without being settled, is. Events come in the order of their
    offsets, what came back first. Lost connections and restarts of the server
    are survived; a member that was away for longer than its session timeout
    joins afresh by itself, and settling what it had raises `LeaseExpired`.

    What lies ready here and is not pulled for two thirds of a lease is given
    back by itself. In a child after `os.fork()` it is another member; events
    that the parent pulled are the parent's.
    """
    def pull(self, timeout: float | None = None) -> QueueEvent | None:
        """The next event. None means one thing: the consumer was connected and a
        member, the queue gave out events, and for `timeout` seconds none was
        ready for it. Others may still have some, or have returned some with a
        delay: an empty queue is not a finished one.

        While the server is away, or the queue recovers, the pull waits. If its time
        passes meanwhile, or just after the server came back, it raises
        `Unreachable` or `Recovering`; both are `retryable`, lose nothing, and
        the next pull goes on. A timeout of 0 looks at what has arrived, and
        raises in the same way; None waits for ever. A consumer that winds down
        gives None at once. What a selector or allocator raises is raised here,
        and the event stays where it is: the next pull asks again.

        Raises `Closed`, `Unreachable`, `Recovering`, `Damaged`;
        `MemberFenced` once when the program stayed away for longer than its
        processing timeout (the next pull joins again), and for good when a
        successor of the same instance name took over.
        """
    def pull_batch(self, count: int, timeout: float | None = None) -> list[QueueEvent]:
        """Up to `count` events: those that lie ready, or else the first ones that
        come within `timeout` seconds; an empty list where `pull` gives None. The leases of
        all of them run from now on.
        """
    def __iter__(self) -> Self: ...
    def __next__(self) -> QueueEvent: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, QueueEvent]: ...
    def drain(self, idle: float = 1.0) -> Drain:
        """Its events until nothing of the queue is left: what a worker loops over
        that is to end when the work is done, as in `for event in queue.drain()`. In a
        coroutine, `async for` does the same.

        It ends when the server says that nothing is ready, leased (to anybody,
        this consumer included), delayed or on its way to the dead-letter topic,
        and that held for `idle` seconds; or when the consumer is closed or winds
        down. Lost connections and restarts of the server do not end it, however
        long they take. Settle each event before the next one is asked for: what
        this consumer holds keeps every worker's loop from its end, until its lease
        expires. What is pushed after the end is not waited for: call `drain` again.

        Raises what `pull` does, but not for a server that is away; and
        `StorageError` if a partition failed, in which nobody knows what is left.
        """
    @property
    def gaps(self) -> list[Gap]:
        """What was lost before it was settled, by retention or damage: a list of
        `Gap`. Without `on_gap` each is a `GapWarning`, too.
        """
    @property
    def options(self) -> dict[str, Any]:
        """The queue's options as they were set when its name was first used, a
        dict: `lease` in seconds, `deliveries_max`, `dead_letter_topic` and
        `ordered_by_key`.
        """
    def wind_down(self, within: float = 20.0) -> None:
        """The program is about to end: nothing new is handed out from now on, and
        iteration ends. What lies here is given back; what was pulled can be
        settled for `within` seconds, then it goes to others, without counting
        as a delivery. Does not block, and may be called again: the earlier end counts.
        """
    @property
    def winding_down(self) -> bool:
        """Whether nothing new is handed out any more, because the program is about
        to end: `wind_down` was called, or the job's end is near.
        """
    def close(self, timeout: float | None = 120.0) -> None:
        """Leaves the queue: gives back what was not pulled, and waits until
        everything that was settled is durable, up to `timeout` seconds.

        Events that were pulled and are not settled go to others. Iteration
        ends. A second call does nothing. Raises `Timeout` if the server does
        not answer.
        """
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def name(self) -> str:
        """The queue's name."""
    def explain(self) -> str:
        """Why this queue gets no event now: one sentence, and in a second line the command that
        looks further, as `thalweg why` says it. Asks the server. Raises `Unreachable`.
        """
    @property
    def topic(self) -> Topic:
        """The topic whose events it gets."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def _look(self) -> QueueEvent | None:
        """The next event, if it is here. None says nothing of what there is: the
        server may be away.
        """
    def _call_when_ready(self, function: Callable[[], object], /) -> None:
        """Calls `function()` once, when there is an event or the consumer is closed."""

@final
class QueueEvent(Event):
    """An event of a queue: this program's alone while its lease lasts.

    It is to be settled once: by `acknowledge`, `return_to_queue` or `reject`.
    In a `with` block it is acknowledged at the end, and returned, with the
    exception as the reason, if the block raises; the exception goes on. An event that
    is let go of without being settled is returned at once, and the delivery counts.
    """
    @property
    def deliveries(self) -> int:
        """How often the event was delivered, this time included, from 1. A crash
        of the server may lose the count of deliveries that were under way.
        """
    @property
    def settled(self) -> bool:
        """Whether it was settled through this object."""
    def acknowledge(self) -> Future[None]:  # type: ignore[override]
        """The event is handled: once this is durable it is never delivered again.

        Does not block; what is settled at about the same time travels
        together. The future says when it is durable.
        """
    def return_to_queue(self, delay: float = 0.0, reason: str = "") -> Future[None]:
        """The event is to be delivered again after `delay` seconds, here or
        elsewhere. Does not block.

        Once it was delivered as often as the queue allows, it goes to the
        dead-letter topic instead, with `reason` (its first 1024 bytes).
        """
    def reject(self, reason: str) -> Future[None]:
        """The event can't be handled: it goes to the dead-letter topic, with
        `reason` (its first 1024 bytes), and is delivered no more. Does not block.
        """
    def reply(
        self, metadata: _Metadata = None, data: _Data = None, *, borrow: bool = False
    ) -> Future[EventId]:
        """Replies to a request (see `Topic.requester`), and acknowledges it once
        the reply is stored. `metadata`, `data` and `borrow` are as for
        `Producer.push`.

        The future is the reply's id in the topic `TOPIC.replies`, when both
        are durable. Does not block, but for a consumer's first reply, which
        opens that topic, and while too much is not stored yet. If the reply
        can't be stored, the event is returned to the queue.

        Raises `InvalidEvent` if the event is no request or the reply is
        refused, `Timeout`: it is not settled then.
        """
    def extend(self) -> Future[None]:
        """Lets the lease last as long as a new one, from when the server hears of
        it: then the future is resolved. Does not block. A consumer with
        `renew` does so by itself.

        The future raises `LeaseExpired` if the event was not this consumer's
        any more.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

@final
class Drain:
    """The events of a queue until nothing of it is left: what `QueueConsumer.drain`
    gives, which says when that is. To be iterated over once, in a coroutine with
    `async for`. Threads that share one share the events.
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> QueueEvent: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, QueueEvent]: ...
    def _call_when_ready(self, function: Callable[[], object], /) -> None:
        """Calls `function()` once, when there may be an event, or the end."""
    def _look(self) -> tuple[QueueEvent | None, float | None]:
        """An event if there is one, and in how many seconds to look again if no
        function is called before; raises `StopAsyncIteration` at the end.
        """

@final
class Requester:
    """Sends requests to a topic, and gets the replies.

    Made by `Topic.requester`. Whoever handles the requests is a member of a
    queue of the topic, and calls `QueueEvent.reply`. Any number of requests
    may be under way; may be used by several threads. Requests and replies are
    events, and as durable as the topic: a request survives its worker, a
    reply a lost connection.

    Use it in a `with` block, or call `close`. Not usable in a child after
    `os.fork()`, where it raises `Forked`: open another one there.
    """
    def request(
        self,
        metadata: _Metadata = None,
        data: _Data = None,
        *,
        key: bytes | str | None = None,
        headers: _Headers | None = None,
        timeout: float = 120.0,
        borrow: bool = False,
    ) -> Future[Event]:
        """Sends one request and returns the future of its reply at once: an
        `Event` of the topic `TOPIC.replies`, with metadata and data.

        `metadata`, `data`, `key`, `headers` and `borrow` are as for
        `Producer.push`. After `timeout` seconds without a reply the future raises `Timeout`. Whether the
        request was handled is not known then: a worker may still have it, and
        a reply that comes later is dropped.

        Does not block unless the budget is full, see `Topic.requester`. Raises
        `InvalidEvent` if the request is refused, `BudgetExceeded`, `Closed`,
        `Forked`.
        """
    def broadcast(
        self,
        metadata: _Metadata = None,
        data: _Data = None,
        *,
        at_least: int | None = None,
        key: bytes | str | None = None,
        headers: _Headers | None = None,
        timeout: float = 120.0,
        borrow: bool = False,
    ) -> Future[Gathered]:
        """Asks everybody who is live on the topic, and returns the future of
        their replies at once, a `Gathered`.

        Each program that reads the topic as an independent consumer is asked
        once, a group or queue once; they reply with `Event.reply` or
        `QueueEvent.reply`. The future is resolved when all have replied, or
        `at_least` have, or after `timeout` seconds; then it says who is
        missing. It raises `Timeout` only if the server did not say in time who
        is there. The other arguments are as for `request`.
        """
    @property
    def waiting(self) -> int:
        """How many requests and broadcasts are under way."""
    def close(self, timeout: float | None = 120.0) -> None:
        """Ends it: futures of requests that are under way raise `Closed`, at once.
        What was asked may be handled all the same: waits up to `timeout` seconds
        until it is stored. Raises `Timeout` if it is not by then, and may never
        be. A second call does nothing.
        """
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def topic(self) -> Topic:
        """The topic that it asks."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...

@final
class DataView:
    """Selected bytes of one event's data, in the order in which they were asked for.

    A data selector gets the view of the whole and returns a view of what it
    wants. `range`, `stride`, `segments` and `rows` nest in any order: each
    counts bytes within the view that it is called on. One that leaves its
    view's bounds raises `ValueError`. Views don't change and hold no data.
    """
    def __new__(cls, size: int, /) -> Self: ...
    @property
    def nbytes(self) -> int:
        """How many bytes are selected."""
    @property
    def parts(self) -> list[tuple[int, int]]:
        """The selection as `(offset, size)` pairs, bytes of the event's whole data."""
    def range(self, offset: int, size: int) -> DataView:
        """The `size` bytes of this view that begin at `offset`."""
    def stride(self, *, count: int, block: int, offset: int = 0, gap: int = 0) -> DataView:
        """`count` blocks of `block` bytes each, the first at `offset`, with `gap`
        bytes between the end of one and the start of the next.
        """
    def segments(self, parts: Sequence[tuple[int, int]], /) -> DataView:
        """The listed `(offset, size)` parts of this view, in the order of the list."""
    def rows(
        self,
        shape: Sequence[int],
        dtype: npt.DTypeLike | int,
        rows: int | slice | Iterable[int],
    ) -> DataView:
        """Rows of an array that lies in this view in C order.

        `shape` is the array's shape, `(rows, …)`; `dtype` anything that numpy
        takes for a dtype, or the size of one element in bytes; `rows` a row's
        index, a slice, or a sequence of indices, along the first axis. What
        is selected has the shape `(len(rows), *shape[1:])`, for one index
        `shape[1:]`. Negative indices count from the end.
        """
    def __len__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...

# What `thalweg.steps` is made of.
_StepAttribute: TypeAlias = tuple[str, str, bool, bytes]
_StepBelongs: TypeAlias = tuple[list[int], list[int]] | int | None
_StepWanted: TypeAlias = tuple[int | None, list[tuple[int, int, int]] | None]

@final
class _StepWriter:
    """A rank that writes steps, below `thalweg.steps.Writer`."""
    def __new__(
        cls,
        source: Driver | Topic,
        stream: str | None,
        /,
        *,
        name: str,
        rank: int,
        ranks: int,
        queue_steps: int,
        queue_bytes: int,
        when_full: str,
        distribution: str,
        readers: int,
        session_timeout: float,
        open_timeout: float,
        timeout: float,
        close_timeout: float,
        keep: str,
        held_bytes: int,
        partitions: int,
        storage: str,
        durability: str | None,
        retention: str | None,
    ) -> Self: ...
    @property
    def run(self) -> int:
        """The number of its run."""
    @property
    def stream(self) -> str:
        """The name of the stream."""
    @property
    def closed(self) -> bool:
        """Whether it is closed, or given up."""
    def step(self) -> int:
        """The step that is being written, or the next one."""
    def begin(self, pin: bool) -> int:
        """Begins a step, which is pinned if that is wanted: its number."""
    def drop_step(self) -> None:
        """Gives up the step that is begun."""
    def put(
        self,
        name: str,
        data: _Buffer,
        dtype: str,
        belongs: _StepBelongs,
        count: list[int],
        extremes: bool,
        borrow: bool,
        /,
    ) -> None:
        """Puts a block of bytes that lie in one piece: copied, or lent."""
    def memory(self, bytes: int) -> memoryview:
        """Memory of so many bytes for a block, as a `memoryview`."""
    def put_memory(
        self,
        name: str,
        memory: memoryview,
        dtype: str,
        belongs: _StepBelongs,
        count: list[int],
        extremes: bool,
        /,
    ) -> None:
        """Puts a block that is filled until the step is ended."""
    def put_value(self, name: str, dtype: str, value: bytes, local: bool, /) -> None:
        """Puts a value."""
    def set_attribute(self, name: str, dtype: str, is_list: bool, value: bytes, /) -> None:
        """Sets an attribute."""
    def attributes(self) -> list[_StepAttribute]:
        """All attributes as they are now: name, dtype, whether it is a list, and bytes."""
    def end(self, wait: str) -> tuple[int, str]:
        """Ends the step: its number, and why it was dropped, or an empty text."""
    def wait(self, wait: str, timeout: float | None, /) -> tuple[int, str]:
        """Waits for the step that was ended last."""
    def close(self, timeout: float | None, /) -> str | None:
        """Closes the run for this rank. Says which readers of a stream in memory are behind."""
    def give_up(self) -> None:
        """Lets go of the run without closing it."""

@final
class _StepReader:
    """A rank that reads steps, below `thalweg.steps.Reader`."""
    def __new__(
        cls,
        source: Driver | Topic,
        stream: str | None,
        /,
        *,
        name: str,
        distribution: str,
        group: str | None,
        rank: int,
        ranks: int,
        start: str | tuple[Any, ...],
        latest: bool,
        session_timeout: float,
        open_timeout: float,
        preload: str | list[tuple[str, tuple[None, list[tuple[int, int, int]] | None]]] | None,
        preload_bytes_max: int,
    ) -> Self: ...
    @property
    def stream(self) -> str:
        """The name of the stream."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    def next(self, timeout: float | None, /) -> _StepView | int:
        """The next step, or the number of the run that has ended. Raises `Timeout`, `RunBroken`."""
    def release(self, step: _StepView, timeout: float | None, /) -> None:
        """Releases a step, if it is the one that was given last, and waits until that is noted."""
    def preload(
        self,
        wanted: str | list[tuple[str, tuple[None, list[tuple[int, int, int]] | None]]] | None,
        /,
    ) -> None:
        """What is read ahead, from the next step on."""
    def position(self) -> list[int]:
        """Incarnation and offset of the last record, or an empty list."""
    def close(self, timeout: float | None, /) -> None:
        """Leaves. The step that was given last is released up to the timeout, or, without one, is
        given again.
        """

@final
class _StepView:
    """A step, below `thalweg.steps.Step`."""
    @property
    def run(self) -> int:
        """The number of its run."""
    @property
    def number(self) -> int:
        """Its number in the run."""
    @property
    def writer(self) -> str:
        """The name of the writing program."""
    @property
    def ranks(self) -> int:
        """How many ranks have written it."""
    @property
    def time(self) -> int:
        """When it was committed, nanoseconds since 1970."""
    @property
    def skipped(self) -> int:
        """How many steps were passed over."""
    @property
    def lost(self) -> int:
        """How many records retention has taken unread."""
    @property
    def nbytes(self) -> int:
        """Bytes of its parts."""
    def attributes(self) -> list[_StepAttribute]:
        """All attributes."""
    def names(self) -> list[str]:
        """The names of the variables."""
    def variable(self, name: str) -> tuple[str, str, str, list[int], int]:
        """A variable."""
    def blocks(self, name: str) -> list[tuple[int, list[int], list[int], bytes, bytes]]:
        """The blocks of a variable."""
    def extremes(self, name: str) -> tuple[bytes, bytes]:
        """Least and greatest element of a variable; no bytes if they are not known."""
    def values(self, name: str) -> list[bytes]:
        """The values of a variable that is one, or one of each rank."""
    def get(self, wanted: Sequence[tuple[str, _StepWanted, _Buffer]]) -> list[int]:
        """Reads selections into buffers, with one request: of each, how many elements are in no block."""

@final
class _StepStream:
    """A stream, below `thalweg.steps.runs` and `open_dataset`."""
    def __new__(cls, source: Driver | Topic, stream: str | None, /) -> Self: ...
    @staticmethod
    def create(
        driver: Driver,
        stream: str,
        /,
        *,
        partitions: int,
        storage: str,
        retention: str | None,
        durability: _Durability | None,
    ) -> None:
        """Makes a stream that is not there."""
    def runs(
        self,
    ) -> list[
        tuple[
            tuple[int, str, int, Literal["open", "closed", "broken"], str],
            list[int],
            tuple[int, int, int, int, int],
        ]
    ]:
        """The runs that are stored."""
    def steps(self, run: int) -> list[int]:
        """The numbers of the steps of a run that are stored."""
    def step(self, run: int, step: int) -> _StepView:
        """A step that is stored."""

def _unhex(digits: str, /) -> bytes:
    """`bytes.fromhex(digits)`, without white space and without the GIL while it lasts."""
def _close_all(timeout: float, /) -> str | None:
    """Closes every driver that is open, waiting up to `timeout` seconds in all. What
    went wrong and was not seen by the program is returned in words, else None.
    """
def _stop_callbacks() -> None:
    """Ends the thread that calls back into Python; the interpreter ends."""
