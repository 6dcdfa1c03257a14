"""Messages with a delivery time, and their recall, checked for one topic.

A message comes once, and not before its time; a recalled one never. Only a waiting message can be
recalled. After a crash a message may come again: the saved files are older.
"""

from __future__ import annotations

import pytest

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import RecallMessage, SendMessage, SendReply
from support.engines import EngineUnderTest, queue_of
from support.message_checker import Checker, Message, Queue, Stored

TOPIC = "later"
_QUEUE = Queue(TOPIC, 0, 0)


class TimerModel:
    """Sends requests to the broker and checks the visible messages."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.waiting: dict[bytes, tuple[Message, str]] = {}
        """Every message and its recall handle, by body."""
        self._checker = Checker()
        self._read = 0

    def put(self, body: bytes, delay_ms: int) -> None:
        """Send a message with a delivery time."""
        now_ms = self.broker.now_ms
        message = self._checker.send(body, _QUEUE, now_ms, delay_ms=delay_ms)
        due_ms = str(now_ms + delay_ms)
        named = encode_properties({"TIMER_DELIVER_MS": due_ms, "UNIQ_KEY": f"T{body.hex()}"})
        reply = self.broker.ask(SendMessage("p", queue_of(TOPIC), now_ms, body, named))
        assert isinstance(reply, SendReply)
        assert reply.recall_handle is not None
        self._checker.acknowledge(message)
        self.waiting[body] = message, reply.recall_handle

    def recall(self, choice: int) -> None:
        """Recall a message; the broker must refuse a due or recalled one."""
        if not self.waiting:
            return
        message, handle = self.waiting[sorted(self.waiting)[choice % len(self.waiting)]]
        request = RecallMessage(TOPIC, handle, "p")
        if message.sent_ms + message.delay_ms <= self.broker.now_ms or message.is_withdrawn:
            with pytest.raises(BrokerError):
                self.broker.outcome(request)
            return
        self.broker.ask(request)
        message.is_withdrawn = True

    def turn(self) -> None:
        """Deliver the due messages and make them durable."""
        while self.broker.engine.timers.deliver(self.broker.now_ms):
            self.broker.make_visible()
        self._check()
        self._checker.finish({_QUEUE: (0, self._read)}, self.broker.now_ms)

    def crash(self, broker: EngineUnderTest) -> None:
        """Lose power: sends and recalls are durable, deliveries perhaps."""
        self.broker = broker
        self._checker.crash()
        self._check()

    def _check(self) -> None:
        """Check the messages that became visible."""
        found = self.broker.messages(queue_of(TOPIC), self._read)
        stored = [Stored(each.queue_offset, each.body, each.store_ms) for each in found]
        self._checker.read(_QUEUE, self._read, stored)
        self._read = self.broker.store.bounds(TOPIC, 0).end
