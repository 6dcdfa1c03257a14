"""Requests without a rule, and the files that the next engine reads."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.outcomes import Answer
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS, GROUPS, TOPICS, Configs
from rocketmq_wire.errors import BrokerError, UnsupportedRequestError
from rocketmq_wire.limits import HEARTBEAT_GROUPS_MAX, HEARTBEAT_SUBSCRIPTIONS_MAX
from rocketmq_wire.model import ConsumerInfo
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.groups import Heartbeat, ListGroups, NotifyMembersChanged
from rocketmq_wire.requests.members import GetClientOffsets, ResetOffsets
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.topics import GetRoute
from rocketmq_wire.requests.transactions import CheckTransaction
from support.engines import EngineUnderTest, queue_of
from support.remoting_exchanges import EXCHANGES

ORDERS_0 = queue_of("orders")
SAMPLES = {type(request): request for request, _, _ in EXCHANGES}
SENT_TO_MEMBERS = {CheckTransaction, GetClientOffsets, NotifyMembersChanged, ResetOffsets}
"""Requests that brokers send; clients answer them."""


def test_request_without_a_rule_is_refused_by_name(broker):
    class PopMessages(Request[Done]):
        pass

    assert broker.refusal(PopMessages()).code == 3


@pytest.mark.parametrize("kind", sorted(SAMPLES.keys() - SENT_TO_MEMBERS, key=str))
def test_every_request_of_the_protocol_has_a_rule(broker, kind):
    try:
        broker.outcome(SAMPLES[kind])
    except UnsupportedRequestError:
        pytest.fail("the engine has no rule for it")
    except BrokerError:
        pass  # The sample names what does not exist.


def test_files_of_an_engine_are_read_by_the_next_one(broker):
    broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=3))
    broker.save_files()
    assert broker.take_changes(CONSUMER_OFFSETS) is None
    broker.store.close()
    after = EngineUnderTest(broker.files)
    assert isinstance(after.outcome(GetRoute("orders")), Answer)
    assert after.ask(ListGroups()).groups == ("g",)


def test_changes_that_could_not_be_saved_come_again(broker):
    (file,) = (file for file in broker.engine.config_files if file.name == CONSUMER_OFFSETS)
    broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=3))
    first = file.unsaved()
    assert first["offsetTable"]["orders@g"] == {"0": 3}
    assert file.unsaved() is first
    broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=4))
    second = file.unsaved()
    file.note_saved(first)
    assert file.unsaved() is second
    file.note_saved(second)
    assert file.unsaved() is None


def consumer(group, topics=1):
    topics = tuple((f"t{number}", "*", "TAG", 1) for number in range(topics))
    return ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "", topics)


def test_the_new_groups_of_a_heartbeat_are_saved_in_one_write(monkeypatch):
    saved = []
    save = Configs.save

    def count(self, name, content):
        saved.append(name)
        save(self, name, content)

    monkeypatch.setattr(Configs, "save", count)
    broker = EngineUnderTest()
    saved.clear()
    consumers = tuple(consumer(f"g{number}") for number in range(HEARTBEAT_GROUPS_MAX))
    broker.ask(Heartbeat("c", (), consumers))
    assert sorted(saved) == sorted([GROUPS, TOPICS])
    assert len(broker.ask(ListGroups()).groups) == HEARTBEAT_GROUPS_MAX
    broker.ask(Heartbeat("c", (), consumers))
    assert len(saved) == 2


@pytest.mark.parametrize(
    "heartbeat",
    [
        Heartbeat("c", (), tuple(consumer(f"g{n}") for n in range(HEARTBEAT_GROUPS_MAX + 1))),
        Heartbeat("c", tuple(f"p{n}" for n in range(HEARTBEAT_GROUPS_MAX + 1)), ()),
        Heartbeat("c", (), (consumer("g", HEARTBEAT_SUBSCRIPTIONS_MAX + 1),)),
        Heartbeat("c" * 1_025, (), (consumer("g"),)),
        Heartbeat("c", ("p" * 256,), (consumer("g"),)),
    ],
    ids=["consumers", "producers", "subscriptions", "client id", "group name"],
)
def test_a_heartbeat_over_a_limit_changes_nothing(heartbeat):
    broker = EngineUnderTest()
    with pytest.raises(BrokerError, match="the heartbeat has a"):
        broker.ask(heartbeat)
    assert broker.ask(ListGroups()).groups == ()
