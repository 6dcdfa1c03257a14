"""Answers of real brokers are read as their own clients read them."""

from __future__ import annotations

import pytest

from rocketmq_arrow.decode.inflate import inflate
from rocketmq_wire.errors import BrokerError, ProgressNotFoundError, TopicNotFoundError
from rocketmq_wire.model import (
    BrokerAddresses,
    ClusterInfo,
    CommittedOffset,
    QueueSet,
    QueueStats,
    Route,
    TopicConfig,
)
from rocketmq_wire.records.batch import encode_batch
from rocketmq_wire.records.properties import decode_properties
from rocketmq_wire.records.record import FLAG_COMPRESSED, decode_record
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.groups import ListGroupClients
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    SendBatch,
    SendMessage,
    SendStatus,
)
from rocketmq_wire.requests.offsets import (
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
)
from rocketmq_wire.requests.topics import GetRoute, GetTopicConfig, GetTopicStats
from support.batch_entries import decode_batch
from support.golden_frames import (
    PULLS,
    QUEUE,
    VERSIONS,
    as_stored,
    golden_answer,
    golden_batch,
    golden_frame,
    golden_records,
    java_messages,
)

BROKER = BrokerAddresses("broker-a", "TestCluster", {0: "127.0.0.1:10911"})
BODY_SIZE_MAX = 1 << 20

pytestmark = pytest.mark.parametrize("version", VERSIONS)


@pytest.mark.parametrize("name", ["route", "route-old-client"])
def test_routes_are_read_with_strict_and_with_raw_keys(version, name):
    is_raw = b'{0:"127' in bytes(golden_frame(version, name).body)
    assert is_raw == (name == "route-old-client")
    route = golden_answer(version, name, GetRoute("Golden")).route
    assert route == Route((QueueSet("broker-a", 1, 1, 6),), (BROKER,))
    assert route.readable_queues("Golden") == (QUEUE,)


def test_a_cluster_is_read(version):
    cluster = golden_answer(version, "cluster", GetCluster()).cluster
    assert cluster == ClusterInfo((BROKER,), {"TestCluster": ("broker-a",)})


def test_a_topic_is_read(version):
    if version != "4.9.7":  # Which does not know the request.
        reply = golden_answer(version, "topic-config", GetTopicConfig("Golden"))
        assert reply.configs == (TopicConfig("Golden", 1, 1),)


def test_statistics_with_objects_as_keys_are_read(version):
    messages = java_messages(version, "pull-found")
    newest_ms = messages[-1]["storeMs"]
    stats = golden_answer(version, "topic-stats", GetTopicStats("Golden")).queues
    assert stats == {QUEUE: QueueStats(0, 13, newest_ms)}
    committed = golden_answer(version, "consume-stats", GetConsumeStats("g", "Golden")).queues
    # Only 5.x remembers up to where a group has pulled.
    pulled = committed[QUEUE].pull_offset
    assert committed == {QUEUE: CommittedOffset(13, 3, messages[2]["storeMs"], pulled)}
    assert version != "4.9.7" or pulled == 0


def test_offsets_are_read(version):
    oldest_ms = java_messages(version, "pull-found")[0]["storeMs"]
    assert golden_answer(version, "progress", GetCommittedOffset("g", QUEUE)).value == 3
    assert golden_answer(version, "max-offset", GetMaxOffset(QUEUE)).value == 13
    assert golden_answer(version, "earliest", GetEarliestStoreTime(QUEUE)).value == oldest_ms
    if version != "4.9.7":  # Which answers 0 for a young queue.
        with pytest.raises(ProgressNotFoundError):
            golden_answer(version, "progress-absent", GetCommittedOffset("g", QUEUE))


def test_an_empty_group_has_no_members(version):
    assert golden_answer(version, "members-none", ListGroupClients("g")).client_ids == ()


@pytest.mark.parametrize(
    ("name", "status", "remark"),
    [
        ("pull-no-new", PullStatus.NO_NEW_MESSAGE, "OFFSET_OVERFLOW_ONE"),
        ("pull-no-match", PullStatus.NO_MATCHED_MESSAGE, "NO_MATCHED_MESSAGE"),
        ("pull-illegal", PullStatus.OFFSET_ILLEGAL, "OFFSET_OVERFLOW_BADLY"),
    ],
)
def test_pulls_without_messages_name_the_next_offset(version, name, status, remark):
    reply = golden_answer(version, name, PullMessages("g", QUEUE, 13, 32))
    assert (reply.status, reply.remark) == (status, remark)
    assert (reply.next_begin, reply.start, reply.end, reply.records) == (13, 0, 13, ())


def test_refusals_become_errors_of_one_line(version):
    with pytest.raises(TopicNotFoundError, match=r"No topic route info.*NoSuch") as missing_route:
        golden_answer(version, "route-missing", GetRoute("NoSuch"))
    with pytest.raises(TopicNotFoundError, match="not exist, apply first") as missing_topic:
        golden_answer(version, "pull-missing-topic", PullMessages("g", QUEUE, 0, 32))
    for raised in (missing_route, missing_topic):
        assert "\n" in raised.value.remark
        assert "\n" not in str(raised.value)
        assert "http" not in str(raised.value)
    with pytest.raises(BrokerError, match=r"queueId\[99\] is illegal") as bad_queue:
        golden_answer(version, "send-bad-queue", SendMessage("g", QUEUE, 1, b"x"))
    assert bad_queue.value.code == (29 if version == "5.3.3" else 1)


def test_answers_to_sends_are_read(version):
    reply = golden_answer(version, "send", SendMessage("g", QUEUE, 1, b"x"))
    assert (reply.status, reply.queue_index, reply.start) == (SendStatus.OK, 6, 0)
    assert len(reply.message_id) == 32
    assert (reply.transaction_id is None) == (version == "4.9.7")
    batch = golden_answer(version, "send-batch", SendBatch("g", QUEUE, 1, b""))
    assert (batch.status, batch.start, batch.count) == (SendStatus.OK, 1, 3)
    assert [len(part) for part in batch.message_id.split(",")] == [32, 32, 32]


def test_a_batch_is_encoded_as_the_java_producer_does(version):
    encoded = golden_batch(version)
    entries = decode_batch(encoded)
    assert [(entry.flag, entry.body) for entry in entries] == [
        (n, b"batch-%d" % n) for n in range(3)
    ]
    found = [decode_properties(entry.properties) for entry in entries]
    assert [p["KEYS"] for p in found] == ["k0", "k1", "k2"]
    assert [p.get("TAGS") for p in found] == ["TagA", None, "TagA"]
    assert encode_batch(entries) == encoded


def test_records_are_read_as_the_java_consumer_read_them(version):
    for of_version, name, queue in PULLS:
        if of_version != version:
            continue
        records = golden_records(version, name, queue)
        printed = java_messages(version, name)
        position = 0
        for message in printed:
            stored, position = decode_record(records, position)
            assert stored == as_stored(message, bytes(stored.body))
            if stored.sys_flag & FLAG_COMPRESSED:
                body = inflate(stored.body, stored.sys_flag, BODY_SIZE_MAX)
            else:
                body = stored.body
            assert body == message["body"]
        assert position == len(records)
