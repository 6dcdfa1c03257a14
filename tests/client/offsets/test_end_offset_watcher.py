"""The thread that watches the ends of queues, while brokers or the thread fail."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from rocketmq_client.errors import WatchDiedError
from rocketmq_client.offsets import end_offset_watcher as watcher
from rocketmq_client.offsets.end_offset_watcher import HELD_QUEUES_MAX, EndOffsetWatcher
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, broker_error
from rocketmq_wire.requests.topics import GetTopicStats
from support.fake_shell import queue
from support.fault_proxy import unreachable_address
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

QUEUES = [queue(index) for index in range(HELD_QUEUES_MAX)]
CONNECT_MS = 500


def test_no_caller_waits_for_connections_to_an_unreachable_machine() -> None:
    with unreachable_address() as address:
        settings = ConnectionSettings(endpoints=address, connect_timeout_ms=CONNECT_MS)
        watch = EndOffsetWatcher(settings, QUEUES)
        began = time.monotonic()
        assert watch.ends() == {}
        assert not watch.wait({QUEUES[0]: 0}, 20)
        watch.set_queues(QUEUES)
        assert time.monotonic() - began < CONNECT_MS / 1_000
        while len(errors := watch.errors()) < len(QUEUES):
            assert time.monotonic() - began < 3 * CONNECT_MS / 1_000
            watch.wait({}, 5)
        assert all(isinstance(error, ConnectError) for error in errors.values())
        began = time.monotonic()
        watch.close()
        assert time.monotonic() - began < 2 * CONNECT_MS / 1_000


@pytest.mark.parametrize("code", [3, 16])
def test_many_queues_are_watched_one_by_one_without_statistics(code: int) -> None:
    many = [queue(index) for index in range(HELD_QUEUES_MAX + 1)]
    with ScriptedBroker({one: SimulatedQueue(0, one.index) for one in many}) as broker:
        refusal = broker_error(code, "not here")
        broker.script = lambda r: refusal if isinstance(r, GetTopicStats) else None
        watch = EndOffsetWatcher(ConnectionSettings((broker.address,)), many)
        until = time.monotonic() + 20
        while len(ends := watch.ends()) < len(many):
            assert time.monotonic() < until
        assert ends == {one: one.index for one in many}
        assert watch.errors() == {}
        broker.queues[many[7]].end = 100
        assert watch.wait(ends, 20_000)
        assert watch.ends()[many[7]] == 100
        watch.close()
    asked = [r for r in broker.requests if isinstance(r, GetTopicStats)]
    assert len(asked) == 1, "what was refused is not asked for again"


class DyingTransport:
    """Fails in a way that no transport may."""

    def submit_many(self, requests: Sequence[object], **_: object) -> list[int]:
        return list(range(len(requests)))

    def completed(self, *, timeout_ms: int) -> list[object]:
        del timeout_ms
        raise KeyError("a mistake")

    def wake(self) -> None: ...

    def close(self) -> None: ...


def test_every_call_raises_after_the_threads_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watcher, "open_transport", lambda _: DyingTransport())
    watch = EndOffsetWatcher(ConnectionSettings(endpoints="127.0.0.1:1"), QUEUES)
    text = r"^\[ROCKETMQ_WATCH\.DIED\] .*KeyError.*a mistake.*Restart the query"
    with pytest.raises(WatchDiedError, match=text):
        watch.wait({QUEUES[0]: 0}, 20_000)
    with pytest.raises(WatchDiedError):
        watch.ends()
    watch.close()
