"""Thalweg: persistent event streaming for HPC and experimental science.

A stream of events is kept as an ordered log; producers and consumers run when
they like. An event is metadata, small and structured, and data, of any size::

    import thalweg

    with thalweg.Driver("thalweg.json") as driver:
        topic = driver.create_topic("frames", exist_ok=True)
        with topic.producer() as producer:
            producer.push({"angle": 0.5}, b"the frame")
        with topic.consumer("viewer") as consumer:
            event = consumer.pull(timeout=10)
            print(event.metadata, event.data.nbytes)
            event.acknowledge()
"""

from thalweg._thalweg import (
    Consumer,
    DataView,
    Drain,
    Driver,
    Event,
    EventId,
    Future,
    Producer,
    QueueConsumer,
    QueueEvent,
    Reader,
    Requester,
    Topic,
    __version__,
)
from thalweg._command import executable
from thalweg.descriptions import (
    Cursor,
    Gap,
    Gathered,
    Lag,
    NodeDescription,
    PartitionDescription,
    TopicDescription,
)
from thalweg.exceptions import (
    BudgetExceeded,
    Closed,
    Damaged,
    DataChanged,
    Error,
    EventDropped,
    Forked,
    GapWarning,
    GroupIncomplete,
    InvalidArgument,
    InvalidEvent,
    InvalidTopic,
    LeaseExpired,
    MemberFenced,
    NotAllowed,
    OutOfRange,
    PluginError,
    ProducerFenced,
    Recovering,
    RunBroken,
    ServerError,
    StorageError,
    Timeout,
    TopicExists,
    TopicFull,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
    WrongServer,
)
from thalweg.plugins import Plugin

# Last: from here on, what was pushed is drained when the interpreter ends.
from thalweg import _exit as _exit  # isort: skip

__all__ = [
    "BudgetExceeded",
    "Closed",
    "Consumer",
    "Cursor",
    "Damaged",
    "DataChanged",
    "DataView",
    "Drain",
    "Driver",
    "Error",
    "EventDropped",
    "Event",
    "EventId",
    "Forked",
    "Future",
    "Gap",
    "GapWarning",
    "GroupIncomplete",
    "Gathered",
    "Lag",
    "InvalidArgument",
    "InvalidEvent",
    "InvalidTopic",
    "LeaseExpired",
    "MemberFenced",
    "NodeDescription",
    "NotAllowed",
    "OutOfRange",
    "PartitionDescription",
    "Plugin",
    "PluginError",
    "Producer",
    "ProducerFenced",
    "Recovering",
    "QueueConsumer",
    "QueueEvent",
    "Reader",
    "Requester",
    "RunBroken",
    "ServerError",
    "StorageError",
    "Timeout",
    "Topic",
    "TopicDescription",
    "TopicExists",
    "TopicFull",
    "UnknownPartition",
    "UnknownTopic",
    "Unreachable",
    "WrongServer",
    "__version__",
    "executable",
]
