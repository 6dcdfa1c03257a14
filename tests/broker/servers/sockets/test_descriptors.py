"""Room for connections: what takes it, who is closed for another one, and the process's limit."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.servers.sockets.descriptors import AcceptedSocket, Room, room_for
from rocketmq_wire.requests.topics import ListTopics
from support.certificates import Authority
from support.remoting_peer import RemotingPeer

ENDS: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _ends_are_closed() -> Iterator[None]:
    yield
    while ENDS:
        ENDS.pop().close()


def admitted(room: Room, weight: int = 1) -> AcceptedSocket | None:
    near, far = socket.socketpair()
    ENDS.append(far)
    kept = room.admit(near, weight)
    if kept is not None:
        ENDS.append(kept)
    return kept


def test_a_connection_is_counted_until_its_socket_closes() -> None:
    room = Room(2)
    first, second = admitted(room), admitted(room)
    assert first is not None
    assert second is not None
    for kept in (first, second):
        room.heard(kept.fileno())
    assert admitted(room) is None
    first.close()
    first.close()
    assert admitted(room) is not None
    assert second.fileno() >= 0


def test_a_relayed_connection_takes_the_room_of_its_descriptors() -> None:
    room = Room(3)
    only = admitted(room, weight=3)
    assert only is not None
    room.heard(only.fileno())
    assert admitted(room) is None


def test_the_oldest_silent_connection_makes_room() -> None:
    room = Room(2)
    speaking, silent = admitted(room), admitted(room)
    assert speaking is not None
    assert silent is not None
    room.heard(speaking.fileno())
    assert admitted(room) is not None
    assert silent.recv(1) == b""
    speaking.setblocking(False)
    with pytest.raises(BlockingIOError):
        speaking.recv(1)


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "count"),
    [
        (1_024, 20_000, 8_192, 4_096),
        (1_024, 1_024, None, 480),
        (100, 100, None, 38),
        (20_000, 20_000, None, 4_096),
        (1_024, resource.RLIM_INFINITY, 8_192, 4_096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 4_096),
    ],
)
def test_the_limit_is_raised_and_what_it_leaves_is_the_room(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, count: int
) -> None:
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits))
    room = room_for(4_096)
    assert room._count_max == count
    left = raised or (8_192 if soft == resource.RLIM_INFINITY else soft)
    assert count + room.grpc_count_max <= left
    assert changes == ([] if raised is None else [(raised, hard)])


@pytest.mark.parametrize("tls", [False, True])
def test_silent_connections_keep_nobody_out(
    tls: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings: dict[str, object] = {"flush": "memory", "grpc": False, "connections_max": 8}
    if tls:
        pair = Authority(tmp_path_factory.mktemp("authority")).issue()
        settings |= {"tls_mode": "permissive"}
        settings |= {"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file}
    with Broker(config_from(settings)) as broker, RemotingPeer(broker.name_server) as speaking:
        speaking.call(ListTopics())
        host, _, port = broker.name_server.rpartition(":")
        for first in (b"", b"\x00", b"\x16"):
            for _ in range(10):
                silent = socket.create_connection((host, int(port)), timeout=10)
                silent.sendall(first)
                ENDS.append(silent)
        with RemotingPeer(broker.name_server) as late:
            late.call(ListTopics())
        speaking.call(ListTopics())
