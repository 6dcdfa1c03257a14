"""Directories of RocketMQ's lite topics, which this broker does not serve but keeps.

A lite message is stored in a queue of its parent topic, and served from there. A second queue lists
it for its lite topic: `%LMQ%$<parent>$<lite topic>`, index 0. Such directories stay as they are
until their parent topic is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rocketmq_broker.storage.disk.files import Files, join
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY, QueueKey
from rocketmq_wire.model import is_lite_queue, parent_of

_MESSAGE_TYPE: Final = "message.type"
_LITE: Final = "LITE"


class QueueDirectory(NamedTuple):
    key: QueueKey
    path: str


def is_lite_parent(attributes: object) -> bool:
    """True for the attributes of a parent topic in `topics.json`."""
    if not isinstance(attributes, Mapping):
        return False
    return str(attributes.get(_MESSAGE_TYPE, "")).upper() == _LITE


def served_topics(files: Files) -> list[str]:
    """The topics that have consume queues, without lite queues."""
    return [name for name in files.names(QUEUE_DIRECTORY) if not is_lite_queue(name)]


def queue_directories(files: Files) -> Iterator[QueueDirectory]:
    """The directories of all consume queues, without lite queues."""
    for topic in served_topics(files):
        for name in files.names(join(QUEUE_DIRECTORY, topic)):
            if name.isdecimal():
                yield QueueDirectory((topic, int(name)), join(QUEUE_DIRECTORY, topic, name))


def lite_queues(files: Files) -> list[str]:
    return [name for name in files.names(QUEUE_DIRECTORY) if is_lite_queue(name)]


def lite_topic_counts(files: Files) -> Counter[str]:
    """Number of lite topics with a directory, by parent topic."""
    return Counter(map(parent_of, lite_queues(files)))
