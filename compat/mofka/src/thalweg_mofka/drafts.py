"""JSON Schemas of draft 7 as those of draft 2020-12.

Mofka reads schemas as draft 7, Thalweg as draft 2020-12. The keywords that
changed their name or meaning between the two are renamed; the rest is the same.
"""

from __future__ import annotations

from typing import Any

__all__ = ["modernized"]

_ONE = ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties")
_MANY = ("allOf", "anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "definitions", "$defs")
_MODERN = "2020-12"


def modernized(schema: Any) -> Any:
    """The schema as draft 2020-12 has it; one that says that it is one is left alone."""
    if isinstance(schema, dict) and _MODERN in str(schema.get("$schema", "")):
        return schema
    return _converted(schema)


def _converted(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    # Draft 7 passes over everything beside a reference.
    if "$ref" in schema:
        return {key: value for key, value in schema.items() if key in ("$ref", "definitions", "$defs")}
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema":
            continue
        if key in _ONE:
            made[key] = _converted(value)
        elif key in _MANY and isinstance(value, list):
            made[key] = [_converted(entry) for entry in value]
        elif key in _NAMED and isinstance(value, dict):
            made[key] = {name: _converted(entry) for name, entry in value.items()}
        elif key == "items":
            _items(made, value, schema)
        elif key == "additionalItems":
            continue
        elif key == "dependencies" and isinstance(value, dict):
            _dependencies(made, value)
        elif key == "$id" and isinstance(value, str) and value.startswith("#"):
            made["$anchor"] = value[1:]
        else:
            made[key] = value
    return made


def _items(made: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
    if not isinstance(value, list):
        made["items"] = _converted(value)
        return
    made["prefixItems"] = [_converted(entry) for entry in value]
    if "additionalItems" in schema:
        made["items"] = _converted(schema["additionalItems"])


def _dependencies(made: dict[str, Any], value: dict[str, Any]) -> None:
    for name, needed in value.items():
        if isinstance(needed, list):
            made.setdefault("dependentRequired", {})[name] = needed
        else:
            made.setdefault("dependentSchemas", {})[name] = _converted(needed)
