"""HTTP around the pages: paths -> pages, metrics and health. GET only; nothing can be changed here.

A page made elsewhere must not read this one through a browser inside the network: while it listens
on loopback, only names of loopback are served, and no page may be framed or run scripts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rocketmq_cli.status_page import metrics, pages
from rocketmq_cli.status_page.browsing import browse
from rocketmq_cli.status_page.observer import Observer
from rocketmq_client.settings import ConnectionSettings

_HTML: Final = "text/html; charset=utf-8"
_WHOLE: Final = {"/": pages.overview, "/topics": pages.topics, "/groups": pages.groups}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_REQUEST_TIMEOUT_S: Final = 30
# A look older than so many intervals means that the observer hangs on the cluster.
_STALE_INTERVALS: Final = 6


class Answer(NamedTuple):
    """What is sent back."""

    content: str
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK


class StatusPage:
    """Serves until closed; `address` is where."""

    def __init__(
        self, settings: ConnectionSettings, *, host: str, port: int, interval_s: float
    ) -> None:
        self.observer = Observer(settings, interval_s)
        self._settings = settings
        self._server = _Server((host, port), _Handler)
        self._server.page = self
        self.is_local = host in _LOOPBACK
        self.address = f"http://{host}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> StatusPage:
        self.observer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.observer.stop()

    def answer(self, path: str, query: Mapping[str, str], now_ms: int) -> Answer:
        """The answer to a GET."""
        history, every_s = self.observer.history, self.observer.interval_s
        if path in _WHOLE:
            return Answer(_WHOLE[path](history, every_s))
        if path == "/style.css":
            css = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
            return Answer(css, "text/css; charset=utf-8")
        if path == "/metrics":
            return Answer(metrics.render(history.newest), metrics.CONTENT_TYPE)
        if path == "/health":
            return self._health(now_ms)
        if path == "/messages":
            return Answer(pages.messages(query, *browse(self._settings, query)))
        return self._one_of(path)

    def _one_of(self, path: str) -> Answer:
        history, every_s = self.observer.history, self.observer.interval_s
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
        plain = "text/plain; charset=utf-8"
        if newest is None:
            return Answer("starting\n", plain, HTTPStatus.SERVICE_UNAVAILABLE)
        age_ms = now_ms - newest.time_ms
        if age_ms > self.observer.interval_s * 1_000 * _STALE_INTERVALS + 30_000:
            return Answer(
                f"no look for {age_ms // 1_000} s\n", plain, HTTPStatus.SERVICE_UNAVAILABLE
            )
        down = [broker.name for broker in newest.brokers if broker.error is not None]
        if down or not newest.brokers:
            text = f"no answer from {', '.join(down) or 'the cluster'}\n"
            return Answer(text, plain, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer("ok\n", plain)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    page: StatusPage


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "rmq"
    sys_version = ""

    def do_GET(self) -> None:
        page = self.server.page
        if page.is_local and not self._is_meant_for_us():
            text = "this page is served to this machine only\n"
            answer = Answer(text, "text/plain", HTTPStatus.MISDIRECTED_REQUEST)
        else:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, max_num_fields=20))
            answer = page.answer(parts.path, query, time.time_ns() // 1_000_000)
        content = answer.content.encode("utf-8", "replace")
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _is_meant_for_us(self) -> bool:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        return host in _LOOPBACK

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: a page refreshes itself for ever."""
