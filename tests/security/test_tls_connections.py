"""TLS between this client and the bundled broker, over both transports, and its refusals.

Every refusal must come within two seconds, by an error of its own that says what to do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings, TlsSettings
from rocketmq_wire.errors import TlsError
from rocketmq_wire.model import Message, OffsetRange, TopicConfig
from support.certificates import Authority, Pair, replace_pair

TRANSPORTS = ("remoting", "grpc")
BODY_SIZE = 100_000
HANDSHAKE_FAILURE = bytes((21, 3, 3, 0, 2, 2, 40))
"""A record with a fatal alert."""
COUNT = 200

Serve = Callable[..., Broker]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(server_pair: Pair) -> Iterator[Serve]:
    running: list[Broker] = []

    def start(mode: str, pair: Pair | None = server_pair, **keys: str) -> Broker:
        files = {} if pair is None else pair_keys(pair)
        config = BrokerConfig(flush="memory", tls_mode=mode, **files, **keys)  # type: ignore[arg-type]
        running.append(Broker(config).start())
        return running[-1]

    yield start
    for broker in running:
        broker.stop()


def pair_keys(pair: Pair) -> dict[str, str]:
    return {"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file}


def settings_for(broker: Broker, transport: str, tls: TlsSettings | None) -> ConnectionSettings:
    if transport == "grpc":
        return ConnectionSettings(endpoints=broker.endpoints, tls=tls)
    return ConnectionSettings(name_servers=(broker.name_server,), tls=tls)


@contextlib.contextmanager
def refused(kind: str) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(TlsError) as caught:
        yield
    assert caught.value.kind == kind, str(caught.value)
    assert str(caught.value).startswith(f"[ROCKETMQ_TLS.{kind}] 127.0.0.1:")
    assert time.monotonic() - began < 2.0


class NoCommonCipher:
    """A server that answers every greeting with the alert that it shares no cipher."""

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                side, _ = self._listener.accept()
                with side:
                    side.settimeout(20)
                    side.recv(64 * 1024)
                    side.sendall(HANDSHAKE_FAILURE)


def ask(settings: ConnectionSettings) -> tuple[str, ...]:
    with open_cluster(settings) as cluster:
        return cluster.topics()


def send_and_read(cluster: Cluster, settings: ConnectionSettings, topic: str) -> None:
    """Megabytes there and back: many TLS records, and more than any buffer holds at a time."""
    cluster.create_topic(TopicConfig(topic, read_queue_count=1, write_queue_count=1))
    (queue,) = cluster.queues(topic)
    with Producer(settings) as producer:
        for number in range(COUNT):
            body = number.to_bytes(4, "big") * (BODY_SIZE // 4)
            producer.send(Message(topic, body), queue)
    covered = size = 0
    for chunk in cluster.read_ranges([OffsetRange(queue, 0, COUNT)], ReadSpec("readers")):
        assert chunk.start == covered
        covered, size = chunk.end, size + len(chunk.body)
    assert covered == COUNT
    assert size > COUNT * BODY_SIZE


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_megabytes_pass_through_tls_both_ways(
    serve: Serve, authority: Authority, transport: str, mode: str
) -> None:
    settings = settings_for(serve(mode), transport, TlsSettings(authority.ca_file))
    with open_cluster(settings) as cluster:
        send_and_read(cluster, settings, "orders")


def test_a_permissive_port_takes_plaintext_as_well(serve: Serve, transport: str) -> None:
    settings = settings_for(serve("permissive"), transport, None)
    with open_cluster(settings) as cluster:
        send_and_read(cluster, settings, "orders")


def test_plaintext_against_tls_is_advised_to_use_it(serve: Serve, transport: str) -> None:
    broker = serve("enforcing")
    with refused("REQUIRED"):
        ask(settings_for(broker, transport, None))


def test_tls_against_plaintext_is_advised_to_leave_it(
    serve: Serve, authority: Authority, transport: str
) -> None:
    broker = serve("disabled", None)
    with refused("PLAINTEXT_SERVER"):
        ask(settings_for(broker, transport, TlsSettings(authority.ca_file)))


def test_an_expired_certificate_is_refused(
    serve: Serve, authority: Authority, transport: str
) -> None:
    broker = serve("enforcing", authority.issue(is_expired=True))
    with refused("CERTIFICATE_EXPIRED"):
        ask(settings_for(broker, transport, TlsSettings(authority.ca_file)))


def test_a_certificate_for_another_name_is_refused_until_that_name_is_given(
    serve: Serve, authority: Authority, transport: str
) -> None:
    broker = serve("enforcing", authority.issue("DNS:mq.example"))
    tls = TlsSettings(authority.ca_file)
    with refused("CERTIFICATE_NAME"):
        ask(settings_for(broker, transport, tls))
    ask(settings_for(broker, transport, replace(tls, server_name="mq.example")))


def test_a_strangers_certificate_is_refused_unless_anything_goes(
    serve: Serve, authority: Authority, stranger: Authority, transport: str
) -> None:
    broker = serve("enforcing", stranger.issue())
    with refused("CERTIFICATE_UNKNOWN"):
        ask(settings_for(broker, transport, TlsSettings(authority.ca_file)))
    ask(settings_for(broker, transport, TlsSettings(verifies=False)))


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_a_server_that_wants_a_certificate_takes_a_good_one_only(
    serve: Serve,
    authority: Authority,
    stranger: Authority,
    client_pair: Pair,
    transport: str,
    mode: str,
) -> None:
    broker = serve(mode, tls_client_auth="require", tls_client_ca_file=authority.ca_file)
    tls = TlsSettings(authority.ca_file)
    with refused("CLIENT_CERTIFICATE"):
        ask(settings_for(broker, transport, tls))
    strange = stranger.issue("DNS:reader")
    with refused("CLIENT_CERTIFICATE"):
        shown = replace(tls, cert_file=strange.cert_file, key_file=strange.key_file)
        ask(settings_for(broker, transport, shown))
    shown = replace(tls, cert_file=client_pair.cert_file, key_file=client_pair.key_file)
    ask(settings_for(broker, transport, shown))


def test_an_optional_certificate_may_be_left_out(
    serve: Serve, authority: Authority, client_pair: Pair, transport: str
) -> None:
    broker = serve("enforcing", tls_client_auth="optional", tls_client_ca_file=authority.ca_file)
    tls = TlsSettings(authority.ca_file)
    ask(settings_for(broker, transport, tls))
    shown = replace(tls, cert_file=client_pair.cert_file, key_file=client_pair.key_file)
    ask(settings_for(broker, transport, shown))


def test_files_that_are_not_there_are_named(
    serve: Serve, authority: Authority, server_pair: Pair, transport: str
) -> None:
    broker = serve("enforcing")
    with refused("FILE"):
        ask(settings_for(broker, transport, TlsSettings("/nowhere/ca.pem")))
    with refused("FILE"):
        # A certificate without its key.
        shown = TlsSettings(authority.ca_file, cert_file=server_pair.cert_file)
        ask(settings_for(broker, transport, shown))


def test_other_tls_failures_carry_the_librarys_words(authority: Authority, transport: str) -> None:
    with NoCommonCipher() as address:
        tls = TlsSettings(authority.ca_file)
        with refused("HANDSHAKE"):
            if transport == "grpc":
                ask(ConnectionSettings(endpoints=address, tls=tls))
            else:
                ask(ConnectionSettings(name_servers=(address,), tls=tls))


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_a_renewed_certificate_counts_without_a_restart_and_old_connections_live_on(
    serve: Serve, authority: Authority, stranger: Authority, transport: str, mode: str
) -> None:
    pair = authority.issue()
    broker = serve(mode, pair)
    settings = settings_for(broker, transport, TlsSettings(authority.ca_file))
    with open_cluster(settings) as cluster:
        cluster.topics()
        replace_pair(pair, stranger.issue())
        _until(lambda: _fails(settings), "the new certificate to be shown")
        cluster.topics()
        with open_cluster(
            settings_for(broker, transport, TlsSettings(stranger.ca_file))
        ) as trusting:
            trusting.topics()


def test_files_renewed_at_the_client_count_for_its_next_connection(
    serve: Serve, authority: Authority, stranger: Authority, transport: str, tmp_path: Path
) -> None:
    broker = serve("enforcing", tls_client_auth="require", tls_client_ca_file=authority.ca_file)
    trusted, shown = tmp_path / "ca.pem", stranger.issue("DNS:reader")
    shutil.copyfile(stranger.ca_file, trusted)
    # File systems store times with a resolution of some milliseconds.
    os.utime(trusted, (0, 0))
    tls = TlsSettings(str(trusted), cert_file=shown.cert_file, key_file=shown.key_file)
    settings = settings_for(broker, transport, tls)
    with refused("CERTIFICATE_UNKNOWN"):
        ask(settings)
    shutil.copyfile(authority.ca_file, trusted)
    with refused("CLIENT_CERTIFICATE"):
        ask(settings)
    replace_pair(shown, authority.issue("DNS:reader"))
    with open_cluster(settings) as cluster:
        cluster.topics()
        replace_pair(shown, stranger.issue("DNS:reader"))
        cluster.topics()
        with refused("CLIENT_CERTIFICATE"):
            ask(settings)


def _fails(settings: ConnectionSettings) -> bool:
    try:
        ask(settings)
    except TlsError as error:
        return error.kind == "CERTIFICATE_UNKNOWN"
    return False


def _until(is_so: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + 10.0
    while not is_so():
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        time.sleep(0.05)
