"""Name servers that a web server names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.addresses import NameServers, fetch_addresses
from rocketmq_wire.errors import ConnectError


class WebServer(ThreadingHTTPServer):
    """Answers every GET with `text`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.text, self.status = "10.0.0.1:9876;10.0.0.2:9876\n", 200
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/rocketmq/nsaddr"


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, WebServer)
        server.asked.append(self.path)
        body = server.text.encode()
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_web_server_says_where_the_name_servers_are(web: WebServer) -> None:
    assert fetch_addresses(f"{web.url}-unit?nofix=1", timeout_ms=5_000) == (
        "10.0.0.1:9876",
        "10.0.0.2:9876",
    )
    assert web.asked == ["/rocketmq/nsaddr-unit?nofix=1"]


@pytest.mark.parametrize("text", ["", "nonsense", "http://10.0.0.1:8080/x", "10.0.0.1:99999"])
def test_an_answer_without_name_servers_is_refused(web: WebServer, text: str) -> None:
    web.text = text
    with pytest.raises(ConnectError):
        fetch_addresses(web.url, timeout_ms=5_000)


def test_a_web_server_that_refuses_or_is_down_is_an_error_that_says_so(web: WebServer) -> None:
    web.status = 404
    with pytest.raises(ConnectError, match="it answered 404"):
        fetch_addresses(web.url, timeout_ms=5_000)
    with pytest.raises(ConnectError, match="no name servers from it"):
        fetch_addresses("http://127.0.0.1:1/rocketmq/nsaddr", timeout_ms=5_000)


def test_it_is_asked_once_and_a_later_answer_that_fails_changes_nothing(web: WebServer) -> None:
    servers = NameServers((web.url,), timeout_ms=5_000)
    first = servers.addresses()
    assert servers.addresses() is first
    assert len(web.asked) == 1
    web.text = "10.0.0.3:9876"
    servers.refresh(web.url)
    assert servers.addresses() == ("10.0.0.3:9876",)
    web.status = 500
    servers.refresh(web.url)
    assert servers.addresses() == ("10.0.0.3:9876",)


def test_addresses_that_are_given_are_taken_as_they_are() -> None:
    assert NameServers(("a:1", "b:2"), timeout_ms=1).addresses() == ("a:1", "b:2")


def test_a_cluster_is_reached_through_a_web_server(web: WebServer) -> None:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        web.text = broker.name_server
        with open_cluster(ConnectionSettings(name_servers=(web.url,))) as cluster:
            assert cluster.cluster_info().brokers


def test_a_web_server_is_given_alone(web: WebServer) -> None:
    with pytest.raises(ValueError, match="give it alone"):
        ConnectionSettings(name_servers=(web.url, "10.0.0.1:9876"))
