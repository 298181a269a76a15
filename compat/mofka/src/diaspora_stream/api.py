"""The Diaspora streaming API, spoken to Thalweg's server."""

from thalweg_mofka import (
    AdaptiveBatchSize,
    ByteArrayAllocator,
    ClientException,
    Consumer,
    DataDescriptor,
    Driver,
    Event,
    FullDataSelector,
    FutureEvent,
    FutureFlushed,
    FutureUint,
    Ordering,
    PartitionSelector,
    Producer,
    Serializer,
    StopEventProcessor,
    ThreadPool,
    TopicHandle,
    Validator,
)

# Programs import it under this name.
Exception = ClientException

__all__ = [
    "AdaptiveBatchSize",
    "ByteArrayAllocator",
    "ClientException",
    "Consumer",
    "DataDescriptor",
    "Driver",
    "Event",
    "Exception",
    "FullDataSelector",
    "FutureEvent",
    "FutureFlushed",
    "FutureUint",
    "Ordering",
    "PartitionSelector",
    "Producer",
    "Serializer",
    "StopEventProcessor",
    "ThreadPool",
    "TopicHandle",
    "Validator",
]
