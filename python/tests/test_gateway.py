"""The gateway: the published request, and one string that is all a program needs."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thalweg

ROOT = Path(__file__).resolve().parents[2]
API = "api.localhost"
STREAMING = "/olcf/open/v1alpha/streaming/rabbitmq"
# The example of S3M's pages.
PUBLISHED = {
    "kind": "general",
    "name": "run42",
    "resourceSettings": {"cpus": 2, "ram-gbs": 4, "nodes": 3, "max-msg-size": 67108864},
}


class Gateway:
    """A `thalweg gateway` process on a directory of its own."""

    def __init__(self, parent: Path, *more: str) -> None:
        self.directory = parent / "gateway"
        self.more = more
        self.process: subprocess.Popen[bytes] | None = None
        self.log = parent / "gateway.log"
        self.token = ""

    def start(self) -> None:
        found = self.directory / "gateway.json"
        found.unlink(missing_ok=True)
        command = [thalweg.executable(), "gateway", str(self.directory)]
        command += ["--name", API, "--domain", "stream.localhost"]
        command += ["--listen", "127.0.0.1:0", "--dialled", "127.0.0.1", *self.more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        while not found.exists():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)
        self.port = int(json.loads(found.read_text())["addresses"][0].rpartition(":")[2])
        if not self.token:
            self.token = self.new_token("stf008")

    def new_token(self, project: str) -> str:
        command = [thalweg.executable(), "token", "new", "--directory", str(self.directory)]
        command += ["--project", project, "--can", "manage"]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0, self.log.read_text()
        finally:
            self.process.kill()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        trust = ssl.create_default_context(cafile=str(self.directory / "tls" / "authority.pem"))
        with socket.create_connection(("127.0.0.1", self.port)) as plain:
            with trust.wrap_socket(plain, server_hostname=API) as stream:
                connection = http.client.HTTPConnection(API)
                connection.sock = stream
                text = None if body is None else json.dumps(body)
                connection.request(method, path, text, {"Authorization": self.token})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

    def provision(self) -> dict[str, Any]:
        status, made = self.ask("POST", f"{STREAMING}/provision_cluster", PUBLISHED)
        assert status == 200, (made, self.log.read_text())
        assert isinstance(made, dict)
        return made


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path)
    gateway.start()
    yield gateway
    gateway.stop()


def quick_start() -> str:
    """The program of the README, on a server by its group file as its comment says."""
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert program is not None
    text, count = re.subn(r'Driver\.embedded\("readme-data"\)', 'Driver("thalweg.json")', program[1])
    assert count == 1
    return text


def run(program: str, directory: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("THALWEG_")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


PRINTED = "{'angle': 0.5} 28 bytes\n"


def test_the_published_request_gives_a_string_that_the_quick_start_needs(gateway: Gateway, tmp_path: Path) -> None:
    made = gateway.provision()
    url = str(made["thalwegUrl"])
    # In the file that stands for the group file.
    here = tmp_path / "file"
    here.mkdir()
    (here / "thalweg.json").write_text(url + "\n")
    assert run(quick_start(), here) == PRINTED
    # In a variable, where there is no file; with another consumer, for the event of before is acknowledged.
    there = tmp_path / "variable"
    there.mkdir()
    again = quick_start().replace('"viewer"', '"other"')
    assert run(again, there, THALWEG_URL=url) == PRINTED
    last = again.replace('"other"', '"third"').replace('"thalweg.json"', "")
    assert run(last, here, THALWEG_URL=url) == PRINTED
    # A credential that is such a string is enough as well, and so is the string itself.
    file = tmp_path / "run42.url"
    file.write_text(url)
    assert run(last.replace('"third"', '"fourth"'), there, THALWEG_CREDENTIAL=str(file)) == PRINTED
    for one in (thalweg.Driver(url), thalweg.Driver(address=url), thalweg.Driver(file)):
        with one as driver:
            assert driver.open_topic("projections").name == "projections"
    # The way past the gateway leads to the same server.
    with thalweg.Driver(str(made["thalwegUrlInside"])) as driver:
        assert driver.open_topic("projections").name == "projections"


def test_a_command_line_shows_no_url(gateway: Gateway, tmp_path: Path) -> None:
    url = str(gateway.provision()["thalwegUrl"])
    secret = url.removeprefix("thalweg://").partition("@")[0]
    for option in ("--address", "--group-file"):
        command = [thalweg.executable(), "topic", "list", option, url]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 2
        assert "THALWEG_URL" in ran.stderr
        assert secret not in ran.stderr + ran.stdout
    environment = os.environ | {"THALWEG_URL": url}
    command = [thalweg.executable(), "topic", "create", "frames", "--if-missing"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    # A string that is none is not shown either.
    environment = os.environ | {"THALWEG_URL": url.replace("@", "/")}
    ran = subprocess.run(
        [thalweg.executable(), "topic", "list"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 2
    assert secret not in ran.stderr


def test_a_client_lives_through_a_gateway_that_dies(gateway: Gateway) -> None:
    url = str(gateway.provision()["thalwegUrl"])
    with thalweg.Driver(url) as driver:
        topic = driver.create_topic("frames")
        with topic.producer() as producer:
            producer.push({"n": 0})
            producer.flush()
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait()
            gateway.more = ("--listen", f"127.0.0.1:{gateway.port}")
            gateway.start()
            producer.push({"n": 1})
            producer.flush()
        with topic.consumer("viewer") as consumer:
            for number in range(2):
                event = consumer.pull(timeout=120)
                assert event is not None
                assert event.metadata == {"n": number}
    assert "goes on" in gateway.log.read_text()


def test_no_secret_is_in_a_line_or_in_the_list_of_processes(gateway: Gateway) -> None:
    made = gateway.provision()
    gateway.ask("POST", f"{STREAMING}/extend/run42")
    secrets = [str(made["password"]), gateway.token]
    secrets = [one.removeprefix("thalweg-token-1:") for one in secrets]
    lines = gateway.log.read_text()
    instance = gateway.directory / "instances" / "stf008" / "run42"
    lines += (instance / "log").read_text() + (instance / "record.json").read_text()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines += (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    for secret in secrets:
        assert secret not in lines
    status, _ = gateway.ask("DELETE", f"{STREAMING}/cluster/run42")
    assert status == 200
    assert gateway.ask("GET", f"{STREAMING}/cluster/run42")[0] == 404


def test_the_description_is_one() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    text = (ROOT / "crates" / "gateway" / "src" / "api" / "openapi.json").read_text()
    validator.validate(json.loads(text))


def test_programs_of_rabbitmq_come_by_the_same_port(gateway: Gateway) -> None:
    pika = pytest.importorskip("pika")
    made = gateway.provision()
    parameters = pika.URLParameters(str(made["amqpsUrl"]))
    assert (parameters.credentials.username, parameters.port) == (made["username"], gateway.port)
    # Who the server is, the string for native clients says by its certificate.
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    parameters.ssl_options = pika.SSLOptions(trust, str(made["amqpsServerName"]))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("jobs", durable=True).method.queue
        channel.basic_publish("", queue, b"by the gateway", pika.BasicProperties(delivery_mode=2))
    with thalweg.Driver(str(made["thalwegUrl"])) as driver:
        assert any(topic.name.startswith("jobs.amqp-") for topic in driver.list_topics())
    with pika.BlockingConnection(parameters) as connection:
        assert connection.channel().basic_get("jobs", auto_ack=True)[2] == b"by the gateway"
