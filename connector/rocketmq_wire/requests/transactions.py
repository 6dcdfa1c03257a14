"""Transactional messages: what ends one, what a broker asks about it, what properties it carries.

A half message is stored apart, where no consumer looks. Its producer ends it: committed it goes to
its topic, rolled back it is forgotten. Of one that nobody ends the broker asks its producer group.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from rocketmq_wire.records.record import FLAG_TRANSACTION_MASK, FLAG_TRANSACTION_PREPARED
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.permissions import GET_TOPIC, PUBLISH, AccessRight

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
END_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Records that say which half messages are ended, by their offsets in the half topic."""
UNRESOLVED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where half messages end whose producers never said what became of them."""
SYSTEM_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group as which RocketMQ's brokers keep how far the two topics are settled."""

TRANSACTIONAL: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""For so long after its birth nobody is asked about a half message."""
CHECK_COUNT: Final = "TRANSACTION_CHECK_TIMES"
PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Of a half message that RocketMQ stored again: where it was first."""


class Resolution(enum.Enum):
    """What becomes of a half message; the value is that of the protocol."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@dataclass(frozen=True, slots=True)
class EndTransaction(Request[Done]):
    """37: end a half message. With `UNKNOWN` nothing changes, and brokers of Java do not answer.

    Raises BrokerError: 1 when it is not such a half message, 604 when its producer comes too late.
    """

    # Clients of 4.9 name no topic; the half message itself was sent with the right to do so.
    access: ClassVar[AccessRight] = PUBLISH
    # Brokers of Java do not remember what they have committed: a second one makes a second copy.
    repeatable: ClassVar[bool] = False
    group: str
    half_offset: int
    """Its offset in the half topic; negative: find it by its transaction id (our broker alone)."""
    position: int
    """Where its record begins in the broker's log."""
    resolution: Resolution
    message_id: str = ""
    transaction_id: str = ""
    topic: str = ""
    """The topic that it is for."""
    is_from_check: bool = False
    """It answers a broker that asked."""
    broker: str = ""


@dataclass(frozen=True, slots=True)
class CheckTransaction(Request[Done]):
    """39, oneway from the broker to a client of the producer group: what became of this one?"""

    access: ClassVar[AccessRight] = GET_TOPIC
    half_offset: int
    position: int
    record: bytes
    """The message as stored, with the topic and the queue that it is for."""
    topic: str = ""
    message_id: str = ""
    transaction_id: str = ""
    offset_message_id: str = ""
    broker: str = ""


def is_half(properties: Mapping[str, str], sys_flag: int) -> bool:
    """True for a message that is sent as a half one; brokers look at the property."""
    named = properties.get(TRANSACTIONAL, "").lower() == "true"
    return named and sys_flag & FLAG_TRANSACTION_MASK in (0, FLAG_TRANSACTION_PREPARED)


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """For how long after its birth a half message is not asked about; None if it does not say."""
    text = properties.get(CHECK_IMMUNITY, "")
    # As RocketMQ: what is no number, and -1, means the broker's own time.
    return int(text) * 1_000 if text.isascii() and text.isdecimal() and len(text) < 12 else None
