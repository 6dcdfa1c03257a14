"""The promises of delivery times, checked for one topic.

    waits       invisible before its time
    over        visible once, when its time has come and the broker has delivered
    recalled    never visible; only a waiting message can be recalled

After a crash visible messages may come again: the saved files are older.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import RecallMessage, SendMessage, SendReply
from support.engines import EngineUnderTest, queue_of

TOPIC = "later"
_QUEUE = queue_of(TOPIC)


class TimerModel:
    """Sends requests to the broker and checks the visible messages."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.due: dict[bytes, int] = {}
        self.handles: dict[bytes, str] = {}
        """The recall handle of each message."""
        self.recalled: set[bytes] = set()
        self.seen: Counter[bytes] = Counter()
        self.loose: set[bytes] = set()
        """Messages that may come again after a crash."""
        self.read = 0

    def put(self, body: bytes, delay_ms: int) -> None:
        """Send a message with a delivery time."""
        due_ms = self.broker.now_ms + delay_ms
        named = encode_properties({"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"T{body.hex()}"})
        reply = self.broker.ask(SendMessage("p", _QUEUE, self.broker.now_ms, body, named))
        assert isinstance(reply, SendReply)
        assert reply.recall_handle is not None
        self.due[body], self.handles[body] = due_ms, reply.recall_handle

    def recall(self, choice: int) -> None:
        """Recall a message; the broker must refuse a due or recalled one."""
        if not self.due:
            return
        body = sorted(self.due)[choice % len(self.due)]
        request = RecallMessage(TOPIC, self.handles[body], "p")
        if self.due[body] <= self.broker.now_ms or body in self.recalled:
            with pytest.raises(BrokerError):
                self.broker.outcome(request)
            return
        self.broker.ask(request)
        self.recalled.add(body)

    def turn(self) -> None:
        """Deliver the due messages and make them durable."""
        while self.broker.engine.timers.deliver(self.broker.now_ms):
            self.broker.make_visible()
        self.check(is_delivered=True)

    def check(self, *, is_delivered: bool = False) -> None:
        """Check the visible messages; with `is_delivered` every due one must be among them."""
        end = self.broker.store.bounds(TOPIC, 0).end
        messages = self.broker.messages(_QUEUE)
        assert len(messages) == end
        for message in messages[self.read :]:
            assert self.due[message.body] <= self.broker.now_ms, "it came early"
            assert message.body not in self.recalled, "it was recalled"
            self.seen[message.body] += 1
            if message.body not in self.loose:
                assert self.seen[message.body] == 1, "it came twice"
        self.read = end
        if is_delivered:
            missing = {
                body
                for body, due_ms in self.due.items()
                if due_ms <= self.broker.now_ms and body not in self.recalled
            } - self.seen.keys()
            assert not missing, f"their time is over: {sorted(missing)[:5]}"

    def crash(self, broker: EngineUnderTest) -> None:
        """Lose power: sends and recalls are durable, deliveries perhaps."""
        self.broker, self.read = broker, 0
        self.seen.clear()
        # Count again: each message was there once before the crash, and may come once more.
        self.loose |= {body for body, due_ms in self.due.items() if due_ms <= broker.now_ms}
        self.check()
