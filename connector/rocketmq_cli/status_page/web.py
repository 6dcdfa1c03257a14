"""Samples a cluster, and serves pages, metrics and health over HTTP: nothing can be changed.

A page of another site must not read this one through a browser inside the network. Therefore a
server on loopback answers only requests for loopback names, and no page may be framed or run
scripts.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from rocketmq_cli.connection import queues_of
from rocketmq_cli.groups import group_offsets, is_system_group
from rocketmq_cli.messages.records import message_record, read_messages
from rocketmq_cli.status_page import metrics, pages
from rocketmq_cli.status_page.history import BrokerSample, History, Sample
from rocketmq_cli.terminal.output import Cell
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup import find_by_id, find_by_key
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, raise_first
from rocketmq_wire.model import MASTER_ID, CommittedOffset, OffsetRange, QueueId, is_internal_topic
from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply

V = TypeVar("V")
_LOG: Final = logging.getLogger(__name__)
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
_PLAIN: Final = "text/plain; charset=utf-8"
_FIELDS_MAX: Final = 20
_REQUEST_TIMEOUT_S: Final = 30
# An older newest sample means that the observer waits for the cluster.
_STALE_INTERVALS: Final = 6
_GROUP: Final = "rmq-status-page"
_SHOWN_MAX: Final = 50
_NEWEST_PER_QUEUE: Final = 10
# The digits of the largest offset, 2^63 - 1.
_DIGITS_MAX: Final = 19
HISTORY_LENGTH: Final = 720
"""An hour, with a sample every 5 seconds."""
# A slow sample is followed by a longer pause, so that the cluster is idle most of the time.
_REST_PER_SAMPLE: Final = 3
_STOP_TIMEOUT_S: Final = 10


class Answer(NamedTuple):
    content: str
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK


class Observer:
    """Adds samples to `history`; readers hold `lock`.

    A failure becomes a sample with its problem.
    """

    def __init__(self, settings: ConnectionSettings, interval_s: float) -> None:
        self.history = History(HISTORY_LENGTH)
        self.lock = threading.Lock()
        self.interval_s = interval_s
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmq-status-page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        with open_cluster(self._settings) as cluster:
            while not self._stopped.is_set():
                began = time.monotonic()
                sample = take_sample(cluster, time.time_ns() // 1_000_000)
                with self.lock:
                    self.history.add(sample)
                took_s = time.monotonic() - began
                self._stopped.wait(max(self.interval_s - took_s, took_s * _REST_PER_SAMPLE))


def take_sample(cluster: Cluster, now_ms: int) -> Sample:
    """Read the state of a cluster; requests that fail become problems of the sample."""
    problems: list[str] = []
    try:
        info = cluster.cluster_info()
        topics = [name for name in cluster.topics() if not is_internal_topic(name)]
        answers = cluster.ask_masters(GetRuntimeInfo())
        groups = [name for name in cluster.groups() if not is_system_group(name)]
    except RocketMQError as error:
        return Sample(now_ms, problems=(str(error),))
    brokers = []
    for broker in info.brokers:
        answer = answers.get(broker.name)
        brokers.append(
            BrokerSample(
                broker.name,
                broker.cluster,
                broker.addresses.get(MASTER_ID, ""),
                answer.settings if isinstance(answer, SettingsReply) else {},
                None if isinstance(answer, SettingsReply) else str(answer or "has no master"),
            )
        )
    unavailable = {broker.name for broker in brokers if broker.error is not None}

    def queues_of(group: str) -> Mapping[QueueId, CommittedOffset]:
        queues, problem = group_offsets(cluster, group)
        # An unavailable broker is reported once, not for every group.
        if problem is not None and not problem.missing.keys() <= unavailable:
            problems.append(str(problem))
        return queues

    stats = _each(topics, cluster.topic_stats, problems)
    offsets = _each(groups, queues_of, problems)
    return Sample(now_ms, tuple(brokers), stats, offsets, tuple(problems))


def _each(names: Iterable[str], ask: Callable[[str], V], problems: list[str]) -> dict[str, V]:
    """The answer for each name; failures are added to the problems instead."""
    found: dict[str, V] = {}
    for name in names:
        try:
            found[name] = ask(name)
        except RocketMQError as error:  # noqa: PERF203 - each failure is that of one name
            problems.append(f"{name}: {error}")
    return found


class StatusPage:
    """Serves at `address` until it is closed."""

    def __init__(
        self, settings: ConnectionSettings, *, host: str, port: int, interval_s: float
    ) -> None:
        self.observer = Observer(settings, interval_s)
        self._settings = settings
        self._server = (_ServerIPv6 if ":" in host else _Server)((host, port), _Handler)
        self._server.page = self
        self.is_local = host in _LOOPBACK
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
        """The messages by key, or by queue and offset; else the newest of every queue."""
        found: Sequence[Mapping[str, Cell]] = ()
        status = HTTPStatus.OK
        problem = wrong_number(wanted)
        if problem is not None:
            status = HTTPStatus.BAD_REQUEST
        elif wanted.get("topic", "").strip():
            try:
                with open_cluster(self._settings) as cluster:
                    found = browse(cluster, wanted)
            except (TopicNotFoundError, UsageError) as error:
                problem, status = str(error), HTTPStatus.NOT_FOUND
            except RocketMQError as error:
                problem = str(error)
        return Answer(pages.messages(wanted, found, problem), status=status)

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
            if host not in _LOOPBACK:
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


def wrong_number(wanted: Mapping[str, str]) -> str | None:
    """Describe a wrong queue or offset of the request; None if both are right."""
    for name in ("queue", "offset"):
        text = wanted.get(name, "").strip()
        if text and not (text.isdecimal() and len(text) <= _DIGITS_MAX):
            shown = text if len(text) <= _DIGITS_MAX else f"{text[:_DIGITS_MAX]}…"
            return f"{name} must be a number of at most {_DIGITS_MAX} digits, not {shown!r}"
    return None


def browse(cluster: Cluster, wanted: Mapping[str, str]) -> Sequence[Mapping[str, Cell]]:
    """The messages of a request whose numbers are right."""
    topic, key, queue, offset = (
        wanted.get(name, "").strip() for name in ("topic", "key", "queue", "offset")
    )
    if key:
        named = find_by_id(cluster, topic, key, _SHOWN_MAX)
        named = named or find_by_key(cluster, topic, key, _SHOWN_MAX)
        return [message_record(broker, message) for broker, message in named]
    queues = queues_of(cluster, topic, int(queue)) if queue else cluster.queues(topic)
    count = _SHOWN_MAX if queue else _NEWEST_PER_QUEUE
    ranges = []
    for each, held in sorted(raise_first(cluster.bounds(queues)).items()):
        start = max(held.start, int(offset) if offset else held.end - count)
        end = min(held.end, start + count)
        if start < end:
            ranges.append(OffsetRange(each, start, end))
    messages = read_messages(cluster, ranges, _GROUP)
    found = [message_record(each.broker, message) for each, message in messages]
    return sorted(found, key=lambda record: str(record["stored"]), reverse=True)[:_SHOWN_MAX]
