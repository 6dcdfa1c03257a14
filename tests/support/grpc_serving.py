"""A gRPC server over a fake shell, on a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocketmq_broker.servers.grpc_server import GrpcLimits, start_grpc_server
from support.fake_shell import FakeShell

_WAIT_SECONDS = 30


class Serving:
    """Where the server listens; `stop` and `start` restart it there."""

    def __init__(self, shell: FakeShell, loop: asyncio.AbstractEventLoop) -> None:
        self.shell = shell
        self.loop = loop
        self.port = 0

    @property
    def endpoints(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        limits = GrpcLimits(stop_grace_seconds=0.05)
        starting = start_grpc_server(self.shell, port=self.port, limits=limits)
        future = asyncio.run_coroutine_threadsafe(starting, self.loop)
        self._server = future.result(_WAIT_SECONDS)
        self.port = self._server.port

    def stop(self) -> None:
        stopping = asyncio.run_coroutine_threadsafe(self._server.stop(), self.loop)
        stopping.result(_WAIT_SECONDS)


@contextmanager
def serving(shell: FakeShell) -> Iterator[Serving]:
    """Serve `shell` for the length of a `with`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-broker")
    thread.start()
    try:
        server = Serving(shell, loop)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_WAIT_SECONDS)
        loop.close()
