"""gRPC that starts on demand, also while the broker stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_broker import broker as broker_module
from rocketmq_broker.servers import start as assembly
from rocketmq_broker.servers.start import start_broker
from rocketmq_broker.storage.disk.config_files import Configs

CONFIG = BrokerConfig(flush="memory")


@pytest.mark.parametrize(
    ("host", "has_accounts", "is_warned"),
    [
        ("0.0.0.0", False, True),
        ("0.0.0.0", True, False),
        ("127.0.0.2", False, False),
        ("::1", False, False),
    ],
)
def test_a_broker_without_accounts_warns_if_others_reach_it(
    host: str,
    has_accounts: bool,
    is_warned: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "auth.json"
    path.write_text("{}")
    with Broker(replace(CONFIG, host=host, auth_file=str(path) if has_accounts else "")):
        pass
    assert ("no accounts are set" in caplog.text) is is_warned


class SlowGrpc:
    """A gRPC server whose start waits until the test releases it."""

    port = 1

    def __init__(self) -> None:
        self.has_begun, self.is_released = threading.Event(), threading.Event()
        self.starts = self.stops = 0

    async def begin(self, *_: object) -> SlowGrpc:
        self.starts += 1
        self.has_begun.set()
        while not self.is_released.is_set():
            await asyncio.sleep(0.001)
        return self

    async def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def grpc(monkeypatch: pytest.MonkeyPatch) -> SlowGrpc:
    slow = SlowGrpc()
    monkeypatch.setattr(assembly, "_begin_grpc", slow.begin)
    return slow


def test_a_start_that_is_under_way_when_the_broker_stops_leaves_no_server(grpc: SlowGrpc) -> None:
    async def play() -> None:
        running = await start_broker(CONFIG, grpc_when_asked=True)
        asked = asyncio.create_task(running.serve_grpc())
        await asyncio.to_thread(grpc.has_begun.wait, 10)
        late = asyncio.create_task(running.serve_grpc())
        stopped = asyncio.create_task(running.stop())
        await asyncio.sleep(0.05)
        grpc.is_released.set()
        await stopped
        assert (await asked).endpoints is not None
        with pytest.raises(RuntimeError, match="the broker stops"):
            await late
        with pytest.raises(RuntimeError, match="the broker stops"):
            await running.serve_grpc()

    asyncio.run(play())
    assert (grpc.starts, grpc.stops) == (1, 1)


def test_a_start_that_takes_too_long_is_raised(
    grpc: SlowGrpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(CONFIG, grpc_when_asked=True) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(broker_module, "_START_SECONDS_MAX", 0.05)
            with pytest.raises(TimeoutError, match="the broker did not serve gRPC within 0 sec"):
                _ = broker.endpoints
        grpc.is_released.set()
        # The next read of the endpoints waits for the same start.
        assert broker.endpoints.endswith(":1")
    assert (grpc.starts, grpc.stops) == (1, 1)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, SimpleNamespace]:
    got = SimpleNamespace(value=None, error=None)

    def run() -> None:
        try:
            got.value = call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            got.error = error

    thread = threading.Thread(target=run)
    thread.start()
    return thread, got


def test_who_asks_beside_a_stop_gets_an_answer_at_once(grpc: SlowGrpc) -> None:
    broker = Broker(CONFIG, grpc_when_asked=True).start()
    asking, asked = in_thread(lambda: broker.endpoints)
    assert grpc.has_begun.wait(10)
    stopping, stopped = in_thread(broker.stop)
    grpc.is_released.set()
    for thread in (asking, stopping):
        thread.join(10)
        assert not thread.is_alive()
    assert asked.value is not None
    assert stopped.error is None
    assert (grpc.starts, grpc.stops) == (1, 1)
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.endpoints


def test_asks_and_stops_in_any_order_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[SlowGrpc] = []

    async def begin(*_: object) -> SlowGrpc:
        served.append(SlowGrpc())
        await asyncio.sleep(0)
        return served[-1]

    begin_grpc: Callable[..., Awaitable[object]] = begin
    monkeypatch.setattr(assembly, "_begin_grpc", begin_grpc)
    for _ in range(20):
        broker = Broker(CONFIG, grpc_when_asked=True).start()
        asking, asked = in_thread(lambda broker=broker: broker.endpoints)  # type: ignore[misc]
        broker.stop()
        asking.join(10)
        assert not asking.is_alive()
        assert asked.value or isinstance(asked.error, RuntimeError), asked.error
    assert all(one.stops == 1 for one in served)


def test_a_start_that_fails_behind_grpc_leaves_nothing_that_runs(
    grpc: SlowGrpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save = Configs.save

    def refuse(configs: Configs, name: str, content: Mapping[str, object]) -> None:
        if name == "addresses.json":
            raise OSError("no room")
        save(configs, name, content)

    grpc.is_released.set()
    monkeypatch.setattr(Configs, "save", refuse)
    config = BrokerConfig(data_dir=str(tmp_path))
    before = threading.active_count()
    for _ in range(2):
        # The second start finds the store unlocked.
        with pytest.raises(OSError, match="no room"):
            asyncio.run(start_broker(config))
    assert (grpc.starts, grpc.stops) == (2, 2)
    assert threading.active_count() == before
