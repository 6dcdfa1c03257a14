"""Pop consumption against an engine: pops, their messages, and the work between requests."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_broker.engine.core.outcomes import AfterSync, HoldPop
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_wire.model import QueueId, StoredMessage, Subscription
from rocketmq_wire.records.handles import RECEIPT, ReceiptHandle
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.offsets import GetCommittedOffset
from rocketmq_wire.requests.pop import (
    AckMessages,
    ChangeInvisibleTime,
    InitMode,
    PeekMessages,
    PopMessages,
    PopReply,
    ack_of,
    ack_spans,
    change_of,
)
from support.engines import BROKER, EngineUnderTest, queue_of

GROUP = "g"
TOPIC = "orders"


class Popped(NamedTuple):
    """One delivery."""

    body: bytes
    handle: ReceiptHandle
    message: StoredMessage


def messages_of(reply: PopReply) -> list[Popped]:
    """The deliveries of a pop, their handles made as a client makes them."""
    data, at, found = b"".join(map(bytes, reply.records)), 0, []
    for handle in reply.handles(BROKER):
        message, at = decode_record(data, at)
        assert message.properties.get(RECEIPT, handle.text()) == handle.text()
        found.append(Popped(message.body, handle, message))
    assert at == len(data)
    return found


def pop(
    broker: EngineUnderTest,
    count: int = 32,
    *,
    queue: int = -1,
    group: str = GROUP,
    topic: str = TOPIC,
    invisible_ms: int = 60_000,
    tags: str = "*",
    init_mode: InitMode = InitMode.MIN,
    is_orderly: bool = False,
    attempt_id: str = "",
) -> list[Popped]:
    """The messages of a pop that does not wait."""
    request = PopMessages(
        group=group,
        queue=QueueId(topic, BROKER, queue),
        count_max=count,
        invisible_ms=invisible_ms,
        init_mode=init_mode,
        subscription=Subscription(tags),
        is_orderly=is_orderly,
        attempt_id=attempt_id,
    )
    return messages_of(broker.ask(request))


def ack(broker: EngineUnderTest, *popped: Popped, group: str = GROUP, topic: str = TOPIC) -> None:
    """Acknowledge: one alone, several together."""
    if len(popped) == 1:
        broker.ask(ack_of(group, topic, popped[0].handle.text()))
    elif popped:
        spans = ack_spans(group, [(topic, one.handle) for one in popped])
        broker.ask(AckMessages(BROKER, spans))


def change(broker: EngineUnderTest, popped: Popped, invisible_ms: int) -> Popped:
    """Change the invisible time of a message; returns its new delivery."""
    request: ChangeInvisibleTime = change_of(GROUP, TOPIC, popped.handle.text(), invisible_ms)
    reply = broker.ask(request)
    return popped._replace(handle=reply.handle_after(popped.handle))


def peek(broker: EngineUnderTest, count: int = 32) -> list[Popped]:
    return messages_of(broker.ask(PeekMessages(GROUP, QueueId(TOPIC, BROKER, -1), count)))


def turn(broker: EngineUnderTest, *, after_ms: int = 0) -> None:
    """Let time pass, do due work, and make it durable and visible."""
    broker.now_ms += after_ms
    for _ in range(3):
        broker.engine.pops.revival.turn(broker.now_ms)
        broker.make_visible()
    broker.engine.pops.revival.advance()


def held_pop(broker: EngineUnderTest, request: PopMessages) -> HoldPop:
    outcome = broker.outcome(request)
    assert isinstance(outcome, HoldPop)
    return outcome


def is_durable(outcome: object) -> bool:
    return isinstance(outcome, AfterSync)


def fill(broker: EngineUnderTest, count: int, queue: int = 0, start: int = 0) -> list[bytes]:
    bodies = [b"%d" % number for number in range(start, start + count)]
    broker.store_messages(queue_of(TOPIC, queue), *bodies)
    return bodies


def bodies_of(popped: list[Popped]) -> list[bytes]:
    return [one.body for one in popped]


def committed(broker: EngineUnderTest, queue: QueueId | None = None) -> int:
    return broker.ask(GetCommittedOffset(GROUP, queue or queue_of(TOPIC))).value


def restarted(broker: EngineUnderTest) -> MemoryFiles:
    """The files of a broker that was stopped cleanly."""
    broker.engine.pops.revival.write_all(broker.now_ms)
    broker.make_visible()
    broker.save_files()
    broker.store.close()
    assert isinstance(broker.files, MemoryFiles)
    return broker.files
