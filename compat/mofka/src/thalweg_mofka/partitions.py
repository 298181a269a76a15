"""Adding partitions, and the providers that Mofka's have to be given first.

What Mofka puts together from databases, targets and pools is one word here:
`memory` or `disk`. What else is said of a partition is passed over.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import thalweg

from thalweg_mofka.errors import ClientException, translated

__all__ = ["Partitions", "durability_of", "storage_of"]

#: Mofka's own kinds of partitions, and what they are here.
_STORAGES = {"memory": "memory", "default": "disk", "legacy": "disk", "disk": "disk"}


def storage_of(config: Mapping[str, Any]) -> str:
    """The storage that a topic's `config` asks for; disk if it does not say."""
    kind = config.get("type", "default")
    if not isinstance(kind, str):
        raise ClientException(f"the type of a partition is a text, not {kind!r}")
    # Another name is that of a storage that the server's operator brought.
    return _STORAGES.get(kind, kind)


def durability_of(config: Mapping[str, Any]) -> Any:
    """What a topic's `config` wants acknowledged events to survive: the death of
    the server alone, if it says `sync` is false; else the most that there is.
    """
    partition = config.get("partition") or {}
    if storage_of(config) == "disk" and partition.get("sync") is False:
        return "written"
    return None


class Partitions:
    """The part of a driver that adds partitions."""

    _native: thalweg.Driver
    #: Whether there are several servers, which act as one.
    _is_cluster: bool
    _numbers = itertools.count(1)

    @property
    def num_servers(self) -> int:
        """The number of servers, whose ranks count from 0. One that has left the
        cluster counts until its rank is given to another one.
        """
        if not self._is_cluster:
            return 1
        with translated():
            ranks = [int(node.labels["rank"]) for node in self._native.list_nodes() if "rank" in node.labels]
        return max(ranks, default=0) + 1

    numServers = num_servers

    def add_memory_partition(self, topic_name: str, server_rank: int = 0, pool_name: str = "") -> None:
        """Adds a partition in the memory of the server of that rank."""
        self._add(topic_name, server_rank, "memory")

    def add_default_partition(
        self, topic_name: str, server_rank: int = 0, *_: Any, **__: Any
    ) -> None:
        """Adds a partition on the disk of the server of that rank. Instances,
        providers, configurations and pools are passed over.
        """
        self._add(topic_name, server_rank, "default")

    def add_legacy_partition(
        self, topic_name: str, server_rank: int = 0, *_: Any, **__: Any
    ) -> None:
        """Does what `add_default_partition` does."""
        self._add(topic_name, server_rank, "legacy")

    def add_custom_partition(
        self,
        topic_name: str,
        server_rank: int = 0,
        partition_type: str = "memory",
        *_: Any,
        **__: Any,
    ) -> None:
        """Adds a partition of a type: `memory`, `default`, `legacy`, or the name
        of a storage that the server's operator brought.
        """
        self._add(topic_name, server_rank, partition_type)

    def _add(self, topic_name: str, server_rank: int, kind: str) -> None:
        storage = storage_of({"type": kind})
        if not self._is_cluster:
            self._check_rank(server_rank)
            with translated():
                self._native.add_partitions(topic_name, 1, storage=storage)
            return
        # Who may not list the servers may add to them: the server knows the ranks.
        with translated():
            self._native.add_partitions(topic_name, 1, storage=storage, placement={"rank": int(server_rank)})

    def _check_rank(self, server_rank: int) -> None:
        servers = self.num_servers
        if not 0 <= server_rank < servers:
            raise ClientException(f"there is no server of rank {server_rank}: there is {servers}")

    def add_metadata_provider(self, server_rank: int = 0, *_: Any, **__: Any) -> str:
        """A word for a place for metadata, for calls that want one. The server has its own."""
        return self._provider("metadata", server_rank)

    def add_data_provider(self, server_rank: int = 0, *_: Any, **__: Any) -> str:
        """A word for a place for data, for calls that want one. The server has its own."""
        return self._provider("data", server_rank)

    def _provider(self, what: str, server_rank: int) -> str:
        try:
            self._check_rank(server_rank)
        except ClientException as error:
            # Who may not list the servers hears of a wrong rank when the partition is added.
            if not isinstance(error.__cause__, thalweg.NotAllowed):
                raise
        return f"thalweg_{what}_{next(self._numbers)}@local"

    add_default_metadata_provider = add_metadata_provider
    add_default_data_provider = add_data_provider
    addMemoryPartition = add_memory_partition
    addDefaultPartition = add_default_partition
    addLegacyPartition = add_legacy_partition
    addCustomPartition = add_custom_partition
    addDefaultMetadataProvider = add_metadata_provider
    addDefaultDataProvider = add_data_provider
