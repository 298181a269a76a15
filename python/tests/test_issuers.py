"""What another issuer has made says who a program is: a JWT, or a token that a site knows."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server

ISSUER = "https://auth.example.org/"
AUDIENCE = "thalweg://tests"

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl signs")


def text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Issuer:
    """Signs JWTs by a key of its own."""

    def __init__(self, directory: Path) -> None:
        self.key = directory / "key.pem"
        command = ["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-out", str(self.key)]
        subprocess.run(command, check=True)

    def keys(self) -> str:
        command = ["openssl", "rsa", "-in", str(self.key), "-noout", "-modulus"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        modulus = bytes.fromhex(said.strip().removeprefix("Modulus="))
        key = {"kty": "RSA", "kid": "one", "use": "sig", "e": "AQAB", "n": text(modulus)}
        return json.dumps({"keys": [key]})

    def jwt(self, **claims: object) -> str:
        now = int(time.time())
        all_claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 3600}
        all_claims |= {"groups": ["beamline"], **claims}
        parts = ({"alg": "RS256", "kid": "one"}, all_claims)
        message = ".".join(text(json.dumps(part).encode()) for part in parts)
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signed = subprocess.run(command, check=True, input=message.encode(), capture_output=True)
        return f"{message}.{text(signed.stdout)}"


WHO_IS = """#!/bin/sh
read token
env | grep -q '^THALWEG_' && exit 1
case $token in
good) echo '{"active": true, "sub": "bob", "project": "stf"}';;
*) echo '{"active": false}';;
esac
"""


class Site:
    """A server that believes an issuer, and a command."""

    def __init__(self, directory: Path) -> None:
        self.server = Server(directory, "tcp://127.0.0.1:0", "tls://127.0.0.1:0")
        self.issuer = Issuer(directory)
        self.server.start()
        with self.server.connect(namespace="stf") as owner:
            for name in ("frames", "other"):
                owner.create_topic(name, exist_ok=True)
        self.server.stop()
        access = directory / "data" / "access"
        (access / "keys.json").write_text(self.issuer.keys())
        who_is = directory / "who-is"
        who_is.write_text(WHO_IS)
        who_is.chmod(0o700)
        to = {"project": "stf", "topics": ["f*"]}
        issuer = {"audience": AUDIENCE, "algorithms": ["RS256"], "keys": "keys.json"}
        issuer["maps"] = [{"if": {"groups": "beamline"}, "may": ["read", "write"], **to}]
        maps = [{"if": {"project": "stf"}, "may": ["read"], **to}]
        site = {"name": "globus", "command": [str(who_is)], "maps": maps}
        issuers = {"issuers": {ISSUER: issuer}, "introspection": site}
        (access / "issuers.json").write_text(json.dumps(issuers))
        self.server.start()
        with self.server.connect():
            group = json.loads(self.server.group_file.read_text())
        of = {one.partition(":")[0]: one for one in group["endpoints"]}
        self.plain = of["tcp"]
        self.address = f"{of['tls']}?sha256={group['certificates'][0]}"
        self.file = directory / "credential"

    def driver(self, credential: str) -> thalweg.Driver:
        self.file.write_text(credential + "\n")
        return thalweg.Driver(address=self.address, credential=self.file)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        # What the server has in its environment is none of the command's.
        patch.setenv("THALWEG_TESTED", "yes")
        site = Site(tmp_path_factory.mktemp("issuers"))
    yield site
    site.server.stop()


def test_a_jwt_is_all_that_a_program_needs(site: Site) -> None:
    with site.driver(site.issuer.jwt()) as driver:
        with driver.open_topic("frames").producer() as producer:
            producer.push({"n": 1})
        with driver.open_topic("frames").consumer("viewer") as consumer:
            event = consumer.pull(timeout=60)
            assert event is not None
            assert event.metadata == {"n": 1}
        with pytest.raises(thalweg.NotAllowed, match='"alice" of "https://auth'):
            driver.open_topic("other").producer()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1_700_000_000}, "expired at 2023-11-14T22:13:20Z: put a newer one in its place"),
        ({"aud": "somebody else"}, "it is not for thalweg://tests"),
        ({"nbf": 4_000_000_000}, "it is good from"),
        ({"groups": []}, "issuers.json maps it: ask the operator"),
        # Of another issuer it is the site's command that is asked.
        ({"iss": "https://other.example.org/"}, '"globus" says that the credential is not active'),
    ],
)
def test_one_that_does_not_count_says_why(site: Site, claims: dict[str, object], why: str) -> None:
    jwt = site.issuer.jwt(**claims)
    with pytest.raises(thalweg.Error, match=why) as caught:
        site.driver(jwt)
    assert jwt not in str(caught.value)


def test_one_is_sent_only_where_nobody_hears_it(site: Site) -> None:
    site.file.write_text(site.issuer.jwt())
    with pytest.raises(thalweg.Error, match="use an address of tls://"):
        thalweg.Driver(address=site.plain, credential=site.file)
    # The group file names another way than that by TCP.
    with thalweg.Driver(site.server.group_file, credential=site.file) as driver:
        driver.open_topic("frames").consumer("viewer").close()


def test_one_that_was_damaged_is_shown_to_no_command(site: Site) -> None:
    header, claims, signature = site.issuer.jwt().split(".")
    with pytest.raises(thalweg.NotAllowed, match="was a JWT, and is damaged"):
        site.driver(f"{header}.{claims[:-3]}.{signature}")


def test_keys_that_an_issuer_takes_back_end_what_stands(site: Site) -> None:
    keys = site.server.directory / "data" / "access" / "keys.json"
    jwt = site.issuer.jwt()
    with site.driver(jwt) as stands:
        keys.write_text('{"keys": []}')
        why = "its issuer has no keys"
        while True:
            try:
                site.driver(jwt).close()
            except thalweg.NotAllowed as error:
                assert why in str(error)
                break
        # What stood by it is ended, and comes to nothing anew.
        with pytest.raises(thalweg.Error):
            stands.open_topic("frames")
    keys.write_text(site.issuer.keys())
    while True:
        try:
            site.driver(jwt).close()
            break
        except thalweg.NotAllowed as error:
            assert why in str(error)


def test_one_that_was_forged_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(thalweg.NotAllowed, match="its signature is wrong"):
        site.driver(Issuer(tmp_path).jwt())


def test_a_command_of_the_site_knows_other_tokens(site: Site) -> None:
    with site.driver("good") as driver:
        driver.open_topic("frames").consumer("bob").close()
        with pytest.raises(thalweg.NotAllowed, match='"bob" of "globus"'):
            driver.open_topic("frames").producer()
    with pytest.raises(thalweg.NotAllowed, match='"globus" says that the credential is not active'):
        site.driver("wrong")


def test_a_command_says_what_a_jwt_may_do(site: Site) -> None:
    site.file.write_text(site.issuer.jwt())
    command = [thalweg.executable(), "why-not", "manage", "frames", "--as", str(site.file)]
    command += ["--address", site.address]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    assert said.returncode == 1
    assert "access/issuers.json: ask the operator" in said.stdout


def test_nothing_that_was_presented_is_in_a_log(site: Site) -> None:
    jwt = site.issuer.jwt()
    with site.driver(jwt):
        pass
    written = [path for path in site.server.directory.rglob("*") if path.is_file()]
    written = [path for path in written if path not in (site.file, site.issuer.key)]
    signature = jwt.rpartition(".")[2].encode()
    assert not [path for path in written if signature in path.read_bytes()]
    trail = (site.server.directory / "data" / "audit").glob("*.jsonl")
    lines = [line for path in trail for line in path.read_text().splitlines() if line]
    records = [json.loads(line) for line in lines]
    known = [record for record in records if record.get("subject") == "alice"]
    assert known
    assert known[-1]["issuer"] == ISSUER
