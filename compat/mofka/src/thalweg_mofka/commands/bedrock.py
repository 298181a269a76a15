"""`bedrock`: starts Thalweg's server as a configuration for Mofka's asks for it.

Of a Bedrock configuration three things mean something here: where the group
file is written, whether topics are to survive a restart, and where they are
stored. The rest describes how Mofka is put together; it is named once and
passed over.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thalweg

__all__ = ["Plan", "main", "query_main", "shutdown_main"]

#: Types of databases that forget everything when their server ends.
_FORGETFUL = ("map", "unordered_map", "set", "null", "array")


@dataclass
class Plan:
    """What of a configuration means something here."""

    group_file: Path = Path("mofka.json")
    data: Path | None = None
    """Where topics are kept; None: they are not to outlive the server."""
    passed_over: list[str] = field(default_factory=list)

    @staticmethod
    def of(config: dict[str, Any], protocol: str) -> Plan:
        """The plan of a configuration."""
        plan = Plan(passed_over=[f"protocol {protocol}"])
        plan.passed_over += [key for key in ("margo", "libraries", "abt_io", "ssg", "mona") if config.get(key)]
        for provider in config.get("providers") or []:
            plan._consider(provider)
        return plan

    def _consider(self, provider: dict[str, Any]) -> None:
        kind, config = provider.get("type"), provider.get("config") or {}
        if kind == "flock":
            self.group_file = Path(config.get("file") or self.group_file)
            return
        tags = provider.get("tags") or []
        if kind == "yokan" and any(tag in ("mofka:master", "mofka:controller") for tag in tags):
            database = config.get("database") or {}
            path = (database.get("config") or {}).get("path")
            if database.get("type", "map") not in _FORGETFUL and path:
                # Not the path itself: what Mofka left there is not ours.
                self.data = Path(f"{path.rstrip('/')}.thalweg")
            return
        self.passed_over.append(f"{kind} provider {provider.get('name', '')}".rstrip())


def main(arguments: Sequence[str] | None = None) -> int:
    """`bedrock PROTOCOL -c CONFIG.json`: runs the server until it is told to end."""
    parser = argparse.ArgumentParser(
        "bedrock", description="Starts Thalweg's server as a configuration for Mofka's asks for it.",
        epilog="What follows -- is for `thalweg serve`, such as --listen tcp://127.0.0.1:5000.", allow_abbrev=False,
    )
    parser.add_argument("protocol", help="the protocol of Mofka's network: passed over")
    parser.add_argument("-c", "--config", required=True, metavar="FILE", help="the configuration, in JSON")
    parser.add_argument("-v", "--verbosity", default="info", help="passed over")
    given = list(sys.argv[1:] if arguments is None else arguments)
    serve: list[str] = []
    if "--" in given:
        at = given.index("--")
        given, serve = given[:at], given[at + 1 :]
    options = parser.parse_args(given)
    try:
        config = json.loads(Path(options.config).read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("is no JSON object")
        plan = Plan.of(config, options.protocol)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        print(f"bedrock: {options.config}: {error}", file=sys.stderr)
        return 1
    print(f"bedrock: Thalweg's server needs none of this: {', '.join(plan.passed_over)}", file=sys.stderr)
    command = [thalweg.executable(), "serve", "--group-file", str(plan.group_file), *serve]
    if plan.data is not None:
        plan.data.parent.mkdir(parents=True, exist_ok=True)
        os.execv(command[0], [*command, "--directory", str(plan.data)])
    return _forgetful(command)


def _forgetful(command: list[str]) -> int:
    """Runs the server on a directory that goes with it."""
    directory = tempfile.mkdtemp(prefix="thalweg-bedrock-")
    try:
        server = subprocess.Popen([*command, "--directory", os.path.join(directory, "data")])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda signum, _: server.send_signal(signum))
        return server.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _client(name: str, description: str, arguments: Sequence[str] | None) -> thalweg.Driver | None:
    parser = argparse.ArgumentParser(name, description=description, allow_abbrev=False)
    parser.add_argument("protocol", help="the protocol of Mofka's network: passed over")
    parser.add_argument("-f", "-s", "--flock-file", "--ssg-file", "--group-file", dest="file", default="mofka.json",
                        help="the group file of the server")
    parser.add_argument("-p", "--pretty", action="store_true", help="does nothing")
    options = parser.parse_args(arguments)
    if not Path(options.file).exists():
        print(f"{name}: {options.file} is not there", file=sys.stderr)
        return None
    try:
        return thalweg.Driver(options.file)
    except thalweg.Error as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def shutdown_main(arguments: Sequence[str] | None = None) -> int:
    """`bedrock-shutdown PROTOCOL -f mofka.json`: has the server drain and end."""
    driver = _client("bedrock-shutdown", "Has the server drain and end.", arguments)
    if driver is None:
        return 1
    driver.shutdown_server()
    return 0


def query_main(arguments: Sequence[str] | None = None) -> int:
    """`bedrock-query PROTOCOL -f mofka.json`: prints the server's state as JSON."""
    driver = _client("bedrock-query", "Prints the server's state as JSON.", arguments)
    if driver is None:
        return 1
    with driver:
        print(json.dumps(driver.status(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
