"""One store, two brokers: what RocketMQ wrote is served here, and what we wrote is served there.

Each test compares the very bytes of every record, queue by queue, and the groups' progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import StoreLockedError
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_cli.main import main
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, QueueId, TopicConfig
from support.loader import Loader
from support.real_cluster import BrokerNode, RealCluster

_NAME = "broker-x"
# What RealCluster gives its brokers: RocketMQ opens no file of another size.
_LOG_FILE_SIZE = 16 << 20
_QUEUE_FILE_ENTRIES = 30_000


@dataclass(frozen=True)
class Held:
    """All that a broker serves."""

    records: dict[QueueId, bytes]
    bounds: dict[QueueId, Bounds]
    committed: dict[QueueId, object]


def held_by(cluster: Cluster, queues: Sequence[QueueId], group: str) -> Held:
    bounds: dict[QueueId, Bounds] = {}
    records: dict[QueueId, bytes] = {}
    for queue, found in cluster.bounds(queues).items():
        assert isinstance(found, Bounds), found
        bounds[queue] = Bounds(found.start, found.end)
        parts, offset = [], found.start
        while offset < found.end:
            reply = cluster.pull(queue, offset, 32)
            assert reply.next_begin > offset, reply
            parts += [bytes(part) for part in reply.records]
            offset = reply.next_begin
        records[queue] = b"".join(parts)
    # The versions answer differently for the queues that nothing was committed of.
    return Held(records, bounds, dict(cluster.committed_offsets(group, queues[:2])))


@contextmanager
def ours(folder: Path) -> Iterator[Cluster]:
    """The bundled broker on a directory, and a client of it."""
    config = BrokerConfig(
        data_dir=str(folder),
        broker_name=_NAME,
        commit_log_file_bytes=_LOG_FILE_SIZE,
        consume_queue_file_entries=_QUEUE_FILE_ENTRIES,
        grpc=False,
    )
    with Broker(config) as broker, open_cluster(settings_of(broker)) as cluster:
        yield cluster


def settings_of(broker: Broker) -> ConnectionSettings:
    return ConnectionSettings((broker.name_server,), request_timeout_ms=15_000)


@contextmanager
def running(broker: RealCluster, node: BrokerNode) -> Iterator[Cluster]:
    """The real broker on its directory."""
    node.start()
    with broker.open() as cluster:
        yield cluster


@pytest.fixture
def node(broker: RealCluster) -> Iterator[BrokerNode]:
    """A broker that was never started: its directory is there for either."""
    node = BrokerNode(broker, _NAME, 0, {"autoCreateTopicEnable": "false"})
    broker.brokers.append(node)
    yield node
    broker.remove(node)


def fill(cluster: Cluster, topic: str) -> None:
    """Queues of several files, a log of several files, a topic deleted and made again."""
    loader = Loader(cluster)
    for name, count in ((topic, 3), (f"{topic}-again", 1), (f"{topic}-gone", 1)):
        cluster.create_topic(TopicConfig(name, count, count), _NAME)
    first, second, _ = (QueueId(topic, _NAME, index) for index in range(3))
    loader.put(QueueId(f"{topic}-again", _NAME, 0), 700)
    loader.put(QueueId(f"{topic}-gone", _NAME, 0), 50)
    loader.put(first, 31_000)
    for name in (f"{topic}-again", f"{topic}-gone"):
        cluster.delete_topic(name)
    # Large bodies: the log's files end in fillers.
    loader.put(second, 3_000, tag="B", properties={"pad": "x" * 6_000, "u": "grün"})
    cluster.create_topic(TopicConfig(f"{topic}-again", 1, 1), _NAME)
    loader.sent.pop(QueueId(f"{topic}-again", _NAME, 0))
    loader.put(QueueId(f"{topic}-again", _NAME, 0), 40)
    assert cluster.commit(f"{topic}-g", {first: 777, second: 3_000}) == {first: None, second: None}


def again(cluster: Cluster, topic: str) -> None:
    """Some more for each queue, wherever it is now."""
    loader = Loader(cluster)
    for queue in queues_of(topic):
        held = loader.cluster.bounds([queue])[queue]
        assert isinstance(held, Bounds)
        loader.sent[queue] = [b""] * held.end
        loader.put(queue, 300)
    first = queues_of(topic)[0]
    assert loader.cluster.commit(f"{topic}-g", {first: 888}) == {first: None}


def queues_of(topic: str) -> list[QueueId]:
    return [*(QueueId(topic, _NAME, index) for index in range(3)),
            QueueId(f"{topic}-again", _NAME, 0)]  # fmt: skip


def whole(cluster: Cluster, topic: str) -> Held:
    held = held_by(cluster, queues_of(topic), f"{topic}-g")
    assert f"{topic}-gone" not in cluster.topics()
    return held


End = Callable[[BrokerNode, str, str], None]


def stop(node: BrokerNode, _topic: str, _offsets: str) -> None:
    node.stop()


def kill(node: BrokerNode, topic: str, offsets: str) -> None:
    # It is saved every five seconds.
    deadline = time.monotonic() + 20
    while offsets not in saved_offsets(node, topic) and time.monotonic() < deadline:
        time.sleep(0.2)
    node.kill()


def saved_offsets(node: BrokerNode, topic: str) -> str:
    """What the file says of the topic's group; the tests of a version share a directory."""
    path = node.store / "config" / "consumerOffset.json"
    text = path.read_text() if path.exists() else ""
    return text.partition(f'"{topic}@{topic}-g"')[2].partition("}")[0]


either_end = pytest.mark.parametrize("end", [stop, pytest.param(kill, marks=pytest.mark.short)])


@either_end
def test_what_rocketmq_stored_is_served_here_and_goes_back(
    broker: RealCluster, node: BrokerNode, topic: str, end: End
) -> None:
    node.start()
    with broker.open() as cluster:
        fill(cluster, topic)
        stored = whole(cluster, topic)
    end(node, topic, "777")
    assert main(["fsck", str(node.store)]) == 0

    with ours(node.store) as cluster:
        assert whole(cluster, topic) == stored
        again(cluster, topic)
        more = whole(cluster, topic)
        assert all(more.records[queue].startswith(stored.records[queue]) for queue in more.records)
        assert more.committed != stored.committed

    assert main(["fsck", str(node.store)]) == 0
    with running(broker, node) as cluster:
        assert whole(cluster, topic) == more


@either_end
def test_what_we_stored_is_served_by_rocketmq_and_comes_back(
    broker: RealCluster, node: BrokerNode, topic: str, end: End
) -> None:
    with ours(node.store) as cluster:
        fill(cluster, topic)
        stored = whole(cluster, topic)

    with running(broker, node) as cluster:
        assert whole(cluster, topic) == stored
        again(cluster, topic)
        more = whole(cluster, topic)
    end(node, topic, "888")

    with ours(node.store) as cluster:
        assert whole(cluster, topic) == more


def test_a_store_that_rocketmq_has_open_is_refused(node: BrokerNode) -> None:
    node.start()
    with pytest.raises(StoreLockedError):
        Store.open(OsFiles(node.store), StoreConfig(), int(time.time() * 1_000))
