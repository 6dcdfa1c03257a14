"""Downloads over links that are slow, and nothing else: what arrives, however late, is taken."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from rocketmq_client.download.contract import ReadLimits
from rocketmq_client.download.fetch_window import AHEAD_BYTES_MAX, FetchWindow
from rocketmq_wire.errors import ConnectionLostError, DeadlineExceededError, RocketMQError
from rocketmq_wire.remoting.session import ClientSession, ServerSession
from rocketmq_wire.requests.messages import PullMessages, PullReply
from support.simulated_queue import ORDERS, SimulatedQueue, offsets_in, window_of

TICK_MS = 100
END = 40_000
LIMITS = ReadLimits()


@dataclass
class SlowLink:
    """A window's pulls through both ends of a connection that carries `bytes_per_s`."""

    window: FetchWindow
    queue: SimulatedQueue
    bytes_per_s: int
    now_ms: int = 1_000
    heard_ms: int = 1_000
    asked: int = 0
    offsets: list[int] = field(default_factory=list)
    loses: frozenset[int] = frozenset()
    """Pulls that get no answer, by their number."""
    breaks_at_ms: int | None = None

    def __post_init__(self) -> None:
        self.client, self.server = ClientSession(), ServerSession()
        self.tickets: dict[int, int] = {}
        self.on_the_way: deque[memoryview] = deque()

    def run(self) -> SlowLink:
        while not self.window.is_finished:
            while (chunk := self.window.take()) is not None:
                inside = range(chunk.start, chunk.end)
                self.offsets += [o for o in offsets_in(chunk.body) if o in inside]
            self._ask()
            self.now_ms += TICK_MS
            self._carry(self.bytes_per_s * TICK_MS // 1_000)
            for opaque in self.client.expire(self.now_ms, heard_ms=self.heard_ms):
                self._fail(opaque, DeadlineExceededError("broker-a", "no answer"))
            if self.breaks_at_ms is not None and self.now_ms >= self.breaks_at_ms:
                self._break()
        return self

    def _ask(self) -> None:
        while (pull := self.window.next_pull(self.now_ms)) is not None:
            self.asked += 1
            request = PullMessages("g", ORDERS, pull.start, pull.count_max, pull.bytes_max)
            opaque, parts = self.client.start(
                request,
                now_ms=self.now_ms,
                timeout_ms=LIMITS.pull_timeout_ms,
                slow_ms=LIMITS.slow_pull_ms,
            )
            self.tickets[opaque] = pull.ticket
            feed(self.server, b"".join(parts))
            asked = self.server.next_request()
            assert asked is not None
            reply = self.queue.pull(pull.start, pull.count_max, pull.bytes_max)
            if self.asked not in self.loses:
                answer = b"".join(self.server.answer(asked, reply))
                self.on_the_way.append(memoryview(answer))

    def _carry(self, size: int) -> None:
        while size and self.on_the_way:
            part = self.on_the_way.popleft()
            if len(part) > size:
                self.on_the_way.appendleft(part[size:])
            self.heard_ms = self.now_ms
            feed(self.client, part[:size])
            size -= min(size, len(part))
            while (completed := self.client.next_completed()) is not None:
                assert isinstance(completed.result, PullReply)
                ticket = self.tickets.pop(completed.opaque)
                self.window.on_reply(ticket, completed.result, self.now_ms)

    def _fail(self, opaque: int, error: RocketMQError) -> None:
        ticket = self.tickets.pop(opaque)
        self.window.on_failure(ticket, error, self.now_ms, heard_ms=self.heard_ms)

    def _break(self) -> None:
        self.breaks_at_ms = None
        self.on_the_way.clear()
        for opaque in self.client.abandon():
            self._fail(opaque, ConnectionLostError("broker-a", "reset"))
        self.client, self.server = ClientSession(), ServerSession()


def feed(session: ClientSession | ServerSession, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while len(view):
        buffer = session.next_buffer()
        size = min(len(view), len(buffer))
        buffer[:size] = view[:size]
        session.received(size)
        view = view[size:]


def slow_link(bytes_per_s: int, **options: Any) -> SlowLink:
    queue = SimulatedQueue(0, END, count_cap=100_000, bytes_cap=1 << 30, size_of=lambda _: 1_024)
    return SlowLink(window_of(0, END), queue, bytes_per_s, **options)


@pytest.mark.parametrize("bytes_per_s", [30_000, 100_000, 500_000, 5_000_000])
def test_bytes_that_arrive_all_the_time_are_no_outage_however_few(bytes_per_s: int) -> None:
    link = slow_link(bytes_per_s).run()
    assert link.offsets == list(range(END))
    assert link.client.late_count == 0
    assert link.asked == slow_link(50_000_000).run().asked, "nothing is asked for twice"
    assert LIMITS.pull_timeout_ms / 1_000 < AHEAD_BYTES_MAX / 500_000, "it takes that long"


def test_an_answer_that_is_lost_is_asked_for_again_once_nothing_comes() -> None:
    link = slow_link(200_000, loses=frozenset({3})).run()
    assert link.offsets == list(range(END))
    whole = slow_link(50_000_000).run().asked
    assert link.asked == whole + 1


@pytest.mark.parametrize("breaks_at_ms", [50_000, 100_000, 150_000])
def test_a_connection_that_breaks_within_a_long_answer_is_made_again(
    breaks_at_ms: int,
) -> None:
    """A pull of 4 MiB takes longer here than an outage may."""
    link = slow_link(40_000, breaks_at_ms=breaks_at_ms).run()
    assert link.offsets == list(range(END))
