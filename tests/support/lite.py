"""Lite topics against an engine: a parent, a group bound to it, and clients of that group."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_broker_sim.engine.outcomes import HoldPop
from rocketmq_wire.admin_requests import PutGroup
from rocketmq_wire.lite_requests import LiteAction, LiteOffset, PopLite, SubscribeLite
from rocketmq_wire.lite_topics import light_queue
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.pop_requests import PopReply, ack_of
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.requests import CreateTopic, SendMessage
from support.engines import EngineUnderTest, queue_of
from support.pops import Popped, messages_of

PARENT = "chats"
GROUP = "readers"


def begin_lite(broker: EngineUnderTest, **attributes: str) -> None:
    """Make the parent, and the group with further attributes of its own."""
    broker.ask(CreateTopic(TopicConfig(PARENT, 2, 2, attributes={"message.type": "LITE"})))
    bind(broker, GROUP, **attributes)


def bind(broker: EngineUnderTest, group: str, **attributes: str) -> None:
    named = {f"+{name.replace('_', '.')}": value for name, value in attributes.items()}
    settings = {"groupName": group, "attributes": {"+lite.bind.topic": PARENT, **named}}
    broker.ask(PutGroup(settings))


def send_lite(
    broker: EngineUnderTest,
    lite_topic: str,
    *bodies: bytes,
    queue: int = 0,
    properties: Mapping[str, str] | None = None,
) -> None:
    for body in bodies:
        named = {"UNIQ_KEY": body.hex(), "__LITE_TOPIC": lite_topic, **(properties or {})}
        place = queue_of(PARENT, queue)
        broker.ask(SendMessage(PARENT, place, broker.now_ms, body, encode_properties(named)))


def subscribe(
    broker: EngineUnderTest,
    *lite_topics: str,
    client: str = "one",
    group: str = GROUP,
    action: LiteAction = LiteAction.ADD,
    offset: LiteOffset | None = None,
) -> tuple[tuple[str, str], ...]:
    """Say what a client wants; who lost what by it."""
    request = SubscribeLite(group, PARENT, client, action, lite_topics, offset)
    return broker.ask(request).lost


def request_of(
    client: str = "one", count: int = 32, group: str = GROUP, invisible_ms: int = 60_000
) -> PopLite:
    return PopLite(group, PARENT, client, count, invisible_ms)


def pop_lite(
    broker: EngineUnderTest,
    client: str = "one",
    count: int = 32,
    *,
    group: str = GROUP,
    invisible_ms: int = 60_000,
) -> list[Popped]:
    """What a client gets that does not wait."""
    reply: PopReply = broker.ask(request_of(client, count, group, invisible_ms))
    return messages_of(reply)


def is_held(broker: EngineUnderTest, request: PopLite) -> bool:
    return isinstance(broker.outcome(request), HoldPop)


def queue_of_lite(popped: Popped) -> str:
    return light_queue(PARENT, popped.message.properties["__LITE_TOPIC"])


def ack_lite(broker: EngineUnderTest, *popped: Popped, group: str = GROUP) -> None:
    for one in popped:
        broker.ask(ack_of(group, queue_of_lite(one), one.handle.text()))


def bodies(popped: list[Popped]) -> list[bytes]:
    return [one.body for one in popped]
