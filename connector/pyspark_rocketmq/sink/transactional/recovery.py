"""Recovery of transactional writes: finish decided batches, answer brokers' checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.parse import write_options
from pyspark_rocketmq.options.values import WriteOptions
from pyspark_rocketmq.sink.encoding.plan import TransactionPlan
from pyspark_rocketmq.sink.transactional.commit import Commits, DecisionChecks
from pyspark_rocketmq.sink.transactional.decision_log import DecisionLog
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.transaction_checks import CheckService


def finish_transactions(options: Mapping[str, str]) -> int:
    """Commit all batches that are decided and not finished, of any query. Returns their number.

    Use it for writes that do not run again: a batch job whose driver died, an abandoned query. Pass
    the options of the write. Stop all queries that write with this decision topic before.

    Raises UnfinishedTransactionError for the first batch that cannot be finished, and
    DecisionsAwayError after the others if a broker that may know more is unavailable.

    Args:
        options: The options of the write.
    """
    parsed = _parsed(options)
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        producer = Producer(cluster, parsed.producer_group)
        log = DecisionLog(cluster, parsed.decision_topic, producer)
        unfinished = log.unfinished()
        # Unknown here whether rows have message groups: keeping the order is always right.
        plan = TransactionPlan(parsed.decision_topic, in_order=True)
        commits = Commits(cluster, parsed.producer_group, plan)
        for decision in unfinished:
            commits.finish(decision)
        log.check_all_there()
    return len(unfinished)


@contextmanager
def answer_checks(options: Mapping[str, str], topics: Iterable[str]) -> Iterator[None]:
    """Answer brokers that check the sink's half messages, while the context is open.

    Brokers check when `transactionTimeoutMs` is over. The answers come from the decisions: half
    messages of a dead task are rolled back instead of ending in TRANS_CHECK_MAX_TIME_TOPIC. No
    write needs it.

    Args:
        options: The options of the write.
        topics: The topics that it writes to.
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
