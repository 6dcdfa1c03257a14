"""Requests about queue assignment: which queues a member consumes, and by pull or by pop."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.permissions import ADMIN, CONSUME_OR_ADMIN, AccessRight


class ConsumeMode(enum.Enum):
    """How the members of a group get a topic's messages."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue, or a broker's queues (`ANY_QUEUE`), and how to get their messages."""

    mode: ConsumeMode
    queue: QueueId


@dataclass(frozen=True, slots=True)
class AssignmentReply(Reply):
    """The queues that a member is to consume; None: it keeps its queues."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class QueryAssignment(Request[AssignmentReply]):
    """400: ask the broker which queues of a topic this member is to consume."""

    access: ClassVar[AccessRight] = CONSUME_OR_ADMIN
    group: str
    topic: str
    client_id: str
    strategy: str = "AVG"
    """Brokers know AVG and AVG_BY_CIRCLE."""
    message_model: str = "CLUSTERING"


@dataclass(frozen=True, slots=True)
class SetConsumeMode(Request[Done]):
    """401: make a group's members pull or pop a topic. Raises BrokerError: 16, 17, 26."""

    access: ClassVar[AccessRight] = ADMIN
    group: str
    topic: str
    mode: ConsumeMode
    share_queue_count: int = 0
    """The number of following members whose queues each member pops, too; 0: all pop all."""
