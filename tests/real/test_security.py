"""Real brokers with access control: our signatures, and their refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import NotAuthorizedError
from rocketmq_wire.model import Message, OffsetRange, TopicConfig
from rocketmq_wire.signing import Credentials
from support.real_cluster import VERSIONS, RealCluster
from support.secured_cluster import ADMIN, READABLE, READER, READERS, add_guarded_broker

pytestmark = pytest.mark.short


@pytest.fixture(scope="module", params=VERSIONS)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """A cluster whose broker asks who sends."""
    cluster = RealCluster(str(request.param), tmp_path_factory.mktemp("guarded"), is_brief=True)
    try:
        cluster.start_name_server()
        add_guarded_broker(cluster)
        yield cluster
    finally:
        cluster.close()


def signed(cluster: RealCluster, credentials: Credentials | None) -> ConnectionSettings:
    return replace(cluster.settings, credentials=credentials)


def read(cluster: Cluster, topic: str, group: str = READERS) -> int:
    queue = cluster.queues(topic)[0]
    chunks = cluster.read_ranges([OffsetRange(queue, 0, 1)], ReadSpec(group))
    return sum(chunk.end - chunk.start for chunk in chunks)


def send_one(settings: ConnectionSettings, topic: str) -> None:
    """One message in the first queue of a new topic."""
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        queue = cluster.queues(topic)[0]
    with Producer(settings) as producer:
        producer.send(Message(topic, b"hello", properties={"k": "\u4e2d\u6587"}), queue)


@contextmanager
def refused(start: str, error: type[Exception]) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value).startswith(f"[{start}] "), str(caught.value)
    assert ADMIN.secret_key not in str(caught.value)
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("token", [None, "a-token"])
def test_a_real_broker_takes_our_signatures(guarded: RealCluster, token: str | None) -> None:
    settings = signed(guarded, replace(ADMIN, security_token=token))
    send_one(settings, READABLE)
    with open_cluster(settings) as cluster:
        assert read(cluster, READABLE) == 1
        queue = cluster.queues(READABLE)[0]
        assert cluster.commit(READERS, {queue: 1}) == {queue: None}


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (None, "MISSING_KEY"),
        (replace(ADMIN, secret_key="wrong-secret"), "WRONG_KEY"),
        (Credentials("NobodyKnown", "admin-secret"), "WRONG_KEY"),
    ],
)
def test_a_real_brokers_refusals_say_what_to_do(
    guarded: RealCluster, credentials: Credentials | None, kind: str
) -> None:
    send_one(signed(guarded, ADMIN), READABLE)
    with open_cluster(signed(guarded, credentials)) as cluster:
        with refused(f"ROCKETMQ_AUTH.{kind}", NotAuthorizedError):
            read(cluster, READABLE)
        with refused(f"ROCKETMQ_AUTH.{kind}", NotAuthorizedError):
            cluster.create_topic(TopicConfig("new", 1, 1))


def test_rights_at_a_real_broker_are_those_of_topic_and_group(guarded: RealCluster) -> None:
    for topic in (READABLE, "closed"):
        send_one(signed(guarded, ADMIN), topic)
    with open_cluster(signed(guarded, READER)) as cluster:
        assert read(cluster, READABLE) == 1
        queue = cluster.queues(READABLE)[0]
        assert cluster.commit(READERS, {queue: 1}) == {queue: None}
        with refused("ROCKETMQ_AUTH.NO_PERMISSION", NotAuthorizedError):
            read(cluster, "closed")
        with refused("ROCKETMQ_AUTH.NO_PERMISSION", NotAuthorizedError):
            read(cluster, READABLE, group="others")
    with (
        Producer(signed(guarded, READER)) as producer,
        refused("ROCKETMQ_AUTH.NO_PERMISSION", NotAuthorizedError),
    ):
        producer.send(Message(READABLE, b"hello"), queue)
