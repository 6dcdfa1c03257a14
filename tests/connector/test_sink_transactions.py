"""Transactional writes that are killed at every point between write and commit, and run again."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.errors import OptionError, UnfinishedTransactionError, WriteIdError
from pyspark_rocketmq.options import parse_options, require_sink
from pyspark_rocketmq.sink_decisions import Decision, DecisionLog, pack_halves, unpack_halves
from pyspark_rocketmq.sink_requests import SinkLayout, SinkRequests
from pyspark_rocketmq.sink_schema import SinkColumns
from pyspark_rocketmq.sink_stamps import WriteId
from pyspark_rocketmq.sink_transactions import (
    Commits,
    DecisionChecks,
    HalvesWritten,
    TransactionPlan,
    roll_back,
    write_halves,
)
from pyspark_rocketmq.sink_visible import Visible
from rocketmq_broker_sim.broker import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.groups.messages import ReceivedMessage
from rocketmq_client.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transactions import Half, end_many
from rocketmq_client.transport import RangeChunk, ReadSpec
from rocketmq_wire.errors import ConnectionLostError, RocketMQError
from rocketmq_wire.model import Message, OffsetRange, QueueId, TopicConfig
from rocketmq_wire.transactions import EndTransaction, Resolution
from support.visible_messages import visible

GROUP = "sink"
ROWS = 6
TASKS = 2
IMMUNITY_SECONDS = 3_600


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    checks = {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 500}
    with Broker(config_from({"flush": "memory", "grpc": False, **checks})) as broker:
        yield broker.name_server


@pytest.fixture
def connection(name_server: str) -> ConnectionSettings:
    return ConnectionSettings(name_servers=(name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(name, 3, 3))
    return name


class Killed(BaseException):
    """The process is gone."""


AT_THE_ENDS = -1
"""When the first ends are sent, which is behind the decision."""


class MortalTransport:
    """Dies at its nth request: before it, in the middle of several, or behind it."""

    def __init__(self, transport: Any, kill_at: int, how: str) -> None:
        self._transport, self._left, self._how = transport, kill_at, how
        self.is_dead = False

    def call(self, request: Any, **how: Any) -> Any:
        self._before()
        return self._after(self._transport.call(request, **how))

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        return self._many(self._transport.call_many, requests, how)

    def submit_many(self, requests: Sequence[Any], **how: Any) -> Any:
        return self._many(self._transport.submit_many, requests, how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _many(self, ask: Callable[..., Any], requests: Sequence[Any], how: dict[str, Any]) -> Any:
        if self._left < 0 and requests and isinstance(requests[0][1], EndTransaction):
            self._left = 1
        self._before()
        if self._left == 0 and self._how == "within":
            ask(requests[: len(requests) // 2], **how)
            self._die()
        return self._after(ask(requests, **how))

    def _before(self) -> None:
        if self.is_dead:
            raise Killed
        if self._left > 0:
            self._left -= 1
            if self._left == 0 and self._how == "before":
                self._die()

    def _after(self, result: Any) -> Any:
        if self._left == 0:
            self._die()
        return result

    def _die(self) -> None:
        self.is_dead = True
        raise Killed


@dataclass
class Query:
    """One batch of a query, run as Spark runs it: tasks, then commit or abort."""

    connection: ConnectionSettings
    topic: str
    query: str
    groups: bool = False
    batch: int = 0
    prefix: str = ""
    immunity_seconds: int = IMMUNITY_SECONDS

    @property
    def plan(self) -> TransactionPlan:
        name = f"decisions-{self.topic}"
        return TransactionPlan(name, self.groups, checked_seconds=60.0, settle_seconds=0.5)

    def rows(self, task: int) -> pa.RecordBatch:
        numbers = range(task, ROWS, TASKS)
        groups = [f"g{n % 3}" if self.groups else None for n in numbers]
        columns = {
            "body": pa.array([f"{self.prefix}{n}".encode() for n in numbers]),
            "messageGroup": pa.array(groups, pa.string()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def write(self, cluster: Cluster, task: int) -> HalvesWritten:
        producer = Producer(cluster, GROUP, in_flight_max=2, in_flight_per_queue_max=2)
        columns = SinkColumns({"body": 0, "messageGroup": 1})
        layout = SinkLayout(
            columns, self.topic, 10_000, False, immunity_seconds=self.immunity_seconds
        )
        write_id = WriteId(self.query, str(self.batch), task)
        requests = SinkRequests(layout, producer, write_id).of_batch(self.rows(task))
        return write_halves(producer, self.plan, write_id, requests, may_be_replayed=True)

    def run(self, cluster: Cluster) -> None:
        written = [self.write(cluster, task) for task in range(TASKS)]
        Commits(cluster, GROUP, self.plan).commit_written(written)

    def run_whole(self) -> None:
        with open_cluster(self.connection) as cluster:
            self.run(cluster)

    def run_killed(self, kill_at: int, how: str) -> bool:
        """True if it died before it was done."""
        with open_cluster(self.connection) as cluster:
            mortal = MortalTransport(cluster.transport, kill_at, how)
            cluster.transport = mortal  # type: ignore[assignment]
            try:
                self.run(cluster)
            except Killed:
                return True
            return False


def counts(connection: ConnectionSettings, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in visible(connection, topic))


def expected(*prefixes: str) -> Counter[bytes]:
    return Counter(f"{prefix}{n}".encode() for prefix in prefixes for n in range(ROWS))


def test_a_batch_is_visible_when_it_is_committed_and_not_before(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        assert [one.rows for one in written] == [ROWS // TASKS] * TASKS
        assert counts(connection, topic) == Counter()
        Commits(cluster, GROUP, query.plan).commit_written(written)
    assert counts(connection, topic) == expected("")


@pytest.mark.parametrize("how", ["before", "within", "after"])
def test_killed_anywhere_every_row_is_visible_exactly_once_after_the_restart(
    connection: ConnectionSettings, topic: str, how: str
) -> None:
    prefixes: list[str] = []
    for kill_at in itertools.count(1):
        prefixes.append(f"{kill_at}-")
        query = Query(connection, topic, f"q{kill_at}", prefix=prefixes[-1])
        died = query.run_killed(kill_at, how)
        if died:
            query.run_whole()
        # And once more: Spark had not written down that it was done.
        query.run_whole()
        if not died:
            break
    assert len(prefixes) > 15
    assert counts(connection, topic) == expected(*prefixes)


def test_a_restart_that_dies_as_well_changes_nothing(
    connection: ConnectionSettings, topic: str
) -> None:
    whole = Query(connection, topic, "count")
    whole.run_whole()
    for kill_at in range(1, 8):
        query = Query(connection, topic, f"q{kill_at}", prefix=f"{kill_at}-")
        # After the decision, in the middle of the ends; then at other points of the replay.
        query.run_killed(AT_THE_ENDS, "within")
        query.run_killed(kill_at, "within")
        query.run_killed(kill_at, "before")
        query.run_whole()
    assert counts(connection, topic) == expected("", *(f"{n}-" for n in range(1, 8)))


def test_a_query_that_comes_too_late_answers_the_brokers_questions(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q", immunity_seconds=1)
    query.run_killed(AT_THE_ENDS, "within")
    time.sleep(1.5)
    query.run_whole()
    assert counts(connection, topic) == expected("")


class DeafTransport:
    """Loses the answers to some ends; the broker has done half of what they asked, or nothing."""

    def __init__(self, transport: Any, count: int, *, does_half: bool = True) -> None:
        self._transport, self.left, self._does_half = transport, count, does_half

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        if not self.left or not isinstance(requests[0][1], EndTransaction):
            return self._transport.call_many(requests, **how)
        self.left -= 1
        if self._does_half:
            self._transport.call_many(requests[: (len(requests) + 1) // 2], **how)
        return [ConnectionLostError("broker-a", "the answer was lost")] * len(requests)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_ends_whose_answers_are_lost_are_not_repeated_blindly(
    connection: ConnectionSettings, topic: str
) -> None:
    with open_cluster(connection) as cluster:
        deaf = DeafTransport(cluster.transport, 3)
        cluster.transport = deaf  # type: ignore[assignment]
        Query(connection, topic, "q").run(cluster)
        assert deaf.left == 0
    assert counts(connection, topic) == expected("")


def test_rows_of_a_group_keep_their_order(connection: ConnectionSettings, topic: str) -> None:
    query = Query(connection, topic, "q", groups=True)
    query.run_whole()
    rows = sorted(visible(connection, topic), key=lambda one: (one.queue_index, one.queue_offset))
    seen: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        group = row.properties["__SHARDINGKEY"]
        seen.setdefault((group, int(row.body) % TASKS), []).append(int(row.body))
    assert len({(row.properties["__SHARDINGKEY"], row.queue_index) for row in rows}) == 3
    assert all(numbers == sorted(numbers) for numbers in seen.values())


@pytest.mark.parametrize("does_half", [True, False])
def test_rows_of_a_group_keep_their_order_when_answers_are_lost(
    connection: ConnectionSettings, topic: str, does_half: bool
) -> None:
    query = Query(connection, topic, "q", groups=True)
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        deaf = DeafTransport(cluster.transport, 2, does_half=does_half)
        cluster.transport = deaf  # type: ignore[assignment]
        query.run(cluster)
        assert deaf.left == 0
    assert [message.body for message in visible(connection, topic)] == [
        f"{number}".encode() for task in range(TASKS) for number in range(task, ROWS, TASKS)
    ]


def test_an_abort_rolls_back_what_is_not_decided_and_nothing_else(
    connection: ConnectionSettings, topic: str
) -> None:
    query, other = Query(connection, topic, "q"), Query(connection, topic, "r", prefix="r")
    with open_cluster(connection) as cluster:
        commits = Commits(cluster, GROUP, query.plan)
        written = [query.write(cluster, task) for task in range(TASKS)]
        commits.abort_written([*written, None])
        decided = [other.write(cluster, task) for task in range(TASKS)]
        commits.commit_written(decided)
        commits.abort_written(decided)
    assert counts(connection, topic) == expected("r")


def test_the_next_batches_are_found_beside_other_queries(
    connection: ConnectionSettings, topic: str
) -> None:
    for batch in range(3):
        for name in ("q", "r"):
            query = Query(connection, topic, name, batch=batch, prefix=f"{name}{batch}-")
            query.run_whole()
            query.run_whole()
    with open_cluster(connection) as cluster:
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster))
        assert log.newest_batch("q") == 2
        assert log.newest_batch("nobody") == -1
        assert log.find("r", 3) is None
        found = log.find("q", 1)
        assert found is not None
        assert found.is_finished
        assert log.unfinished() == []
    prefixes = [f"{name}{batch}-" for batch in range(3) for name in ("q", "r")]
    assert counts(connection, topic) == expected(*prefixes)


def test_what_is_decided_can_be_finished_without_the_query(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        commits = Commits(cluster, GROUP, query.plan)
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster))
        (decision,) = log.unfinished()
        assert (decision.query, decision.batch, len(decision.halves)) == ("q", 0, ROWS)
        commits.finish(decision)
        log.catch_up()
        assert log.unfinished() == []
    assert counts(connection, topic) == expected("")


def test_a_named_write_is_told_from_another_of_its_name(
    connection: ConnectionSettings, topic: str
) -> None:
    """What is not its own is neither taken for written nor lost without a word."""
    query = Query(connection, topic, "w", batch=5)
    plan = replace(query.plan, is_named=True)
    # It died behind its decision, and the one that comes instead has other rows.
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        written[0].rows = ROWS // TASKS + 1
        written[1].rows = ROWS // TASKS
        for _ in range(2):
            # The first time the decision is unfinished, the second time finished.
            with pytest.raises(WriteIdError, match=rf"with {ROWS} rows, and this one has 7"):
                Commits(cluster, GROUP, plan).commit_written(written)
        written[0].rows -= 1
        Commits(cluster, GROUP, plan).commit_written(written)
        older = Query(connection, topic, "w", batch=4)
        late = [older.write(cluster, task) for task in range(TASKS)]
        with pytest.raises(
            WriteIdError, match=r"ROCKETMQ_SINK\.WRITE_ID\] write 4 of w comes behind 5"
        ):
            Commits(cluster, GROUP, plan).commit_written(late)
    assert counts(connection, topic) == expected("")


def test_checks_are_answered_from_the_decision(connection: ConnectionSettings, topic: str) -> None:
    query = Query(connection, topic, "q", batch=1)
    with open_cluster(connection) as cluster:
        orphan, _ = (query.write(cluster, task) for task in range(TASKS))
        written = [query.write(cluster, task) for task in range(TASKS)]
        checks = DecisionChecks(cluster, query.plan.decision_topic)
        lost = unpack_halves(orphan.halves, GROUP)[0]
        kept = unpack_halves(written[0].halves, GROUP)[0]
        assert checks.answer(asked(lost, "q/1/0")) is Resolution.UNKNOWN
        commits = Commits(cluster, GROUP, query.plan)
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster, GROUP))
        log.open()
        halves = tuple(half for one in written for half in unpack_halves(one.halves, GROUP))
        starts = {half.queue: 0 for half in halves}
        decision = commits.decision_of("q", 1, halves)
        assert decision.starts == starts
        log.store(decision)
        log.catch_up()
        assert checks.answer(asked(lost, "q/1/0")) is Resolution.ROLLBACK
        assert checks.answer(asked(kept, "q/1/0")) is Resolution.COMMIT
        assert checks.answer(asked(kept, "q/1/0")) is Resolution.UNKNOWN, (
            "the first may be on its way"
        )
        commits.finish(decision)
        log.catch_up()
        assert checks.answer(asked(kept, "q/1/0")) is Resolution.ROLLBACK
        assert checks.answer(asked(lost, "q/0/0")) is Resolution.ROLLBACK, "left behind"
        assert checks.answer(asked(lost, "q/2/0")) is Resolution.UNKNOWN
        assert checks.answer(asked(lost, "nonsense")) is Resolution.UNKNOWN


def test_what_the_broker_has_given_up_is_told(connection: ConnectionSettings, topic: str) -> None:
    query = Query(connection, topic, "q")
    plan = TransactionPlan(query.plan.decision_topic, checked_seconds=0.1)
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        halves = [half for one in written for half in unpack_halves(one.halves, GROUP)]
        roll_back(cluster, halves[1:])
        told = rf"^\[ROCKETMQ_SINK\.UNFINISHED\] {ROWS - 1} rows of batch 0 of q"
        with pytest.raises(UnfinishedTransactionError, match=told):
            Commits(cluster, GROUP, plan).commit_written(written)


def test_what_is_given_up_holds_up_nothing_behind_it(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    plan = TransactionPlan(query.plan.decision_topic, in_order=True, checked_seconds=0.1)
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        written = [query.write(cluster, task) for task in range(TASKS)]
        halves = [half for one in written for half in unpack_halves(one.halves, GROUP)]
        roll_back(cluster, halves[1:3])
        with pytest.raises(UnfinishedTransactionError, match=r"UNFINISHED\] 2 rows of batch 0"):
            Commits(cluster, GROUP, plan).commit_written(written)
    assert [message.body for message in visible(connection, topic)] == [b"0", b"1", b"3", b"5"]


def test_a_decision_of_another_version_is_refused(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    query.run_whole()
    name = query.plan.decision_topic
    with open_cluster(connection) as cluster, Producer(cluster) as producer:
        newer = Message(name, b'{"version": 99, "query": "q", "batch": 1}', "q")
        queue = next(queue for queue in producer.queues(name) if queue.index == 0)
        producer.send(newer, queue)
        DecisionLog(cluster, name, producer).catch_up()
        with pytest.raises(RocketMQError, match=r"^\[ROCKETMQ_SINK\.DECISION\] .*version 99"):
            DecisionLog(cluster, name, producer).find("q", 0)


def asked(half: Half, stamp: str) -> ReceivedMessage:
    text = f"PYSPARK_WRITE\x01{stamp}\x02UNIQ_KEY\x01{half.transaction_id}\x02".encode()
    host = bytes(4), 0
    return ReceivedMessage("t", "b", 0, 0, b"", text, 0, 0, 0, 0, host, 0, host, 0, 0)


class CountedReads:
    """How many offsets a cluster's downloads covered, and how many pulls it made beside them."""

    def __init__(self, cluster: Cluster) -> None:
        self._read_ranges, self._pull = cluster.read_ranges, cluster.pull
        self.offsets = self.pulls = 0
        cluster.read_ranges = self.read_ranges  # type: ignore[method-assign]
        cluster.pull = self.pull  # type: ignore[method-assign]

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        self.offsets += sum(wanted.end - wanted.start for wanted in ranges)
        return self._read_ranges(ranges, spec)

    def pull(self, *what: Any, **how: Any) -> Any:
        self.pulls += 1
        return self._pull(*what, **how)


def test_questions_about_a_decision_read_each_message_once(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster))
        (decision,) = log.unfinished()
        reads = CountedReads(cluster)
        checks = DecisionChecks(cluster, query.plan.decision_topic)
        checks.answer(asked(decision.halves[0], "q/0/0"))
        pulls = reads.pulls
        answers = Counter[Resolution]()
        for half in (*decision.halves, *decision.halves):
            answer = checks.answer(asked(half, "q/0/0"))
            answers[answer] += 1
            if answer is Resolution.COMMIT:
                assert list(end_many(cluster, [(half, answer)])) == [(half, None)]
        assert reads.pulls == pulls, "the decision is known"
        assert reads.offsets == ROWS
    # All are visible now; before, those that were ended and one that was asked about first.
    assert answers[Resolution.ROLLBACK] >= ROWS
    assert counts(connection, topic) == expected("")


def test_a_long_batch_is_looked_at_again_from_where_the_last_look_ended(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q", groups=True)
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        deaf = DeafTransport(cluster.transport, 3)
        cluster.transport = deaf  # type: ignore[assignment]
        reads = CountedReads(cluster)
        query.run(cluster)
        assert reads.offsets == 3, "what was ended without an answer, and no more"


def test_keys_are_looked_for_behind_the_starts_only(
    connection: ConnectionSettings, topic: str
) -> None:
    Query(connection, topic, "q").run_whole()
    messages = visible(connection, topic)
    queues = [QueueId(topic, messages[0].broker, index) for index in range(3)]
    halves = [
        Half(GROUP, QueueId(topic, m.broker, m.queue_index), 0, 0, m.message_id) for m in messages
    ]
    unknown = Half(GROUP, queues[0], 0, 0, "unknown")
    with open_cluster(connection) as cluster:

        def unseen(start: int) -> list[Half]:
            starts = dict.fromkeys(queues, start)
            decision = Decision("q", 0, GROUP, (*halves, unknown), starts)
            return Visible(cluster, decision).invisible(decision.halves)

        assert unseen(0) == [unknown]
        assert unseen(10_000) == [*halves, unknown]


def test_halves_survive_their_packing() -> None:
    queue = QueueId("t", "b", 3)
    halves = [Half("g", queue, n, 2**40 + n, f"{n:032X}") for n in range(1_000)]
    packed = pack_halves(halves)
    assert unpack_halves(packed, "g") == halves
    assert unpack_halves(pack_halves([]), "g") == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endpoints": "h:1"}, "needs 'nameServer'"),
        ({"nameServer": "h:1", "delivery": "at-least-once", "decisionTopic": "d"}, "no meaning"),
        ({"nameServer": "h:1", "sendBack": "true", "group": "g"}, "no meaning with sendBack"),
        (
            {"nameServer": "h:1", "sendBack": "true", "group": "g", "writeId": "w"},
            "'writeId' has no meaning with sendBack",
        ),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, str], reason: str) -> None:
    given = {"delivery": "transactional", **options}
    with pytest.raises(OptionError, match=reason):
        require_sink(parse_options(given))
