"""A plain gRPC client of the broker's server over a fake shell, both on one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from rocketmq_broker.servers.grpc_server import GrpcLimits, GrpcServer, start_grpc_server
from rocketmq_wire.grpc.bulk.mapping import PULL_RECORDS_PATH, method_of
from rocketmq_wire.grpc.bulk.records import (
    PULL_RECORDS,
    PullRange,
    PullRecords,
    RecordChunk,
    decode_chunk,
)
from rocketmq_wire.model import Subscription
from rocketmq_wire.requests.contract import Request
from support.fake_shell import FakeQueue, FakeShell, queue


class Client:
    """A plain gRPC client of the server under test."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    async def call(self, *wanted: Request[Any], timeout: float = 10) -> list[Any]:
        method = method_of(wanted[0])
        stub = self.channel.unary_unary(method.path)
        content = await stub(method.encode(wanted), timeout=timeout)
        return method.decode_outcomes(wanted, content)

    def stream(
        self, *ranges: PullRange, expression: str = "*", chunk_size: int = 0, suspend_ms: int = 0
    ) -> Any:
        request = PullRecords(
            "group", ranges, Subscription(expression), chunk_size=chunk_size, suspend_ms=suspend_ms
        )
        stub = self.channel.unary_stream(PULL_RECORDS_PATH)
        return stub(PULL_RECORDS.encode(request), timeout=30)

    async def chunks(self, *ranges: PullRange, **options: Any) -> list[RecordChunk]:
        return [decode_chunk(content) async for content in self.stream(*ranges, **options)]


Test = Callable[[Client, GrpcServer], Awaitable[None]]


@asynccontextmanager
async def serving(shell: FakeShell, limits: GrpcLimits | None = None) -> AsyncIterator[GrpcServer]:
    server = await start_grpc_server(shell, limits=limits)
    try:
        yield server
    finally:
        await server.stop()


def run(shell: FakeShell, test: Test, limits: GrpcLimits | None = None) -> None:
    """Serve `shell`, and run `test` with a client on the same loop."""

    async def main() -> None:
        async with serving(shell, limits) as server:
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
            target = f"127.0.0.1:{server.port}"
            async with grpc.aio.insecure_channel(target, options=options) as channel:
                await test(Client(channel), server)

    asyncio.run(asyncio.wait_for(main(), 60))


def shell_with(*queues: FakeQueue) -> FakeShell:
    return FakeShell({queue(index): found for index, found in enumerate(queues)})


async def until(claim: Callable[[], bool]) -> None:
    """Let the loop run until the claim holds; `run` limits the time."""
    while not claim():
        await asyncio.sleep(0.001)
