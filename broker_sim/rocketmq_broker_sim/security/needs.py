"""A request -> what its sender must be allowed to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rocketmq_wire.admin_requests import QueryMessages, ViewMessage
from rocketmq_wire.consumption_requests import SendBack
from rocketmq_wire.lite_topics import parent_of
from rocketmq_wire.model import QueueId
from rocketmq_wire.pop_handles import origin_topic_of
from rocketmq_wire.pop_requests import (
    AckMessage,
    AckMessages,
    AwaitArrival,
    ChangeInvisibleTime,
    GetPollingCount,
    PeekMessages,
    PopMessages,
)
from rocketmq_wire.recall import RecallMessage
from rocketmq_wire.requests import (
    CommitProgress,
    GetProgress,
    GetRoute,
    Heartbeat,
    ListGroupClients,
    PullMessages,
    Request,
    SendBatch,
    SendMessage,
    SendRecords,
    UnregisterClient,
)
from rocketmq_wire.transactions import EndTransaction

_RETRY_PREFIX: Final = "%RETRY%"
_POPS: Final = (
    *(PopMessages, PeekMessages, AckMessage, ChangeInvisibleTime),
    *(AwaitArrival, GetPollingCount),
)
# Whatever changes more than messages and progress begins with one of these.
_ADMIN_VERBS: Final = (
    *("Add", "ChangeBroker", "Clean", "Create", "Delete", "Put", "Remove", "Reset", "Set"),
    *("Skip", "Update", "Wipe"),
)
_READING_VERBS: Final = ("Check", "Get", "List", "Search")


@dataclass(frozen=True, slots=True)
class Needs:
    """Topics to publish to and to subscribe to, groups to act as, and what is only looked at.

    4.9 asks for no right to look; 5.3 for these: `Get` where queues are asked about, `Sub` or `Get`
    where progress is, any of `Pub`, `Sub` and `Get` for a route.
    """

    is_admin: bool = False
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    looks_at: tuple[str, ...] = ()
    progress_topics: tuple[str, ...] = ()
    progress_groups: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


def needs_of(request: Request[Any]) -> Needs:
    """What a request takes. One that is not known by name needs what it names."""
    topics, groups = _topics_of(request), _groups_of(request)
    if isinstance(request, EndTransaction):
        # Clients of 4.9 name no topic; the half message itself was sent with the right to do so.
        return Needs(publish=topics)
    if isinstance(request, RecallMessage):
        return Needs(publish=topics)
    if isinstance(request, SendMessage | SendBatch | SendRecords):
        # A consumer may put messages into its group's own topic, to have them again.
        return Needs(publish=topics) if topics else Needs(groups=groups)
    if isinstance(request, PullMessages | CommitProgress):
        return Needs(subscribe=topics, groups=groups)
    if isinstance(request, Heartbeat):
        named = [topic for one in request.consumers for topic, *_ in one.subscriptions]
        groups = (*(one.group for one in request.consumers), *_retry_groups(named))
        return Needs(subscribe=_plain(named), groups=tuple(dict.fromkeys(groups)))
    if isinstance(request, _POPS):
        # A retry topic of a pop is named after group and topic: a right to both is one to it.
        origin = parent_of(origin_topic_of(request.queue.topic, request.group))
        return Needs(subscribe=_plain([origin]), groups=(request.group,))
    if isinstance(request, AckMessages):
        acked = _plain([span.topic for span in request.spans])
        owners = tuple(dict.fromkeys(span.group for span in request.spans))
        return Needs(subscribe=acked, groups=owners)
    if isinstance(request, UnregisterClient | ListGroupClients | SendBack):
        return Needs(groups=groups)
    if isinstance(request, QueryMessages):
        return Needs(subscribe=topics)
    if isinstance(request, ViewMessage):
        # By its place in the log any message can be had, whatever topic is named beside it.
        return Needs(is_admin=True)
    if isinstance(request, GetRoute):
        return Needs(routes=topics)
    if isinstance(request, GetProgress):
        return Needs(progress_topics=topics, progress_groups=groups)
    kind = type(request).__name__
    if kind.startswith(_ADMIN_VERBS):
        return Needs(is_admin=True)
    if kind.startswith(_READING_VERBS):
        return Needs(looks_at=topics)
    return Needs(is_admin=not (topics or groups), subscribe=topics, groups=groups)


def _topics_of(request: Request[Any]) -> tuple[str, ...]:
    queue, topic = getattr(request, "queue", None), getattr(request, "topic", None)
    name = queue.topic if isinstance(queue, QueueId) else topic
    return _plain([name]) if isinstance(name, str) else ()


def _groups_of(request: Request[Any]) -> tuple[str, ...]:
    queue = getattr(request, "queue", None)
    named = [getattr(request, "group", None), getattr(request, "consumer_group", None)]
    groups = [name for name in named if isinstance(name, str) and name]
    if isinstance(queue, QueueId):
        groups += _retry_groups([queue.topic])
    return tuple(dict.fromkeys(groups))


def _plain(topics: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in topics if not name.startswith(_RETRY_PREFIX)))


def _retry_groups(topics: list[str]) -> list[str]:
    """The groups whose retry topics these are: a right to the group is a right to them."""
    return [name.removeprefix(_RETRY_PREFIX) for name in topics if name.startswith(_RETRY_PREFIX)]
