"""Push consumers on the bundled broker, over sockets: who gets what, what becomes of failures."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
    ReturnType,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings, MessageModel
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.consumer.membership.client_instance import ClientStateError, client_id_of
from rocketmq_client.consumer.offset_store.local_file import LocalOffsetFile, ProgressFileError
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.local_address import local_address
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Message, QueueId, Subscription
from support.consuming import SECONDS_MAX, Collector, Topic, settings_of, until


def test_every_message_comes_once_and_progress_is_stored_at_the_end(topic: Topic) -> None:
    bodies = topic.send(200)
    listener = Collector()
    settings = settings_of(topic, consume_batch_size=8)
    with PushConsumer(topic.connection, settings, listener) as consumer:
        listener.wait(200)
        assert [q for q in consumer.queues if q.topic == topic.name] == list(topic.queues)
    assert sorted(listener.bodies) == sorted(bodies)
    assert topic.committed(settings.group) == topic.ends()


def test_messages_that_arrive_later_come_at_once(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        until(lambda: set(topic.queues) <= set(consumer.queues))
        topic.send(10)
        listener.wait(10)


def test_a_second_start_goes_on_where_the_first_ended(topic: Topic) -> None:
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


def test_only_wanted_tags_come_and_progress_passes_the_others(topic: Topic) -> None:
    topic.send(10, tags="TagA", prefix="a")
    topic.send(10, tags="TagB", prefix="b")
    subscriptions = {topic.name: Subscription("TagA")}
    # What does not match wakes no held pull: progress passes it when the hold is over.
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
def test_a_failed_message_comes_again_with_its_first_topic(topic: Topic, answer: str) -> None:
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

    # One thread: if the listener's failure ended it, nothing would come again.
    settings = settings_of(topic, threads=1)
    with PushConsumer(topic.connection, settings, note):
        listener.wait(1)
    assert seen == [(topic.name, 0), (topic.name, 1)]
    assert topic.committed(settings.group) == topic.ends()


def test_what_lies_behind_the_ack_index_failed(topic: Topic) -> None:
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
    letters = settings_of(
        topic, group=f"dlq-{topic.name}", subscriptions={f"%DLQ%{settings.group}": Subscription()}
    )
    with PushConsumer(topic.connection, letters, dead):
        dead.wait(1)
    (letter,) = dead.messages
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"poison0", topic.name)


def test_a_listener_that_takes_too_long_has_its_message_sent_back(topic: Topic) -> None:
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


def test_in_broadcasting_every_member_gets_everything(
    topic: Topic, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bodies = topic.send(20)
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    listeners = [Collector(lambda *_: ConsumeStatus.RECONSUME_LATER), Collector()]
    with ExitStack() as stack:
        for number, listener in enumerate(listeners):
            name = f"{topic.name}-{number}"
            stack.enter_context(
                PushConsumer(topic.connection, settings, listener, instance_name=name)
            )
        for listener in listeners:
            listener.wait(20)
    for listener in listeners:
        assert sorted(listener.bodies) == sorted(bodies)
    # Failures are dropped, so both are done; and the broker was told nothing.
    again = Collector()
    name = f"{topic.name}-0"
    with PushConsumer(topic.connection, settings, again, instance_name=name) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))
        topic.send(4, prefix="new")
        again.wait(4)
    assert sorted(again.bodies) == [b"new0", b"new1", b"new2", b"new3"]


def test_what_comes_after_an_offset_was_illegal_is_consumed(
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


def test_in_broadcasting_a_restart_goes_on_where_it_ended_without_a_name(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    topic.send(20)
    # From the queues' ends: without its progress it would miss what came while it was away.
    settings = settings_of(topic, model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.LAST)
    first, second = Collector(), Collector()
    with PushConsumer(topic.connection, settings, first) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))
        topic.send(4, prefix="seen")
        first.wait(4)
        name = consumer.client_id
    assert name.endswith("@DEFAULT"), "as Java's"
    topic.send(4, prefix="away")
    with PushConsumer(topic.connection, settings, second):
        second.wait(4)
    assert sorted(second.bodies) == [b"away0", b"away1", b"away2", b"away3"]


def test_two_processes_do_not_keep_their_progress_in_one_file(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = settings_of(topic, model=MessageModel.BROADCASTING)

    def consumer(name: str | None = None) -> PushConsumer:
        return PushConsumer(topic.connection, settings, Collector(), instance_name=name)

    theirs = LocalOffsetFile(client_id_of(local_address(), "DEFAULT", None), settings.group)
    assert theirs.acquire()
    with pytest.raises(ClientStateError, match="name the instance differently"):
        consumer().start()
    with consumer("another"):
        pass
    theirs.release()
    with consumer():
        assert not theirs.acquire()
    assert theirs.acquire()
    theirs.release()


@pytest.mark.parametrize("refused", ["pathlib.Path.mkdir", "fcntl.flock"])
def test_progress_that_cannot_be_kept_is_told_at_the_start(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(refused, refuse)
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    with pytest.raises(ClientStateError, match="Let HOME be a directory that may be written to"):
        PushConsumer(topic.connection, settings, Collector()).start()


def test_a_torn_file_of_progress_is_told_at_the_start_and_by_its_name(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    file = LocalOffsetFile(client_id_of(local_address(), "DEFAULT", None), settings.group)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b'{"offsetTable":{{"brok')
    words = r"ROCKETMQ_GROUP.PROGRESS_FILE\] .*offsets\.json and its backup .* remove both"
    with pytest.raises(ProgressFileError, match=words):
        PushConsumer(topic.connection, settings, Collector()).start()
    file.path.unlink()
    with PushConsumer(topic.connection, settings, Collector()) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))


def test_a_suspended_consumer_pulls_nothing(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        until(lambda: set(topic.queues) <= set(consumer.queues))
        consumer.resize(2)
        consumer.suspend()
        topic.send(8)
        # Pulls that were held before bring what arrives first; nothing is pulled behind that.
        topic.send(8, prefix="more")
        consumer.resume()
        listener.wait(16)
    assert len(listener.messages) == 16


def test_a_topic_can_be_subscribed_to_at_work_and_given_up(topic: Topic) -> None:
    other = Topic(topic.connection, f"{topic.name}b")
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        consumer.subscribe(other.name)
        topic.send(4, prefix="a")
        other.send(4, prefix="b")
        listener.wait(8)
        consumer.unsubscribe(other.name)
        until(lambda: not {*other.queues} & {*consumer.queues})


def test_a_consumer_whose_start_failed_says_so_from_then_on(topic: Topic) -> None:
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


def test_a_filter_that_no_broker_takes_ends_the_start(topic: Topic) -> None:
    wanted = {topic.name: Subscription("a > ", "SQL92")}
    consumer = PushConsumer(topic.connection, settings_of(topic, subscriptions=wanted), Collector())
    with pytest.raises(BrokerError):
        consumer.start()
    assert consumer.state is ConsumerState.START_FAILED
    assert not [t.name for t in threading.enumerate() if topic.name in t.name]


def test_in_a_namespace_names_are_prefixed_and_messages_show_none_of_it(topic: Topic) -> None:
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


def test_a_consumer_says_what_it_lacks() -> None:
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
    with pytest.raises(ValueError, match="a namespace is"):
        ConsumerSettings("g", namespace="a%b")
    with pytest.raises(ValueError, match="attempts_max must be 0 or more"):
        ConsumerSettings("g", attempts_max=-1)
    with pytest.raises(ValueError, match="consume_batch_size must be 1 to 1024"):
        ConsumerSettings("g", consume_batch_size=0)


def test_after_a_reset_the_queues_are_consumed_again_from_there(topic: Topic) -> None:
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


def test_a_member_tells_tools_what_it_does(topic: Topic) -> None:
    topic.send(40)
    listener = Collector()
    before_ms = time.time_ns() // 1_000_000
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        started_ms = time.time_ns() // 1_000_000
        listener.wait(40)
        until(lambda: sum(consumer.offsets()[queue] for queue in topic.queues) == 40)
        info = consumer.running_info()
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    # Two clocks, each cut to milliseconds.
    said_ms = int(info.properties["PROP_CONSUMER_START_TIMESTAMP"])
    assert before_ms - 2 <= said_ms <= started_ms + 2
    states = {q: (i.done, i.count) for q, i in info.queues.items() if q.topic == topic.name}
    assert states == dict.fromkeys(topic.queues, (10, 0))
    assert info.rates[topic.name].succeeded > 0
    assert {name for name, *_ in info.subscriptions} == {topic.name, f"%RETRY%g-{topic.name}"}


def test_threads_can_be_more_or_fewer_while_messages_come(topic: Topic) -> None:
    listener = Collector()
    with PushConsumer(topic.connection, settings_of(topic), listener) as consumer:
        for round_number, threads in enumerate((1, 8, 2)):
            consumer.resize(threads)
            topic.send(20, prefix=f"{round_number}-")
            listener.wait(20 * (round_number + 1))
        with pytest.raises(ValueError, match="threads must be 1 to 1000"):
            consumer.resize(0)


class NotingHook:
    """A hook that notes how listeners came back, and then fails."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def before(self, messages: object, context: ConsumeContext) -> None:
        del messages
        context.properties["begun"] = True

    def after(self, messages: object, context: ConsumeContext, result: ReturnType) -> None:
        del messages
        self.seen.append((context.properties["begun"], result))
        raise RuntimeError("the hook's own")


def test_hooks_see_how_listeners_came_back_and_disturb_nothing(topic: Topic) -> None:
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
        (True, ReturnType.SUCCESS),
        (True, ReturnType.RETURN_NULL),
        (True, ReturnType.FAILED),
        (True, ReturnType.EXCEPTION),
    ]


def test_each_message_says_when_its_consumption_began(topic: Topic) -> None:
    topic.send(1)
    listener = Collector()
    before_ms = time.time_ns() // 1_000_000
    with PushConsumer(topic.connection, settings_of(topic), listener):
        listener.wait(1)
    assert int(listener.messages[0].properties["CONSUME_START_TIME"]) >= before_ms
