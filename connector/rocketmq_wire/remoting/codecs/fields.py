"""What the remoting codecs of all requests share: codes, strict readers, the row of their table.

Header fields travel as text. `Fields` and the `member` functions check names, types and ranges;
what they raise becomes a refusal on the broker's side and a protocol error on the client's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, json_object
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.offsets import OffsetReply

CLIENT_VERSION: Final = 401
"""V4_9_4: name servers answer strict JSON, and newer servers send no GO_AWAY."""


BROKER_VERSION: Final = 479
"""V5_3_3: clients with SQL subscriptions refuse brokers below 232."""


class RequestCode(enum.IntEnum):
    """The request codes that this project sends or answers."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_BROKER_CONSUME_STATS = 317
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_TOPIC_CONFIG = 351
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(enum.IntEnum):
    """The response codes that the codecs themselves make or look at."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    REQUEST_CODE_NOT_SUPPORTED = 3


_NUMBER_SIZE_MAX: Final = 20


class EncodedRequest(NamedTuple):
    """A request as a frame carries it; the body's parts follow each other."""

    code: int
    ext_fields: dict[str, str]
    body: tuple[Buffer, ...] = ()


class EncodedReply(NamedTuple):
    """A reply as a frame carries it; the body's parts follow each other."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: tuple[Buffer, ...] = ()


class Fields:
    """Typed access to header fields. Every method raises RemoteProtocolError for a bad one."""

    __slots__ = ("_fields", "language", "version")

    def __init__(self, fields: Mapping[str, str], version: int = 0, language: str = "") -> None:
        self._fields = fields
        self.version, self.language = version, language
        """Of the frame's header: what the sender understands depends on its version."""

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if value is None:
            raise RemoteProtocolError(f"the header field {name} is missing")
        return value

    def optional_text(self, name: str) -> str | None:
        """The field's text; None when it is absent or empty."""
        return self._fields.get(name) or None

    def int32(self, name: str, default: int | None = None) -> int:
        return self._integer(name, default, 31)

    def int64(self, name: str, default: int | None = None) -> int:
        text = self._fields.get(name)
        # Eighteen digits fit whatever they are; most numbers of most answers come this way.
        if text is not None and len(text) < 19 and text.isdecimal():
            return int(text)
        return self._integer(name, default, 63)

    def boolean(self, name: str, default: bool) -> bool:
        """Java's reading: `true` in any case is true, any other text false."""
        value = self._fields.get(name)
        return default if value is None else value.lower() == "true"

    def has(self, name: str) -> bool:
        return name in self._fields

    def _integer(self, name: str, default: int | None, bits: int) -> int:
        text = self._fields.get(name)
        if text is None:
            if default is None:
                raise RemoteProtocolError(f"the header field {name} is missing")
            return default
        # Python's int() takes blanks and underscores, too, and no end of digits.
        is_number = len(text) <= _NUMBER_SIZE_MAX and text.removeprefix("-").isdecimal()
        value = int(text) if is_number else 0
        if not is_number or not -(1 << bits) <= value < 1 << bits:
            raise RemoteProtocolError(f"the header field {name} is no number: {text[:40]!r}")
        return value


Q = TypeVar("Q", bound="Request[Reply]")
P = TypeVar("P", bound=Reply)


@dataclass(frozen=True, slots=True)
class Codec(Generic[Q, P]):
    """How one kind of request and its reply look on the wire."""

    code: RequestCode
    request: type[Q]
    encode: Callable[[Q], tuple[dict[str, str], tuple[Buffer, ...]]]
    """Header fields and body of a request."""
    decode: Callable[[Fields, Buffer], Q]
    encode_reply: Callable[[Q, P], EncodedReply]
    decode_reply: Callable[[Q, EncodedReply], P]
    """Called for the reply codes in `codes`; the body comes in one part."""
    codes: frozenset[int] = frozenset({ResponseCode.SUCCESS})
    """Reply codes that are answers; all others are errors."""


# --- parts that many requests share ---------------------------------------------------------


BROKER_NAME: Final = "bname"
"""Which broker a request is meant for: brokers ignore it, RocketMQ's proxy insists on it."""


def queue_fields(queue: QueueId) -> dict[str, str]:
    """The header fields that name a queue."""
    fields = {"topic": queue.topic, "queueId": str(queue.index)}
    if queue.broker:
        fields[BROKER_NAME] = queue.broker
    return fields


def queue_of(fields: Fields) -> QueueId:
    """The queue that a request names; its broker is "" when the request says none."""
    return QueueId(fields.text("topic"), fields.text(BROKER_NAME, ""), fields.int32("queueId"))


def success(
    ext_fields: dict[str, str] | None = None, body: Json = None, remark: str = ""
) -> EncodedReply:
    """Code 0 with header fields, and a body written as strict JSON."""
    parts = () if body is None else (fastjson.dumps(body).encode("utf-8", "replace"),)
    return EncodedReply(ResponseCode.SUCCESS, remark or None, ext_fields or {}, parts)


def encode_done(request: Request[Reply], reply: Done) -> EncodedReply:
    del request
    return success(remark=reply.remark)


def decode_done(request: Request[Reply], reply: EncodedReply) -> Done:
    del request
    return Done(reply.remark or "")


def encode_offset(request: Request[Reply], reply: OffsetReply) -> EncodedReply:
    del request
    return success({"offset": str(reply.value)})


def decode_offset(request: Request[Reply], reply: EncodedReply) -> OffsetReply:
    del request
    return OffsetReply(Fields(reply.ext_fields).int64("offset"))


def json_body(reply: EncodedReply) -> dict[str, Json]:
    """The JSON object in a reply's body; empty when there is no body."""
    return json_object(reply.body[0] if reply.body else b"")
