"""The encrypted socket as the transports see it: full sockets, full buffers, and ends."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from rocketmq_client.settings import TlsSettings
from rocketmq_client.transport.tls.socket import TlsSocket
from support.certificates import Authority, Pair

SIZE = 2_000_000
SMALL = 16 * 1024


class Echo:
    """A server that reads everything first and sends it back then, slowly taking what comes."""

    def __init__(self, side: socket.socket, pair: Pair) -> None:
        self._side = side
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.cert_file, pair.key_file)
        self._may_read = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def read_on(self) -> None:
        self._may_read.set()

    def _serve(self) -> None:
        with self._context.wrap_socket(self._side, server_side=True) as side:
            self._may_read.wait(20)
            received = bytearray()
            while len(received) < SIZE:
                received += side.recv(64 * 1024)
            side.sendall(received)


@pytest.fixture
def sides() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    for side in (near, far):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        side.settimeout(20)
    near.setblocking(False)
    yield near, far
    near.close()
    far.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.issue()


def wait(encrypted: TlsSocket) -> None:
    writing = [encrypted.fileno()] if encrypted.wants_write else []
    ready = select.select([encrypted.fileno()], writing, [], 20.0)
    assert any(ready), "nothing happens any more"


def test_what_a_full_socket_did_not_take_is_offered_again_and_arrives_once(
    sides: tuple[socket.socket, socket.socket], authority: Authority, server_pair: Pair
) -> None:
    near, far = sides
    server = Echo(far, server_pair)
    encrypted = TlsSocket(near, TlsSettings(authority.ca_file), "127.0.0.1:1")
    greet(encrypted)
    content = bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256)
    left = memoryview(content)
    is_full = False
    while len(left):
        # Small parts before a large one, which are joined; cut at other positions every time.
        parts = [part for part in (left[:100], left[100:5_000], left[5_000:]) if len(part)]
        sent = sent_of(encrypted, parts)
        left = left[sent:]
        if not sent:
            is_full = True
            assert encrypted.wants_write
            server.read_on()
            wait(encrypted)
    assert is_full
    assert received(encrypted, SIZE) == content
    encrypted.close()
    server.thread.join(20)


def sent_of(encrypted: TlsSocket, parts: list[memoryview]) -> int:
    try:
        return encrypted.sendmsg(parts)
    except BlockingIOError:
        return 0


def greet(encrypted: TlsSocket) -> None:
    while not encrypted.handshake():
        wait(encrypted)


def received(encrypted: TlsSocket, size: int) -> bytes:
    """Receive `size` bytes through a buffer that is no multiple of a TLS record."""
    found = bytearray()
    buffer = memoryview(bytearray(50_001))
    while len(found) < size:
        try:
            got = encrypted.recv_into(buffer)
        except BlockingIOError:
            assert not encrypted.pending
            wait(encrypted)
            continue
        assert got, "the stream ended early"
        # A short read says that there is nothing more, here as with a plain socket.
        assert got == len(buffer) or not encrypted.pending
        found += buffer[:got]
    return bytes(found)


def test_a_peer_that_hangs_up_without_goodbye_ends_the_stream(
    sides: tuple[socket.socket, socket.socket], authority: Authority
) -> None:
    near, far = sides
    encrypted = TlsSocket(near, TlsSettings(authority.ca_file), "127.0.0.1:1")
    assert not encrypted.handshake()
    far.close()
    with pytest.raises(ConnectionResetError):
        greet(encrypted)
    encrypted.close()
