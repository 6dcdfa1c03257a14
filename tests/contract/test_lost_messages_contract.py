"""Messages that a repair gave up: reads fail or report them, consumers skip and log them."""

from __future__ import annotations

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_cli.main import main
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.pop import PopConsumer
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import OffsetRange, StoredMessage, Subscription, TopicConfig
from support.consuming import Collector
from support.contracts import SPEC, fill, messages_in, queue_of, read

TOPIC = "repaired"
QUEUE = queue_of(TOPIC)
LOST = (3, 4, 9)
COUNT = 12
KEPT = [offset for offset in range(COUNT) if offset not in LOST]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    settings = {"data_dir": str(root), "commit_log_file_bytes": 1 << 20}
    with (
        Broker(config_from(settings)) as broker,
        open_cluster(ConnectionSettings((broker.name_server,))) as cluster,
    ):
        cluster.create_topic(TopicConfig(TOPIC, 4, 4))
        fill(cluster, QUEUE, COUNT, size=50)
    (log,) = (root / "commitlog").iterdir()
    content = bytearray(log.read_bytes())
    for offset in LOST:
        content[content.index(str(offset).encode().ljust(50, b".")) + 20] ^= 1
    log.write_bytes(content)
    assert main(["fsck", str(root), "--repair"]) == 0
    with Broker(config_from(settings)) as broker:
        yield broker


@pytest.fixture(params=["tcp", "grpc"])
def cluster(request, broker):
    settings = (
        ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
        if request.param == "tcp"
        else ConnectionSettings(endpoints=broker.endpoints, request_timeout_ms=30_000)
    )
    with open_cluster(settings) as cluster:
        yield cluster


def test_a_read_over_lost_messages_fails_with_their_offsets(cluster):
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(QUEUE, 0, COUNT)])
    assert (caught.value.loss.start, caught.value.loss.end) == (3, 5)
    assert caught.value.loss.reason is LossReason.HOLE


def test_a_read_that_may_lose_gets_all_others_at_their_offsets(cluster):
    spec = ReadSpec("r", loss_policy=LossPolicy.SKIP)
    found: list[StoredMessage] = []
    lost: list[int] = []
    for chunk in cluster.read_ranges([OffsetRange(QUEUE, 0, COUNT)], spec):
        if chunk.loss is not None:
            lost += range(chunk.loss.start, chunk.loss.end)
        else:
            found += messages_in(chunk)
    assert lost == list(LOST)
    assert [m.queue_offset for m in found] == KEPT
    assert all(m.body.startswith(str(m.queue_offset).encode()) for m in found)


def test_a_filtered_read_fails_as_well(cluster):
    spec = ReadSpec("r", subscription=Subscription("no-such-tag"))
    with pytest.raises(RangeLostError):
        read(cluster, [OffsetRange(QUEUE, 0, COUNT)], spec)


def test_a_push_consumer_gets_the_others_and_logs_what_is_lost(broker, caplog):
    listener = Collector()
    settings = ConsumerSettings(
        "pushed", {TOPIC: Subscription()}, consume_from=ConsumeFrom.FIRST, suspend_ms=500
    )
    with PushConsumer(ConnectionSettings((broker.name_server,)), settings, listener):
        listener.wait(COUNT - len(LOST))
    assert sorted(m.queue_offset for m in listener.messages) == KEPT
    for hole in ("[3,5)", "[9,10)"):
        assert f"{QUEUE}: the broker lost the messages of offsets {hole}" in caplog.text


def test_pops_get_the_others_and_the_broker_logs_what_is_lost(broker, caplog):
    offsets = []
    with (
        open_cluster(ConnectionSettings((broker.name_server,))) as cluster,
        PopConsumer(cluster, "popped", TOPIC) as consumer,
    ):
        while popped := consumer.receive(wait_ms=200):
            offsets += [one.message.queue_offset for one in popped]
            consumer.ack(popped)
    assert sorted(offsets) == KEPT
    assert f"topic={TOPIC} queue=0: pops skip 2 messages before offset 5" in caplog.text
    assert "pops skip 1 message before offset 10" in caplog.text


def test_a_read_beside_the_holes_is_whole(cluster):
    assert len(read(cluster, [OffsetRange(QUEUE, 5, 9)], SPEC)[QUEUE]) == 4
