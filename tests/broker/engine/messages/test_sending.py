"""Sends: queues, refusals, stored records, and acknowledgements."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.outcomes import AfterSync, Answer
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Host, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    SendBatch,
    SendMessage,
    SendRecords,
)
from rocketmq_wire.requests.offsets import GetMaxOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic, GetRoute
from support.engines import NOW_MS, STORE_HOST, EngineUnderTest, queue_of
from support.records import make_records
from support.storage_blocks import bodies_of

ORDERS_0 = queue_of("orders")
BORN_MS = NOW_MS - 7


def send(body=b"hello", queue=ORDERS_0, **more):
    return SendMessage("p", queue, BORN_MS, body, **more)


def batch(*bodies, queue=ORDERS_0, **more):
    return SendBatch("p", queue, BORN_MS, encode_batch(entries(*bodies)), **more)


def entries(*bodies):
    return [BatchEntry(3, body, encode_properties({"TAGS": "A", "KEYS": "k"})) for body in bodies]


def stored(broker, queue=ORDERS_0):
    reply = broker.ask(PullMessages("g", queue, 0, 1_000))
    data, position, messages = b"".join(reply.records), 0, []
    while position < len(data):
        message, position = decode_record(data, position)
        messages.append(message)
    return messages


class TestSingleMessages:
    def test_message_is_stored_as_it_was_sent(self, broker):
        properties = {"TAGS": "A", "KEYS": "k1 k2", "colour": "blau", "UNIQ_KEY": "0A" * 16}
        reply = broker.ask(
            send(properties=encode_properties(properties), flag=9, sys_flag=0x1, reconsume_times=2)
        )
        (message,) = stored(broker)
        assert (reply.queue_index, reply.start, reply.count) == (0, 0, 1)
        assert reply.transaction_id == "0A" * 16
        assert parse_offset_message_id(reply.message_id) == (STORE_HOST, message.physical_offset)
        assert message.properties == {**properties, "CLUSTER": "DefaultCluster"}
        assert (message.body, message.topic, message.flag) == (b"hello", "orders", 9)
        assert (message.sys_flag, message.reconsume_times) == (0x1, 2)
        assert (message.born_ms, message.store_ms) == (BORN_MS, NOW_MS)
        assert message.born_host == Host(bytes((10, 0, 0, 9)), 5555)
        assert message.store_host == STORE_HOST

    def test_unique_key_is_added_where_it_is_missing(self, broker):
        replies = [broker.ask(send()) for _ in range(3)]
        keys = [message.properties["UNIQ_KEY"] for message in stored(broker)]
        assert keys == [reply.transaction_id for reply in replies]
        assert len(set(keys)) == 3

    def test_properties_without_their_last_separator_are_completed(self, broker):
        broker.ask(send(properties=b"a\x01b"))
        assert stored(broker)[0].properties["a"] == "b"

    def test_receipt_of_a_consumer_is_not_stored(self, broker):
        broker.ask(send(properties=b"a\x01b\x02POP_CK\x01x y\x02c\x01d\x02"))
        properties = stored(broker)[0].properties
        assert (properties["a"], properties["c"], properties.get("POP_CK")) == ("b", "d", None)

    def test_broker_chooses_among_the_write_queues(self, broker):
        anywhere = queue_of("orders", -1)
        indexes = {broker.ask(send(queue=anywhere)).queue_index for _ in range(4)}
        assert indexes == {0, 1}

    def test_limits(self):
        broker = EngineUnderTest(message_bytes_max=10)
        broker.ask(send(b"x" * 10))
        assert broker.refusal(send(b"x" * 11)).code == 13
        assert broker.refusal(send(b"")).code == 13
        assert broker.refusal(send(properties=b"a\x01" + b"b" * 32_767)).code == 13
        assert broker.ask(GetMaxOffset(ORDERS_0)).value == 1

    def test_properties_at_their_limit_are_stored_without_additions(self, broker):
        properties = b"a\x01" + b"b" * (32_767 - 3) + b"\x02"
        broker.ask(send(properties=properties))
        assert list(stored(broker)[0].properties) == ["a"]


class TestBatches:
    def test_batch_is_stored_message_by_message(self, broker):
        broker.ask(send(b"before"))
        reply = broker.ask(batch(b"one", b"two", b"", sys_flag=0))
        messages = stored(broker)[1:]
        assert [message.body for message in messages] == [b"one", b"two", b""]
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert {message.flag for message in messages} == {3}
        assert messages[0].properties == {"TAGS": "A", "KEYS": "k"}
        assert (reply.start, reply.count) == (1, 3)
        ids = [parse_offset_message_id(text)[1] for text in reply.message_id.split(",")]
        assert ids == [message.physical_offset for message in messages]

    def test_ids_are_right_also_where_the_log_goes_on_in_the_next_file(self, broker):
        # The test's files hold 1 MiB: a batch of 900 KB, then one that does not fit behind it.
        broker.ask(batch(*[b"x" * 9_000] * 100))
        reply = broker.ask(batch(*[b"y" * 9_000] * 100))
        ids = [parse_offset_message_id(text)[1] for text in reply.message_id.split(",")]
        positions = [message.physical_offset for message in stored(broker)[100:]]
        assert ids == positions
        assert len({position >> 20 for position in positions}) == 2

    def test_properties_of_the_batch_stay_out_of_its_messages(self, broker):
        reply = broker.ask(batch(b"one", properties=encode_properties({"UNIQ_KEY": "BATCH"})))
        assert "UNIQ_KEY" not in stored(broker)[0].properties
        assert reply.transaction_id == "BATCH"

    def test_batch_that_cannot_be_read_is_refused_and_nothing_is_stored(self, broker):
        whole = encode_batch(entries(b"one", b"two"))
        for cut in range(1, len(whole)):
            if cut != len(whole) // 2:
                assert broker.refusal(SendBatch("p", ORDERS_0, BORN_MS, whole[:cut])).code == 13
        assert broker.refusal(SendBatch("p", ORDERS_0, BORN_MS, b"")).code == 13
        assert broker.ask(GetMaxOffset(ORDERS_0)).value == 0


class TestRecords:
    @pytest.mark.parametrize("with_sizes", [True, False])
    def test_records_are_stored_under_new_offsets_and_times(self, broker, with_sizes):
        records, sizes = make_records(3, topic="orders")
        broker.ask(send(b"before"))
        request = SendRecords("p", ORDERS_0, records, sizes if with_sizes else None)
        reply = broker.ask(request)
        messages = stored(broker)[1:]
        assert (reply.start, reply.count) == (1, 3)
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert {message.store_ms for message in messages} == {NOW_MS}
        assert [message.body for message in messages] == bodies_of([memoryview(records)])
        assert parse_offset_message_id(reply.message_id)[1] == messages[0].physical_offset

    def test_records_of_another_topic_are_refused(self, broker):
        records, _ = make_records(3, topic="other")
        error = broker.refusal(SendRecords("p", ORDERS_0, records))
        assert error.code == 13
        assert "topic" in error.remark

    def test_broken_records_are_refused(self, broker):
        records, _ = make_records(2, topic="orders")
        for cut in (0, 1, 50, len(records) - 1):
            assert broker.refusal(SendRecords("p", ORDERS_0, records[:cut])).code == 13
        damaged = bytearray(records)
        damaged[90] ^= 1
        assert broker.refusal(SendRecords("p", ORDERS_0, damaged)).code == 13

    def test_a_record_over_the_limit_is_refused_as_a_message_is(self):
        small = EngineUnderTest(message_bytes_max=100)
        small.ask(CreateTopic(TopicConfig("orders", 2, 2)))
        fits, _ = make_records(3, topic="orders", body_size=100)
        assert small.ask(SendRecords("p", ORDERS_0, fits)).count == 3
        larger, sizes = make_records(1, topic="orders", body_size=101)
        both = SendRecords("p", ORDERS_0, fits + larger)
        for request in (both, SendRecords("p", ORDERS_0, larger, sizes)):
            error = small.refusal(request)
            assert error.code == 13
            assert "message body size 101 is over the limit of 100" in error.remark
        assert small.ask(GetMaxOffset(ORDERS_0)).value == 3

    def test_records_of_transactions_are_refused(self, broker):
        records = bytearray(make_records(1, topic="orders")[0])
        records[39] |= 0x4
        assert broker.refusal(SendRecords("p", ORDERS_0, records)).code == 13


class TestRefusals:
    @pytest.mark.parametrize(
        ("more", "remark"),
        [
            ({"sys_flag": 0x4}, "transactional"),
            ({"properties": encode_properties({"TRAN_MSG": "true"})}, "transactional"),
            ({"properties": encode_properties({"DELAY": "1"})}, "delayed"),
            ({"properties": encode_properties({"TIMER_DELIVER_MS": "1"})}, "delayed"),
        ],
    )
    def test_a_batch_refuses_delayed_and_transactional_messages(self, broker, more, remark):
        error = broker.refusal(batch(b"one", **more))
        assert error.code == 13
        assert remark in error.remark
        assert broker.ask(GetMaxOffset(ORDERS_0)).value == 0

    def test_a_prepared_message_must_say_that_it_is_one(self, broker):
        error = broker.refusal(send(sys_flag=0x4))
        assert error.code == 13
        assert "without TRAN_MSG=true" in error.remark

    def test_delay_level_zero_is_no_delay(self, broker):
        broker.ask(send(properties=encode_properties({"DELAY": "0"})))

    @pytest.mark.parametrize("make", [send, batch])
    def test_the_queue_is_checked_for_every_kind_of_send(self, make):
        broker = EngineUnderTest(auto_create_topic=False)
        broker.ask(CreateTopic(TopicConfig("orders", 2, 3)))
        broker.ask(CreateTopic(TopicConfig("closed", permission=4)))
        assert broker.refusal(make(b"x", queue=queue_of("orders", 3))).code == 29
        assert broker.refusal(make(b"x", queue=queue_of("closed"))).code == 16
        assert broker.refusal(make(b"x", queue=queue_of("absent"))).code == 17
        assert broker.refusal(make(b"x", queue=queue_of("a b"))).code in (17, 29)

    def test_a_full_store_is_refused_as_busy(self):
        broker = EngineUnderTest(flush="sync")
        broker.ask(CreateTopic(TopicConfig("orders")))

        def send_without_end():
            for _ in range(1_000):
                broker.outcome(send(b"x" * 500_000))

        with pytest.raises(BrokerError) as caught:
            send_without_end()
        assert (caught.value.code, caught.value.retryable) == (2, True)


class TestAcknowledgement:
    def test_sync_acknowledges_only_messages_on_disk(self):
        broker = EngineUnderTest(flush="sync")
        outcome = broker.outcome(send())
        assert isinstance(outcome, AfterSync)
        assert broker.store.durable_end < outcome.position
        assert broker.ask(GetMaxOffset(ORDERS_0)).value == 0
        assert broker.store.sync() >= outcome.position
        broker.store.publish()
        assert broker.ask(GetMaxOffset(ORDERS_0)).value == 1

    @pytest.mark.parametrize("flush", ["async", "memory"])
    def test_others_acknowledge_at_once(self, flush):
        assert isinstance(EngineUnderTest(flush=flush).outcome(send()), Answer)


class TestTopicsThroughSends:
    def test_unknown_topic_is_made_by_its_first_message(self, broker):
        broker.ask(send(queue=queue_of("new", 3), default_queue_count=4))
        route = broker.ask(GetRoute("new")).route
        assert [str(queue.index) for queue in route.readable_queues("new")] == list("0123")

    def test_recreated_topic_is_empty(self, broker):
        broker.ask(send())
        broker.ask(DeleteTopic("orders"))
        assert broker.refusal(PullMessages("g", ORDERS_0, 0, 32)).code == 17
        broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
        reply = broker.ask(PullMessages("g", ORDERS_0, 0, 32))
        assert (reply.status, reply.end) == (PullStatus.NO_NEW_MESSAGE, 0)
        broker.ask(send(b"again"))
        assert [(m.queue_offset, m.body) for m in stored(broker)] == [(0, b"again")]

    def test_shrunken_topic_refuses_the_queues_it_lost(self, broker):
        second = queue_of("orders", 1)
        broker.ask(send(queue=second))
        broker.ask(CreateTopic(TopicConfig("orders", 2, 1)))
        broker.ask(PullMessages("g", second, 0, 32))
        broker.ask(CreateTopic(TopicConfig("orders", 1, 1)))
        assert broker.refusal(PullMessages("g", second, 0, 32)).code == 29
        assert broker.refusal(send(queue=second)).code == 29
