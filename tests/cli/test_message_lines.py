"""Lines -> messages: what each field of a JSON object may be, and what shares a batch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_cli.main import main
from rocketmq_cli.messages.lines import (
    MessageDefaults,
    Outgoing,
    QueueTarget,
    batches,
    outgoing_lines,
)
from rocketmq_cli.messages.rendering import JSON_FIELDS
from rocketmq_cli.usage import EXIT_USAGE, UsageError
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import BrokerAddresses, Message, QueueId
from rocketmq_wire.records.properties import decode_properties
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendBatch, SendMessage, SendReply, SendStatus
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

WAIT_S = 20.0
Produce = Callable[..., int]


def outgoing(row: object, defaults: MessageDefaults | None = None) -> Outgoing:
    line = json.dumps(row).encode()
    (found,) = outgoing_lines([line], "t", defaults or MessageDefaults(), first=7, is_json=True)
    return found


def test_every_field_of_a_row_reaches_its_message() -> None:
    row = {
        "body": "b",
        "tags": "paid",
        "keys": ["k1", "k2"],
        "properties": {"colour": "red", "count": 5, "is_new": True, "none": None, "KEYS": "x"},
        "queue": 3,
        "broker": "broker-b",
        "storeTimestamp": "left out",
    }
    found = outgoing(row)
    properties = {"colour": "red", "count": "5", "is_new": "true"}
    assert found.message == Message("t", b"b", "paid", "k1 k2", properties)
    assert found.target == QueueTarget("broker-b", 3)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tag", "tags"),
        ("key", "keys"),
        ("property", "properties"),
        ("queueId", "queue"),
        ("brokerName", "broker"),
        ("Tags", "tags"),
    ],
)
def test_a_field_with_a_name_similar_to_a_known_one_is_reported(name: str, meant: str) -> None:
    warnings: list[tuple[str, str]] = []
    defaults = MessageDefaults(warn=lambda *words: warnings.append(words))
    outgoing({"body": "x", name: "y"}, defaults)
    assert warnings == [("line 7", f"the field {name!r} is ignored: did you mean {meant!r}?")]


def test_fields_of_tail_and_unknown_names_are_ignored_silently() -> None:
    warnings: list[tuple[str, str]] = []
    defaults = MessageDefaults(warn=lambda *words: warnings.append(words))
    tailed = {name: 1 for name in JSON_FIELDS.values() if name not in ("tags", "keys", "broker")}
    outgoing({**tailed, "properties": {}, "body": "x", "customer": 1, "amount": 2}, defaults)
    assert warnings == []


def test_a_row_goes_before_what_the_command_line_gives() -> None:
    defaults = MessageDefaults("tag", "key", {"a": "1", "b": "2"})
    assert outgoing({"body": "x"}, defaults).message == Message(
        "t", b"x", "tag", "key", {"a": "1", "b": "2"}
    )
    row = {"body": "x", "tags": None, "keys": "own", "properties": {"b": "3"}}
    assert outgoing(row, defaults).message == Message("t", b"x", None, "own", {"a": "1", "b": "3"})


@pytest.mark.parametrize(
    "field",
    [
        {"properties": ["a"]},
        {"properties": "a=b"},
        {"properties": {"a": ["b"]}},
        {"properties": {"a": {"b": "c"}}},
        {"properties": {"": "nameless"}},
        {"properties": {"a": "\u0001"}},
        {"properties": {"a": "x" * 40_000}},
        {"keys": [1]},
        {"keys": ["a b"]},
        {"keys": {"a": 1}},
        {"tags": ["a"]},
        {"tags": 5},
        {"queue": "0"},
        {"queue": -1},
        {"queue": True},
        {"queue": 1.5},
        {"broker": 7},
    ],
    ids=lambda field: json.dumps(field)[:40],
)
def test_a_field_that_is_something_else_is_refused_with_its_line(field: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="line 7"):
        outgoing({"body": "x", **field})


@given(
    st.lists(st.text(min_size=1, max_size=9), max_size=20),
    st.dictionaries(st.sampled_from("abc"), st.text("xyö", min_size=1, max_size=300)),
)
def test_no_batch_exceeds_its_calculated_size(
    bodies: list[str], properties: dict[str, str]
) -> None:
    settings = ConnectionSettings(name_servers=("127.0.0.1:1",))
    defaults = MessageDefaults("tag", "key", properties)
    lines = [body.encode("utf-8", "replace") for body in bodies]
    rows = [{"body": body.decode(), "properties": properties} for body in lines]
    with Producer(settings) as producer:
        for is_json, given_lines in (
            (False, lines),
            (True, [json.dumps(r).encode() for r in rows]),
        ):
            messages = outgoing_lines(given_lines, "t", defaults, first=1, is_json=is_json)
            for batch in batches(messages, 1_000, 1_000):
                queue = QueueId("t", "b", 0)
                body = producer.batch_request(queue, [each.message for each in batch]).body
                assert len(bytes(body)) <= sum(each.size for each in batch)
                assert len(batch) == 1 or len(bytes(body)) <= 1_000


def test_what_is_delayed_or_goes_elsewhere_shares_no_batch() -> None:
    rows: list[dict[str, object]] = [
        {"body": "1"},
        {"body": "2"},
        {"body": "3", "properties": {"DELAY": "5"}},
        {"body": "4", "properties": {"TIMER_DELAY_MS": "5"}},
        {"body": "5"},
        {"body": "6", "queue": 1},
        {"body": "7", "queue": 1},
        {"body": "8", "queue": 1, "broker": "broker-b"},
    ]
    lines = [json.dumps(row).encode() for row in rows]
    messages = list(outgoing_lines(lines, "t", MessageDefaults(), first=1, is_json=True))
    runs = [[int(each.message.body) for each in run] for run in batches(messages, 9, 1 << 20)]
    assert runs == [[1, 2], [3], [4], [5], [6, 7], [8]]
    assert [len(run) for run in batches(messages[:2], 1, 1 << 20)] == [1, 1]


def test_short_lines_with_long_properties_are_sent_in_batches_that_brokers_take(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (topic, "--property", f"long={'x' * 6_000}", "--batch", "1000", "-q", *where)
    assert produce(b"x\n" * 3_000, *words) == 0, capfd.readouterr().err
    capfd.readouterr()
    assert main(["topic", "describe", topic, *where]) == 0
    assert ": 1 queue, 3,000 messages" in capfd.readouterr().out


@pytest.mark.parametrize(
    "delayed", [{"DELAY": "18"}, {"TIMER_DELAY_MS": "3600000"}], ids=["level", "time"]
)
def test_a_delayed_row_is_not_readable_at_once(
    delayed: dict[str, str],
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = [{"body": "now"}, {"body": "later", "properties": delayed}, {"body": "now, too"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert produce(lines.encode(), topic, "--json", "-q", *where) == 0, capfd.readouterr().err
    capfd.readouterr()
    assert main(["tail", topic, *where]) == 0
    assert capfd.readouterr().out == "now\nnow, too\n"


TOPIC = "spread"
QUEUES = tuple(QueueId(TOPIC, f"broker-{b}", index) for b in "ab" for index in range(2))


def requests_of(
    rows: list[dict[str, object]], *words: str, produce: Produce
) -> list[SendMessage | SendBatch]:
    """The requests that the rows became, in a topic of two brokers."""
    with ScriptedBroker({queue: SimulatedQueue(0, 0) for queue in QUEUES}) as broker:
        broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: broker.address}),)
        found: list[SendMessage | SendBatch] = []

        def take(request: Request[Reply]) -> Reply | None:
            if isinstance(request, (SendBatch, SendMessage)):
                found.append(request)
                return SendReply(SendStatus.OK, "id", request.queue.index, len(found))
            return None

        broker.script = take
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        where = ("--name-server", broker.address)
        assert produce(lines.encode(), TOPIC, "--json", "-q", "--batch", "1", *words, *where) == 0
    return found


def sent_to(rows: list[dict[str, object]], *, produce: Produce) -> list[QueueId]:
    """The queue of each request that the rows became."""
    return [request.queue for request in requests_of(rows, produce=produce)]


def test_a_row_goes_to_the_broker_that_it_names(produce: Produce) -> None:
    rows: list[dict[str, object]] = [
        {"body": "x", "queue": queue.index, "broker": queue.broker} for queue in QUEUES
    ]
    assert sorted(sent_to(rows, produce=produce)) == sorted(QUEUES)


def test_brokers_alternate_if_a_row_names_none(produce: Produce) -> None:
    rows: list[dict[str, object]] = [{"body": "x", "queue": 1}] * 4
    found = sent_to(rows, produce=produce)
    assert sorted(found) == sorted([QUEUES[1], QUEUES[3]] * 2)


def test_a_tag_that_joins_two_is_refused_with_its_line() -> None:
    defaults = MessageDefaults(tags="a||b")
    with pytest.raises(UsageError, match=r"line 1: the tag 'a\|\|b' has \|\|, which joins tags"):
        list(outgoing_lines([b"1"], "t", defaults, first=1, is_json=False))
    lines = [b'{"body": "1", "tags": "a"}', b'{"body": "2", "tags": "a || b"}']
    with pytest.raises(UsageError, match=r"line 2: the tag 'a \|\| b' has \|\|"):
        list(outgoing_lines(lines, "t", MessageDefaults(), first=1, is_json=True))


def test_a_lite_message_is_refused_with_its_line() -> None:
    lines = [b'{"body": "1"}', b'{"body": "2", "properties": {"__LITE_TOPIC": "a"}}']
    with pytest.raises(UsageError, match=r"line 2 .*__LITE_TOPIC: lite topics are not supported"):
        list(outgoing_lines(lines, "t", MessageDefaults(), first=1, is_json=True))


@pytest.mark.parametrize("target", [{"queue": 7}, {"broker": "broker-z", "queue": 0}], ids=str)
def test_a_queue_that_does_not_exist_is_refused_with_the_line(
    target: dict[str, object],
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = [{"body": "x"}, {"body": "y", **target}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert produce(lines.encode(), topic, "--json", *where) == EXIT_USAGE
    assert "line 2: topic" in capfd.readouterr().err


@pytest.mark.parametrize("delay", [("--delay-level", "1"), ("--delay", "1s")], ids=" ".join)
def test_delayed_lines_come_later_and_in_order(
    delay: tuple[str, str],
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    began = time.time()
    assert produce(b"one\ntwo\nthree\n", topic, *delay, "-q", *where) == 0
    rows: list[dict[str, str]] = []
    while len(rows) < 3 and time.time() < began + WAIT_S:
        capfd.readouterr()
        assert main(["tail", topic, "--json", *where]) == 0
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["body"] for row in rows] == ["one", "two", "three"]
    stored = datetime.fromisoformat(rows[0]["stored"].replace("Z", "+00:00")).timestamp()
    # Stored when due, a second after it was sent; times are to the second.
    assert stored - began > 0.9


@pytest.mark.parametrize("words", [("--delay-level", "0"), ("--delay", "soon")], ids=" ".join)
def test_a_delay_that_is_none_is_refused(
    words: tuple[str, str], topic: str, where: tuple[str, str], produce: Produce
) -> None:
    assert produce(b"x\n", topic, *words, *where) == EXIT_USAGE


def test_a_delay_travels_as_the_property_that_brokers_know(produce: Produce) -> None:
    row: list[dict[str, object]] = [{"body": "x"}]
    level = requests_of(row, "--delay-level", "3", produce=produce)
    timed = requests_of(row, "--delay", "90s", produce=produce)
    assert [type(request) for request in (*level, *timed)] == [SendMessage, SendMessage]
    assert decode_properties(level[0].properties)["DELAY"] == "3"
    assert decode_properties(timed[0].properties)["TIMER_DELAY_MS"] == "90000"


def test_the_keys_stand_before_the_separator() -> None:
    defaults = MessageDefaults(key_separator=b"::")
    lines = [b"order-1::a::b", b"::x"]
    first, second = outgoing_lines(lines, "t", defaults, first=1, is_json=False)
    assert first.message == Message("t", b"a::b", None, "order-1", {})
    assert (second.message.body, second.message.keys) == (b"x", "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b"no key", "line 3 has no ':'"), (b"key:", "line 3 has no body"), (b"\xff:x", "no UTF-8")],
)
def test_a_line_without_keys_or_body_is_refused(line: bytes, reason: str) -> None:
    defaults = MessageDefaults(key_separator=b":")
    with pytest.raises(UsageError, match=reason):
        list(outgoing_lines([line], "t", defaults, first=3, is_json=False))


def test_messages_of_a_group_go_to_one_queue_in_order(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "alter", topic, "--queues", "4", *where]) == 0
    lines = b"".join(b"k%d:%d\n" % (number % 9, number) for number in range(90))
    keyed = ("--key-separator", ":", "--group-key", "g-%k", "--batch", "2", "-q")
    assert produce(lines, topic, *keyed, *where) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--json", *where]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len({row["queue"] for row in rows}) > 1
    for group in range(9):
        own = [row for row in rows if row["keys"] == f"k{group}"]
        assert [int(row["body"]) for row in own] == list(range(group, 90, 9))
        assert len({row["queue"] for row in own}) == 1
        assert {row["properties"]["__SHARDINGKEY"] for row in own} == {f"g-k{group}"}


@pytest.mark.parametrize(
    ("words", "line", "reason"),
    [
        (("--group-key", "g", "--queue", "0"), b"x", "leave out --queue"),
        (("--group-key", "g", "--delay", "1s"), b"x", "would break the order"),
        (("--group-key", "%k"), b"x", "line 1 has no keys"),
        (("--group-key", "g", "--json"), b'{"body":"x","queue":0}', "line 1 names its queue"),
        (("--key-separator", ":", "--json"), b"{}", "goes with neither"),
        (("--queue", "99"), b"x", "has no queue 99 to write to: it has 0 to 0 at broker-a"),
        (("--json",), b'{"boddy":"x"}', "'boddy' is ignored: did you mean 'body'?"),
        (("--json",), b"nonsense", "line 1 is no JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused_reason_first(
    words: tuple[str, ...],
    line: bytes,
    reason: str,
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    capfd.readouterr()
    assert produce(line, topic, *words, *where) == EXIT_USAGE
    first, *others = capfd.readouterr().err.splitlines()
    assert reason in first
    assert others in ([], ["rmq: not all was sent; stored so far: 0"])


def test_single_messages_begin_at_any_queue(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "alter", topic, "--queues", "4", *where]) == 0
    for _ in range(30):
        assert produce(b"x", topic, "-q", *where) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--format", "%p ", *where]) == 0
    assert len(set(capfd.readouterr().out.split())) > 1
