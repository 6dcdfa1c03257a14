"""Decisions on two brokers of which one is unavailable: facts are reported, nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from pyspark_rocketmq.errors import DecisionsAwayError
from pyspark_rocketmq.sink.transactional.decision_log import Decision, DecisionLog
from pyspark_rocketmq.sink.transactional.fencing import wait_for_others
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    ConnectError,
    DeadlineExceededError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_wire.model import (
    Bounds,
    BrokerAddresses,
    Host,
    Message,
    QueueId,
    QueueSet,
    Route,
    StoredMessage,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.messages import PullReply, PullStatus, SendReply, SendStatus
from support.fake_clock import FakeClock
from support.records import lay_out

TOPIC = "decisions"
BOTH = ("broker-a", "broker-b")


class FakeBrokers:
    """The decision topic's brokers: a cluster and a producer in one, in memory."""

    settings = ConnectionSettings(name_servers=("a:1",))

    def __init__(self, *names: str) -> None:
        self.fake_clock = FakeClock()
        self.clock = self.fake_clock.clock
        self.there = set(names)
        self.masters_there: set[str] | None = None
        self.stored: dict[QueueId, list[bytes]] = {
            QueueId(TOPIC, name, index): [] for name in names for index in range(2)
        }
        self.dies_before: str | None = None
        """The driver dies when it sends the first head to this one."""
        self.refuses = 0
        """The number of requests that get no answer: a master restarts."""
        self.hidden: dict[QueueId, int] = {}
        """How many of its newest records a queue does not show yet."""
        self.reads_until_shown = 0
        self.clocks = dict.fromkeys(names, 0)
        """In ms."""

    def masters(self) -> tuple[str, ...]:
        """Those that the name server knows, though it may not know what topics they have."""
        return tuple(sorted(self.masters_there if self.masters_there is not None else self.there))

    def route(self, topic: str) -> Route:
        if not self.there:
            raise TopicNotFoundError(17, f"no route of {topic}")
        sets = tuple(QueueSet(name, 2, 2, 6) for name in sorted(self.there))
        return Route(sets, tuple(BrokerAddresses(name, "c", {0: "a:1"}) for name in self.there))

    def bounds(self, queues: Iterable[QueueId]) -> dict[QueueId, Bounds | RocketMQError]:
        self._answer()
        self.reads_until_shown -= 1
        if self.reads_until_shown < 0:
            self.hidden.clear()
        return {queue: Bounds(0, len(self._shown(queue))) for queue in queues}

    def _shown(self, queue: QueueId) -> list[bytes]:
        stored = self.stored.get(queue, [])
        return stored[: max(0, len(stored) - self.hidden.get(queue, 0))]

    def create_topic(self, config: TopicConfig, broker: str | None) -> None:
        assert config.name == TOPIC
        self.there.update({queue.broker for queue in self.stored} if broker is None else {broker})

    def pull(
        self, queue: QueueId, start: int, count: int, *, subscription: Subscription | None = None
    ) -> PullReply:
        del subscription  # Tags are compared again by who asks.
        self._answer()
        stored = self._shown(queue)
        records = tuple(stored[start : start + count])
        status = PullStatus.FOUND if records else PullStatus.NO_NEW_MESSAGE
        return PullReply(status, start + len(records), 0, len(stored), (b"".join(records),))

    def send(self, message: Message, queue: QueueId) -> SendReply:
        if queue.broker == self.dies_before and message.tags is not None:
            raise ConnectError("driver", "it has died")
        stored, host = self.stored[queue], Host(bytes(4), 1)
        properties = {"TAGS": message.tags} if message.tags else {}
        whole = StoredMessage(
            *(TOPIC, message.body, properties, queue.index, 0, len(stored), 0, 0, 0, host),
            *(self.clocks[queue.broker], host, 0, 0, 0, 0),
        )
        stored.append(lay_out(whole))
        if queue in self.hidden:
            self.hidden[queue] += 1
        return SendReply(SendStatus.OK, "", queue.index, len(stored) - 1)

    def _answer(self) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ConnectError("broker-a", "it restarts")


def log_on(brokers: FakeBrokers) -> DecisionLog:
    return DecisionLog(brokers, TOPIC, brokers)  # type: ignore[arg-type]


def decision(query: str, batch: int) -> Decision:
    queue = QueueId("t", "broker-a", 0)
    return Decision(query, batch, "g", (HalfMessage("g", queue, 0, 0, "key"),), {queue: 0}, count=1)


def half_decided(brokers: FakeBrokers, query: str, batch: int, last: str) -> None:
    """The driver dies before the head is at the last broker."""
    brokers.dies_before = last
    with pytest.raises(ConnectError):
        log_on(brokers).store(decision(query, batch))
    brokers.dies_before = None


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_what_one_broker_alone_may_know_is_not_denied_by_the_other(finished: int) -> None:
    brokers = FakeBrokers(*BOTH)
    for batch in range(finished):
        log_on(brokers).store(decision("q", batch))
        log_on(brokers).store_finished(decision("q", batch))
    half_decided(brokers, "q", finished, "broker-b")
    brokers.there = {"broker-b"}
    message = r"^\[ROCKETMQ_SINK\.DECISIONS_AWAY\] topic=decisions: broker-a also"
    with pytest.raises(DecisionsAwayError, match=message) as refused:
        log_on(brokers).find("q", finished)
    assert refused.value.retryable, "it may come back"
    with pytest.raises(DecisionsAwayError):
        log_on(brokers).check_all_there()
    brokers.there = set(BOTH)
    found = log_on(brokers).find("q", finished)
    assert found is not None
    assert found.half_messages == decision("q", finished).half_messages


def test_what_is_found_needs_nobody_else() -> None:
    brokers = FakeBrokers(*BOTH)
    log_on(brokers).store(decision("q", 0))
    brokers.there = {"broker-b"}
    found = log_on(brokers).find("q", 0)
    assert found is not None
    assert found.count == 1


def test_with_all_brokers_there_what_is_not_decided_is_certainly_not() -> None:
    brokers = FakeBrokers(*BOTH)
    assert log_on(brokers).find("q", 0) is None
    log_on(brokers).store(decision("q", 0))
    assert log_on(brokers).find("q", 1) is None
    assert log_on(brokers).find("r", 0) is None
    assert [one.batch for one in log_on(brokers).unfinished()] == [0]
    log_on(brokers).store_finished(decision("q", 0))
    assert log_on(brokers).unfinished() == []
    assert log_on(brokers).newest_batch("q") == 0


def test_a_broker_that_joins_is_known_to_all_before_it_keeps_a_decision() -> None:
    brokers = FakeBrokers("broker-0", *BOTH)
    brokers.there = set(BOTH)
    log_on(brokers).store(decision("q", 0))
    brokers.there = {"broker-0", *BOTH}
    half_decided(brokers, "q", 1, "broker-a")
    brokers.there = set(BOTH)
    with pytest.raises(DecisionsAwayError, match="broker-0"):
        log_on(brokers).find("q", 1)


def test_brokers_that_are_unavailable_in_turn_are_remembered() -> None:
    brokers = FakeBrokers(*BOTH)
    log_on(brokers).store(decision("q", 0))
    brokers.there = {"broker-a"}
    log_on(brokers).store(decision("q", 1))
    log_on(brokers).store_finished(decision("q", 1))
    brokers.there = {"broker-b"}
    with pytest.raises(DecisionsAwayError, match="broker-a"):
        log_on(brokers).find("q", 1)


def test_a_broker_that_restarts_is_waited_for() -> None:
    brokers = FakeBrokers(*BOTH)
    brokers.refuses = 3
    log_on(brokers).store(decision("q", 0))
    assert brokers.fake_clock.sleeps == [500, 500, 500]
    brokers.refuses = 3
    log_on(brokers).store_finished(decision("q", 0))
    assert brokers.refuses == 0
    assert log_on(brokers).unfinished() == []


def test_what_no_broker_keeps_is_not_decided() -> None:
    brokers = FakeBrokers(*BOTH)
    log = log_on(brokers)
    log.open()
    brokers.there.clear()
    with pytest.raises(DecisionsAwayError, match="every broker also stores"):
        log.store(decision("q", 1))
    assert brokers.fake_clock.now_ms == brokers.settings.outage_ms


def hide_newest(brokers: FakeBrokers, reads: int) -> None:
    """The newest record is shown only after this many reads of the end offsets."""
    brokers.hidden = dict.fromkeys(brokers.stored, 1)
    brokers.reads_until_shown = reads


def test_a_decision_that_is_stored_and_not_shown_yet_is_waited_for() -> None:
    """A busy broker shows seconds later what it has stored: its driver may have died since."""
    brokers = FakeBrokers(*BOTH)
    log_on(brokers).store(decision("q", 0))
    log_on(brokers).store_finished(decision("q", 0))
    log_on(brokers).store(decision("q", 1))
    hide_newest(brokers, 1_000)
    assert log_on(brokers).find("q", 1) is None
    hide_newest(brokers, 12)
    found = log_on(brokers).find_surely("q", 1)
    assert found is not None
    assert found.half_messages == decision("q", 1).half_messages
    assert brokers.reads_until_shown < 0


def test_what_is_not_decided_is_certainly_not_and_leaves_the_brokers_known() -> None:
    brokers = FakeBrokers(*BOTH)
    assert log_on(brokers).find_surely("q", 0) is None
    log_on(brokers).store(decision("q", 0))
    assert log_on(brokers).find_surely("q", 1) is None
    brokers.there = {"broker-a"}
    with pytest.raises(DecisionsAwayError, match="broker-b"):
        log_on(brokers).find_surely("q", 1)


def test_a_broker_that_never_shows_what_it_stored_is_reported() -> None:
    brokers = FakeBrokers(*BOTH)
    log_on(brokers).store(decision("q", 0))
    hide_newest(brokers, 10_000)
    with pytest.raises(DeadlineExceededError, match="broker-a"):
        log_on(brokers).find_surely("q", 0)


def test_a_broker_that_holds_rows_and_keeps_no_decisions_is_made_to() -> None:
    """Only a marker on the broker tells what it shows."""
    brokers = FakeBrokers("broker-0", *BOTH)
    brokers.there = set(BOTH)
    log_on(brokers).open(BOTH)
    assert brokers.there == set(BOTH)
    log_on(brokers).store(decision("q", 0))
    log_on(brokers).open(("broker-0", "broker-a"))
    assert brokers.there == {"broker-0", *BOTH}
    log_on(brokers).catch_up()
    assert all(brokers.stored[QueueId(TOPIC, name, 1)] for name in brokers.there)


def test_the_topic_is_made_on_every_broker_when_it_is_new() -> None:
    brokers = FakeBrokers(*BOTH)
    brokers.there.clear()
    brokers.masters_there = set(BOTH)
    log_on(brokers).open(("broker-a",))
    assert brokers.there == set(BOTH)


def test_a_drivers_last_token_is_timed_by_each_brokers_own_clock() -> None:
    brokers = FakeBrokers(*BOTH)
    log = log_on(brokers)
    brokers.clocks = {"broker-a": 1_000, "broker-b": 77_000}
    other = log_on(brokers)
    other.store(decision("q", 0))
    other.store(decision("r", 0))
    assert log.last_tokens(decision("q", 0)) == {"broker-a": 1_000, "broker-b": 77_000}
    assert log.last_tokens(decision("q", 1)) == {}
    brokers.clocks = {"broker-a": 2_500, "broker-b": 78_500}
    other.store_token(decision("q", 0))
    assert log.last_tokens(decision("q", 0)) == {"broker-a": 2_500, "broker-b": 77_000}, (
        "its rows are at broker-a alone"
    )
    assert log.last_tokens(decision("r", 0)) == {"broker-a": 1_000, "broker-b": 77_000}
    brokers.clocks = {"broker-a": 9_000, "broker-b": 85_000}
    ours = log.store_token(decision("q", 0))
    assert log.times(ours) == {"broker-a": 9_000}
    assert log.last_tokens(decision("q", 0)) == {"broker-a": 2_500, "broker-b": 77_000}, (
        "nobody waits for itself"
    )


def test_a_turn_is_no_decision_and_hides_none() -> None:
    brokers = FakeBrokers(*BOTH)
    log = log_on(brokers)
    log.store(decision("q", 0))
    for _ in range(20):
        log.store_token(decision("q", 0))
    found = log.find("q", 0)
    assert found is not None
    assert found.half_messages == decision("q", 0).half_messages
    assert [one.batch for one in log.unfinished()] == [0]
    assert log.newest_batch("q") == 0
    brokers.there = {"broker-b"}
    assert log.find("q", 0) is not None
    brokers.there = {"broker-a"}
    with pytest.raises(DecisionsAwayError, match="broker-b"):
        log.find("q", 1)


def test_of_two_drivers_that_decide_at_once_the_first_has_decided() -> None:
    brokers = FakeBrokers(*BOTH)
    first, second = log_on(brokers), log_on(brokers)
    other = replace(
        decision("q", 0), half_messages=(HalfMessage("g", QueueId("t", "broker-b", 1), 1, 1, "b"),)
    )
    ours = first.store(decision("q", 0))
    theirs = second.store(other)
    assert first.is_ours(decision("q", 0), ours)
    assert not second.is_ours(other, theirs)
    found = log_on(brokers).find("q", 0)
    assert found is not None
    assert found.half_messages == decision("q", 0).half_messages
    assert [one.half_messages for one in log_on(brokers).unfinished()] == [found.half_messages]


@pytest.mark.parametrize("finishes", [False, True])
def test_who_goes_on_with_a_decision_takes_it_over_from_who_was_at_it(finishes: bool) -> None:
    brokers = FakeBrokers(*BOTH)
    first, second = log_on(brokers), log_on(brokers)
    ours = decision("q", 0)
    heads = first.store(ours)
    assert not first.is_taken_over(ours, heads, first.store_token(ours))
    log_on(brokers).store_token(decision("r", 0))
    assert not first.is_taken_over(ours, heads, first.store_token(ours))
    if finishes:
        second.store_finished(ours)
    else:
        begun = second.store_token(ours)
        assert not second.is_taken_over(ours, begun, second.store_token(ours))
    assert first.is_taken_over(ours, heads, first.store_token(ours))


def test_a_topic_without_a_route_is_new_only_if_its_brokers_say_so() -> None:
    brokers = FakeBrokers(*BOTH)
    brokers.there, brokers.masters_there = set(), set(BOTH)
    assert log_on(brokers).find("q", 0) is None
    assert log_on(brokers).newest_batch("q") == -1
    brokers.masters_there = set()
    for look in (lambda log: log.find("q", 0), DecisionLog.unfinished, DecisionLog.open):
        with pytest.raises(DecisionsAwayError, match="every broker also"):
            look(log_on(brokers))
    brokers.there = set(BOTH)
    log_on(brokers).store(decision("q", 0))
    brokers.there, brokers.masters_there = set(), set(BOTH)
    with pytest.raises(DecisionsAwayError, match="every broker also"):
        log_on(brokers).find("q", 0)


@pytest.mark.parametrize(
    ("tokens", "now", "seconds"),
    [
        ({"a": 1_000}, {"a": 1_100}, 3.0),
        ({"a": 1_000}, {"a": 5_000}, 2.0),
        ({"a": 1_000}, {"a": 6_800}, 0.3),
        ({"a": 1_000}, {"a": 900_000}, 0.3),
        # A clock that was set back tells nothing.
        ({"a": 9_000}, {"a": 1_000}, 3.0),
        ({}, {"a": 900_000}, 3.0),
        ({"b": 1_000}, {"a": 900_000, "b": 900_000}, 3.0),
        ({"a": 1_000, "b": 1_000}, {"a": 900_000, "b": 5_500}, 1.5),
        ({"a": 1_000, "b": 1_000}, {"a": 900_000}, 3.0),
    ],
)
def test_a_dead_drivers_requests_are_waited_for_by_its_last_turn(
    tokens: dict[str, int], now: dict[str, int], seconds: float
) -> None:
    brokers = sorted({"a", *tokens, *now})
    assert wait_for_others(brokers, tokens, now, 3.0) == pytest.approx(seconds)
