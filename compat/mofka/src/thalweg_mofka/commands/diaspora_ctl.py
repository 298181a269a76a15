"""`diaspora-ctl`: topics, FIFOs and forwarding, from the shell."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from thalweg_mofka.commands import fifo, forward
from thalweg_mofka.commands.arguments import UsageError, dotted, merged
from thalweg_mofka.components import PartitionSelector, Serializer, Validator
from thalweg_mofka.driver import Driver
from thalweg_mofka.errors import ClientException

__all__ = ["main"]

#: Options of the driver for all calls, such as `--driver mofka --driver.group_file mofka.json`.
ENVIRONMENT = "DIASPORA_CTL_DRIVER_OPTIONS"
_PREFIXES = ("driver", "topic", "validator", "serializer", "partition-selector")
_LEVELS = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
    "error": logging.ERROR, "critical": logging.CRITICAL, "off": logging.CRITICAL + 1,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if not given:
        parser.print_help()
        return 1
    try:
        # Behind the command, where its own options are; what is given there counts more.
        inherited = shlex.split(os.environ.get(ENVIRONMENT, ""))
        if inherited and given[0] in ("topic", "fifo") and "--driver" not in given:
            given += inherited
        rest, named = dotted(given, _PREFIXES, commas=True)
        options = parser.parse_args(rest)
    except UsageError as error:
        print(f"diaspora-ctl: {error}", file=sys.stderr)
        return 1
    except SystemExit as end:
        return 1 if end.code else 0
    logging.basicConfig(
        level=_LEVELS[options.logging], format="[%(asctime)s] [%(levelname)s] %(message)s", stream=sys.stderr, force=True
    )
    try:
        options.named = named
        options.run(options)
        return 0
    except (ClientException, UsageError, OSError) as error:
        logging.error("%s", error)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("diaspora-ctl", description="Topics, FIFOs and forwarding, from the shell.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="topic|fifo|forward")
    topics = commands.add_parser("topic", help="creates and lists topics").add_subparsers(required=True, metavar="create|list")

    def of_driver(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made.add_argument("--driver", required=True, help="mofka or thalweg; its options: --driver.KEY VALUE")
        made.add_argument("--driver-config", metavar="FILE", help="a JSON file with the driver's options")
        return logged(made)

    def logged(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made.add_argument("--logging", choices=list(_LEVELS), default="info", help="how much is told, on standard error")
        return made

    create = of_driver(topics.add_parser("create", help="creates a topic", allow_abbrev=False))
    create.add_argument("--name", required=True)
    create.add_argument("--topic-config", metavar="FILE", help="a JSON file with the topic's options; singly: --topic.KEY VALUE")
    for component in ("validator", "serializer", "partition-selector"):
        create.add_argument(f"--{component}", help=f"its type; its keys: --{component}.KEY VALUE")
    create.set_defaults(run=_create)

    listing = of_driver(topics.add_parser("list", help="lists topics, one a line", allow_abbrev=False))
    listing.add_argument("-v", "--verbose", action="store_true", help="with JSON of each")
    listing.set_defaults(run=_list)

    fifos = of_driver(commands.add_parser("fifo", help="lines of FIFOs to topics and back", allow_abbrev=False))
    fifos.add_argument("--control-file", required=True, metavar="FILE", help="the FIFO that takes commands")
    fifos.set_defaults(run=_fifo)

    forwarding = logged(commands.add_parser("forward", help="copies events between topics", allow_abbrev=False))
    forwarding.add_argument("--config", required=True, metavar="FILE", help="a YAML file with drivers and policies")
    forwarding.set_defaults(run=_forward)
    return parser


def _driver(options: argparse.Namespace) -> Driver:
    given = merged(_read(options.driver_config), options.named["driver"])
    return Driver(options.driver, given)


def _read(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: is no JSON object")
    return found


def _create(options: argparse.Namespace) -> None:
    topic = merged(_read(options.topic_config), options.named["topic"])
    with _driver(options) as driver:
        driver.create_topic(
            options.name,
            options=topic,
            validator=Validator(options.validator or "default", options.named["validator"]),
            serializer=Serializer(options.serializer or "default", options.named["serializer"]),
            partition_selector=PartitionSelector(
                options.partition_selector or "default", options.named["partition-selector"]
            ),
        )
    logging.info("topic %s is made", options.name)


def _list(options: argparse.Namespace) -> None:
    with _driver(options) as driver:
        for name, described in sorted(driver.list_topics().items()):
            print(f"{name} {json.dumps(described)}" if options.verbose else name)


def _fifo(options: argparse.Namespace) -> None:
    with _driver(options) as driver:
        fifo.run(driver, options.control_file, _until_told())


def _forward(options: argparse.Namespace) -> None:
    forward.run(options.config, _until_told())


def _until_told() -> threading.Event:
    """Set by SIGINT and SIGTERM."""
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    return told


if __name__ == "__main__":
    sys.exit(main())
