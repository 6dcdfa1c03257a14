"""Topics, groups, committed offsets, messages and addresses outlive a broker."""

from __future__ import annotations

import json
import socket

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.errors import ConfigError
from rocketmq_broker.servers import grpc_server
from rocketmq_broker.storage.errors import StoreLockedError
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests.groups import ListGroups
from rocketmq_wire.requests.messages import PullMessages, SendMessage
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset
from rocketmq_wire.requests.topics import CreateTopic, ListTopicConfigs
from support.remoting_peer import RemotingPeer
from support.storage_blocks import bodies_of

ORDERS_0 = QueueId("orders", "broker-a", 0)


@pytest.fixture
def serve(tmp_path):
    def make(**settings):
        values = {"data_dir": str(tmp_path / "data"), "commit_log_file_bytes": 1 << 20, **settings}
        return Broker(config_from(values))

    return make


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_everything_is_there_after_a_restart(serve, flush):
    orders = TopicConfig("orders", 3, 2, attributes={"message.type": "NORMAL"})
    with serve(flush=flush, grpc=False) as broker, RemotingPeer(broker.name_server) as peer:
        peer.call(CreateTopic(orders))
        for body in (b"one", b"two"):
            peer.call(SendMessage("p", ORDERS_0, 1, body))
        peer.call(PullMessages("g", ORDERS_0, 0, 32))
        peer.call(CommitOffset("g", ORDERS_0, 1))
    with serve(flush=flush, grpc=False) as broker, RemotingPeer(broker.name_server) as peer:
        assert orders in peer.call(ListTopicConfigs()).configs
        assert peer.call(ListGroups()).groups == ("g",)
        assert peer.call(GetCommittedOffset("g", ORDERS_0)).value == 1
        reply = peer.call(PullMessages("g", ORDERS_0, 0, 32))
        assert bodies_of([memoryview(part) for part in reply.records]) == [b"one", b"two"]
        assert peer.call(SendMessage("p", ORDERS_0, 1, b"three")).start == 2


def test_addresses_are_those_of_the_last_run(serve):
    with serve(name_server_apart=True) as broker:
        before = broker.name_server, broker.endpoints
    with serve(name_server_apart=True) as broker:
        assert (broker.name_server, broker.endpoints) == before


def test_remembered_port_that_is_taken_is_named(serve):
    with serve(grpc=False) as broker:
        host, _, port = broker.name_server.rpartition(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(ConfigError, match=rf"cannot listen on {host}:{port}: "),
    ):
        serve(grpc=False).start()
    serve(grpc=False).start().stop()


def test_port_that_is_taken_is_named(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: ") as raised:
            serve(port=port, grpc=False).start()
    assert "perhaps another broker, listens there" in str(raised.value)
    assert "--port 0 takes a free one" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("port", "--port N"),
        ("nameServerPort", "--set name_server_port=N"),
        ("grpcPort", "--grpc-port N"),
    ],
)
def test_a_remembered_port_that_is_taken_says_what_remembers_it(name, option, serve, tmp_path):
    serve(name_server_apart=True).start().stop()
    (stored,) = tmp_path.rglob("config/addresses.json")
    port = json.loads(stored.read_text())[name]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError) as raised:
        serve(name_server_apart=True).start()
    assert f":{port}: " in str(raised.value)
    assert "config/addresses.json" in str(raised.value)
    assert str(raised.value).endswith(option)


def test_grpc_takes_another_port_if_its_port_is_taken_in_between(monkeypatch):
    """gRPC binds for itself, a moment after the port was found free."""
    takers: list[socket.socket] = []
    start = grpc_server.start_grpc_server

    async def beaten_once(shell, host, port, **more):
        if not takers:
            takers.append(socket.create_server((host, port)))
        return await start(shell, host, port, **more)

    monkeypatch.setattr(grpc_server, "start_grpc_server", beaten_once)
    try:
        with Broker(config_from({"flush": "memory"})) as broker:
            assert broker.endpoints
            taken = takers[0].getsockname()[1]
            assert not broker.endpoints.endswith(f":{taken}")
    finally:
        takers[0].close()


def test_second_broker_on_the_same_store_is_refused(serve):
    with serve(grpc=False), pytest.raises(StoreLockedError):
        serve(grpc=False).start()


def test_damaged_addresses_are_no_reason_to_stay_away(serve, tmp_path):
    serve(grpc=False).start().stop()
    addresses = tmp_path / "data" / "config" / "addresses.json"
    assert json.loads(addresses.read_text())["port"]
    addresses.write_text('{"port": "x"}')
    serve(grpc=False).start().stop()


def test_offsets_are_on_disk_soon_after_they_were_committed(serve, tmp_path):
    path = tmp_path / "data" / "config" / "consumerOffset.json"
    with serve(grpc=False, progress_flush_ms=10) as broker:
        with RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            peer.call(PullMessages("g", ORDERS_0, 0, 32, commit=7))
            for _ in range(10_000):
                # Each call gives the broker's loop a turn.
                peer.call(GetCommittedOffset("g", ORDERS_0))
                if path.exists():
                    break
        assert json.loads(path.read_text())["offsetTable"] == {"orders@g": {"0": 7}}


def test_broker_can_be_stopped_twice_and_started_again(serve):
    broker = serve()
    broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.name_server  # noqa: B018
    with broker:
        assert broker.endpoints
