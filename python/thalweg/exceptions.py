"""What can go wrong, one class for each thing that a caller does differently.

Every exception of the package is an :class:`Error`, and also of the built-in
class that says the same: a :class:`Timeout` is a :class:`TimeoutError`, an
:class:`InvalidEvent` a :class:`ValueError`.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "Closed",
    "Damaged",
    "DataChanged",
    "Error",
    "EventDropped",
    "Forked",
    "GapWarning",
    "GroupIncomplete",
    "InvalidArgument",
    "InvalidEvent",
    "InvalidTopic",
    "LeaseExpired",
    "MemberFenced",
    "NotAllowed",
    "OutOfRange",
    "PluginError",
    "ProducerFenced",
    "Recovering",
    "RunBroken",
    "ServerError",
    "StorageError",
    "Timeout",
    "TopicExists",
    "TopicFull",
    "UnknownPartition",
    "UnknownTopic",
    "Unreachable",
    "WrongServer",
]


class Error(Exception):
    """Anything that goes wrong in Thalweg.

    ``code`` is the server's name of the error (``"unknown topic"``), or None
    if the error did not come from a server. ``retryable`` says whether the
    same call may succeed later without anything being changed, ``retry_after``
    in how many seconds, if the server said so.
    """

    code: str | None = None
    retryable: bool = False
    retry_after: float | None = None


class Timeout(Error, TimeoutError):
    """A wait's time has passed. The message says what was waited for: the
    peer, the partition, the bytes outstanding, the last sign of life.

    Nothing is lost by it: an event that was pushed may still be stored, and
    the same wait may be tried again.
    """


class Closed(Error):
    """The driver, producer or consumer was closed before."""


class Forked(Error):
    """The push was made by the parent of this process. Its outcome is known
    there, not here; what this process pushes itself is not concerned.
    """


class Unreachable(Error, ConnectionError):
    """Nobody answers at the address, or the group file is not there.

    Of a pull: the server is away, or was until just before, and so the pull
    says nothing of what there is. The consumer goes on with the next pull.
    """

    retryable = True


class Recovering(Error):
    """The server was started anew. It gives out nothing of the queue, or keeps
    partitions of the group, until members of before have come back or their
    session timeout has passed: ``retry_after`` says how many seconds that are
    at most. The pull says nothing of what there is; the next one goes on.
    """

    retryable = True


class WrongServer(Error, ConnectionError):
    """Another server answers than the one that was expected: the group file
    is stale or a stranger's. The message names the address.
    """


class NotAllowed(Error, PermissionError):
    """The server does not accept the token, or this identity may not do it."""


class InvalidArgument(Error, ValueError):
    """An argument or option that the client refuses; nothing was sent."""


class InvalidEvent(InvalidArgument):
    """The event is refused: its metadata does not pass the topic's validator,
    can't be made JSON or is too large, or its data is no contiguous buffer.
    Raised by ``push`` itself; nothing was sent.
    """


class InvalidTopic(InvalidArgument):
    """The definition or the storage of a topic is refused; nothing was made."""


class PluginError(Error, ImportError):
    """The topic needs a plugin that can't be had here: it is not found, is not
    what it should be, or refuses its options. The message names it, and where
    it was looked for.
    """


class UnknownTopic(Error, LookupError):
    """There is no topic of that name."""


class UnknownPartition(Error, LookupError):
    """The topic has no such partition, or none at all."""


class TopicExists(Error):
    """A topic of that name exists already."""


class OutOfRange(Error, LookupError):
    """The offset is not in the partition, or belongs to an earlier life of it."""


class BudgetExceeded(Error):
    """The producer's budget is full and it was opened with ``at_budget="fail"``,
    or it stayed full until the deadline.

    Wait for some of the earlier pushes, then push again.
    """


class ProducerFenced(Error):
    """Another producer of the same name was opened since: this one is done."""


class MemberFenced(Error):
    """This member of a group or queue was away for longer than its session
    timeout, or lost the partition: what it held has gone to others."""


class LeaseExpired(Error):
    """The event's lease has expired or was given up: another member may have it."""


class Damaged(Error):
    """Bytes fail their checksum, on their way or where they were stored."""


class GroupIncomplete(Error):
    """A rank of this group of readers of steps was away for longer than its session timeout: the
    group is no more, and the message says which rank it was.

    The program begins anew, all of its ranks: it goes on at the position of its name. What was not
    released by all is given again; steps that are shared have gone to other groups.
    """


class RunBroken(Error):
    """A run of steps has ended without being closed by all of its ranks: ``run`` is its
    number, and the message says which rank is gone, or has another life.

    A reader raises it once, after all steps that were committed were given; it goes on with the
    run behind. A writer raises it from then on: to go on, open another one.
    """

    run: int | None = None


class DataChanged(Error):
    """Data that was pushed with ``borrow=True`` was changed before it was sent: the
    producer was opened with ``check_borrowed`` and noticed. The event is not
    stored, and the producer takes nothing more: what it had not stored yet
    fails with this as well, so that nothing is stored behind a hole.

    Push without ``borrow``, or leave the data alone until the future is resolved.
    """


class StorageError(Error, OSError):
    """The server's storage is full, or has failed and takes nothing more."""


class TopicFull(Error):
    """The topic refuses the event for now, because its consumers are behind;
    ``retry_after`` says in how many seconds to push it again. The producer goes on.
    """


class EventDropped(Error):
    """The topic is full because its consumers are behind, and dropped the
    event, as its definition says. The producer goes on.
    """


class ServerError(Error):
    """The server says no for another reason; ``code`` names it."""


class GapWarning(UserWarning):
    """Events that a consumer would have got are gone: by retention, the loss
    of a memory partition, or damage. The message says which, and why.
    """
