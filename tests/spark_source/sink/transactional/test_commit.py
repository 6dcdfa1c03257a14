"""Transactional writes that are killed at every point between write and commit, and run again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from pyspark_rocketmq.errors import DecisionsAwayError, OptionError, ReplayError, WriteIdError
from pyspark_rocketmq.options.parse import write_options
from pyspark_rocketmq.sink.transactional.commit import Commits
from pyspark_rocketmq.sink.transactional.decision_log import (
    Decision,
    DecisionLog,
    pack_half_messages,
    unpack_half_messages,
)
from pyspark_rocketmq.sink.transactional.fencing import wait_for_others
from pyspark_rocketmq.sink.transactional.visibility import Visibility
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, RocketMQError
from rocketmq_wire.model import Bounds, Message, QueueId, TopicConfig
from support import transactional_writes as writes
from support.transactional_writes import (
    AT_THE_ENDS,
    GROUP,
    ROWS,
    TASKS,
    DeafTransport,
    Killed,
    MortalTransport,
    PausedTransport,
    Query,
    ReadsWithCount,
    RoutelessTransport,
    counts,
    expected,
)
from support.visible_messages import visible

name_server, connection, topic = writes.name_server, writes.connection, writes.topic


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
        assert (decision.query, decision.batch, len(decision.half_messages)) == ("q", 0, ROWS)
        commits.finish(decision)
        log.catch_up()
        assert log.unfinished() == []
    assert counts(connection, topic) == expected("")


def test_a_long_commit_stores_a_token_each_second(
    connection: ConnectionSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes next waits only for what is left of the last second's requests."""
    monkeypatch.setattr("pyspark_rocketmq.sink.transactional.fencing._TOKEN_SECONDS", 0.0)
    query = Query(connection, topic, "q", groups=True)
    query.run_whole()
    with open_cluster(connection) as cluster:
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster))
        heads = [q for q in cluster.queues(query.plan.decision_topic) if q.index == 0]
        (bounds,) = cluster.bounds(heads).values()
        assert isinstance(bounds, Bounds)
        # Rows of a group are ended one by one, a turn before each; then it is finished.
        assert bounds.end >= 1 + ROWS // 3 + 1
        found = log.find("q", 0)
        assert found is not None
        assert found.is_finished
    assert counts(connection, topic) == expected("")


def test_who_goes_on_with_a_decision_leaves_its_own_turn_for_the_next(
    connection: ConnectionSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Mapping[str, int], Mapping[str, int]]] = []

    def recorded(
        brokers: Iterable[str], tokens: Mapping[str, int], now: Mapping[str, int], limit: float
    ) -> float:
        seen.append((tokens, now))
        return wait_for_others(brokers, tokens, now, limit)

    monkeypatch.setattr("pyspark_rocketmq.sink.transactional.commit.wait_for_others", recorded)
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "before")
    query.run_killed(AT_THE_ENDS, "before")
    query.run_whole()
    (decided, first), (replayed, second) = seen
    (broker,) = decided
    assert decided[broker] <= first[broker] <= second[broker]
    assert replayed == first, "its turn began before it waited"
    assert counts(connection, topic) == expected("")


def test_a_named_write_is_distinguished_from_another_of_its_name(
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
        delayed = [older.write(cluster, task) for task in range(TASKS)]
        with pytest.raises(WriteIdError, match=r"ROCKETMQ_SINK\.WRITE_ID\] write 4 of w follows 5"):
            Commits(cluster, GROUP, plan).commit_written(delayed)
    assert counts(connection, topic) == expected("")


def test_a_batch_of_a_stream_that_has_other_rows_is_not_lost_without_a_word(
    connection: ConnectionSettings, topic: str
) -> None:
    """As with a checkpoint that was copied, or set back."""
    Query(connection, topic, "q", batch=5).run_whole()
    again, older = Query(connection, topic, "q", batch=5), Query(connection, topic, "q", batch=4)
    with open_cluster(connection) as cluster:
        commits = Commits(cluster, GROUP, again.plan)
        written = [again.write(cluster, task) for task in range(TASKS)]
        written[0].rows += 1
        with pytest.raises(
            ReplayError,
            match=r"ROCKETMQ_SINK\.REPLAY\] batch 5 of q was decided with 6 rows, and .* has 7",
        ):
            commits.commit_written(written)
        written = [older.write(cluster, task) for task in range(TASKS)]
        with pytest.raises(ReplayError, match=r"batch 4 of q follows 5, which is decided"):
            commits.commit_written(written)
    assert counts(connection, topic) == expected("")


def test_a_driver_that_was_taken_for_dead_before_its_decision_repeats_nothing(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        query.run_whole()
        Commits(cluster, GROUP, query.plan).commit_written(written)
        Commits(cluster, GROUP, query.plan).commit_written(written)
    assert counts(connection, topic) == expected("")


@pytest.mark.parametrize("replays", [False, True])
def test_a_driver_that_was_taken_for_dead_within_its_commit_stops(
    connection: ConnectionSettings, topic: str, monkeypatch: pytest.MonkeyPatch, replays: bool
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.sink.transactional.fencing._TOKEN_SECONDS", 0.0)
    query = Query(connection, topic, "q", groups=True)
    if replays:
        query.run_killed(AT_THE_ENDS, "before")
    with open_cluster(connection) as cluster:
        commits = Commits(cluster, GROUP, query.plan)
        found = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster)).find("q", 0)
        written = [] if replays else [query.write(cluster, task) for task in range(TASKS)]
        # The driver commits some rows, then it is suspended while another one resumes.
        paused = PausedTransport(cluster.transport, query.run_whole)
        cluster.transport = paused  # type: ignore[assignment]
        with pytest.raises(ReplayError, match=r"batch 0 of q is being finished by another driver"):
            commits.commit_written(written) if found is None else commits.finish(found)
        assert paused.was_paused
        commits.abort_written(written)
    assert counts(connection, topic) == expected("")


def test_the_first_task_of_a_decided_batch_finishes_it(
    connection: ConnectionSettings, topic: str
) -> None:
    """The driver's commit comes seconds later, when Spark has just been started again."""
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        second = query.write(cluster, 1)
        assert counts(connection, topic) != expected("")
        first = query.write(cluster, 0)
        assert first.is_decided
        assert counts(connection, topic) == expected("")
        Commits(cluster, GROUP, query.plan).commit_written([first, second])
    assert counts(connection, topic) == expected("")


def test_a_task_that_cannot_finish_a_decided_batch_leaves_it_to_the_driver(
    connection: ConnectionSettings,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ConnectError("broker-a", "it restarts")

    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(Commits, "finish", fail)
            written = [query.write(cluster, task) for task in range(TASKS)]
        assert counts(connection, topic) != expected("")
        assert caplog.messages[0].startswith("the task cannot finish batch 0, the driver will: ")
        Commits(cluster, GROUP, query.plan).commit_written(written)
    assert counts(connection, topic) == expected("")


@pytest.mark.parametrize("how", ["before", "within"])
def test_while_nobody_knows_where_decisions_are_nothing_is_taken_for_undecided(
    connection: ConnectionSettings, topic: str, how: str
) -> None:
    """A name server, or all of the cluster, has only just been started again."""
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, how)
    before = counts(connection, topic)
    hasty = replace(connection, outage_ms=1)
    with open_cluster(hasty) as cluster:
        whole = cluster.transport
        cluster.transport = RoutelessTransport(whole)  # type: ignore[assignment]
        with pytest.raises(DecisionsAwayError):
            query.write(cluster, 0)
        cluster.transport = RoutelessTransport(whole, has_brokers=False)  # type: ignore[assignment]
        with pytest.raises(DecisionsAwayError):
            query.write(cluster, 0)
        assert counts(connection, topic) == before
    query.run_whole()
    assert counts(connection, topic) == expected("")


def test_an_abort_that_cannot_look_rolls_nothing_back(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        whole = cluster.transport
        mortal = MortalTransport(whole, AT_THE_ENDS, "before")
        cluster.transport = mortal  # type: ignore[assignment]
        with pytest.raises(Killed):
            Commits(cluster, GROUP, query.plan).commit_written(written)
        cluster.transport = RoutelessTransport(whole)  # type: ignore[assignment]
        Commits(cluster, GROUP, query.plan).abort_written(written)
    query.run_whole()
    assert counts(connection, topic) == expected("")


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


def test_a_long_batch_is_looked_at_again_from_where_the_last_look_ended(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q", groups=True)
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        deaf = DeafTransport(cluster.transport, 3)
        cluster.transport = deaf  # type: ignore[assignment]
        reads = ReadsWithCount(cluster)
        query.run(cluster)
        assert reads.offsets == 3, "what was ended without an answer, and no more"


def test_keys_are_looked_for_behind_the_starts_only(
    connection: ConnectionSettings, topic: str
) -> None:
    Query(connection, topic, "q").run_whole()
    messages = visible(connection, topic)
    queues = [QueueId(topic, messages[0].broker, index) for index in range(3)]
    half_messages = [
        HalfMessage(GROUP, QueueId(topic, m.broker, m.queue_index), 0, 0, m.message_id)
        for m in messages
    ]
    unknown = HalfMessage(GROUP, queues[0], 0, 0, "unknown")
    with open_cluster(connection) as cluster:

        def unseen(start: int) -> list[HalfMessage]:
            starts = dict.fromkeys(queues, start)
            decision = Decision("q", 0, GROUP, (*half_messages, unknown), starts)
            return Visibility(cluster, decision).invisible(decision.half_messages)

        assert unseen(0) == [unknown]
        assert unseen(10_000) == [*half_messages, unknown]


def test_half_messages_survive_their_packing() -> None:
    queue = QueueId("t", "b", 3)
    half_messages = [HalfMessage("g", queue, n, 2**40 + n, f"{n:032X}") for n in range(1_000)]
    packed = pack_half_messages(half_messages)
    assert unpack_half_messages(packed, "g") == half_messages
    assert unpack_half_messages(pack_half_messages([]), "g") == []


@pytest.mark.parametrize("body", [b"hello", b"{}", b"[1]", b"\xff", b'{"version": 1}'])
def test_what_others_wrote_to_the_decision_topic_is_passed_over(
    connection: ConnectionSettings, topic: str, body: bytes
) -> None:
    query = Query(connection, topic, "q")
    name = query.plan.decision_topic
    with open_cluster(connection) as cluster, Producer(cluster) as producer:
        cluster.create_topic(TopicConfig(name, 2, 2))
        for batch in range(2):
            for queue in producer.queues(name):
                # One of them even under the query's tag.
                producer.send(Message(name, body, "q" if queue.index == 0 else None), queue)
                producer.send(Message(name, body), queue)
            DecisionLog(cluster, name, producer).catch_up()
            Query(connection, topic, "q", batch=batch, prefix=f"{batch}-").run(cluster)
        log = DecisionLog(cluster, name, producer)
        log.catch_up()
        assert log.newest_batch("q") == 1
        assert log.unfinished() == []
        log.check_all_there()
    assert counts(connection, topic) == expected("0-", "1-")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endpoints": "h:1"}, "needs 'nameServer'"),
        ({"nameServer": "h:1", "topic": "t", "decisionTopic": "t"}, "must be another topic"),
        ({"nameServer": "h:1", "decisionTopic": "a b"}, "letters, digits"),
        ({"nameServer": "h:1", "producerGroup": "p\x01g"}, "letters, digits"),
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
        write_options(given)
