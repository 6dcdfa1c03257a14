"""Writes with delivery=transactional: halves in the tasks, a decision, then their ends.

    task      sends each row as a half message, that nobody sees; should its batch be decided
              already, it sends nothing
    commit    stores the decision, which lists the halves, then ends each of them, and sees to it
              that all are visible
    replay    of a batch that is decided: its halves are finished, each that is not visible yet, by
              the first task, or else by the commit
    abort     of a batch that is not decided: what the tasks sent is rolled back

Brokers ask nobody about a half before its immunity is over; until then only the sink ends it. Later
they ask, and whoever answers answers from the decision (`DecisionChecks`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rocketmq.errors import ReplayError, UnfinishedTransactionError, WriteIdError
from pyspark_rocketmq.sink.encoding.layout import TransactionPlan, WriteId
from pyspark_rocketmq.sink.encoding.row_ids import WRITE_PROPERTY
from pyspark_rocketmq.sink.transactional.decision_log import Decision, DecisionLog, retry_decision
from pyspark_rocketmq.sink.transactional.fencing import FencingToken, wait_for_others
from pyspark_rocketmq.sink.transactional.half_messages import (
    pack_half_messages,
    unpack_half_messages,
)
from pyspark_rocketmq.sink.transactional.visibility import Visible
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.producer.half_messages import (
    EndOutcomeUnknownError,
    HalfMessage,
    end_many,
    half_of,
)
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.send_queue import SendRequest
from rocketmq_client.retry import CHECK_ANSWERS, DECISION, Retry
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.properties import UNIQUE_KEY, decode_properties
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.transactions import Resolution

T = TypeVar("T")

_log = logging.getLogger("pyspark_rocketmq")

HALF_MESSAGES_IN_FLIGHT: Final = 256
"""Half messages go one a request; who comes first does not matter before they are ended."""
_AGAIN_SECONDS: Final = 10.0
_COMMITTED_MAX: Final = 100_000
_KNOWN_MAX: Final = 16
"""Decisions, each with some 300 bytes a half."""


@dataclass
class HalfMessagesWritten(WriterCommitMessage):
    """What a task reports: the half messages of its rows, which the broker holds."""

    rows: int
    query: str
    batch: int
    halves: bytes
    is_decided: bool = False
    """The batch was decided before: the task has sent nothing."""


# --- tasks ------------------------------------------------------------------------------------


def send_half_messages(producer: Producer, requests: Iterable[SendRequest]) -> list[HalfMessage]:
    """Send half messages, and wait for every answer; in the order of the requests.

    When one fails, the others are rolled back, and its error is raised.
    """
    halves: list[tuple[int, HalfMessage]] = []
    try:
        for sent in producer.send_many(requests):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
            assert isinstance(sent.request, SendMessage)
            key = decode_properties(sent.request.properties)[UNIQUE_KEY]
            halves.append((sent.index, half_of(sent.request, sent.result, key)))
    except BaseException:
        roll_back(producer.cluster, [half for _, half in halves])
        raise
    return [half for _, half in sorted(halves, key=lambda pair: pair[0])]


def roll_back(cluster: Cluster, halves: Sequence[HalfMessage]) -> None:
    """Roll half messages back, as far as that can be done: the rest is never committed either."""
    failed = 0
    try:
        for _, error in end_many(cluster, [(half, Resolution.ROLLBACK) for half in halves]):
            failed += error is not None
    except RocketMQError as error:
        _log.warning("rolling back was cut short: %s", error)
        return
    if failed:
        _log.warning(
            "%d of %d half messages were not rolled back: nobody sees them, and the broker puts "
            "them away after its last check",
            failed,
            len(halves),
        )


def write_half_messages(
    producer: Producer,
    plan: TransactionPlan,
    write_id: WriteId,
    requests: Iterable[SendRequest],
    *,
    may_be_replayed: bool,
) -> HalfMessagesWritten:
    """Send a task's rows as half messages, unless their batch is decided already."""
    query, batch = write_id.query, int(write_id.batch)
    if may_be_replayed:
        log = DecisionLog(producer.cluster, plan.decision_topic, producer)
        decision = retry_decision(producer.cluster, lambda: log.find_surely(query, batch))
        if decision is not None:
            if write_id.partition == 0:
                _finish_early(producer, plan, decision)
            return HalfMessagesWritten(0, query, batch, b"", is_decided=True)
    halves = send_half_messages(producer, requests)
    return HalfMessagesWritten(len(halves), query, batch, pack_half_messages(halves))


def _finish_early(producer: Producer, plan: TransactionPlan, decision: Decision) -> None:
    """Finish a decision from a task: the driver's commit comes 2 s later, when Spark restarts."""
    # Waiting to be asked is the driver's.
    plan = replace(plan, checked_seconds=0.0)
    try:
        Commits(producer.cluster, producer.group, plan).finish(decision)
    except RocketMQError as error:
        _log.warning("batch %d is finished by the driver: %s", decision.batch, error)


# --- the driver -------------------------------------------------------------------------------


class Commits:
    """Decides about batches, and finishes what is decided. `cluster` is the caller's."""

    def __init__(self, cluster: Cluster, group: str, plan: TransactionPlan) -> None:
        self._cluster, self._group, self._plan = cluster, group, plan
        producer = Producer(cluster, group, repeats_unknown=True)
        self._log = DecisionLog(cluster, plan.decision_topic, producer)

    def commit_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what tasks have written, or finish it, where it was decided before."""
        written = [message for message in messages if isinstance(message, HalfMessagesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            if any(one.is_decided for one in ours):
                # Nothing of what others may have sent since is in the decision.
                roll_back(self._cluster, self._halves_of(ours))
                self.replay(query, batch, sum(one.rows for one in ours))
            else:
                self.commit(query, batch, self._halves_of(ours))

    def abort_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Roll back what tasks have written, unless it is decided."""
        written = [message for message in messages if isinstance(message, HalfMessagesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            self.abort(query, batch, self._halves_of(ours))

    def _halves_of(self, written: Sequence[HalfMessagesWritten]) -> list[HalfMessage]:
        packed = (one.halves for one in written if one.halves)
        return [half for data in packed for half in unpack_half_messages(data, self._group)]

    def commit(self, query: str, batch: int, halves: Sequence[HalfMessage]) -> None:
        """Make a batch's rows visible, each once.

        Raises UnfinishedTransactionError, and ReplayError or WriteIdError: it is another's.
        """
        if not halves:
            return
        brokers = {half.queue.broker for half in halves}
        self._retry(lambda: self._log.open(brokers))
        if not self._plan.is_fresh and self._is_decided(query, batch, halves):
            return
        decision = self._retry(lambda: self.decision_of(query, batch, halves))
        decided_at = time.monotonic()
        heads = self._log.store(decision)
        if not self._plan.is_fresh and not self._retry(lambda: self._log.is_ours(decision, heads)):
            roll_back(self._cluster, halves)
            raise self._another(query, batch, "was decided by another driver at the same time")
        turn = FencingToken(self._log, decision, decided_at, heads)
        self._finish(turn, decision.halves, Visible(self._cluster, decision))

    def _is_decided(self, query: str, batch: int, halves: Sequence[HalfMessage]) -> bool:
        """Finish it if it is, by another driver; roll these back then."""
        # Its tasks have looked: a driver that took this one for dead may have decided since.
        found = self._retry(lambda: self._log.find(query, batch))
        if found is not None:
            decided = frozenset(found.halves)
            roll_back(self._cluster, [half for half in halves if half not in decided])
            self.replay(query, batch, len(halves))
            return True
        newest = self._retry(lambda: self._log.newest_batch(query))
        if newest > batch:
            # Decisions are looked up by growing numbers.
            roll_back(self._cluster, halves)
            raise self._another(query, batch, f"comes behind {newest}, which is decided")
        return False

    def decision_of(self, query: str, batch: int, halves: Sequence[HalfMessage]) -> Decision:
        """The decision to commit these, none of which is committed yet."""
        queues = sorted({half.queue for half in halves})
        starts = {}
        for queue, bounds in self._cluster.bounds(queues).items():
            if isinstance(bounds, RocketMQError):
                raise bounds
            starts[queue] = bounds.end
        return Decision(query, batch, self._group, tuple(halves), starts, count=len(halves))

    def replay(self, query: str, batch: int, rows: int) -> None:
        """Finish a batch that is decided. Raises as `commit`, if so many rows are another's too."""
        decision = self._retry(lambda: self._log.find(query, batch))
        if decision is None:
            raise UnfinishedTransactionError(query, batch, 0, "its decision is gone")
        self.finish(decision)
        if decision.count not in (None, rows):
            told = f"was decided with {decision.count} rows, and this one has {rows}"
            raise self._another(query, batch, told)

    def _another(self, query: str, batch: int, told: str) -> RocketMQError:
        return (WriteIdError if self._plan.is_named else ReplayError)(query, batch, told)

    def finish(self, decision: Decision) -> None:
        """Commit what of a decision is not visible yet.

        Raises UnfinishedTransactionError, and ReplayError when another driver is at it.
        """
        if not decision.is_finished:
            turn = FencingToken(self._log, decision)
            # From here on whoever has it ends no more.
            self._retry(turn.take)
            self._await_others(turn)
            visible = Visible(self._cluster, decision)
            self._finish(turn, self._invisible(visible, decision.halves), visible)

    def abort(self, query: str, batch: int, halves: Sequence[HalfMessage]) -> None:
        """Roll a batch back, unless it is decided."""
        try:
            decision = self._log.find_surely(query, batch)
        except RocketMQError as error:
            _log.warning("batch %d may be decided, nothing is rolled back: %s", batch, error)
            return
        if decision is None:
            roll_back(self._cluster, halves)
            return
        _log.warning(
            "batch %d of %s is decided: it is finished when the query runs again, or by "
            "pyspark_rocketmq.finish_transactions(options)",
            batch,
            query,
        )

    def _finish(self, turn: FencingToken, halves: Sequence[HalfMessage], visible: Visible) -> None:
        decision = turn.decision
        left, lost = list(halves), 0
        checks: Retry | None = None
        reason: RocketMQError | None = None
        retry = Retry(self._cluster.settings.over_outage(DECISION), self._cluster.clock)
        while left:
            failed = self._end(turn, left, visible)
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
            # Too late for us: brokers take it only from who they ask.
            checks = checks or self._checks_retry()
            left = self._await_checks(turn, left, visible, checks)
            # What is refused even so holds up what is behind it no longer.
            lost += sum(failed[half] is not None for half in left)
            left = [half for half in left if failed[half] is None]
        if left or lost:
            count = len(left) + lost
            raise UnfinishedTransactionError(decision.query, decision.batch, count, str(reason))
        self._log.store_finished(decision)

    def _end(
        self, turn: FencingToken, halves: Sequence[HalfMessage], visible: Visible
    ) -> dict[HalfMessage, RocketMQError | None]:
        """End them; those that are not visible after all, in their order, and why.

        None: not tried, since one before it in its queue could not be ended.
        """
        ends = [(half, Resolution.COMMIT) for half in halves]
        failed: dict[HalfMessage, RocketMQError | None] = dict.fromkeys(halves)
        in_order = self._plan.in_order
        for half, error in end_many(self._cluster, ends, in_order=in_order, before_each=turn.take):
            if error is None:
                del failed[half]
            else:
                failed[half] = error
        if not failed:
            return failed
        if any(error is not None and _is_unknown(error) for error in failed.values()):
            self._settle()
        left = self._invisible(visible, failed)
        return {half: failed[half] for half in left}

    def _await_others(self, turn: FencingToken) -> None:
        """Wait until what another driver asked before our turn is done, and can be seen.

        Most are long dead when Spark has started again: their last turn tells.
        """
        now = self._retry(lambda: self._log.times(turn.since))
        turns = self._retry(lambda: self._log.last_turns(turn.decision))
        brokers = {half.queue.broker for half in turn.decision.halves}
        self._sleep(wait_for_others(brokers, turns, now, self._plan.settle_seconds))
        self._retry(self._log.catch_up)

    def _settle(self) -> None:
        """Wait until what was asked of the brokers before is done, and can be seen."""
        self._sleep(self._plan.settle_seconds)
        self._retry(self._log.catch_up)

    def _sleep(self, seconds: float) -> None:
        self._cluster.clock.sleep_ms(int(seconds * 1_000))

    def _invisible(self, visible: Visible, halves: Iterable[HalfMessage]) -> list[HalfMessage]:
        return self._retry(lambda: visible.invisible(halves))

    def _checks_retry(self) -> Retry:
        policy = CHECK_ANSWERS.within(int(self._plan.checked_seconds * 1_000))
        return Retry(policy, self._cluster.clock)

    def _retry(self, work: Callable[[], T]) -> T:
        return retry_decision(self._cluster, work)

    def _await_checks(
        self, turn: FencingToken, halves: Sequence[HalfMessage], visible: Visible, checks: Retry
    ) -> list[HalfMessage]:
        """Answer the brokers until all is visible; what is not in the end."""
        from rocketmq_client.producer.transaction_checks import (
            CheckService,  # Takes 45 ms, and seldom.
        )

        decision = turn.decision
        left, topics = list(halves), {half.queue.topic for half in halves}
        if checks.is_over:
            return left
        settings = self._cluster.settings
        # Questions are answered in a thread of their own, and so by connections of their own.
        with open_cluster(settings) as cluster:
            answers = DecisionChecks(cluster, self._plan.decision_topic, decision)
            with CheckService(settings, decision.group, topics, answers.answer):
                while left and not checks.is_over:
                    turn.take()
                    checks.pause()
                    left = self._invisible(visible, left)
        return left


def _is_unknown(error: RocketMQError) -> bool:
    return isinstance(error, EndOutcomeUnknownError)


# --- checks -----------------------------------------------------------------------------------


class DecisionChecks:
    """Answers brokers that ask what became of a half message of this sink.

    Decided and not visible: commit. Decided and visible, or another message of a decided batch, or
    a batch that later ones have left behind: roll back. Else nobody knows yet.
    """

    def __init__(
        self, cluster: Cluster, decision_topic: str, decision: Decision | None = None
    ) -> None:
        """With `decision` it knows that one without looking it up."""
        self._cluster = cluster
        self._log = DecisionLog(cluster, decision_topic, Producer(cluster))
        self._known: dict[tuple[str, int], _Known] = {}
        if decision is not None:
            self._known[decision.query, decision.batch] = _Known(cluster, decision)
        self._committed: dict[str, float] = {}
        """When an answer was to commit; what became of it is seen a little later."""

    def answer(self, message: ReceivedMessage) -> Resolution:
        """What became of it. By one thread at a time."""
        parts = message.properties.get(WRITE_PROPERTY, "").rsplit("/", 2)
        if len(parts) != 3 or not parts[1].isdecimal():
            return Resolution.UNKNOWN
        query, batch = parts[0], int(parts[1])
        known = self._decided(query, batch)
        if known is None:
            is_left_behind = self._log.newest_batch(query) > batch
            return Resolution.ROLLBACK if is_left_behind else Resolution.UNKNOWN
        key = message.message_id
        half = known.halves.get(key)
        if half is None:
            # Of a finished one nothing is open that was to be committed.
            return Resolution.ROLLBACK
        if not known.visible.invisible([half]):
            return Resolution.ROLLBACK
        # It may be committed, and be shown only a moment later.
        self._log.catch_up()
        if not known.visible.invisible([half]):
            return Resolution.ROLLBACK
        # RocketMQ may hold two copies of one half message, and ask about both.
        now = time.monotonic()
        if now - self._committed.get(key, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return Resolution.UNKNOWN
        if len(self._committed) >= _COMMITTED_MAX:
            self._committed.clear()
        self._committed[key] = now
        return Resolution.COMMIT

    def _decided(self, query: str, batch: int) -> _Known | None:
        """What is decided stays so: only what is not is looked up for every question."""
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
    """A decision, and what of it is visible so far."""

    def __init__(self, cluster: Cluster, decision: Decision) -> None:
        self.halves = {half.transaction_id: half for half in decision.halves}
        self.visible = Visible(cluster, decision)
