"""Which commits of progress go at the same time.

A broker makes the table of a group and topic at its first commit. RocketMQ 4.9.7 and 5.3.3 do that
without a lock: of first commits that arrive together some are answered with success and lost. (Of
300 groups of 8 queues each, 5 and 11 lost one or more.) So one goes ahead and is awaited. A round
trip each time is the price; a broker that was killed has to make the table again, so whether it has
it cannot be remembered here. Commits that travel with pulls may still meet: later ones mend that.
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
    """Commit one queue of each broker and topic, then all the others; the answer for each.

    Where the first fails the others are not sent, and have its error: they would meet each other.
    """
    ahead: dict[tuple[str, str], QueueId] = {}
    others = [queue for queue in queues if ahead.setdefault(_place(queue), queue) is not queue]
    answers = dict(commit(list(ahead.values()))) if ahead else {}
    failed = {
        place: answer
        for place, queue in ahead.items()
        if isinstance(answer := answers[queue], RocketMQError)
    }
    rest = [queue for queue in others if _place(queue) not in failed]
    if rest:
        answers.update(commit(rest))
    answers.update({q: failed[_place(q)] for q in others if _place(q) in failed})
    return answers


def _place(queue: QueueId) -> tuple[str, str]:
    return queue.broker, queue.topic
