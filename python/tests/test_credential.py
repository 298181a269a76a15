"""A token in a file says who a program is, in place of the group file."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[Server]:
    """A server that listens where nothing but a token proves who one is."""
    server = Server(tmp_path, "tcp://127.0.0.1:0")
    server.start()
    yield server
    server.stop()


def token(server: Server, *limits: str) -> Path:
    """The file of a token for topics `f*` of the project `stf`."""
    file = server.directory / "stf.token"
    with server.connect(namespace="stf") as owner:
        for name in ("frames", "other"):
            owner.create_topic(name, exist_ok=True)
    command = [thalweg.executable(), "token", "new", "--directory", str(server.directory / "data")]
    command += ["--project", "stf", "--topics", "f*", "--can", "read,write", *limits]
    subprocess.run([*command, "--output", str(file)], check=True, stdout=subprocess.DEVNULL)
    return file


def address(server: Server) -> str:
    with server.connect():
        endpoints = json.loads(server.group_file.read_text())["endpoints"]
    return str(next(one for one in endpoints if one.startswith("tcp://")))


def use(driver: thalweg.Driver) -> None:
    """What the token allows goes, and nothing else does."""
    with driver.open_topic("frames").producer() as producer:
        producer.push({"n": 1})
    with driver.open_topic("frames").consumer("viewer") as consumer:
        event = consumer.pull(timeout=60)
        assert event is not None
        assert event.metadata == {"n": 1}
    with pytest.raises(thalweg.NotAllowed, match="the token is for topics f"):
        driver.open_topic("other").producer()


def test_a_credential_is_all_that_a_program_needs(tcp: Server) -> None:
    with thalweg.Driver(address=address(tcp), credential=token(tcp)) as driver:
        use(driver)
        with pickle.loads(pickle.dumps(driver)) as other:
            assert [one.name for one in other.list_topics()] == ["frames"]


def test_the_environment_names_a_credential(
    tcp: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = token(tcp)
    at = address(tcp)
    monkeypatch.setenv("THALWEG_CREDENTIAL", str(file))
    with thalweg.Driver(address=at) as driver:
        use(driver)
    # It is no credential of a server in this process.
    with thalweg.Driver.embedded(tmp_path / "own") as own:
        own.create_topic("of the owner")


def test_a_token_and_a_credential_are_too_much(tcp: Server) -> None:
    with pytest.raises(ValueError, match="a token or a credential"):
        thalweg.Driver(address="tcp://127.0.0.1:1", token=b"1", credential="file")


def test_a_credential_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="nowhere.token: the credential cannot be read"):
        thalweg.Driver(address="tcp://127.0.0.1:1", credential="nowhere.token")


def test_the_log_says_that_a_credential_ends(
    tcp: Server, caplog: pytest.LogCaptureFixture
) -> None:
    file = token(tcp, "--for", "50s")
    with caplog.at_level(logging.WARNING, "thalweg"):
        with thalweg.Driver(address=address(tcp), credential=file) as driver:
            driver.list_topics()
    [said] = [one.getMessage() for one in caplog.records if str(file) in one.getMessage()]
    assert "expires at" in said
    assert file.read_text().strip() not in said
