"""What decisions tell brokers that ask about halves, and what they have given up asking about."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from pyspark_rocketmq.errors import UnfinishedTransactionError
from pyspark_rocketmq.sink.encoding.plan import TransactionPlan
from pyspark_rocketmq.sink.transactional.commit import Commits, DecisionChecks, roll_back
from pyspark_rocketmq.sink.transactional.decision_log import DecisionLog, unpack_half_messages
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.producer.half_messages import HalfMessage, end_many
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.transactions import Resolution
from support import transactional_writes as writes
from support.transactional_writes import (
    AT_THE_ENDS,
    GROUP,
    ROWS,
    TASKS,
    Query,
    ReadsWithCount,
    counts,
    expected,
)
from support.visible_messages import visible

name_server, connection, topic = writes.name_server, writes.connection, writes.topic


def test_a_query_that_comes_too_late_answers_the_brokers_questions(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q", immunity_seconds=1)
    query.run_killed(AT_THE_ENDS, "within")
    time.sleep(1.5)
    query.run_whole()
    assert counts(connection, topic) == expected("")


def test_checks_are_answered_from_the_decision(connection: ConnectionSettings, topic: str) -> None:
    query = Query(connection, topic, "q", batch=1)
    with open_cluster(connection) as cluster:
        orphan, _ = (query.write(cluster, task) for task in range(TASKS))
        written = [query.write(cluster, task) for task in range(TASKS)]
        checks = DecisionChecks(cluster, query.plan.decision_topic)
        lost = unpack_half_messages(orphan.half_messages, GROUP)[0]
        kept = unpack_half_messages(written[0].half_messages, GROUP)[0]
        assert checks.answer(asked(lost, "q/1/0")) is Resolution.UNKNOWN
        commits = Commits(cluster, GROUP, query.plan)
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster, GROUP))
        log.open()
        half_messages = tuple(
            half for one in written for half in unpack_half_messages(one.half_messages, GROUP)
        )
        starts = {half.queue: 0 for half in half_messages}
        decision = commits.decision_of("q", 1, half_messages)
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


def test_half_messages_that_the_broker_gave_up_are_reported(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    plan = TransactionPlan(query.plan.decision_topic, checked_seconds=0.1)
    with open_cluster(connection) as cluster:
        written = [query.write(cluster, task) for task in range(TASKS)]
        half_messages = [
            half for one in written for half in unpack_half_messages(one.half_messages, GROUP)
        ]
        roll_back(cluster, half_messages[1:])
        message = rf"^\[ROCKETMQ_SINK\.UNFINISHED\] {ROWS - 1} rows of batch 0 of q"
        with pytest.raises(UnfinishedTransactionError, match=message):
            Commits(cluster, GROUP, plan).commit_written(written)


def test_what_is_given_up_holds_up_nothing_behind_it(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    plan = TransactionPlan(query.plan.decision_topic, in_order=True, checked_seconds=0.1)
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        written = [query.write(cluster, task) for task in range(TASKS)]
        half_messages = [
            half for one in written for half in unpack_half_messages(one.half_messages, GROUP)
        ]
        roll_back(cluster, half_messages[1:3])
        with pytest.raises(UnfinishedTransactionError, match=r"UNFINISHED\] 2 rows of batch 0"):
            Commits(cluster, GROUP, plan).commit_written(written)
    assert [message.body for message in visible(connection, topic)] == [b"0", b"1", b"3", b"5"]


def asked(half: HalfMessage, row_id: str) -> ReceivedMessage:
    text = f"PYSPARK_WRITE\x01{row_id}\x02UNIQ_KEY\x01{half.transaction_id}\x02".encode()
    host = bytes(4), 0
    return ReceivedMessage("t", "b", 0, 0, b"", text, 0, 0, 0, 0, host, 0, host, 0, 0)


def test_questions_about_a_decision_read_each_message_once(
    connection: ConnectionSettings, topic: str
) -> None:
    query = Query(connection, topic, "q")
    query.run_killed(AT_THE_ENDS, "within")
    with open_cluster(connection) as cluster:
        log = DecisionLog(cluster, query.plan.decision_topic, Producer(cluster))
        (decision,) = log.unfinished()
        reads = ReadsWithCount(cluster)
        checks = DecisionChecks(cluster, query.plan.decision_topic)
        checks.answer(asked(decision.half_messages[0], "q/0/0"))
        pulls = reads.pulls
        answers = Counter[Resolution]()
        for half in (*decision.half_messages, *decision.half_messages):
            answer = checks.answer(asked(half, "q/0/0"))
            answers[answer] += 1
            if answer is Resolution.COMMIT:
                assert list(end_many(cluster, [(half, answer)])) == [(half, None)]
        assert reads.pulls == pulls, "the decision is known"
        assert reads.offsets == ROWS
    # All are visible now; before, those that were ended and one that was asked about first.
    assert answers[Resolution.ROLLBACK] >= ROWS
    assert counts(connection, topic) == expected("")
