"""`mofkactl`: topics and partitions, from the shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from thalweg_mofka.commands.arguments import UsageError, dotted
from thalweg_mofka.components import PartitionSelector, Serializer, Validator
from thalweg_mofka.driver import MofkaDriver
from thalweg_mofka.errors import ClientException

__all__ = ["main"]

#: What Mofka's own command exits with: -1.
_FAILED = 255
_PREFIXES = ("validator", "v", "partition-selector", "p", "serializer", "s", "config", "c", "dependencies", "d")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    try:
        rest, given = dotted(sys.argv[1:] if arguments is None else arguments, _PREFIXES)
        options = _parser().parse_args(rest)
        # The short prefix of each is the same as the long one.
        options.dotted = {
            long: {**given[long], **given[short]}
            for long, short in zip(_PREFIXES[::2], _PREFIXES[1::2])
        }
        if _dependencies_are_wrong(options.dotted["dependencies"]):
            raise UsageError(f"invalid dependency specifications {options.dotted['dependencies']}")
        if not Path(options.groupfile).exists():
            raise UsageError(f"could not find file {options.groupfile}")
        with MofkaDriver(group_file=options.groupfile) as driver:
            line = options.run(driver, options)
        if line is not None:
            print(line)
        return 0
    except (ClientException, UsageError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mofkactl", description="Topics and partitions, from the shell.", allow_abbrev=False)
    nouns = parser.add_subparsers(required=True, metavar="topic|partition|metadata|data")

    def command(noun: str, verb: str, help: str) -> argparse.ArgumentParser:
        verbs = nouns.add_parser(noun, help=help).add_subparsers(required=True, metavar=verb)
        made = verbs.add_parser(verb, help=help, description=help, allow_abbrev=False)
        made.add_argument("-g", "--groupfile", default="./mofka.json", help="group file of the server")
        return made

    topic = command("topic", "create", "Creates a topic, without partitions.")
    topic.add_argument("name")
    topic.add_argument("-v", "--validator", default="default", help="its keys: --validator.KEY VALUE, --v.KEY VALUE")
    topic.add_argument("-p", "--partition-selector", default="default", help="its keys: --p.KEY VALUE")
    topic.add_argument("-s", "--serializer", default="default", help="its keys: --s.KEY VALUE")
    topic.set_defaults(run=_create_topic)

    partition = command("partition", "add", "Adds a partition to a topic.")
    partition.add_argument("name", help="the topic")
    partition.add_argument("-r", "--rank", type=int, required=True, help="rank of the server: 0")
    partition.add_argument("-t", "--type", default="default",
                           help="memory; default or legacy, on disk; or a storage that the server's operator brought")
    for short, long in (("-p", "--pool"), ("-m", "--metadata"), ("-d", "--data"), (None, "--abt-io")):
        partition.add_argument(*filter(None, (short, long)), default="", help="passed over: the server has its own")
    partition.set_defaults(run=_add_partition)

    for noun, kind in (("metadata", "database"), ("data", "target")):
        provider = command(noun, "add", f"Prints a word for a {noun} provider, for `partition add`. The server has its own.")
        provider.add_argument("-r", "--rank", type=int, required=True, help="rank of the server: 0")
        provider.add_argument("-t", "--type", default="", help=f"type of the {kind}: passed over")
        provider.set_defaults(run=_add_metadata if noun == "metadata" else _add_data)
    return parser


def _dependencies_are_wrong(dependencies: dict[str, object]) -> bool:
    values = (entry for value in dependencies.values() for entry in (value if isinstance(value, list) else [value]))
    return not all(isinstance(value, str) for value in values)


def _create_topic(driver: MofkaDriver, options: argparse.Namespace) -> None:
    driver.create_topic(
        options.name,
        validator=Validator(options.validator, options.dotted["validator"]),
        partition_selector=PartitionSelector(options.partition_selector, options.dotted["partition-selector"]),
        serializer=Serializer(options.serializer, options.dotted["serializer"]),
    )


def _add_partition(driver: MofkaDriver, options: argparse.Namespace) -> None:
    driver.add_custom_partition(options.name, options.rank, options.type)


def _add_metadata(driver: MofkaDriver, options: argparse.Namespace) -> str:
    return driver.add_metadata_provider(options.rank)


def _add_data(driver: MofkaDriver, options: argparse.Namespace) -> str:
    return driver.add_data_provider(options.rank)


if __name__ == "__main__":
    sys.exit(main())
