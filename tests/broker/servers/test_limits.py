"""What one peer may send: requests that are refused before, or instead of, long work."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_wire.codes import PublicCode, ResponseCode
from rocketmq_wire.limits import (
    HEADER_SIZE_MAX,
    LIST_SIZE_MAX,
    PUBLIC_ENTRIES_MAX,
    REQUEST_SIZE_MAX,
)
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import SERVICE
from support.public_peer import PublicPeer, outgoing, resource
from support.remoting_peer import RemotingPeer
from support.remoting_sessions import encode_frame

_ACCOUNTS = """\
accounts:
  - accessKey: reader-key
    secretKey: reader-secret
"""
_HEARTBEAT = 34


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path: Path = tmp_path_factory.mktemp("accounts") / "plain_acl.yml"
    path.write_text(_ACCOUNTS)
    with Broker(config_from({"flush": "memory", "acl_file": str(path)})) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config_from({"flush": "memory"})) as broker:
        yield broker


def answer_to(broker: Broker, header: Header, body: bytes = b"") -> Header:
    with RemotingPeer(broker.name_server) as peer:
        peer.write([encode_frame(Frame(header, body))])
        decoder = FrameDecoder()
        while (frame := decoder.next_frame()) is None:
            size = peer.socket.recv_into(decoder.next_buffer())
            assert size, "the broker closed the connection"
            decoder.received(size)
        return frame.header


def bulk_status(broker: Broker, name: str, content: bytes) -> grpc.StatusCode:
    assert broker.endpoints is not None
    with grpc.insecure_channel(broker.endpoints) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{name}", bytes, bytes)
        with pytest.raises(grpc.RpcError) as caught:
            call(content, timeout=20)
        code: grpc.StatusCode = caught.value.code()  # type: ignore[attr-defined]
        return code


# --- strangers ----------------------------------------------------------------------------------


def test_the_body_of_a_stranger_is_not_parsed(guarded: Broker) -> None:
    answer = answer_to(guarded, Header(_HEARTBEAT), b"no JSON")
    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_stranger_is_answered_ten_times_a_second(guarded: Broker) -> None:
    frame = encode_frame(Frame(Header(_HEARTBEAT)))
    with RemotingPeer(guarded.name_server) as peer:
        began = time.monotonic()
        peer.write([frame * 5])
        decoder, answers = FrameDecoder(), 0
        while answers < 5:
            decoder.received(peer.socket.recv_into(decoder.next_buffer()))
            while (answer := decoder.next_frame()) is not None:
                assert answer.header.code == ResponseCode.NO_PERMISSION
                answers += 1
        assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize("name", ["Heartbeat", "SendRecords", "GetOffsets"])
def test_the_call_of_a_stranger_is_not_parsed(guarded: Broker, name: str) -> None:
    assert bulk_status(guarded, name, b"\xff\xff") is grpc.StatusCode.PERMISSION_DENIED


def test_the_streams_of_a_stranger_are_not_parsed(guarded: Broker) -> None:
    assert guarded.endpoints is not None
    with grpc.insecure_channel(guarded.endpoints) as channel:
        pulling = channel.unary_stream(f"/{SERVICE}/PullRecords", bytes, bytes)(
            b"\xff\xff", timeout=20
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(pulling)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]


# --- sizes --------------------------------------------------------------------------------------


def test_a_header_over_the_limit_ends_its_connection(broker: Broker) -> None:
    header = Header(105, ext_fields={"topic": "x" * HEADER_SIZE_MAX})
    with RemotingPeer(broker.name_server) as peer:
        peer.write([encode_frame(Frame(header))[:HEADER_SIZE_MAX]])
        assert peer.is_closed_by_broker()


def test_the_longest_properties_of_a_message_fit_a_header(broker: Broker) -> None:
    with RemotingPeer(broker.name_server) as peer:
        peer.call(CreateTopic(TopicConfig("long-properties", 1, 1)))
        properties = encode_properties({"note": '{"k":"v"},' * 3_200})
        assert len(properties) > 32_000
        queue = QueueId("long-properties", "", 0)
        assert peer.call(SendMessage("p", queue, 1, b"body", properties)).start == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[" * LIST_SIZE_MAX + b"]", f"over {LIST_SIZE_MAX}"),
        (b"{" + b'"a":[],' * 33_000 + b'"b":1}', "values, over"),
        (b"{" + b"1:1," * (REQUEST_SIZE_MAX // 4) + b"2:1}", "no strict JSON"),
    ],
)
def test_a_body_that_takes_long_to_parse_is_refused(
    broker: Broker, body: bytes, reason: str
) -> None:
    answer = answer_to(broker, Header(_HEARTBEAT), body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert reason in str(answer.remark)


def test_a_heartbeat_for_hundreds_of_groups_is_taken(broker: Broker) -> None:
    consumers = [
        {
            "groupName": f"g{number}",
            "subscriptionDataSet": [
                {"topic": f"t{topic}", "subString": "a || b", "tagsSet": ["a", "b"]}
                for topic in range(10)
            ],
        }
        for number in range(400)
    ]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
    assert REQUEST_SIZE_MAX < len(body) < LIST_SIZE_MAX
    assert answer_to(broker, Header(_HEARTBEAT), body).code == ResponseCode.SUCCESS


def test_a_bulk_call_of_millions_of_items_is_not_parsed(broker: Broker) -> None:
    began = time.process_time()
    content = b"\x1a\x00" * 7_000_000
    assert bulk_status(broker, "Heartbeat", content) is grpc.StatusCode.INVALID_ARGUMENT
    assert time.process_time() - began < 5


@pytest.mark.parametrize("size", [PUBLIC_ENTRIES_MAX + 1, 4_000])
def test_a_public_call_has_a_limit_of_entries(broker: Broker, size: int) -> None:
    assert broker.endpoints is not None
    with RemotingPeer(broker.name_server) as tool, PublicPeer(broker.endpoints) as peer:
        tool.call(CreateTopic(TopicConfig("orders", 1, 1)))
        names = {"topic": resource("orders"), "group": resource("g")}
        status = peer.call("AckMessage", entries=[{}] * size, **names).status
        assert status.code == PublicCode.BAD_REQUEST
        assert "entries in one call" in status.message
        status = peer.send(*[outgoing("orders")] * size).status
        assert status.code == PublicCode.BAD_REQUEST
        assert f"more than {PUBLIC_ENTRIES_MAX} fields" in status.message
