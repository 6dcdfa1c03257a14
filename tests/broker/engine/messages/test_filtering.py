"""SQL92 filters in the broker: refusals, matching messages, and how far a pull reads."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.messages import filtering
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.filters.sql92 import parse_selector
from rocketmq_wire.model import ConsumerInfo, Subscription, TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import CheckSubscription, Heartbeat
from rocketmq_wire.requests.messages import PullMessages, PullStatus, SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import NOW_MS, EngineUnderTest, offsets_of, pull_reply, queue_of

ORDERS_0 = queue_of("orders")


@pytest.fixture
def broker():
    broker = EngineUnderTest(property_filter=True)
    broker.ask(CreateTopic(TopicConfig("orders")))
    return broker


def sql(expression):
    return Subscription(expression, "SQL92")


def pull(expression, start=0, count_max=32, **more):
    return PullMessages("g", ORDERS_0, start, count_max, subscription=sql(expression), **more)


def send(broker, body=b"x", **properties):
    encoded = encode_properties(properties)
    broker.ask(SendMessage("p", ORDERS_0, NOW_MS, body, encoded))


def test_only_matching_messages_come_and_the_next_offset_is_behind_the_examined_ones(broker):
    for number in range(10):
        send(broker, a=str(number), TAGS="even" if number % 2 == 0 else "odd")
    reply = broker.ask(pull("a BETWEEN 2 AND 5 AND TAGS = 'even'"))
    assert (reply.status, offsets_of(reply), reply.next_begin) == (PullStatus.FOUND, [2, 4], 10)
    reply = broker.ask(pull("a > 7", start=6))
    assert offsets_of(reply) == [8, 9]
    reply = broker.ask(pull("missing IS NOT NULL"))
    assert (reply.status, reply.next_begin) == (PullStatus.NO_MATCHED_MESSAGE, 10)
    assert reply.records == ()


def test_limits_leave_the_next_match_for_the_next_pull(broker):
    for number in range(10):
        send(broker, b"x" * 1_000, a=str(number % 2))
    reply = broker.ask(pull("a = 1", count_max=2))
    assert (offsets_of(reply), reply.next_begin) == ([1, 3], 5)
    reply = broker.ask(pull("a = 1", start=5, bytes_max=1))
    assert (offsets_of(reply), reply.next_begin) == ([5], 7)


def test_a_pull_examines_as_many_messages_as_it_asks_for_but_at_least_800(broker):
    for _ in range(1_000):
        send(broker, a="1")
    assert broker.ask(pull("a = 2")).next_begin == 800
    assert broker.ask(pull("a = 2", count_max=900)).next_begin == 900


def test_messages_in_several_files_of_the_log_are_examined(broker):
    # The log's files hold 1 MiB here.
    for number in range(40):
        send(broker, b"x" * 100_000, a=str(number % 3))
    assert offsets_of(broker.ask(pull("a = 0"))) == list(range(0, 40, 3))


def test_a_held_pull_waits_behind_messages_that_do_not_match(broker):
    hold = broker.held(pull("a = 1", suspend_ms=1_000))
    send(broker, a="2")
    hold = broker.resumed(hold)
    assert hold.start == 1
    send(broker, a="1")
    assert offsets_of(pull_reply(broker.resumed(hold))) == [1]


def test_wrong_expression_in_a_pull_filters_nothing_as_in_rocketmq(broker):
    send(broker, a="1")
    assert offsets_of(broker.ask(pull("a ="))) == [0]


def test_registered_expressions_filter_and_wrong_ones_are_refused(broker):
    send(broker, a="1")
    send(broker, a="2")

    def register(expression, version):
        subscriptions = (("orders", expression, "SQL92", version),)
        broker.ask(Heartbeat("c1", (), (ConsumerInfo("g", "", "", "", subscriptions),)))

    request = PullMessages(
        "g", ORDERS_0, 0, 32, uses_registered_subscription=True, subscription_version=5
    )
    register("a = 2", 5)
    assert offsets_of(broker.ask(request)) == [1]
    register("a =", 6)
    assert broker.refusal(request).code == 27


@pytest.mark.parametrize(
    ("subscription", "code"),
    [(sql("a > 1"), None), (sql("a >"), 23), (sql(""), 23), (Subscription("x", "OTHER"), 23)],
)
def test_expressions_can_be_checked_before_use(broker, subscription, code):
    request = CheckSubscription("c1", "g", "orders", subscription)
    if code is None:
        assert broker.ask(request) == Done()
    else:
        assert broker.refusal(request).code == code


def test_expressions_are_refused_unless_the_broker_allows_them():
    broker = EngineUnderTest()
    broker.ask(CreateTopic(TopicConfig("orders")))
    with pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"):
        broker.outcome(pull("a = 1"))
    assert broker.refusal(CheckSubscription("c1", "g", "orders", sql("a = 1"))).code == 1


def test_a_long_expression_examines_fewer_messages(broker):
    for number in range(300):
        send(broker, a=str(number))
    long = " OR ".join(f"b = {number}" for number in range(1_000))
    reply = broker.ask(pull(long))
    assert reply.status is PullStatus.NO_MATCHED_MESSAGE
    assert 0 < reply.next_begin < 200
    assert broker.ask(pull("b = 1")).next_begin == 300


def test_long_properties_count_as_many_short_ones(broker):
    for _ in range(40):
        send(broker, a="x" * 30_000)
    long = " OR ".join(f"a CONTAINS 'y{number}'" for number in range(400))
    assert 0 < broker.ask(pull(long)).next_begin < 20


def test_an_expression_of_too_many_words_is_refused_and_not_passed_over(broker):
    long = " OR ".join(["b"] * 3_000)
    with pytest.raises(BrokerError, match="more than 4096 words") as caught:
        broker.ask(pull(long))
    assert caught.value.code == 23


@pytest.mark.parametrize("kind", ["TAG", "SQL92", "x" * 100])
def test_an_expression_over_the_limit_is_refused(broker, kind):
    wanted = Subscription("a || " * 4_000 + "a", kind)
    with pytest.raises(BrokerError, match="over 16384") as caught:
        broker.ask(PullMessages("g", ORDERS_0, 0, 32, subscription=wanted))
    assert caught.value.code == 23


def test_a_refused_expression_is_parsed_once(broker, monkeypatch):
    parsed = []

    def parse(text, **limits):
        parsed.append(text)
        return parse_selector(text, **limits)

    monkeypatch.setattr(filtering, "parse_selector", parse)
    for _ in range(3):
        with pytest.raises(BrokerError):
            broker.ask(CheckSubscription("c", "g", "orders", sql("once = = 1")))
    assert parsed == ["once = = 1"]


def test_the_filters_of_long_expressions_are_few(broker):
    info = filtering._found_long.cache_info()
    for number in range(40):
        wanted = Subscription("t" * 600 + str(number))
        broker.ask(PullMessages("g", ORDERS_0, 0, 32, subscription=wanted))
    assert info.maxsize == 32
    assert filtering._found_long.cache_info().currsize <= 32
