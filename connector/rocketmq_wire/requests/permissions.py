"""Access rights: the permissions that a request's sender needs, declared by each request class.

A class declares an `AccessRight`; a request names its topics and groups (`Resources`). Together
they are the permissions that a broker with accounts checks, in the terms of RocketMQ 5.3: actions
on a topic, on a group, or on the cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueId


class Action(enum.Enum):
    """An action on a resource; the value is the word of an acl, in lower case."""

    PUB = "pub"
    SUB = "sub"
    GET = "get"
    UPDATE = "update"


class ResourceKind(enum.Enum):
    """A kind of resource; the value is the word of an acl."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


CLUSTER_NAME: Final = "*"


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission that the sender needs: any of `actions` on the resource is enough."""

    kind: ResourceKind
    name: str
    actions: tuple[Action, ...]

    @property
    def is_read_only(self) -> bool:
        """True if `GET` is enough, which changes nothing and reads no message."""
        return Action.GET in self.actions


@dataclass(frozen=True, slots=True)
class Resources:
    """The topics and groups that a request acts on, each once."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRight:
    """The actions of a request on each kind of resource; without actions nothing is checked."""

    topic: tuple[Action, ...] = ()
    """Any of these on every topic that the request names."""
    group: tuple[Action, ...] = ()
    """Any of these on every group that the request names."""
    cluster: tuple[Action, ...] = ()
    cluster_if_unnamed: tuple[Action, ...] = ()
    """Any of these on the cluster if the request names neither a topic nor a group."""

    def on(self, resources: Resources) -> tuple[Permission, ...]:
        """The permissions for these topics and groups: cluster first, then topics, then groups."""
        is_unnamed = not (resources.topics or resources.groups)
        cluster = self.cluster or (self.cluster_if_unnamed if is_unnamed else ())
        wanted = (
            (ResourceKind.CLUSTER, (CLUSTER_NAME,), cluster),
            (ResourceKind.TOPIC, resources.topics, self.topic),
            (ResourceKind.GROUP, resources.groups, self.group),
        )
        return tuple(
            Permission(kind, name, actions)
            for kind, names, actions in wanted
            if actions
            for name in names
        )


NOTHING: Final = AccessRight()
"""Any signed account may send it."""
ADMIN: Final = AccessRight(cluster=(Action.UPDATE,))
PUBLISH: Final = AccessRight(topic=(Action.PUB,), group=(Action.SUB,))
"""A member may also send to the retry topic of its group without a right to publish."""
JOIN_GROUP: Final = AccessRight(group=(Action.SUB,))
CONSUME: Final = AccessRight(topic=(Action.SUB,), group=(Action.SUB,))
JOIN_GROUP_OR_ADMIN: Final = AccessRight(group=(Action.SUB,), cluster_if_unnamed=(Action.UPDATE,))
"""As `JOIN_GROUP`; a request that names no group is an administrator's."""
CONSUME_OR_ADMIN: Final = AccessRight(
    topic=(Action.SUB,), group=(Action.SUB,), cluster_if_unnamed=(Action.UPDATE,)
)
"""As `CONSUME`; a request that names nothing is an administrator's."""
GET_CLUSTER: Final = AccessRight(cluster=(Action.GET,))
GET_GROUP: Final = AccessRight(group=(Action.SUB, Action.GET))
GET_TOPIC: Final = AccessRight(topic=(Action.GET,), group=(Action.SUB, Action.GET))
"""For the topic; if it belongs to a group, or the request names one, for the group, too."""
GET_ROUTE: Final = AccessRight(topic=(Action.PUB, Action.SUB, Action.GET))
GET_CONSUMPTION: Final = AccessRight(topic=(Action.SUB, Action.GET), group=(Action.SUB, Action.GET))


def named_by_fields(request: object) -> Resources:
    """The resources in the fields `queue`, `queues`, `topic`, `group` and `consumer_group`.

    See `resources_of` for the topics of groups.
    """
    queue, topic = getattr(request, "queue", None), getattr(request, "topic", None)
    if isinstance(queue, QueueId):
        topic = queue.topic
    topics = [topic] if isinstance(topic, str) else []
    topics += [one.topic for one in getattr(request, "queues", ())]
    fields = (getattr(request, "group", None), getattr(request, "consumer_group", None))
    return resources_of(topics, (name for name in fields if isinstance(name, str) and name))


def resources_of(topics: Iterable[str], groups: Iterable[str] = ()) -> Resources:
    """The resources behind these names, each once.

    A retry topic stands for its group. A dead-letter topic stands for itself and its group.
    """
    names = dict.fromkeys(topics)
    plain = tuple(name for name in names if not name.startswith(RETRY_PREFIX))
    behind = (
        # A pop's retry topic may have the popped topic behind a plus, which no group's name has.
        name.removeprefix(prefix).partition("+")[0]
        for name in names
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        if name.startswith(prefix)
    )
    return Resources(plain, tuple(dict.fromkeys((*groups, *behind))))
