"""What push consumers ask of a broker besides pulls: give back a message, own queues for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rocketmq_wire.model import QueueId
from rocketmq_wire.requests import Done, Reply, Request


@dataclass(frozen=True, slots=True)
class SendBack(Request[Done]):
    """36: have a message that could not be consumed delivered to the group again, later.

    Raises GroupNotFoundError (26), and BrokerError (1) when no message is at that position.
    """

    # A second one would make a second copy.
    repeatable: ClassVar[bool] = False
    group: str
    physical_offset: int
    """Where the message's record begins in the broker's log."""
    delay_level: int = 0
    """0: by the attempts so far; below 0: straight to the dead letters."""
    message_id: str = ""
    topic: str = ""
    """The topic that the message was first sent to."""
    attempts_max: int | None = None
    """Beyond so many attempts it is a dead letter; None lets the group's configuration say."""


@dataclass(frozen=True, slots=True)
class QueuesReply(Reply):
    """Some queues, sorted."""

    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class LockQueues(Request[QueuesReply]):
    """41: own queues of one broker for a minute; the reply names those that were had."""

    group: str
    client_id: str
    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True)
class UnlockQueues(Request[Done]):
    """42: give queues up; those of others stay as they are."""

    group: str
    client_id: str
    queues: tuple[QueueId, ...]
