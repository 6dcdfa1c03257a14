"""What pop promises, whatever way a broker keeps it: held against one topic and one group.

    ready     comes with some pop
    out       comes with no pop before its time is over, and surely with one after
    done      comes no more

A crash takes that back: the group's progress is as old as its file. All that was lent, taken back
or done may come again then, and more than once, until all old loans are over; but nothing that was
not done is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.pop import change_of
from support import pops
from support.engines import EngineUnderTest, queue_of
from support.pops import Popped

GROUP = "workers"
TOPIC = "jobs"
_MARGIN_MS = 2
"""A loan that is made anew may begin a millisecond later."""
_ROUNDS_MAX = 12

Lent = tuple[str, int, int]
"""Stored topic, queue and offset."""


@dataclass
class _Out:
    popped: Popped
    until_ms: int


class PopModel:
    """Asks the broker, and checks what it answers."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.out: dict[bytes, _Out] = {}
        self.ready: set[bytes] = set()
        self.done: set[bytes] = set()
        self.loose: set[bytes] = set()
        """Of these a crash has taken the promises back."""
        self._bodies: dict[Lent, bytes] = {}
        """What was seen at a place."""

    def put(self, bodies: list[bytes]) -> None:
        self.broker.store_messages(queue_of(TOPIC), *bodies)
        self.ready.update(bodies)

    def pop(self, count: int, invisible_ms: int) -> list[Popped]:
        now_ms = self.broker.now_ms
        found = pops.pop(self.broker, count, group=GROUP, topic=TOPIC, invisible_ms=invisible_ms)
        bodies = [one.body for one in found if one.body not in self.loose]
        assert len(set(bodies)) == len(bodies), "one pop lends a message once"
        for one in found:
            if one.body not in self.loose:
                held = self.out.get(one.body)
                assert held is None or held.until_ms <= now_ms, "it is lent to another"
                assert one.body not in self.done, "it is done"
            self.ready.discard(one.body)
            self._bodies[_place_of(one.handle)] = one.body
            self.out[one.body] = _Out(one, now_ms + invisible_ms)
        return found

    def ack(self, choice: int, count: int) -> bool:
        """Settle some together; False if none is out."""
        held = self._held()
        if not held:
            return False
        first = choice % len(held)
        chosen = [self.out.pop(body).popped for body in (held[first:] + held[:first])[:count]]
        pops.ack(self.broker, *chosen, group=GROUP, topic=TOPIC)
        self.done.update(one.body for one in chosen)
        return True

    def renew(self, choice: int, invisible_ms: int) -> bool:
        """Have one lent anew; False if none is out."""
        held = self._held()
        if not held:
            return False
        body = held[choice % len(held)]
        out = self.out[body]
        request = change_of(GROUP, TOPIC, out.popped.handle.text(), invisible_ms)
        # What became visible meanwhile cannot be renewed.
        with contextlib.suppress(BrokerError):
            reply = self.broker.ask(request)
            handle = reply.handle_after(out.popped.handle)
            now_ms = self.broker.now_ms
            self.out[body] = _Out(out.popped._replace(handle=handle), now_ms + invisible_ms)
        return True

    def check(self) -> None:
        """What is lent by the broker is what is out; after a crash others of before may be, too."""
        now_ms = self.broker.now_ms
        expected = {
            _place_of(out.popped.handle)
            for out in self.out.values()
            if out.until_ms > now_ms + _MARGIN_MS
        }
        open_ = {
            _place_of(out.popped.handle)
            for out in self.out.values()
            if abs(out.until_ms - now_ms) <= _MARGIN_MS
        }
        lent = {
            (loan.key.topic, loan.key.queue_index, offset)
            for loan in self.broker.engine.pops._in_flight._by_key.values()
            if loan.key.group == GROUP and loan.visible_ms > now_ms + _MARGIN_MS
            for offset in loan.offsets_of(~loan.finished)
        }
        assert expected <= lent, "it is out, and the broker knows nothing of it"
        others = {self._bodies.get(place) for place in lent - expected - open_}
        assert others <= self.loose, "the broker keeps back what nobody has"

    def turn(self) -> None:
        pops.turn(self.broker)

    def crash(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.loose |= self.out.keys() | self.done
        self.ready |= self.out.keys()
        self.out.clear()

    def drain(self, pass_time: Callable[[], None]) -> None:
        """In the end everything comes that was not acknowledged, or is dead; then nothing more.

        `pass_time` lets two minutes pass, and has done what is due.
        """
        wanted = (self.ready | self.out.keys()) - self.done
        found: set[bytes] = set()
        for _ in range(_ROUNDS_MAX):
            pass_time()
            count = 0
            while some := pops.pop(self.broker, group=GROUP, topic=TOPIC):
                count += len(some)
                found.update(one.body for one in some)
                pops.ack(self.broker, *some[:1], group=GROUP, topic=TOPIC)
                pops.ack(self.broker, *some[1:], group=GROUP, topic=TOPIC)
            if not count and wanted <= found:
                break
        lost = wanted - found - self._dead()
        assert not lost, f"never came: {sorted(lost)[:5]}"
        again = (found & self.done) - self.loose
        assert not again, f"acknowledged, and came again: {sorted(again)[:5]}"
        # No loan of before is left: from here on every promise holds again.
        self.done |= self.ready | self.out.keys() | found
        self.out.clear()
        self.ready.clear()
        self.loose.clear()

    def _dead(self) -> set[bytes]:
        store, end = self.broker.store, self.broker.store.bounds(f"%DLQ%{GROUP}", 0).end
        if not end:
            return set()
        at, found = 0, set()
        read = store.read(f"%DLQ%{GROUP}", 0, 0, count_max=1_000, bytes_max=1 << 20)
        data = b"".join(map(bytes, read.parts))
        while at < len(data):
            message, at = decode_record(data, at, check_crc=False)
            found.add(message.body)
        return found

    def _held(self) -> list[bytes]:
        """What is out and whose time is not over: the others may be lent to another."""
        now_ms = self.broker.now_ms
        return sorted(body for body, out in self.out.items() if out.until_ms > now_ms)


def _place_of(handle: ReceiptHandle) -> Lent:
    return handle.retry.topic_of(TOPIC, GROUP), handle.queue_index, handle.offset
