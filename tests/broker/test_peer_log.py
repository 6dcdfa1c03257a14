"""Warnings about peers: the first line of a kind, and the count of the others."""

from __future__ import annotations

import logging

import pytest

from rocketmq_broker import peer_log
from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.peer_log import INTERVAL_SECONDS, PeerLog
from support.remoting_peer import RemotingPeer

TEXT = "peer=%s closed: %s"


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loggers of other tests are not reported, and forget the lines of this one."""
    for log in peer_log._ALL:
        monkeypatch.setattr(log, "_seen", {})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_is_one_line_a_minute_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = PeerLog(logging.getLogger("peers"), clock)
    for number in range(1_000):
        log.warning("10.0.0.1", TEXT, "10.0.0.1:5", number)
    log.warning("10.0.0.1", "peer=%s refused", "10.0.0.1:5")
    log.warning("10.0.0.2", TEXT, "10.0.0.2:5", 0)
    assert caplog.messages == [
        "peer=10.0.0.1:5 closed: 0",
        "peer=10.0.0.1:5 refused",
        "peer=10.0.0.2:5 closed: 0",
    ]
    caplog.clear()
    log.report()
    assert caplog.messages == []
    clock.now = INTERVAL_SECONDS
    log.report()
    log.report()
    assert caplog.messages == [
        "peer=10.0.0.1: 999 more lines like this were left out: peer=10.0.0.1:5 closed: 999"
    ]
    log.warning("10.0.0.1", TEXT, "10.0.0.1:5", "again")
    assert caplog.messages[1:] == ["peer=10.0.0.1:5 closed: again"]


def test_the_next_line_reports_the_count_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = PeerLog(logging.getLogger("peers"), clock)
    log.warning("a", TEXT, "a", 1)
    log.warning("a", TEXT, "a", 2)
    clock.now = INTERVAL_SECONDS
    log.warning("a", TEXT, "a", 3)
    assert caplog.messages[1:] == [
        "peer=a: 1 more lines like this were left out: peer=a closed: 2",
        "peer=a closed: 3",
    ]


def test_many_peers_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    log = PeerLog(logging.getLogger("peers"), Clock())
    for number in range(5_000):
        log.warning(str(number), TEXT, number, "")
    assert len(caplog.messages) == len(log._seen) == 1_025


def test_broken_connections_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        for _ in range(20):
            with RemotingPeer(broker.name_server) as hostile:
                hostile.socket.sendall(b"bytes that are no frame")
                assert hostile.is_closed_by_broker()
    assert len([line for line in caplog.messages if "closed: " in line]) == 1
