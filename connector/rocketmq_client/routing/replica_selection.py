"""Selects the replica that serves a queue's pulls, as the masters suggest: pure.

A master suggests a replica when the messages of a pull are no longer in its memory. Messages of the
replica are taken; any other answer of it proves nothing, since it may lag, and the master is asked.

A replica that failed is not asked for a while, though masters still suggest it: every pull would
wait for it.
"""

from __future__ import annotations

from rocketmq_client.retry import REPLICA, Backoff
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus

_BEING_REMOVED = "MESSAGE_WAS_REMOVING"


class ReplicaSelection:
    """Broker ids by queue; other queues are pulled from their masters."""

    def __init__(self) -> None:
        self._ids: dict[QueueId, int] = {}
        self._shunned: dict[str, tuple[int, Backoff]] = {}
        """Addresses of replicas that failed, and until when they are not asked."""

    def broker_id(self, request: Request[Reply]) -> int:
        """Return the broker id to ask. Held pulls go to the master: messages arrive there first."""
        if (
            not isinstance(request, PullMessages)
            or request.suspend_ms
            or request.commit is not None
        ):
            return MASTER_ID
        return self._ids.get(request.queue, MASTER_ID)

    def learn(self, request: Request[Reply], result: Reply | RocketMQError) -> None:
        """Take over an answer's suggestion for the next pull."""
        if isinstance(request, PullMessages) and isinstance(result, PullReplies):
            for answer in result.answers:
                self.learn(request, answer)
        if isinstance(request, PullMessages) and isinstance(result, PullReply):
            if result.suggested_broker_id == MASTER_ID:
                self._ids.pop(request.queue, None)
            else:
                self._ids[request.queue] = result.suggested_broker_id

    def is_shunned(self, address: str, now_ms: int) -> bool:
        """Whether the replica must not be asked now."""
        until_ms, _ = self._shunned.get(address, (0, None))
        return now_ms < until_ms

    def shun(self, address: str, now_ms: int) -> None:
        """Note a failed replica. Its requests fail together, and count as one failure."""
        if not self.is_shunned(address, now_ms):
            _, backoff = self._shunned.get(address) or (0, Backoff(REPLICA))
            self._shunned[address] = now_ms + backoff.next_delay_ms(), backoff

    def trust(self, address: str) -> None:
        """Note a useful answer of the replica."""
        self._shunned.pop(address, None)

    def forget(self, request: Request[Reply]) -> None:
        """Return to the master for this queue."""
        if isinstance(request, PullMessages):
            self._ids.pop(request.queue, None)


def is_useful(request: Request[Reply], result: Reply | RocketMQError) -> bool:
    """Whether a replica's answer is true, however far the replica is behind its master."""
    if isinstance(result, PullReplies):
        return all(getattr(one, "status", None) is PullStatus.FOUND for one in result.answers)
    if not isinstance(request, PullMessages) or not isinstance(result, PullReply):
        return False
    if result.status is PullStatus.FOUND:
        return True
    resumes = result.next_begin > request.start and result.remark != _BEING_REMOVED
    return result.status is PullStatus.NO_MATCHED_MESSAGE and resumes


def is_failure(result: Reply | RocketMQError) -> bool:
    """Whether a replica answered nothing but errors."""
    if isinstance(result, PullReplies):
        return all(isinstance(one, RocketMQError) for one in result.answers)
    return isinstance(result, RocketMQError)
