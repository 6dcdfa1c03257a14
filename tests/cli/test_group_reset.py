"""`rmq group reset-offsets` of groups with live members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.lite_pull import LitePullConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import BrokerAddresses, QueueId, Subscription
from rocketmq_wire.requests.brokers import GetBrokerSettings, SettingsReply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import ClientsReply, ListGroupClients
from rocketmq_wire.requests.offsets import OffsetsReply, ResetClientOffsets
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

WAIT_S = 30.0
QUEUES = tuple(QueueId("orders", "broker-a", index) for index in range(2))
Produce = Callable[..., int]


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield cluster


def polled(consumer: LitePullConsumer, count: int) -> list[tuple[int, int]]:
    """Queue and offset of the next messages; those already received, or received in time."""
    found: list[tuple[int, int]] = []
    give_up_at = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < give_up_at:
        found += [(m.queue_index, m.queue_offset) for m in consumer.poll(100)]
    return found


@pytest.mark.parametrize("index", [None, 1])
def test_a_group_with_members_is_moved_by_its_broker(
    index: int | None,
    broker: Broker,
    cluster: Cluster,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic, where = f"moved-{index}", ("--name-server", broker.name_server)
    group = f"g-{topic}"
    assert main(["topic", "create", topic, "--queues", "2", *where]) == 0
    produce(b"".join(b"%d\n" % n for n in range(8)), topic, "--batch", "4", "-q", *where)
    settings = ConsumerSettings(group, {topic: Subscription()}, consume_from=ConsumeFrom.FIRST)
    with LitePullConsumer(cluster.settings, settings) as consumer:
        everything = polled(consumer, 8)
        assert len(everything) == 8
        consumer.commit()
        words = ["group", "reset-offsets", group, "--topic", topic, "--to", "earliest", *where]
        words += [] if index is None else ["--queue", str(index)]
        assert main([*words, "--execute"]) == 0, capfd.readouterr().err
        # Members resume there after ten seconds, as RocketMQ's own do.
        assert cluster.committed_offsets(group, cluster.queues(topic)) == {
            queue: 0 if index in (None, queue.index) else 4 for queue in cluster.queues(topic)
        }
        offset = ["group", "reset-offsets", group, "--topic", topic, "--to-offset", "1", *where]
        assert main([*offset, "--execute"]) == EXIT_USAGE
        assert "live members" in capfd.readouterr().err


class Old:
    """A broker of a group with a member, with the given settings, that moves the given queues."""

    def __init__(self, settings: dict[str, str], moves: tuple[QueueId, ...]) -> None:
        self.settings, self.moves = settings, moves
        self.failure: BrokerError | None = None

    def answer(self, request: Request[Reply]) -> Reply | BrokerError | None:
        if isinstance(request, ListGroupClients):
            return ClientsReply(("client-1",))
        if isinstance(request, GetBrokerSettings):
            return SettingsReply(self.settings)
        if isinstance(request, ResetClientOffsets):
            return self.failure or OffsetsReply(dict.fromkeys(self.moves, 0))
        return None


def scripted(old: Old) -> ScriptedBroker:
    broker = ScriptedBroker({queue: SimulatedQueue(0, 10) for queue in QUEUES})
    broker.committed = {("g", queue): 5 for queue in QUEUES}
    broker.script = old.answer
    return broker


def resets(broker: ScriptedBroker) -> list[ResetClientOffsets]:
    return [request for request in broker.requests if isinstance(request, ResetClientOffsets)]


MOVE = ("group", "reset-offsets", "g", "--topic", "orders", "--to", "earliest", "--execute")


@pytest.mark.parametrize("settings", [{}, {"useServerSideResetOffset": "false"}], ids=str)
def test_one_queue_is_not_moved_if_the_broker_would_move_all(
    settings: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with scripted(Old(settings, QUEUES)) as broker:
        where = ("--name-server", broker.address)
        assert main([*MOVE, "--queue", "1", *where]) == EXIT_USAGE
        assert "not in queue 1 alone" in capfd.readouterr().err
        assert resets(broker) == []
        assert main([*MOVE, *where]) == 0
        assert [request.queue_index for request in resets(broker)] == [-1]


def test_one_queue_is_moved_if_brokers_can(capfd: pytest.CaptureFixture[str]) -> None:
    old = Old({"useServerSideResetOffset": "true"}, QUEUES[1:])
    with scripted(old) as broker:
        where = ("--name-server", broker.address)
        assert main([*MOVE, "--queue", "1", *where]) == 0
        assert [request.queue_index for request in resets(broker)] == [1]
        old.moves = QUEUES
        assert main([*MOVE, "--queue", "1", *where]) == EXIT_FAILED
        assert "moved, too: topic=orders broker=broker-a queue=0" in capfd.readouterr().err
        old.moves = QUEUES[:1]
        assert main([*MOVE, *where]) == EXIT_FAILED
        assert "not moved: topic=orders broker=broker-a queue=1" in capfd.readouterr().err


def test_only_failures_of_brokers_with_the_topic_count(
    capfd: pytest.CaptureFixture[str],
) -> None:
    old, stranger = Old({}, QUEUES), Old({}, ())
    stranger.failure = BrokerError(17, "no such topic here")
    with scripted(old) as broker, scripted(stranger) as other:
        broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: other.address}),)
        where = ("--name-server", broker.address)
        assert main([*MOVE, *where]) == 0
        old.failure = BrokerError(206, "the consumer is not online")
        assert main([*MOVE, *where]) == EXIT_FAILED
        assert "not online" in capfd.readouterr().err


def test_an_offset_given_as_a_time_is_refused_with_its_option(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--topic", "orders", "--to", "100", "--name-server", broker.name_server)
    assert main(["group", "reset-offsets", "g", *words]) == EXIT_USAGE
    assert "an offset is --to-offset 100" in capfd.readouterr().err
