"""Writes with delivery=transactional: half messages from the tasks, a decision, their commit.

    task      sends each row as a half message, which no consumer sees; sends nothing if its batch
              is decided already
    commit    stores the decision, which lists the half messages; commits each of them; waits until
              all are visible
    replay    of a decided batch: the first task, or else the commit, commits every half message
              that is not visible yet
    abort     of an undecided batch: rolls back the tasks' half messages

A broker asks nobody about a half message before its immunity is over; until then only the sink
commits it or rolls it back. Later the broker asks a producer, and `DecisionChecks` answers from the
decision.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rocketmq.errors import ReplayError, UnfinishedTransactionError, WriteIdError
from pyspark_rocketmq.sink.encoding.plan import TransactionPlan, WriteId
from pyspark_rocketmq.sink.transactional.decision_log import (
    Decision,
    DecisionLog,
    pack_half_messages,
    retry_decision,
    unpack_half_messages,
)
from pyspark_rocketmq.sink.transactional.fencing import FencingToken, wait_for_others
from pyspark_rocketmq.sink.transactional.visibility import Visibility
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.errors import EndOutcomeUnknownError
from rocketmq_client.producer.half_messages import HalfMessage, end_many, half_of
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.send_queue import SendRequest
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import CHECK_ANSWERS, DECISION
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.properties import UNIQUE_KEY, WRITE_PROPERTY, decode_properties
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.transactions import Resolution

T = TypeVar("T")

_log = logging.getLogger("pyspark_rocketmq")

HALF_MESSAGES_IN_FLIGHT: Final = 256
"""One half message a request."""
_AGAIN_SECONDS: Final = 10.0
_COMMITTED_MAX: Final = 100_000
_KNOWN_MAX: Final = 16
"""Decisions in memory, each with some 300 bytes a half message."""


@dataclass
class HalfMessagesWritten(WriterCommitMessage):
    """A task's report: the half messages of its rows, stored at the broker."""

    rows: int
    query: str
    batch: int
    half_messages: bytes
    is_decided: bool = False
    """True if the batch was decided before; the task has sent nothing."""


def send_half_messages(producer: Producer, requests: Iterable[SendRequest]) -> list[HalfMessage]:
    """Send half messages and wait for every answer. Returns them in the order of the requests.

    If one fails, roll back the others and raise its error.
    """
    half_messages: list[tuple[int, HalfMessage]] = []
    try:
        for sent in producer.send_many(requests):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
            assert isinstance(sent.request, SendMessage)
            key = decode_properties(sent.request.properties)[UNIQUE_KEY]
            half_messages.append((sent.index, half_of(sent.request, sent.result, key)))
    except BaseException:
        roll_back(producer.cluster, [half for _, half in half_messages])
        raise
    return [half for _, half in sorted(half_messages, key=lambda pair: pair[0])]


def roll_back(cluster: Cluster, half_messages: Sequence[HalfMessage]) -> None:
    """Roll back as many half messages as possible; the rest is never committed either."""
    failed = 0
    try:
        for _, error in end_many(cluster, [(half, Resolution.ROLLBACK) for half in half_messages]):
            failed += error is not None
    except RocketMQError as error:
        _log.warning("rolling back was cut short: %s", error)
        return
    if failed:
        _log.warning(
            "%d of %d half messages were not rolled back: no consumer sees them, and the broker "
            "discards them after its last check",
            failed,
            len(half_messages),
        )


def write_half_messages(
    producer: Producer, plan: TransactionPlan, write_id: WriteId, requests: Iterable[SendRequest]
) -> HalfMessagesWritten:
    """Send a task's rows as half messages, unless their batch is decided already."""
    query, batch = write_id.query, int(write_id.batch)
    if not plan.is_fresh:
        log = DecisionLog(producer.cluster, plan.decision_topic, producer)
        decision = retry_decision(producer.cluster, lambda: log.find_surely(query, batch))
        if decision is not None:
            if write_id.partition == 0:
                _finish_early(producer, plan, decision)
            return HalfMessagesWritten(0, query, batch, b"", is_decided=True)
    half_messages = send_half_messages(producer, requests)
    return HalfMessagesWritten(len(half_messages), query, batch, pack_half_messages(half_messages))


def _finish_early(producer: Producer, plan: TransactionPlan, decision: Decision) -> None:
    """Finish a decision from a task: after a restart Spark calls commit only 2 s later."""
    # Only the driver waits for the brokers' checks.
    plan = replace(plan, checked_seconds=0.0)
    try:
        Commits(producer.cluster, producer.group, plan).finish(decision)
    except RocketMQError as error:
        _log.warning("the task cannot finish batch %d, the driver will: %s", decision.batch, error)


class Commits:
    """Decides batches and finishes decided ones. The caller owns `cluster`."""

    def __init__(self, cluster: Cluster, group: str, plan: TransactionPlan) -> None:
        self._cluster, self._group, self._plan = cluster, group, plan
        producer = Producer(cluster, group, repeats_unknown=True)
        self._log = DecisionLog(cluster, plan.decision_topic, producer)

    def commit_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [message for message in messages if isinstance(message, HalfMessagesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            if any(one.is_decided for one in ours):
                # Half messages that other tasks have sent since are not in the decision.
                roll_back(self._cluster, self._half_messages_of(ours))
                self.replay(query, batch, sum(one.rows for one in ours))
            else:
                self.commit(query, batch, self._half_messages_of(ours))

    def abort_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Roll back the batches that tasks have written, unless they are decided."""
        written = [message for message in messages if isinstance(message, HalfMessagesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            self.abort(query, batch, self._half_messages_of(ours))

    def _half_messages_of(self, written: Sequence[HalfMessagesWritten]) -> list[HalfMessage]:
        packed = (one.half_messages for one in written if one.half_messages)
        return [half for data in packed for half in unpack_half_messages(data, self._group)]

    def commit(self, query: str, batch: int, half_messages: Sequence[HalfMessage]) -> None:
        """Make a batch's rows visible, each once.

        Raises UnfinishedTransactionError, and ReplayError or WriteIdError if another write has
        this id.
        """
        if not half_messages:
            return
        brokers = {half.queue.broker for half in half_messages}
        self._retry(lambda: self._log.open(brokers))
        if not self._plan.is_fresh and self._is_decided(query, batch, half_messages):
            return
        decision = self._retry(lambda: self.decision_of(query, batch, half_messages))
        decided_at = time.monotonic()
        heads = self._log.store(decision)
        if not self._plan.is_fresh and not self._retry(lambda: self._log.is_ours(decision, heads)):
            roll_back(self._cluster, half_messages)
            raise self._another(query, batch, "was decided by another driver at the same time")
        token = FencingToken(self._log, decision, decided_at, heads)
        self._finish(token, decision.half_messages, Visibility(self._cluster, decision))

    def _is_decided(self, query: str, batch: int, half_messages: Sequence[HalfMessage]) -> bool:
        """Whether another driver decided this batch. Then finish it and roll back these."""
        # The tasks found no decision, but a driver that took this one for dead may have decided
        # since.
        found = self._retry(lambda: self._log.find(query, batch))
        if found is not None:
            decided = frozenset(found.half_messages)
            roll_back(self._cluster, [half for half in half_messages if half not in decided])
            self.replay(query, batch, len(half_messages))
            return True
        newest = self._retry(lambda: self._log.newest_batch(query))
        if newest > batch:
            # Look-ups rely on growing batch numbers.
            roll_back(self._cluster, half_messages)
            raise self._another(query, batch, f"follows {newest}, which is decided")
        return False

    def decision_of(self, query: str, batch: int, half_messages: Sequence[HalfMessage]) -> Decision:
        queues = sorted({half.queue for half in half_messages})
        starts = {}
        for queue, bounds in self._cluster.bounds(queues).items():
            if isinstance(bounds, RocketMQError):
                raise bounds
            starts[queue] = bounds.end
        return Decision(
            query, batch, self._group, tuple(half_messages), starts, count=len(half_messages)
        )

    def replay(self, query: str, batch: int, rows: int) -> None:
        """Finish a decided batch. Raises as `commit`, also if the number of rows differs."""
        decision = self._retry(lambda: self._log.find(query, batch))
        if decision is None:
            raise UnfinishedTransactionError(query, batch, 0, "its decision is gone")
        self.finish(decision)
        if decision.count not in (None, rows):
            reason = f"was decided with {decision.count} rows, and this one has {rows}"
            raise self._another(query, batch, reason)

    def _another(self, query: str, batch: int, reason: str) -> RocketMQError:
        return (WriteIdError if self._plan.is_named else ReplayError)(query, batch, reason)

    def finish(self, decision: Decision) -> None:
        """Commit the half messages of a decision that are not visible yet.

        Raises UnfinishedTransactionError, and ReplayError if another driver is finishing it.
        """
        if not decision.is_finished:
            token = FencingToken(self._log, decision)
            # From here on a driver with an older token commits nothing more.
            self._retry(token.take)
            self._await_others(token)
            visible = Visibility(self._cluster, decision)
            self._finish(token, self._invisible(visible, decision.half_messages), visible)

    def abort(self, query: str, batch: int, half_messages: Sequence[HalfMessage]) -> None:
        try:
            decision = self._log.find_surely(query, batch)
        except RocketMQError as error:
            _log.warning("batch %d may be decided, so nothing is rolled back: %s", batch, error)
            return
        if decision is None:
            roll_back(self._cluster, half_messages)
            return
        _log.warning(
            "batch %d of %s is decided: it is finished when the query runs again, or by "
            "pyspark_rocketmq.finish_transactions(options)",
            batch,
            query,
        )

    def _finish(
        self, token: FencingToken, half_messages: Sequence[HalfMessage], visible: Visibility
    ) -> None:
        decision = token.decision
        left, lost = list(half_messages), 0
        checks: Retry | None = None
        reason: RocketMQError | None = None
        retry = Retry(self._cluster.settings.over_outage(DECISION), self._cluster.clock)
        while left:
            failed = self._end(token, left, visible)
            if len(failed) < len(left):
                retry.reset()
            left = list(failed)
            errors = [error for error in failed.values() if error is not None]
            if not errors:
                continue
            reason = errors[-1]
            if any(error.retryable or _is_unknown(error) for error in errors):
                if retry.is_over:
                    break
                continue
            # Too late to commit unasked: brokers now take an end only as the answer to a check.
            if checks is None:
                policy = CHECK_ANSWERS.within(int(self._plan.checked_seconds * 1_000))
                checks = Retry(policy, self._cluster.clock)
            left = self._await_checks(token, left, visible, checks)
            # A half message that is refused even so does not block the ones behind it.
            lost += sum(failed[half] is not None for half in left)
            left = [half for half in left if failed[half] is None]
        if left or lost:
            count = len(left) + lost
            raise UnfinishedTransactionError(decision.query, decision.batch, count, str(reason))
        self._log.store_finished(decision)

    def _end(
        self, token: FencingToken, half_messages: Sequence[HalfMessage], visible: Visibility
    ) -> dict[HalfMessage, RocketMQError | None]:
        """Commit half messages; return those that are not visible, in their order, with the error.

        The error is None if one before it in its queue failed, so that it was not tried.
        """
        ends = [(half, Resolution.COMMIT) for half in half_messages]
        failed: dict[HalfMessage, RocketMQError | None] = dict.fromkeys(half_messages)
        in_order = self._plan.in_order
        for half, error in end_many(self._cluster, ends, in_order=in_order, before_each=token.take):
            if error is None:
                del failed[half]
            else:
                failed[half] = error
        if not failed:
            return failed
        if any(error is not None and _is_unknown(error) for error in failed.values()):
            self._await_visibility()
        left = self._invisible(visible, failed)
        return {half: failed[half] for half in left}

    def _await_others(self, token: FencingToken) -> None:
        """Wait until another driver's requests before our token are done and visible.

        After a restart of Spark the other driver is usually long dead: its last token shows it.
        """
        now = self._retry(lambda: self._log.times(token.since))
        tokens = self._retry(lambda: self._log.last_tokens(token.decision))
        brokers = {half.queue.broker for half in token.decision.half_messages}
        self._sleep(wait_for_others(brokers, tokens, now, self._plan.visibility_wait_seconds))
        self._retry(self._log.catch_up)

    def _await_visibility(self) -> None:
        """Wait until the brokers have done earlier requests, and show the result."""
        self._sleep(self._plan.visibility_wait_seconds)
        self._retry(self._log.catch_up)

    def _sleep(self, seconds: float) -> None:
        self._cluster.clock.sleep_ms(int(seconds * 1_000))

    def _invisible(
        self, visible: Visibility, half_messages: Iterable[HalfMessage]
    ) -> list[HalfMessage]:
        return self._retry(lambda: visible.invisible(half_messages))

    def _retry(self, work: Callable[[], T]) -> T:
        return retry_decision(self._cluster, work)

    def _await_checks(
        self,
        token: FencingToken,
        half_messages: Sequence[HalfMessage],
        visible: Visibility,
        checks: Retry,
    ) -> list[HalfMessage]:
        """Answer the brokers' checks until all is visible; return the rest at the end."""
        from rocketmq_client.producer.transaction_checks import (
            CheckService,  # Takes 45 ms to load and is seldom needed.
        )

        decision = token.decision
        left, topics = list(half_messages), {half.queue.topic for half in half_messages}
        if checks.is_over:
            return left
        settings = self._cluster.settings
        # Checks are answered in a thread of its own, which needs connections of its own.
        with open_cluster(settings) as cluster:
            answers = DecisionChecks(cluster, self._plan.decision_topic, decision)
            with CheckService(settings, decision.group, topics, answers.answer):
                while left and not checks.is_over:
                    token.take()
                    checks.pause()
                    left = self._invisible(visible, left)
        return left


def _is_unknown(error: RocketMQError) -> bool:
    return isinstance(error, EndOutcomeUnknownError)


class DecisionChecks:
    """Answers brokers that check a half message of this sink.

    - Decided and not visible: commit.
    - Decided and visible, not listed by the decision of its batch, or of a batch before a decided
      one: roll back.
    - Otherwise: unknown.
    """

    def __init__(
        self, cluster: Cluster, decision_topic: str, decision: Decision | None = None
    ) -> None:
        """`decision` is known without a look-up."""
        self._cluster = cluster
        self._log = DecisionLog(cluster, decision_topic, Producer(cluster))
        self._known: dict[tuple[str, int], _Known] = {}
        if decision is not None:
            self._known[decision.query, decision.batch] = _Known(cluster, decision)
        self._committed: dict[str, float] = {}
        """When the answer was to commit; the result is visible a little later."""

    def answer(self, message: ReceivedMessage) -> Resolution:
        """The resolution of a half message. Called by one thread at a time."""
        parts = message.properties.get(WRITE_PROPERTY, "").rsplit("/", 2)
        if len(parts) != 3 or not parts[1].isdecimal():
            return Resolution.UNKNOWN
        query, batch = parts[0], int(parts[1])
        known = self._decided(query, batch)
        if known is None:
            is_left_behind = self._log.newest_batch(query) > batch
            return Resolution.ROLLBACK if is_left_behind else Resolution.UNKNOWN
        key = message.message_id
        half = known.half_messages.get(key)
        if half is None:
            # A finished decision has committed all of its half messages.
            return Resolution.ROLLBACK
        if not known.visible.invisible([half]):
            return Resolution.ROLLBACK
        # It may be committed already and become visible only a moment later.
        self._log.catch_up()
        if not known.visible.invisible([half]):
            return Resolution.ROLLBACK
        # RocketMQ may keep two copies of one half message and check both.
        now = time.monotonic()
        if now - self._committed.get(key, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return Resolution.UNKNOWN
        if len(self._committed) >= _COMMITTED_MAX:
            self._committed.clear()
        self._committed[key] = now
        return Resolution.COMMIT

    def _decided(self, query: str, batch: int) -> _Known | None:
        """Decisions never change: only an undecided batch is looked up for every check."""
        known = self._known.get((query, batch))
        if known is None:
            decision = self._log.find(query, batch)
            if decision is None:
                return None
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[query, batch] = _Known(self._cluster, decision)
        return known


class _Known:
    def __init__(self, cluster: Cluster, decision: Decision) -> None:
        self.half_messages = {half.transaction_id: half for half in decision.half_messages}
        self.visible = Visibility(cluster, decision)
