"""Pages of a key index, newest first, become all the places of a key, or an error."""

from __future__ import annotations

from typing import cast

import pytest

from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import LookupIncompleteError
from rocketmq_client.lookup import offsets_of_key
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, ProgressNotFoundError
from rocketmq_wire.model import BrokerAddresses, ClusterInfo, QueueId, StoredMessage
from rocketmq_wire.requests.messages import QueryMessages, RecordsReply
from support.records import BORN_HOST, STORE_HOST, lay_out

PAGE = 64
Stored = tuple[int, str]


class Brokers:
    """What a cluster needs to have for a look-up; an index knows times to the second."""

    settings = ConnectionSettings(name_servers=("h:1",))

    def __init__(self, **stored: list[Stored] | Exception) -> None:
        self.stored = stored
        self.transport = self
        self.asked = 0
        self.masterless: set[str] = set()

    def route(self, topic: str) -> None:
        assert topic == "t"

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            tuple(
                BrokerAddresses(name, "c", {int(name in self.masterless): f"{name}:1"})
                for name in self.stored
            ),
            {},
        )

    def call(self, request: QueryMessages, *, broker: str, timeout_ms: int) -> RecordsReply:
        assert timeout_ms > 0
        self.asked += 1
        stored = self.stored[broker]
        if isinstance(stored, Exception):
            raise stored
        page = [
            self._record(number, ms, keys)
            for number, (ms, keys) in enumerate(stored)
            if ms // 1_000 * 1_000 <= request.end_ms
        ][-PAGE:]
        if not page:
            raise ProgressNotFoundError(22, "nothing")
        return RecordsReply((b"".join(page),))

    @staticmethod
    def _record(number: int, ms: int, keys: str) -> bytes:
        message = StoredMessage(
            "t", b"", {"KEYS": keys}, 0, number % 3, number // 3, 1_000 * number, 0,
            ms, BORN_HOST, ms, STORE_HOST, 0, 0, 0, 0,
        )  # fmt: skip
        return lay_out(message)


def found_by(brokers: Brokers) -> list[tuple[QueueId, int]]:
    return offsets_of_key(cast(Cluster, brokers), "t", "k")


def test_pages_continue_backwards_until_nothing_is_new():
    # Thirty a second, one in ten a collision of hashes.
    stored = [(number * 1_000 // 30, "x" if number % 10 == 9 else "a k") for number in range(500)]
    brokers = Brokers(one=stored, two=[(5, "k")], three=[])
    wanted = [(QueueId("t", "one", n % 3), n // 3) for n in range(500) if n % 10 != 9]
    assert found_by(brokers) == sorted([*wanted, (QueueId("t", "two", 0), 0)])


def test_a_second_with_more_than_a_page_hides_what_is_older():
    stored = [(1_000, "k")] * 10 + [(2_000, "k")] * 70
    text = r"^\[ROCKETMQ_LOOKUP\.INCOMPLETE\] .*filter by the column keys"
    with pytest.raises(LookupIncompleteError, match=text):
        found_by(Brokers(one=stored))


def test_a_page_that_is_full_by_chance_is_the_end():
    stored = [(1_000 * number, "k") for number in range(PAGE)]
    assert len(found_by(Brokers(one=stored))) == PAGE


def test_without_one_broker_there_is_no_result():
    with pytest.raises(ConnectError):
        found_by(Brokers(one=[(1, "k")], two=ConnectError("two:1", "refused")))


def test_a_broker_without_a_master_is_asked_by_its_replica(caplog):
    brokers = Brokers(one=[(1, "k")], two=[(2, "k")])
    brokers.masterless = {"two"}
    offsets = [(QueueId("t", name, 0), 0) for name in ("one", "two")]
    assert found_by(brokers) == offsets
    assert [record.message.split()[0] for record in caplog.records] == ["two"]
