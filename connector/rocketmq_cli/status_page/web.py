"""Serves pages, metrics and health over HTTP: nothing can be changed.

A page of another site must not read this one through a browser inside the network. Therefore a
server on loopback answers only requests for loopback names, and no page may be framed or run
scripts.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rocketmq_cli.connection import with_suggestion
from rocketmq_cli.status_page import metrics, pages
from rocketmq_cli.status_page.browsing import Browsed, browse, wrong_value
from rocketmq_cli.status_page.sampling import Observer
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError

_LOG: Final = logging.getLogger(__name__)
_HTML: Final = "text/html; charset=utf-8"
_WHOLE: Final = {"/": pages.overview, "/topics": pages.topics, "/groups": pages.groups}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PLAIN: Final = "text/plain; charset=utf-8"
_FIELDS_MAX: Final = 20
_REQUEST_TIMEOUT_S: Final = 30
# An older newest sample means that the observer waits for the cluster.
_STALE_INTERVALS: Final = 6


class Answer(NamedTuple):
    content: str
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class StatusPage:
    """Serves at `address` until it is closed."""

    def __init__(
        self, settings: ConnectionSettings, *, host: str, port: int, interval_s: float
    ) -> None:
        self.observer = Observer(settings, interval_s)
        self._settings = settings
        self._server = (_ServerIPv6 if ":" in host else _Server)((host, port), _Handler)
        self._server.page = self
        self.is_local = _is_loopback(host)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> StatusPage:
        self.observer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.observer.stop()

    def answer(self, target: str, now_ms: int) -> Answer:
        """Answer a GET of a path with its query."""
        try:
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, max_num_fields=_FIELDS_MAX))
        except ValueError as error:
            return _malformed(error)
        if parts.path == "/messages":
            return self._messages(query)
        if parts.path == "/style.css":
            css = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
            return Answer(css, "text/css; charset=utf-8")
        with self.observer.lock:
            return self._seen(parts.path, now_ms)

    def _messages(self, wanted: Mapping[str, str]) -> Answer:
        """The messages by key, or by queue and offset; else the newest of all queues."""
        found = Browsed(())
        status = HTTPStatus.OK
        problem = wrong_value(wanted)
        if problem is not None:
            status = HTTPStatus.BAD_REQUEST
        elif wanted.get("topic", "").strip():
            try:
                with open_cluster(self._settings) as cluster:
                    try:
                        found = browse(cluster, wanted)
                    except TopicNotFoundError as error:
                        raise with_suggestion(cluster, [wanted["topic"].strip()], error) from None
            except (TopicNotFoundError, UsageError) as error:
                problem, status = str(error), HTTPStatus.NOT_FOUND
            except RocketMQError as error:
                problem = str(error)
        with self.observer.lock:
            newest = self.observer.history.newest
        topics = sorted(newest.topics) if newest is not None else ()
        return Answer(pages.messages(wanted, found, problem, topics), status=status)

    def _seen(self, path: str, now_ms: int) -> Answer:
        history, every_s = self.observer.history, self.observer.interval_s
        if path in _WHOLE:
            return Answer(_WHOLE[path](history, every_s))
        if path == "/metrics":
            return Answer(metrics.render(history.newest), metrics.CONTENT_TYPE)
        if path == "/health":
            return self._health(now_ms)
        _, kind, name = path.split("/", 2) if path.count("/") >= 2 else ("", "", "")
        made = None
        if kind == "topics":
            made = pages.topic(history, unquote(name), every_s)
        elif kind == "groups":
            made = pages.group(history, unquote(name), every_s)
        if made is not None:
            return Answer(made)
        what = f"{kind.removesuffix('s')} {unquote(name)}" if kind else f"page {path}"
        return Answer(pages.missing(what), status=HTTPStatus.NOT_FOUND)

    def _health(self, now_ms: int) -> Answer:
        newest = self.observer.history.newest
        if newest is None:
            return Answer("starting\n", _PLAIN, HTTPStatus.SERVICE_UNAVAILABLE)
        age_ms = now_ms - newest.time_ms
        if age_ms > self.observer.interval_s * 1_000 * _STALE_INTERVALS + 30_000:
            return Answer(
                f"no sample for {age_ms // 1_000} s\n", _PLAIN, HTTPStatus.SERVICE_UNAVAILABLE
            )
        down = [broker.name for broker in newest.brokers if broker.error is not None]
        if down or not newest.brokers:
            text = f"no answer from {', '.join(down) or 'the cluster'}\n"
            return Answer(text, _PLAIN, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer("ok\n", _PLAIN)


def _malformed(error: ValueError) -> Answer:
    return Answer(f"this request is malformed: {error}\n", _PLAIN, HTTPStatus.BAD_REQUEST)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    page: StatusPage


class _ServerIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "rmq"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer(), is_head=True)

    def _answer(self) -> Answer:
        page = self.server.page
        if page.is_local:
            try:
                host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            except ValueError as error:
                return _malformed(error)
            if not _is_loopback(host or ""):
                text = "only this machine may read this page\n"
                return Answer(text, _PLAIN, HTTPStatus.MISDIRECTED_REQUEST)
        try:
            return page.answer(self.path, time.time_ns() // 1_000_000)
        except Exception:  # noqa: BLE001 - a request's outermost frame: it always gets an answer
            _LOG.exception("no answer to GET %s", self.path)
            text = "this page could not be rendered; the log has the reason\n"
            return Answer(text, _PLAIN, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer, *, is_head: bool = False) -> None:
        content = answer.content.encode("utf-8", "replace")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if not is_head:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: pages refresh themselves all the time."""
