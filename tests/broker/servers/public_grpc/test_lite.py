"""The public gRPC service refuses every request about lite topics, by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import LITE
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import public
from support.public_peer import PublicPeer, outgoing, resource
from support.remoting_peer import RemotingPeer

TOPIC, GROUP = "orders", "readers"
LITE_PUSH, LITE_SIMPLE = 5, 6


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config_from({"flush": "memory", "grpc": True})) as broker:
        with RemotingPeer(broker.name_server) as tool:
            tool.call(CreateTopic(TopicConfig(TOPIC, 1, 1)))
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[PublicPeer]:
    with PublicPeer(str(broker.endpoints)) as peer:
        yield peer


def assert_refused(status: object, what: str) -> None:
    text = f"{what}: lite topics are not supported"
    assert (status.code, status.message) == (PublicCode.NOT_IMPLEMENTED, text)  # type: ignore[attr-defined]


@pytest.mark.parametrize("action", range(4))
def test_subscriptions_to_lite_topics_are_refused(peer: PublicPeer, action: int) -> None:
    fields = {"topic": resource(TOPIC), "group": resource(GROUP), "lite_topic_set": ["a"]}
    answer = peer.call("SyncLiteSubscription", action=action, **fields)
    assert_refused(answer.status, "SyncLiteSubscription of topic orders")


@pytest.mark.parametrize("kind", [LITE_PUSH, LITE_SIMPLE])
def test_lite_consumers_are_refused(peer: PublicPeer, kind: int) -> None:
    answer = peer.be_consumer(GROUP, TOPIC, kind=kind)
    assert_refused(answer.status, "a lite consumer of group readers")


@pytest.mark.parametrize("kind", [1, LITE])
def test_lite_messages_are_refused(peer: PublicPeer, kind: int) -> None:
    message = outgoing(TOPIC, b"body", kind, lite_topic="a")
    assert_refused(peer.send(message).status, "a message of lite topic 'a'")


def test_calls_about_lite_messages_are_refused(peer: PublicPeer) -> None:
    assert peer.be_consumer(GROUP, TOPIC).status.code == PublicCode.OK
    assert peer.send(outgoing(TOPIC, b"body")).status.code == PublicCode.OK
    _, (message,) = peer.receive(GROUP, TOPIC)
    handle = message.system_properties.receipt_handle
    named = {"topic": resource(TOPIC), "group": resource(GROUP)}
    what = "a message of lite topic 'a'"
    for call in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
        answer = peer.call(call, **named, receipt_handle=handle, lite_topic="a")
        assert_refused(answer.status, what)
    entry = public.message_class("AckMessageEntry")(receipt_handle=handle, lite_topic="a")
    answer = peer.call("AckMessage", **named, entries=[entry])
    assert_refused(answer.entries[0].status, what)
    entry.ClearField("lite_topic")
    assert peer.call("AckMessage", **named, entries=[entry]).status.code == PublicCode.OK
