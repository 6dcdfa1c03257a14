"""A broker inside this process, on a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, TypeVar

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.servers.start import Addresses, RunningBroker, start_broker

_START_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 60.0
_T = TypeVar("_T")


class Broker:
    """A broker to start and stop: `with Broker(BrokerConfig(data_dir=...)) as broker: ...`

    Args:
        config: The settings; keys without a value have their defaults.
        grpc_when_asked: Starts gRPC at the first read of `endpoints`: the broker starts in half the
            time.
    """

    def __init__(self, config: BrokerConfig, *, grpc_when_asked: bool = False) -> None:
        """With `grpc_when_asked`, the first read of `endpoints` starts gRPC of a broker in memory.

        The broker starts in half the time, because it does not load gRPC's libraries before.
        """
        self.config = config
        self._grpc_when_asked = grpc_when_asked
        self._running: RunningBroker | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._addresses: Addresses | None = None
        self._stop_error: BaseException | None = None
        self._lock = threading.RLock()
        """Held to pass work to the loop, which takes none after a stop."""

    def start(self) -> Broker:
        """Start the broker, and return once it serves.

        Raises StorageError, ConfigError, TimeoutError.
        """
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        started: Future[Addresses] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started)), name="rocketmq-broker", daemon=True
        )
        self._thread.start()
        try:
            self._addresses = _result(started, "start")
        except BaseException:
            self._thread.join(_STOP_SECONDS_MAX)
            self._thread = None
            raise
        return self

    @property
    def name_server(self) -> str:
        """`host:port` for the option `nameServer`."""
        return self._serving().name_server

    @property
    def endpoints(self) -> str:
        """`host:port` for the option `endpoints`.

        Raises ConfigError if the port is in use, TimeoutError, and RuntimeError if the broker
        serves no gRPC, or stops.
        """
        with self._lock:
            serving = self._serving()
            if not self.config.grpc:
                raise RuntimeError("this broker serves no gRPC: its configuration has grpc = false")
            if serving.endpoints is not None:
                return serving.endpoints
            assert self._running is not None
            assert self._loop is not None
            asked = asyncio.run_coroutine_threadsafe(self._running.serve_grpc(), self._loop)
        serving = _result(asked, "serve gRPC")
        with self._lock:
            if self._addresses is not None:
                self._addresses = serving
        assert serving.endpoints is not None
        return serving.endpoints

    def stop(self) -> None:
        """Stop the broker, and return once everything is on the disk and no thread is left.

        A second call does nothing. Raises StorageError if the disk failed meanwhile.
        """
        with self._lock:
            thread, self._thread, self._addresses = self._thread, None, None
            if thread is None or self._loop is None or self._stop is None:
                return
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join(_STOP_SECONDS_MAX)
        if thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {_STOP_SECONDS_MAX:.0f} seconds")
        error, self._stop_error = self._stop_error, None
        if error is not None:
            raise error

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serving(self) -> Addresses:
        if self._addresses is None:
            raise RuntimeError("the broker is not running: call start() first")
        return self._addresses

    async def _run(self, started: Future[Addresses]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            running = await start_broker(self.config, grpc_when_asked=self._grpc_when_asked)
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame
            started.set_exception(error)
            return
        self._running = running
        started.set_result(running.addresses)
        await self._stop.wait()
        try:
            await running.stop()
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame
            self._stop_error = error


def _result(future: Future[_T], what: str) -> _T:
    try:
        return future.result(_START_SECONDS_MAX)
    except CancelledError:
        raise RuntimeError(f"the broker stopped before it could {what}") from None
    except FutureTimeoutError:
        if future.done():
            raise
        seconds = f"{_START_SECONDS_MAX:.0f} seconds"
        raise TimeoutError(f"the broker did not {what} within {seconds}") from None
