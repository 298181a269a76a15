"""A server on other hosts: everything by its address alone, or by its group file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Server]:
    """A server that listens for other hosts."""
    server = Server(tmp_path, "tls://0.0.0.0:0")
    server.start()
    yield server
    server.stop()


def group(server: Server) -> dict[str, object]:
    with server.connect():
        document: dict[str, object] = json.loads(server.group_file.read_text())
    return document


def address(server: Server) -> str:
    """The address of TLS, on this host."""
    endpoints = group(server)["endpoints"]
    assert isinstance(endpoints, list)
    endpoint = next(one for one in endpoints if one.startswith("tls://"))
    return f"tls://127.0.0.1:{endpoint.rpartition(':')[2]}"


def token(server: Server) -> bytes:
    return bytes.fromhex(str(group(server)["token"]))


def pass_events(driver: thalweg.Driver) -> None:
    topic = driver.create_topic("frames")
    data = bytes(range(256)) * 20_000
    with topic.producer() as producer:
        for number in range(4):
            producer.push({"number": number}, data)
    with topic.consumer("viewer") as consumer:
        for number in range(4):
            event = consumer.pull(timeout=60)
            assert event is not None
            assert event.metadata == {"number": number}
            assert bytes(event.data) == data


def test_an_address_with_a_hash_is_all_that_a_program_needs(encrypted: Server) -> None:
    hashes = group(encrypted)["certificates"]
    assert isinstance(hashes, list)
    pinned = f"{address(encrypted)}?sha256={hashes[0]}"
    with thalweg.Driver(address=pinned, token=token(encrypted)) as driver:
        pass_events(driver)


def test_a_file_of_authorities_in_the_address_or_the_environment(
    encrypted: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = encrypted.directory / "data" / "tls" / "authority.pem"
    by_file = f"{address(encrypted)}?ca={authority}"
    thalweg.Driver(address=by_file, token=token(encrypted)).close()
    monkeypatch.setenv("THALWEG_TLS_CA", str(authority))
    thalweg.Driver(address=address(encrypted), token=token(encrypted)).close()


def test_nobody_is_trusted_in_silence(encrypted: Server) -> None:
    with pytest.raises(ValueError, match="which certificate to trust"):
        thalweg.Driver(address=address(encrypted), token=token(encrypted))
    other = f"{address(encrypted)}?sha256={'00' * 32}"
    with pytest.raises(ConnectionError, match="not the one that is expected"):
        thalweg.Driver(address=other, token=token(encrypted), connect_timeout=0.5)
