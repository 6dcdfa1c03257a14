"""The promises of pop consumption, checked for one topic and one group.

    ready     comes with some pop
    out       comes with no pop before its invisible time is over, and surely with one after
    done      comes no more

A crash suspends these promises, because the saved committed offset is older. All messages that were
popped, renewed or done may come again then, more than once, until all old pops are over; but no
message is lost that was not done.
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
"""A renewed pop may begin a millisecond later."""
_ROUNDS_MAX = 12

StoredOffset = tuple[str, int, int]
"""Stored topic, queue and offset."""


@dataclass
class _Out:
    popped: Popped
    until_ms: int


class PopModel:
    """Sends requests to the broker and checks the replies."""

    def __init__(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.out: dict[bytes, _Out] = {}
        self.ready: set[bytes] = set()
        self.done: set[bytes] = set()
        self.loose: set[bytes] = set()
        """Messages whose promises a crash suspended."""
        self._bodies: dict[StoredOffset, bytes] = {}
        """The body that was popped from each stored offset."""

    def put(self, bodies: list[bytes]) -> None:
        self.broker.store_messages(queue_of(TOPIC), *bodies)
        self.ready.update(bodies)

    def pop(self, count: int, invisible_ms: int) -> list[Popped]:
        now_ms = self.broker.now_ms
        found = pops.pop(self.broker, count, group=GROUP, topic=TOPIC, invisible_ms=invisible_ms)
        bodies = [one.body for one in found if one.body not in self.loose]
        assert len(set(bodies)) == len(bodies), "one pop returned a message twice"
        for one in found:
            if one.body not in self.loose:
                held = self.out.get(one.body)
                assert held is None or held.until_ms <= now_ms, "it is in flight already"
                assert one.body not in self.done, "it is done"
            self.ready.discard(one.body)
            self._bodies[_stored_offset_of(one.handle)] = one.body
            self.out[one.body] = _Out(one, now_ms + invisible_ms)
        return found

    def ack(self, choice: int, count: int) -> bool:
        """Acknowledge some messages together; False if none is in flight."""
        held = self._unfinished()
        if not held:
            return False
        first = choice % len(held)
        chosen = [self.out.pop(body).popped for body in (held[first:] + held[:first])[:count]]
        pops.ack(self.broker, *chosen, group=GROUP, topic=TOPIC)
        self.done.update(one.body for one in chosen)
        return True

    def renew(self, choice: int, invisible_ms: int) -> bool:
        """Renew the invisible time of a message; False if none is in flight."""
        held = self._unfinished()
        if not held:
            return False
        body = held[choice % len(held)]
        out = self.out[body]
        request = change_of(GROUP, TOPIC, out.popped.handle.text(), invisible_ms)
        # A message that became visible meanwhile cannot be renewed.
        with contextlib.suppress(BrokerError):
            reply = self.broker.ask(request)
            handle = reply.handle_after(out.popped.handle)
            now_ms = self.broker.now_ms
            self.out[body] = _Out(out.popped._replace(handle=handle), now_ms + invisible_ms)
        return True

    def check(self) -> None:
        """Compare the messages in flight with the broker's; after a crash it may have more."""
        now_ms = self.broker.now_ms
        expected = {
            _stored_offset_of(out.popped.handle)
            for out in self.out.values()
            if out.until_ms > now_ms + _MARGIN_MS
        }
        open_ = {
            _stored_offset_of(out.popped.handle)
            for out in self.out.values()
            if abs(out.until_ms - now_ms) <= _MARGIN_MS
        }
        in_flight = {
            (unacked.key.topic, unacked.key.queue_index, offset)
            for unacked in self.broker.engine.pops._cursors.in_flight._by_key.values()
            if unacked.key.group == GROUP and unacked.visible_ms > now_ms + _MARGIN_MS
            for offset in unacked.offsets_of(~unacked.finished)
        }
        assert expected <= in_flight, "the broker does not know that it is in flight"
        others = {self._bodies.get(stored_offset) for stored_offset in in_flight - expected - open_}
        assert others <= self.loose, "the broker keeps messages back that no client has"

    def turn(self) -> None:
        pops.turn(self.broker)

    def crash(self, broker: EngineUnderTest) -> None:
        self.broker = broker
        self.loose |= self.out.keys() | self.done
        self.ready |= self.out.keys()
        self.out.clear()

    def drain(self, pass_time: Callable[[], None]) -> None:
        """Pop until every unacknowledged message came or is a dead letter, and no more come.

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
        # No earlier pop is left: from here on every promise holds again.
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

    def _unfinished(self) -> list[bytes]:
        """The messages in flight whose invisible time is not over."""
        now_ms = self.broker.now_ms
        return sorted(body for body, out in self.out.items() if out.until_ms > now_ms)


def _stored_offset_of(handle: ReceiptHandle) -> StoredOffset:
    return handle.retry.topic_of(TOPIC, GROUP), handle.queue_index, handle.offset
