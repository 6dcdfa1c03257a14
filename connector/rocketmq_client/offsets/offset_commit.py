"""Orders the commits of a group's offsets in two rounds.

A broker creates the table of a group and topic at the first commit. RocketMQ 4.9.7 and 5.3.3 do so
without a lock: if several first commits arrive together, some are acknowledged and lost (of 300
groups with 8 queues, 5 and 11 groups lost one or more). So one commit goes first and is awaited, at
the price of a round trip. A killed broker creates the table again, so the client cannot remember
it. Commits that travel with pulls may still collide; later ones repair that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId

R = TypeVar("R")


def commit_in_rounds(
    queues: Iterable[QueueId],
    commit: Callable[[Sequence[QueueId]], Mapping[QueueId, R | RocketMQError]],
) -> dict[QueueId, R | RocketMQError]:
    """Commit one queue of each broker and topic, then the others, and return all answers.

    If the first commit fails, the others get its error and are not sent.
    """
    first: dict[tuple[str, str], QueueId] = {}
    others = [queue for queue in queues if first.setdefault(_table_of(queue), queue) is not queue]
    answers = dict(commit(list(first.values()))) if first else {}
    failed = {
        table: answer
        for table, queue in first.items()
        if isinstance(answer := answers[queue], RocketMQError)
    }
    rest = [queue for queue in others if _table_of(queue) not in failed]
    if rest:
        answers.update(commit(rest))
    answers.update({q: failed[_table_of(q)] for q in others if _table_of(q) in failed})
    return answers


def _table_of(queue: QueueId) -> tuple[str, str]:
    return queue.broker, queue.topic
