"""A bundled broker with its public gRPC service and clients of it: fixtures for tests to name."""

from __future__ import annotations

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import put_duration
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests.groups import PutGroup
from rocketmq_wire.requests.pop import InitMode, PopMessages, PopStatus
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import public
from support.public_peer import PublicPeer
from support.remoting_peer import RemotingPeer

EMPTY_DURATION = public.message_class("ReceiveMessageRequest")().invisible_duration


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory", "grpc": True})) as broker:
        yield broker


@pytest.fixture(scope="module")
def tool(broker):
    with RemotingPeer(broker.name_server) as peer:
        for name, kind in (("fifo", "FIFO"), ("typed", "NORMAL"), ("urgent", "PRIORITY")):
            attributes = {"message.type": kind}
            peer.call(CreateTopic(TopicConfig(name, 4, 4, attributes=attributes)))
        peer.call(PutGroup({"groupName": "in-order", "consumeMessageOrderly": True}))
        yield peer


@pytest.fixture
def topic(tool, request):
    """A topic of its own, with two queues."""
    name = "t" + "".join(filter(str.isalnum, request.node.name))[:80]
    tool.call(CreateTopic(TopicConfig(name, 2, 2)))
    return name


@pytest.fixture
def peer(broker, request):
    """A client without settings."""
    client_id = "tester@" + "".join(filter(str.isalnum, request.node.name))
    with PublicPeer(broker.endpoints, client_id) as peer:
        yield peer


@pytest.fixture
def consumer(broker, topic, tool):
    """A consumer of group `g-<topic>` that exists before any message."""
    with PublicPeer(broker.endpoints, f"consumer@{topic}") as peer:
        answer = peer.be_consumer(f"g-{topic}", topic)
        assert answer.status.code == PublicCode.OK
        begin(tool, f"g-{topic}", topic)
        yield peer


def begin(tool, group, topic, *, is_orderly=False):
    """Let a new group start at the end of a topic, by a first pop that does not wait."""
    queue = QueueId(topic, "broker-a", -1)
    pop = PopMessages(group, queue, 1, 10_000, init_mode=InitMode.MAX, is_orderly=is_orderly)
    assert tool.call(pop).status is PopStatus.POLLING_TIMEOUT


def duration(milliseconds):
    made = type(EMPTY_DURATION)()
    put_duration(made, milliseconds)
    return made
