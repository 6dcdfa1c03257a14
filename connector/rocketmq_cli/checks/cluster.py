"""Checks of a cluster: name servers, every broker's advertised address, a topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rocketmq_cli.checks.findings import Finding, fail, note, ok
from rocketmq_cli.usage import did_you_mean
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    NotOverGrpcError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_wire.model import MASTER_ID, is_internal_topic
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.brokers import GetBrokerSettings, SettingsReply

_TIMEOUT_MS: Final = 3_000
# A refusal is an answer, and so is the error that a gRPC endpoint has no such request.
_ANSWERS: Final = (BrokerError, NotOverGrpcError)


def check(
    settings: ConnectionSettings, topic: str | None, timeout_ms: int = _TIMEOUT_MS
) -> Iterator[Finding]:
    """Check a cluster; stop at a problem that makes later checks useless."""
    settings = replace(settings, request_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms)
    where = settings.cluster_address
    with open_cluster(settings) as cluster:
        try:
            brokers = cluster.cluster_info().brokers
        except RocketMQError as error:
            yield fail("cluster", str(error), f"is a RocketMQ cluster running at {where}?")
            return
        count = plural(len(brokers), "broker")
        yield ok("cluster", f"{where} knows {count}")
        for broker in brokers:
            if MASTER_ID not in broker.addresses:
                yield fail(
                    "broker", f"{broker.name} has no master", "start it: only its slaves are there"
                )
        reached = False
        for name, answer in cluster.ask_masters(GetBrokerSettings()).items():
            reached = reached or isinstance(answer, SettingsReply)
            address = next((b.addresses.get(MASTER_ID, "") for b in brokers if b.name == name), "")
            yield _broker(f"{name} at {address}", answer)
        if topic is not None and reached:
            yield from _topic(cluster, topic)


def _broker(what: str, answer: SettingsReply | RocketMQError) -> Finding:
    if isinstance(answer, ConnectError):
        return fail(
            "broker",
            f"{what} cannot be reached: {answer}",
            "that address is what the broker advertises (brokerIP1). Make it reachable, or give "
            "the source's option addressMap",
        )
    if isinstance(answer, RocketMQError) and not isinstance(answer, _ANSWERS):
        return fail(
            "broker",
            f"{what} does not answer as a broker does: {answer}",
            "check whether it is overloaded or another program, and read its log; that address is "
            "what the broker advertises (brokerIP1)",
        )
    if isinstance(answer, RocketMQError):
        return note("broker", f"{what} answers, but does not show its settings: {answer}")
    if answer.settings.get("enablePropertyFilter", "true") == "false":
        return note("broker", what, "SQL92 filters are off there (enablePropertyFilter=false)")
    return ok("broker", what)


def _topic(cluster: Cluster, topic: str) -> Iterator[Finding]:
    try:
        stats = cluster.topic_stats(topic)
    except TopicNotFoundError:
        names = [name for name in cluster.topics() if not is_internal_topic(name)]
        yield fail(
            "topic",
            f"there is no topic {topic}.{did_you_mean(topic, names)}",
            f"rmq topic create {topic} creates it",
        )
        return
    except RocketMQError as error:
        yield fail("topic", str(error), "see above")
        return
    count = sum(stat.end - stat.start for stat in stats.values())
    queues, messages = plural(len(stats), "queue"), plural(count, "message")
    yield ok("topic", f"{topic}: {queues}, {messages}")
    if not cluster.queues(topic):
        yield fail("topic", f"{topic} may not be read", f"rmq topic alter {topic} --permission rw")
