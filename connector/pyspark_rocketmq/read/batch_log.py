"""Logs in one line what a batch reads: how many messages of which topics.

The lines come from the processes in which Spark plans. No logging is configured there, so on demand
this module configures it for these lines alone: to standard error, which Spark passes on to the
driver's.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq.batches")

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TOPICS_MAX: Final = 5


def batch_line(counts: Iterable[tuple[QueueId, int]], tasks: int) -> str | None:
    """Format the counts by topic, the largest first; None: the batch reads nothing."""
    topics: Counter[str] = Counter()
    queues: defaultdict[str, set[QueueId]] = defaultdict(set)
    for queue, count in counts:
        if count:
            topics[queue.topic] += count
            queues[queue.topic].add(queue)
    if not topics:
        return None
    largest = sorted(topics, key=lambda topic: (-topics[topic], topic))
    parts = [
        f"{topic} {topics[topic]:,} in {plural(len(queues[topic]), 'queue')}"
        for topic in largest[:_TOPICS_MAX]
    ]
    rest = largest[_TOPICS_MAX:]
    if rest:
        messages = sum(topics[topic] for topic in rest)
        parts.append(f"{plural(len(rest), 'other topic')} {messages:,}")
    total = plural(topics.total(), "message")
    return f"{total} in {plural(tasks, 'task')}: {', '.join(parts)}"


def log_batch(
    what: str, counts: Iterable[tuple[QueueId, int]], tasks: int, *, is_shown: bool
) -> None:
    """Log what a batch reads, if anything; `is_shown`: even if no logging is configured."""
    _show(is_shown)
    if _log.isEnabledFor(logging.INFO):
        line = batch_line(counts, tasks)
        if line is not None:
            _log.info("%s of %s", what, line)


def _show(is_shown: bool) -> None:
    # One process plans for several queries, each with a setting of its own.
    _log.setLevel(logging.INFO if is_shown else logging.NOTSET)
    if is_shown and not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        _log.addHandler(handler)
