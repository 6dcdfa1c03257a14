"""RocketMQ's own transactional and delaying producers, on the bundled broker and on a real one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.brokers import JAVA, BrokerUnderTest, on_both, our_broker, real_broker
from support.real_cluster import run_program
from support.real_cluster.java import compile_program

CHECKS = {"transaction_timeout_ms": 1_000, "transaction_check_interval_ms": 4_000}
SENT = [
    "a: SEND_OK COMMIT_MESSAGE true",
    "b: SEND_OK ROLLBACK_MESSAGE true",
    "c: SEND_OK COMMIT_MESSAGE true",
    "d: SEND_OK UNKNOW true",
    "e: SEND_OK UNKNOW true",
]
INHERITED = ["f: SEND_OK COMMIT_MESSAGE true", "seen: [a, c, d, f]", "asked: [d true, e true]"]
TIMED = [
    *(f"{name}: SEND_OK handle true" for name in ("deliver", "delay-ms", "delay-s")),
    *(f"{name}: SEND_OK handle false" for name in ("level", "past")),
    "recalled: SEND_OK handle true",
    "recall: true",
    "far: code 13",
    "seen: {delay-ms=true, delay-s=true, deliver=true, level=true, past=true}",
]
LONG = pytest.mark.long
VERSIONS = ["5.3.3", pytest.param("4.9.7", marks=LONG)]


def said_by(broker: BrokerUnderTest, version: str, program: str, *arguments: str) -> list[str]:
    """What a program printed, without what its logging adds."""
    printed = run_program(version, JAVA / program, broker.name_server, *arguments, seconds=150)
    return [line for line in printed.splitlines() if re.match(r"[a-z-]+: ", line)]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    with our_broker(tmp_path / "ours", **CHECKS) as broker:
        yield broker


def transactions(broker: BrokerUnderTest, version: str) -> list[str]:
    broker.create_topic("transactions")
    sent = said_by(broker, version, "Transactions.java", "transactions", "orphan")
    return sent + said_by(broker, version, "Transactions.java", "transactions", "heir")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producers_transactions_are_ended_also_after_its_death(
    ours: BrokerUnderTest, version: str
) -> None:
    assert transactions(ours, version) == SENT + INHERITED


def timers(broker: BrokerUnderTest) -> list[str]:
    broker.create_topic("timers")
    return said_by(broker, "5.3.3", "Timers.java", "timers")


@pytest.mark.timeout(400)
def test_a_java_producers_delays_are_kept_and_taken_back(ours: BrokerUnderTest) -> None:
    assert timers(ours) == TIMED


@LONG
@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_a_real_broker_says_the_same(tmp_path: Path, ours: BrokerUnderTest, version: str) -> None:
    compile_program(version, JAVA / "Transactions.java")
    settings = {
        "transactionTimeOut": "1000",
        "transactionCheckInterval": "4000",
        "recallMessageEnable": "true",
    }
    with real_broker(version, tmp_path / "real", **settings) as real:
        said = on_both(ours, real, lambda broker: transactions(broker, version))
        *ours_said, ours_asked = said[0]
        *real_said, real_asked = said[1]
        assert real_said == ours_said
        assert ours_asked == INHERITED[-1]
        # RocketMQ writes down what has ended with a delay, and asks about some of it, too.
        assert "d true" in real_asked
        assert "e true" in real_asked
        if version == "5.3.3":
            assert timers(real) == TIMED
