"""Streams of records from the gRPC server over a fake shell: ranges, waiting, back-pressure."""

from __future__ import annotations

import asyncio
import struct
from itertools import pairwise

import pytest

from rocketmq_broker.servers.grpc_server import GrpcServer
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.grpc.bulk.records import PullRange, decode_chunk
from rocketmq_wire.requests.messages import PullMessages, PullStatus
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from support.fake_shell import FakeQueue, offsets_of, queue
from support.grpc_clients import Client, run, shell_with, until

KIB = 1024


# --- streams of records ---------------------------------------------------------------------


def test_ranges_are_streamed_one_after_the_other_and_wholly() -> None:
    shell = shell_with(FakeQueue(0, 1_000), FakeQueue(50, 500))

    async def test(client: Client, _: GrpcServer) -> None:
        ranges = (PullRange(queue(1), 60, 200), PullRange(queue(0), 0, 1_000))
        chunks = await client.chunks(*ranges, chunk_size=10_000)
        assert [chunk.range_index for chunk in chunks] == [0] * 2 + [1] * 10
        for index, wanted in enumerate(ranges):
            own = [chunk for chunk in chunks if chunk.range_index == index]
            assert [own[0].start, own[-1].end] == [wanted.start, wanted.end]
            assert all(a.end == b.start for a, b in pairwise(own))
            offsets = [n for chunk in own for n in offsets_of(chunk.records[0])]
            assert offsets == list(range(wanted.start, wanted.end or 0))
            assert all(
                struct.unpack(f"<{len(chunk.sizes or b'') // 4}i", chunk.sizes or b"")
                == (100,) * (chunk.end - chunk.start)
                for chunk in own
            )

    run(shell, test)


def test_a_range_without_an_end_goes_up_to_the_queues_end_and_says_so() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        found, last = await client.chunks(PullRange(queue(0), 5))
        assert (found.start, found.end, found.status) == (5, 9, PullStatus.FOUND)
        assert (last.start, last.end, last.status) == (9, 9, PullStatus.NO_NEW_MESSAGE)

    run(shell_with(FakeQueue(0, 9)), test)


def test_a_waiting_stream_hands_on_what_arrives() -> None:
    shell = shell_with(FakeQueue(0, 1))

    async def test(client: Client, _: GrpcServer) -> None:
        stream = client.stream(PullRange(queue(0), 1), suspend_ms=20_000)
        await until(lambda: shell.held == 1)
        shell.arrive(queue(0), 2)
        chunk = decode_chunk(await stream.read())
        assert (chunk.start, chunk.end) == (1, 3)
        stream.cancel()
        await until(lambda: shell.held == 0)

    run(shell, test)


def test_a_held_pull_is_given_up_when_its_client_goes() -> None:
    shell = shell_with(FakeQueue(0, 1))

    async def test(client: Client, _: GrpcServer) -> None:
        pull = PullMessages("g", queue(0), 1, 32, suspend_ms=20_000)
        asking = asyncio.ensure_future(client.call(pull))
        await until(lambda: shell.held == 1)
        asking.cancel()
        await until(lambda: shell.held == 0)

    run(shell, test)


def test_a_stretch_without_a_match_is_passed_over_in_few_chunks() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        chunks = await client.chunks(
            PullRange(queue(0), 0, 10_000), expression="none", chunk_size=1_000
        )
        assert [(chunk.start, chunk.end) for chunk in chunks][-1][-1] == 10_000
        assert all(a.end == b.start for a, b in pairwise(chunks))
        # 1,000 pulls of 10 offsets each.
        assert len(chunks) == 16
        assert all(chunk.records == () for chunk in chunks)

    run(shell_with(FakeQueue(0, 10_000)), test)


def test_a_filtered_stream_covers_what_did_not_match() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        chunks = await client.chunks(PullRange(queue(0), 0, 40), expression="odd", chunk_size=1_000)
        assert [(chunk.start, chunk.end) for chunk in chunks] == [
            (start, start + 10) for start in range(0, 40, 10)
        ]
        offsets = [n for chunk in chunks for n in offsets_of(chunk.records[0])]
        assert offsets == list(range(1, 40, 2))

    run(shell_with(FakeQueue(0, 100)), test)


@pytest.mark.parametrize(
    ("start", "end", "status", "goes_on_at"),
    [
        (0, 10, PullStatus.OFFSET_ILLEGAL, 20),
        (31, 40, PullStatus.OFFSET_ILLEGAL, 30),
        (30, 40, PullStatus.NO_NEW_MESSAGE, 30),
    ],
)
def test_offsets_that_are_not_there_end_the_stream_with_the_queues_bounds(
    start: int, end: int, status: PullStatus, goes_on_at: int
) -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        other, missing = await client.chunks(
            PullRange(queue(1), 0, 1), PullRange(queue(0), start, end), PullRange(queue(1), 0, 1)
        )
        assert (missing.status, missing.end) == (status, goes_on_at)
        assert (missing.queue_start, missing.queue_end) == (20, 30)
        assert (other.range_index, missing.range_index) == (0, 1)

    run(shell_with(FakeQueue(20, 30), FakeQueue(0, 1)), test)


def test_nothing_comes_behind_a_refused_range() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        (refused,) = await client.chunks(PullRange(queue(7), 0, 5), PullRange(queue(0), 0, 1))
        assert isinstance(refused.error, TopicNotFoundError)

    run(shell_with(FakeQueue(0, 1)), test)


def test_a_range_without_an_end_is_followed_by_the_next_one() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        chunks = await client.chunks(PullRange(queue(0), 0), PullRange(queue(1), 0, 1))
        assert [chunk.range_index for chunk in chunks] == [0, 0, 1]

    run(shell_with(FakeQueue(0, 1), FakeQueue(0, 1)), test)


def test_a_client_that_stops_reading_makes_the_broker_hold_a_few_chunks() -> None:
    shell = shell_with(FakeQueue(0, 10_000_000))

    async def test(client: Client, _: GrpcServer) -> None:
        stream = client.stream(PullRange(queue(0), 0, 10_000_000), chunk_size=256 * KIB)
        await stream.read()
        for _turn in range(20):
            before = len(shell.asked)
            await asyncio.sleep(0.05)
            if len(shell.asked) == before:
                break
        # A gigabyte is there. What was read for it fits the client's window and two chunks.
        assert len(shell.asked) < 40
        others = await client.call(GetMaxOffset(queue(0)))
        assert others == [OffsetReply(10_000_000)]
        stream.cancel()

    run(shell, test)
