"""Options with dots in them: `--topic.config.type memory`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["UsageError", "dotted", "merged", "value_of"]


class UsageError(Exception):
    """The command line can't be understood."""


def value_of(text: str) -> Any:
    """A value as it was meant: a truth, a number, a list with commas, or a text."""
    if text in ("true", "True"):
        return True
    if text in ("false", "False"):
        return False
    for kind in (int, float):
        try:
            # Not `1_000`, `nan` and `infinity`, which Python would take.
            if text.lstrip("+-")[:1].isdigit() and "_" not in text:
                return kind(text)
        except ValueError:
            pass
    return text


def dotted(
    arguments: Sequence[str], prefixes: Iterable[str], *, commas: bool = False
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Takes `--PREFIX.key value` and `--PREFIX.key=value` out of `arguments`.

    Returns the rest, and for each prefix the object that its options make: dots
    nest, a key that is given again becomes a list. With `commas`, a value with
    commas is a list.
    """
    found: dict[str, dict[str, Any]] = {prefix: {} for prefix in prefixes}
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        prefix, dot, key = name.removeprefix("--").partition(".")
        if not name.startswith("--") or not dot or prefix not in found:
            rest.append(argument)
            continue
        if not equals:
            try:
                value = next(remaining)
            except StopIteration:
                raise UsageError(f"{name} has no value") from None
        parsed = [value_of(part) for part in value.split(",")] if commas and "," in value else value_of(value)
        _put(found[prefix], key.split("."), parsed, name)
    return rest, found


def _put(target: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    for part in path[:-1]:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            raise UsageError(f"{name}: {part} has a value already")
    last = path[-1]
    if last not in target:
        target[last] = value
    elif isinstance(target[last], list):
        target[last].append(value)
    else:
        target[last] = [target[last], value]


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both objects; where they differ, what `above` says, for objects key by key."""
    made = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        else:
            made[key] = value
    return made
