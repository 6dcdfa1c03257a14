"""The I/O thread: one call per callback, hooks, the limit of requests."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.errors import TooManyRequestsError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectionLostError, DeadlineExceededError, RocketMQError
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

QUEUE = QueueId("orders", "broker-a", 0)
Answers = queue.SimpleQueue[Reply | RocketMQError]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker({QUEUE: SimulatedQueue(0, 7)})
    broker.start()
    yield broker
    broker.stop()


def io_thread_to(broker: ScriptedBroker, permits: int = 65_535) -> IoThread:
    io = IoThread(
        ConnectionSettings(name_servers=(broker.address,)),
        name="rocketmq-io-test",
        on_notice=lambda _: None,
        responder=lambda _: None,
        permits=permits,
    )
    io.start()
    return io


def ask(io: IoThread, answers: Answers, timeout_ms: int = 30_000) -> None:
    io.submit(GetMaxOffset(QUEUE), broker="broker-a", timeout_ms=timeout_ms, on_done=answers.put)


def test_an_answer_a_time_out_and_a_broken_connection_each_call_back_once(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    io, answers = io_thread_to(broker), Answers()
    ask(io, answers)
    assert answers.get(timeout=30) == OffsetReply(7)
    broker.script = lambda request: (
        ScriptedBroker.SILENCE if isinstance(request, GetMaxOffset) else None
    )
    ask(io, answers, timeout_ms=1)
    assert isinstance(answers.get(timeout=30), DeadlineExceededError)
    ask(io, answers)
    io.stop()
    assert isinstance(answers.get(timeout=30), ConnectionLostError)
    ask(io, answers)
    assert isinstance(answers.get(timeout=30), ConnectionLostError)
    assert answers.empty()
    services = [line for line in caplog.messages if "service" in line]
    assert services == ["rocketmq-io-test: service started", "rocketmq-io-test: service ended"]


def test_a_request_above_the_limit_is_refused_at_once(broker: ScriptedBroker) -> None:
    io, answers = io_thread_to(broker, permits=2), Answers()
    broker.script = lambda request: (
        ScriptedBroker.SILENCE if isinstance(request, GetMaxOffset) else None
    )
    try:
        for _ in range(3):
            ask(io, answers)
        refused = answers.get(timeout=30)
        assert isinstance(refused, TooManyRequestsError)
        assert "ROCKETMQ_CONNECTION.TOO_MANY_REQUESTS] 2 requests wait" in str(refused)
    finally:
        io.stop()
    assert [type(answers.get(timeout=30)) for _ in range(2)] == [ConnectionLostError] * 2


class Noting:
    """A hook that notes its calls, and fails."""

    def __init__(self, error: type[BaseException]) -> None:
        self.seen: list[tuple[str, str]] = []
        self.error = error

    def before(self, broker: str | None, request: Request[Reply]) -> None:
        self.seen.append(("before", f"{type(request).__name__} at {broker}"))
        raise self.error("the hook's own")

    def after(
        self, broker: str | None, request: Request[Reply], result: Reply | RocketMQError
    ) -> None:
        del broker, request
        self.seen.append(("after", type(result).__name__))


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_hooks_see_every_request_and_its_result(
    broker: ScriptedBroker, error: type[BaseException]
) -> None:
    io, answers, hook = io_thread_to(broker), Answers(), Noting(error)
    io.hooks = (hook,)
    try:
        ask(io, answers)
        assert answers.get(timeout=30) == OffsetReply(7)
    finally:
        io.stop()
    assert hook.seen == [
        ("before", "GetMaxOffset at broker-a"),
        ("after", "OffsetReply"),
    ]


class Tracing:
    """A hook that adds a header field."""

    def before(self, broker: str | None, request: Request[Reply]) -> dict[str, str]:
        del request
        return {"traceId": str(broker)}

    def after(self, *_: object) -> None:
        pass


def test_hooks_may_add_header_fields(broker: ScriptedBroker) -> None:
    headers: list[Header] = []

    def check(header: Header, _: Buffer) -> Callable[[Request[Reply]], None]:
        headers.append(header)
        return lambda _: None

    broker.check = check
    io, answers = io_thread_to(broker), Answers()
    io.hooks = (Tracing(),)
    try:
        ask(io, answers)
        assert answers.get(timeout=30) == OffsetReply(7)
        pull = PullMessages("g", QUEUE, 0, 1)
        io.submit(pull, broker="broker-a", timeout_ms=30_000, on_done=answers.put)
        assert isinstance(answers.get(timeout=30), PullReply)
    finally:
        io.stop()
    traced = [one.ext_fields["traceId"] for one in headers if "traceId" in one.ext_fields]
    assert traced == ["broker-a", "broker-a"], "not the look-up that found the broker"
