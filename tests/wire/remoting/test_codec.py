"""Requests and replies on the wire: every request both ways, and refusals."""

from __future__ import annotations

import pytest

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    LocalProtocolError,
    NotAuthorizedError,
    ProgressNotFoundError,
    RemoteProtocolError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_reply, encode_request
from rocketmq_wire.remoting.frames import FrameDecoder
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.brokers import SettingsReply
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import ClientsReply, ListGroupClients
from rocketmq_wire.requests.messages import RecordsReply, SendRecords, SendReply, SendStatus
from rocketmq_wire.requests.offsets import GetMaxOffset
from rocketmq_wire.requests.registration import RegisterReply
from rocketmq_wire.requests.topics import GetRoute
from support.remoting_exchanges import EXCHANGES, PULL, QUEUE, SEND, ask, header_of
from support.remoting_sessions import receive

GOLDEN_JSON = (
    "000000830000007D7B22636F6465223A3130352C226578744669656C6473223A7B22746F706963223A2254227D2C22"
    "666C6167223A302C226C616E6775616765223A22505954484F4E222C226F7061717565223A372C2273657269616C69"
    "7A655479706543757272656E74525043223A224A534F4E222C2276657273696F6E223A3430317D4242"
)
GOLDEN_BINARY = (
    "000000270100002100690301910000000700000000000000000000000C0005746F70696300000001544242"
)
REQUESTS = [request for request, _, _ in EXCHANGES]
EXCHANGED_ELSEWHERE = {
    RequestCode.SEND_MESSAGE,  # A second code of a send.
    RequestCode.LITE_PULL_MESSAGE,  # A second code of a pull.
    RequestCode.QUERY_ASSIGNMENT,  # From here on in codecs/test_pop.py.
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.BATCH_ACK_MESSAGE,
}


def refusal_of(header: Header, body: bytes) -> BrokerError | None:
    """What a broker answers to a request it cannot read; any other error is the test's failure."""
    try:
        decode_request(header, body)
    except BrokerError as error:
        return error
    return None


@pytest.mark.parametrize(("asked", "code"), [(request, code) for request, code, _ in EXCHANGES])
def test_every_request_survives_the_wire(asked: Request[Reply], code: int):
    encoded = encode_request(asked)
    assert encoded.code == code
    assert all(isinstance(value, str) for value in encoded.ext_fields.values())
    header = header_of(encoded.code, encoded.ext_fields)
    assert decode_request(header, b"".join(encoded.body)) == asked


@pytest.mark.parametrize(("asked", "reply"), [(request, reply) for request, _, reply in EXCHANGES])
def test_every_reply_survives_the_wire(asked: Request[Reply], reply: Reply):
    assert ask(asked, reply) == reply


def test_the_golden_frames_ask_for_a_route():
    for encoded in (GOLDEN_JSON, GOLDEN_BINARY):
        decoder = FrameDecoder()
        receive(decoder, bytes.fromhex(encoded))
        frame = decoder.next_frame()
        assert frame is not None
        assert decode_request(frame.header, frame.body) == GetRoute("T")


def test_a_numbers_range_is_that_of_its_java_type():
    fields = encode_request(PULL).ext_fields
    for name, bits in (("queueId", 31), ("queueOffset", 63)):
        for value in (-(2**bits), 2**bits - 1):
            assert refusal_of(header_of(11, fields | {name: str(value)}), b"") is None
        for value in (-(2**bits) - 1, 2**bits):
            refusal = refusal_of(header_of(11, fields | {name: str(value)}), b"")
            assert refusal is not None
            assert name in refusal.remark


@pytest.mark.parametrize("asked", REQUESTS)
def test_a_request_that_lacks_a_field_is_refused_or_has_a_default(asked: Request[Reply]):
    encoded = encode_request(asked)
    for name in encoded.ext_fields:
        fields = {key: value for key, value in encoded.ext_fields.items() if key != name}
        refusal = refusal_of(header_of(encoded.code, fields), b"".join(encoded.body))
        assert refusal is None or (refusal.code == 1 and name in refusal.remark)


@pytest.mark.parametrize("asked", REQUESTS)
def test_a_field_of_the_wrong_kind_is_refused_or_taken_as_text(asked: Request[Reply]):
    encoded = encode_request(asked)
    for name in encoded.ext_fields:
        for value in ("", "x", "9" * 400, str(2**63), str(-(2**63) - 1), "1.5", "\ud800"):
            fields = {**encoded.ext_fields, name: value}
            refusal = refusal_of(header_of(encoded.code, fields), b"[]")
            assert refusal is None or refusal.code == 1


@pytest.mark.parametrize("name", ["queueId", "queueOffset", "maxMsgNums", "sysFlag"])
@pytest.mark.parametrize(
    "value", ["", "-", "x", "1.5", "0x1", "1_0", " 1", "--1", "²", str(2**63), str(-(2**63) - 1)]
)
def test_a_number_that_is_none_is_refused_by_name(name: str, value: str):
    fields = encode_request(PULL).ext_fields | {name: value}
    refusal = refusal_of(header_of(11, fields), b"")
    assert refusal is not None
    assert f"{name} is no number" in refusal.remark


@pytest.mark.parametrize("asked", REQUESTS)
@pytest.mark.parametrize("body", [b"[]", b"{", b'{"x":', b"\xff", b"7"])
def test_a_broken_answer_is_a_protocol_error_or_has_defaults(asked: Request[Reply], body: bytes):
    try:
        reply = decode_reply(asked, Header(0, flag=1), body)
    except RemoteProtocolError:
        return
    # Lines of settings and records are no JSON, and a registration's answer has no body.
    assert isinstance(reply, (Done, SettingsReply, RecordsReply, RegisterReply))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, BrokerError),
        (2, BrokerBusyError),
        (3, UnsupportedRequestError),
        (14, BrokerBusyError),
        (16, NotAuthorizedError),
        (17, TopicNotFoundError),
        (22, ProgressNotFoundError),
        (29, BrokerError),
        (215, BrokerBusyError),
        (1500, BrokerBusyError),
    ],
)
def test_a_refusal_is_the_same_error_on_both_sides(code: int, kind: type[BrokerError]):
    with pytest.raises(kind, match="why") as caught:
        ask(GetMaxOffset(QUEUE), kind(code, "why"))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.remark) == (code, "why")


def test_a_refusal_without_a_remark_is_read():
    with pytest.raises(BrokerError):
        decode_reply(PULL, Header(1, flag=1), b"")


@pytest.mark.parametrize("code", [0, 3442, 200_049, -25_536, 99_999])
def test_an_unknown_code_is_answered_with_3(code: int):
    with pytest.raises(UnsupportedRequestError, match=f" request type {code} not supported"):
        decode_request(header_of(code, {}), b"")


def test_every_request_code_has_an_exchange() -> None:
    assert set(RequestCode) - {code for _, code, _ in EXCHANGES} == EXCHANGED_ELSEWHERE


def test_what_only_grpc_knows_is_refused():
    with pytest.raises(LocalProtocolError, match="SendRecords"):
        encode_request(SendRecords(group="p", queue=QUEUE, records=b""))


def test_code_1_means_no_member_only_with_its_remark():
    reply = encode_reply(ListGroupClients("g"), ClientsReply(()))
    assert (reply.code, reply.remark) == (1, "no consumer for this group, g")
    with pytest.raises(BrokerError, match="AclException"):
        decode_reply(ListGroupClients("g"), Header(1, remark="AclException: no"), b"")


def test_a_stored_but_not_flushed_message_is_no_error():
    for status in SendStatus:
        reply = ask(SEND, SendReply(status, "0A00", 0, 0))
        assert isinstance(reply, SendReply)
        assert reply.status is status
    with pytest.raises(BrokerError):
        decode_reply(SEND, Header(13, remark="the message is illegal"), b"")
