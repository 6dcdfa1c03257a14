"""A queue's pulls and the effect of their replies, without sockets."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import cast

import pytest

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, FlowLimits
from rocketmq_client.consumer.pulling.process_queue import FlowLimit
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller, Subscribed
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.remoting.codec import encode_request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import OffsetReply
from support.group_fakes import FakeIo
from support.received_messages import received
from support.records import GOLDEN_RECORD, lay_out, make_records

QUEUE = QueueId("orders", "a", 0)


class Pulls:
    """A puller; the test is its broker."""

    def __init__(self, **settings: object) -> None:
        self.io = FakeIo()
        self.got: list[ReceivedMessage] = []
        self.illegal: list[int] = []
        self.subscriptions: dict[str, Subscription] = {"orders": Subscription("TagA")}
        self.puller = QueuePuller(
            cast(IoThread, self.io),
            ConsumerSettings("g", **settings),  # type: ignore[arg-type]
            is_orderly=False,
            on_messages=lambda _, messages: self.got.extend(messages),
            on_illegal=lambda _, offset: self.illegal.append(offset),
            subscription_of=self.subscribed,
        )

    def subscribed(self, topic: str) -> Subscribed | None:
        wanted = self.subscriptions.get(topic)
        # Each expression of a test has its own version.
        return Subscribed(wanted, ord(wanted.expression[-1])) if wanted is not None else None

    def begin(self, offset: int) -> OwnedQueue:
        owned = self.puller.own(QUEUE, offset, self.subscriptions["orders"])
        self.puller.start(owned)
        self.io.run()
        return owned

    @property
    def pull(self) -> PullMessages:
        """The last request."""
        request = self.io.sent[-1][0]
        assert isinstance(request, PullMessages)
        return request

    def answer(self, reply: PullReply) -> None:
        self.io.sent.pop()[1](reply)
        self.io.run()


@pytest.fixture
def pulls() -> Pulls:
    return Pulls()


def nothing(next_begin: int, *, suggested: int = 0) -> PullReply:
    return PullReply(
        PullStatus.NO_MATCHED_MESSAGE, next_begin, 0, 100, suggested_broker_id=suggested
    )


def test_without_matches_the_consumed_offset_moves_and_pulls_commit_it(pulls: Pulls) -> None:
    owned = pulls.begin(10)
    assert (pulls.pull.start, pulls.pull.commit) == (10, 10)
    pulls.answer(nothing(50))
    assert owned.process.consumed_offset == 50
    assert (pulls.pull.start, pulls.pull.commit) == (50, 50)


def test_a_replicas_pull_neither_commits_nor_waits(pulls: Pulls) -> None:
    pulls.begin(10)
    assert pulls.pull.suspend_ms == 15_000
    pulls.answer(nothing(20, suggested=1))
    assert pulls.pull.commit is None
    assert pulls.pull.suspend_ms is None
    pulls.answer(nothing(30))
    assert (pulls.pull.commit, pulls.pull.suspend_ms) == (30, 15_000)


def test_a_warning_names_a_broker_that_answers_backward(
    pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    owned = pulls.begin(10)
    pulls.answer(nothing(9))
    assert "which is backward" in caplog.text
    assert owned.process.consumed_offset == 10


def illegal(next_begin: int, start: int, end: int) -> PullReply:
    return PullReply(PullStatus.OFFSET_ILLEGAL, next_begin, start, end)


def test_an_illegal_offset_drops_the_queue_and_corrects_it(pulls: Pulls) -> None:
    owned = pulls.begin(70)
    pulls.answer(illegal(10, 0, 10))
    assert pulls.illegal == [10]
    assert owned.process.is_dropped
    assert pulls.io.sent == [], "nothing more is pulled"


def test_unconsumed_messages_are_pulled_again_if_the_end_went_back(pulls: Pulls) -> None:
    owned = pulls.begin(6)
    owned.process.add([received(offset) for offset in range(6)], 6)
    owned.process.remove(owned.process.first(2))
    pulls.answer(illegal(4, 0, 4))
    assert pulls.illegal == [2], "the messages at 2 and 3 exist and are not consumed"


def test_pulls_continue_behind_expired_messages_and_pulled_ones_are_consumed(
    pulls: Pulls,
) -> None:
    owned = pulls.begin(6)
    owned.process.add([received(offset) for offset in range(6)], 6)
    pulls.answer(illegal(70, 70, 100))
    assert (pulls.illegal, owned.process.is_dropped) == ([], False)
    assert (pulls.pull.start, owned.process.count, owned.process.consumed_offset) == (70, 6, 0)


def test_a_reset_drops_the_earlier_state(pulls: Pulls) -> None:
    owned = pulls.begin(10)
    pulls.answer(illegal(70, 0, 100))
    assert (pulls.illegal, owned.process.is_dropped) == ([70], True)


def test_a_reply_for_a_lost_queue_is_ignored(pulls: Pulls) -> None:
    owned = pulls.begin(0)
    owned.process.drop()
    pulls.answer(PullReply(PullStatus.FOUND, 1, 0, 1, tuple(make_records(1))))
    assert (pulls.got, owned.process.consumed_offset) == ([], 0)


def test_the_current_subscription_decides_the_next_pull(pulls: Pulls) -> None:
    owned = pulls.begin(0)
    pulls.subscriptions["orders"] = Subscription("TagB")
    pulls.answer(nothing(5))
    assert pulls.pull.subscription == Subscription("TagB")
    assert owned.tags == {"TagB"}
    del pulls.subscriptions["orders"]
    pulls.answer(nothing(6))
    assert pulls.io.sent == []
    assert len(pulls.io.timers) == 1, "it is checked again after three seconds"


def found(count: int) -> PullReply:
    return PullReply(PullStatus.FOUND, count, 0, count, make_records(count)[:1])


def test_pulls_with_messages_are_counted_by_topic() -> None:
    pulls = Pulls()
    pulls.subscriptions["orders"] = Subscription()
    pulls.begin(0)
    pulls.answer(found(3))
    pulls.answer(nothing(9))
    counts = pulls.puller.rates.of("orders")
    assert (counts.pulls, counts.pulled) == (1, 3)


@pytest.mark.parametrize("posts", [True, False])
def test_a_pull_names_its_subscription_s_version_and_posts_it_if_wanted(posts: bool) -> None:
    pulls = Pulls()
    pulls.puller.posts_subscription = posts
    pulls.begin(0)
    assert pulls.pull.subscription_version == ord("A")
    assert pulls.pull.uses_registered_subscription is not posts
    fields = encode_request(pulls.pull).ext_fields
    assert (fields["sysFlag"], fields.get("subscription")) == (
        ("6", "TagA") if posts else ("2", None)
    )
    assert (fields["subVersion"], fields["expressionType"]) == ("65", "TAG")


def test_a_reply_that_another_subscription_filtered_is_pulled_again(pulls: Pulls) -> None:
    pulls.puller.posts_subscription = False
    owned = pulls.begin(4)
    pulls.subscriptions["orders"] = Subscription("TagB")
    pulls.answer(nothing(9))
    assert (pulls.pull.start, pulls.pull.subscription_version) == (4, ord("B"))
    pulls.answer(nothing(9))
    assert owned.process.consumed_offset == 9


@pytest.mark.parametrize(("code", "count"), [(24, 1), (25, 1), (1, 0)])
def test_a_broker_that_does_not_know_the_subscription_gets_a_heartbeat(
    pulls: Pulls, code: int, count: int
) -> None:
    wanted: list[None] = []
    pulls.puller.on_unregistered = lambda: wanted.append(None)
    owned = pulls.begin(4)
    pulls.io.sent.pop()[1](broker_error(code, "no"))
    assert (len(wanted), owned.process.consumed_offset, pulls.io.sent) == (count, 4, [])


@pytest.mark.parametrize(("topic", "level"), [("orders", "WARNING"), ("%RETRY%g", "DEBUG")])
def test_failed_pulls_are_warned_of_except_those_of_retry_topics(
    pulls: Pulls, caplog: pytest.LogCaptureFixture, topic: str, level: str
) -> None:
    caplog.set_level("DEBUG")
    pulls.subscriptions[topic] = Subscription()
    pulls.puller.start(pulls.puller.own(QueueId(topic, "a", 0), 0, Subscription()))
    pulls.io.run()
    pulls.io.sent.pop()[1](broker_error(17, "no topic"))
    (record,) = caplog.records
    assert (record.levelname, "a pull failed" in record.message) == (level, True)


def test_messages_of_another_member_s_subscription_are_reported(
    pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    pulls.puller.posts_subscription = False
    golden, _ = decode_record(GOLDEN_RECORD)
    tagged = replace(golden, topic="orders", queue_offset=0, properties={"TAGS": "BB"})
    # The two tags have one hash: a broker cannot tell them apart, and nobody is to blame.
    for wanted, count in (("Aa", 0), ("TagA", 1)):
        pulls.subscriptions["orders"] = Subscription(wanted)
        owned = pulls.begin(0)
        pulls.answer(PullReply(PullStatus.FOUND, 1, 0, 1, (lay_out(tagged),)))
        assert (pulls.got, owned.process.consumed_offset) == ([], 1)
        lines = [line for line in caplog.messages if "another subscription" in line]
        assert (len(lines), pulls.puller.mismatches) == (count, count)
    assert "than 'TagA': messages with the tag BB were dropped" in lines[0]


def test_waits_are_logged_once_until_the_queue_is_pulled_from(
    pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    owned = pulls.puller.own(QUEUE, 0, Subscription())
    owned.control.is_orderly, owned.control.is_first = True, False

    def step(*, times: int = 3) -> list[str]:
        caplog.clear()
        for _ in range(times):
            owned.control.not_before_ms = 0
            pulls.puller.start(owned)
            pulls.io.run()
        return [f"{record.levelname} {record.message}" for record in caplog.records]

    name = f"group=g {QUEUE}"
    assert step() == [f"INFO {name}: it is not locked in the broker: pulling later"]
    wanted = pulls.subscriptions.pop("orders")
    assert step() == [f"WARNING {name}: its topic is not subscribed: pulling later"]
    pulls.puller.is_suspended = True
    assert step() == [f"WARNING {name}: the consumer is suspended: pulling later"]
    pulls.puller.is_suspended, pulls.subscriptions["orders"] = False, wanted
    owned.process.is_locked, owned.process.lock_ms = True, now_ms()
    assert step(times=1) == []
    assert owned.logged is None
    owned.control.is_pulling, pulls.puller.paused = False, frozenset({QUEUE})
    assert step() == [f"DEBUG {name}: the consumer is suspended: pulling later"]
    owned.logged, pulls.puller.is_stopping = None, True
    assert step() == []


@pytest.mark.parametrize(
    ("answer", "begin", "levels"),
    [
        (OffsetReply(12), 12, ["INFO"]),
        (OffsetReply(7), 7, ["INFO", "INFO"]),
        (broker_error(1, "no"), 10, ["ERROR"]),
    ],
)
def test_the_first_pull_under_a_lock_logs_where_it_begins(
    pulls: Pulls,
    caplog: pytest.LogCaptureFixture,
    answer: OffsetReply | BrokerError,
    begin: int,
    levels: list[str],
) -> None:
    caplog.set_level("INFO")
    owned = pulls.puller.own(QUEUE, 10, pulls.subscriptions["orders"])
    owned.control.is_orderly, owned.process.is_locked = True, True
    owned.process.lock_ms = now_ms()
    pulls.puller.start(owned)
    pulls.io.run()
    pulls.io.sent.pop()[1](answer)
    assert [record.levelname for record in caplog.records] == levels
    assert ("[NOTIFYME]" in caplog.text) is (len(levels) == 2)
    assert owned.process.next_begin == begin


def test_paused_queues_are_not_pulled_from(pulls: Pulls) -> None:
    pulls.puller.paused = frozenset({QUEUE})
    pulls.begin(0)
    assert pulls.io.sent == []
    assert len(pulls.io.timers) == 1


def test_the_first_of_every_thousand_delays_is_logged_by_consumer_and_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pulls = Pulls(limits=FlowLimits(count_max=2, span_max=50))
    full, spread = pulls.begin(0), pulls.begin(0)
    full.process.add([received(offset) for offset in range(5, 8)], 8)
    spread.process.add([received(0), received(60)], 61)
    for _ in range(1_001):
        for owned in (full, full, spread):
            owned.control.is_pulling, owned.control.not_before_ms = False, 0
            pulls.puller.start(owned)
            pulls.io.run()
    lines = [line for line in caplog.messages if "flow control" in line]
    assert [line.rpartition("=")[2] for line in lines] == ["1", "1", "1001", "2001", "1001"]
    assert lines[0] == (
        f"group=g {QUEUE}: flow control by one queue's messages or bytes: minOffset=5 maxOffset=7 "
        "count=3 size=3 bytes, limits: count=2 size=104857600 bytes span=50, nextOffset=8 "
        "flowControlTimes=1"
    )
    assert "one queue's span of offsets: minOffset=0 maxOffset=60 count=2" in lines[1]
    assert pulls.puller.delays == {FlowLimit.QUEUE: 2_002, FlowLimit.SPAN: 1_001}


def test_a_queue_consumed_while_its_delay_is_counted_is_pulled_from_later() -> None:
    pulls = Pulls(limits=FlowLimits(count_max=2))
    owned = pulls.begin(0)
    owned.process.add([received(offset) for offset in range(3)], 3)
    owned.control.is_pulling, owned.control.not_before_ms = False, 0

    class Consumed(AbstractContextManager[None]):
        """A lock; when it is released the listener's thread takes it and ends the delay."""

        def __exit__(self, *_: object) -> None:
            owned.control.exceeded = None

    owned.lock = Consumed()  # type: ignore[assignment]
    pulls.puller.start(owned)
    pulls.io.run()
    assert pulls.puller.delays == {FlowLimit.QUEUE: 1}
    assert len(pulls.io.timers) == 1
