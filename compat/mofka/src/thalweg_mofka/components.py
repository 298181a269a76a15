"""Validators, partition selectors and serializers, as programs name them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import thalweg

from thalweg_mofka import drafts
from thalweg_mofka.errors import ClientException, InvalidSchema

__all__ = ["PartitionSelector", "Serializer", "Validator"]


class _Component:
    """One of the three, made `from_metadata`: a type and what it needs to know."""

    known: ClassVar[tuple[str, ...]] = ("default",)
    what: ClassVar[str]

    def __init__(self, type: str = "default", options: dict[str, Any] | None = None) -> None:
        self.type = type
        self.options = dict(options or {})
        if not isinstance(type, str):
            raise ClientException(f"the type of a {self.what} is a text, not {type!r}")
        if ":" not in type and type not in self.known:
            known = ", ".join(self.known)
            raise ClientException(
                f"there is no {self.what} {type!r}; known: {known}, or name:library.so with a plugin of Thalweg's"
            )

    @classmethod
    def from_metadata(cls, *positional: Any, **named: Any) -> Self:
        """From keywords, of which `type` says which it is; or as older programs
        do, from a type and a dict, or from one dict.
        """
        options: dict[str, Any] = {}
        for value in positional:
            if isinstance(value, str):
                options["type"] = value
            elif isinstance(value, dict):
                options.update(value)
            else:
                raise ClientException(f"a {cls.what} is not made from {value!r}")
        inner = named.pop("metadata", {})
        options.update(inner if isinstance(inner, dict) else {"metadata": inner})
        options.update(named)
        type = options.pop("type", "default")
        return cls(type, options)

    def as_dict(self) -> dict[str, Any]:
        """What describes it, for `list_topics`."""
        return {"type": self.type, **self.options}

    def native(self) -> Any:
        """What `thalweg.Driver.create_topic` takes."""
        if ":" in self.type:
            return thalweg.Plugin(self.type, self.options)
        return self._native()

    def _native(self) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}.from_metadata(**{self.as_dict()!r})"


class Validator(_Component):
    """What is checked of an event's metadata when it is pushed.

    `default` that it is JSON, `schema` that it matches the JSON Schema
    `schema`, `eventbridge` that it matches the EventBridge pattern `schema`. What
    is wrong within them is told when a topic is made.
    """

    known = ("default", "schema", "eventbridge")
    what = "validator"

    def __init__(self, type: str = "default", options: dict[str, Any] | None = None) -> None:
        super().__init__(type, options)
        if type in ("schema", "eventbridge"):
            _check_schema(self)

    def _native(self) -> Any:
        if self.type == "default":
            return "json"
        if self.type == "eventbridge":
            return {"type": "eventbridge", "pattern": self.options["schema"]}
        return drafts.modernized(self.options["schema"])


class PartitionSelector(_Component):
    """Who chooses an event's partition: `default` takes one after the other."""

    what = "partition selector"

    def _native(self) -> Any:
        return "round_robin"


class Serializer(_Component):
    """How metadata is stored: `default` as JSON, `schema` without what the JSON
    Schema `schema` says of it.
    """

    known = ("default", "schema")
    what = "serializer"

    def __init__(self, type: str = "default", options: dict[str, Any] | None = None) -> None:
        super().__init__(type, options)
        if type == "schema":
            _check_schema(self)

    def _native(self) -> Any:
        if self.type == "default":
            return "json"
        return {"type": "schema", "schema": drafts.modernized(self.options["schema"])}


def _check_schema(component: _Component) -> None:
    if "schema" not in component.options:
        raise ClientException(f"the {component.what} {component.type} needs a schema")
    if not isinstance(component.options["schema"], dict):
        raise InvalidSchema(f"a schema is an object, not {component.options['schema']!r}")
