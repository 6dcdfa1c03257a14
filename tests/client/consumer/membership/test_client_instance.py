"""Client instances: one per id, their requests and replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pytest

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.membership.client_instance import ClientInstance, Member, client_id_of
from rocketmq_client.errors import ClientStateError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError, RocketMQError, broker_error
from rocketmq_wire.model import BrokerAddresses, QueueId, QueueSet, Route, Subscription
from rocketmq_wire.remoting.session import Deferred
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import CheckSubscription, ClientsReply, ListGroupClients
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeResult,
    GetClientOffsets,
    GetRunningInfo,
    ResetOffsets,
    RunningInfoReply,
)
from rocketmq_wire.requests.offsets import OffsetsReply

SETTINGS = ConnectionSettings(name_servers=("127.0.0.1:1",))


class Brokers:
    """An I/O thread whose brokers give the test's answers."""

    def __init__(self, answers: Mapping[str, Reply | RocketMQError]) -> None:
        self.answers = answers
        self.asked: list[tuple[str | None, Request[Reply]]] = []

    def call_many(
        self, requests: list[tuple[str | None, Request[Reply]]], *, timeout_ms: int
    ) -> list[Reply | RocketMQError]:
        del timeout_ms
        self.asked += requests
        return [self.answers[broker or ""] for broker, _ in requests]


def instance_with(answers: Mapping[str, Reply | RocketMQError]) -> tuple[ClientInstance, Brokers]:
    """An instance that was not started, with a topic `T` at each of the brokers."""
    instance, brokers = ClientInstance(SETTINGS, "1.2.3.4@x"), Brokers(answers)
    instance.io = cast(IoThread, brokers)
    instance._routes["T"] = Route(
        tuple(QueueSet(name, 1, 1, 6) for name in answers),
        tuple(BrokerAddresses(name, "c", {0: "h:1"}) for name in answers),
    )
    return instance, brokers


def test_an_id_is_made_of_address_instance_and_unit() -> None:
    assert client_id_of("10.0.0.1", "worker", "unit-a") == "10.0.0.1@worker@unit-a"
    assert client_id_of("10.0.0.1", "worker", None) == "10.0.0.1@worker"
    unnamed = {client_id_of("10.0.0.1", None, None) for _ in range(3)}
    assert len(unnamed) == 3


def test_the_next_broker_lists_members_if_one_does_not_answer() -> None:
    instance, brokers = instance_with(
        {"a": ConnectError("a:1", "away"), "b": ClientsReply(("c1", "c2")), "c": Done()}
    )
    assert instance.members_of("g", "T") == ("c1", "c2")
    assert brokers.asked == [("a", ListGroupClients("g")), ("b", ListGroupClients("g"))]


def test_the_last_error_is_raised_if_no_broker_lists_members() -> None:
    instance, _ = instance_with({"a": ConnectError("a:1", "away"), "b": ConnectError("b:1", "off")})
    with pytest.raises(ConnectError, match="off"):
        instance.members_of("g", "T")


def test_the_first_broker_that_answers_checks_a_filter() -> None:
    wanted = Subscription("a >", "SQL92")
    instance, brokers = instance_with(
        {"a": ConnectError("a:1", "away"), "b": broker_error(23, "does not parse"), "c": Done()}
    )
    with pytest.raises(BrokerError, match="does not parse"):
        instance.check_subscription("g", "T", wanted)
    check = CheckSubscription("1.2.3.4@x", "g", "T", wanted)
    assert brokers.asked == [("a", check), ("b", check)]


def test_consumers_with_one_id_share_an_instance_and_its_last_user_ends_it() -> None:
    first = ClientInstance.acquire(SETTINGS, instance="shared")
    second = ClientInstance.acquire(SETTINGS, instance="shared")
    assert first is second
    other = ConnectionSettings(name_servers=("127.0.0.1:2",))
    with pytest.raises(ClientStateError, match="in use for other name servers"):
        ClientInstance.acquire(other, instance="shared")
    first.release()
    assert ClientInstance.acquire(SETTINGS, instance="shared") is first
    first.release()
    first.release()
    third = ClientInstance.acquire(other, instance="shared")
    assert third is not first
    third.release()


class Answering:
    """A member that answers requests of brokers."""

    group = "g"

    def running_info(self) -> RunningInfoReply:
        return RunningInfoReply({"who": "me"}, {}, {})

    def offsets(self) -> dict[QueueId, int]:
        return {QueueId("T", "a", 0): 7, QueueId("U", "a", 0): 9}

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        on_done(ConsumeDirectlyReply(ConsumeResult.SUCCESS))
        assert request.message_id == "id"


def test_the_requested_member_answers_a_brokers_request() -> None:
    instance, brokers = instance_with({})
    instance._members["g"] = cast(Member, Answering())
    assert instance._respond(GetRunningInfo("g", "c")) == RunningInfoReply({"who": "me"}, {}, {})
    offsets = instance._respond(GetClientOffsets("g", "T"))
    assert offsets == OffsetsReply({QueueId("T", "a", 0): 7})
    stranger = instance._respond(GetRunningInfo("other", "c"))
    assert isinstance(stranger, BrokerError)
    assert instance._respond(ListGroupClients("g")) is None, "clients do not answer this request"
    posted: list[Callable[[], None]] = []
    brokers.post = posted.append  # type: ignore[attr-defined]
    deferred = instance._respond(ConsumeDirectly("g", "c", "id", "a", b""))
    assert isinstance(deferred, Deferred)
    answers: list[Reply | BrokerError] = []
    deferred.deliver = answers.append
    (deliver,) = posted
    deliver()
    assert answers == [ConsumeDirectlyReply(ConsumeResult.SUCCESS)]


def test_housekeeping_runs_a_reset() -> None:
    instance, _ = instance_with({})
    member = cast(Member, Answering())
    instance._members["g"] = member
    offsets = {QueueId("T", "a", 0): 3}
    assert instance._respond(ResetOffsets("g", "T", offsets)) == Done()
    assert list(instance._resets) == [(member, offsets)]
