"""`rmq tail`: queues that appear, disappear, are recreated or have gaps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.arguments import parse
from rocketmq_cli.connection import topics_of
from rocketmq_cli.errors import MessagesGoneError
from rocketmq_cli.main import _guarded, main
from rocketmq_cli.messages.follow import Follower, QueueSample, next_position
from rocketmq_cli.messages.printing import Printer
from rocketmq_cli.messages.records import require_whole
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import RangeChunk
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossReason, lost_range
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, UnsupportedRequestError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.topics import ListTopics
from support.records import lay_out, make_messages
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

WAIT_S = 30.0
QUEUE = QueueId("orders", "broker-a", 0)
Produce = Callable[..., int]


@pytest.mark.parametrize(
    ("position", "before", "now", "goes_on"),
    [
        pytest.param(5, (0, 5, 100), (0, 9, 100), 5, id="more arrived"),
        pytest.param(5, (0, 5, 100), (3, 9, None), 5, id="some expired"),
        pytest.param(0, (0, 0, None), (0, 2, 100), 0, id="the first arrived"),
        pytest.param(5, (0, 5, 100), (0, 0, None), 0, id="recreated, and empty"),
        pytest.param(5, (0, 5, 100), (0, 2, 200), 0, id="recreated, with less"),
        pytest.param(5, (0, 5, 100), (0, 9, 200), 0, id="recreated, with more"),
        pytest.param(5, (3, 5, None), (0, 2, 200), 0, id="recreated, though it began later"),
        pytest.param(5, (0, 5, 100), (0, 4, 100), 4, id="cut off"),
    ],
)
def test_a_queue_goes_on_where_nothing_new_is_missed(
    position: int,
    before: tuple[int, int, int | None],
    now: tuple[int, int, int | None],
    goes_on: int,
) -> None:
    at, reports = next_position(QUEUE, position, seen(*before), seen(*now))
    assert at == goes_on
    assert bool(reports) == (goes_on != position)


def seen(start: int, end: int, first_store_ms: int | None) -> QueueSample:
    return QueueSample(Bounds(start, end), first_store_ms)


@contextmanager
def following(
    settings: ConnectionSettings, topic: str, count: int, index: int | None = None
) -> Iterator[list[str]]:
    """Follows from the end until `count` messages are printed; yields its reports."""
    reports: list[str] = []
    args = parse(["tail", topic, "--count", str(count)])
    with open_cluster(settings) as cluster:
        positions = ends_of(cluster, topic, index)
        with Follower(
            cluster,
            lambda: [topic],
            positions,
            index=index,
            scan_interval_s=0.05,
            reporter=reports.append,
        ) as own:
            thread = threading.Thread(target=own.run, args=(Printer(args),), daemon=True)
            thread.start()
            yield reports
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"it waits for more; said: {reports}"


def ends_of(cluster: Cluster, topic: str, index: int | None) -> dict[QueueId, int]:
    found: dict[QueueId, int] = {}
    for queue, bounds in cluster.bounds(cluster.queues(topic)).items():
        assert isinstance(bounds, Bounds)
        if index in (None, queue.index):
            found[queue] = bounds.end
    return found


def settings_of(where: tuple[str, str]) -> ConnectionSettings:
    if where[0] == "--endpoints":
        return ConnectionSettings(endpoints=where[1])
    return ConnectionSettings(name_servers=(where[1],))


def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not come about"
        time.sleep(0.01)


@pytest.fixture(params=["reports", "refused"])
def first_times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether brokers tell when a queue's first message was stored; RocketMQ's proxy refuses."""

    def refuse(_: Cluster, queues: Iterable[QueueId]) -> dict[QueueId, UnsupportedRequestError]:
        return {queue: UnsupportedRequestError(3, "unknown request code") for queue in queues}

    if request.param == "refused":
        monkeypatch.setattr(Cluster, "earliest_store_times", refuse)


@pytest.mark.usefixtures("first_times")
def test_messages_of_a_queue_that_comes_later_are_printed_from_its_start(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    produce(b"before\n", topic, "-q", *where)
    capfd.readouterr()
    with following(settings_of(where), topic, 3) as reports:
        assert main(["topic", "alter", topic, "--queues", "2", *where]) == 0
        produce(b"one\ntwo\n", topic, "--queue", "1", "-q", *where)
        until(lambda: bool(reports))
        produce(b"three\n", topic, "--queue", "0", "-q", *where)
    printed = capfd.readouterr().out.splitlines()
    assert sorted(line for line in printed if "queues" not in line) == ["one", "three", "two"]
    (sentence,) = reports
    assert "queue=1 is new" in sentence


def test_only_wanted_queues_are_looked_for(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "create", topic, "--queues", "2", *where]) == 0
    with following(settings_of(where), topic, 2, index=1) as reports:
        capfd.readouterr()
        produce(b"no\n", topic, "--queue", "0", "-q", *where)
        produce(b"one\ntwo\n", topic, "--queue", "1", "-q", *where)
    assert capfd.readouterr().out.splitlines() == ["one", "two"]
    assert reports == []


@pytest.mark.usefixtures("first_times")
@pytest.mark.parametrize("count", [1, 6])
def test_messages_of_a_recreated_topic_are_printed(
    count: int,
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    produce(b"a\nb\nc\n", topic, "-q", *where)
    wanted = [f"new {number}" for number in range(count)]
    with following(settings_of(where), topic, count) as reports:
        assert main(["topic", "delete", topic, "--yes", *where]) == 0
        until(lambda: any("is gone" in sentence for sentence in reports))
        assert main(["topic", "create", topic, "--queues", "1", *where]) == 0
        capfd.readouterr()
        produce("".join(f"{line}\n" for line in wanted).encode(), topic, "-q", *where)
    assert capfd.readouterr().out.splitlines() == wanted
    assert any("created again" in sentence for sentence in reports)


def test_a_broker_that_is_away_is_said_and_its_return(
    produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(BrokerConfig(flush="memory"))
    broker.start()
    where = ("--name-server", broker.name_server)
    assert main(["topic", "create", "t", "--queues", "1", *where]) == 0
    with following(settings_of(where), "t", 1) as reports:
        broker.stop()
        until(lambda: any("cannot be watched" in sentence for sentence in reports))
        port = int(where[1].rpartition(":")[2])
        again = Broker(BrokerConfig(flush="memory", port=port))
        again.start()
        try:
            assert main(["topic", "create", "t", "--queues", "1", *where]) == 0
            until(lambda: any("is watched again" in sentence for sentence in reports))
            capfd.readouterr()
            produce(b"late\n", "t", "-q", *where)
            until(lambda: "late" in capfd.readouterr().out)
        finally:
            again.stop()


def test_a_hole_in_a_queue_is_said_and_the_rest_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    messages = make_messages(4, 10, topic="orders", queue_index=0)
    body = b"".join(lay_out(message) for index, message in enumerate(messages) if index != 2)
    chunk = RangeChunk(QUEUE, 0, 4, body, expected_count=4)

    class Torn:
        def read_ranges(self, *_: object) -> Iterator[RangeChunk]:
            yield chunk

    printer = Printer(parse(["tail", "orders", "--format", r"%o\n"]))
    positions = {QUEUE: 0}
    printer.print_between(Torn(), positions, {QUEUE: 4})  # type: ignore[arg-type]
    shown = capfd.readouterr()
    assert (shown.out.split(), printer.is_whole, positions) == (["0", "1", "3"], False, {QUEUE: 4})
    assert (
        "1 message of topic=orders broker=broker-a queue=0 between offsets 0 and 4 is" in shown.err
    )
    with pytest.raises(MessagesGoneError):
        require_whole(chunk, 3)


def test_tail_ends_before_the_given_offset_or_time(
    topic: str, where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    produce(b"a\nb\nc\nd\n", topic, "-q", *where)
    capfd.readouterr()

    def tailed(*words: str) -> str:
        assert main(["tail", topic, *words, *where]) == 0
        return capfd.readouterr().out.replace("\n", "")

    assert tailed("--to", "3") == "abc"
    assert tailed("--from", "1", "--to", "3") == "bc"
    assert tailed("--from", "3", "--to", "1") == ""
    assert tailed("--to", "99") == "abcd"
    assert tailed("--to", "1h") == ""
    assert tailed("--from", "1h", "--to", "latest") == "abcd"
    # A moment that is to come is behind everything.
    assert tailed("--to", "2099-01-31T12:00:00Z") == "abcd"
    assert main(["tail", topic, "--to", "3", "--follow", *where]) == EXIT_USAGE


def test_tail_prints_what_fits_an_sql_expression(
    produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(BrokerConfig(flush="memory", property_filter=True))
    broker.start()
    try:
        where = ("--name-server", broker.name_server)
        assert main(["topic", "create", "priced", "--queues", "1", *where]) == 0
        rows = [{"body": f"{n}", "properties": {"amount": n * 10}} for n in range(5)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        assert produce(lines.encode(), "priced", "--json", "-q", *where) == 0
        capfd.readouterr()
        assert main(["tail", "priced", "--sql", "amount > 15 AND amount < 40", *where]) == 0
        assert capfd.readouterr().out == "2\n3\n"
        for wrong in ("amount >", "amount > 15 amount < 40"):
            assert main(["tail", "priced", "--sql", wrong, *where]) == EXIT_USAGE
            assert capfd.readouterr().err.startswith("rmq: --sql")
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("bounds", "reason", "advice"),
    [
        (
            Bounds(0, 90),
            LossReason.HOLE,
            "messages are gone. `rmq tail orders --queue 0 --from 34` continues behind the gap.\n",
        ),
        (Bounds(50, 90), LossReason.EXPIRED, "`rmq tail orders --queue 0 --from 50` continues"),
        (Bounds(0, 34), LossReason.HOLE, "but their messages are gone.\n"),
        (None, LossReason.TOPIC_DELETED, "the topic was deleted.\n"),
    ],
)
def test_a_loss_is_reported_with_the_command_that_continues_behind_it(
    bounds: Bounds | None, reason: LossReason, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose() -> int:
        raise RangeLostError(lost_range(reason, QUEUE, 33, 34, bounds))

    assert _guarded(lose) == EXIT_FAILED
    reports = capsys.readouterr().err
    assert "1 offset up to 34 is gone, " in reports
    assert advice in reports
    assert "failOnDataLoss" not in reports


def test_several_topics_and_patterns_are_printed(
    where: tuple[str, str], topic: str, produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"{topic[:60]}-{word}" for word in ("pay-in", "pay-out", "other")]
    for name in names:
        assert main(["topic", "create", name, "--queues", "1", *where]) == 0
        assert produce(name.encode(), name, "-q", *where) == 0
    capfd.readouterr()
    assert main(["tail", f"{topic[:60]}-pay*", *where]) == 0
    assert capfd.readouterr().out.split() == names[:2]
    assert main(["tail", names[2], f"{topic[:60]}-pay-?n", *where]) == 0
    assert sorted(capfd.readouterr().out.split()) == sorted([names[0], names[2]])
    assert main(["tail", f"{topic[:60]}-nothing*", *where]) == EXIT_FAILED
    assert "no topic matches" in capfd.readouterr().err


def test_a_topic_that_a_pattern_selects_later_is_followed(
    where: tuple[str, str], topic: str, produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another topic that is gone meanwhile does not hold it up."""
    stem = topic[:60]
    reports: list[str] = []
    args = parse(["tail", topic, "--count", "2"])
    with open_cluster(settings_of(where)) as cluster:
        positions = ends_of(cluster, topic, None)
        find = partial(topics_of, cluster, [topic, f"{stem}-n?w"])
        with Follower(
            cluster, find, positions, scan_interval_s=0.05, reporter=reports.append
        ) as follower:
            thread = threading.Thread(target=follower.run, args=(Printer(args),), daemon=True)
            thread.start()
            assert main(["topic", "delete", topic, "--yes", *where]) == 0
            until(lambda: any("is gone" in text for text in reports))
            assert main(["topic", "create", f"{stem}-new", "--queues", "1", *where]) == 0
            assert produce(b"one\ntwo\n", f"{stem}-new", "-q", *where) == 0
            thread.join(WAIT_S)
            assert not thread.is_alive(), reports
    assert capfd.readouterr().out.splitlines()[-2:] == ["one", "two"]


def test_a_pattern_is_followed_while_it_selects_no_topic(
    where: tuple[str, str], produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = (f"alone{where[0]}-{number}" for number in (1, 2))
    reports: list[str] = []
    args = parse(["tail", first, "--count", "1"])
    assert main(["topic", "create", first, "--queues", "1", *where]) == 0
    with open_cluster(settings_of(where)) as cluster:
        find = partial(topics_of, cluster, [f"alone{where[0]}-*"])
        positions = ends_of(cluster, first, None)
        with Follower(
            cluster, find, positions, scan_interval_s=0.05, reporter=reports.append
        ) as follower:
            thread = threading.Thread(target=follower.run, args=(Printer(args),), daemon=True)
            thread.start()
            assert main(["topic", "delete", first, "--yes", *where]) == 0
            until(lambda: any("is gone" in text for text in reports))
            assert main(["topic", "create", second, "--queues", "1", *where]) == 0
            assert produce(b"one\n", second, "-q", *where) == 0
            thread.join(WAIT_S)
            assert not thread.is_alive(), reports
    assert capfd.readouterr().out.splitlines()[-1:] == ["one"]


def test_tags_joined_by_anything_but_bars_are_refused(
    broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tail", topic, "--name-server", broker.name_server, "--tags", "paid | new"]
    assert main(words) == EXIT_USAGE
    assert "--tags must join tags by ||: write 'paid || new'" in capsys.readouterr().err
    assert main([*words[:-1], "paid &&"]) == EXIT_USAGE
    assert "--tags must not have && or AND" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("tail",), ("topic", "describe"), ("produce",)])
def test_a_topic_whose_name_is_nearly_right_is_suggested(
    verb: tuple[str, ...],
    broker: Broker,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = topic[:-1] + "x"
    (tmp_path / "lines").write_text("a\n")
    more = [str(tmp_path / "lines")] if verb == ("produce",) else []
    assert main([*verb, wrong, *more, "--name-server", broker.name_server]) == EXIT_FAILED
    assert f"Did you mean '{topic}'?" in capsys.readouterr().err


def test_a_missing_topic_is_reported_to_an_account_that_may_not_list_topics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 15)}) as alone:
        alone.script = lambda asked: (
            BrokerError(16, "no right to list topics") if isinstance(asked, ListTopics) else None
        )
        assert main(["tail", "missing", "--name-server", alone.address]) == EXIT_FAILED
    shown = capsys.readouterr().err
    assert "[ROCKETMQ_TOPIC_NOT_FOUND]" in shown
    assert "no right to list" not in shown


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_a_terminal_gets_no_control_characters_of_messages(
    is_terminal: bool,
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    body = b"\x1b]0;x\x07 \xc2\x9b31m \xff caf\xc3\xa9"
    assert produce(body + b"\n", topic, "-q", *where) == 0
    capfdbinary.readouterr()
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["tail", topic, "--from", "earliest", "--count", "1", *where]) == 0
    escaped = b"\\x1b]0;x\\x07 \\x9b31m \xff caf\xc3\xa9"
    assert capfdbinary.readouterr().out == (escaped if is_terminal else body) + b"\n"
