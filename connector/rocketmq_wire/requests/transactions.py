"""Requests and properties of transactional messages.

A broker stores a half message in a topic that no consumer reads. If its producer commits it, the
broker delivers it to its own topic; if its producer rolls it back, the broker never delivers it. If
the producer does neither, the broker asks the producer group.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.numbers import whole_number
from rocketmq_wire.records.record import FLAG_TRANSACTION_MASK, FLAG_TRANSACTION_PREPARED
from rocketmq_wire.requests import permissions
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.permissions import Resources

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
END_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Records that name ended half messages by their offsets in the half topic."""
UNRESOLVED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Half messages that no producer ever ended."""
SYSTEM_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose committed offsets say how far brokers have processed both topics."""

TRANSACTIONAL: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""The time after its birth in which the broker does not ask about a half message."""
CHECK_COUNT: Final = "TRANSACTION_CHECK_TIMES"
PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""The first offset of a half message that RocketMQ stored again."""


class Resolution(enum.Enum):
    """The end of a half message; the value is the protocol's."""

    UNKNOWN = 0
    """The broker asks again later."""
    COMMIT = 8
    """Consumers get the message."""
    ROLLBACK = 12
    """No consumer ever gets the message."""


@dataclass(frozen=True, slots=True)
class EndTransaction(Request[Done]):
    """37: end a half message. `UNKNOWN` changes nothing, and Java brokers do not answer it.

    The broker also requires `PUBLISH` on the topic of the half message. Raises BrokerError: 1 if
    there is no such half message, 604 if its producer is too late.
    """

    access = permissions.PUBLISH
    # Java brokers do not remember commits: a repeated request makes a second copy.
    repeatable = False
    group: str
    half_offset: int
    """Its offset in the half topic; negative: the bundled broker finds it by transaction id."""
    position: int
    """The record's position in the broker's log."""
    resolution: Resolution
    message_id: str = ""
    transaction_id: str = ""
    topic: str = ""
    """The topic of the message itself."""
    is_from_check: bool = False
    """True if the request answers a broker's `CheckTransaction`."""
    broker: str = ""

    def resources(self) -> Resources:
        """The topic, if the request names one: clients of 4.9 do not."""
        return permissions.resources_of((self.topic,) if self.topic else ())


@dataclass(frozen=True, slots=True)
class CheckTransaction(Request[Done]):
    """39, oneway from the broker to a client of the producer group: ask how a half message ends."""

    access = permissions.GET_TOPIC
    half_offset: int
    position: int
    record: bytes
    """The message as stored, but with its own topic and queue."""
    topic: str = ""
    message_id: str = ""
    transaction_id: str = ""
    offset_message_id: str = ""
    broker: str = ""


def is_half(properties: Mapping[str, str], sys_flag: int) -> bool:
    """True for a message sent as a half message; brokers read the property."""
    named = properties.get(TRANSACTIONAL, "").lower() == "true"
    return named and sys_flag & FLAG_TRANSACTION_MASK in (0, FLAG_TRANSACTION_PREPARED)


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """The value of `CHECK_IMMUNITY` in milliseconds; None if the broker's own time holds."""
    text = properties.get(CHECK_IMMUNITY, "")
    # As in RocketMQ, text that is no number, and -1, mean the broker's own time.
    seconds = whole_number(text, digits_max=11)
    return None if seconds is None else seconds * 1_000
