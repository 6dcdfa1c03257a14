"""The gRPC server over a fake shell: calls, streams, back-pressure, limits, start and stop."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rocketmq_broker.servers.bulk_grpc.calls import SENDS_IN_FLIGHT_MAX, parse_peer
from rocketmq_broker.servers.grpc_server import GrpcLimits, GrpcServer, start_grpc_server
from rocketmq_wire.errors import BrokerBusyError, TopicNotFoundError
from rocketmq_wire.grpc.bulk.mapping import (
    PULL_RECORDS_PATH,
    SEND_RECORDS_STREAM_PATH,
    error_from_metadata,
    method_of,
)
from rocketmq_wire.grpc.bulk.records import SEND_RECORDS, PullRange, decode_send_outcome
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.messages import SendRecords, SendReply
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)
from rocketmq_wire.requests.topics import GetRoute
from rocketmq_wire.stubs import PACKAGE, SERVICE
from support.fake_shell import FakeQueue, queue, record
from support.grpc_clients import Client, run, serving, shell_with, until

KIB = 1024


# --- single calls ---------------------------------------------------------------------------


def test_questions_about_many_queues_are_answered_in_one_call() -> None:
    shell = shell_with(FakeQueue(3, 9), FakeQueue(0, 4))

    async def test(client: Client, _: GrpcServer) -> None:
        answers = await client.call(
            GetMinOffset(queue(0)), GetMaxOffset(queue(0)), GetMaxOffset(queue(1))
        )
        assert answers == [OffsetReply(3), OffsetReply(9), OffsetReply(4)]

    run(shell, test)


def test_a_queue_without_a_committed_offset_does_not_fail_the_others() -> None:
    shell = shell_with(FakeQueue(), FakeQueue())

    async def test(client: Client, _: GrpcServer) -> None:
        assert await client.call(CommitOffset("g", queue(1), 42)) == [Done()]
        first, second = await client.call(
            GetCommittedOffset("g", queue(0)), GetCommittedOffset("g", queue(1))
        )
        assert (first.code, second) == (22, OffsetReply(42))

    run(shell, test)


def test_a_refusal_arrives_with_its_code_remark_and_a_fitting_grpc_status() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call(GetRoute("nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        metadata: Any = caught.value.trailing_metadata()
        error = error_from_metadata(metadata)
        assert isinstance(error, TopicNotFoundError)
        assert error.remark == "No topic route info for nothing"

    run(shell_with(FakeQueue()), test)


def test_bytes_that_are_no_request_are_an_invalid_argument() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        for path in (method_of(GetRoute("x")).path, PULL_RECORDS_PATH):
            stub = client.channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub(b"\xff\xff", timeout=10)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(shell_with(FakeQueue()), test)


def test_the_shell_learns_which_connection_asks() -> None:
    shell = shell_with(FakeQueue())

    async def test(client: Client, _: GrpcServer) -> None:
        await client.call(GetMaxOffset(queue(0)))
        await client.call(GetMaxOffset(queue(0)))
        first, second = shell.peers
        assert first == second
        assert (first.host, first.local_host) == ("127.0.0.1", "127.0.0.1")
        assert first.port > 0

    run(shell, test)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1", 4711),
        ("ipv6:%5B::1%5D:4711", "::1", 4711),
        ("ipv6:[fe80::1]:80", "fe80::1", 80),
        ("unix:/tmp/socket", "127.0.0.1", 0),
        ("ipv4:nonsense", "127.0.0.1", 0),
        ("", "127.0.0.1", 0),
    ],
)
def test_a_connections_name_is_read(text: str, host: str, port: int) -> None:
    peer = parse_peer(text)
    assert (peer.host, peer.port) == (host, port)
    assert peer.key < 0


def test_two_connections_have_two_keys() -> None:
    keys = {
        parse_peer(text).key
        for text in ("ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2", "ipv4:10.0.0.2:1", "ipv6:[::1]:1")
    }
    assert len(keys) == 4


# --- sends ----------------------------------------------------------------------------------


def batch(index: int, count: int) -> SendRecords:
    records = b"".join(record(offset) for offset in range(count))
    return SendRecords("g", queue(index), records, struct.pack(f"<{count}i", *[100] * count))


def test_records_arrive_as_they_were_sent() -> None:
    shell = shell_with(FakeQueue(0, 7))

    async def test(client: Client, _: GrpcServer) -> None:
        (reply,) = await client.call(batch(0, 3))
        assert (reply.start, reply.count) == (7, 3)
        assert shell.sent == [batch(0, 3)]

    run(shell, test)


def test_a_stream_of_batches_is_answered_in_order_after_the_disk() -> None:
    shell = shell_with(FakeQueue(0, 0), FakeQueue(0, 0))

    async def test(client: Client, _: GrpcServer) -> None:
        shell.gate = asyncio.Event()
        stub = client.channel.stream_stream(SEND_RECORDS_STREAM_PATH)
        stream = stub(timeout=30)
        for index in (0, 1, 0):
            await stream.write(SEND_RECORDS.encode(batch(index, 2)))
        await until(lambda: len(shell.sent) == 3)
        shell.gate.set()
        await stream.done_writing()
        replies: list[Any] = [decode_send_outcome(content) async for content in stream]
        assert [(reply.queue_index, reply.start) for reply in replies] == [(0, 0), (1, 0), (0, 2)]

    run(shell, test)


def test_a_refused_batch_is_answered_in_order() -> None:
    shell = shell_with(FakeQueue(0, 0))

    async def test(client: Client, _: GrpcServer) -> None:
        stub = client.channel.stream_stream(SEND_RECORDS_STREAM_PATH)
        stream = stub(timeout=30)
        shell.refusal = BrokerBusyError(2, "busy")
        await stream.write(SEND_RECORDS.encode(batch(0, 1)))
        refused = decode_send_outcome(await stream.read())
        shell.refusal = None
        await stream.write(SEND_RECORDS.encode(batch(0, 1)))
        stored = decode_send_outcome(await stream.read())
        await stream.done_writing()
        assert isinstance(refused, BrokerBusyError)
        assert isinstance(stored, SendReply)

    run(shell, test)


def test_a_stream_of_batches_makes_the_broker_hold_only_so_many() -> None:
    shell = shell_with(FakeQueue(0, 0))

    async def test(client: Client, _: GrpcServer) -> None:
        shell.gate = asyncio.Event()
        stub = client.channel.stream_stream(SEND_RECORDS_STREAM_PATH)
        stream = stub(timeout=30)
        content = SEND_RECORDS.encode(batch(0, 1))

        async def write_all() -> None:
            for _ in range(SENDS_IN_FLIGHT_MAX * 4):
                await stream.write(content)
            await stream.done_writing()

        writing = asyncio.ensure_future(write_all())
        await until(lambda: len(shell.sent) >= SENDS_IN_FLIGHT_MAX)
        await asyncio.sleep(0.1)
        assert len(shell.sent) <= SENDS_IN_FLIGHT_MAX + 2
        shell.gate.set()
        replies = [content async for content in stream]
        await writing
        assert len(replies) == SENDS_IN_FLIGHT_MAX * 4

    run(shell, test)


def test_a_broken_batch_ends_its_stream_as_an_invalid_argument() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        stub = client.channel.stream_stream(SEND_RECORDS_STREAM_PATH)
        stream = stub(timeout=30)
        await stream.write(b"\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(shell_with(FakeQueue()), test)


def test_a_request_over_the_limit_is_refused() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call(batch(0, 1_000))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(shell_with(FakeQueue()), test, GrpcLimits(message_size_max=64 * KIB))


# --- the server itself ----------------------------------------------------------------------


def test_health_is_serving_for_the_server_and_for_the_service() -> None:
    async def test(client: Client, _: GrpcServer) -> None:
        stub: Any = health_pb2_grpc.HealthStub(client.channel)
        for service in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(shell_with(), test)


def test_reflection_shows_the_service_with_all_that_it_needs() -> None:
    async def ask(client: Client, **wanted: Any) -> Any:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        request = reflection_pb2.ServerReflectionRequest(**wanted)
        return await stub.ServerReflectionInfo(iter([request]), timeout=10).read()

    async def test(client: Client, _: GrpcServer) -> None:
        listed = (await ask(client, list_services="")).list_services_response
        assert {service.name for service in listed.service} == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        for symbol in (f"{PACKAGE}.RecordChunk", SERVICE):
            found = await ask(client, file_containing_symbol=symbol)
            (content,) = found.file_descriptor_response.file_descriptor_proto
            file = descriptor_pb2.FileDescriptorProto.FromString(content)
            assert file.package == PACKAGE
        found = await ask(client, file_containing_symbol="grpc.health.v1.Health")
        assert found.file_descriptor_response.file_descriptor_proto

    run(shell_with(), test)


def test_a_port_in_use_is_an_os_error_with_the_address() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
                await start_grpc_server(shell_with(), "127.0.0.1", port)

    asyncio.run(main())


def test_a_second_server_does_not_share_the_port_of_the_first() -> None:
    async def main() -> None:
        async with serving(shell_with()) as server:
            with pytest.raises(OSError, match="in use"):
                await start_grpc_server(shell_with(), "127.0.0.1", server.port)

    asyncio.run(main())


def test_a_stop_ends_streams_that_wait_for_messages_soon() -> None:
    shell = shell_with(FakeQueue(0, 1))

    async def test(client: Client, server: GrpcServer) -> None:
        stream = client.stream(PullRange(queue(0), 1), suspend_ms=50_000)
        await until(lambda: shell.held == 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await server.stop()
        assert loop.time() - began < 5
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        await until(lambda: shell.held == 0)

    run(shell, test, GrpcLimits(stop_grace_seconds=0.05))


def test_what_is_under_way_at_a_stop_may_finish() -> None:
    shell = shell_with(FakeQueue(0, 0))

    async def test(client: Client, server: GrpcServer) -> None:
        shell.gate = asyncio.Event()
        asking = asyncio.ensure_future(client.call(batch(0, 1)))
        await until(lambda: len(shell.sent) == 1)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        shell.gate.set()
        (reply,) = await asking
        assert reply.count == 1
        await stopping

    run(shell, test, GrpcLimits(stop_grace_seconds=10))
