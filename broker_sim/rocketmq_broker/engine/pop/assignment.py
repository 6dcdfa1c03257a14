"""Assignment of queues by the broker, and the modes (pull or pop) by which groups consume topics.

RocketMQ's own file `messageRequestMode.json` holds the modes; a change takes effect once saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import RETRY_PREFIX, QueueId
from rocketmq_wire.requests.groups import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)
from rocketmq_wire.requests.pop import ANY_QUEUE

_LOG = logging.getLogger(__name__)
FILE_NAME: Final = "messageRequestMode.json"
_TABLE: Final = "messageRequestModeMap"

Allocate = Callable[[Sequence[QueueId], int, int], list[QueueId]]


class Assignments:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        stored: Mapping[str, Any] = tables.store.configs.load(FILE_NAME)
        self._modes: dict[str, dict[str, dict[str, Any]]] = {
            topic: dict(by_group) for topic, by_group in (stored.get(_TABLE) or {}).items()
        }

    def set_mode(self, request: SetConsumeMode) -> None:
        """Set whether a group pulls or pops a topic. Refusals: 16, 17, 26."""
        if request.topic.startswith(RETRY_PREFIX):
            remark = "retry topic is not allowed to set mode"
            raise broker_error(ResponseCode.NO_PERMISSION, remark)
        self._tables.topics.require(request.topic)
        if request.group not in self._tables.groups:
            raise refusals.group_missing(request.group)
        entry = {
            "consumerGroup": request.group,
            "mode": request.mode.value,
            "popShareQueueNum": request.share_queue_count,
            "topic": request.topic,
        }
        modes = {topic: dict(by_group) for topic, by_group in self._modes.items()}
        modes.setdefault(request.topic, {})[request.group] = entry
        self._tables.store.configs.save(FILE_NAME, {_TABLE: modes})
        self._modes = modes

    def assign(self, request: QueryAssignment, queues: Sequence[QueueId]) -> AssignmentReply:
        """The queues of a member; without an assignment it keeps the queues that it owns.

        Args:
            request: The member's question.
            queues: The topic's readable queues, of all brokers.
        """
        entry = self._modes.get(request.topic, {}).get(request.group, {})
        mode = ConsumeMode.POP if entry.get("mode") == "POP" else ConsumeMode.PULL
        if not queues:
            if not request.topic.startswith(RETRY_PREFIX):
                _warn(request, "the topic is missing or not readable")
            return AssignmentReply(None)
        is_balanced = self._tables.groups.server_load_balancer
        if request.message_model == "BROADCASTING" or not is_balanced:
            return _reply(mode, queues)
        members = self._tables.clients.consumer_ids(request.group)
        allocate = _STRATEGIES.get(request.strategy)
        if not members or allocate is None:
            unknown = f"the strategy {request.strategy!r} is unknown"
            _warn(request, unknown if members else "the group has no member")
            return AssignmentReply(None)
        shared = int(entry.get("popShareQueueNum") or 0)
        is_for_all = mode is ConsumeMode.POP and share_for_all(len(members), shared)
        if request.client_id not in members and not is_for_all:
            _warn(request, "its heartbeat has not come")
            return AssignmentReply(())
        index = members.index(request.client_id) if request.client_id in members else 0
        if mode is ConsumeMode.PULL:
            return _reply(mode, allocate(queues, index, len(members)))
        return _reply(mode, share_queues(queues, index, len(members), shared, allocate))


def share_for_all(member_count: int, shared: int) -> bool:
    """Whether every member pops every queue."""
    return shared <= 0 or shared >= member_count - 1


def share_queues(
    queues: Sequence[QueueId], index: int, member_count: int, shared: int, allocate: Allocate
) -> list[QueueId]:
    """The queues of a popping member: its own, and those of the next `shared` members.

    If that covers all members, each may pop any queue of each broker.
    """
    if share_for_all(member_count, shared):
        return [QueueId(queue.topic, queue.broker, ANY_QUEUE) for queue in queues]
    if member_count > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found = []
    for step in range(shared + 1):
        found += allocate(queues, (index + step) % member_count, member_count)
    return found


def allocate_averagely(queues: Sequence[QueueId], index: int, member_count: int) -> list[QueueId]:
    """Neighbouring queues in equal shares; the first members take the remainder."""
    size, rest = divmod(len(queues), member_count)
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def allocate_by_circle(queues: Sequence[QueueId], index: int, member_count: int) -> list[QueueId]:
    """Every `member_count`-th queue, from `index` on."""
    return list(queues[index::member_count])


_STRATEGIES: Final[dict[str, Allocate]] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


def _warn(request: QueryAssignment, reason: str) -> None:
    _LOG.warning(
        "topic=%s group=%s client=%s: no queues assigned: %s",
        request.topic,
        request.group,
        request.client_id,
        reason[:200],
    )


def _reply(mode: ConsumeMode, queues: Sequence[QueueId]) -> AssignmentReply:
    return AssignmentReply(
        tuple(Assignment(mode, queue) for queue in sorted(dict.fromkeys(queues)))
    )
