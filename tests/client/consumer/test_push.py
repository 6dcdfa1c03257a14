"""Push consumers on the bundled broker, over sockets: deliveries, failures, offsets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any, cast

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
    ReturnType,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.errors import ClientStateError
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Message, QueueId, Subscription
from rocketmq_wire.requests.groups import UnregisterClient
from rocketmq_wire.requests.members import ConsumeRates
from support.consuming import SECONDS_MAX, Collector, Topic, settings_of, until


def test_every_message_is_consumed_once_and_shutdown_commits(topic: Topic) -> None:
    bodies = topic.send(200)
    listener = Collector()
    settings = settings_of(topic, consume_batch_size=8)
    with PushConsumer(topic.connection, settings, listener) as consumer:
        listener.wait(200)
        assert [q for q in consumer.queues if q.topic == topic.name] == list(topic.queues)
    assert sorted(listener.bodies) == sorted(bodies)
    assert topic.committed(settings.group) == topic.ends()


def test_later_messages_are_consumed_at_once(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        until(lambda: set(topic.queues) <= set(consumer.queues))
        topic.send(10)
        listener.wait(10)


def test_a_second_consumer_continues_where_the_first_ended(topic: Topic) -> None:
    settings = settings_of(topic)
    topic.send(20, prefix="a")
    first = Collector()
    with PushConsumer(topic.connection, settings, first):
        first.wait(20)
    topic.send(20, prefix="b")
    second = Collector()
    with PushConsumer(topic.connection, settings, second):
        second.wait(20)
    assert {body[:1] for body in second.bodies} == {b"b"}
    assert len(second.bodies) == 20


def test_only_wanted_tags_are_consumed_and_the_commit_passes_others(topic: Topic) -> None:
    topic.send(10, tags="TagA", prefix="a")
    topic.send(10, tags="TagB", prefix="b")
    subscriptions = {topic.name: Subscription("TagA")}
    # A message that does not match wakes no held pull; the commit passes it when the hold ends.
    settings = settings_of(topic, subscriptions=subscriptions, persist_ms=50, suspend_ms=500)
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener):
        listener.wait(10)
        topic.send(4, tags="TagC")
        until(lambda: topic.committed(settings.group) == topic.ends())
    assert {body[:1] for body in listener.bodies} == {b"a"}


def test_two_members_share_the_queues_and_the_one_left_takes_over(topic: Topic) -> None:
    settings = settings_of(topic)
    counts: Counter[bytes] = Counter()
    listeners = [Collector(), Collector()]

    def owned(consumer: PushConsumer) -> set[QueueId]:
        return {queue for queue in consumer.queues if queue.topic == topic.name}

    with PushConsumer(topic.connection, settings, listeners[0]) as first:
        until(lambda: owned(first) == set(topic.queues))
        with PushConsumer(topic.connection, settings, listeners[1]) as second:
            until(lambda: len(owned(first)) == len(owned(second)) == 2)
            assert owned(first) | owned(second) == set(topic.queues)
            topic.send(40, prefix="both")
            until(lambda: sum(len(one.messages) for one in listeners) >= 40)
            assert len(listeners[1].messages) == 20
        until(lambda: owned(first) == set(topic.queues))
        topic.send(40, prefix="one")
        until(lambda: sum(len(one.messages) for one in listeners) >= 80)
    for listener in listeners:
        counts.update(listener.bodies)
    assert set(counts.values()) == {1}
    assert len(counts) == 80


RAISED: dict[str, type[BaseException]] = {
    "exception": ValueError,
    "exit": SystemExit,
    "cancelled": asyncio.CancelledError,
}


@pytest.mark.parametrize("answer", ["later", "none", *RAISED])
def test_a_failed_message_is_redelivered_with_its_original_topic(topic: Topic, answer: str) -> None:
    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        context.delay_level = 1
        if messages[0].reconsume_times:
            return ConsumeStatus.SUCCESS
        if answer in RAISED:
            raise RAISED[answer]("the listener's own")
        return ConsumeStatus.RECONSUME_LATER if answer == "later" else None

    topic.send(1, prefix="hard")
    listener = Collector(lambda *_: ConsumeStatus.SUCCESS)
    seen: list[tuple[str, int]] = []

    def note(messages: list[ReceivedMessage], context: ConsumeContext) -> Any:
        seen.extend((message.topic, message.reconsume_times) for message in messages)
        status = outcome(messages, context)
        return listener(messages, context) if status is ConsumeStatus.SUCCESS else status

    # One thread: if the failure ended it, no message would be redelivered.
    settings = settings_of(topic, threads=1)
    with PushConsumer(topic.connection, settings, note):
        listener.wait(1)
    assert seen == [(topic.name, 0), (topic.name, 1)]
    assert topic.committed(settings.group) == topic.ends()


def test_messages_behind_the_ack_index_failed(topic: Topic) -> None:
    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        if not messages[0].reconsume_times:
            context.delay_level, context.ack_index = 1, 0
        return ConsumeStatus.SUCCESS

    with Producer(topic.connection) as producer:
        queue = topic.queues[0]
        producer.send_batch(queue, [Message(topic.name, f"{i}".encode()) for i in range(3)])
    listener = Collector(outcome)
    settings = settings_of(topic, consume_batch_size=3)
    with PushConsumer(topic.connection, settings, listener):
        listener.wait(5)
    assert Counter(listener.bodies) == {b"0": 1, b"1": 2, b"2": 2}


def test_a_message_that_always_fails_becomes_a_dead_letter(topic: Topic) -> None:
    topic.send(1, prefix="poison")
    settings = settings_of(topic, attempts_max=1)

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        del messages
        context.delay_level = 1
        return ConsumeStatus.RECONSUME_LATER

    listener = Collector(outcome)
    with PushConsumer(topic.connection, settings, listener):
        listener.wait(2)
    dead = Collector()
    dead_letters = settings_of(
        topic, group=f"dlq-{topic.name}", subscriptions={f"%DLQ%{settings.group}": Subscription()}
    )
    with PushConsumer(topic.connection, dead_letters, dead):
        dead.wait(1)
    (dead_letter,) = dead.messages
    assert (dead_letter.body, dead_letter.properties["RETRY_TOPIC"]) == (b"poison0", topic.name)


def test_the_message_of_a_slow_listener_is_sent_back(topic: Topic) -> None:
    topic.send(1, prefix="slow")
    release = threading.Event()
    settings = settings_of(topic, consume_timeout_ms=1, persist_ms=50)

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        del messages, context
        release.wait(SECONDS_MAX)
        return ConsumeStatus.SUCCESS

    listener = Collector(outcome)
    with PushConsumer(topic.connection, settings, listener):
        until(lambda: topic.committed(settings.group) == topic.ends())
        release.set()
        listener.wait(1)
    assert listener.messages[0].reconsume_times == 0


def test_messages_after_an_illegal_offset_are_consumed(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues.ILLEGAL_DELAY_MS", 100)
    topic.send(40)
    settings = settings_of(topic, rebalance_ms=20)
    with open_cluster(topic.connection) as cluster:
        cluster.commit(settings.group, dict.fromkeys(topic.queues, 7_000))
    listener = Collector()
    with PushConsumer(topic.connection, settings, listener):
        until(lambda: topic.committed(settings.group) == topic.ends())
        topic.send(8, prefix="new")
        listener.wait(8)
    assert sorted(listener.bodies) == [b"new%d" % number for number in range(8)]


def test_a_suspended_consumer_pulls_nothing(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        until(lambda: set(topic.queues) <= set(consumer.queues))
        consumer.resize(2)
        consumer.suspend()
        topic.send(8)
        # Held pulls return the first messages; no pull follows them.
        topic.send(8, prefix="more")
        consumer.resume()
        listener.wait(16)
    assert len(listener.messages) == 16


def test_a_running_consumer_subscribes_and_unsubscribes(topic: Topic) -> None:
    other = Topic(topic.connection, f"{topic.name}b")
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        consumer.subscribe(other.name)
        topic.send(4, prefix="a")
        other.send(4, prefix="b")
        listener.wait(8)
        consumer.unsubscribe(other.name)
        until(lambda: not {*other.queues} & {*consumer.queues})


def test_a_consumer_whose_start_failed_cannot_be_used(topic: Topic) -> None:
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, Collector(), instance_name=topic.name) as first:
        second = PushConsumer(topic.connection, settings, Collector(), instance_name=topic.name)
        with pytest.raises(ClientStateError, match="has a consumer in the client"):
            second.start()
        assert second.state is ConsumerState.START_FAILED
        refused = r"^\[ROCKETMQ_GROUP\.STATE\] .*could not be started: make a new"
        with pytest.raises(ClientStateError, match=refused):
            second.start()
        topic.send(1)
        until(lambda: first.counts.succeeded == 1)
    with pytest.raises(ClientStateError, match="was shut down: make a new"):
        first.start()


def test_the_start_raises_if_a_broker_refuses_the_filter(topic: Topic) -> None:
    wanted = {topic.name: Subscription("a > ", "SQL92")}
    consumer = PushConsumer(topic.connection, settings_of(topic, subscriptions=wanted), Collector())
    with pytest.raises(BrokerError):
        consumer.start()
    assert consumer.state is ConsumerState.START_FAILED
    assert not [t.name for t in threading.enumerate() if topic.name in t.name]


def test_a_namespace_prefixes_names_and_messages_show_none(topic: Topic) -> None:
    inner = Topic(topic.connection, f"ns%{topic.name}")
    inner.send(1)

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        context.delay_level = 1
        return ConsumeStatus.SUCCESS if messages[0].reconsume_times else None

    listener = Collector(outcome)
    with PushConsumer(topic.connection, settings_of(topic, namespace="ns"), listener) as consumer:
        assert consumer.group == f"ns%g-{topic.name}"
        listener.wait(2)
        assert f"%RETRY%ns%g-{topic.name}" in {queue.topic for queue in consumer.queues}
    assert [m.topic for m in listener.messages] == [topic.name, topic.name]
    assert inner.committed(f"ns%g-{topic.name}") == inner.ends()


def test_one_client_has_one_consumer_of_a_group(topic: Topic) -> None:
    settings = settings_of(topic)
    with (
        PushConsumer(topic.connection, settings, Collector(), instance_name=topic.name),
        pytest.raises(ClientStateError, match="has a consumer in the client"),
    ):
        PushConsumer(topic.connection, settings, Collector(), instance_name=topic.name).start()


def test_no_thread_is_left_behind(topic: Topic) -> None:
    with PushConsumer(topic.connection, settings_of(topic), Collector()) as consumer:
        client_id = consumer.client_id
    mine = [t.name for t in threading.enumerate() if client_id in t.name or topic.name in t.name]
    assert mine == []


def test_an_incomplete_consumer_is_refused() -> None:
    connection = ConnectionSettings(name_servers=("127.0.0.1:1",))
    with pytest.raises(ValueError, match="needs a subscription"):
        PushConsumer(connection, ConsumerSettings("g"), Collector())
    with pytest.raises(ValueError, match="give a listener"):
        PushConsumer(connection, ConsumerSettings("g", {"T": Subscription()}))
    with pytest.raises(ValueError, match="reserved"):
        ConsumerSettings("DEFAULT_CONSUMER")
    with pytest.raises(ValueError, match="a group's name"):
        ConsumerSettings("a b")
    with pytest.raises(ValueError, match="no topic can be called"):
        ConsumerSettings("g", {"a b": Subscription()})
    with pytest.raises(ValueError, match=r"subscription of 'T' is Subscription\('A'\)"):
        ConsumerSettings("g", cast(Any, {"T": "A"}))
    with pytest.raises(ValueError, match="subscriptions maps topics"):
        ConsumerSettings("g", cast(Any, ["T"]))
    with pytest.raises(ValueError, match="a namespace is"):
        ConsumerSettings("g", namespace="a%b")
    with pytest.raises(ValueError, match="attempts_max must be 0 or more"):
        ConsumerSettings("g", attempts_max=-1)
    with pytest.raises(ValueError, match="consume_batch_size must be 1 to 1024"):
        ConsumerSettings("g", consume_batch_size=0)


def test_after_a_reset_queues_are_consumed_from_the_new_offset(topic: Topic) -> None:
    topic.send(40)
    listener = Collector()
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, listener) as consumer:
        listener.wait(40)
        consumer.restart(dict.fromkeys(topic.queues, 5))
        listener.wait(60)
    again = [(m.queue_index, m.queue_offset) for m in listener.messages[40:]]
    assert sorted(again) == [(index, offset) for index in range(4) for offset in range(5, 10)]
    assert topic.committed(settings.group) == topic.ends()


def test_a_member_reports_its_state_to_tools(topic: Topic) -> None:
    topic.send(40)
    listener = Collector()
    before_ms = time.time_ns() // 1_000_000
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        started_ms = time.time_ns() // 1_000_000
        listener.wait(40)
        until(lambda: sum(consumer.offsets()[queue] for queue in topic.queues) == 40)
        info = consumer.running_info()
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    # Two clocks, each rounded down to milliseconds.
    said_ms = int(info.properties["PROP_CONSUMER_START_TIMESTAMP"])
    assert before_ms - 2 <= said_ms <= started_ms + 2
    states = {q: (i.done, i.count) for q, i in info.queues.items() if q.topic == topic.name}
    assert states == dict.fromkeys(topic.queues, (10, 0))
    rates = info.rates[topic.name]
    assert min(rates.pulled, rates.succeeded) > 0
    assert info.rates[f"%RETRY%g-{topic.name}"] == ConsumeRates()
    assert {name for name, *_ in info.subscriptions} == {topic.name, f"%RETRY%g-{topic.name}"}


def test_the_number_of_threads_can_change_at_any_time(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        for round_number, threads in enumerate((1, 8, 2)):
            consumer.resize(threads)
            size = consumer.running_info().properties["PROP_THREADPOOL_CORE_SIZE"]
            assert size == str(threads)
            topic.send(20, prefix=f"{round_number}-")
            listener.wait(20 * (round_number + 1))
        with pytest.raises(ValueError, match="threads must be 1 to 1000"):
            consumer.resize(0)


class NotingHook:
    """A hook that notes the outcomes of listeners, and fails."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.names: object = None

    def before(self, messages: object, context: ConsumeContext) -> None:
        del messages
        context.properties["begun"] = not context.is_success

    def after(self, messages: object, context: ConsumeContext, result: ReturnType) -> None:
        del messages
        self.seen.append((context.properties["begun"], result, context.is_success))
        self.names = context.group, context.namespace
        raise RuntimeError("the hook's own")


def test_hooks_get_the_outcome_of_listeners_and_disturb_nothing(topic: Topic) -> None:
    answers: list[object] = [ConsumeStatus.SUCCESS, None, ConsumeStatus.RECONSUME_LATER]

    def outcome(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        del messages, context
        if not answers:
            raise ValueError("the listener's own")
        return answers.pop(0)

    with Producer(topic.connection) as producer:
        queue = topic.queues[0]
        producer.send_batch(queue, [Message(topic.name, b"x")] * 4)
    hook = NotingHook()
    settings = settings_of(topic, threads=1)
    with PushConsumer(topic.connection, settings, Collector(outcome), hooks=[hook]):
        until(lambda: len(hook.seen) == 4)
    assert hook.seen == [
        (True, ReturnType.SUCCESS, True),
        (True, ReturnType.RETURN_NULL, False),
        (True, ReturnType.FAILED, False),
        (True, ReturnType.EXCEPTION, False),
    ]
    assert hook.names == (settings.group, None)


def test_each_message_has_its_consumption_start(topic: Topic) -> None:
    topic.send(1)
    listener = Collector()
    before_ms = time.time_ns() // 1_000_000
    with PushConsumer(topic.connection, settings_of(topic), listener):
        listener.wait(1)
    assert int(listener.messages[0].properties["CONSUME_START_TIME"]) >= before_ms


def test_a_broker_that_forgot_a_member_hears_from_it_and_no_message_is_lost(topic: Topic) -> None:
    listener = Collector()
    settings = settings_of(topic)
    with PushConsumer(topic.connection, settings, listener) as consumer:
        topic.send(4, prefix="a")
        listener.wait(4)
        with open_cluster(topic.connection) as cluster:
            cluster.ask_masters(UnregisterClient(consumer.client_id, None, settings.group))
        topic.send(8, prefix="b")
        listener.wait(12)
    assert len(set(listener.bodies)) == 12
    assert topic.committed(settings.group) == topic.ends()


def test_brokers_filter_by_the_heartbeat_and_follow_a_changed_subscription(topic: Topic) -> None:
    listener = Collector()
    wanted = {topic.name: Subscription("a")}
    settings = settings_of(topic, subscriptions=wanted)
    with PushConsumer(topic.connection, settings, listener) as consumer:
        topic.send(4, tags="b", prefix="no")
        topic.send(4, tags="a", prefix="a")
        listener.wait(4)
        consumer.subscribe(topic.name, "b")
        topic.send(4, tags="a", prefix="no")
        topic.send(4, tags="b", prefix="b")
        listener.wait(8)
    assert sorted(listener.bodies) == sorted(f"{t}{i}".encode() for t in "ab" for i in range(4))
