"""`rmq lag` and `group describe` of clusters of which a part does not answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.errors import IncompleteOffsetsError
from rocketmq_cli.groups import group_offsets, known_group
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_EXCEEDED, EXIT_FAILED, EXIT_INTERRUPTED
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError
from rocketmq_wire.model import BrokerAddresses, CommittedOffset, Message, QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import GetConsumers, GroupsReply, ListGroups
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import ConsumeStatsReply, GetConsumeStats
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

QUEUE = QueueId("orders", "broker-a", 0)


@pytest.fixture
def alone() -> Iterator[ScriptedBroker]:
    """A broker at which group `g` is two messages behind."""
    broker = ScriptedBroker({QUEUE: SimulatedQueue(0, 15)})
    broker.script = knows_the_group
    with broker:
        yield broker


def knows_the_group(request: Request[Reply]) -> Reply | BrokerError | None:
    if isinstance(request, GetConsumeStats):
        return ConsumeStatsReply({QUEUE: CommittedOffset(12, 10, 0, 0)}, 0.0)
    if isinstance(request, GetConsumers):
        return BrokerError(206, "not online")
    if isinstance(request, ListGroups):
        return GroupsReply(())
    if isinstance(request, PullMessages):
        return BrokerError(16, "nobody may read here")
    return None


@pytest.fixture(params=["away", "without a master", "failing"])
def torn(request: pytest.FixtureRequest, alone: ScriptedBroker) -> ScriptedBroker:
    """The same beside a broker-b that does not answer."""
    address = alone.address if request.param == "failing" else "127.0.0.1:1"
    broker_id = 1 if request.param == "without a master" else 0
    alone.others = (BrokerAddresses("broker-b", "DefaultCluster", {broker_id: address}),)
    if request.param == "failing":
        answers = iter((knows_the_group, lambda _: BrokerError(1, "disk is on fire")) * 9)

        def by_call(asked: Request[Reply]) -> Reply | BrokerError | None:
            is_stats = isinstance(asked, GetConsumeStats)
            return (next(answers) if is_stats else knows_the_group)(asked)

        alone.script = by_call
    return alone


def test_lag_is_unknown_if_a_broker_does_not_answer(
    torn: ScriptedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["lag", "g", "--max", "10", "--json", "--name-server", torn.address]
    assert main(words) == EXIT_FAILED
    shown = capfd.readouterr()
    row = json.loads(shown.out)
    assert (row["lag"], row["unanswered"]) == (2, ["broker-b"])
    assert shown.err.startswith("rmq: the offsets of group 'g' at broker-b are unknown")
    assert main(["lag", "g", "--max", "1", "--name-server", torn.address]) == EXIT_EXCEEDED
    assert main(["lag", "g", "--name-server", torn.address]) == EXIT_FAILED


def test_describe_shows_what_is_known_and_fails(
    torn: ScriptedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", "describe", "g", "--name-server", torn.address]) == EXIT_FAILED
    shown = capfd.readouterr()
    assert "group g: at least 0 members, lag at least 2" in shown.out
    assert "broker-b are unknown" in shown.err
    words = ["group", "describe", "g", "--json", "--name-server", torn.address]
    assert main(words) == EXIT_FAILED
    assert json.loads(capfd.readouterr().out)["lag"] == 2


def test_the_problem_is_returned_beside_the_known_offsets(torn: ScriptedBroker) -> None:
    with connected(torn) as cluster:
        offsets = group_offsets(cluster, "g")
        assert offsets.queues.keys() == {QUEUE}
        assert offsets.problem is not None
        assert offsets.problem.missing.keys() == {"broker-b"}
        # An unreachable broker ends the listing of groups already.
        with pytest.raises((IncompleteOffsetsError, ConnectError)):
            known_group(cluster, "unlisted")


def test_if_no_broker_answers_the_failure_is_raised(alone: ScriptedBroker) -> None:
    alone.script = lambda asked: (
        BrokerError(1, "no") if isinstance(asked, GetConsumeStats) else None
    )
    with connected(alone) as cluster, pytest.raises(BrokerError, match=r"ROCKETMQ_BROKER.CODE_1\]"):
        group_offsets(cluster, "g")


def connected(broker: ScriptedBroker) -> Cluster:
    return open_cluster(ConnectionSettings(name_servers=(broker.address,)))


def test_a_topic_that_does_not_exist_has_no_lag(
    topic: str, where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["lag", "g", "--topic", topic + "x", *where]
    assert main(words) == main([*words, "--max", "0"]) == EXIT_FAILED
    assert "ROCKETMQ_TOPIC_NOT_FOUND" in capfd.readouterr().err


def test_a_group_without_committed_offsets_is_within_no_maximum(
    topic: str, broker: Broker, where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    group = f"elsewhere-{topic}"[:100]
    assert main(["topic", "create", f"{topic}-2", "--queues", "1", *where]) == 0
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        (queue,) = cluster.queues(f"{topic}-2")
        assert cluster.commit(group, {queue: 0}) == {queue: None}
    words = ["lag", group, "--topic", topic, *where]
    assert main(words) == 0
    shown = capfd.readouterr().out
    assert f"group {group} has committed nothing in topic {topic}, but in {topic}-2\n" in shown
    assert main([*words, "--max", "0"]) == EXIT_FAILED
    assert f"has committed nothing in topic {topic}" in capfd.readouterr().err


def test_lag_is_sampled_until_it_is_exceeded(
    alone: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pauses: list[float] = []
    ends = iter((11, 13, 15))

    def grows(asked: Request[Reply]) -> Reply | BrokerError | None:
        if isinstance(asked, GetConsumeStats):
            return ConsumeStatsReply({QUEUE: CommittedOffset(next(ends), 10, 0, 0)}, 0.0)
        return knows_the_group(asked)

    alone.script = grows
    monkeypatch.setattr("rocketmq_cli.commands.lag.time", Clock(pauses))
    words = ["lag", "g", "--watch", "90s", "--max", "4", "--json", "--name-server", alone.address]
    assert main(words) == EXIT_EXCEEDED
    assert [json.loads(line)["lag"] for line in capfd.readouterr().out.splitlines()] == [1, 3, 5]
    assert pauses == [90.0, 90.0]


def test_a_watch_outlives_a_broker_that_is_away_and_ends_when_interrupted(
    torn: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rocketmq_cli.commands.lag.time", Clock(pauses, interrupted_after=2))
    words = ["lag", "g", "--watch", "2", "--max", "4", "--name-server", torn.address]
    assert main(words) == EXIT_INTERRUPTED
    assert pauses == [2.0, 2.0]
    assert capfd.readouterr().err.count("broker-b are unknown") == 2


def test_every_group_is_shown_the_worst_first(
    where: tuple[str, str], topic: str, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    groups = {f"{topic[:60]}-{name}": at for name, at in (("a", 3), ("b", 0), ("c", 2))}
    with open_cluster(settings) as cluster, Producer(cluster) as producer:
        (queue,) = cluster.queues(topic)
        producer.send_batch(queue, [Message(topic, b"x")] * 3)
        for group, at in groups.items():
            cluster.commit(group, {queue: at})
    capfd.readouterr()
    assert main(["lag", "--topic", topic, "--json", *where]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    worst = [f"{topic[:60]}-{name}" for name in "bca"]
    assert [(row["group"], row["lag"]) for row in rows] == list(zip(worst, (3, 1, 0), strict=True))
    assert rows[0]["seconds"] >= 0.0 == rows[2]["seconds"]
    assert main(["lag", "--topic", topic, "--max", "2", *where]) == EXIT_EXCEEDED
    shown = capfd.readouterr()
    assert shown.out.splitlines()[0].split()[:2] == ["group", "topic"]
    assert f"lag 3 of group {worst[0]} is above 2" in shown.err


@pytest.mark.parametrize("groups", [("g", "h"), ()], ids=["two groups", "no group"])
def test_a_broker_that_does_not_answer_is_named_once_for_all_groups(
    groups: tuple[str, ...], alone: ScriptedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    alone.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: "127.0.0.1:1"}),)
    alone.script = lambda asked: (
        GroupsReply(groups) if isinstance(asked, ListGroups) else knows_the_group(asked)
    )
    assert main(["lag", "--json", "--name-server", alone.address]) == EXIT_FAILED
    shown = capfd.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert {(row["group"], row["lag"]) for row in rows} == {(group, 2) for group in groups}
    (line,) = shown.err.splitlines()
    assert line.startswith("rmq: broker-b did not report its offsets")


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_a_watch_redraws_a_terminal_and_appends_to_a_pipe(
    is_terminal: bool,
    alone: ScriptedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rocketmq_cli.commands.lag.time", Clock([], interrupted_after=2))
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["lag", "g", "--watch", "2", "--name-server", alone.address]) == EXIT_INTERRUPTED
    shown = capsys.readouterr().out
    clock = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert len(re.findall(clock, shown)) == 2
    if is_terminal:
        assert shown.count("\x1b[H\x1b[J") == 2
        assert shown.count("every 2: lag of g") == 2
    else:
        head, *rows = shown.splitlines()
        assert head.split()[:3] == ["time", "topic", "queues"]
        assert [re.sub(clock, "", row).split()[1:4] for row in rows] == [["orders", "1", "2"]] * 2


class Clock:
    """`time` as the loop uses it; nobody waits."""

    time_ns = staticmethod(time.time_ns)

    def __init__(self, pauses: list[float], interrupted_after: int | None = None) -> None:
        self._pauses, self._interrupted_after = pauses, interrupted_after

    def sleep(self, seconds: float) -> None:
        self._pauses.append(seconds)
        if len(self._pauses) == self._interrupted_after:
            raise KeyboardInterrupt
