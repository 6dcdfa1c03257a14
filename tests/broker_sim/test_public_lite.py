"""The public gRPC service: lite topics, as their consumers ask for them."""

from __future__ import annotations

import threading

import pytest

from rocketmq_broker_sim.broker import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_wire.admin_requests import PutGroup
from rocketmq_wire.errors import broker_error
from rocketmq_wire.grpc_public_codes import Code, code_of
from rocketmq_wire.grpc_public_messages import LITE, put_duration
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests import CreateTopic, PullMessages
from rocketmq_wire.stubs import public
from support.public_peer import PublicPeer, outgoing, resource
from support.public_serving import duration
from support.remoting_peer import RemotingPeer

ADD, REMOVE, REPLACE, FORGET = range(4)
LITE_PUSH, LITE_SIMPLE = 5, 6


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory", "grpc": True})) as broker:
        yield broker


@pytest.fixture(scope="module")
def tool(broker):
    with RemotingPeer(broker.name_server) as peer:
        yield peer


@pytest.fixture
def parent(tool, request):
    """A parent topic of its own, with a group `g-<parent>` bound to it."""
    name = "p" + "".join(filter(str.isalnum, request.node.name))[:80]
    tool.call(CreateTopic(TopicConfig(name, 2, 2, attributes={"message.type": "LITE"})))
    bind(tool, name)
    return name


@pytest.fixture
def producer(broker, parent):
    with PublicPeer(broker.endpoints, f"producer@{parent}") as peer:
        yield peer


@pytest.fixture
def consumer(broker, parent):
    with PublicPeer(broker.endpoints, f"consumer@{parent}") as peer:
        assert peer.be_consumer(f"g-{parent}", parent, kind=LITE_PUSH).status.code == Code.OK
        yield peer


def bind(tool, parent, **attributes):
    named = {f"+{name.replace('_', '.')}": value for name, value in attributes.items()}
    settings = {"groupName": f"g-{parent}", "attributes": {"+lite.bind.topic": parent, **named}}
    tool.call(PutGroup(settings))


def send(peer, parent, lite_topic, *bodies):
    for body in bodies:
        message = outgoing(parent, body, LITE, lite_topic=lite_topic, message_id=body.decode())
        assert peer.send(message).status.code == Code.OK


def sync(peer, parent, action, *names, group="", **fields):
    return peer.call(
        "SyncLiteSubscription",
        action=action,
        topic=resource(parent),
        group=resource(group or f"g-{parent}"),
        lite_topic_set=names,
        **fields,
    ).status


def settled(peer, parent, name, message, **fields):
    """The status of a call about one message."""
    system = message.system_properties
    return peer.call(
        name,
        group=resource(f"g-{parent}"),
        topic=resource(parent),
        receipt_handle=system.receipt_handle,
        message_id=system.message_id,
        **fields,
    )


def ack(peer, parent, *messages, with_lite_topic=True):
    entries = []
    for message in messages:
        system = message.system_properties
        entry = public.message_class("AckMessageEntry")(
            message_id=system.message_id, receipt_handle=system.receipt_handle
        )
        if with_lite_topic:
            entry.lite_topic = system.lite_topic
        entries.append(entry)
    return peer.call(
        "AckMessage", group=resource(f"g-{parent}"), topic=resource(parent), entries=entries
    ).status.code


def shown(messages):
    return [
        (one.body, one.system_properties.lite_topic, one.system_properties.queue_offset)
        for one in messages
    ]


def test_a_lite_message_comes_as_what_it_is(producer, consumer, parent):
    send(producer, parent, "a", b"a0", b"a1")
    assert sync(consumer, parent, ADD, "a").code == Code.OK
    code, messages = consumer.receive(f"g-{parent}", parent)
    assert code == Code.OK
    assert shown(messages) == [(b"a0", "a", 0), (b"a1", "a", 1)]
    system = messages[0].system_properties
    assert (system.message_type, system.delivery_attempt) == (LITE, 1)
    assert dict(messages[0].user_properties) == {}
    assert ack(consumer, parent, *messages) == Code.OK


def test_lite_messages_of_one_lite_topic_share_a_queue(producer, tool, parent):
    send(producer, parent, "a", *(b"%d" % number for number in range(5)))
    ends = {
        tool.call(PullMessages("g", QueueId(parent, "broker-a", index), 0, 1)).end
        for index in range(2)
    }
    assert ends == {0, 5}


def test_settings_say_what_a_client_may_ask_for(broker, parent, tool):
    bind(tool, parent, lite_sub_client_quota="7")
    for kind in (LITE_PUSH, LITE_SIMPLE):
        with PublicPeer(broker.endpoints, f"{kind}@{parent}") as peer:
            said = peer.be_consumer(f"g-{parent}", parent, kind=kind).settings.subscription
            assert (said.lite_subscription_quota, said.max_lite_topic_size) == (7, 64)


def test_one_assignment_whatever_the_order(consumer, parent, tool):
    settings = {"groupName": f"g-{parent}", "consumeMessageOrderly": True}
    tool.call(PutGroup(settings))
    reply = consumer.call("QueryAssignment", topic=resource(parent), group=resource(f"g-{parent}"))
    assert [one.message_queue.id for one in reply.assignments] == [-1]


class TestModes:
    def test_a_group_consumes_either_topics_or_lite_topics(self, broker, parent):
        with PublicPeer(broker.endpoints, f"plain@{parent}") as peer:
            answer = peer.be_consumer(f"g-{parent}", parent, kind=2)
            assert answer.status.code == Code.ILLEGAL_CONSUMER_GROUP
        with PublicPeer(broker.endpoints, f"lite@{parent}") as peer:
            answer = peer.be_consumer("of-topics", parent, kind=LITE_PUSH)
            assert answer.status.code == Code.ILLEGAL_CONSUMER_GROUP

    def test_a_lite_client_names_the_parent_of_its_group(self, broker, parent):
        with PublicPeer(broker.endpoints, f"wrong@{parent}") as peer:
            answer = peer.be_consumer(f"g-{parent}", "another", kind=LITE_PUSH)
            assert answer.status.code == Code.ILLEGAL_TOPIC

    def test_who_is_no_lite_client_subscribes_to_nothing(self, broker, parent):
        with PublicPeer(broker.endpoints, f"nobody@{parent}") as peer:
            assert sync(peer, parent, ADD, "a").code == Code.UNRECOGNIZED_CLIENT_TYPE


class TestSubscriptions:
    @pytest.mark.parametrize("name", ["a b", "", "x" * 65])
    def test_names_are_checked(self, consumer, parent, name):
        assert sync(consumer, parent, ADD, name).code == Code.ILLEGAL_LITE_TOPIC

    def test_groups_are_checked(self, consumer, parent, tool):
        assert sync(consumer, parent, ADD, "a", group="of-topics").code == Code.ILLEGAL_TOPIC
        bound = {"groupName": "another", "attributes": {"+lite.bind.topic": parent}}
        tool.call(PutGroup(bound))
        refused = sync(consumer, parent, ADD, "a", group="another")
        assert refused.code == Code.ILLEGAL_CONSUMER_GROUP

    def test_quotas_are_kept(self, consumer, parent, tool):
        bind(tool, parent, lite_sub_client_quota="-1")
        many = tuple(f"n{number}" for number in range(300))
        assert sync(consumer, parent, ADD, *many).code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED

    def test_a_receive_waits_for_a_lite_topic_that_grows(self, producer, consumer, parent):
        sync(consumer, parent, ADD, "a")
        later = threading.Timer(0.3, send, (producer, parent, "a", b"a0"))
        later.start()
        code, messages = consumer.receive(f"g-{parent}", parent)
        later.join()
        assert (code, shown(messages)) == (Code.OK, [(b"a0", "a", 0)])

    def test_a_receive_waits_for_a_lite_topic_that_is_subscribed(
        self, broker, producer, consumer, parent
    ):
        send(producer, parent, "a", b"a0")
        with PublicPeer(broker.endpoints, f"consumer@{parent}") as same:
            later = threading.Timer(0.3, sync, (same, parent, ADD, "a"))
            later.start()
            code, messages = consumer.receive(f"g-{parent}", parent)
            later.join()
        assert (code, shown(messages)) == (Code.OK, [(b"a0", "a", 0)])

    def test_a_receive_waits_for_what_another_one_settles(self, producer, consumer, parent):
        sync(consumer, parent, ADD, "a")
        send(producer, parent, "a", b"a0", b"a1")
        _, first = consumer.receive(f"g-{parent}", parent, batch_size=1)
        later = threading.Timer(0.3, ack, (consumer, parent, *first))
        later.start()
        _, second = consumer.receive(f"g-{parent}", parent)
        later.join()
        assert shown(second) == [(b"a1", "a", 1)]

    def test_where_to_begin_is_the_clients_to_say(self, producer, consumer, parent):
        send(producer, parent, "a", *(b"%d" % number for number in range(4)))
        option = public.message_class("OffsetOption")
        for wanted, first in (
            (option(offset=2), 2),
            (option(policy=1), 0),
            (option(tail_n=1), 3),
            (option(policy=0), 4),
        ):
            sync(consumer, parent, REMOVE, "a")
            sync(consumer, parent, ADD, "a", offset_option=wanted)
            send(producer, parent, "a", b"next") if first == 4 else None
            _, messages = consumer.receive(f"g-{parent}", parent)
            assert messages[0].system_properties.queue_offset == first
            ack(consumer, parent, *messages)

    def test_who_loses_a_lite_topic_is_told(self, broker, producer, consumer, parent, tool):
        bind(tool, parent, lite_sub_model="Exclusive")
        sync(consumer, parent, ADD, "a", "b")
        with PublicPeer(broker.endpoints, f"other@{parent}") as other:
            other.be_consumer(f"g-{parent}", parent, kind=LITE_PUSH)
            assert sync(other, parent, ADD, "a").code == Code.OK
            assert consumer.hear().notify_unsubscribe_lite_command.lite_topic == "a"
            send(producer, parent, "a", b"a0")
            send(producer, parent, "b", b"b0")
            assert shown(other.receive(f"g-{parent}", parent)[1]) == [(b"a0", "a", 0)]
            assert shown(consumer.receive(f"g-{parent}", parent)[1]) == [(b"b0", "b", 0)]

    def test_a_goodbye_ends_them(self, broker, producer, consumer, parent, tool):
        bind(tool, parent, lite_sub_model="Exclusive")
        sync(consumer, parent, ADD, "a")
        with PublicPeer(broker.endpoints, f"other@{parent}") as other:
            other.be_consumer(f"g-{parent}", parent, kind=LITE_PUSH)
            sync(other, parent, REPLACE, "a")
            # A whole list takes nothing from anybody.
            assert other.hear().notify_unsubscribe_lite_command.lite_topic == "a"
            consumer.call("NotifyClientTermination", group=resource(f"g-{parent}"))
            sync(other, parent, REPLACE, "a")
            send(producer, parent, "a", b"a0")
            assert shown(other.receive(f"g-{parent}", parent)[1]) == [(b"a0", "a", 0)]


class TestWhatBecomesOfAMessage:
    def test_its_lite_topic_need_not_be_named(self, producer, consumer, parent):
        send(producer, parent, "a", b"a0", b"a1")
        sync(consumer, parent, ADD, "a")
        _, messages = consumer.receive(f"g-{parent}", parent)
        assert ack(consumer, parent, messages[0], with_lite_topic=False) == Code.OK
        name, soon = "ChangeInvisibleDuration", duration(50)
        changed = settled(consumer, parent, name, messages[1], invisible_duration=soon)
        assert changed.status.code == Code.OK
        _, again = consumer.receive(f"g-{parent}", parent)
        assert shown(again) == [(b"a1", "a", 1)]

    @pytest.mark.parametrize("handle", ["what", "0 1 1 999 0 broker-a 0 0 77", "0 1 1 999 0 b 0 0"])
    def test_a_handle_of_no_lite_message_settles_nothing(self, consumer, parent, handle):
        entry = public.message_class("AckMessageEntry")(receipt_handle=handle)
        reply = consumer.call(
            "AckMessage", group=resource(f"g-{parent}"), topic=resource(parent), entries=[entry]
        )
        assert reply.status.code == Code.INVALID_RECEIPT_HANDLE

    @pytest.mark.parametrize(("suspend", "attempt"), [(False, 3), (True, 2)])
    def test_it_may_be_put_off(self, producer, consumer, parent, suspend, attempt):
        send(producer, parent, "a", b"a0")
        sync(consumer, parent, ADD, "a")
        for wanted in (1, 2):
            _, (got,) = consumer.receive(f"g-{parent}", parent)
            assert got.system_properties.delivery_attempt == wanted
            changed = settled(
                consumer,
                parent,
                "ChangeInvisibleDuration",
                got,
                lite_topic="a",
                invisible_duration=duration(50),
                suspend=suspend and wanted == 2,
            )
            assert changed.status.code == Code.OK
        _, (got,) = consumer.receive(f"g-{parent}", parent)
        assert got.system_properties.delivery_attempt == attempt

    def test_it_may_be_given_up(self, producer, consumer, parent, tool):
        send(producer, parent, "a", b"bad", b"good")
        sync(consumer, parent, ADD, "a")
        _, (bad,) = consumer.receive(f"g-{parent}", parent, batch_size=1)
        name = "ForwardMessageToDeadLetterQueue"
        given_up = settled(consumer, parent, name, bad, lite_topic="a")
        assert given_up.status.code == Code.OK
        assert shown(consumer.receive(f"g-{parent}", parent)[1]) == [(b"good", "a", 1)]
        dead = tool.call(PullMessages("g", QueueId(f"%DLQ%g-{parent}", "broker-a", 0), 0, 32))
        assert dead.end == 1

    def test_after_its_last_attempt_it_is_a_dead_letter(self, producer, consumer, parent, tool):
        attributes = {"+lite.bind.topic": parent}
        group = {"groupName": f"g-{parent}", "retryMaxTimes": 1, "attributes": attributes}
        tool.call(PutGroup(group))
        send(producer, parent, "a", b"bad", b"good")
        sync(consumer, parent, ADD, "a")
        for attempt in (1, 2):
            _, (got,) = consumer.receive(f"g-{parent}", parent, batch_size=1)
            assert (got.body, got.system_properties.delivery_attempt) == (b"bad", attempt)
            late = {"lite_topic": "a", "invisible_duration": duration(50)}
            settled(consumer, parent, "ChangeInvisibleDuration", got, **late)
        # The third would be one too many: the receive buries it and finds nothing else at once.
        consumer.receive(f"g-{parent}", parent, batch_size=1)
        _, (got,) = consumer.receive(f"g-{parent}", parent, batch_size=1)
        assert got.body == b"good"

    def test_a_lease_is_renewed_for_its_lite_topic(self, producer, consumer, parent):
        send(producer, parent, "a", b"a0")
        sync(consumer, parent, ADD, "a")
        code, messages = consumer.receive(f"g-{parent}", parent, auto_renew=True)
        assert code == Code.OK
        assert ack(consumer, parent, *messages) == Code.OK

    def test_tags_select(self, producer, consumer, parent):
        for tag in ("x", "y"):
            message = outgoing(parent, tag.encode(), LITE, lite_topic="a", tag=tag, message_id=tag)
            assert producer.send(message).status.code == Code.OK
        sync(consumer, parent, ADD, "a")
        wanted = public.message_class("FilterExpression")(type=1, expression="y")
        _, messages = consumer.receive(f"g-{parent}", parent, filter_expression=wanted)
        assert [one.body for one in messages] == [b"y"]


def test_a_restart_goes_on_where_everybody_was(tmp_path):
    config = config_from({"data_dir": str(tmp_path), "grpc": True})
    parent = "chats"
    with Broker(config) as broker, RemotingPeer(broker.name_server) as tool:
        tool.call(CreateTopic(TopicConfig(parent, 2, 2, attributes={"message.type": "LITE"})))
        bind(tool, parent)
        with PublicPeer(broker.endpoints, "one@1") as peer:
            peer.be_consumer(f"g-{parent}", parent, kind=LITE_PUSH)
            send(peer, parent, "a", b"a0", b"a1", b"a2")
            sync(peer, parent, ADD, "a")
            _, messages = peer.receive(f"g-{parent}", parent, batch_size=1)
            ack(peer, parent, *messages)
    with Broker(config) as broker, PublicPeer(broker.endpoints, "one@1") as peer:
        peer.be_consumer(f"g-{parent}", parent, kind=LITE_PUSH)
        sync(peer, parent, REPLACE, "a")
        _, messages = peer.receive(f"g-{parent}", parent)
        assert shown(messages) == [(b"a1", "a", 1), (b"a2", "a", 2)]
        send(peer, parent, "a", b"a3")
        assert ack(peer, parent, *messages) == Code.OK
        assert shown(peer.receive(f"g-{parent}", parent)[1]) == [(b"a3", "a", 3)]


def test_what_is_too_much_has_codes_of_its_own():
    assert code_of(broker_error(2017, "lite topics")) == Code.LITE_TOPIC_QUOTA_EXCEEDED
    assert code_of(broker_error(2018, "clients")) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED


def test_a_lite_simple_consumer_is_served_too(broker, producer, parent):
    send(producer, parent, "a", b"a0")
    with PublicPeer(broker.endpoints, f"simple@{parent}") as peer:
        peer.be_consumer(f"g-{parent}", parent, kind=LITE_SIMPLE)
        assert peer.call("Heartbeat", client_type=LITE_SIMPLE).status.code == Code.OK
        sync(peer, parent, REPLACE, "a")
        wait = public.message_class("ReceiveMessageRequest")()
        put_duration(wait.long_polling_timeout, 5_000)
        _, messages = peer.receive(
            f"g-{parent}", parent, long_polling_timeout=wait.long_polling_timeout
        )
        assert shown(messages) == [(b"a0", "a", 0)]
        assert ack(peer, parent, *messages) == Code.OK
        assert sync(peer, parent, FORGET).code == Code.OK
