"""What a driver may do about transactional writes beside writing: finish them, answer for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.parse import write_options
from pyspark_rocketmq.options.values import WriteOptions
from pyspark_rocketmq.sink.encoding.layout import TransactionPlan
from pyspark_rocketmq.sink.transactional.commit import Commits, DecisionChecks
from pyspark_rocketmq.sink.transactional.decision_log import DecisionLog
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.transaction_checks import CheckService


def finish_transactions(options: Mapping[str, str]) -> int:
    """Commit what is decided and was left unfinished, by whichever query; how many batches.

    For writes that do not run again by themselves: a batch job whose driver died, a query that is
    given up. Give the options of the write. Queries that are at work must not be running.

    Raises UnfinishedTransactionError for the first batch that cannot be finished, and
    DecisionsAwayError, when the others are, for a broker that may know of more and is not there.
    """
    parsed = _parsed(options)
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        producer = Producer(cluster, parsed.producer_group)
        log = DecisionLog(cluster, parsed.decision_topic, producer)
        unfinished = log.unfinished()
        # Whether their rows have groups is not known here: order is always right.
        plan = TransactionPlan(parsed.decision_topic, in_order=True)
        commits = Commits(cluster, parsed.producer_group, plan)
        for decision in unfinished:
            commits.finish(decision)
        log.check_all_there()
    return len(unfinished)


@contextmanager
def answer_checks(options: Mapping[str, str], topics: Iterable[str]) -> Iterator[None]:
    """While this is open, brokers that ask about the sink's half messages are answered.

    They ask when `transactionTimeoutMs` is over. Answered from the decisions, what a task left that
    died is rolled back, instead of ending in TRANS_CHECK_MAX_TIME_TOPIC. No write needs it.
    """
    parsed = _parsed(options)
    settings = connection_settings(parsed.connection)
    with open_cluster(settings) as cluster:
        checks = DecisionChecks(cluster, parsed.decision_topic)
        with CheckService(settings, parsed.producer_group, topics, checks.answer):
            yield


def _parsed(options: Mapping[str, str]) -> WriteOptions:
    parsed = write_options(dict(options))
    if parsed.delivery != "transactional":
        raise OptionError("delivery", "must be transactional: other writes have no transactions")
    return parsed
