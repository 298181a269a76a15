"""Queues for Colmena: `ThalwegQueues` in place of its `RedisQueues`.

Needs the package ``colmena``: ``pip install 'thalweg[colmena]'``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

from colmena.exceptions import KillSignalException, TimeoutException
from colmena.models import ResourceRequirements, Result, SerializationMethod
from colmena.queue.base import ColmenaQueues, QueueRole

import thalweg
from thalweg.integrations import _colmena_message as message
from thalweg.integrations._inbox import Inbox, Taken

__all__ = ["ThalwegQueues"]

_logger = logging.getLogger(__name__)

# The names of the queues, on the topic of requests and on those of results.
_SERVERS = "servers"
_THINKER = "thinker"

_KILL = "null"

# Data of a request up to so many bytes comes with it, and is in memory until
# the task is finished; what is longer is read apart.
_DATA_BYTES_MAX = 1 << 20

# What Colmena takes for the size of an input: that of a string of its digits.
_STRING_BYTES = sys.getsizeof("")

# Guards what this process has of queues: one connection for all copies that were
# pickled of one object, in which what was taken through any of them is known.
_lock = threading.Lock()
_connections: dict[str, _Connection] = {}


class ThalwegQueues(ColmenaQueues):
    """Colmena's queues on a Thalweg server.

    In place of `RedisQueues(topics, hostname, port)` write
    `ThalwegQueues(topics, "thalweg.json")`; all else stays as it is. Requests
    are a queue that the task servers share: each task goes to one of them, and
    to another one if that dies before it has sent the result. Each topic has a
    queue of results. Inputs and values above 64 KiB travel as data, without
    becoming digits on the way.

    Usable by several threads, in children after a fork, and in processes that
    it is pickled to; each process has a connection of its own, made when it is
    first used. It lasts until `disconnect`, or as long as the process.

    - `topics`: the names of the topics; `default` is always one.
    - `group_file`: the file that `thalweg serve` writes. Must be reachable by
      all processes; or None, and `connection` says `address` and `token`.
    - `prefix`: what the topics' names on the server begin with: programs of
      the same prefix meet. A new one is made up if it is left out.
    - `serialization_method`, `keep_inputs`, `proxystore_name`,
      `proxystore_threshold`: as for all queues of Colmena.
    - `storage`: `"memory"`, as Redis has it, or `"disk"`: what is waiting then
      survives the server.
    - `prefetch`: how many tasks a task server has unfinished at most. With
      1, a server that runs its tasks itself, one after another, takes none ahead.
    - `lease`: seconds for which a task is a task server's; extended by itself for
      as long as the server's process lives.
    - `session_timeout`: seconds after which the tasks of a task server that was
      killed, or does not answer, go to others; those of one that ends go at once.
    - `connection`: further arguments of `thalweg.Driver`.

    Raises `thalweg.Unreachable`, a `ConnectionError`, if there is no server.
    """

    def __init__(
        self,
        topics: Collection[str],
        group_file: str | os.PathLike[str] | None = "thalweg.json",
        *,
        prefix: str | None = None,
        serialization_method: str | SerializationMethod = SerializationMethod.PICKLE,
        keep_inputs: bool = True,
        proxystore_name: str | dict[str, str] | None = None,
        proxystore_threshold: int | dict[str, int] | None = None,
        storage: Literal["memory", "disk"] = "memory",
        prefetch: int = 1024,
        lease: float = 30.0,
        session_timeout: float = 10.0,
        connection: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            topics, serialization_method, keep_inputs, proxystore_name, proxystore_threshold
        )
        self.prefix = uuid4().hex if prefix is None else str(prefix)
        # Other processes may run elsewhere.
        path = None if group_file is None else os.path.abspath(group_file)
        self._place = {"group_file": path, **(connection or {})}
        self._storage = storage
        self._requests_options = {
            "prefetch": prefetch,
            "lease": lease,
            "session_timeout": session_timeout,
        }
        self._identity = uuid4().hex
        self.connect()

    def connect(self) -> None:
        """Connects, and makes the topics, if that was not done."""
        self._connected()

    def disconnect(self) -> None:
        """Ends this process's connection, with what it has taken and not finished:
        that goes to others. The next call makes a new one.
        """
        with _lock:
            connection = _connections.pop(self._identity, None)
        if connection is not None:
            connection.close()

    @property
    def is_connected(self) -> bool:
        """Whether this process has a connection."""
        return self._identity in _connections

    def delete_topics(self) -> None:
        """Deletes the topics at the server, with everything that is in them. For
        the end of a campaign; nobody may use them any more.
        """
        driver = self._connected().driver
        for name in self._names().values():
            for each in (name, f"{name}.dead"):
                if driver.topic_exists(each):
                    driver.delete_topic(each)
        self.disconnect()

    def send_inputs(
        self,
        *input_args: Any,
        method: str | None = None,
        input_kwargs: dict[str, Any] | None = None,
        keep_inputs: bool | None = None,
        resources: ResourceRequirements | dict[str, Any] | None = None,
        topic: str = "default",
        task_info: dict[str, Any] | None = None,
        max_retries: int = 0,
    ) -> str:
        """Sends a task; as Colmena's. Returns the task's id."""
        pickles = self.serialization_method == SerializationMethod.PICKLE
        if not pickles or topic not in self.topics or self._proxies(topic):
            task_id: str = super().send_inputs(
                *input_args,
                method=method,
                input_kwargs=input_kwargs,
                keep_inputs=keep_inputs,
                resources=resources,
                topic=topic,
                task_info=task_info,
                max_retries=max_retries,
            )
            return task_id
        self._check_role(QueueRole.CLIENT, "send_inputs")
        named = input_kwargs or {}
        result = Result(
            (input_args, named),
            method=method,
            keep_inputs=self.keep_inputs if keep_inputs is None else keep_inputs,
            serialization_method=self.serialization_method,
            task_info=task_info,
            resources=resources or ResourceRequirements(),
            topic=topic,
            max_retries=max_retries,
        )
        # What Result.serialize does, but for the digits.
        begin = perf_counter()
        parts = [message.pickled(value) for value in (*input_args, *named.values())]
        lengths = [sum(map(len, part)) for part in parts]
        result.message_sizes["inputs"] = sum(_STRING_BYTES + 2 * length for length in lengths)
        if 2 * sum(lengths) > message.METADATA_BYTES_MAX:
            result.time.serialize_inputs = perf_counter() - begin
            sent = message.from_parts(result, parts, topic, exclude_none=True)
        else:
            digits = [b"".join(part).hex() for part in parts]
            positional = len(input_args)
            result.inputs = (
                digits[:positional],
                dict(zip(named, digits[positional:], strict=True)),
            )
            result.time.serialize_inputs = perf_counter() - begin
            sent = message.from_text(result.json(exclude_none=True), topic)
        self._connected().request(sent)
        _logger.info("Client sent a %s task with topic %s", method, topic)
        with self._active_lock:
            self._active_tasks.add(result.task_id)
            self._all_complete.clear()
        sent_id: str = result.task_id
        return sent_id

    def get_task(self, timeout: float | None = None) -> tuple[str, Result]:
        """The next task, and its topic; as Colmena's. It is this task server's
        until its result is sent.
        """
        self._check_role(QueueRole.SERVER, "get_task")
        topic, taken, content = self._take_request(timeout)
        task = message.result_of(*content)
        self._connected().hold(task.task_id, taken)
        task.mark_input_received()
        return topic, task

    def send_result(self, result: Result) -> None:
        """Sends a result; as Colmena's. If it is not an intermediate one the task
        is finished: no other task server gets it any more.
        """
        self._check_role(QueueRole.SERVER, "send_result")
        result.mark_result_sent()
        connection = self._connected()
        connection.reply(message.from_result(result, result.topic), result.topic)
        if result.complete is not False:
            connection.finish(result.task_id)

    def get_result(self, topic: str = "default", timeout: float | None = None) -> Result:
        """The next result of a topic; as Colmena's."""
        self._check_role(QueueRole.CLIENT, "get_result")
        inbox, taken = self._taken_result(topic, timeout)
        try:
            metadata, headers, data = _content_of(taken)
            begin = perf_counter()
            result = message.result_of(metadata, headers, data, load=True)
            if message.PARTS in headers:
                result.time.deserialize_results = perf_counter() - begin
            else:
                result.time.deserialize_results = result.deserialize()
            result.mark_result_received()
        finally:
            # Behind the result, which nobody is to wait longer for.
            inbox.settle(taken)
        _logger.info("Client received a %s result with topic %s", result.method, topic)
        with self._active_lock:
            self._active_tasks.discard(result.task_id)
            if not self._active_tasks:
                self._all_complete.set()
        return result

    def flush(self) -> None:
        """Discards the tasks and results that are waiting; not those that a task
        server has taken.
        """
        self._connected().flush()

    # What Colmena's own methods are made of, for programs that call these.

    def _send_request(self, text: str, topic: str) -> None:
        self._connected().request(message.from_text(text, topic))

    def _get_request(self, timeout: float | None = None) -> tuple[str, str]:
        topic, taken, content = self._take_request(timeout)
        text = message.text_of(*content)
        self._connected().hold(_field(text, "task_id"), taken)
        return topic, text

    def _send_result(self, text: str, topic: str) -> None:
        connection = self._connected()
        connection.reply(message.from_text(text, topic), topic)
        if _field(text, "complete") is not False:
            connection.finish(_field(text, "task_id"))

    def _get_result(self, topic: str, timeout: float | None = None) -> str:
        return message.text_of(*self._take_result(topic, timeout))

    def _take_request(self, timeout: float | None) -> tuple[str, Taken, _Content]:
        connection = self._connected()
        taken = connection.requests.take(timeout)
        if taken is None:
            raise TimeoutException()
        content = connection.content(taken)
        metadata, headers, _ = content
        if metadata == _KILL.encode():
            connection.requests.settle(taken)
            raise KillSignalException()
        return headers[message.TOPIC].decode(), taken, content

    def _take_result(self, topic: str, timeout: float | None) -> _Content:
        inbox, taken = self._taken_result(topic, timeout)
        content = _content_of(taken)
        inbox.settle(taken)
        return content

    def _taken_result(self, topic: str, timeout: float | None) -> tuple[Inbox, Taken]:
        inbox = self._connected().results(topic)
        taken = inbox.take(timeout)
        if taken is None:
            raise TimeoutException()
        return inbox, taken

    def _proxies(self, topic: str) -> bool:
        name, threshold = self.proxystore_name[topic], self.proxystore_threshold[topic]
        return name is not None and threshold is not None

    def _names(self) -> dict[str | None, str]:
        """The topics at the server: for requests under None, for results under
        Colmena's name.
        """
        prefix = quote(self.prefix, safe="")
        results = {each: f"{prefix}_{quote(each, safe='')}_result" for each in self.topics}
        return {None: f"{prefix}_requests", **results}

    def _connected(self) -> _Connection:
        connection = _connections.get(self._identity)
        if connection is not None:
            return connection
        with _lock:
            connection = _connections.get(self._identity)
            if connection is None:
                driver = thalweg.Driver(**self._place)
                topics = {
                    each: driver.create_topic(
                        name,
                        storage=self._storage,
                        serializer="raw",
                        durability="written" if self._storage == "disk" else None,
                        keep_until_acknowledged=[_SERVERS if each is None else _THINKER],
                        exist_ok=True,
                    )
                    for each, name in self._names().items()
                }
                connection = _Connection(driver, topics, self._requests_options)
                _connections[self._identity] = connection
        return connection


# Metadata, headers and data of a message.
_Content = tuple[bytes, dict[str, bytes], memoryview]


class _Connection:
    """What one process has of the queues."""

    def __init__(
        self,
        driver: thalweg.Driver,
        topics: dict[str | None, thalweg.Topic],
        options: dict[str, Any],
        parent: _Connection | None = None,
    ) -> None:
        self.driver = driver
        self._topics = topics
        self._options = options
        # What a forked child has of its parent's is for the parent to let go of.
        self._parent = parent
        # Guards the dicts below.
        self._lock = threading.Lock()
        self._producers: dict[str | None, thalweg.Producer] = {}
        self._results: dict[str, Inbox] = {}
        self._unfinished: dict[str, Taken] = {}
        # What is unfinished keeps the data in memory that came with it.
        self.requests = Inbox(
            topics[None],
            _SERVERS,
            prefetch_bytes=1 << 40,
            data=_small,
            renew=True,
            **options,
        )

    def in_child(self) -> _Connection:
        """The same for a forked child; what was taken stays the parent's."""
        return _Connection(self.driver, self._topics, self._options, parent=self)

    def close(self) -> None:
        self.requests.close()
        self.driver.close()

    def request(self, sent: message.Message) -> None:
        """Sends a request, and waits until the server has it."""
        self._push(None, sent)

    def reply(self, sent: message.Message, topic: str) -> None:
        """Sends a result, and waits until the server has it."""
        self._push(topic, sent)

    def _push(self, topic: str | None, sent: message.Message) -> None:
        with self._lock:
            producer = self._producers.get(topic)
            if producer is None:
                producer = self._producers[topic] = self._topics[topic].producer()
        producer.push(sent.metadata, sent.data, headers=sent.headers).result()

    def results(self, topic: str) -> Inbox:
        """The inbox of a topic's results."""
        with self._lock:
            inbox = self._results.get(topic)
            if inbox is None:
                inbox = self._results[topic] = Inbox(
                    self._topics[topic], _THINKER, prefetch=16, prefetch_bytes=64 << 20
                )
        return inbox

    def content(self, taken: Taken) -> _Content:
        """A request, with its data, if need be apart."""
        event = taken.event
        metadata, headers, data = _content_of(taken)
        if event.data_size > data.nbytes:
            data = self._topics[None].read_data(event)
        return metadata, headers, data

    def hold(self, task_id: str | None, taken: Taken) -> None:
        """The task is this process's until it is finished."""
        if task_id is None:
            self.requests.settle(taken)
            return
        with self._lock:
            before = self._unfinished.pop(task_id, None)
            self._unfinished[task_id] = taken
        if before is not None:
            # It was sent twice, or its lease had been lost: the last one counts.
            self.requests.settle(before)

    def finish(self, task_id: str | None) -> None:
        """The task is done. One that another process has taken stays its."""
        with self._lock:
            taken = self._unfinished.pop(task_id, None) if task_id is not None else None
        if taken is not None:
            self.requests.settle(taken)

    def flush(self) -> None:
        for name, topic in self._topics.items():
            topic.refresh()
            end = topic.partitions[0].end
            inbox = self.requests if name is None else self.results(name)
            if end:
                inbox.discard(end)


def _content_of(taken: Taken) -> _Content:
    event = taken.event
    return event.metadata_bytes, dict(event.headers), event.data


def _small(metadata: bytes, data: thalweg.DataView) -> thalweg.DataView | None:
    """The data that comes with a request, and spares asking for it."""
    return data if data.nbytes <= _DATA_BYTES_MAX else None


def _field(text: str, name: str) -> Any:
    """A field of Colmena's string; None if it has none, or is something else."""
    try:
        described = json.loads(text)
    except ValueError:
        return None
    return described.get(name) if isinstance(described, dict) else None


def _after_fork() -> None:
    # Whoever held the lock is not here.
    global _lock
    _lock = threading.Lock()
    for identity, connection in list(_connections.items()):
        _connections[identity] = connection.in_child()


os.register_at_fork(after_in_child=_after_fork)
