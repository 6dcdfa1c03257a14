"""Writes with delivery=transactional: halves in the tasks, a decision, then their ends.

    task      sends each row as a half message, that nobody sees; should its batch be decided
              already, it sends nothing
    commit    stores the decision, which lists the halves, then ends each of them, and sees to it
              that all are visible
    replay    of a batch that is decided: its halves are finished, each that is not visible yet
    abort     of a batch that is not decided: what the tasks sent is rolled back

Brokers ask nobody about a half before its immunity is over; until then only the sink ends it. Later
they ask, and whoever answers answers from the decision (`DecisionChecks`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rocketmq.errors import UnfinishedTransactionError
from pyspark_rocketmq.sink_decisions import (
    Decision,
    DecisionLog,
    pack_halves,
    unpack_halves,
)
from pyspark_rocketmq.sink_stamps import WRITE_PROPERTY, WriteId
from rocketmq_arrow.decode import DecodeOptions, Decoder
from rocketmq_arrow.numpy_arrays import text_array
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.groups.messages import ReceivedMessage
from rocketmq_client.loss import LossPolicy
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.transaction_checks import CheckService
from rocketmq_client.transactions import (
    EndOutcomeUnknownError,
    Half,
    end_many,
    half_of,
)
from rocketmq_client.transport import ReadSpec
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import OffsetRange, QueueId
from rocketmq_wire.properties import UNIQUE_KEY, decode_properties
from rocketmq_wire.requests import SendMessage
from rocketmq_wire.transactions import Resolution

T = TypeVar("T")

_log = logging.getLogger("pyspark_rocketmq")

READER_GROUP: Final = "pyspark-rocketmq-sink"
HALVES_IN_FLIGHT: Final = 256
"""Half messages go one a request; who comes first does not matter before they are ended."""
_VISIBLE_SCHEMA: Final = pa.schema([pa.field("msgId", pa.string())])
_PAUSE_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 10.0
_COMMITTED_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """What a transactional write needs beside the rest of its plan."""

    decision_topic: str
    in_order: bool = False
    """Rows have groups: what one queue gets is ended one by one, so that brokers keep its order."""
    checked_seconds: float = 120.0
    """How long to wait to be asked about what we end too late: brokers ask every 30 s."""
    settle_seconds: float = 3.0
    """After an end whose answer was lost: so long a broker may still be at it."""


@dataclass
class HalvesWritten(WriterCommitMessage):
    """What a task reports: the half messages of its rows, which the broker holds."""

    rows: int
    query: str
    batch: int
    halves: bytes
    is_decided: bool = False
    """The batch was decided before: the task has sent nothing."""


# --- tasks ------------------------------------------------------------------------------------


def send_halves(producer: Producer, requests: Iterable[SendRequest]) -> list[Half]:
    """Send half messages, and wait for every answer; in the order of the requests.

    When one fails, the others are rolled back, and its error is raised.
    """
    halves: list[tuple[int, Half]] = []
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


def roll_back(cluster: Cluster, halves: Sequence[Half]) -> None:
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


def write_halves(
    producer: Producer,
    plan: TransactionPlan,
    write_id: WriteId,
    requests: Iterable[SendRequest],
    *,
    may_be_replayed: bool,
) -> HalvesWritten:
    """Send a task's rows as half messages, unless their batch is decided already."""
    query, batch = write_id.query, int(write_id.batch)
    if may_be_replayed:
        log = DecisionLog(producer.cluster, plan.decision_topic, producer)
        if patiently(producer.cluster, lambda: log.find(query, batch)) is not None:
            return HalvesWritten(0, query, batch, b"", is_decided=True)
    halves = send_halves(producer, requests)
    return HalvesWritten(len(halves), query, batch, pack_halves(halves))


# --- the driver -------------------------------------------------------------------------------


class Commits:
    """Decides about batches, and finishes what is decided. `cluster` is the caller's."""

    def __init__(self, cluster: Cluster, group: str, plan: TransactionPlan) -> None:
        self._cluster, self._group, self._plan = cluster, group, plan
        producer = Producer(cluster, group, repeats_unknown=True)
        self._log = DecisionLog(cluster, plan.decision_topic, producer)

    def commit_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what tasks have written, or finish it, where it was decided before."""
        written = [message for message in messages if isinstance(message, HalvesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            if any(one.is_decided for one in ours):
                # Nothing of what others may have sent since is in the decision.
                roll_back(self._cluster, self._halves_of(ours))
                self.replay(query, batch)
            else:
                self.commit(query, batch, self._halves_of(ours))

    def abort_written(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Roll back what tasks have written, unless it is decided."""
        written = [message for message in messages if isinstance(message, HalvesWritten)]
        for query, batch in sorted({(one.query, one.batch) for one in written}):
            ours = [one for one in written if (one.query, one.batch) == (query, batch)]
            self.abort(query, batch, self._halves_of(ours))

    def _halves_of(self, written: Sequence[HalvesWritten]) -> list[Half]:
        packed = (one.halves for one in written if one.halves)
        return [half for data in packed for half in unpack_halves(data, self._group)]

    def commit(self, query: str, batch: int, halves: Sequence[Half]) -> None:
        """Make a batch's rows visible, each once. Raises UnfinishedTransactionError."""
        if not halves:
            return
        self._patiently(self._log.open)
        decision = self._patiently(lambda: self.decision_of(query, batch, halves))
        self._log.store(decision)
        self._finish(decision, decision.halves)

    def decision_of(self, query: str, batch: int, halves: Sequence[Half]) -> Decision:
        """The decision to commit these, none of which is committed yet."""
        queues = sorted({half.queue for half in halves})
        starts = {}
        for queue, bounds in self._cluster.bounds(queues).items():
            if isinstance(bounds, RocketMQError):
                raise bounds
            starts[queue] = bounds.end
        return Decision(query, batch, self._group, tuple(halves), starts)

    def replay(self, query: str, batch: int) -> None:
        """Finish a batch that is decided."""
        decision = self._patiently(lambda: self._log.find(query, batch))
        if decision is None:
            raise UnfinishedTransactionError(query, batch, 0, "its decision is gone")
        self.finish(decision)

    def finish(self, decision: Decision) -> None:
        """Commit what of a decision is not visible yet. Raises UnfinishedTransactionError."""
        if not decision.is_finished:
            self._finish(decision, self._invisible(decision, decision.halves))

    def abort(self, query: str, batch: int, halves: Sequence[Half]) -> None:
        """Roll a batch back, unless it is decided."""
        try:
            decision = self._log.find(query, batch)
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

    def _finish(self, decision: Decision, halves: Sequence[Half]) -> None:
        left = list(halves)
        end = time.monotonic() + self._cluster.settings.outage_ms / 1_000
        while left:
            left, errors = self._end(decision, left)
            if not left:
                break
            if not any(error.retryable or _is_unknown(error) for error in errors):
                # Too late for us: brokers take it only from who they ask.
                left = self._await_checks(decision, left)
                if left:
                    raise UnfinishedTransactionError(
                        decision.query, decision.batch, len(left), str(errors[-1])
                    )
            elif time.monotonic() > end:
                raise UnfinishedTransactionError(
                    decision.query, decision.batch, len(left), str(errors[-1])
                )
        self._log.store_finished(decision)

    def _end(
        self, decision: Decision, halves: Sequence[Half]
    ) -> tuple[list[Half], list[RocketMQError]]:
        """End them; those that are not visible after all, and why."""
        failed, errors = [], []
        ends = [(half, Resolution.COMMIT) for half in halves]
        for half, error in end_many(self._cluster, ends, in_order=self._plan.in_order):
            if error is not None:
                failed.append(half)
                errors.append(error)
        if not failed:
            return [], []
        if any(_is_unknown(error) for error in errors):
            time.sleep(self._plan.settle_seconds)
        return self._invisible(decision, failed), errors

    def _invisible(self, decision: Decision, halves: Sequence[Half]) -> list[Half]:
        return self._patiently(lambda: invisible(self._cluster, decision, halves))

    def _patiently(self, work: Callable[[], T]) -> T:
        return patiently(self._cluster, work)

    def _await_checks(self, decision: Decision, halves: Sequence[Half]) -> list[Half]:
        """Answer the brokers until all is visible; what is not in the end."""
        left, topics = list(halves), {half.queue.topic for half in halves}
        settings, end = self._cluster.settings, time.monotonic() + self._plan.checked_seconds
        # Questions are answered in a thread of their own, and so by connections of their own.
        with open_cluster(settings) as cluster:
            answers = DecisionChecks(cluster, self._plan.decision_topic, decision)
            with CheckService(settings, decision.group, topics, answers.answer):
                while left and time.monotonic() < end:
                    time.sleep(_PAUSE_SECONDS)
                    left = self._invisible(decision, left)
        return left


def patiently(cluster: Cluster, work: Callable[[], T]) -> T:
    """What can be repeated, for as long as an outage may last."""
    end = time.monotonic() + cluster.settings.outage_ms / 1_000
    while True:
        try:
            return work()
        except RocketMQError as error:
            if not error.retryable or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_SECONDS)


def _is_unknown(error: RocketMQError) -> bool:
    return isinstance(error, EndOutcomeUnknownError)


def invisible(cluster: Cluster, decision: Decision, halves: Sequence[Half]) -> list[Half]:
    """Those halves of a decision that readers do not see yet."""
    queues = {half.queue for half in halves}
    starts = {queue: at for queue, at in decision.starts.items() if queue in queues}
    keys = {half.transaction_id for half in halves}
    seen = visible_keys(cluster, starts, keys)
    return [half for half in halves if half.transaction_id not in seen]


def visible_keys(cluster: Cluster, starts: dict[QueueId, int], keys: Collection[str]) -> set[str]:
    """Which of some unique keys messages have that are behind `starts`."""
    ranges = []
    for queue, bounds in cluster.bounds(starts).items():
        if isinstance(bounds, RocketMQError):
            raise bounds
        start = max(starts[queue], bounds.start)
        if start < bounds.end:
            ranges.append(OffsetRange(queue, start, bounds.end))
    decoder = Decoder(DecodeOptions(_VISIBLE_SCHEMA, check_crc=False))
    wanted = text_array(sorted(keys))
    seen: set[str] = set()
    for chunk in cluster.read_ranges(ranges, ReadSpec(READER_GROUP, loss_policy=LossPolicy.SKIP)):
        if chunk.loss is not None:
            continue
        for batch in decoder.decode(chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes):
            found = batch.column(0)
            seen.update(found.filter(pc.is_in(found, value_set=wanted)).to_pylist())
    return seen


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
        self._known: dict[tuple[str, int], Decision] = {}
        if decision is not None:
            self._known[decision.query, decision.batch] = decision
        self._committed: dict[str, float] = {}
        """When an answer was to commit; what became of it is seen a little later."""

    def answer(self, message: ReceivedMessage) -> Resolution:
        """What became of it. By one thread at a time."""
        parts = message.properties.get(WRITE_PROPERTY, "").rsplit("/", 2)
        if len(parts) != 3 or not parts[1].isdecimal():
            return Resolution.UNKNOWN
        query, batch = parts[0], int(parts[1])
        decision = self._decision(query, batch)
        if decision is None:
            is_left_behind = self._log.newest_batch(query) > batch
            return Resolution.ROLLBACK if is_left_behind else Resolution.UNKNOWN
        key = message.message_id
        half = next((one for one in decision.halves if one.transaction_id == key), None)
        if half is None:
            # Of a finished one nothing is open that was to be committed.
            return Resolution.ROLLBACK
        if not invisible(self._cluster, decision, [half]):
            return Resolution.ROLLBACK
        # RocketMQ may hold two copies of one half message, and ask about both.
        now = time.monotonic()
        if now - self._committed.get(key, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return Resolution.UNKNOWN
        if len(self._committed) >= _COMMITTED_MAX:
            self._committed.clear()
        self._committed[key] = now
        return Resolution.COMMIT

    def _decision(self, query: str, batch: int) -> Decision | None:
        found = self._known.get((query, batch)) or self._log.find(query, batch)
        if found is not None and found.is_finished:
            self._known[query, batch] = found
        return found
