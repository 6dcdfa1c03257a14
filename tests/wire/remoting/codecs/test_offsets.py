"""Queue offsets and committed offsets as clients and tools of all versions write them."""

from __future__ import annotations

from rocketmq_wire.model import (
    CommittedOffset,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_reply
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    Boundary,
    ConsumeStatsReply,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetConsumeStats,
    OffsetsReply,
    ResetClientOffsets,
    SearchOffset,
)
from support.remoting_exchanges import NAMELESS, QUEUE, body_of, header_of

QUEUE_KEY = '{"brokerName":"broker-a","queueId":3,"topic":"orders"}'


def test_offsets_of_a_reset_are_keyed_by_queues() -> None:
    request = ResetClientOffsets("g", "orders", -1)
    assert body_of(request, OffsetsReply({QUEUE: 7})) == f'{{"offsetTable":{{{QUEUE_KEY}:7}}}}'


def test_a_reset_of_4_9_names_neither_queue_nor_offset() -> None:
    fields = {"group": "g", "topic": "orders", "timestamp": "5", "isForce": "true"}
    assert decode_request(header_of(222, fields), b"") == ResetClientOffsets("g", "orders", 5)


def test_committed_offsets_of_a_broker_are_a_list_a_group_with_totals() -> None:
    stats = ConsumeStatsReply({QUEUE: CommittedOffset(9, 4, 77, 6)})
    text = body_of(GetAllCommittedOffsets(), AllCommittedOffsetsReply({"g": (stats, stats)}, "a:1"))
    assert '"totalDiff":10' in text
    assert '"totalInflightDiff":4' in text
    assert f'"consumeStatsList":[{{"g":[{{"consumeTps":0.0,"offsetTable":{{{QUEUE_KEY}:' in text


def test_clients_of_4_9_may_read_an_absent_committed_offset_as_zero():
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3"}
    assert decode_request(header_of(14, fields), b"") == GetCommittedOffset("g", NAMELESS, True)


def test_a_search_of_an_old_client_wants_the_first_message():
    fields = {"topic": "orders", "queueId": "3", "timestamp": "5"}
    assert decode_request(header_of(29, fields), b"") == SearchOffset(NAMELESS, 5)
    upper = fields | {"boundaryType": "upper"}
    assert decode_request(header_of(29, upper), b"") == SearchOffset(NAMELESS, 5, Boundary.UPPER)


CONSUME_STATS = (
    b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
    b'{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":77,"pullOffset":5}}}'
)


def test_committed_offsets_have_object_keys():
    stats = ConsumeStatsReply({QUEUE: CommittedOffset(9, 4, 77, 5)}, 1.5)
    assert encode_reply(GetConsumeStats("g"), stats).body == (CONSUME_STATS,)
    assert decode_reply(GetConsumeStats("g"), Header(0), CONSUME_STATS) == stats


def test_consume_stats_of_4_9_have_no_pull_offset():
    body = CONSUME_STATS.replace(b',"pullOffset":5', b"")
    reply = decode_reply(GetConsumeStats("g"), Header(0), body)
    assert reply.queues[QUEUE] == CommittedOffset(9, 4, 77, 0)
