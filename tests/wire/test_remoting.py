"""Requests and replies on the wire: every request both ways, and what foreign peers send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from rocketmq_wire.headers import Header
from rocketmq_wire.model import (
    BrokerAddresses,
    ClusterInfo,
    ConsumerInfo,
    QueueId,
    QueueProgress,
    QueueSet,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.remoting import decode_reply, decode_request, encode_reply, encode_request
from rocketmq_wire.requests import (
    Boundary,
    ClientsReply,
    ClusterReply,
    CommitProgress,
    ConsumeStatsReply,
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    Done,
    GetCluster,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    GetProgress,
    GetRoute,
    GetTopicStats,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    ListTopicConfigs,
    ListTopics,
    OffsetReply,
    PullMessages,
    PullReply,
    PullStatus,
    Reply,
    Request,
    RouteReply,
    SearchOffset,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
    SendStatus,
    TopicConfigsReply,
    TopicsReply,
    TopicStatsReply,
    UnregisterClient,
)

QUEUE = QueueId("orders", "broker-a", 3)
NAMELESS = QueueId("orders", "", 3)
PULL = PullMessages(group="g", queue=QUEUE, start=42, count_max=32)
SEND = SendMessage(
    group="p",
    queue=QUEUE,
    born_ms=1_700_000_000_000,
    body=b"hello",
    properties=encode_properties({"TAGS": "TagA"}),
    flag=7,
    sys_flag=1,
)
BATCH = SendBatch(group="p", queue=QUEUE, born_ms=5, body=b"entries", properties=b"k\x01v\x02")
BROKER_A = BrokerAddresses("broker-a", "DefaultCluster", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
ROUTE = Route((QueueSet("broker-a", 8, 4, 6, 2),), (BROKER_A,), "broker-a:4")
CONFIG = TopicConfig("orders", 8, 4, 6, "MULTI_TAG", 1, True, {"message.type": "FIFO"})

EXCHANGES: list[tuple[Request[Reply], int, Reply]] = [
    (GetRoute("orders"), 105, RouteReply(ROUTE)),
    (GetRoute("orders"), 105, RouteReply(Route((), ()))),
    (
        GetCluster(),
        106,
        ClusterReply(ClusterInfo((BROKER_A,), {"DefaultCluster": ("broker-a", "broker-b")})),
    ),
    (ListTopics(), 206, TopicsReply(("a", "b"))),
    (DeleteTopicFromNameServer("orders"), 216, Done()),
    (
        Heartbeat(
            "10.0.0.1@7",
            ("p1", "p2"),
            (
                ConsumerInfo(
                    "g",
                    "CONSUME_ACTIVELY",
                    "CLUSTERING",
                    "CONSUME_FROM_FIRST_OFFSET",
                    (("orders", "TagA || TagB", "TAG", 5), ("other", "a > 1", "SQL92", 6)),
                    True,
                ),
            ),
        ),
        34,
        Done(),
    ),
    (UnregisterClient("10.0.0.1@7", "p", "g"), 35, Done()),
    (UnregisterClient("10.0.0.1@7"), 35, Done("bye")),
    (ListGroupClients("g"), 38, ClientsReply(("a@1", "b@2"))),
    (ListGroupClients("g"), 38, ClientsReply(())),
    (GetProgress("g", QUEUE), 14, OffsetReply(2**62)),
    (GetProgress("g", QUEUE, zero_if_absent=True), 14, OffsetReply(0)),
    (CommitProgress("g", QUEUE, 17), 15, Done()),
    (CommitProgress("g", QUEUE, -1), 15, Done("Offset has been previously reset")),
    (SearchOffset(QUEUE, 1_700_000_000_000), 29, OffsetReply(5)),
    (SearchOffset(QUEUE, -1, Boundary.UPPER), 29, OffsetReply(5)),
    (GetMaxOffset(QUEUE), 30, OffsetReply(9)),
    (GetMinOffset(QUEUE), 31, OffsetReply(1)),
    (GetEarliestStoreTime(QUEUE), 32, OffsetReply(-1)),
    (PULL, 11, PullReply(PullStatus.FOUND, 43, 1, 99, (b"records",), None, 1, "FOUND")),
    (
        PullMessages(
            group="g",
            queue=NAMELESS,
            start=0,
            count_max=10_000,
            bytes_max=4_000_000,
            subscription=Subscription("TagA || TagB"),
            subscription_version=7,
            commit=41,
            suspend_ms=15_000,
        ),
        11,
        PullReply(PullStatus.NO_NEW_MESSAGE, 42, 0, 42, remark="OFFSET_OVERFLOW_ONE"),
    ),
    (
        PullMessages(
            group="g", queue=QUEUE, start=0, count_max=1, uses_registered_subscription=True
        ),
        11,
        PullReply(PullStatus.OFFSET_ILLEGAL, 7, 7, 42, remark="OFFSET_TOO_SMALL"),
    ),
    (
        PullMessages(
            group="g", queue=QUEUE, start=0, count_max=1, subscription=Subscription("a>1", "SQL92")
        ),
        11,
        PullReply(PullStatus.NO_MATCHED_MESSAGE, 800, 0, 999, remark="NO_MATCHED_MESSAGE"),
    ),
    (SEND, 310, SendReply(SendStatus.OK, "0A00", 3, 42, "UNIQ")),
    (SEND, 310, SendReply(SendStatus.FLUSH_DISK_TIMEOUT, "0A00", 3, 42)),
    (
        SendMessage(
            group="p",
            queue=QueueId("orders", "", -1),
            born_ms=0,
            body=b"",
            reconsume_times=3,
            reconsume_times_max=16,
            default_queue_count=8,
        ),
        310,
        SendReply(SendStatus.SLAVE_NOT_AVAILABLE, "0A00", 0, 0),
    ),
    (BATCH, 320, SendReply(SendStatus.OK, "0A00,0A01,0A02", 3, 42, count=3)),
    (CreateTopic(CONFIG), 17, Done()),
    (CreateTopic(TopicConfig("plain"), "other"), 17, Done()),
    (DeleteTopic("orders"), 215, Done()),
    (ListTopicConfigs(), 21, TopicConfigsReply((CONFIG, TopicConfig("plain")))),
    (
        GetTopicStats("orders"),
        202,
        TopicStatsReply({QUEUE: QueueStats(1, 9, 77), NAMELESS: QueueStats(0, 0, 0)}),
    ),
    (GetConsumeStats("g"), 208, ConsumeStatsReply({}, 0.0)),
    (
        GetConsumeStats("g", "orders"),
        208,
        ConsumeStatsReply({QUEUE: QueueProgress(9, 4, 77, 5)}, 1.5),
    ),
    (ListGroups(), 201, GroupsReply(("a", "b"))),
]


def header_of(code: int, fields: dict[str, str], *, version: int = 401) -> Header:
    return Header(code, version=version, ext_fields=fields)


def ask(request: Request[Reply], reply: Reply | BrokerError) -> Reply:
    """Take a reply over the wire and back."""
    encoded = encode_reply(request, reply)
    header = Header(encoded.code, flag=1, remark=encoded.remark, ext_fields=encoded.ext_fields)
    return decode_reply(request, header, b"".join(encoded.body))


REQUESTS = [request for request, _, _ in EXCHANGES]


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
@pytest.mark.parametrize("value", ["", "x", "1.5", "0x1", str(2**63), str(-(2**63) - 1)])
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
    assert isinstance(reply, Done)


# --- errors ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("code", [0, 3442, 200_050, -25_536, 99_999])
def test_an_unknown_code_is_answered_with_3(code: int):
    with pytest.raises(UnsupportedRequestError, match=f" request type {code} not supported"):
        decode_request(header_of(code, {}), b"")


def test_what_only_grpc_knows_is_refused():
    with pytest.raises(LocalProtocolError, match="SendRecords"):
        encode_request(SendRecords(group="p", queue=QUEUE, records=b""))


def test_code_1_means_nobody_online_only_with_its_remark():
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


# --- pull -----------------------------------------------------------------------------------


def test_the_smallest_pull_of_a_foreign_client_is_read():
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3", "queueOffset": "42"}
    fields |= {"maxMsgNums": "32", "sysFlag": "4"}
    expected = PullMessages(group="g", queue=NAMELESS, start=42, count_max=32)
    for code in (11, 361):
        assert decode_request(header_of(code, fields), b"") == expected


def test_a_java_pull_is_read():
    fields = {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "42",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "41",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
        "bname": "broker-a",
        "ns": "",
        "requestSource": "-1",
    }
    assert decode_request(header_of(11, fields), b"") == PullMessages(
        group="g",
        queue=QUEUE,
        start=42,
        count_max=32,
        subscription_version=1_700_000_000_000,
        uses_registered_subscription=True,
        commit=41,
        suspend_ms=15_000,
    )


def test_commit_and_suspend_are_read_only_when_flagged():
    fields = encode_request(PULL).ext_fields | {"commitOffset": "9", "suspendTimeoutMillis": "8"}
    pull = decode_request(header_of(11, fields), b"")
    assert pull == PULL


def test_a_blank_expression_type_means_tags():
    fields = encode_request(PULL).ext_fields | {"expressionType": " "}
    assert decode_request(header_of(11, fields), b"") == PULL


def test_a_pull_names_the_broker_and_its_byte_limit():
    fields = encode_request(PullMessages("g", QUEUE, 42, 32, 4_000_000)).ext_fields
    assert (fields["bname"], fields["maxMsgBytes"], fields["sysFlag"]) == (
        *("broker-a", "4000000", "4"),
    )
    assert "bname" not in encode_request(PullMessages("g", NAMELESS, 42, 32)).ext_fields


@pytest.mark.parametrize("status", PullStatus)
def test_every_pull_answer_has_the_bounds(status: PullStatus):
    encoded = encode_reply(PULL, PullReply(status, 5, 1, 9))
    assert encoded.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "1",
        "maxOffset": "9",
    }
    assert encoded.code == status.value
    assert encoded.remark


def test_records_are_handed_on_without_a_copy():
    body = memoryview(bytearray(b"r" * 1_000_000))
    fields = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9"}
    reply = decode_reply(PULL, Header(0, ext_fields=fields), body)
    assert len(reply.records) == 1
    assert reply.records[0] is body
    parts = (memoryview(b"one"), memoryview(b"two"))
    assert encode_reply(PULL, PullReply(PullStatus.FOUND, 5, 1, 9, parts)).body is parts


def test_an_answer_without_offsets_is_refused():
    with pytest.raises(RemoteProtocolError, match=r"PULL_MESSAGE.*nextBeginOffset"):
        decode_reply(PULL, Header(0), b"")


def test_the_answer_of_a_static_topic_is_refused():
    fields = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9", "offsetDelta": "100"}
    with pytest.raises(RemoteProtocolError, match="static"):
        decode_reply(PULL, Header(0, ext_fields=fields), b"")
    assert decode_reply(PULL, Header(0, ext_fields=fields | {"offsetDelta": "0"}), b"")


# --- send -----------------------------------------------------------------------------------


def test_a_send_has_the_letters_of_the_second_version():
    assert encode_request(SEND).ext_fields == {
        "a": "p",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "1",
        "g": "1700000000000",
        "h": "7",
        "i": "TAGS\x01TagA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    assert encode_request(BATCH).ext_fields["m"] == "true"


LONG_NAMES = {
    "producerGroup": "p",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "3",
    "sysFlag": "1",
    "bornTimestamp": "1700000000000",
    "flag": "7",
    "properties": "TAGS\x01TagA\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
    "bname": "broker-a",
}


def test_a_send_with_long_names_is_the_same_send():
    assert decode_request(header_of(10, LONG_NAMES), b"hello") == SEND


def test_a_send_without_its_optional_fields_is_read():
    optional = {"properties", "reconsumeTimes", "unitMode", "batch", "bname"}
    fields = {name: value for name, value in LONG_NAMES.items() if name not in optional}
    assert decode_request(header_of(10, fields), b"") == SendMessage(
        group="p", queue=NAMELESS, born_ms=1_700_000_000_000, body=b"", flag=7, sys_flag=1
    )


def test_the_batch_field_makes_a_batch_of_any_send_code():
    fields = encode_request(BATCH).ext_fields
    assert decode_request(header_of(310, fields), b"entries") == BATCH
    assert decode_request(header_of(320, fields | {"m": "false"}), b"entries") == BATCH
    long_names = LONG_NAMES | {"batch": "true"}
    assert isinstance(decode_request(header_of(10, long_names), b"entries"), SendBatch)


def test_a_body_to_send_is_passed_on_without_a_copy():
    body = memoryview(bytes(5))
    request = SendMessage(group="p", queue=QUEUE, born_ms=0, body=body)
    encoded = encode_request(request)
    assert encoded.body[0] is body
    decoded = decode_request(header_of(310, encoded.ext_fields), body)
    assert isinstance(decoded, SendMessage)
    assert decoded.body is body


def test_a_send_answer_carries_what_java_producers_read():
    fields = encode_reply(SEND, SendReply(SendStatus.OK, "0A00", 3, 42, "UNIQ")).ext_fields
    assert fields == {
        "msgId": "0A00",
        "queueId": "3",
        "queueOffset": "42",
        "transactionId": "UNIQ",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


# --- routes and tables ----------------------------------------------------------------------

ROUTE_OF_4_9_3 = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
    b'"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":8,"topicSysFlag":2,"writeQueueNums":4}]}'
)
ROUTE_OF_5 = (
    ROUTE_OF_4_9_3.replace(b"{0:", b'{"0":')
    .replace(b",1:", b',"1":')
    .replace(b'"cluster":', b'"enableActingMaster":false,"zoneName":"z","cluster":')
)


@pytest.mark.parametrize(
    "body", [ROUTE_OF_4_9_3, ROUTE_OF_5, ROUTE_OF_4_9_3.replace(b"topicSysFlag", b"topicSynFlag")]
)
def test_routes_of_all_versions_are_read(body: bytes):
    assert decode_reply(GetRoute("orders"), Header(0), body) == RouteReply(ROUTE)


@pytest.mark.parametrize(
    ("version", "fields", "is_strict"),
    [
        (400, {}, False),
        (399, {"acceptStandardJsonOnly": "false"}, False),
        (399, {"acceptStandardJsonOnly": "true"}, True),
        (0, {"acceptStandardJsonOnly": "TRUE"}, True),
        (401, {}, True),
        (479, {"acceptStandardJsonOnly": "false"}, True),
    ],
)
def test_a_route_is_written_as_the_client_reads_it(
    version: int, fields: dict[str, str], is_strict: bool
):
    header = header_of(105, {"topic": "orders", **fields}, version=version)
    request = decode_request(header, b"")
    (body,) = encode_reply(request, RouteReply(ROUTE)).body
    if is_strict:
        assert json.loads(bytes(body))["brokerDatas"][0]["brokerAddrs"]["0"] == "10.0.0.1:10911"
    else:
        assert body == ROUTE_OF_4_9_3


def test_the_cluster_has_unquoted_keys_for_everyone():
    cluster = ClusterReply(ClusterInfo((BROKER_A,), {"DefaultCluster": ("broker-a",)}))
    (body,) = encode_reply(GetCluster(), cluster).body
    assert body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


def test_the_route_of_a_static_topic_is_refused():
    body = ROUTE_OF_5[:-1] + b',"topicQueueMappingByBroker":{"broker-a":{"topic":"orders"}}}'
    with pytest.raises(RemoteProtocolError, match="orders is a static one"):
        decode_reply(GetRoute("orders"), Header(0), body)
    empty = ROUTE_OF_5[:-1] + b',"topicQueueMappingByBroker":{}}'
    assert decode_reply(GetRoute("orders"), Header(0), empty) == RouteReply(ROUTE)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"queueDatas":{}}',
        b'{"queueDatas":[7]}',
        b'{"queueDatas":[{"brokerName":"a","perm":"6","readQueueNums":8,"writeQueueNums":8}]}',
        b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8.5,"writeQueueNums":8}]}',
        b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":7}}]}',
        b'{"brokerDatas":[{"brokerAddrs":{}}]}',
    ],
)
def test_a_route_that_is_no_route_is_refused(body: bytes):
    with pytest.raises(RemoteProtocolError):
        decode_reply(GetRoute("orders"), Header(0), body)


TOPIC_STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
    b'{"lastUpdateTimestamp":77,"maxOffset":9,"minOffset":1}},"topicPutTps":0.0}'
)
CONSUME_STATS = (
    b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
    b'{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":77,"pullOffset":5}}}'
)


def test_statistics_have_object_keys():
    stats = TopicStatsReply({QUEUE: QueueStats(1, 9, 77)})
    assert encode_reply(GetTopicStats("orders"), stats).body == (TOPIC_STATS,)
    assert decode_reply(GetTopicStats("orders"), Header(0), TOPIC_STATS) == stats
    progress = ConsumeStatsReply({QUEUE: QueueProgress(9, 4, 77, 5)}, 1.5)
    assert encode_reply(GetConsumeStats("g"), progress).body == (CONSUME_STATS,)
    assert decode_reply(GetConsumeStats("g"), Header(0), CONSUME_STATS) == progress


def test_statistics_with_keys_in_any_order_or_quoted_are_read():
    key = b'{"brokerName":"broker-a","queueId":3,"topic":"orders"}'
    expected = TopicStatsReply({QUEUE: QueueStats(1, 9, 77)})
    for other in (
        b'{"topic":"orders", "queueId":3, "brokerName":"broker-a"}',
        json.dumps(key.decode()).encode(),
    ):
        body = TOPIC_STATS.replace(key, other)
        assert decode_reply(GetTopicStats("orders"), Header(0), body) == expected


def test_consume_stats_of_4_9_have_no_pull_offset():
    body = CONSUME_STATS.replace(b',"pullOffset":5', b"")
    reply = decode_reply(GetConsumeStats("g"), Header(0), body)
    assert reply.queues[QUEUE] == QueueProgress(9, 4, 77, 0)


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{"x":{}}}',
        b'{"offsetTable":{"7":{}}}',
        b'{"offsetTable":{{"topic":"t"}:{}}}',
        TOPIC_STATS.replace(b'"maxOffset":9', b'"maxOffset":"9"'),
        TOPIC_STATS.replace(b'"maxOffset":9', b'"maxOffset":9223372036854775808'),
    ],
)
def test_statistics_that_are_none_are_refused(body: bytes):
    with pytest.raises(RemoteProtocolError, match="GET_TOPIC_STATS_INFO"):
        decode_reply(GetTopicStats("orders"), Header(0), body)


# --- groups and clients ---------------------------------------------------------------------


def test_a_java_heartbeat_is_read():
    body = (
        b'{"clientID":"10.0.0.9@4711#99","consumerDataSet":[{"consumeFromWhere":'
        b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"g",'
        b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
        b'"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,'
        b'"tagsSet":["TagA"],"topic":"orders"},{"classFilterMode":false,"codeSet":[],'
        b'"subString":"*","subVersion":1,"tagsSet":[],"topic":"%RETRY%g"}],"unitMode":false}],'
        b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],'
        b'"withoutSub":false}'
    )
    assert decode_request(header_of(34, {}), body) == Heartbeat(
        "10.0.0.9@4711#99",
        ("CLIENT_INNER_PRODUCER",),
        (
            ConsumerInfo(
                "g",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                (
                    ("orders", "TagA", "TAG", 1_700_000_000_000),
                    ("%RETRY%g", "*", "TAG", 1),
                ),
            ),
        ),
    )


def test_a_heartbeat_holds_tags_and_their_hashes():
    (consumer,) = EXCHANGES[5][0].consumers  # type: ignore[attr-defined]
    (body,) = encode_request(Heartbeat("c", (), (consumer,))).body
    tagged, sql = json.loads(bytes(body))["consumerDataSet"][0]["subscriptionDataSet"]
    assert tagged["tagsSet"] == ["TagA", "TagB"]
    assert tagged["codeSet"] == [2598919, 2598920]
    assert (sql["tagsSet"], sql["codeSet"], sql["expressionType"]) == ([], [], "SQL92")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"x", b'{"clientID":7}', b"\xff\xfe"])
def test_a_heartbeat_that_is_none_is_refused(body: bytes):
    with pytest.raises(BrokerError) as caught:
        decode_request(header_of(34, {}), body)
    assert caught.value.code == 1


def test_clients_of_4_9_may_read_absent_progress_as_zero():
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3"}
    assert decode_request(header_of(14, fields), b"") == GetProgress("g", NAMELESS, True)


def test_a_search_of_an_old_client_wants_the_first_message():
    fields = {"topic": "orders", "queueId": "3", "timestamp": "5"}
    assert decode_request(header_of(29, fields), b"") == SearchOffset(NAMELESS, 5)
    upper = fields | {"boundaryType": "upper"}
    assert decode_request(header_of(29, upper), b"") == SearchOffset(NAMELESS, 5, Boundary.UPPER)


def test_topic_configs_of_4_9_have_no_attributes():
    body = (
        b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"orders":{"order":false,'
        b'"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"orders",'
        b'"topicSysFlag":0,"writeQueueNums":8}}}'
    )
    assert decode_reply(ListTopicConfigs(), Header(0), body) == TopicConfigsReply(
        (TopicConfig("orders", 8, 8),)
    )


def test_attributes_taken_away_are_not_added():
    fields = encode_request(CreateTopic(TopicConfig("orders"))).ext_fields
    fields["attributes"] = "+message.type=FIFO,-queue.type, +a=b=c,+,x"
    request = decode_request(header_of(17, fields), b"")
    assert isinstance(request, CreateTopic)
    assert request.config.attributes == {"message.type": "FIFO", "a": "b=c"}


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
queues = st.builds(QueueId, names, names, st.integers(-(2**31), 2**31 - 1))
i64 = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(queues, st.builds(QueueStats, i64, i64, i64), max_size=5))
def test_any_statistics_survive_the_wire(table: dict[QueueId, QueueStats]):
    assert ask(GetTopicStats("t"), TopicStatsReply(table)) == TopicStatsReply(table)


@given(
    st.builds(
        PullMessages,
        group=names,
        queue=queues,
        start=i64,
        count_max=st.integers(-(2**31), 2**31 - 1),
        bytes_max=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        subscription=st.builds(Subscription, names),
        subscription_version=i64,
        commit=st.one_of(st.none(), i64),
        suspend_ms=st.one_of(st.none(), st.integers(0, 2**31)),
    )
)
def test_any_pull_survives_the_wire(pull: PullMessages):
    encoded = encode_request(pull)
    assert decode_request(header_of(11, encoded.ext_fields), b"") == pull
