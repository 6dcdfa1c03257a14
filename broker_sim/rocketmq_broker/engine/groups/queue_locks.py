"""Queue locks: the member of a group that may consume a queue in order, for a minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketmq_wire.requests.groups import LockQueues, QueuesReply, UnlockQueues

LEASE_MS: Final = 60_000


@dataclass(slots=True)
class _Lease:
    client_id: str
    renewed_ms: int


class QueueLocks:
    """Leases by group and queue. They are not saved: a restart frees every queue."""

    def __init__(self) -> None:
        self._leases: dict[str, dict[tuple[str, int], _Lease]] = {}

    def lock(self, request: LockQueues, now_ms: int) -> QueuesReply:
        """Lock queues that are free, expired or the member's own; returns the locked ones."""
        leases = self._leases.setdefault(request.group, {})
        owned = []
        for queue in request.queues:
            key = (queue.topic, queue.index)
            lease = leases.get(key)
            if (
                lease is None
                or lease.client_id == request.client_id
                or now_ms - lease.renewed_ms > LEASE_MS
            ):
                leases[key] = _Lease(request.client_id, now_ms)
                owned.append(queue)
        return QueuesReply(tuple(owned))

    def unlock(self, request: UnlockQueues) -> None:
        """Release the member's own leases; those of others stay."""
        leases = self._leases.get(request.group, {})
        for queue in request.queues:
            lease = leases.get((queue.topic, queue.index))
            if lease is not None and lease.client_id == request.client_id:
                del leases[queue.topic, queue.index]
        if not leases:
            self._leases.pop(request.group, None)

    def expire(self, now_ms: int) -> None:
        """Drop leases that no member renews, so that the table does not grow for ever."""
        for group in list(self._leases):
            leases = self._leases[group]
            for key in [k for k, lease in leases.items() if now_ms - lease.renewed_ms > LEASE_MS]:
                del leases[key]
            if not leases:
                del self._leases[group]
