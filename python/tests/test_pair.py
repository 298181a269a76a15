"""Pairing, from end to end: an offer, a code, a certificate, programs that use and renew it, its end."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Server]:
    """A server that other sites reach."""
    server = Server(tmp_path, "tls://127.0.0.1:0")
    server.start()
    server.connect().close()
    yield server
    server.stop()


def run(server: Server, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command at the server's site, where the group file is."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("THALWEG_")}
    command = [thalweg.executable(), *arguments]
    return subprocess.run(
        command, cwd=server.directory, env=environment, text=True, capture_output=True, check=check
    )


def offer(server: Server, life: str) -> str:
    arguments = ["pair", "offer", "--project", "stf008", "--name", "beamline", "--for", life, "--json"]
    return str(json.loads(run(server, *arguments).stdout)["join"])


def join(server: Server, code: str, output: str = "beamline.credential") -> Path:
    """Joins elsewhere: of the server it knows the code alone."""
    elsewhere = server.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = [thalweg.executable(), "pair", "join", code, "--output", output]
    subprocess.run(command, cwd=elsewhere, check=True, capture_output=True)
    return elsewhere / output


def connect(file: Path) -> thalweg.Driver:
    """Its file is all that a program has."""
    return thalweg.Driver(file.parent / "thalweg.json", credential=file)


def expires(file: Path) -> str:
    shown = subprocess.run(
        [thalweg.executable(), "pair", "show", str(file), "--json"], check=True, capture_output=True, text=True
    )
    return str(json.loads(shown.stdout)["expires"])


def test_a_code_buys_a_certificate_that_is_all_a_program_needs(site: Server) -> None:
    file = join(site, offer(site, "1h"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with connect(file) as driver:
        topic = driver.create_topic("frames")
        with topic.producer() as producer:
            producer.push({"n": 1}, b"data")
        with topic.consumer("viewer") as consumer:
            event = consumer.pull(timeout=60)
            assert event is not None
            assert (event.metadata, bytes(event.data)) == ({"n": 1}, b"data")
    # The topic is one of the project, and another project's is none.
    with site.connect(namespace="stf008") as owner:
        assert [topic.name for topic in owner.list_topics()] == ["frames"]
    with pytest.raises(thalweg.NotAllowed):
        thalweg.Driver(file.parent / "thalweg.json", credential=file, namespace="other")


def test_a_code_is_good_once_and_a_wrong_one_never(site: Server) -> None:
    code = offer(site, "1h")
    wrong = ("0" if code[0] != "0" else "1") + code[1:]
    refused = run(site, "pair", "join", wrong, "--output", "wrong", check=False)
    assert refused.returncode == 1
    assert "the code is wrong" in refused.stderr
    join(site, code)
    again = run(site, "pair", "join", code, "--output", "again", check=False)
    assert again.returncode == 1
    assert "was used" in again.stderr
    assert not (site.directory / "again").exists()
    assert not (site.directory / "wrong").exists()
    # Neither the log nor the audit trail has a code or a key.
    texts = [path.read_text() for path in site.directory.rglob("*.jsonl")]
    texts.append((site.directory / "server.log").read_text())
    words = code.partition("@")[0]
    assert texts and not any(words in text or "PRIVATE KEY" in text for text in texts)
    assert any('"what":"pair"' in text for text in texts)


def test_a_program_renews_a_short_life_by_itself_and_nothing_is_lost(site: Server) -> None:
    file = join(site, offer(site, "4s"))
    first, before = expires(file), file.read_text()
    with connect(file) as driver:
        topic = driver.create_topic("frames")
        with topic.producer() as producer:
            sent = 0
            deadline = time.monotonic() + 100
            # Three lives: without renewal the connection would have ended long before the last one's end.
            for _ in range(3):
                last = expires(file)
                while expires(file) == last:
                    assert time.monotonic() < deadline
                    producer.push({"n": sent}).result()
                    sent += 1
        with topic.consumer("viewer") as consumer:
            for number in range(sent):
                event = consumer.pull(timeout=60)
                assert event is not None
                assert event.metadata == {"n": number}
    assert expires(file) > first
    after = file.read_text()
    # The key stays; the certificate is another one.
    key = before.partition("-----BEGIN CERTIFICATE")[0]
    assert after.startswith(key) and after != before
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_certificate_that_is_over_is_said_to_be_and_so_is_what_helps(site: Server) -> None:
    file = join(site, offer(site, "3s"))
    deadline = time.monotonic() + 100
    while True:
        assert time.monotonic() < deadline
        shown = run(site, "pair", "show", str(file), "--json")
        if json.loads(shown.stdout)["is_over"]:
            break
    late = run(site, "topic", "list", "--group-file", "none", "--credential", str(file), check=False)
    assert late.returncode != 0
    assert "the certificate expired at" in late.stderr
    assert "pair anew" in late.stderr
    renewed = run(site, "pair", "renew", str(file), check=False)
    assert renewed.returncode == 1
    assert "expired" in renewed.stderr


def test_revoking_ends_what_stands_and_lets_nobody_in(site: Server) -> None:
    file = join(site, offer(site, "1h"))
    run(site, "pair", "renew", str(file))
    with connect(file) as driver:
        driver.create_topic("frames")
        run(site, "token", "revoke", str(file), "--directory", "data")
        with pytest.raises(thalweg.NotAllowed, match="was revoked"):
            deadline = time.monotonic() + 100
            while time.monotonic() < deadline:
                driver.list_topics()
    with pytest.raises(thalweg.NotAllowed, match="was revoked"):
        connect(file)
    refused = run(site, "pair", "renew", str(file), check=False)
    assert refused.returncode == 1
    assert "was revoked" in refused.stderr
