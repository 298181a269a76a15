"""Mofka's and Diaspora's Python API over Thalweg.

Programs import `mochi.mofka.client` or `diaspora_stream.api`; what is here is
what both offer.
"""

from thalweg_mofka.components import PartitionSelector, Serializer, Validator
from thalweg_mofka.consumer import (
    ByteArrayAllocator,
    Consumer,
    FullDataSelector,
    StopEventProcessor,
)
from thalweg_mofka.descriptor import DataDescriptor
from thalweg_mofka.dialect import Dialect
from thalweg_mofka.driver import Client, Driver, KafkaDriver, MofkaDriver, ServiceHandle
from thalweg_mofka.errors import ClientException
from thalweg_mofka.event import Event, NoMoreEvents
from thalweg_mofka.futures import FutureEvent, FutureFlushed, FutureUint
from thalweg_mofka.numbers import AdaptiveBatchSize
from thalweg_mofka.pool import Ordering, ThreadPool
from thalweg_mofka.producer import Producer
from thalweg_mofka.topic import TopicHandle

__all__ = [
    "AdaptiveBatchSize",
    "ByteArrayAllocator",
    "Client",
    "ClientException",
    "Consumer",
    "DataDescriptor",
    "Dialect",
    "Driver",
    "Event",
    "FullDataSelector",
    "FutureEvent",
    "FutureFlushed",
    "FutureUint",
    "KafkaDriver",
    "MofkaDriver",
    "NoMoreEvents",
    "Ordering",
    "PartitionSelector",
    "Producer",
    "Serializer",
    "ServiceHandle",
    "StopEventProcessor",
    "ThreadPool",
    "TopicHandle",
    "Validator",
]
