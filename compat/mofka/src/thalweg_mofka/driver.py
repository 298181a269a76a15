"""Drivers: connections to a server, made in every way that programs make them."""

from __future__ import annotations

import json
import os
import uuid
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import thalweg

from thalweg_mofka.components import PartitionSelector, Serializer, Validator
from thalweg_mofka.consumer import Consumer
from thalweg_mofka.dialect import Dialect, chosen
from thalweg_mofka.errors import ClientException, translated
from thalweg_mofka.partitions import Partitions, durability_of, storage_of
from thalweg_mofka.pool import ThreadPool
from thalweg_mofka.topic import TopicHandle

__all__ = ["Client", "Driver", "KafkaDriver", "MofkaDriver", "ServiceHandle"]

#: Where consumers of a new name begin, if nothing else says so.
START_FROM = "THALWEG_MOFKA_START_FROM"
#: Metadata is not limited by Mofka; by this much here, so that batches stay within a server's limits.
_METADATA_BYTES_MAX = 32 << 20
#: Options of a driver that are Thalweg's.
_NATIVE = ("client_name", "connect_timeout", "memory_bytes_max", "namespace", "request_timeout")

#: The drivers of this process that were made by unpickling, so that each is made once.
_unpickled: weakref.WeakValueDictionary[str, Driver] = weakref.WeakValueDictionary()


class Driver(Partitions):
    """A connection to a server.

    `Driver(backend="mofka", options={"group_file": "mofka.json"})` connects by
    the group file that `thalweg serve --group-file mofka.json` writes. The
    backend `thalweg` is the same one.

    - `group_file`: the path of the server's group file.
    - `directory`: instead of it, a data directory for a server in this process.
    - `dialect`: `"legacy"`, `"middle"` or `"current"`, if the program is of
      another generation than the way in which it makes the driver tells.
    - `start_from`: `"latest"` lets consumers of a new name begin behind the
      last event, not at the first.
    - `client_name`, `connect_timeout`, `memory_bytes_max`, `namespace`,
      `request_timeout`: as for `thalweg.Driver`.

    Other options (`margo`, `use_progress_thread`) are passed over: there is
    nothing here that they could set.
    """

    def __init__(
        self,
        backend: str = "mofka",
        options: Mapping[str, Any] | None = None,
        *,
        by_call: Dialect = Dialect.CURRENT,
    ) -> None:
        _known(backend)
        self._backend = backend
        self._options = dict(options or {})
        self._identity = uuid.uuid4().hex
        self.dialect = chosen(self._options.get("dialect"), by_call)
        self._connect()

    def _connect(self) -> None:
        options = self._options
        given = {key: options[key] for key in _NATIVE if key in options}
        self._default_pool = ThreadPool(0)
        self._consumers: dict[str, weakref.WeakSet[Consumer]] = {}
        with translated():
            if options.get("directory") is not None:
                self._address = "inproc://"
                self._is_cluster = False
                self._native = thalweg.Driver.embedded(options["directory"], **given)
                return
            group_file = options.get("group_file")
            if group_file is None:
                raise ClientException("the option group_file, the path of the server's group file, is missing")
            self._native = thalweg.Driver(group_file, **given)
            self._address, self._is_cluster = _server_in(group_file)

    @staticmethod
    def new(name: str, options: Mapping[str, Any] | str | None = None) -> Driver:
        """A driver, as programs of the middle dialect make it."""
        given = json.loads(options) if isinstance(options, str) else options
        return Driver(name, given, by_call=Dialect.MIDDLE)

    New = new

    # Topics.

    def create_topic(
        self,
        name: str | None = None,
        validator: Validator | None = None,
        selector: PartitionSelector | None = None,
        serializer: Serializer | None = None,
        *,
        topic_name: str | None = None,
        partition_selector: PartitionSelector | None = None,
        schema: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes a topic. Raises `ClientException` if there is one of that name.

        - `schema`: a JSON Schema that metadata has to match, short for a
          validator of the type `schema`.
        - `options`: `num_partitions`, 0 by default: more can be added later;
          `config`, with the `type` of the partitions: `memory`, or anything else
          for disk.

        Where several servers act as one, these partitions are made on each in
        turn, and those that are added on the server of their rank.
        """
        name = name if name is not None else topic_name
        if name is None:
            raise TypeError("create_topic needs a name")
        if schema is not None:
            validator = Validator.from_metadata(type="schema", schema=dict(schema))
        options = dict(options or {})
        count = options.get("num_partitions", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ClientException(f"num_partitions is the number of partitions, not {count!r}")
        config = options.get("config") or {}
        with translated():
            self._native.create_topic(
                name,
                partitions=count,
                storage=storage_of(config) if count else None,
                validator=(validator or Validator()).native(),
                partition_selector=(partition_selector or selector or PartitionSelector()).native(),
                serializer=(serializer or Serializer()).native(),
                durability=durability_of(config),
                spread=self._is_cluster,
                metadata_bytes_max=_METADATA_BYTES_MAX,
            )

    def open_topic(self, name: str | None = None, *, topic_name: str | None = None) -> TopicHandle:
        """Opens a topic. Raises `ClientException` if there is none of that name."""
        with translated():
            return TopicHandle(self, self._native.open_topic(_named(name, topic_name)))

    def topic_exists(self, name: str | None = None, *, topic_name: str | None = None) -> bool:
        """Whether there is a topic of that name."""
        with translated():
            return self._native.topic_exists(_named(name, topic_name))

    def list_topics(self) -> dict[str, dict[str, Any]]:
        """All topics by name, a dict of each with `num_partitions`, `validator`,
        `partition_selector` and `serializer`.
        """
        with translated():
            found = self._native.list_topics()
        return {topic.name: _described(topic) for topic in found}

    # Thread pools: programs ask for them, Thalweg needs none.

    def make_thread_pool(self, count: int) -> ThreadPool:
        """A pool of so many threads."""
        return ThreadPool(count)

    @property
    def default_thread_pool(self) -> ThreadPool:
        """The pool that is used where none is given."""
        return self._default_pool

    def start_progress_thread(self) -> None:
        """Nothing: what the thread would do goes on by itself."""

    createTopic = create_topic
    openTopic = open_topic
    topicExists = topic_exists
    listTopics = list_topics
    makeThreadPool = make_thread_pool
    defaultThreadPool = default_thread_pool
    startProgressThread = start_progress_thread

    def close(self, timeout: float | None = 120.0) -> None:
        """Waits until all that was pushed and acknowledged is stored, and closes
        the connection. The end of the program does so, too.
        """
        with translated():
            self._native.close(timeout)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Consumers of one name in one process.

    def _remember(self, consumer: Consumer) -> None:
        self._consumers.setdefault(consumer.name, weakref.WeakSet()).add(consumer)

    def _settle(self, name: str) -> None:
        """Makes durable what consumers of that name in this process acknowledged."""
        for consumer in list(self._consumers.get(name, ())):
            with translated():
                consumer._settle(120.0)
        if not self._consumers.get(name):
            self._consumers.pop(name, None)

    def _start(self, options: Mapping[str, Any]) -> Any:
        """Where a consumer with these options begins."""
        wanted = options.get("start_from", self._options.get("start_from", os.environ.get(START_FROM)))
        if wanted in (None, "", "beginning", "earliest"):
            return "cursor"
        if wanted == "latest":
            return "cursor_or_latest"
        raise ClientException(f"start_from is beginning or latest, not {wanted!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reconnected, (type(self), self._identity, self._backend, self._options, self.dialect)


class MofkaDriver(Driver):
    """A connection to a server, as programs written for Mofka make it.

    `MofkaDriver("mofka.json")` and anything with `use_progress_thread` is of the
    legacy dialect, `MofkaDriver(group_file="mofka.json")` of the current one;
    `dialect=` and the environment's `THALWEG_MOFKA_DIALECT` overrule that. The
    other options are those of `Driver`.
    """

    def __init__(self, *positional: Any, **options: Any) -> None:
        legacy = bool(positional) or "use_progress_thread" in options
        if len(positional) > 2:
            raise TypeError("MofkaDriver takes a group file and what was an engine")
        engine = positional[1] if len(positional) == 2 else options.pop("arg", options.pop("mid", None))
        if engine is not None and options.get("use_progress_thread") is not None:
            raise ValueError("use_progress_thread can't be given along with an engine")
        if positional:
            if isinstance(positional[0], Mapping):
                legacy = False
                options = {**positional[0], **options}
            else:
                options["group_file"] = positional[0]
        by_call = Dialect.LEGACY if legacy else Dialect.CURRENT
        super().__init__("mofka", options, by_call=by_call)


class ServiceHandle(MofkaDriver):
    """The name of `MofkaDriver` in older programs."""

    def __init__(self, *positional: Any, **options: Any) -> None:
        warnings.warn("ServiceHandle is deprecated, use MofkaDriver", DeprecationWarning, stacklevel=2)
        super().__init__(*positional, **options)


class Client:
    """What older programs make before they `connect`."""

    def __init__(self, arg: Any = None) -> None:
        warnings.warn("Client is deprecated, use MofkaDriver", DeprecationWarning, stacklevel=2)

    def connect(self, group_file: str) -> MofkaDriver:
        """A driver of the legacy dialect."""
        return MofkaDriver(group_file)

    @property
    def config(self) -> str:
        """An empty configuration."""
        return "{}"


class KafkaDriver:
    """Not there: Kafka is not spoken by this package."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("thalweg-mofka has no driver for Kafka")


def _known(backend: str) -> None:
    """Raises if there is no such backend. Libraries that programs name beside it
    are those of the backend: `mofka:libmofka.so`.
    """
    name, _, library = backend.partition(":")
    libraries = {"mofka": ("libmofka.so", "libmofka-client.so"), "thalweg": ("libthalweg.so",)}
    if name not in libraries:
        raise ClientException(f"there is no backend {backend!r}; known: {', '.join(libraries)}")
    if library and os.path.basename(library) not in libraries[name]:
        raise ClientException(f"the backend {name} is not in the library {library!r}")


def _named(name: str | None, topic_name: str | None) -> str:
    found = name if name is not None else topic_name
    if found is None:
        raise TypeError("the name of the topic is missing")
    return found


def _server_in(group_file: str | os.PathLike[str]) -> tuple[str, bool]:
    """The first address of a group file that was connected by just now, and
    whether it is of a cluster of servers.
    """
    try:
        with open(group_file, encoding="utf-8") as file:
            group = json.load(file)
            return str(group["members"][0]["address"]), "cluster" in group
    except (OSError, ValueError, LookupError, TypeError):
        return "", False


def _described(topic: thalweg.TopicDescription) -> dict[str, Any]:
    definition = dict(topic.definition)
    validator = dict(definition.get("validator", {}))
    if validator.get("type") == "eventbridge":
        # Under the name that Mofka's programs know.
        validator["schema"] = validator.pop("pattern")
    definition["validator"] = validator
    return {
        "name": topic.name,
        "uuid": str(uuid.UUID(topic.id)),
        "num_partitions": len(topic.partitions),
        "validator": definition.pop("validator", {}),
        "partition_selector": definition.pop("partition_selector", {}),
        "serializer": definition.pop("serializer", {}),
        "definition": definition,
    }


def _reconnected(
    kind: type[Driver], identity: str, backend: str, options: Mapping[str, Any], dialect: Dialect
) -> Driver:
    """The driver in the process that it was pickled for."""
    found = _unpickled.get(identity)
    if found is None:
        found = Driver.__new__(kind)
        Driver.__init__(found, backend, {**options, "dialect": dialect})
        found._identity = identity
        _unpickled[identity] = found
    return found
