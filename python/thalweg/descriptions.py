"""What a server says of its topics, partitions, cursors and losses, and repliers to all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg._thalweg import Event

__all__ = ["Cursor", "Gap", "Gathered", "Lag", "NodeDescription", "PartitionDescription", "TopicDescription"]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition, as it was when it was asked for."""

    index: int
    """Its place in the topic, from 0."""
    storage: str
    """``"disk"``, ``"memory"``, or a name registered at the server."""
    storage_config: dict[str, Any]
    """The storage's configuration; empty is the default."""
    durability: str
    """What an acknowledgement of it survives: ``"memory"``, ``"written"`` or ``"synced"``."""
    incarnation: int
    """Which life it is in, from 1: offsets mean something only within one."""
    first: int
    """The first offset that is still there."""
    end: int
    """The next offset to be assigned."""
    durable: int
    """Below this offset, events survive what ``durability`` says."""
    committed: int
    """Below this offset, events are visible to consumers."""
    bytes: int
    """Bytes stored."""
    failure: str
    """Why it takes nothing, if its storage failed; empty if all is well."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, as it was when it was asked for."""

    name: str
    id: str
    """32 hexadecimal digits; a new topic of the same name has another."""
    definition: dict[str, Any]
    """Validator, selector, serializer, durability, retention, limits."""
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node of a cluster, as it was when it was asked for: a shard of one of its servers."""

    node: int
    """Its number in the cluster, for good."""
    state: str
    """``"serving"``, ``"away"`` or ``"draining"``."""
    labels: dict[str, str]
    """``host``, ``rank`` and ``pid`` of its server, and the operator's own: for ``placement``."""
    shard: int
    """Which shard of its server it is."""
    topics: int
    """How many topics are on it; a partition of a spread topic counts as one."""
    endpoints: tuple[str, ...]
    """The addresses at which it listens."""
    directory: str
    """Its data directory, 32 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a consumer has acknowledged one partition."""

    consumer: str
    partition: int
    incarnation: int
    offset: int
    """The next event to read."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a consumer, group or queue of a topic is behind."""

    name: str
    kind: str
    """``"independent"``, ``"group"`` or ``"queue"``."""
    members: int
    """Members that are connected now; of a consumer, programs that read under its name."""
    events: int
    """Events that are there and that it has not acknowledged, or not settled."""
    partitions: dict[int, int]
    """The same of each partition, by its index."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of one partition that hold no event any more."""

    partition: int
    incarnation: int
    first: int
    """The first lost offset."""
    end: int
    """The offset behind the last lost one; equals ``first`` if their number is unknown."""
    reason: str
    """``"retention"``, ``"memory lost"``, ``"power loss"``, ``"damaged"`` or ``"discarded"``."""
    time: int
    """When it was noticed, nanoseconds since 1970."""

    def __str__(self) -> str:
        lost = f"{self.end - self.first} events" if self.end > self.first else "events"
        return (
            f"partition {self.partition}: {lost} from offset {self.first} "
            f"(incarnation {self.incarnation}) are gone: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Gathered:
    """The replies to a broadcast."""

    replies: dict[str, Event]
    """Who replied, in the order of arrival, and what. A group or queue is named
    by its name, a program that reads the topic as an independent consumer by
    the consumer's name, a slash, and the program's session id."""
    missing: tuple[str, ...]
    """Who was asked and has not replied."""
