"""Values that the JSON bodies of many requests share: queues, offsets, subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_wire import fastjson
from rocketmq_wire.fastjson import (
    Json,
    ObjectKeyed,
    as_object,
    member_int,
    member_object,
    member_objects,
    member_text,
)
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import QueueId, Subscription


def queue_json(queue: QueueId) -> dict[str, Json]:
    return {"brokerName": queue.broker, "queueId": queue.index, "topic": queue.topic}


def queue_from_json(queue: Mapping[str, Json]) -> QueueId:
    return QueueId(
        member_text(queue, "topic"), member_text(queue, "brokerName"), member_int(queue, "queueId")
    )


def queues_json(queues: Iterable[QueueId]) -> list[Json]:
    return [queue_json(queue) for queue in queues]


def queues_from_json(owner: Mapping[str, Json], name: str) -> tuple[QueueId, ...]:
    """The queues in a list, sorted."""
    return tuple(sorted(queue_from_json(queue) for queue in member_objects(owner, name)))


def queue_key(queue: QueueId) -> str:
    """A queue as the key of a JSON map."""
    return fastjson.canonical(queue_json(queue))


def queue_of_key(key: str) -> QueueId:
    """The queue that is the key of a JSON map: an object, or text that holds one."""
    return queue_from_json(as_object(fastjson.loads(key), "a queue"))


def offsets_json(offsets: Mapping[QueueId, int]) -> ObjectKeyed:
    return ObjectKeyed({queue_key(queue): offset for queue, offset in offsets.items()})


def offsets_from_json(owner: Mapping[str, Json], name: str) -> dict[QueueId, int]:
    table = member_object(owner, name)
    return {queue_of_key(key): member_int(table, key) for key in table}


def subscription_json(topic: str, expression: str, kind: str, version: int) -> Json:
    """A subscription as heartbeats and running infos carry it."""
    tags = TagExpression.parse(expression) if kind == "TAG" else TagExpression()
    return {
        "classFilterMode": False,
        "codeSet": list(tags.hashes),
        "expressionType": kind,
        "subString": expression,
        "subVersion": version,
        "tagsSet": sorted(tags.tags),
        "topic": topic,
    }


def subscription_from_json(subscription: Mapping[str, Json]) -> Subscription:
    return Subscription(
        member_text(subscription, "subString", "*"),
        member_text(subscription, "expressionType", "TAG"),
    )
