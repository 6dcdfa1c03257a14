"""Swapped ports: gRPC's given as the name server's, and the other way round."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from collections.abc import Iterator

import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.tls.probe import explain_other_protocol
from rocketmq_wire.errors import ConnectionLostError, WrongPortError


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory")) as running:
        yield running


def test_the_port_of_grpc_is_no_name_server(broker: Broker) -> None:
    settings = ConnectionSettings(name_servers=(broker.endpoints,))
    with open_cluster(settings) as cluster, pytest.raises(WrongPortError) as refused:
        cluster.topics()
    text = f"[ROCKETMQ_CONNECTION.WRONG_PORT] {broker.endpoints} speaks gRPC"
    assert str(refused.value).startswith(text)
    assert "Give it as endpoints" in str(refused.value)
    assert "Give it as --endpoints, or" in refused.value.text("--name-server", "--endpoints")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_the_name_servers_port_is_no_endpoint(broker: Broker) -> None:
    settings = ConnectionSettings(endpoints=broker.name_server)
    with open_cluster(settings) as cluster, pytest.raises(WrongPortError) as refused:
        cluster.topics()
    text = f"[ROCKETMQ_CONNECTION.WRONG_PORT] {broker.name_server} speaks RocketMQ's TCP protocol"
    assert str(refused.value).startswith(text)
    assert "Give it as nameServer" in str(refused.value)


def test_the_port_of_a_web_server_is_no_name_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer = listener.accept()[0]
                    peer.recv(1_024)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                    peer.close()

        threading.Thread(target=refuse, daemon=True).start()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = ConnectionSettings(name_servers=(where,))
        with open_cluster(settings) as cluster, pytest.raises(WrongPortError) as refused:
            cluster.topics()
        text = f"[ROCKETMQ_CONNECTION.WRONG_PORT] {where} speaks HTTP"
        assert str(refused.value).startswith(text)
        assert "9876" in str(refused.value)
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
        listener.shutdown(socket.SHUT_RDWR)


def test_who_speaks_the_wanted_protocol_is_not_at_a_wrong_port(broker: Broker) -> None:
    assert explain_other_protocol(broker.name_server, wants_grpc=False) is None
    assert explain_other_protocol(broker.endpoints, wants_grpc=True) is None


@pytest.mark.parametrize("by_grpc", [False, True])
def test_who_hangs_up_on_everything_may_come_back(by_grpc: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = (
            ConnectionSettings(endpoints=where)
            if by_grpc
            else ConnectionSettings(name_servers=(where,))
        )
        with open_cluster(settings) as cluster, pytest.raises(ConnectionLostError) as lost:
            cluster.topics()
        assert lost.value.retryable
        listener.shutdown(socket.SHUT_RDWR)
