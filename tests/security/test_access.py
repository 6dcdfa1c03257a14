"""Access control over both transports: which requests are allowed, and the errors of the others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.batch import BatchTask
from pyspark_rocketmq.read.plan import make_plan
from pyspark_rocketmq.read.task import read_task
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.errors import ConfigError
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import NotAuthorizedError, RocketMQError
from rocketmq_wire.model import Message, OffsetRange, TopicConfig
from rocketmq_wire.requests.brokers import GetCluster, WipeWritePermission
from rocketmq_wire.signing import Credentials
from support.remoting_peer import RemotingPeer

ADMIN = Credentials("AdminAdmin", "admin-secret")
READER = Credentials("ReaderReader", "reader-secret")
TOPICS = ("open", "read-only", "closed")

PLAIN = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: AdminAdmin
    secretKey: admin-secret
    admin: true
  - accessKey: ReaderReader
    secretKey: reader-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - open=PUB|SUB
      - read-only=SUB
    groupPerms:
      - others=DENY
"""


def _entry(resource: str, *actions: str, decision: str = "Allow") -> dict[str, object]:
    return {"resource": [resource], "actions": actions, "decision": decision}


USERS = json.dumps(
    {
        "users": [
            {"username": "AdminAdmin", "password": "admin-secret", "userType": "Super"},
            {"username": "ReaderReader", "password": "reader-secret"},
        ],
        "acls": [
            {
                "subject": "User:ReaderReader",
                "policies": [
                    {
                        "entries": [
                            _entry("Topic:open", "Pub", "Sub", "Get"),
                            _entry("Topic:read-only", "Sub", "Get"),
                            _entry("Topic:unseen", "Sub"),
                            _entry("Group:*", "Sub"),
                        ]
                    },
                    {"entries": [_entry("Group:others", "Sub", decision="Deny")]},
                ],
            }
        ],
    }
)


@pytest.fixture(params=["remoting", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["plain_acl.yml", "users.json"])
def accounts_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    path.write_text(PLAIN if path.suffix == ".yml" else USERS)
    return path


@pytest.fixture
def broker(accounts_file: Path) -> Iterator[Broker]:
    with Broker(config_for(accounts_file)) as running:
        settings = ConnectionSettings(name_servers=(running.name_server,), credentials=ADMIN)
        with open_cluster(settings) as cluster:
            for topic in TOPICS:
                cluster.create_topic(TopicConfig(topic, read_queue_count=1, write_queue_count=1))
        yield running


def config_for(path: Path) -> BrokerConfig:
    key = "acl_file" if path.suffix == ".yml" else "auth_file"
    return BrokerConfig(flush="memory", **{key: str(path)})  # type: ignore[arg-type]


def settings_for(
    broker: Broker, transport: str, credentials: Credentials | None
) -> ConnectionSettings:
    if transport == "grpc":
        return ConnectionSettings(endpoints=broker.endpoints, credentials=credentials)
    return ConnectionSettings(name_servers=(broker.name_server,), credentials=credentials)


def read(cluster: Cluster, topic: str, group: str = "readers") -> int:
    (queue,) = cluster.queues(topic)
    bounds = cluster.bounds([queue])[queue]
    if isinstance(bounds, RocketMQError):
        raise bounds
    # At least one, so that there is a request.
    end = max(1, bounds.end)
    chunks = cluster.read_ranges([OffsetRange(queue, 0, end)], ReadSpec(group))
    return sum(chunk.end - chunk.start for chunk in chunks)


def send(settings: ConnectionSettings, topic: str) -> None:
    with Producer(settings) as producer:
        producer.send(Message(topic, b"hello"))


@contextmanager
def refused(kind: str) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(NotAuthorizedError, match=rf"^\[ROCKETMQ_AUTH\.{kind}\] ") as caught:
        yield
    assert time.monotonic() - began < 2.0
    for credentials in (ADMIN, READER):
        assert credentials.secret_key not in str(caught.value)


def test_clients_with_right_signatures_send_and_read(broker: Broker, transport: str) -> None:
    settings = settings_for(broker, transport, READER)
    send(settings, "open")
    with open_cluster(settings) as cluster:
        assert read(cluster, "open") == 1
        (queue,) = cluster.queues("open")
        assert cluster.commit("readers", {queue: 1}) == {queue: None}
        assert cluster.committed_offsets("readers", [queue]) == {queue: 1}


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (None, "MISSING_KEY"),
        (Credentials("AdminAdmin", "wrong-secret"), "WRONG_KEY"),
        (Credentials("NobodyKnown", "admin-secret"), "WRONG_KEY"),
    ],
)
def test_each_wrong_signature_has_an_error_of_its_own(
    broker: Broker, transport: str, credentials: Credentials | None, kind: str
) -> None:
    settings = settings_for(broker, transport, credentials)
    with open_cluster(settings) as cluster, refused(kind):
        read(cluster, "open")
    with refused(kind):
        send(settings, "open")
    with open_cluster(settings) as cluster, refused(kind):
        cluster.create_topic(TopicConfig("new"))


def test_rights_are_those_of_topic_and_group(broker: Broker, transport: str) -> None:
    admin = settings_for(broker, transport, ADMIN)
    for topic in TOPICS:
        send(admin, topic)
    settings = settings_for(broker, transport, READER)
    with open_cluster(settings) as cluster:
        assert read(cluster, "read-only") == 1
        with refused("NO_PERMISSION"):
            read(cluster, "closed")
        with refused("NO_PERMISSION"):
            read(cluster, "open", group="others")
        with refused("NO_PERMISSION"):
            cluster.create_topic(TopicConfig("new"))
    with refused("NO_PERMISSION"):
        send(settings, "read-only")


def test_the_right_to_subscribe_alone_shows_no_end_offsets(tmp_path: Path, transport: str) -> None:
    """As at RocketMQ 5.3: routes, pulls and committed offsets need `Sub`, end offsets `Get`."""
    path = tmp_path / "users.json"
    path.write_text(USERS)
    with Broker(config_for(path)) as broker:
        admin = settings_for(broker, transport, ADMIN)
        with open_cluster(admin) as cluster:
            cluster.create_topic(TopicConfig("unseen", read_queue_count=1, write_queue_count=1))
        send(admin, "unseen")
        with open_cluster(settings_for(broker, transport, READER)) as cluster:
            (queue,) = cluster.queues("unseen")
            assert cluster.commit("readers", {queue: 1}) == {queue: None}
            assert cluster.committed_offsets("readers", [queue]) == {queue: 1}
            chunks = cluster.read_ranges([OffsetRange(queue, 0, 1)], ReadSpec("readers"))
            assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 1)]
            with refused("NO_PERMISSION"):
                read(cluster, "unseen")


def test_a_worker_that_read_for_one_account_reads_for_another_with_its_own_key(
    broker: Broker, transport: str
) -> None:
    address = (
        {"endpoints": broker.endpoints}
        if transport == "grpc"
        else {"nameServer": broker.name_server}
    )

    def rows(credentials: Credentials, topic: str) -> int:
        keys = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
        options = read_options({**address, **keys, "subscribe": topic})
        plan = make_plan(options, StructType().add("body", "binary"))
        return sum(batch.num_rows for batch in read_task(plan, BatchTask((), (topic,))))

    send(settings_for(broker, transport, ADMIN), "closed")
    assert rows(ADMIN, "closed") == 1
    with refused("NO_PERMISSION"):
        rows(READER, "closed")
    with refused("WRONG_KEY"):
        rows(Credentials(ADMIN.access_key, "the-key-before"), "closed")
    assert rows(ADMIN, "closed") == 1


def test_a_changed_file_counts_at_once_and_a_broken_one_does_not(
    broker: Broker, transport: str, accounts_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_for(broker, transport, READER)
    before = accounts_file.read_text()
    with open_cluster(settings) as cluster:
        send(settings_for(broker, transport, ADMIN), "open")
        assert read(cluster, "open") == 1
        replace_text(accounts_file, before.replace("reader-secret", "another-secret"))
        _until(lambda: not _can_read(cluster), "the new key to count")
        replace_text(accounts_file, "accounts: {")
        _until(
            lambda: not _can_read(cluster) and "stay in force" in caplog.text,
            "the broken file to be complained of",
        )
        replace_text(accounts_file, before)
        _until(lambda: _can_read(cluster), "the old key to count again")
    assert not any(word in caplog.text for word in ("reader-secret", "another-secret"))


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_name_servers_request_that_changes_the_broker_needs_an_account(
    accounts_file: Path, is_apart: bool
) -> None:
    config = replace(config_for(accounts_file), name_server_apart=is_apart)
    with Broker(config) as broker, RemotingPeer(broker.name_server) as peer:
        peer.call(GetCluster())
        with pytest.raises(NotAuthorizedError, match="No accessKey"):
            peer.call(WipeWritePermission(config.broker_name))


def test_a_trusted_address_needs_no_key(tmp_path: Path, transport: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN.replace("Addresses: []", "Addresses:\n- 127.0.0.*"))
    with Broker(config_for(path)) as broker:
        settings = settings_for(broker, transport, None)
        with open_cluster(settings) as cluster:
            cluster.create_topic(TopicConfig("open", read_queue_count=1, write_queue_count=1))
            send(settings, "open")
            assert read(cluster, "open") == 1


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    with pytest.raises(ConfigError, match="cannot read"), Broker(config_for(path)):
        pass
    path.write_text("accounts: none")
    with pytest.raises(ConfigError, match="accounts is no list"), Broker(config_for(path)):
        pass


def replace_text(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    os.replace(draft, path)


def _can_read(cluster: Cluster) -> bool:
    try:
        read(cluster, "open")
    except NotAuthorizedError:
        return False
    return True


def _until(is_so: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + 10.0
    while not is_so():
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        time.sleep(0.05)
