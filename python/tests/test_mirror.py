"""Mirrors with real servers: cuts, kills of everything, and what a link refuses."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thalweg
from conftest import Server

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "sites"))
from line import Line  # noqa: E402


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A server of site A, and one of site B that listens with TCP too."""
    servers = []
    for name in ("a", "b"):
        directory = tmp_path / name
        directory.mkdir()
        server = Server(directory, "tcp://127.0.0.1:0") if name == "b" else Server(directory)
        server.start()
        servers.append(server)
    yield servers[0], servers[1]
    Link.end_all()
    for server in servers:
        server.stop()


def group(server: Server) -> dict[str, Any]:
    """What its group file says. By its socket a server is reached a moment before it has written that: until then the
    file is of the run before."""
    with server.connect() as driver:
        instance = driver.status()["instance"]
    while True:
        document: dict[str, Any] = json.loads(server.group_file.read_text())
        if document["instance"] == instance:
            return document


def port(server: Server) -> int:
    tcp = next(one for one in group(server)["endpoints"] if one.startswith("tcp://"))
    return int(tcp.rpartition(":")[2])


def through(server: Server, line: Line, file: Path) -> Path:
    """A group file that leads to the server by a line alone."""
    document = group(server) | {"endpoints": [f"tcp://127.0.0.1:{line.port}"]}
    file.write_text(json.dumps(document))
    file.chmod(0o600)
    return file


class Link:
    """A `thalweg relay mirror`, and what it says."""

    before: list[str] = []
    started: list[Link] = []
    environment: dict[str, str] | None = None

    def __init__(
        self, source: Path | str, copy: Path | str, *arguments: str, name: str = "b"
    ) -> None:
        command = self.before + [thalweg.executable(), "relay", "mirror", "--json", "--every", "0.1"]
        command += ["--from", str(source), "--to", str(copy), "--name", name, *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=self.environment
        )
        self.last: dict[str, Any] = {}
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        Link.started.append(self)

    @classmethod
    def end_all(cls) -> None:
        """Whatever a test has left behind ends: its reader would keep the tests from their end."""
        while cls.started:
            link = cls.started.pop()
            link.process.kill()
            link.process.wait()
            link.reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.news:
                self.last = json.loads(line)
                self.news.notify_all()

    def until(self, what: Any) -> dict[str, Any]:
        """Waits until it says so."""
        with self.news:
            if not self.news.wait_for(lambda: what(self.last) or self.has_ended(), 120):
                pytest.fail(f"the link says {self.last}")
            assert what(self.last), self.end()
            return self.last

    def until_whole(self, source: Server, copy: Server, topic: str) -> None:
        """Waits until all is there that the source has now: what is said of the lag may be a second old."""
        self.until(lambda last: last.get("state") == "copying")
        has = contents(source, topic)
        until = time.monotonic() + 120
        while contents(copy, topic) != has:
            with self.news:
                assert self.news.wait(120), self.last
            assert time.monotonic() < until and not self.has_ended(), self.last

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        error = self.end()
        assert self.process.returncode == 0, error

    def end(self) -> str:
        """Waits for its end, and gives what it says of that."""
        self.process.wait(60)
        self.reader.join()
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            return stderr.read()


def contents(server: Server, topic: str) -> list[tuple[Any, ...]]:
    """Everything that a reader sees of the events of a topic."""
    with server.connect() as driver, driver.open_topic(topic).read() as reader:
        seen = []
        for event in reader:
            where = (event.id.partition, event.id.offset)
            what = (event.metadata_bytes, bytes(event.data), event.key, event.headers)
            seen.append((*where, *what, event.time, event.append_time))
        return sorted(seen)


def push(topic: thalweg.Topic, first: int, count: int, data: bytes = b"") -> None:
    with topic.producer() as producer:
        for number in range(first, first + count):
            key = str(number % 7)
            producer.push({"n": number}, data, key=key, headers={"h": b"1"}, time=number)


def test_whatever_is_cut_and_killed_the_copy_is_whole(
    sites: tuple[Server, Server], tmp_path: Path
) -> None:
    source, copy = sites
    chance = random.Random(7)
    line = Line(("127.0.0.1", port(copy)), seed=7, cut_after=2_500_000)
    far = through(copy, line, tmp_path / "far.json")
    large = random.Random(1).randbytes(300_000)
    with source.connect() as driver:
        topic = driver.create_topic("frames", partitions=3)
    link = Link(source.group_file, far, "frames=copy")
    count = 0
    try:
        for turn in range(9):
            with source.connect() as driver:
                topic = driver.open_topic("frames")
                push(topic, count, 300)
                push(topic, count + 300, 4, large)
            count += 304
            time.sleep(chance.random() * 0.3)
            match turn % 4:
                case 0:
                    link.kill()
                    link = Link(source.group_file, far, "frames=copy")
                case 1:
                    copy.kill()
                    copy.start()
                    line.to = ("127.0.0.1", port(copy))
                case 2:
                    source.kill()
                    source.start()
                case _:
                    line.cut()
                    time.sleep(0.5)
                    line.mend()
        # Large data has to pass in one piece.
        line.cut_after(0)
        link.until(lambda last: last.get("state") == "copying" and last["lag_events"] == 0)
        link.stop()
        assert line.cuts > 3
        has = contents(source, "frames")
        assert len(has) == count
        assert contents(copy, "copy") == has
        with copy.connect() as driver:
            assert driver.open_topic("copy").gaps() == []
    finally:
        link.process.kill()
        line.close()


def test_what_retention_takes_is_a_gap_and_offsets_stay(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    storage = ("disk", {"segment_bytes": 4096})
    with source.connect() as driver:
        topic = driver.create_topic("frames", storage=storage, retention={"count": 100})
        push(topic, 0, 1000)
    first = contents(source, "frames")[0][1]
    assert first > 0
    link = Link(source.group_file, copy.group_file, "frames")
    last = link.until(lambda last: last.get("events", 0) > 0 and last["lag_events"] == 0)
    assert last["skipped"] == first
    link.stop()
    assert contents(copy, "frames")[-100:] == contents(source, "frames")[-100:]
    with copy.connect() as driver:
        gaps = driver.open_topic("frames").gaps()
    assert (gaps[0].first, gaps[0].end, gaps[0].reason) == (0, first, "retention")


def test_a_source_keeps_for_its_link_what_is_not_copied(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        topic = driver.create_topic(
            "frames",
            storage=("disk", {"segment_bytes": 4096}),
            retention={"count": 100},
            keep_until_acknowledged=["link/b"],
        )
        push(topic, 0, 200)
        link = Link(source.group_file, copy.group_file, "frames")
        link.until(lambda last: last.get("state") == "copying" and last["lag_events"] == 0)
        link.kill()
        push(topic, 200, 1000)
    link = Link(source.group_file, copy.group_file, "frames")
    link.until(lambda last: last.get("events") == 1000 and last["lag_events"] == 0)
    link.stop()
    with copy.connect() as driver, driver.open_topic("frames").read() as reader:
        seen = [event.metadata["n"] for event in reader]
    assert seen[-1] == 1199
    assert seen == list(range(seen[0], 1200)), "nothing is missing in between"


def test_a_copy_is_written_by_its_link_until_it_is_promoted(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        push(driver.create_topic("frames"), 0, 10)
    link = Link(source.group_file, copy.group_file, "frames")
    link.until(lambda last: last.get("events") == 10)
    with copy.connect() as driver:
        topic = driver.open_topic("frames")
        with pytest.raises(thalweg.Error, match="is a mirror: its link alone writes it"):
            push(topic, 10, 1)
        # A second link of the same name waits for the first, and then goes on.
        second = Link(source.group_file, copy.group_file, "frames")
        second.until(lambda last: "is at work already" in str(last.get("why")))
        link.kill()
        second.until(lambda last: last.get("state") == "copying")
        command = [thalweg.executable(), "relay", "promote", "frames"]
        command += ["--group-file", str(copy.group_file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "is a topic of its own now" in done.stdout
        with source.connect() as other:
            push(other.open_topic("frames"), 10, 1)
        assert "no mirror, or was promoted" in second.end()
        assert second.process.returncode == 1
        push(driver.open_topic("frames"), 10, 1)
    assert [event[1] for event in contents(copy, "frames")] == list(range(11))


def refused(source: Server, copy: Server, *arguments: str, name: str = "b") -> str:
    link = Link(source.group_file, copy.group_file, *arguments, name=name)
    error = link.end()
    assert link.process.returncode == 1, error
    return error


def test_what_is_no_copy_is_left_alone(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as a, copy.connect() as b:
        push(a.create_topic("frames", partitions=2), 0, 10)
        b.create_topic("frames")
        assert "exists and is no mirror" in refused(source, copy, "frames")
        link = Link(source.group_file, copy.group_file, "frames=copy")
        link.until(lambda last: last.get("events") == 10)
        # The source gets partitions, and so does the copy.
        a.add_partitions("frames", 1)
        link.until(lambda last: last["cuts"] > 0 and last["state"] == "copying")
        link.stop()
        assert len(b.open_topic("copy").partitions) == 3
        assert 'is written by the link "b"' in refused(source, copy, "frames=copy", name="c")
        b.add_partitions("copy", 1)
        assert "has 4 partitions, the source 3" in refused(source, copy, "frames=copy")
        a.delete_topic("frames")
        assert "unknown topic" in refused(source, copy, "frames=copy")
        a.create_topic("frames")
        assert "is the mirror of another topic" in refused(source, copy, "frames=copy")


def test_a_credential_that_ends_is_waited_for(sites: tuple[Server, Server], tmp_path: Path) -> None:
    source, copy = sites
    token = tmp_path / "token"
    line = Line(("127.0.0.1", port(copy)))

    def renew(length: str) -> None:
        command = [thalweg.executable(), "token", "new", "--project", "p", "--can", "write,manage,read"]
        command += ["--for", length, "--directory", str(copy.directory / "data")]
        command += ["--output", str(tmp_path / "new")]
        subprocess.run(command, check=True, capture_output=True)
        (tmp_path / "new").rename(token)

    with source.connect() as driver:
        topic = driver.create_topic("frames")
        push(topic, 0, 10)
        renew("2s")
        address = f"tcp://127.0.0.1:{line.port}"
        credential = ["--to-credential", str(token)]
        link = Link(source.group_file, address, "frames", *credential)
        try:
            link.until(lambda last: last.get("events") == 10)
            time.sleep(2)
            # The connection is gone, and no other one is let in.
            line.cut()
            line.mend()
            push(topic, 10, 10)
            link.until(lambda last: last["lag_events"] == 10)
            renew("1h")
            link.until(lambda last: last["events"] == 20 and last["lag_events"] == 0)
            link.stop()
        finally:
            link.process.kill()
            line.close()


def test_a_name_is_for_one_copy(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        push(driver.create_topic("frames"), 0, 10)
    link = Link(source.group_file, copy.group_file, "frames=live")
    link.until(lambda last: last.get("events") == 10 and last["lag_events"] == 0)
    link.stop()
    # Its cursor would let the source forget what the other copy lacks.
    assert "give the link of another copy another name" in refused(source, copy, "frames=archive")
    other = Link(source.group_file, copy.group_file, "frames=archive", name="c")
    other.until(lambda last: last.get("events") == 10)
    other.stop()
    twice = Link(source.group_file, copy.group_file, "frames=one", "frames=two", name="d")
    assert "a link copies frames once" in twice.end()
    assert twice.process.returncode == 2


def test_data_that_the_source_cannot_read_ends_the_link_or_is_a_gap(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    large = random.Random(2).randbytes(400_000)
    with source.connect() as driver:
        topic = driver.create_topic("frames")
        for number in range(3):
            push(topic, number, 1, large)
    source.stop()
    (file,) = [path for path in source.directory.rglob("*.data") if path.stat().st_size > 1_000_000]
    with file.open("r+b") as stored:
        # In the second of three.
        stored.seek(600_000)
        before = stored.read(1)
        stored.seek(600_000)
        stored.write(bytes([before[0] ^ 1]))
    source.start()
    error = refused(source, copy, "frames")
    assert "offsets 1 to 2 cannot be read" in error and "--skip-damaged" in error, error
    link = Link(source.group_file, copy.group_file, "frames", "--skip-damaged")
    last = link.until(lambda last: last.get("state") == "copying" and last["lag_events"] == 0)
    assert last["skipped"] == 1
    link.stop()
    assert [event[1] for event in contents(copy, "frames")] == [0, 2]
    with copy.connect() as driver:
        (gap,) = driver.open_topic("frames").gaps()
    assert (gap.first, gap.end, gap.reason) == (1, 2, "damaged")


def test_a_link_whose_cursor_is_gone_goes_on_where_the_copy_is(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        topic = driver.create_topic("frames")
        push(topic, 0, 10)
    link = Link(source.group_file, copy.group_file, "frames")
    link.until(lambda last: last.get("events") == 10 and last["lag_events"] == 0)
    link.stop()
    with source.connect() as driver:
        # The cursor says nothing any more of what the copy has.
        driver.open_topic("frames").delete_consumer("link/b")
        push(driver.open_topic("frames"), 10, 5)
    link = Link(source.group_file, copy.group_file, "frames")
    link.until(lambda last: last.get("events") == 5 and last["lag_events"] == 0)
    link.stop()
    assert contents(copy, "frames") == contents(source, "frames")


def test_a_credential_that_was_revoked_is_replaced(sites: tuple[Server, Server], tmp_path: Path) -> None:
    source, copy = sites
    token = tmp_path / "token"

    def command(*words: str) -> str:
        command = [thalweg.executable(), "token", *words, "--directory", str(copy.directory / "data")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def renew() -> None:
        command("new", "--can", "write,manage,read", "--for", "1h", "--output", str(tmp_path / "new"))
        (tmp_path / "new").rename(token)

    with source.connect() as driver:
        topic = driver.create_topic("frames")
        push(topic, 0, 10)
        copy.connect().close()
        renew()
        address = f"tcp://127.0.0.1:{port(copy)}"
        link = Link(source.group_file, address, "frames", "--to-credential", str(token))
        link.until(lambda last: last.get("events") == 10)
        command("revoke", str(token))
        count = 10
        # The server looks at what is revoked now and then.
        while "revoked" not in str(link.last.get("why")):
            assert not link.has_ended(), link.end()
            push(topic, count, 1)
            count += 1
            with link.news:
                link.news.wait(1)
        # So long that the connection is given up for good.
        cuts = link.last["cuts"]
        link.until(lambda last: last["cuts"] > cuts + 5)
        renew()
        # What was stored when it was revoked, and not answered, is not counted.
        link.until(lambda last: last["state"] == "copying" and last["lag_events"] == 0)
        link.stop()
    assert len(contents(copy, "frames")) == count


def test_a_copy_that_does_not_answer_is_reported_though_nothing_is_to_be_copied(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        push(driver.create_topic("idle"), 0, 10)
    link = Link(source.group_file, copy.group_file, "idle")
    link.until(lambda last: last.get("lag_events") == 0 and last["state"] == "copying")
    copy.pause()
    link.until(lambda last: last["state"] == "waiting" and "at the copy: no answer" in last["why"])
    copy.go_on()
    link.until(lambda last: last["state"] == "copying")
    with source.connect() as driver:
        push(driver.open_topic("idle"), 10, 10)
    link.until(lambda last: last["events"] == 20 and last["lag_events"] == 0)
    link.stop()


def test_a_topic_that_is_kept_by_something_keeps_no_other(sites: tuple[Server, Server]) -> None:
    source, copy = sites
    with source.connect() as driver:
        for name in ("sick", "well"):
            push(driver.create_topic(name), 0, 10)
    # A link of the same name is at work on one of them.
    first = Link(source.group_file, copy.group_file, "sick")
    first.until(lambda last: last.get("lag_events") == 0 and last["state"] == "copying")
    second = Link(source.group_file, copy.group_file, "sick", "well")
    second.until(lambda last: last.get("state") == "waiting" and last["events"] == 10)
    assert "topic sick at the copy" in second.last["why"]
    with source.connect() as driver:
        push(driver.open_topic("well"), 10, 10)
        second.until(lambda last: last["events"] == 20)
        push(driver.open_topic("sick"), 10, 10)
    first.until(lambda last: last["events"] == 20)
    assert len(contents(copy, "well")) == 20
    # When it may, it goes on with that one, too.
    first.stop()
    second.until(lambda last: last["state"] == "copying" and last["lag_events"] == 0)
    with source.connect() as driver:
        push(driver.open_topic("sick"), 20, 10)
    second.until(lambda last: last["events"] == 30 and last["lag_events"] == 0)
    second.stop()
    for name in ("sick", "well"):
        assert contents(copy, name) == contents(source, name)


def test_a_batch_that_the_copy_does_not_take_ends_the_link(
    sites: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = sites
    copy.stop()
    monkeypatch.setenv("THALWEG_PAYLOAD_BYTES_MAX", "2MiB")
    copy.start()
    with source.connect() as driver:
        topic = driver.create_topic("large", metadata_bytes_max=8 << 20)
        push(topic, 0, 3)
        with topic.producer() as producer:
            producer.push({"text": "x" * (3 << 20)})
    said = refused(source, copy, "large")
    assert "topic large at the copy" in said and "the server takes 2097152 at once" in said
