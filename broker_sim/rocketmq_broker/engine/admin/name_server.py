"""The rules of a name server's requests: routes, clusters, brokers that register."""

from __future__ import annotations

from typing import Any

from rocketmq_broker.engine.core.broker_table import BrokerTable
from rocketmq_broker.engine.core.outcomes import (
    DONE,
    Answer,
    Outcome,
    Peer,
    Rule,
    answer_rule,
    done_rule,
    timed_rule,
)
from rocketmq_wire.requests import brokers, registration, topics
from rocketmq_wire.requests.contract import CountReply


def name_server_rules(table: BrokerTable) -> tuple[Rule[Any], ...]:
    def register(request: registration.RegisterBroker, peer: Peer, now_ms: int) -> Outcome:
        return Answer(table.register(request, peer.key, now_ms))

    def report(request: registration.ReportBroker, now_ms: int) -> Outcome:
        table.heard(request.node, now_ms)
        return DONE

    def compare(request: registration.CompareVersion, now_ms: int) -> Outcome:
        known = table.heard(request.node, now_ms)
        return Answer(registration.VersionReply(known != request.version, known))

    return (
        Rule(
            topics.GetRoute,
            lambda asked, peer, _: Answer(topics.RouteReply(table.route(asked.topic, peer))),
        ),
        Rule(
            brokers.GetCluster,
            lambda _, peer, __: Answer(brokers.ClusterReply(table.cluster(peer))),
        ),
        Rule(topics.ListTopics, lambda _, peer, __: Answer(topics.TopicsReply(table.topics(peer)))),
        done_rule(
            topics.DeleteTopicFromNameServer, lambda request: table.forget_topic(request.topic)
        ),
        answer_rule(
            brokers.WipeWritePermission,
            lambda asked: CountReply(table.set_write_permission(asked.broker, may_write=False)),
        ),
        answer_rule(
            brokers.AddWritePermission,
            lambda asked: CountReply(table.set_write_permission(asked.broker, may_write=True)),
        ),
        Rule(registration.RegisterBroker, register),
        done_rule(
            topics.RegisterTopic,
            lambda request: table.register_topic(request.topic, request.queue_sets),
        ),
        done_rule(registration.UnregisterBroker, lambda request: table.unregister(request.node)),
        timed_rule(registration.ReportBroker, report),
        timed_rule(registration.CompareVersion, compare),
    )
