"""Which consume queues belong to RocketMQ's lite topics, which this broker does not serve.

A lite message is stored in a queue of its parent topic, and served from there. A second queue, the
light queue (LMQ) of its lite topic, lists it once more: `%LMQ%$<parent>$<lite topic>`, index 0.
Light queues stay on the disk as they are until their parent topic is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY

MESSAGE_TYPE: Final = "message.type"
LITE: Final = "LITE"
"""The message type of a parent topic."""
_PREFIX: Final = "%LMQ%$"
_SEPARATOR: Final = "$"


def is_lite_queue(name: str) -> bool:
    return name.startswith(_PREFIX)


def parent_of(name: str) -> str:
    """The topic that holds the messages: a light queue's parent, or the topic itself."""
    if not is_lite_queue(name):
        return name
    return name[len(_PREFIX) :].partition(_SEPARATOR)[0]


def is_lite_parent(attributes: object) -> bool:
    """True for the attributes of a parent topic, as `topics.json` has them."""
    if not isinstance(attributes, Mapping):
        return False
    return str(attributes.get(MESSAGE_TYPE, "")).upper() == LITE


def served_topics(files: Files) -> list[str]:
    """The topics that have a directory of consume queues, without light queues."""
    return [name for name in files.names(QUEUE_DIRECTORY) if not is_lite_queue(name)]


def lite_queues(files: Files) -> list[str]:
    """The light queues that have a directory."""
    return [name for name in files.names(QUEUE_DIRECTORY) if is_lite_queue(name)]


def lite_topic_counts(files: Files) -> Counter[str]:
    """How many lite topics have a light queue, by parent topic."""
    return Counter(map(parent_of, lite_queues(files)))
