"""What a batch reads, in one line of the log: how many messages of which topics.

The lines come from the processes that Spark plans in. Nobody sets up logging there, so on demand it
is done here, for these lines alone: to standard error, which Spark hands on to the driver's.
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
    """What is read of each queue, told by topic, the largest first; None: nothing is read."""
    topics: Counter[str] = Counter()
    queues: defaultdict[str, set[QueueId]] = defaultdict(set)
    for queue, count in counts:
        if count:
            topics[queue.topic] += count
            queues[queue.topic].add(queue)
    if not topics:
        return None
    largest = sorted(topics, key=lambda topic: (-topics[topic], topic))
    told = [
        f"{topic} {topics[topic]:,} in {plural(len(queues[topic]), 'queue')}"
        for topic in largest[:_TOPICS_MAX]
    ]
    rest = largest[_TOPICS_MAX:]
    if rest:
        messages = sum(topics[topic] for topic in rest)
        told.append(f"{plural(len(rest), 'other topic')} {messages:,}")
    total = plural(topics.total(), "message")
    return f"{total} in {plural(tasks, 'task')}: {', '.join(told)}"


def log_batch(
    what: str, counts: Iterable[tuple[QueueId, int]], tasks: int, *, is_shown: bool
) -> None:
    """Log what a batch reads, if it reads anything; `is_shown` also where nobody set up logging."""
    _show(is_shown)
    if _log.isEnabledFor(logging.INFO):
        line = batch_line(counts, tasks)
        if line is not None:
            _log.info("%s of %s", what, line)


def _show(is_shown: bool) -> None:
    # A process that plans for one query after the other serves each as it wants.
    _log.setLevel(logging.INFO if is_shown else logging.NOTSET)
    if is_shown and not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        _log.addHandler(handler)
