"""What is fuzzed: each entry point that reads foreign bytes, its errors, and inputs to start from.

A target returns or raises one of its declared errors. Everything else is a finding.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fuzz import remoting
from pyspark_rocketmq.errors import CheckpointError, UnsupportedError
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from rocketmq_arrow.bodies.reader import JsonBodies
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_arrow.decode.inflate import inflate
from rocketmq_arrow.encode.record_block import BatchPart, block_from_batches, block_from_records
from rocketmq_arrow.source_columns import COLUMNS, arrow_schema
from rocketmq_broker.errors import ConfigError
from rocketmq_broker.security.acl_4_9 import parse_plain_acl
from rocketmq_broker.security.auth_5_3 import parse_auth_file
from rocketmq_wire import fastjson, signing
from rocketmq_wire.errors import (
    BrokerError,
    CorruptRecordError,
    InflateError,
    LocalProtocolError,
    ProtocolError,
    PublicRefusal,
    RemoteProtocolError,
    SqlSyntaxError,
)
from rocketmq_wire.filters.sql92.grammar import parse_selector
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.grpc.bulk import mapping
from rocketmq_wire.grpc.bulk.records import (
    RecordChunk,
    decode_chunk,
    decode_pull_records,
    encode_chunk,
)
from rocketmq_wire.grpc.public import messages as public_messages
from rocketmq_wire.grpc.public import pops
from rocketmq_wire.model import QueueId
from rocketmq_wire.records import handles, message_id, pop_checkpoints, properties
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.stubs import public
from support.records import BORN_HOST, STORE_HOST, lay_out, make_messages, make_odd_messages
from support.remoting_exchanges import EXCHANGES

QUEUE: Final = QueueId("orders", "broker-a", 0)
_END: Final = 2**63 - 1
_INFLATED_SIZE_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    run: Callable[[bytes], object]
    declared: tuple[type[Exception], ...]
    """The errors that the entry point documents."""
    seeds: Callable[[], list[bytes]]
    """Valid inputs; the corpus adds what fuzzing found."""
    size_max: int = 4_096


# --- texts ----------------------------------------------------------------------------------------


def _fastjson(data: bytes) -> None:
    value = fastjson.loads(data)
    fastjson.canonical(value)


def _sql92(data: bytes) -> None:
    selector = parse_selector(data.decode("utf-8", "replace"))
    selector.matches({"a": "1", "b": "text", "TAGS": "x", "n": "2.5"})
    selector.matches({})


_EXPRESSIONS: Final = (
    "a > 1 AND b = 'text' OR NOT (n BETWEEN 1 AND 3.5e2)",
    "TAGS IS NOT NULL AND b IN ('x', 'it''s') AND a <> -1L",
    "b CONTAINS 'e' AND b NOT STARTSWITH 't' OR b ENDSWITH 't' -- tail",
    "a = 1 /* c */ AND TRUE = (a >= 2)",
)


def _handles(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    readers: tuple[Callable[[str], object], ...] = (
        handles.ReceiptHandle.parse,
        handles.RecallHandle.parse,
        message_id.parse_offset_message_id,
        TagExpression.parse,
    )
    readers[data[0] % len(readers) if data else 0](text)


def _handle_seeds() -> list[bytes]:
    receipt = handles.ReceiptHandle(0, 1, 60_000, 8, handles.RetryKind.NONE, "broker-a", 3, 17, 9)
    recall = handles.RecallHandle("orders", "broker-a", 1_700_000_000_000, "7F000001")
    texts = (
        receipt.text(),
        recall.text(),
        message_id.offset_message_id(STORE_HOST, 17),
        "TagA || TagB",
    )
    return [bytes([at]) + text.encode() for at, text in enumerate(texts)]


def _accounts(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    (parse_plain_acl if data[:1] == b"\0" else parse_auth_file)(text)


_PLAIN_ACL: Final = b"""globalWhiteRemoteAddresses: ['10.10.103.*', '192.168.0.{1,2}']
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  topicPerms: [a=DENY, b=PUB|SUB]
"""
_AUTH_FILE: Final = json.dumps(
    {
        "users": [{"username": "u", "password": "p", "userType": "Normal"}],
        "acls": [
            {
                "subject": "User:u",
                "policies": [
                    {
                        "policyType": "Custom",
                        "entries": [
                            {
                                "resource": ["Topic:a*", "Group:*"],
                                "actions": ["Pub", "Sub"],
                                "sourceIps": ["10.0.0.0/8"],
                                "decision": "Allow",
                            }
                        ],
                    }
                ],
            }
        ],
    }
).encode()


def _checkpoint(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        # Spark itself reads the JSON of its checkpoints.
        return
    offset = SourceOffset.from_json(value)
    assert SourceOffset.from_json(offset.to_json()) == offset


def _checkpoint_seeds() -> list[bytes]:
    offset = SourceOffset({QUEUE: 7}, {QUEUE: 0}, {QUEUE: 1_700_000_000_000}, {QUEUE: 3})
    return [json.dumps(one.to_json()).encode() for one in (offset, SourceOffset.initial({}, {}))]


def _signature(data: bytes) -> None:
    texts = data.decode("latin-1").split("\n")
    found = signing.call_signature(dict(zip((signing.AUTHORIZATION, signing.DATE_TIME), texts)))  # noqa: B905
    if found is not None:
        found.is_by("secret")


def _signature_seeds() -> list[bytes]:
    pairs = signing.sign_call(signing.Credentials("key", "secret"), "20260101T000000Z")
    fields = dict(pairs)
    return [f"{fields[signing.AUTHORIZATION]}\n{fields[signing.DATE_TIME]}".encode()]


# --- records --------------------------------------------------------------------------------------


def _record(data: bytes) -> None:
    decode_record(data)


def _properties(data: bytes) -> None:
    named = properties.decode_properties(data)
    assert properties.decode_properties(properties.encode_properties(named)) == named


def _pop_records(data: bytes) -> None:
    which, body = data[:1], data[1:]
    (pop_checkpoints.decode_ack if which == b"\1" else pop_checkpoints.decode_checkpoint)(body)


def _pop_seeds() -> list[bytes]:
    key = pop_checkpoints.CheckpointKey("orders", "g", 0, 3, 1_700_000_000_000, "broker-a")
    checkpoint = pop_checkpoints.Checkpoint(key, 60_000, (3, 4), rewrites=1)
    return [
        b"\0" + pop_checkpoints.encode_checkpoint(checkpoint),
        b"\1" + pop_checkpoints.encode_ack(pop_checkpoints.Ack(key, (4,))),
        b"\1" + pop_checkpoints.encode_ack(pop_checkpoints.Ack(key, (3, 4))),
    ]


def _stored_records() -> list[bytes]:
    records = [lay_out(one) for one in (*make_messages(6, 20), *make_odd_messages())]
    return [records[0], *(one for one in records[6:] if len(one) < 1_000), b"".join(records[:6])]


def _batches() -> list[bytes]:
    few = [BatchEntry(0, b"a", b"KEYS\1k\2"), BatchEntry(3, b"bb", b"")]
    return [encode_batch(few), encode_batch(few * 9)]


def _decode(data: bytes) -> None:
    policy = list(CorruptPolicy)[data[0] % 3] if data else CorruptPolicy.FAIL
    tags = frozenset({"x"}) if data[:1] > b"\x80" else None
    options = DecodeOptions(arrow_schema(COLUMNS), corrupt=policy, tags=tags, rows_max=3)
    for batch in Decoder(options).decode(QUEUE, 0, _END, data[1:]):
        batch.validate(full=True)


def _blocks(data: bytes) -> None:
    which, body = data[:1], data[1:]
    if which == b"\0":
        block_from_records(body, body_size_max=65_536)
        return
    part = BatchPart(body, 0, 1, BORN_HOST, 0)
    parts = [part] * (1 + (which == b"\2"))
    block_from_batches(parts, topic="orders", store_host=STORE_HOST)


def _inflate(data: bytes) -> None:
    flag = (data[0] % 5) << 8 if data else 0
    assert len(inflate(data[1:], flag, _INFLATED_SIZE_MAX)) <= _INFLATED_SIZE_MAX


def _inflate_seeds() -> list[bytes]:
    text = b"body " * 40
    codecs = {"gzip": 0, "lz4": 1, "zstd": 2}
    packed = [
        bytes([at]) + bytes(pa.compress(text, name, asbytes=True)) for name, at in codecs.items()
    ]
    return [*packed, b"\x03" + zlib.compress(text), b"\x00" + zlib.compress(text)]


_BODY_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us")),
        ("items", pa.list_(pa.struct([("n", pa.int32())]))),
    ]
)


def _json_bodies(data: bytes) -> None:
    rows = data.split(b"\n")[:200]
    read = JsonBodies(_BODY_SCHEMA, "unused").read(pa.array(rows, pa.binary()))
    bad = np.array(read.bad, np.int64)
    assert all(len(column) == len(rows) for column in read.columns)
    for row in read.bad[:3]:
        read.why(row)
    for column in read.columns:
        column.validate(full=True)
        assert column.take(bad).null_count == len(bad)


_JSON_BODIES: Final = (
    b'{"id": 1, "name": "a", "price": 1.5, "paid": true, "items": [{"n": 1}]}',
    b'{"id":2,"items":[]}\n{"id":3,"name":"c","items":null}\n[]\nnull\n{"id":"x"}',
    b'{"id": 9223372036854775807, "name": "\\u00e9\\n", "at": "2026-01-01T00:00:00"}',
)


# --- gRPC -----------------------------------------------------------------------------------------


def _bulk_grpc(data: bytes) -> None:
    request = _BULK[data[0] % len(_BULK)] if data else _BULK[0]
    method = mapping.method_of(request)
    if data[:1] < b"\x80":
        method.decode_requests(data[1:])
    else:
        method.decode_outcomes([request], data[1:])


def _bulk_requests() -> Iterator[Any]:
    for request, _, _ in EXCHANGES:
        try:
            mapping.method_of(request)
        except LocalProtocolError:
            continue
        yield request


_BULK: Final = list(_bulk_requests())


def _bulk_seeds() -> list[bytes]:
    seeds = []
    for at, request in enumerate(_BULK):
        if at < 128:
            seeds.append(bytes([at]) + mapping.method_of(request).encode([request]))
    return seeds


def _bulk_records(data: bytes) -> None:
    (decode_chunk if data[:1] == b"\0" else decode_pull_records)(data[1:])


def _bulk_record_seeds() -> list[bytes]:
    chunk = RecordChunk(0, 6, records=(b"".join(_stored_records()),))
    return [b"\0" + bytes(encode_chunk(chunk))]


def _public_grpc(data: bytes) -> None:
    which, body = data[0] % 6 if data else 0, data[1:]
    if which == 0:
        sent = public.message_class("Message")
        try:
            parsed = sent.FromString(body)
        except Exception:  # noqa: BLE001 - grpcio refuses these before our code
            return
        public_messages.outgoing_of(parsed, topic="orders", now_ms=1)
    elif which == 1:
        pops.received("orders", [body])
    elif which == 2:
        pops.brokers_of("orders", body)
    elif which == 3:
        pops.ack_errors(body)
    elif which == 4:
        pops.changed(body)
    else:
        pops.settings_answered(body)


def _public_seeds() -> list[bytes]:
    made = public.message_class("Message")(body=b"body")
    made.system_properties.tag = "t"
    made.user_properties["a"] = "b"
    status = {"code": 20000, "message": "OK"}
    return [
        b"\0" + made.SerializeToString(),
        b"\1" + public.message_class("ReceiveMessageResponse")(message=made).SerializeToString(),
        b"\3" + public.message_class("AckMessageResponse")(status=status).SerializeToString(),
        b"\5" + pops.telemetry("g", {}),
    ]


# --- the table ------------------------------------------------------------------------------------

TARGETS: Final[dict[str, Target]] = {
    "frames": Target(remoting.frames, (RemoteProtocolError,), remoting.request_frames),
    "headers": Target(remoting.headers, (RemoteProtocolError,), remoting.header_seeds),
    "server-session": Target(
        remoting.server_session, (RemoteProtocolError,), remoting.request_frames
    ),
    "client-session": Target(
        remoting.client_session, (RemoteProtocolError,), remoting.answer_frames
    ),
    "requests": Target(remoting.requests, (BrokerError,), remoting.request_seeds),
    "replies": Target(remoting.replies, (BrokerError, RemoteProtocolError), remoting.reply_seeds),
    "fastjson": Target(
        _fastjson,
        (RemoteProtocolError,),
        lambda: [b'{"a":[1,2.5,null,true,"x"],1:{"b":2}}', b"[]", b'{"a":1}'],
    ),
    "sql92": Target(
        _sql92, (SqlSyntaxError,), lambda: [text.encode() for text in _EXPRESSIONS], 1_024
    ),
    "handles": Target(_handles, (ProtocolError,), _handle_seeds, 512),
    "accounts": Target(
        _accounts, (ConfigError,), lambda: [b"\0" + _PLAIN_ACL, b"\1" + _AUTH_FILE], 2_048
    ),
    "checkpoint": Target(_checkpoint, (CheckpointError, UnsupportedError), _checkpoint_seeds),
    "signature": Target(_signature, (), _signature_seeds, 1_024),
    "record": Target(_record, (CorruptRecordError,), _stored_records),
    "properties": Target(
        _properties, (ProtocolError,), lambda: [b"KEYS\1k\2TAGS\1t", b"a\1\2", b""], 1_024
    ),
    "pop-records": Target(_pop_records, (ProtocolError,), _pop_seeds, 1_024),
    "decode": Target(
        _decode, (CorruptRecordError,), lambda: [b"\0" + one for one in _stored_records()]
    ),
    "blocks": Target(
        _blocks,
        (CorruptRecordError, LocalProtocolError),
        lambda: [
            *(b"\0" + one for one in _stored_records()),
            *(kind + one for kind in (b"\1", b"\2") for one in _batches()),
        ],
    ),
    "inflate": Target(_inflate, (InflateError,), _inflate_seeds, 1_024),
    "json-bodies": Target(_json_bodies, (), lambda: list(_JSON_BODIES), 1_024),
    "bulk-grpc": Target(_bulk_grpc, (BrokerError, ProtocolError), _bulk_seeds, 2_048),
    "bulk-records": Target(_bulk_records, (BrokerError, ProtocolError), _bulk_record_seeds),
    "public-grpc": Target(
        _public_grpc, (BrokerError, ProtocolError, PublicRefusal), _public_seeds, 2_048
    ),
}
