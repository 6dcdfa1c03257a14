"""Names of lite topics, which are without number below one parent topic, and of their queues.

A lite message is stored in a queue of its parent topic, and listed a second time in a queue of its
own, the light queue (LMQ) of its lite topic. Its record says so:

    INNER_MULTI_DISPATCH       %LMQ%$<parent>$<lite topic>
    INNER_MULTI_QUEUE_OFFSET   the message's offset in that queue
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rocketmq_wire.consistent_hash import consistent_hash
from rocketmq_wire.model import QueueId
from rocketmq_wire.tags import java_hash

LIGHT_PREFIX: Final = "%LMQ%$"
DISPATCHED_TO: Final = "INNER_MULTI_DISPATCH"
DISPATCHED_AT: Final = "INNER_MULTI_QUEUE_OFFSET"
LITE_NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]+")
LITE_NAME_SIZE_MAX: Final = 64
MESSAGE_TYPE: Final = "message.type"
LITE: Final = "LITE"
"""The message type of a parent topic."""
BOUND_TO: Final = "lite.bind.topic"
"""The attribute of a group that consumes lite topics: the parent."""
_SEPARATOR: Final = "$"


def light_queue(parent: str, lite_topic: str) -> str:
    """The name under which a lite topic's own queue is kept; its only index is 0."""
    return f"{LIGHT_PREFIX}{parent}{_SEPARATOR}{lite_topic}"


def is_light_queue(name: str) -> bool:
    return name.startswith(LIGHT_PREFIX)


def parent_of(name: str) -> str:
    """The topic that holds the messages: a light queue's parent, or the topic itself."""
    if not is_light_queue(name):
        return name
    return name[len(LIGHT_PREFIX) :].partition(_SEPARATOR)[0]


def lite_topic_of(name: str) -> str:
    """The lite topic of a light queue."""
    return name[len(LIGHT_PREFIX) :].partition(_SEPARATOR)[2]


def home_queue(lite_topic: str, queues: Sequence[QueueId]) -> QueueId:
    """The one of the parent's queues for all messages of a lite topic: each broker keeps a light
    queue of its own, and only within one queue do messages keep their order.

    Among a broker's queues it is the one that the public gRPC service takes.
    """
    named = java_hash(lite_topic)
    brokers = sorted({queue.broker for queue in queues})
    broker = brokers[named % len(brokers)]
    own = sorted(queue for queue in queues if queue.broker == broker)
    return own[consistent_hash(named, len(own))]
