"""EventBridge patterns as JSON Schemas.

An EventBridge pattern names fields and, for each, a list of values and matchers
of which one must hold. A topic's validator is a JSON Schema; so the pattern is
translated, and kept beside the translation under `eventbridge`, a keyword that
validators pass over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thalweg_mofka.errors import ClientException

__all__ = ["as_json_schema"]

Schema = dict[str, Any]


def as_json_schema(pattern: Any) -> Schema:
    """The JSON Schema that accepts what the pattern accepts.

    Raises `ClientException` where the pattern is none.
    """
    return {**_object(pattern, "the pattern"), "eventbridge": pattern}


def _object(pattern: Any, where: str) -> Schema:
    if not isinstance(pattern, Mapping) or not pattern:
        raise ClientException(f"{where} must be an object with fields, not {pattern!r}")
    parts: list[Schema] = [{"type": "object"}]
    for name, rule in pattern.items():
        if name == "$or":
            if not isinstance(rule, Sequence) or isinstance(rule, str) or not rule:
                raise ClientException(f"$or of {where} must be a list of patterns")
            parts.append({"anyOf": [_object(entry, f"$or of {where}") for entry in rule]})
        elif isinstance(rule, Mapping):
            parts.append(_at(name.split("."), _object(rule, name)))
        elif isinstance(rule, Sequence) and not isinstance(rule, str) and rule:
            path = name.split(".")
            parts.append({"anyOf": [_field(path, matcher, name) for matcher in rule]})
        else:
            raise ClientException(f"{name} must have a list of values, or be an object, not {rule!r}")
    return {"allOf": parts}


def _at(path: list[str], value: Schema) -> Schema:
    """The schema of an object that has `value` at `path`."""
    for name in reversed(path):
        value = {"type": "object", "required": [name], "properties": {name: value}}
    return value


def _field(path: list[str], matcher: Any, where: str) -> Schema:
    """The schema of an object whose field at `path` is matched."""
    if isinstance(matcher, Mapping) and "exists" in matcher:
        there = _at(path, {})
        if matcher["exists"] is True:
            return there
        if matcher["exists"] is False:
            return {"not": there}
        raise ClientException(f"exists of {where} is true or false, not {matcher['exists']!r}")
    value = _value(matcher, where)
    # A list matches if one of its elements does.
    return _at(path, {"anyOf": [value, {"type": "array", "contains": value}]})


def _value(matcher: Any, where: str) -> Schema:
    if not isinstance(matcher, Mapping):
        if isinstance(matcher, list):
            raise ClientException(f"{where}: {matcher!r} is neither a value nor a matcher")
        return {"const": matcher}
    if len(matcher) != 1:
        raise ClientException(f"a matcher of {where} has one key, not {sorted(matcher)}")
    [(kind, wanted)] = matcher.items()
    if kind == "anything-but":
        return {"not": {"anyOf": [_value(entry, where) for entry in _listed(wanted)]}}
    if kind == "numeric":
        return _numeric(wanted, where)
    if kind in ("prefix", "suffix", "equals-ignore-case", "wildcard"):
        return {"type": "string", "pattern": _pattern(kind, wanted, where)}
    raise ClientException(f"{where}: there is no matcher {kind!r}")


def _listed(wanted: Any) -> list[Any]:
    """`anything-but` takes a value, a list of values, or a matcher of one or of a list."""
    if isinstance(wanted, list):
        return wanted
    if isinstance(wanted, Mapping) and len(wanted) == 1:
        [(kind, value)] = wanted.items()
        if isinstance(value, list):
            return [{kind: entry} for entry in value]
    return [wanted]


def _pattern(kind: str, wanted: Any, where: str) -> str:
    folded = kind == "equals-ignore-case"
    if kind in ("prefix", "suffix") and isinstance(wanted, Mapping):
        if set(wanted) != {"equals-ignore-case"}:
            raise ClientException(f"{kind} of {where} takes a text or equals-ignore-case")
        wanted, folded = wanted["equals-ignore-case"], True
    if not isinstance(wanted, str):
        raise ClientException(f"{kind} of {where} takes a text, not {wanted!r}")
    if kind == "wildcard":
        return f"^{_wildcard(wanted)}$"
    text = "".join(_folded(c) if folded else _literal(c) for c in wanted)
    return {"prefix": f"^{text}", "suffix": f"{text}$"}.get(kind, f"^{text}$")


def _literal(character: str) -> str:
    return "\\" + character if character in r"\^$.|?*+()[]{}/" else character


def _folded(character: str) -> str:
    lower, upper = character.lower(), character.upper()
    if lower == upper or len(lower) != 1 or len(upper) != 1:
        return _literal(character)
    return f"[{lower}{upper}]"


def _wildcard(text: str) -> str:
    r"""`*` stands for any characters; `\*` and `\\` for themselves."""
    parts: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            parts.append(_literal(next(characters, "\\")))
        else:
            parts.append(r"[\s\S]*" if character == "*" else _literal(character))
    return "".join(parts)


_BOUNDS = {">": "exclusiveMinimum", ">=": "minimum", "<": "exclusiveMaximum", "<=": "maximum"}


def _numeric(wanted: Any, where: str) -> Schema:
    if not isinstance(wanted, list) or not wanted or len(wanted) % 2:
        raise ClientException(f"numeric of {where} takes pairs of a comparison and a number")
    schema: Schema = {"type": "number"}
    for comparison, number in zip(wanted[::2], wanted[1::2]):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ClientException(f"numeric of {where} compares with a number, not {number!r}")
        if comparison == "=":
            schema["const"] = number
        elif comparison == "!=":
            schema["not"] = {"const": number}
        elif comparison in _BOUNDS:
            schema[_BOUNDS[comparison]] = number
        else:
            raise ClientException(f"numeric of {where} has no comparison {comparison!r}")
    return schema
