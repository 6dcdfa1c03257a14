"""The promises of orderly pops, checked exactly for one queue and one group.

    at        the first unacknowledged message: the group's committed offset
    taken     the messages of the last pop, from `at` on; until they are acknowledged or visible
              again no client gets any

A crash takes both back to the last saved state.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from rocketmq_broker.engine.pop.in_flight import GroupQueue
from rocketmq_wire.requests.pop import change_of
from support import pops
from support.engines import EngineUnderTest, queue_of
from support.pops import Popped

GROUP = "in-turn"
TOPIC = "turns"
_GROUP_QUEUE = GroupQueue(TOPIC, GROUP, 0)


@dataclass
class _Taken:
    popped: dict[int, Popped] = field(default_factory=dict)
    """By offset."""
    until_ms: dict[int, int] = field(default_factory=dict)
    """By offset of the unacknowledged messages."""

    def free_ms(self) -> int:
        return max(self.until_ms.values(), default=0)


class OrderlyPopModel:
    """Sends requests to the broker and checks the replies."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.sent: list[bytes] = []
        self.at: int | None = None
        self.taken = _Taken()
        self._saved: tuple[int | None, _Taken] = (None, _Taken())

    def put(self, bodies: list[bytes]) -> None:
        self.broker.store_messages(queue_of(TOPIC), *bodies)
        self.sent += bodies

    @property
    def is_blocked(self) -> bool:
        return self.broker.now_ms < self.taken.free_ms()

    def pop(self, count: int, invisible_ms: int) -> bool:
        """Pop; False if no message came, as expected."""
        now_ms, at = self.broker.now_ms, self.at or 0
        expected = [] if self.is_blocked else self.sent[at : at + count]
        found = pops.pop(
            *(self.broker, count),
            group=GROUP,
            topic=TOPIC,
            invisible_ms=invisible_ms,
            is_orderly=True,
        )
        assert [one.body for one in found] == expected
        assert [one.handle.offset for one in found] == list(range(at, at + len(found)))
        self.at = at
        if found:
            self.taken = _Taken(
                {one.handle.offset: one for one in found},
                {one.handle.offset: now_ms + invisible_ms for one in found},
            )
        return bool(found)

    def ack(self, choice: int, count: int) -> bool:
        """Acknowledge some messages in flight, in any order; False if there is none."""
        out = sorted(self.taken.until_ms)
        if not out:
            return False
        first = choice % len(out)
        chosen = (out[first:] + out[:first])[:count]
        pops.ack(
            self.broker, *(self.taken.popped[offset] for offset in chosen), group=GROUP, topic=TOPIC
        )
        for offset in chosen:
            del self.taken.until_ms[offset]
        self.at = min(self.taken.until_ms, default=max(self.taken.popped) + 1)
        return True

    def renew(self, choice: int, invisible_ms: int) -> bool:
        """Change the invisible time of a message in flight; False if there is none."""
        out = sorted(self.taken.until_ms)
        if not out:
            return False
        offset = out[choice % len(out)]
        handle = self.taken.popped[offset].handle.text()
        self.broker.ask(change_of(GROUP, TOPIC, handle, invisible_ms))
        self.taken.until_ms[offset] = self.broker.now_ms + invisible_ms
        return True

    def save(self) -> None:
        self._saved = deepcopy((self.at, self.taken))

    def crash(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.at, self.taken = deepcopy(self._saved)

    def check(self) -> None:
        """Compare the committed offset and the blocked queue with the broker's."""
        engine = self.broker.engine
        assert engine.tables.committed.get(GROUP, queue_of(TOPIC)) == self.at
        is_blocked = engine.pops.orderly.is_blocked(_GROUP_QUEUE, "", self.broker.now_ms)
        assert is_blocked == self.is_blocked
