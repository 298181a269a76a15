"""`diaspora-ctl fifo`: what is written to FIFOs becomes events, and the reverse.

A control FIFO takes lines `PATH -> TOPIC (KEY=VALUE, ...)`: each line that is
written to the FIFO PATH is pushed to TOPIC; and `PATH <- TOPIC (...)`: each
event of TOPIC is written to the FIFO PATH as a line. `format=raw` (the default)
has lines that are texts, `format=json` lines that are JSON.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import select
import selectors
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path

from thalweg_mofka.consumer import Consumer
from thalweg_mofka.driver import Driver
from thalweg_mofka.errors import ClientException
from thalweg_mofka.producer import Producer
from thalweg_mofka.topic import TopicHandle

__all__ = ["Command", "run"]

#: Seconds between looks at whether it is time to end.
_LOOK = 0.1
_BATCH = 128
_COMMAND = re.compile(r"\s*(?P<path>.+?)\s+(?P<arrow>->|<-)\s+(?P<topic>[^()]+?)\s*(\((?P<options>[^()]*)\))?\s*")


@dataclass(frozen=True)
class Command:
    """A line of the control FIFO."""

    path: str
    topic: str
    produces: bool
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(line: str) -> Command | None:
        """The command of a line, if it is one."""
        found = _COMMAND.fullmatch(line)
        if found is None:
            return None
        options = {}
        for pair in (found["options"] or "").split(","):
            key, equals, value = (part.strip() for part in pair.partition("="))
            if equals and key:
                options[key] = value
            elif key:
                logging.warning("%r is no key=value; it is passed over", pair)
        return Command(found["path"], found["topic"], found["arrow"] == "->", options)

    @property
    def is_json(self) -> bool:
        """Whether lines are JSON, not texts."""
        format = self.options.get("format", "raw")
        if format not in ("raw", "json"):
            logging.warning("%s: there is no format %r; raw is taken", self.path, format)
        return format == "json"

    @property
    def batch_size(self) -> int:
        """Events in a batch."""
        given = self.options.get("batch_size", str(_BATCH))
        if given.isdecimal() and int(given) > 0:
            return int(given)
        logging.warning("%s: %r is no batch size; %d is taken", self.path, given, _BATCH)
        return _BATCH


class _Lines:
    """Whole lines of a FIFO that is read. Writers may come and go."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Also a writer itself, so that there is no end when the last one goes.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._buffer = b""

    def read(self) -> list[str]:
        """The lines that have arrived."""
        while True:
            try:
                got = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                break
            self._buffer += got
        *lines, self._buffer = self._buffer.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """What is left at the end, with a last line that has no end."""
        lines = self.read()
        if self._buffer:
            lines.append(self._buffer.decode(errors="replace"))
        return lines

    def close(self) -> None:
        """Removes the FIFO, which is nobody else's."""
        os.close(self.descriptor)
        Path(self.path).unlink(missing_ok=True)


class _Source:
    """A FIFO whose lines are pushed."""

    def __init__(self, topic: TopicHandle, command: Command) -> None:
        self.command = command
        self._is_json = command.is_json
        self._producer: Producer = topic.producer(batch_size=command.batch_size)
        if not os.path.exists(command.path):
            os.mkfifo(command.path)
        self.lines = _Lines(command.path)

    def push(self, lines: list[str]) -> None:
        for line in filter(None, lines):
            try:
                self._producer.push(line if self._is_json else json.dumps(line))
            except ClientException as error:
                logging.error("%s: %s", self.command.path, error)
        if lines:
            # What does not fill a batch is not to wait for more.
            self._producer.flush_async()

    def close(self) -> None:
        self.push(self.lines.rest())
        self.lines.close()
        try:
            self._producer.close()
        except ClientException as error:
            logging.error("%s: %s", self.command.path, error)


class _Sink(threading.Thread):
    """A FIFO to which events are written."""

    def __init__(self, topic: TopicHandle, command: Command, end: threading.Event) -> None:
        super().__init__(name=f"fifo {command.path}", daemon=True)
        if not os.path.exists(command.path):
            raise ClientException(f"{command.path} is not there; make it with mkfifo first")
        if not stat.S_ISFIFO(os.stat(command.path).st_mode):
            raise ClientException(f"{command.path} is no FIFO")
        self._path = command.path
        self._is_json = command.is_json
        self._end = end
        # Nothing is acknowledged: the same FIFO begins at the first event again.
        self._consumer: Consumer = topic.consumer(command.path, batch_size=command.batch_size)

    def run(self) -> None:
        descriptor = -1
        pending = b""
        while not self._end.is_set():
            try:
                if descriptor < 0:
                    descriptor = self._open()
                    continue
                if not pending:
                    pending = self._line()
                    continue
                if select.select([], [descriptor], [], _LOOK)[1]:
                    pending = pending[os.write(descriptor, pending) :]
            except BrokenPipeError:
                # The reader has gone. Whoever reads next gets the line as a whole.
                os.close(descriptor)
                descriptor, pending = -1, self._whole
            except BlockingIOError:
                continue
            except (ClientException, OSError) as error:
                logging.error("%s: %s", self._path, error)
                break
        if descriptor >= 0:
            os.close(descriptor)

    _whole = b""

    def _open(self) -> int:
        """The FIFO, once somebody reads it; else -1, a little later."""
        try:
            return os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            self._end.wait(_LOOK)
            return -1

    def _line(self) -> bytes:
        event = self._consumer.pull().wait(_LOOK * 1000)
        if event is None or event.event_id is None:
            return b""
        text = event.metadata_text
        if not self._is_json:
            parsed = json.loads(text)
            text = parsed if isinstance(parsed, str) else text
        self._whole = text.encode() + b"\n"
        return self._whole


def run(driver: Driver, control_file: str, end: threading.Event) -> None:
    """Serves the control FIFO, which it makes, until `end` is set. What was written
    to FIFOs by then is pushed and stored when it returns.
    """
    path = Path(control_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    control = _Lines(control_file)
    sources: dict[str, _Source] = {}
    sinks: dict[str, _Sink] = {}
    topics: dict[str, TopicHandle] = {}

    def obey(line: str) -> None:
        command = Command.parse(line)
        if command is None:
            logging.warning("%r is no command", line)
            return
        if command.path in sources or (command.path in sinks and sinks[command.path].is_alive()):
            logging.warning("%s is in use already", command.path)
            return
        try:
            if command.topic not in topics:
                topics[command.topic] = driver.open_topic(command.topic)
            topic = topics[command.topic]
            if command.produces:
                source = sources[command.path] = _Source(topic, command)
                selector.register(source.lines.descriptor, selectors.EVENT_READ, source)
            else:
                sinks[command.path] = _Sink(topic, command, end)
                sinks[command.path].start()
            logging.info("%s %s %s", command.path, "->" if command.produces else "<-", command.topic)
        except (ClientException, OSError) as error:
            logging.error("%s: %s", command.path, error)

    with selectors.DefaultSelector() as selector:
        selector.register(control.descriptor, selectors.EVENT_READ, None)
        logging.info("commands are taken from %s", control_file)
        while not end.is_set():
            for key, _ in selector.select(_LOOK):
                if key.data is None:
                    for line in filter(str.strip, control.read()):
                        obey(line)
                else:
                    key.data.push(key.data.lines.read())
    control.close()
    for source in sources.values():
        source.close()
    for sink in sinks.values():
        sink.join()
