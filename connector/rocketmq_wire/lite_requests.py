"""Requests for the lite topics of a parent topic (`lite_topics`): subscribe to and pop them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from rocketmq_wire.permissions import CONSUME_OR_ADMIN, AccessRight
from rocketmq_wire.pop_requests import PopReply
from rocketmq_wire.requests import Reply, Request


class LiteAction(enum.Enum):
    """What a client says of its lite topics; the value is `LiteSubscriptionAction`'s number."""

    ADD = 0
    REMOVE = 1
    REPLACE = 2
    FORGET = 3


class LiteStart(enum.Enum):
    """Where a client that adds a lite topic wants to begin."""

    OLDEST = "oldest"
    END = "end"
    OFFSET = "offset"
    BACK = "so many before the group's progress"
    TIME = "the first message at or after a time"


@dataclass(frozen=True, slots=True)
class LiteOffset:
    start: LiteStart
    value: int = 0


@dataclass(frozen=True, slots=True)
class LiteReply(Reply):
    """Clients that lost a lite topic to this one, or to which somebody else has it."""

    lost: tuple[tuple[str, str], ...] = ()
    """(client id, lite topic)."""


@dataclass(frozen=True, slots=True)
class SubscribeLite(Request[LiteReply]):
    """Say which lite topics a client of a group wants.

    Raises BrokerError: 17, 26, 29, 2018 for too many.
    """

    access: ClassVar[AccessRight] = CONSUME_OR_ADMIN
    group: str
    topic: str
    client_id: str
    action: LiteAction
    lite_topics: tuple[str, ...] = ()
    offset: LiteOffset | None = None


@dataclass(frozen=True, slots=True)
class PopLite(Request[PopReply]):
    """Lend messages of the lite topics that a client wants, each lite topic in its order.

    Raises BrokerError: 16, 17, 26, 29.
    """

    access: ClassVar[AccessRight] = CONSUME_OR_ADMIN
    group: str
    topic: str
    client_id: str
    count_max: int
    invisible_ms: int
    poll_ms: int = 0
    born_ms: int = 0
    attempt_id: str = ""
