"""Keeps popped messages lent to this query until their batch is durable, and then acknowledges.

A thread renews what has used half of its invisible time. Renewals and acknowledgements exclude each
other: a handle that is renewed while it acknowledges would leave its message to come again. The end
hands back what is not acknowledged: whoever pops next gets it at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.pop import AT_ONCE_MS

_log = logging.getLogger("pyspark_rocketmq")

_TURN_MAX: Final = 256
_TICK_SECONDS_MAX: Final = 1.0
_JOIN_SECONDS_MAX: Final = 5.0
_HAND_BACK_MS_MAX: Final = 3_000
"""A query that ends is waited for."""


class Lender(Protocol):
    """Who lent the messages of one topic; used under the leases' lock only."""

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]: ...

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]: ...


@dataclass(eq=False, slots=True)
class Lease:
    """One message that is ours for now."""

    topic: str
    handle: ReceiptHandle
    renewed_ms: int
    """By our clock: what counts is how long ago the broker's answer came."""


class Leases:
    """All messages of the batches that are not durable yet."""

    def __init__(
        self,
        lenders: Callable[[str], Lender],
        *,
        invisible_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._lenders, self._invisible_ms, self._now_ms = lenders, invisible_ms, now_ms
        self._lock = threading.Lock()
        self._held: dict[Lease, None] = {}
        self._owed: list[Lease] = []
        """Acknowledgements that could not be delivered yet."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, topic: str, handles: Iterable[ReceiptHandle]) -> list[Lease]:
        """Keep messages lent from now on."""
        now_ms = self._now_ms()
        leases = [Lease(topic, handle, now_ms) for handle in handles]
        with self._lock:
            self._held.update(dict.fromkeys(leases))
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="rocketmq-pop-leases", daemon=True
            )
            self._thread.start()
        return leases

    def acknowledge(self, leases: Iterable[Lease]) -> None:
        """These are durable: acknowledge them, and what is owed from before."""
        with self._lock:
            owed = [*self._owed, *leases]
            self._owed = []
            by_topic: dict[str, list[Lease]] = {}
            for lease in owed:
                by_topic.setdefault(lease.topic, []).append(lease)
            for topic, some in by_topic.items():
                errors = self._lenders(topic).ack_handles([lease.handle for lease in some])
                if any(error.retryable for error in errors):
                    # All of them again: acknowledging twice is no matter.
                    self._owed += some
                    _log.warning("topic=%s: acknowledgements are tried again: %s", topic, errors[0])
                    continue
                for error in errors:
                    _log.warning("topic=%s: not acknowledged, comes again: %s", topic, error)
                for lease in some:
                    self._held.pop(lease, None)

    @property
    def owes(self) -> bool:
        """True while acknowledgements wait to be tried again."""
        return bool(self._owed)

    def renew_due(self) -> None:
        """Renew what has used half of its time."""
        with self._lock:
            oldest_ms = self._now_ms() - self._invisible_ms // 2
            due = [lease for lease in self._held if lease.renewed_ms <= oldest_ms]
        for first in range(0, len(due), _TURN_MAX):
            with self._lock:
                # Acknowledged meanwhile: no longer ours to renew.
                some = [one for one in due[first : first + _TURN_MAX] if one in self._held]
                self._renew(some)

    def close(self) -> None:
        """Renew no more, acknowledge what is owed, and hand the rest back, as far as time allows.

        What cannot be handed back comes again when its invisible time is over.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS_MAX)
            if self._thread.is_alive():
                # It renews, over the same connection: nothing else can be asked meanwhile.
                return
        try:
            self.acknowledge(())
            self._hand_back()
        except RocketMQError as error:
            _log.warning("messages come again when their invisible time is over: %s", error)

    def _hand_back(self) -> None:
        end_ms = self._now_ms() + _HAND_BACK_MS_MAX
        by_topic: dict[str, list[Lease]] = {}
        owed = set(self._owed)
        for lease in self._held:
            if lease not in owed:
                by_topic.setdefault(lease.topic, []).append(lease)
        for topic, some in by_topic.items():
            for first in range(0, len(some), _TURN_MAX):
                if self._now_ms() >= end_ms:
                    return
                handles = [lease.handle for lease in some[first : first + _TURN_MAX]]
                answers = self._lenders(topic).change_handles(handles, AT_ONCE_MS)
                failed = [one for one in answers if isinstance(one, RocketMQError)]
                if len(failed) == len(handles):
                    # Nobody listens: the others would only take as long.
                    _log.warning("topic=%s: nothing could be handed back: %s", topic, failed[0])
                    break
        self._held.clear()

    def _renew(self, leases: Sequence[Lease]) -> None:
        by_topic: dict[str, list[Lease]] = {}
        for lease in leases:
            by_topic.setdefault(lease.topic, []).append(lease)
        for topic, some in by_topic.items():
            lender = self._lenders(topic)
            asked_ms = self._now_ms()
            handles = lender.change_handles([one.handle for one in some], self._invisible_ms)
            for lease, handle in zip(some, handles, strict=True):
                if not isinstance(handle, RocketMQError):
                    lease.handle, lease.renewed_ms = handle, asked_ms
                elif isinstance(handle, BrokerError) and handle.code == ResponseCode.NO_MESSAGE:
                    _log.warning("topic=%s: a loan ended, its message comes again", topic)
                    self._held.pop(lease, None)
                else:
                    _log.warning("topic=%s: a loan could not be renewed: %s", topic, handle)

    def _run(self) -> None:
        tick_seconds = min(_TICK_SECONDS_MAX, self._invisible_ms / 4_000)
        while not self._ended.wait(tick_seconds):
            self._turn()

    def _turn(self) -> None:
        try:
            self.renew_due()
        except Exception:  # noqa: BLE001 - the thread's outermost frame: the next turn tries again
            _log.exception("loans could not be renewed")
