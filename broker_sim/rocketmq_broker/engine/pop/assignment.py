"""Who consumes which queues and how: the modes set for groups, and assignment by the broker.

The modes are kept in RocketMQ's own file `messageRequestMode.json`, saved before they count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.topics import Save, Topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import PERMISSION_READ, RETRY_PREFIX, QueueId
from rocketmq_wire.requests.assignment import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)
from rocketmq_wire.requests.pop import ANY_QUEUE

FILE_NAME: Final = "messageRequestMode.json"
_TABLE: Final = "messageRequestModeMap"

Allocate = Callable[[Sequence[QueueId], int, int], list[QueueId]]


class Assignments:
    """The modes by topic and group, and what they make of a group's members."""

    def __init__(
        self,
        stored: Mapping[str, Any] | None,
        save: Save,
        *,
        broker_name: str,
        topics: Topics,
        groups: Groups,
        clients: Clients,
    ) -> None:
        self._save, self._broker_name = save, broker_name
        self._topics, self._groups, self._clients = topics, groups, clients
        self._table: dict[str, dict[str, dict[str, Any]]] = {
            topic: dict(groups_of)
            for topic, groups_of in ((stored or {}).get(_TABLE) or {}).items()
        }

    def set_mode(self, request: SetConsumeMode) -> None:
        """Have a group pull or pop a topic. Refusals: 16, 17, 26."""
        if request.topic.startswith(RETRY_PREFIX):
            remark = "retry topic is not allowed to set mode"
            raise broker_error(ResponseCode.NO_PERMISSION, remark)
        self._topics.require(request.topic)
        if request.group not in self._groups:
            raise refusals.group_missing(request.group)
        entry = {
            "consumerGroup": request.group,
            "mode": request.mode.value,
            "popShareQueueNum": request.share_queue_count,
            "topic": request.topic,
        }
        table = {topic: dict(groups_of) for topic, groups_of in self._table.items()}
        table.setdefault(request.topic, {})[request.group] = entry
        self._save(FILE_NAME, {_TABLE: table})
        self._table = table

    def assign(self, request: QueryAssignment) -> AssignmentReply:
        """What a member is to consume; it keeps what it has while that is not known."""
        entry = self._table.get(request.topic, {}).get(request.group, {})
        mode = ConsumeMode.POP if entry.get("mode") == "POP" else ConsumeMode.PULL
        config = self._topics.get(request.topic)
        if config is None or not config.permission & PERMISSION_READ:
            return AssignmentReply(None)
        queues = [
            QueueId(request.topic, self._broker_name, index)
            for index in range(config.read_queue_count)
        ]
        if request.message_model == "BROADCASTING":
            return _reply(mode, queues)
        members = self._clients.consumer_ids(request.group)
        allocate = _STRATEGIES.get(request.strategy)
        if not members or allocate is None:
            return AssignmentReply(None)
        if request.client_id not in members:
            return AssignmentReply(())
        index = members.index(request.client_id)
        if mode is ConsumeMode.PULL:
            return _reply(mode, allocate(queues, index, len(members)))
        shared = int(entry.get("popShareQueueNum") or 0)
        return _reply(mode, share_queues(queues, index, len(members), shared, allocate))


def share_queues(
    queues: Sequence[QueueId], index: int, member_count: int, shared: int, allocate: Allocate
) -> list[QueueId]:
    """What a popping member gets: its own queues and those of `shared` members behind it.

    So many that it is everyone means any queue of each broker.
    """
    if shared <= 0 or shared >= member_count - 1:
        return [QueueId(queue.topic, queue.broker, ANY_QUEUE) for queue in queues]
    if member_count > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found = []
    for step in range(shared + 1):
        found += allocate(queues, (index + step) % member_count, member_count)
    return found


def allocate_averagely(queues: Sequence[QueueId], index: int, member_count: int) -> list[QueueId]:
    """Neighbouring queues, as many for each as possible; the first members take what is over."""
    size, rest = divmod(len(queues), member_count)
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def allocate_by_circle(queues: Sequence[QueueId], index: int, member_count: int) -> list[QueueId]:
    """Every so many-th queue."""
    return list(queues[index::member_count])


_STRATEGIES: Final[dict[str, Allocate]] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


def _reply(mode: ConsumeMode, queues: Sequence[QueueId]) -> AssignmentReply:
    return AssignmentReply(
        tuple(Assignment(mode, queue) for queue in sorted(dict.fromkeys(queues)))
    )
