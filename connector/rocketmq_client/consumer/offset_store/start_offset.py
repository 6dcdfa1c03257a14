"""Where a member begins in a queue it gained: pure, asked once what is needed is known."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from rocketmq_wire.model import RETRY_PREFIX, QueueId


class ConsumeFrom(enum.Enum):
    """Where a group begins that has no progress; the values are the wire's names."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Need(enum.Enum):
    """What has to be asked of the broker to know where to begin."""

    NOTHING = enum.auto()
    END = enum.auto()
    SEARCH = enum.auto()


@dataclass(frozen=True, slots=True)
class Start:
    """`offset`, or what `need` gives."""

    need: Need
    offset: int = 0


def start_of(queue: QueueId, stored: int | None, consume_from: ConsumeFrom) -> Start:
    """Where to begin, given the stored progress (None: there is none)."""
    if stored is not None and stored >= 0:
        return Start(Need.NOTHING, stored)
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from is ConsumeFrom.FIRST:
        # Beyond what has expired: the first pull is answered by the first offset there is.
        return Start(Need.NOTHING, 0)
    if consume_from is ConsumeFrom.LAST:
        # What waits for its second attempt was seen by the group: none of it is skipped.
        return Start(Need.NOTHING, 0) if is_retry else Start(Need.END)
    return Start(Need.END) if is_retry else Start(Need.SEARCH)


def parse_timestamp(text: str) -> int:
    """Milliseconds of `yyyyMMddHHmmss`, local time as in RocketMQ. Raises ValueError."""
    if len(text) != 14 or not text.isascii() or not text.isdigit():
        raise ValueError(f"a consume timestamp is yyyyMMddHHmmss, got {text!r}")
    return int(datetime.strptime(text, "%Y%m%d%H%M%S").timestamp() * 1_000)
