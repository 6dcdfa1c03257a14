"""Leases of messages that the broker renews for its clients: first handle -> current handle.

The broker keeps a message of a receive with `auto_renew` invisible for as long as its client is
online, up to a limit.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_broker.servers.public_grpc.lookup import MINUTE_MS
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.pop import ChangeInvisibleTime, InvisibleTimeReply, change_of

_LOG = logging.getLogger(__name__)
CHECK_SECONDS: Final = 5.0
_AHEAD_MS: Final = 10_000
_BACKOFF_MS: Final = tuple(minutes * MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
_RENEWED_MS_MAX: Final = 3 * 60 * MINUTE_MS
_FAILURES_MAX: Final = 3
_COUNT_MAX: Final = 100_000
"""Concurrent leases; further messages come again after their first invisible time."""
_CONCURRENT_MAX: Final = 1_024
"""Concurrent renewals, which share a sync of the log."""

Renew = Callable[[ChangeInvisibleTime], Awaitable[InvisibleTimeReply]]
_Key = tuple[str, str, str]
"""Client, group and first handle."""


@dataclass(slots=True)
class _Lease:
    topic: str
    handle: ReceiptHandle
    first_ms: int
    renewed_count: int = 0
    failures: int = 0
    renewing: asyncio.Event | None = None
    """Set at the end of the running renewal; None if none runs."""


class Renewals:
    """All leases. Every call happens on the event loop's thread."""

    def __init__(self) -> None:
        self._leases: dict[_Key, _Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, client_id: str, group: str, topic: str, handle: str) -> None:
        """Keep the message of this handle invisible from now on."""
        if len(self._leases) < _COUNT_MAX:
            parsed = ReceiptHandle.parse(handle)
            self._leases[client_id, group, handle] = _Lease(topic, parsed, parsed.pop_ms)

    async def current(self, client_id: str, group: str, handle: str) -> str:
        """The current handle of a message; the given one if it was never renewed."""
        lease = self._leases.get((client_id, group, handle))
        if lease is None:
            return handle
        if lease.renewing is not None:
            # The old handle is no longer valid, and the new one has not come yet.
            await lease.renewing.wait()
        return lease.handle.text()

    def remove(self, client_id: str, group: str, handle: str) -> None:
        """Drop the lease of a message that its client has decided about."""
        self._leases.pop((client_id, group, handle), None)

    def forget_client(self, client_id: str) -> None:
        """Drop the leases of a client that has gone, so that its messages come again."""
        for key in [key for key in self._leases if key[0] == client_id]:
            del self._leases[key]

    async def renew_due(self, renew: Renew, is_online: Callable[[str], bool], now_ms: int) -> None:
        """Renew the leases that would end before the next call, many at a time."""
        due = iter(self._take_due(is_online, now_ms))
        while several := list(itertools.islice(due, _CONCURRENT_MAX)):
            await asyncio.gather(
                *(
                    self._renew(renew, key[1], lease)
                    for key, lease in several
                    # The client may have decided about the message during earlier renewals.
                    if self._leases.get(key) is lease
                )
            )

    def _take_due(self, is_online: Callable[[str], bool], now_ms: int) -> list[tuple[_Key, _Lease]]:
        """The leases to renew now; drops those at their limit."""
        due = []
        for key, lease in list(self._leases.items()):
            if lease.handle.visible_ms - now_ms > _AHEAD_MS:
                continue
            age_ms, client_id = now_ms - lease.first_ms, key[0]
            if age_ms >= _RENEWED_MS_MAX or lease.failures >= _FAILURES_MAX:
                _LOG.warning("client=%s holds a message for too long: it comes again", client_id)
                del self._leases[key]
            elif not is_online(client_id):
                del self._leases[key]
            else:
                due.append((key, lease))
        return due

    async def _renew(self, renew: Renew, group: str, lease: _Lease) -> None:
        invisible_ms = _BACKOFF_MS[min(lease.renewed_count, len(_BACKOFF_MS) - 1)]
        request = change_of(group, lease.topic, lease.handle.text(), invisible_ms)
        lease.renewing = asyncio.Event()
        try:
            reply = await renew(request)
            lease.handle = reply.handle_after(lease.handle)
            lease.renewed_count += 1
        except RocketMQError as error:
            lease.failures += 1
            _LOG.warning("group=%s: a message could not be kept invisible: %s", group, error)
        finally:
            lease.renewing.set()
            lease.renewing = None
