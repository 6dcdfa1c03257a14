"""Commits a group's offsets at the broker, up to the last durable batch, off the planning path.

- A thread commits offered offsets at once, waits for the answer, and compares them every few
  seconds, as RocketMQ's own clients repeat their commits.
- Committed offsets are for people and tools, the checkpoint is the truth: a failed commit is logged
  and retried, never fatal.
- A commit overwrites any stored offset, also with a lower one. So a group with live members is
  refused before the first commit. A queue whose stored offset is above everything that this query
  planned belongs to another committer: it is reported once and not committed any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyspark_rocketmq.errors import GroupInUseError
from rocketmq_client.cluster import Cluster
from rocketmq_client.retry import Backoff
from rocketmq_client.retry_schedules import OFFSET_COMMIT
from rocketmq_wire.errors import RocketMQError, split_answers
from rocketmq_wire.model import QueueId

_log = logging.getLogger("pyspark_rocketmq")

RESEND_MS: Final = 5_000  # RemoteBrokerOffsetStore's own interval.


def require_free(cluster: Cluster, group: str, topics: Iterable[str]) -> None:
    """Raise GroupInUseError if the topics' brokers know live members of the group."""
    members = {member for topic in topics for member in cluster.members(group, topic)}
    if members:
        raise GroupInUseError(group, tuple(sorted(members)))


def to_commit(
    wanted: Mapping[QueueId, int],
    stored: Mapping[QueueId, int | None],
    planned: Mapping[QueueId, int],
    committed: Mapping[QueueId, int],
) -> tuple[dict[QueueId, int], list[QueueId]]:
    """The offsets to commit, and the queues that another committer owns.

    - A queue that is missing in `stored` is committed.
    - A stored offset above everything wanted, planned or `committed` by us is another's.
    - An offset that we committed ourselves goes back if the wanted one was corrected.
    - An offset between wanted and planned was committed by a listener in the driver.
    """
    due: dict[QueueId, int] = {}
    others: list[QueueId] = []
    for queue, offset in wanted.items():
        known, own = stored.get(queue), committed.get(queue, offset)
        if known is None or known < offset or offset < known == own:
            due[queue] = offset
        elif known > max(offset, planned.get(queue, offset), own):
            others.append(queue)
    return due, others


def commit_round(
    cluster: Cluster,
    group: str,
    wanted: Mapping[QueueId, int],
    asked: Iterable[QueueId],
    planned: Callable[[], Mapping[QueueId, int]],
    committed: dict[QueueId, int],
) -> tuple[dict[QueueId, int | None], list[QueueId], dict[QueueId, RocketMQError]]:
    """Commit what is due, after a look at the stored offsets of the `asked` queues.

    `planned` is read after that look: a listener may commit a batch planned meanwhile. Adds to
    `committed`. Returns the stored offsets, the queues that another committer owns, and the
    errors by queue.
    """
    queues = tuple(asked)
    stored, errors = split_answers(cluster.committed_offsets(group, queues) if queues else {})
    known = {queue: offset for queue, offset in wanted.items() if queue not in errors}
    due, others = to_commit(known, stored, planned(), committed)
    done, refused = split_answers(cluster.commit(group, due) if due else {})
    committed.update({queue: due[queue] for queue in done})
    return stored, others, {**errors, **refused}


class OffsetCommitter:
    """The thread that commits. `open` makes its connection."""

    def __init__(
        self, open: Callable[[], Cluster], group: str, topics: Callable[[], tuple[str, ...]]
    ) -> None:
        self._open, self._group, self._topics = open, group, topics
        self._changed = threading.Condition()
        self._wanted: Mapping[QueueId, int] = {}
        self._planned: Mapping[QueueId, int] = {}
        self._committed: dict[QueueId, int] = {}
        self._disowned: set[QueueId] = set()
        self._error: GroupInUseError | None = None
        self._is_alone = False
        self._is_pending = False
        self._is_busy = False
        self._is_closed = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def claim(self, cluster: Cluster) -> None:
        """Check that the group has no live members; the thread repeats it if no broker answers.

        Raises GroupInUseError.
        """
        try:
            require_free(cluster, self._group, self._topics())
        except GroupInUseError:
            raise
        except RocketMQError as error:
            _log.warning("cannot tell yet whether group %s is in use: %s", self._group, error)
        else:
            self._is_alone = True

    def planned(self, ends: Mapping[QueueId, int]) -> None:
        """Note how far this query planned: committed offsets up to there are its own."""
        self._planned = ends

    def offer(self, ends: Mapping[QueueId, int]) -> None:
        """Commit these ends, unless they are committed. Raises GroupInUseError found before."""
        if self._error is not None:
            raise self._error
        if ends is self._wanted:
            return
        with self._changed:
            self._wanted = ends
            # If the thread has ended, `flush` must not wait for it.
            self._is_pending = not self._is_over
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="rocketmq-offset-commit", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_ms: int) -> bool:
        """Wait until the offered offsets are committed; False after the time-out."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._is_pending or self._is_busy), timeout_ms / 1_000
            )

    def close(self, timeout_ms: int = 2_000) -> None:
        """Commit the rest within the time-out, and stop."""
        if self._thread is None:
            return
        self.flush(timeout_ms)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_ms / 1_000)

    def _run(self) -> None:
        cluster: Cluster | None = None
        backoff = Backoff(OFFSET_COMMIT)
        try:
            while self._wait():
                try:
                    cluster = cluster or self._open()
                    self._commit(cluster)
                    delay_ms = 0
                    if backoff.failures:
                        _log.warning("group %s: offsets are committed again", self._group)
                    backoff.reset()
                except RocketMQError as error:
                    if not backoff.failures:
                        _log.warning("group %s: cannot commit offsets now: %s", self._group, error)
                    delay_ms = backoff.next_delay_ms()
                    with self._changed:
                        self._is_pending = not isinstance(error, GroupInUseError)
                        self._error = error if isinstance(error, GroupInUseError) else None
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()
                    if delay_ms and not self._is_closed:
                        self._changed.wait(delay_ms / 1_000)
        except Exception:  # noqa: BLE001 - the thread's outermost frame.
            # Commits stop, the query continues.
            _log.exception("group %s: offsets are no longer committed", self._group)
        finally:
            with self._changed:
                self._is_busy = self._is_pending = False
                self._is_over = True
                self._changed.notify_all()
            if cluster is not None:
                cluster.close()

    def _wait(self) -> bool:
        with self._changed:
            until = time.monotonic() + RESEND_MS / 1_000
            while not (self._is_pending or self._is_closed):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._is_closed or self._error is not None:
                return False
            self._is_pending, self._is_busy = False, True
            return True

    def _commit(self, cluster: Cluster) -> None:
        if not self._is_alone:
            require_free(cluster, self._group, self._topics())
            self._is_alone = True
        wanted = {q: n for q, n in self._wanted.items() if q not in self._disowned}
        before = [queue for queue in wanted if queue in self._committed]
        stored, others, errors = commit_round(
            cluster, self._group, wanted, before, lambda: self._planned, self._committed
        )
        for queue in others:
            self._disowned.add(queue)
            _log.warning(
                "[ROCKETMQ_GROUP.FOREIGN_COMMIT] group=%s %s: committed offset %s is above %s, the "
                "furthest this query planned: another client commits for this group, so this query "
                "no longer does for this queue. Use a group of its own for each query.",
                self._group,
                queue,
                stored[queue],
                max(wanted[queue], self._planned.get(queue, 0)),
            )
        if errors:
            raise next(reversed(errors.values()))
