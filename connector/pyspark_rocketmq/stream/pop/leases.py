"""Keeps popped messages invisible to others until their batch is durable, then acknowledges them.

A thread renews messages after half of their invisible time. Renewals and acknowledgements exclude
each other: if a handle is renewed while it acknowledges, its message comes again. At the end the
messages that are not acknowledged are handed back: the next pop gets them at once.
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

_REQUEST_MAX: Final = 256
_TICK_SECONDS_MAX: Final = 1.0
_JOIN_SECONDS_MAX: Final = 5.0
_HAND_BACK_MS_MAX: Final = 3_000
"""The user waits for a query that ends."""


class PopGroup(Protocol):
    """Acknowledges and renews the messages of one topic; used under the leases' lock only."""

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]: ...

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]: ...


@dataclass(eq=False, slots=True)
class Lease:
    topic: str
    handle: ReceiptHandle
    renewed_ms: int
    """When the renewal was requested, by the local clock."""


class Leases:
    """The messages of all batches that are not durable yet."""

    def __init__(
        self, groups: Callable[[str], PopGroup], *, invisible_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._groups = groups
        self._invisible_ms = invisible_ms
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._held: dict[Lease, None] = {}
        self._owed: list[Lease] = []
        """Messages whose acknowledgement failed on the network."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, topic: str, handles: Iterable[ReceiptHandle]) -> list[Lease]:
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
        """Acknowledge messages that are durable, and those whose acknowledgement failed before."""
        with self._lock:
            owed = _by_topic([*self._owed, *leases])
            self._owed = []
            for topic, some in owed.items():
                errors = self._groups(topic).ack_handles([lease.handle for lease in some])
                if any(error.retryable for error in errors):
                    # All of them again: acknowledging twice does no harm.
                    self._owed += some
                    _log.warning("topic=%s: acknowledgements are retried: %s", topic, errors[0])
                    continue
                for error in errors:
                    _log.warning("topic=%s: not acknowledged, comes again: %s", topic, error)
                for lease in some:
                    self._held.pop(lease, None)

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def renew_due(self) -> None:
        """Renew messages that have used half of their invisible time."""
        with self._lock:
            oldest_ms = self._now_ms() - self._invisible_ms // 2
            due = [lease for lease in self._held if lease.renewed_ms <= oldest_ms]
        for first in range(0, len(due), _REQUEST_MAX):
            with self._lock:
                # Messages acknowledged meanwhile must not be renewed.
                some = [one for one in due[first : first + _REQUEST_MAX] if one in self._held]
                self._renew(some)

    def close(self) -> None:
        """Stop renewing, acknowledge what is due, and hand the rest back, as far as time allows.

        Messages that cannot be handed back come again when their invisible time is over.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS_MAX)
            if self._thread.is_alive():
                # It is renewing over the same connection, which is busy until that is done.
                return
        try:
            self.acknowledge(())
            self._hand_back()
        except RocketMQError as error:
            _log.warning("messages come again when their invisible time is over: %s", error)

    def _hand_back(self) -> None:
        end_ms = self._now_ms() + _HAND_BACK_MS_MAX
        owed = set(self._owed)
        for topic, some in _by_topic(lease for lease in self._held if lease not in owed).items():
            for first in range(0, len(some), _REQUEST_MAX):
                if self._now_ms() >= end_ms:
                    return
                handles = [lease.handle for lease in some[first : first + _REQUEST_MAX]]
                answers = self._groups(topic).change_handles(handles, AT_ONCE_MS)
                failed = [one for one in answers if isinstance(one, RocketMQError)]
                if len(failed) == len(handles):
                    # No broker answers: the other requests would only take as long.
                    _log.warning("topic=%s: nothing could be handed back: %s", topic, failed[0])
                    break
        self._held.clear()

    def _renew(self, leases: Sequence[Lease]) -> None:
        for topic, some in _by_topic(leases).items():
            group = self._groups(topic)
            asked_ms = self._now_ms()
            handles = group.change_handles([one.handle for one in some], self._invisible_ms)
            for lease, handle in zip(some, handles, strict=True):
                if not isinstance(handle, RocketMQError):
                    lease.handle, lease.renewed_ms = handle, asked_ms
                elif isinstance(handle, BrokerError) and handle.code == ResponseCode.NO_MESSAGE:
                    _log.warning(
                        "topic=%s: the invisible time of a message ended, it comes again", topic
                    )
                    self._held.pop(lease, None)
                else:
                    _log.warning("topic=%s: a message could not be renewed: %s", topic, handle)

    def _run(self) -> None:
        tick_seconds = min(_TICK_SECONDS_MAX, self._invisible_ms / 4_000)
        while not self._ended.wait(tick_seconds):
            try:
                self.renew_due()
            except Exception:  # noqa: BLE001, PERF203 - outermost frame; the next tick tries again
                _log.exception("messages could not be renewed")


def _by_topic(leases: Iterable[Lease]) -> dict[str, list[Lease]]:
    found: dict[str, list[Lease]] = {}
    for lease in leases:
        found.setdefault(lease.topic, []).append(lease)
    return found
