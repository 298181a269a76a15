"""Every file of a data directory, damaged in every way: what is served is what was stored, what is
missing is reported, and what is there can be gone on with.

A few cases are drawn for each run. `THALWEG_DAMAGE=all` tries all of them, `THALWEG_DAMAGE=300` so many, and
`THALWEG_SEED=7` draws the same again.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import thalweg

DRAWN = 150
SMALL, FRAMES = 300, 12
ACKNOWLEDGED = 100
SETTLED = 40
COUNTS = {"small": SMALL, "frames": FRAMES}
#: Who a server is, and what clients present: without them it is another server.
IDENTITY = ("directory.json", "token")


def content(topic: str, number: int) -> bytes:
    length = 1000 if topic == "small" else 100_000
    return random.Random(f"{topic} {number}").randbytes(length)


class Ground:
    """A data directory with a server on it, now and then."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.journal = directory / "journal"
        self.group_file = directory / "thalweg.json"
        self.log = directory / "server.log"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> bool:
        """Whether the server is ready; else it has ended."""
        command = [thalweg.executable(), "serve", str(self.data)]
        command += ["--group-file", str(self.group_file), *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline():
            return True
        self.process.wait()
        return False

    def end(self, kill: bool = False) -> int:
        assert self.process is not None
        self.process.kill() if kill else self.process.terminate()
        return self.process.wait()

    def connect(self) -> thalweg.Driver:
        return thalweg.Driver(self.group_file, connect_timeout=60.0, request_timeout=60.0)

    def files(self) -> dict[Path, bytes]:
        """All but what every start writes."""
        paths = (path for path in sorted(self.data.rglob("*")) if path.is_file())
        return {path.relative_to(self.data): path.read_bytes() for path in paths if path.name != "lock"}


def fill(ground: Ground) -> None:
    assert ground.start()
    with ground.connect() as driver:
        settings = ("disk", {"segment_bytes": 64_000})
        small = driver.create_topic("small", storage=settings)
        frames = driver.create_topic("frames", durability="synced")
        for topic in (small, frames):
            with topic.producer(batch=10, journal=ground.journal) as producer:
                for number in range(COUNTS[topic.name]):
                    producer.push({"number": number}, content(topic.name, number))
        with small.consumer("viewer", data=False) as consumer:
            for event in consumer:
                event.acknowledge()
                if event.id.offset == ACKNOWLEDGED - 1:
                    break
        with small.queue("farm", data=False, prefetch=8) as queue:
            for _ in range(SETTLED):
                task = queue.pull(timeout=60)
                assert task is not None
                task.acknowledge()


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ground]:
    """A directory that was stopped cleanly, and one whose server was killed."""
    grounds = {}
    for stop in ("stopped", "killed"):
        ground = Ground(tmp_path_factory.mktemp(stop))
        fill(ground)
        ground.end(kill=stop == "killed")
        grounds[stop] = ground
    return grounds


def removed(path: Path, _: random.Random) -> None:
    path.unlink()


def emptied(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def halved(path: Path, _: random.Random) -> None:
    os.truncate(path, path.stat().st_size // 2)


def shortened(path: Path, draw: random.Random) -> None:
    os.truncate(path, max(0, path.stat().st_size - draw.choice([1, 8, 128, 4096])))


def flipped(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def zeroed(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content) + 1) // 512 * 512
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    path.write_bytes(content)


def garbled(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(path.stat().st_size))


def lengthened(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.choice([1, 100, 5000])))


def exchanged(path: Path, draw: random.Random) -> None:
    """It has the content of another file of its kind, and that file its."""
    root = next(parent for parent in path.parents if parent.name == "data")
    others = [
        other
        for other in root.rglob(f"*{path.suffix}" if path.suffix else path.name)
        if other.is_file() and other != path and other.name not in (*IDENTITY, "lock")
    ]
    if others:
        other = draw.choice(sorted(others))
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)


def a_directory(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


#: Nothing of the file's own is left.
GONE = ("removed", "emptied", "a_directory", "exchanged")

WAYS: list[Callable[[Path, random.Random], None]] = [
    removed,
    emptied,
    halved,
    shortened,
    flipped,
    zeroed,
    garbled,
    lengthened,
    exchanged,
    a_directory,
]


def cases(grounds: dict[str, Ground]) -> list[tuple[str, Path, Callable[[Path, random.Random], None]]]:
    return [
        (stop, path, way)
        for stop, ground in grounds.items()
        for path in ground.files()
        for way in WAYS
    ]


class Told:
    """What the server tells of losses."""

    def __init__(self, driver: thalweg.Driver) -> None:
        self.status = driver.status()

    @property
    def losses(self) -> list[Any]:
        losses: list[Any] = self.status["losses"]
        return losses

    def failures(self, topic: str) -> list[str]:
        topics = [one for one in self.status["topics"] if one["name"] == topic]
        return [
            partition["failure"]
            for one in topics
            for partition in one["partitions"]
            if partition["failure"]
        ]


def is_told(offset: int, gaps: list[thalweg.Gap]) -> bool:
    """Whether one of them names this offset; where their number is not known it begins there."""
    return any(gap.first <= offset < gap.end or gap.first == gap.end <= offset for gap in gaps)


def check_topic(driver: thalweg.Driver, name: str, missing: Counter[str], is_cut: bool) -> None:
    """What a topic still has is right, in order, once; what it has not is reported. What a server that was killed
    had written last may be taken for torn by it: then the next one's log tells of the cut."""
    told = Told(driver)
    try:
        topic = driver.open_topic(name)
    except thalweg.UnknownTopic:
        assert told.losses, f"{name} is gone without a word"
        missing[name] += COUNTS[name]
        return
    found: dict[int, bytes] = {}
    try:
        with topic.read(start="beginning") as reader:
            for event in reader:
                assert event.id.offset not in found, f"{name} {event.id.offset} came twice"
                assert not found or event.id.offset > max(found), f"{name} {event.id.offset} is late"
                found[event.id.offset] = bytes(event.data)
                if event.id.offset < COUNTS[name]:
                    assert event.metadata == {"number": event.id.offset}
            gaps = reader.gaps + driver.gaps(name)
    except thalweg.StorageError as error:
        failures = told.failures(name)
        assert failures, f"{name}: {error}, and status says nothing"
        missing[name] += COUNTS[name]
        return
    for offset, data in found.items():
        if offset < COUNTS[name]:
            assert data == content(name, offset), f"{name} {offset} is wrong"
    for offset in range(COUNTS[name]):
        if offset not in found:
            is_of_tail = offset > max((at for at in found if at < COUNTS[name]), default=-1)
            assert is_told(offset, gaps) or is_cut and is_of_tail, f"{name} {offset} is not in {gaps}"
            missing[name] += 1
    # It goes on behind what is there.
    with topic.producer() as producer:
        stored = producer.push({"number": "new"}, b"new").result(60)
    assert stored.offset not in found and stored.offset >= max(found, default=0)
    with topic.read(start=stored) as reader:
        (event,) = list(reader)
    assert (event.id, event.metadata, bytes(event.data)) == (stored, {"number": "new"}, b"new")


def check_readers(driver: thalweg.Driver, missing: Counter[str], is_cut: bool) -> None:
    """A cursor and a queue skip nothing."""
    if missing["small"] == SMALL:
        return
    small = driver.open_topic("small")
    with small.consumer("viewer", data=False) as consumer:
        event = consumer.pull(timeout=60)
        assert event is not None
        for offset in range(ACKNOWLEDGED, min(event.id.offset, SMALL)):
            if is_cut and offset >= SMALL - missing["small"]:
                break
            assert is_told(offset, consumer.gaps), f"viewer: {offset} is not in {consumer.gaps}"
    with small.queue("farm", data=False, prefetch=256) as queue:
        given = set()
        for event in queue.drain(idle=0.01):
            given.add(event.id.offset)
            event.acknowledge()
        for offset in range(SETTLED, SMALL):
            if is_cut and offset >= SMALL - missing["small"]:
                break
            if offset not in given:
                assert is_told(offset, queue.gaps), f"farm: {offset} is not in {queue.gaps}"


def audited(ground: Ground) -> int:
    command = [thalweg.executable(), "audit", "--group-file", str(ground.group_file)]
    command += ["--journal", str(ground.journal)]
    ran = subprocess.run(command, capture_output=True, timeout=100, text=True)
    assert ran.returncode in (0, 3), ran.stderr
    return ran.returncode


def check(ground: Ground, stop: str, damaged: Path, way: str) -> str:
    """Starts a server on it and looks at all. In a word what became of it."""
    before = ground.files()
    beside = [path for path in (*before, damaged) if path.parent == damaged.parent]
    last_segment = max((path for path in beside if path.suffix == ".log"), default=None)
    outcome = "served"
    if not ground.start():
        said = ground.log.read_text()
        assert "panicked" not in said and len(said.strip()) > 20, said
        assert ground.process is not None and ground.process.returncode in (1, 2, 3, 4, 5, 6), said
        assert ground.files() == before, f"a start that was refused changed files: {said}"
        outcome = "refused, then accepted"
        if not ground.start("--accept-loss"):
            said = ground.log.read_text()
            assert "panicked" not in said and len(said.strip()) > 20, said
            # Two topics' files that were exchanged are put back, or nothing is touched.
            is_exchanged = way == "exchanged" and "exchanged" in said
            assert damaged.name in IDENTITY or way == "a_directory" or is_exchanged, said
            return "refused"
    try:
        missing: Counter[str] = Counter()
        is_cut = "or they are damaged" in ground.log.read_text()
        # A last segment that vanishes before a checkpoint spoke of it leaves no trace but in journals; under
        # the content of another one it looks like a file that was to be written again.
        is_last = damaged == last_segment or way == "exchanged" and damaged.suffix == ".log"
        is_cut |= stop == "killed" and is_last and way in GONE
        with warnings.catch_warnings(), ground.connect() as driver:
            warnings.simplefilter("ignore", thalweg.GapWarning)
            for name in COUNTS:
                check_topic(driver, name, missing, is_cut)
            check_readers(driver, missing, is_cut)
            code = audited(ground)
            assert code == 3 or not missing, f"the audit finds nothing, missing are {missing}"
    finally:
        code = ground.end()
    said = ground.log.read_text()
    assert "panicked" not in said, said
    assert code == 0, said
    if missing:
        outcome += ", with losses"
    return outcome


def test_damage_costs_what_it_names(grounds: dict[str, Ground], tmp_path: Path) -> None:
    wanted = os.environ.get("THALWEG_DAMAGE", str(DRAWN))
    seed = int(os.environ.get("THALWEG_SEED", random.SystemRandom().randrange(1 << 32)))
    every = cases(grounds)
    draw = random.Random(seed)
    drawn = every if wanted == "all" else draw.sample(every, min(int(wanted), len(every)))
    outcomes: Counter[str] = Counter()
    failed = []
    for number, (stop, path, way) in enumerate(drawn):
        ground = Ground(tmp_path / f"{number}")
        shutil.copytree(grounds[stop].data, ground.data, ignore=shutil.ignore_patterns("*.sock"))
        shutil.copy(grounds[stop].journal, ground.journal)
        what = f"{stop}, {path}: {way.__name__} (THALWEG_SEED={seed}, case {number})"
        way(ground.data / path, random.Random(f"{seed} {number}"))
        try:
            outcomes[check(ground, stop, path, way.__name__)] += 1
        except (AssertionError, thalweg.Error, OSError) as error:
            outcomes["failed"] += 1
            failed.append(f"{what}: {type(error).__name__} {error}")
            if ground.process is not None and ground.process.poll() is None:
                ground.end(kill=True)
        shutil.rmtree(ground.directory)
    print(f"{len(drawn)} of {len(every)} cases, seed {seed}: {dict(outcomes)}")
    assert not failed, "\n".join(failed)
