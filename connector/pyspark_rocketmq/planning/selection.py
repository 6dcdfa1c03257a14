"""The selection of the user and what exists -> topics and queues. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.kinds import Assigned, PerQueue
from pyspark_rocketmq.options.values import ReadOptions
from rocketmq_wire.model import DEAD_LETTER_PREFIX, QueueId, is_internal_topic

_TOPICS_KEPT: Final = 65_536


def named_topics(options: ReadOptions) -> tuple[str, ...] | None:
    """Return the topics that the options name; None if a pattern selects them."""
    if options.subscribe is not None:
        return tuple(sorted(options.subscribe))
    if options.assign is not None:
        return tuple(sorted(options.assign.queues))
    if options.dead_letters_of is not None:
        return (DEAD_LETTER_PREFIX + options.dead_letters_of,)
    return None


def matching_topics(pattern: str, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics whose whole name matches, except the cluster's internal ones."""
    compiled = re.compile(pattern)
    return tuple(
        sorted(
            topic for topic in topics if compiled.fullmatch(topic) and not is_internal_topic(topic)
        )
    )


def selects(options: ReadOptions) -> Callable[[QueueId], bool]:
    """Return a test whether the options select a queue; without a selection all pass."""
    if options.assign is not None:
        wanted = options.assign.queues
        return lambda queue: any(
            broker in (None, queue.broker) and queue.index in indexes
            for broker, indexes in wanted.get(queue.topic, {}).items()
        )
    if options.subscribe is not None or options.dead_letters_of is not None:
        topics = frozenset(named_topics(options) or ())
        return lambda queue: queue.topic in topics
    if options.subscribe_pattern is not None:
        pattern = options.subscribe_pattern
        # A topic has many queues, and every batch tests each of them.
        matches = lru_cache(_TOPICS_KEPT)(lambda topic: bool(matching_topics(pattern, (topic,))))
        return lambda queue: matches(queue.topic)
    return lambda _queue: True


def assigned_queues(
    assigned: Assigned, existing: Mapping[str, Sequence[QueueId]]
) -> tuple[list[QueueId], list[QueueId]]:
    """Return the assigned queues that exist, and those that do not."""
    found: list[QueueId] = []
    missing: list[QueueId] = []
    for topic, brokers in sorted(assigned.queues.items()):
        queues = existing.get(topic, ())
        for broker, indexes in brokers.items():
            name = only_broker("assign", topic, queues) if broker is None else broker
            for index in indexes:
                queue = QueueId(topic, name, index)
                (found if queue in queues else missing).append(queue)
    return sorted(found), sorted(missing)


def only_broker(option: str, topic: str, queues: Sequence[QueueId]) -> str:
    """Return the one broker that has the topic. Raises OptionError if there are several."""
    brokers = sorted({queue.broker for queue in queues})
    if len(brokers) > 1:
        raise OptionError(
            option,
            f"leaves out the broker, but topic {topic!r} is on {', '.join(brokers)}: "
            f'write {{"{topic}":{{"{brokers[0]}":...}}}}',
        )
    return brokers[0] if brokers else "?"


# What to write for a queue about which the user does not care.
_FOR_OTHERS: Final = {
    "startingOffsets": "use -2 for earliest, in a stream also -1 for latest",
    "endingOffsets": "use -1 for latest",
}


def numbers_by_queue(option: str, given: PerQueue, queues: Sequence[QueueId]) -> dict[QueueId, int]:
    """Match per-queue JSON with the queues that are read.

    Raises OptionError unless it names each of them and no other, as Spark's Kafka source does.
    """
    numbers: dict[QueueId, int] = {}
    for topic, brokers in given.values.items():
        of_topic = [queue for queue in queues if queue.topic == topic]
        for broker, values in brokers.items():
            name = only_broker(option, topic, of_topic) if broker is None else broker
            numbers.update({QueueId(topic, name, index): n for index, n in values.items()})
    unknown = sorted(set(numbers) - set(queues))
    note = _missing_level(given, numbers)
    if unknown:
        raise OptionError(
            option, f"names queues that are not read: {listed(unknown)}{note}", "UNKNOWN_QUEUE"
        )
    absent = sorted(set(queues) - set(numbers))
    if absent:
        raise OptionError(
            option,
            f"must name every queue, it leaves out {listed(absent)}: "
            f"{_FOR_OTHERS.get(option, 'give each a time')}{note}",
            "QUEUE_MISSING",
        )
    return numbers


def _missing_level(given: PerQueue, numbers: Mapping[QueueId, int]) -> str:
    """Explain the missing level: the user may not know that several brokers have the topic."""
    for topic, brokers in given.values.items():
        if None in brokers:
            meant = next(queue for queue in numbers if queue.topic == topic)
            if meant.broker == "?":
                continue  # There is no such topic; the error names it.
            return (
                f". It leaves out the level of brokers, taken to be {meant.broker}; in full it is "
                f'{{"{topic}":{{"{meant.broker}":{{"{meant.index}":{numbers[meant]},...}}}}}}'
            )
    return ""


def listed(queues: Sequence[QueueId]) -> str:
    return "; ".join(map(str, queues[:5])) + ("; ..." if len(queues) > 5 else "")
