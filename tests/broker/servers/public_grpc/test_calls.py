"""RocketMQ's public gRPC service on the bundled broker, call by call."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import put_timestamp
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests.groups import ListGroupClients, PutGroup
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeResult,
    GetRunningInfo,
    RunningInfoReply,
)
from rocketmq_wire.requests.messages import PullMessages, SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import public
from support import public_serving
from support.public_peer import PublicPeer, outgoing, queue_of, resource
from support.remoting_peer import RemotingPeer

broker, tool, topic = public_serving.broker, public_serving.tool, public_serving.topic
peer, consumer = public_serving.peer, public_serving.consumer


class TestRoutes:
    def test_every_queue_names_the_address_that_the_client_used(self, peer, topic):
        endpoints = public.message_class("Endpoints")(scheme=3)
        endpoints.addresses.add(host="broker.example", port=4711)
        reply = peer.call("QueryRoute", topic=resource(topic), endpoints=endpoints)
        assert reply.status.code == PublicCode.OK
        assert [(queue.id, queue.permission) for queue in reply.message_queues] == [(0, 4), (1, 4)]
        for queue in reply.message_queues:
            assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
            assert queue.broker.endpoints == endpoints
            assert list(queue.accept_message_types) == [1, 2, 3, 4]

    def test_without_one_it_is_the_brokers_own(self, peer, topic, broker):
        reply = peer.call("QueryRoute", topic=resource(topic))
        (address,) = reply.message_queues[0].broker.endpoints.addresses
        assert f"{address.host}:{address.port}" == broker.endpoints

    def test_a_topic_says_which_messages_it_takes(self, peer, tool):
        del tool
        reply = peer.call("QueryRoute", topic=resource("fifo"))
        assert list(reply.message_queues[0].accept_message_types) == [2]

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("absent", PublicCode.TOPIC_NOT_FOUND),
            ("", PublicCode.ILLEGAL_TOPIC),
            ("no/name", PublicCode.ILLEGAL_TOPIC),
            ("SCHEDULE_TOPIC_XXXX", PublicCode.ILLEGAL_TOPIC),
        ],
    )
    def test_what_has_no_route_is_refused(self, peer, name, code):
        assert peer.call("QueryRoute", topic=resource(name)).status.code == code

    def test_members_share_all_queues_unless_they_consume_in_order(self, peer, topic):
        for group, wanted in (("g", [-1]), ("in-order", [0, 1])):
            reply = peer.call("QueryAssignment", topic=resource(topic), group=resource(group))
            assert [one.message_queue.id for one in reply.assignments] == wanted


class TestClients:
    def test_a_producer_gets_the_settings_to_send(self, peer, topic):
        answer = peer.be_producer(topic)
        settings = answer.settings
        assert answer.status.code == PublicCode.OK
        assert settings.WhichOneof("pub_sub") == "publishing"
        assert settings.publishing.max_body_size == 4 * 1024 * 1024
        policy = settings.backoff_policy
        assert (policy.max_attempts, policy.exponential_backoff.multiplier) == (3, 2)

    def test_a_consumer_gets_the_settings_to_receive(self, peer, topic, tool):
        tool.call(PutGroup({"groupName": "three", "retryMaxTimes": 3}))
        settings = peer.be_consumer("three", topic).settings
        assert settings.backoff_policy.max_attempts == 4
        delays = settings.backoff_policy.customized_backoff.next
        assert [delay.seconds for delay in delays][:4] == [10, 30, 60, 120]
        assert settings.subscription.receive_batch_size == 32
        assert settings.subscription.long_polling_timeout.seconds == 20
        assert not settings.subscription.fifo

    def test_a_group_that_backs_off_exponentially_says_so(self, peer, topic, tool):
        policy = {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": {"initial": 700, "multiplier": 3},
        }
        tool.call(PutGroup({"groupName": "growing", "groupRetryPolicy": policy}))
        backoff = peer.be_consumer("growing", topic).settings.backoff_policy.exponential_backoff
        assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (7e8, 7_200, 3)

    def test_later_settings_are_answered_too(self, peer, topic):
        settings = peer.be_producer(topic).settings
        peer.say(settings=settings)
        assert peer.hear().settings == settings

    def test_settings_of_an_unknown_client_are_refused(self, peer):
        answer = peer.begin_telemetry(public.message_class("Settings")())
        assert answer.status.code == PublicCode.UNRECOGNIZED_CLIENT_TYPE

    def test_a_call_without_an_id_is_refused(self, broker):
        with PublicPeer(broker.endpoints, client_id="") as nobody:
            reply = nobody.call("QueryRoute", topic=resource("any"))
        assert reply.status.code == PublicCode.CLIENT_ID_REQUIRED

    def test_who_has_no_settings_has_no_heartbeat(self, peer):
        assert peer.call("Heartbeat").status.code == PublicCode.UNRECOGNIZED_CLIENT_TYPE
        terminated = peer.call("NotifyClientTermination")
        assert terminated.status.code == PublicCode.UNRECOGNIZED_CLIENT_TYPE

    def test_members_are_known_until_they_say_goodbye(self, peer, topic, broker):
        peer.be_consumer("known", topic)
        assert peer.call("Heartbeat", client_type=3).status.code == PublicCode.OK
        with RemotingPeer(broker.name_server) as tool:
            (client_id,) = tool.call(ListGroupClients("known")).client_ids
            assert client_id.startswith("tester@")
            assert peer.call("NotifyClientTermination").status.code == PublicCode.OK
            assert tool.call(ListGroupClients("known")).client_ids == ()
        assert peer.hear() is None

    def test_what_is_no_message_is_refused_inside_the_answer(self, broker):
        with grpc.insecure_channel(broker.endpoints) as channel:
            call: Any = channel.unary_unary
            content = call(f"/{public.SERVICE}/QueryRoute")(
                b"\xff", metadata=[("x-mq-client-id", "c")], timeout=20
            )
        reply = public.parse("QueryRouteResponse", content)
        assert reply.status.code == PublicCode.BAD_REQUEST


class TestSends:
    def test_every_message_has_its_result(self, peer, topic):
        reply = peer.send(
            outgoing(topic, b"one", message_id="A"), outgoing(topic, b"two", message_id="B")
        )
        assert reply.status.code == PublicCode.OK
        assert [(entry.message_id, entry.status.code) for entry in reply.entries] == [
            ("A", PublicCode.OK),
            ("B", PublicCode.OK),
        ]

    def test_a_group_stays_in_the_queue_of_its_hash(self, peer, tool):
        tool.call(CreateTopic(TopicConfig("eight", 8, 8)))
        for number in range(3):
            message = outgoing("eight", b"x", 2, message_group="order-42", message_id=str(number))
            assert peer.send(message).entries[0].offset == number
        pulled = tool.call(PullMessages("g", QueueId("eight", "broker-a", 3), 0, 32))
        assert pulled.end == 3

    def test_messages_of_two_topics_are_refused(self, peer, topic):
        reply = peer.send(outgoing(topic), outgoing("fifo"))
        assert reply.status.code == PublicCode.MESSAGE_CORRUPTED
        assert peer.send().status.code == PublicCode.MESSAGE_CORRUPTED

    def test_a_topic_that_is_not_there_is_refused(self, peer):
        assert peer.send(outgoing("absent")).status.code == PublicCode.TOPIC_NOT_FOUND

    def test_a_typed_topic_takes_its_type_alone(self, peer, tool):
        del tool
        reply = peer.send(outgoing("typed", b"x", 2, message_group="g"))
        assert reply.status.code == PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "NORMAL" in reply.status.message

    def test_half_messages_are_seen_once_they_are_committed(self, peer, consumer, topic):
        sent = {}
        for body, message_id in ((b"keep", "K"), (b"drop", "D")):
            reply = peer.send(outgoing(topic, body, 4, message_id=message_id))
            sent[message_id] = reply.entries[0].transaction_id
        for message_id, resolution in (("K", 1), ("D", 2)):
            reply = peer.call(
                "EndTransaction",
                topic=resource(topic),
                message_id=message_id,
                transaction_id=sent[message_id],
                resolution=resolution,
                source=1,
            )
            assert reply.status.code == PublicCode.OK
        _, messages = consumer.receive(f"g-{topic}", topic)
        assert [(one.body, one.system_properties.message_type) for one in messages] == [
            (b"keep", 4)
        ]

    @pytest.mark.parametrize(
        ("transaction_id", "resolution", "code"),
        [
            (" ", 1, PublicCode.INVALID_TRANSACTION_ID),
            ("x", 0, PublicCode.BAD_REQUEST),
            ("x", 1, PublicCode.INTERNAL_SERVER_ERROR),
        ],
    )
    def test_ends_of_nothing_are_refused(self, peer, topic, transaction_id, resolution, code):
        reply = peer.call(
            "EndTransaction",
            topic=resource(topic),
            transaction_id=transaction_id,
            resolution=resolution,
        )
        assert reply.status.code == code

    def test_what_waits_for_its_time_can_be_recalled(self, peer, topic):
        message = outgoing(topic, b"later", 3, message_id="L")
        put_timestamp(message.system_properties.delivery_timestamp, 1)
        # In the past: nothing waits, and nothing can be recalled.
        assert peer.send(message).status.code == PublicCode.OK
        reply = peer.call("RecallMessage", topic=resource(topic), recall_handle="x")
        assert reply.status.code != PublicCode.OK


class TestPulls:
    def test_a_pull_returns_the_next_offset(self, peer, tool, topic):
        queue = QueueId(topic, "broker-a", 1)
        for number in range(3):
            tool.call(SendMessage("p", queue, 1, b"body-%d" % number))

        def pull(offset):
            return peer.call(
                "PullMessage",
                group=resource("g"),
                message_queue=queue_of(topic, 1),
                offset=offset,
                batch_size=32,
            )

        frames = pull(1)
        assert [frame.WhichOneof("content") for frame in frames] == [
            *("status", "message", "message", "next_offset")
        ]
        assert [frame.message.body for frame in frames[1:3]] == [b"body-1", b"body-2"]
        assert frames[1].message.system_properties.queue_offset == 1
        assert not frames[1].message.system_properties.receipt_handle
        assert frames[-1].next_offset == 3
        assert [frame.WhichOneof("content") for frame in pull(3)] == ["status", "next_offset"]
        beyond = pull(9)
        assert beyond[0].status.code == PublicCode.ILLEGAL_OFFSET
        assert beyond[-1].next_offset <= 3

    def test_committed_offsets_are_kept_for_groups(self, peer, tool, topic):
        names = {"group": resource("progress"), "message_queue": queue_of(topic, 0)}
        assert peer.call("GetOffset", **names).status.code == PublicCode.OFFSET_NOT_FOUND
        tool.call(PutGroup({"groupName": "progress"}))
        assert peer.call("UpdateOffset", offset=5, **names).status.code == PublicCode.OK
        assert peer.call("GetOffset", **names).offset == 5

    def test_bounds_and_times_can_be_asked(self, peer, tool, topic):
        tool.call(SendMessage("p", QueueId(topic, "broker-a", 0), 1, b"x"))
        found = [
            peer.call("QueryOffset", message_queue=queue_of(topic, 0), query_offset_policy=policy)
            for policy in (0, 1, 2)
        ]
        assert [(one.status.code, one.offset) for one in found] == [
            (PublicCode.OK, 0),
            (PublicCode.OK, 1),
            (PublicCode.BAD_REQUEST, 0),
        ]
        request = public.message_class("QueryOffsetRequest")(query_offset_policy=2)
        put_timestamp(request.timestamp, 1 << 42)
        late = peer.call(
            "QueryOffset",
            message_queue=queue_of(topic, 0),
            query_offset_policy=2,
            timestamp=request.timestamp,
        )
        assert late.offset == 1

    def test_a_queue_that_is_not_there_is_refused(self, peer, topic):
        reply = peer.call("QueryOffset", message_queue=queue_of(topic, 2))
        assert reply.status.code == PublicCode.BAD_REQUEST


class TestCommands:
    def test_tools_have_a_message_verified_by_the_listener(self, broker, peer, tool, topic):
        sent = tool.call(SendMessage("p", QueueId(topic, "broker-a", 0), 1, b"look"))
        peer.be_consumer("verified", topic, kind=2)
        peer.call("Heartbeat", client_type=2)
        client_id = _client_id(tool, "verified")
        with RemotingPeer(broker.name_server) as other:
            request = ConsumeDirectly("verified", client_id, sent.message_id, "", b"")
            opaque = other.start(request)
            command = peer.hear().verify_message_command
            assert command.message.body == b"look"
            status = public.message_class("Status")(code=int(PublicCode.FAILED_TO_CONSUME_MESSAGE))
            result = public.message_class("VerifyMessageResult")(nonce=command.nonce)
            peer.say(status=status, verify_message_result=result)
            completed = other.next_completed()
        assert completed.opaque == opaque
        assert isinstance(completed.result, ConsumeDirectlyReply)
        assert completed.result.result is ConsumeResult.LATER

    def test_tools_see_the_threads_of_a_member(self, broker, peer, tool, topic):
        peer.be_consumer("traced", topic, kind=2)
        peer.call("Heartbeat", client_type=2)
        with RemotingPeer(broker.name_server) as other:
            other.start(GetRunningInfo("traced", _client_id(tool, "traced")))
            nonce = peer.hear().print_thread_stack_trace_command.nonce
            trace = public.message_class("ThreadStackTrace")(
                nonce=nonce, thread_stack_trace="main: waiting"
            )
            peer.say(thread_stack_trace=trace)
            info = other.next_reply(RunningInfoReply)
        assert info.properties["THREAD_STACK_TRACE"] == "main: waiting"


def _client_id(tool, group):
    (client_id,) = tool.call(ListGroupClients(group)).client_ids
    return client_id
