"""What delivery times promise, whatever way a broker keeps them: held against one topic.

    waits       not visible before its time, whatever happens
    over        visible once when its time has come and the broker has had a turn
    recalled    never visible; only what waits can be recalled

After a crash what was visible already may come again: the files say an older time.
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
    """Asks the broker, and checks what is there."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.due: dict[bytes, int] = {}
        self.handles: dict[bytes, str] = {}
        """Of what waits, as far as anybody knows."""
        self.recalled: set[bytes] = set()
        self.seen: Counter[bytes] = Counter()
        self.loose: set[bytes] = set()
        """Of these a crash may bring another one."""
        self.read = 0

    def put(self, body: bytes, delay_ms: int) -> None:
        """A message that is to come at a time."""
        due_ms = self.broker.now_ms + delay_ms
        named = encode_properties({"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"T{body.hex()}"})
        reply = self.broker.ask(SendMessage("p", _QUEUE, self.broker.now_ms, body, named))
        assert isinstance(reply, SendReply)
        assert reply.recall_handle is not None
        self.due[body], self.handles[body] = due_ms, reply.recall_handle

    def recall(self, choice: int) -> None:
        """Take one back; refused when its time has come, and when it was taken back before."""
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
        """The broker delivers what is due, and all of it is durable."""
        while self.broker.engine.timers.deliver(self.broker.now_ms):
            self.broker.store.sync()
            self.broker.store.publish()
        self.check(is_settled=True)

    def check(self, *, is_settled: bool = False) -> None:
        """Look at what has become visible; `is_settled` says that all that is over must be."""
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
        if is_settled:
            missing = {
                body
                for body, due_ms in self.due.items()
                if due_ms <= self.broker.now_ms and body not in self.recalled
            } - self.seen.keys()
            assert not missing, f"their time is over: {sorted(missing)[:5]}"

    def crash(self, broker: EngineUnderTest) -> None:
        """Power was lost. What was sent and recalled is durable, what was delivered perhaps."""
        self.broker, self.read = broker, 0
        self.seen.clear()
        # Counted anew: before the crash each was there once, and after it perhaps once more.
        self.loose |= {body for body, due_ms in self.due.items() if due_ms <= broker.now_ms}
        self.check()
