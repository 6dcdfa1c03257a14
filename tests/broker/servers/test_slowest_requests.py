"""The slowest request of each kind holds the broker's loop for some 50 ms at most.

While one request is worked at, nobody else is served. The broker has the widest topic, and as many
groups, subscriptions and committed offsets as one peer can make with a few requests.
"""

from __future__ import annotations

import base64
import gc
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import grpc
import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.engine.messages import filtering
from rocketmq_broker.engine.messages.filtering import _SQL_TOKENS_MAX as SQL_TOKENS_MAX
from rocketmq_wire.codes import RequestCode as Code
from rocketmq_wire.limits import (
    CALL_ITEMS_MAX,
    EXPRESSION_SIZE_MAX,
    HEARTBEAT_GROUPS_MAX,
    HEARTBEAT_SUBSCRIPTIONS_MAX,
    LIST_SIZE_MAX,
    LIST_VALUES_MAX,
    PUBLIC_ENTRIES_MAX,
    REGISTRATION_TOPICS_MAX,
    REQUEST_SIZE_MAX,
    TOPIC_QUEUES_MAX,
)
from rocketmq_wire.model import BODY_SIZE_MAX, ConsumerInfo, QueueId, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.remoting.codec import _DECODERS
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.messages import SendBatch
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import SERVICE, public
from support.accounts import GROUP as MEMBERS
from support.accounts import MEMBER, SCHEMES, TOPIC, guarded_config
from support.loop_meter import LoopMeter, metered_loops
from support.remoting_peer import RemotingPeer
from support.remoting_sessions import encode_frame

HELD_MS_MAX: Final = 50
TRIES: Final = 5
"""On a busy machine the same work takes up to twice the processor time."""
WIDE, DEEP = "wide", "deep"
GROUPS = [f"group-{number}" for number in range(HEARTBEAT_GROUPS_MAX)]
GROUP = GROUPS[0]
NOW_MS = time.time_ns() // 1_000_000


def json_of(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def filled(begin: bytes, item: bytes, end: bytes, *, values: int = 1) -> bytes:
    """A list of as many items as a body may have, each with some values."""
    size = (LIST_SIZE_MAX - len(begin) - len(end)) // (len(item) + 1)
    count = min(size, (LIST_VALUES_MAX - 10) // values)
    return begin + b",".join([item] * count) + end


def heartbeat(groups: list[str], topics_each: int, kind: str = "TAG", text: str = "*") -> bytes:
    subscription = {"subString": text, "expressionType": kind}
    topics = [{"topic": f"t-{number}", **subscription} for number in range(topics_each)]
    consumers = [{"groupName": group, "subscriptionDataSet": topics} for group in groups]
    return json_of({"clientID": "c", "consumerDataSet": consumers})


def queues(count: int) -> list[dict[str, object]]:
    return [{"topic": WIDE, "brokerName": "", "queueId": number} for number in range(count)]


def locked(count: int) -> bytes:
    return json_of({"consumerGroup": GROUP, "clientId": "c", "mqSet": queues(count)})


def acks(count: int, bits: bytes) -> bytes:
    span = {"b": base64.b64encode(bits).decode(), "c": GROUP, "it": 60_000, "pt": NOW_MS, "q": 0}
    span |= {"r": "0", "rq": 0, "so": 0, "t": DEEP}
    return json_of({"brokerName": "broker-a", "acks": [span] * count})


class Case(NamedTuple):
    code: Code
    fields: Mapping[str, object] = MappingProxyType({})
    body: bytes = b""
    name: str = ""


def pull(expression: str, kind: str = "SQL92", name: str = "") -> Case:
    fields = {"consumerGroup": GROUP, "topic": DEEP, "queueId": 0, "queueOffset": 0}
    fields |= {"maxMsgNums": 100_000, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    fields |= {"subscription": expression, "expressionType": kind, "subVersion": 0}
    return Case(Code.PULL_MESSAGE, fields, name=name or expression[:20])


def pop(topic: str, name: str, **changed: object) -> Case:
    fields = {"consumerGroup": name, "topic": topic, "queueId": -1, "maxMsgNums": 32}
    fields |= {"invisibleTime": 60_000, "pollTime": 0, "bornTime": NOW_MS, "initMode": 0}
    fields |= {"exp": "*", "expType": "TAG", "order": "false", **changed}
    return Case(Code.POP_MESSAGE, fields, name=name)


def send(code: Code, body: bytes, name: str, properties: bytes = b"", topic: str = DEEP) -> Case:
    is_batch = code is Code.SEND_BATCH_MESSAGE
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": 8, "e": 0, "f": 0, "g": NOW_MS, "h": 0}
    fields |= {"i": properties.decode(), "j": 0, "k": "false", "l": 0, "m": str(is_batch).lower()}
    return Case(code, fields, body, name)


def repeated(term: str, tokens: int, joint: str = " OR ") -> str:
    """An expression that is as long as the broker takes it, of terms of that size."""
    by_size = EXPRESSION_SIZE_MAX // (len(term) + len(joint))
    return joint.join([term] * min(by_size, SQL_TOKENS_MAX // (tokens + 1)))


def batch(body: bytes, properties: dict[str, str], size: int = BODY_SIZE_MAX) -> bytes:
    entry = encode_batch([BatchEntry(0, body, encode_properties(properties))])
    return entry * (size // len(entry) - 1)


TOPIC_OF_A_BROKER = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "writeQueueNums": 8,
}


def registered(broker: str, topic: bytes, name: str, count: int = REGISTRATION_TOPICS_MAX) -> Case:
    fields = {"brokerName": broker, "brokerAddr": f"{broker}:1", "clusterName": "c", "brokerId": 0}
    topics = b",".join(b'"%s-%d":%s' % (b"t" * 100, n, topic) for n in range(count))
    wrapper = b'{"dataVersion":{},"topicConfigTable":{%s}}' % topics
    body = b'{"topicConfigSerializeWrapper":%s}' % wrapper
    return Case(Code.REGISTER_BROKER, fields, body, name)


ON_WIDE = {"topic": WIDE, "group": GROUP, "consumerGroup": GROUP}
MANY_TAGS = "||".join(f"{number:x}" for number in range(EXPRESSION_SIZE_MAX // 6))
CASES = [
    *[
        pull(repeated(term, tokens))
        for term, tokens in (
            *(("a=1", 3), ("a", 1), ("a=---1", 6), ("((a))", 5), ("NOT NOT a", 3)),
            *(("a IN ('')", 5), ("a BETWEEN 1 AND 2", 5), ("a CONTAINS 'b'", 3)),
        )
    ],
    pull("a IN (" + repeated("''", 1, ",")[:-9] + ")", name="SQL92 list"),
    pull("a" + "=a" * 190, name="SQL92 chain"),
    pull("--\n" * (EXPRESSION_SIZE_MAX // 3), name="SQL92 comments"),
    pull("a = 1", name="SQL92 of all messages"),
    pull(MANY_TAGS, "TAG", name="tags"),
    pull("none", "TAG", name="no tag"),
    Case(Code.HEART_BEAT, body=filled(b'{"clientID":"c","x":[', b"[]", b"]}", values=2), name="[]"),
    Case(Code.HEART_BEAT, body=filled(b'{"clientID":"c","x":[', b"{}", b"]}", values=2), name="{}"),
    Case(
        Code.HEART_BEAT, body=filled(b'{"clientID":"c","x":[', b"1" * 4_000, b"]}"), name="digits"
    ),
    Case(Code.HEART_BEAT, body=heartbeat(GROUPS, 5), name="many groups"),
    Case(Code.HEART_BEAT, body=heartbeat(GROUPS, 5), name="many groups again"),
    Case(Code.HEART_BEAT, body=heartbeat(["g"], HEARTBEAT_SUBSCRIPTIONS_MAX), name="many topics"),
    Case(Code.HEART_BEAT, body=heartbeat(GROUPS[:7], 1, text=MANY_TAGS), name="long tags"),
    Case(
        Code.HEART_BEAT,
        body=json_of({"clientID": "c", "producerDataSet": [{"groupName": g} for g in GROUPS]}),
        name="producers",
    ),
    Case(Code.LOCK_BATCH_MQ, body=locked(CALL_ITEMS_MAX)),
    Case(Code.LOCK_BATCH_MQ, body=locked(15_000)),
    Case(Code.UNLOCK_BATCH_MQ, body=locked(CALL_ITEMS_MAX)),
    Case(Code.UNLOCK_BATCH_MQ, body=locked(15_000)),
    Case(Code.BATCH_ACK_MESSAGE, body=acks(24, b"\xff" * 512), name="bits"),
    Case(Code.BATCH_ACK_MESSAGE, body=acks(CALL_ITEMS_MAX, b"\1"), name="spans"),
    Case(
        Code.CHECK_CLIENT_CONFIG,
        body=json_of(
            {
                "subscriptionData": {
                    "topic": WIDE,
                    "subString": repeated("b=1", 3),
                    "expressionType": "SQL92",
                }
            }
        ),
    ),
    Case(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=b'{"groupName":"z","x":[' + b",".join([b"[]"] * 21_000) + b"]}",
    ),
    Case(Code.UPDATE_BROKER_CONFIG, body=b"a=1\n" * (REQUEST_SIZE_MAX // 4)),
    Case(Code.QUERY_ASSIGNMENT, body=json_of({**ON_WIDE, "clientId": "c"})),
    Case(Code.GET_TOPIC_STATS_INFO, ON_WIDE),
    Case(Code.GET_CONSUME_STATS, ON_WIDE),
    Case(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false", "timeoutMillis": 1_000}),
    Case(Code.GET_ALL_TOPIC_CONFIG),
    Case(Code.GET_ALL_TOPIC_LIST),
    Case(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    Case(Code.GET_ROUTEINFO_BY_TOPIC, ON_WIDE),
    Case(Code.QUERY_TOPIC_CONSUME_BY_WHO, ON_WIDE),
    Case(Code.INVOKE_BROKER_TO_RESET_OFFSET, {**ON_WIDE, "timestamp": 5, "isForce": "true"}),
    Case(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "wide"}),
    Case(
        Code.QUERY_MESSAGE,
        {"topic": DEEP, "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62},
    ),
    pop(WIDE, "all-queues"),
    pop(WIDE, "newest", initMode=1),
    pop(WIDE, "in-order", order="true"),
    pop(DEEP, "by-sql", exp=repeated("c=1", 3), expType="SQL92"),
    pop(DEEP, "by-tags", exp=MANY_TAGS),
    Case(
        Code.PEEK_MESSAGE, {"consumerGroup": GROUP, "topic": WIDE, "queueId": -1, "maxMsgNums": 32}
    ),
    Case(
        Code.NOTIFICATION,
        {**ON_WIDE, "queueId": -1, "pollTime": 0, "bornTime": NOW_MS, "order": "false"},
    ),
    send(
        Code.SEND_MESSAGE_V2,
        b"x" * BODY_SIZE_MAX,
        "large",
        encode_properties({f"p{n}": "v" for n in range(1_500)}),
    ),
    send(Code.SEND_MESSAGE_V2, b"x", "keys", encode_properties({"KEYS": "a " * 16_000})),
    send(Code.SEND_BATCH_MESSAGE, batch(b"x" * 84, {}), "small"),
    send(
        Code.SEND_BATCH_MESSAGE, batch(b"x" * 70, {"KEYS": "a b c d e f g h", "TAGS": "t"}), "keys"
    ),
    Case(
        Code.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": "wide-2",
            "defaultTopic": "TBW102",
            "readQueueNums": TOPIC_QUEUES_MAX,
            "writeQueueNums": TOPIC_QUEUES_MAX,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        },
    ),
    Case(Code.DELETE_TOPIC_IN_BROKER, {"topic": "wide-2"}),
    registered("b-1", json_of(TOPIC_OF_A_BROKER), "topics"),
    registered("b-1", json_of(TOPIC_OF_A_BROKER), "topics again"),
    registered("b-2", b"{}", "too many topics", LIST_VALUES_MAX // 3),
    Case(
        Code.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "t"},
        json_of({"queueDatas": [{**TOPIC_OF_A_BROKER, "brokerName": "b-1"}] * 500}),
    ),
    Case(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b-1"}),
    Case(
        Code.GET_MAX_OFFSET,
        {"topic": DEEP, "queueId": 0, **{f"x{n}": "" for n in range(5_000)}},
        name="header",
    ),
]


SMALL = {
    *(Code.SEND_MESSAGE, Code.CONSUMER_SEND_MSG_BACK, Code.RECALL_MESSAGE, Code.END_TRANSACTION),
    *(Code.VIEW_MESSAGE_BY_ID, Code.CHECK_TRANSACTION_STATE, Code.SEARCH_OFFSET_BY_TIMESTAMP),
    *(Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME, Code.QUERY_CONSUMER_OFFSET),
    *(Code.UPDATE_CONSUMER_OFFSET, Code.UNREGISTER_CLIENT, Code.NOTIFY_CONSUMER_IDS_CHANGED),
    *(Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_PRODUCER_CONNECTION_LIST, Code.LITE_PULL_MESSAGE),
    *(Code.DELETE_SUBSCRIPTIONGROUP, Code.SET_MESSAGE_REQUEST_MODE, Code.GET_TOPIC_CONFIG),
    *(Code.DELETE_TOPIC_IN_NAMESRV, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_CONFIG),
    *(Code.GET_NAMESRV_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    *(Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_KV_CONFIG, Code.QUERY_DATA_VERSION),
    *(Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.VIEW_BROKER_STATS_DATA),
    *(Code.POLLING_INFO, Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME),
    # Asked of clients, or passed on to one.
    *(Code.RESET_CONSUMER_CLIENT_OFFSET, Code.GET_CONSUMER_STATUS_FROM_CLIENT),
    *(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.GET_CONSUMER_RUNNING_INFO),
    Code.CONSUME_MESSAGE_DIRECTLY,
}
"""One message, one queue or one name is asked for, without a list or a text that grows."""


def test_every_request_has_a_slowest_case_or_is_small() -> None:
    cases = {case.code for case in CASES}
    assert cases | SMALL == set(_DECODERS)
    assert not cases & SMALL


@pytest.fixture(scope="module")
def meter() -> Iterator[LoopMeter]:
    with metered_loops() as meter:
        yield meter


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with (
        Broker(config_from({"flush": "memory", "property_filter": True})) as broker,
        RemotingPeer(broker.name_server) as peer,
    ):
        peer.call(CreateTopic(TopicConfig(WIDE, TOPIC_QUEUES_MAX, TOPIC_QUEUES_MAX)))
        peer.call(CreateTopic(TopicConfig(DEEP, 1, 1)))
        entries = batch(b"x", {"TAGS": "t", "a": "2"}, 1 << 20)
        for _ in range(3):
            peer.call(SendBatch("p", QueueId(DEEP, "", 0), NOW_MS, entries))
        entries = batch(b"x", {"TAGS": "t", "a": "2"}, 1 << 20)
        topics = range(HEARTBEAT_SUBSCRIPTIONS_MAX)
        subscribed = tuple((f"t-{number}", "*", "TAG", 1) for number in topics)
        info = ConsumerInfo(WIDE, "CONSUME_PASSIVELY", "CLUSTERING", "x", subscribed)
        peer.call(Heartbeat("c", (), (info,)))
        # Loads Arrow, which the first filtered pull needs.
        ask(broker, pull("a = 1"))
        # As the broker's own process does.
        gc.collect()
        gc.freeze()
        yield broker
        gc.unfreeze()


def ask(broker: Broker, case: Case) -> Header:
    fields = {name: str(value) for name, value in case.fields.items()}
    if "bornTime" in fields:
        fields["bornTime"] = str(time.time_ns() // 1_000_000)
    with RemotingPeer(broker.name_server) as peer:
        peer.write([encode_frame(Frame(Header(case.code, ext_fields=fields), case.body))])
        decoder = FrameDecoder()
        while (frame := decoder.next_frame()) is None:
            size = peer.socket.recv_into(decoder.next_buffer())
            assert size, "the broker closed the connection"
            decoder.received(size)
        return frame.header


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code.name} {case.name}")
def test_the_slowest_request_does_not_hold_the_loop(
    broker: Broker, meter: LoopMeter, case: Case
) -> None:
    for _ in range(TRIES):
        filtering._found_long.cache_clear()
        with meter.measured() as longest:
            ask(broker, case)
            ask(broker, Case(Code.GET_BROKER_CLUSTER_INFO))
        if longest.ms < HELD_MS_MAX:
            return
    pytest.fail(f"{longest.ms:.0f} ms")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_rights_to_many_topics_do_not_hold_the_loop(
    tmp_path: Path, meter: LoopMeter, scheme: str
) -> None:
    subscriptions = ((TOPIC, "*", "TAG", 1),) * HEARTBEAT_SUBSCRIPTIONS_MAX
    info = ConsumerInfo(MEMBERS, "CONSUME_PASSIVELY", "CLUSTERING", "x", subscriptions)
    with (
        Broker(guarded_config(scheme, tmp_path)) as broker,
        RemotingPeer(broker.name_server, credentials=MEMBER) as peer,
    ):
        peer.start(GetCluster())
        peer.next_completed()
        for _ in range(TRIES):
            with meter.measured() as longest:
                peer.call(Heartbeat("c", (), (info,)))
            if longest.ms < HELD_MS_MAX:
                return
    pytest.fail(f"{longest.ms:.0f} ms")


def field(number: int, content: bytes = b"") -> bytes:
    """A field of a protobuf message that holds a text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def grown(begin: bytes, item: bytes, size: int) -> bytes:
    return begin + item * ((size - len(begin)) // len(item))


# The numbers are those of the fields in the two services' files.
SUBSCRIPTIONS = field(5, field(1, b"t")) * (HEARTBEAT_SUBSCRIPTIONS_MAX - 1)
ON_QUEUE = field(1, field(1, WIDE.encode()))
ON_TOPIC = field(2, WIDE.encode())
MESSAGE = field(1, ON_TOPIC) + field(4, b"x") + field(3, field(3, b"id") + b"\x30\x01")
CALLS = {
    "bulk Heartbeat, groups": (
        "Heartbeat",
        field(1, b"c") + grown(b"", field(3), LIST_SIZE_MAX - 99),
    ),
    "bulk Heartbeat, subscriptions": (
        "Heartbeat",
        field(1, b"c") + field(3, field(1, b"g") + SUBSCRIPTIONS),
    ),
    "bulk Heartbeat, empty ones": (
        "Heartbeat",
        field(1, b"c") + field(3, grown(b"", field(5), LIST_SIZE_MAX - 99)),
    ),
    "bulk GetOffsets": ("GetOffsets", field(1, ON_QUEUE + b"\x10\x01") * CALL_ITEMS_MAX),
    "bulk GetOffsets, empty": ("GetOffsets", grown(b"", field(1), LIST_SIZE_MAX)),
    "bulk CommitOffset": (
        "CommitOffset",
        field(1, GROUP.encode()) + field(2, ON_QUEUE) * CALL_ITEMS_MAX,
    ),
    "bulk GetTopicStats": ("GetTopicStats", field(1, WIDE.encode())),
    "public SendMessage": ("SendMessage", field(1, MESSAGE) * PUBLIC_ENTRIES_MAX),
    "public SendMessage, keys": (
        "SendMessage",
        field(1, MESSAGE + field(3, grown(b"", field(2, b"k"), 30_000))) * 30,
    ),
    "public SendMessage, properties": (
        "SendMessage",
        field(1, MESSAGE + b"".join(field(2, field(1, b"%d" % n)) for n in range(900))) * 70,
    ),
    "public SendMessage, too many": (
        "SendMessage",
        field(1, MESSAGE + grown(b"", field(2), 16_000_000)),
    ),
    "public AckMessage": (
        "AckMessage",
        field(1, field(2, b"g")) + field(2, ON_TOPIC) + field(3) * PUBLIC_ENTRIES_MAX,
    ),
    "public AckMessage, empty": ("AckMessage", grown(b"", field(3), LIST_SIZE_MAX)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_slowest_call_does_not_hold_the_loop(
    broker: Broker, meter: LoopMeter, name: str
) -> None:
    method, content = CALLS[name]
    service = SERVICE if name.startswith("bulk") else public.SERVICE
    with grpc.insecure_channel(broker.endpoints) as channel:
        call = channel.unary_unary(f"/{service}/{method}", bytes, bytes)
        with suppress(grpc.RpcError):
            call(b"", timeout=20, metadata=(("x-mq-client-id", "c"),))
        for _ in range(TRIES):
            with meter.measured() as longest, suppress(grpc.RpcError):
                call(content, timeout=20, metadata=(("x-mq-client-id", "c"),))
            if longest.ms < HELD_MS_MAX:
                return
    pytest.fail(f"{longest.ms:.0f} ms")
