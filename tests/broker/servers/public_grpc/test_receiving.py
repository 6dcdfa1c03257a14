"""The public gRPC service: receives, acknowledgements, invisible times, dead letters."""

from __future__ import annotations

import zlib

import pytest

from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import put_timestamp
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import PullMessages, SendMessage
from rocketmq_wire.stubs import public
from support import public_serving
from support.public_peer import PublicPeer, outgoing, resource
from support.public_serving import begin, duration

broker, tool, topic = public_serving.broker, public_serving.tool, public_serving.topic
peer, consumer = public_serving.peer, public_serving.consumer


class TestReceives:
    def test_a_message_arrives_whole(self, peer, consumer, topic):
        message = outgoing(topic, b"one", tag="TagA", keys=["k1", "k2"], message_id="M")
        message.user_properties["n"] = "7"
        message.system_properties.born_host = "host-1"
        put_timestamp(message.system_properties.born_timestamp, 1_700_000_000_123)
        assert peer.send(message).status.code == PublicCode.OK
        code, (got,) = consumer.receive(f"g-{topic}", topic)
        system = got.system_properties
        assert code == PublicCode.OK
        assert (got.topic.name, got.body, dict(got.user_properties)) == (topic, b"one", {"n": "7"})
        assert (system.tag, list(system.keys), system.message_id) == ("TagA", ["k1", "k2"], "M")
        assert (system.body_digest.type, system.body_digest.checksum) == (
            2,
            "F97C5D29941BFB1B2FDAB0874906AB82",
        )
        assert (system.body_encoding, system.message_type, system.delivery_attempt) == (1, 1, 1)
        assert (system.born_host, system.born_timestamp.nanos) == ("host-1", 123_000_000)
        assert system.invisible_duration.seconds == 10
        assert system.receipt_handle
        assert system.store_host.startswith("127.0.0.1:")

    def test_every_acknowledgement_has_its_result(self, peer, consumer, topic):
        peer.send(outgoing(topic, b"one", message_id="M"))
        _, (got,) = consumer.receive(f"g-{topic}", topic)
        entry = public.message_class("AckMessageEntry")(
            message_id="M", receipt_handle=got.system_properties.receipt_handle
        )
        wrong = public.message_class("AckMessageEntry")(message_id="W", receipt_handle="what")
        reply = consumer.call(
            "AckMessage",
            group=resource(f"g-{topic}"),
            topic=resource(topic),
            entries=[entry, wrong],
        )
        assert reply.status.code == PublicCode.MULTIPLE_RESULTS
        assert [(one.message_id, one.status.code) for one in reply.entries] == [
            ("M", PublicCode.OK),
            ("W", PublicCode.INVALID_RECEIPT_HANDLE),
        ]
        group = {"group": resource(f"g-{topic}"), "topic": resource(topic)}
        reply = consumer.call("AckMessage", **group, entries=[wrong, wrong])
        assert reply.status.message == "INVALID_RECEIPT_HANDLE", "its name, if all agree"

    def test_a_changed_time_gives_a_new_handle(self, peer, consumer, topic):
        peer.send(outgoing(topic, b"one"))
        _, (got,) = consumer.receive(f"g-{topic}", topic)
        old = got.system_properties.receipt_handle

        def change(handle, milliseconds):
            return consumer.call(
                "ChangeInvisibleDuration",
                group=resource(f"g-{topic}"),
                topic=resource(topic),
                receipt_handle=handle,
                invisible_duration=duration(milliseconds),
            )

        changed = change(old, 60_000)
        assert changed.status.code == PublicCode.OK
        assert changed.receipt_handle not in ("", old)
        assert change("none", 60_000).status.code == PublicCode.INVALID_RECEIPT_HANDLE
        status = change(old, -1).status
        assert status.code == PublicCode.ILLEGAL_INVISIBLE_TIME
        assert status.message == "the invisibleTime is too small. min is 0"
        assert change(old, 43_200_001).status.message.endswith("is too large. max is 43200000")
        # Messages that are visible again have no lease.
        assert (
            change("0 1 1 0 0 broker-a 0 0 0", 1).status.code == PublicCode.INVALID_RECEIPT_HANDLE
        )

    def test_dead_letters_are_forwarded(self, peer, consumer, topic, tool):
        peer.send(outgoing(topic, b"bad", message_id="M"))
        _, (got,) = consumer.receive(f"g-{topic}", topic)
        reply = consumer.call(
            "ForwardMessageToDeadLetterQueue",
            group=resource(f"g-{topic}"),
            topic=resource(topic),
            receipt_handle=got.system_properties.receipt_handle,
            message_id="M",
        )
        assert reply.status.code == PublicCode.OK
        dead = tool.call(PullMessages("g", QueueId(f"%DLQ%g-{topic}", "broker-a", 0), 0, 32))
        assert dead.end == 1

    def test_tags_and_expressions_select(self, peer, consumer, topic):
        for number, tag in enumerate(("A", "B", "C")):
            peer.send(outgoing(topic, tag.encode(), tag=tag, message_id=str(number)))
        wanted = public.message_class("FilterExpression")(type=1, expression="A || C")
        _, messages = consumer.receive(f"g-{topic}", topic, filter_expression=wanted)
        assert sorted(one.body for one in messages) == [b"A", b"C"]

    def test_members_in_order_get_a_queue_again_once_it_is_acknowledged(
        self, broker, peer, tool, topic
    ):
        with PublicPeer(broker.endpoints, f"ordered@{topic}") as ordered:
            assert ordered.be_consumer("in-order", topic).settings.subscription.fifo
            begin(tool, "in-order", topic, is_orderly=True)
            for number in range(2):
                peer.send(outgoing(topic, b"x", 2, message_group="g", message_id=str(number)))
            _, first = ordered.receive("in-order", topic, batch_size=1)
            assert [one.system_properties.message_id for one in first] == ["0"]
            # A repeated attempt, whose reply was lost, gets the same messages.
            entry = public.message_class("AckMessageEntry")(
                message_id="0", receipt_handle=first[0].system_properties.receipt_handle
            )
            ordered.call(
                "AckMessage", group=resource("in-order"), topic=resource(topic), entries=[entry]
            )
            _, second = ordered.receive("in-order", topic, batch_size=1)
        assert [one.system_properties.message_id for one in second] == ["1"]

    def test_what_is_more_urgent_comes_first(self, broker, peer, tool):
        with PublicPeer(broker.endpoints, "urgent@1") as hurried:
            hurried.be_consumer("g-urgent", "urgent")
            begin(tool, "g-urgent", "urgent")
            for priority in (1, 0, 9, 2):
                body = b"%d" % priority
                peer.send(outgoing("urgent", body, 6, priority=priority, message_id=str(priority)))
            bodies = []
            for _ in range(4):
                _, (got,) = hurried.receive("g-urgent", "urgent", batch_size=1)
                bodies.append((got.body, got.system_properties.priority))
        assert bodies == [(b"9", 9), (b"2", 2), (b"1", 1), (b"0", 0)]

    def test_compressed_messages_of_the_other_protocol_arrive_readable(self, consumer, topic, tool):
        queue = QueueId(topic, "broker-a", 0)
        content = zlib.compress(b"x" * 9_000)
        tool.call(SendMessage("p", queue, 1, content, sys_flag=1))
        _, (got,) = consumer.receive(f"g-{topic}", topic)
        assert (got.body, got.system_properties.body_encoding) == (b"x" * 9_000, 1)

    @pytest.mark.parametrize("invisible_ms", [9_999, 43_200_001])
    def test_times_have_bounds(self, consumer, topic, invisible_ms):
        code, _ = consumer.receive(f"g-{topic}", topic, invisible_ms=invisible_ms)
        assert code == PublicCode.ILLEGAL_INVISIBLE_TIME

    def test_who_has_no_settings_receives_nothing(self, peer, topic):
        code, _ = peer.receive("g", topic)
        assert code == PublicCode.INTERNAL_SERVER_ERROR
