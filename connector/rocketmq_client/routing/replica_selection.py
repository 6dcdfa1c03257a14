"""Which replica each queue is to be pulled from, as the masters suggest: pure.

A master whose data for a pull is no longer in memory suggests a replica. What the replica has is
taken; whatever else it answers proves nothing, for it may lag: the master is asked instead.

A replica that fails is left alone for a while, though masters go on suggesting it: every pull would
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
    """Broker ids by queue; a queue that is not there is pulled from its master."""

    def __init__(self) -> None:
        self._ids: dict[QueueId, int] = {}
        self._shunned: dict[str, tuple[int, Backoff]] = {}
        """Addresses of replicas that failed, and until when they are not asked."""

    def broker_id(self, request: Request[Reply]) -> int:
        """Whom to ask. What waits for messages to arrive waits where they arrive first."""
        if (
            not isinstance(request, PullMessages)
            or request.suspend_ms
            or request.commit is not None
        ):
            return MASTER_ID
        return self._ids.get(request.queue, MASTER_ID)

    def learn(self, request: Request[Reply], result: Reply | RocketMQError) -> None:
        """Take over what an answer suggests for the next pull."""
        if isinstance(request, PullMessages) and isinstance(result, PullReplies):
            for answer in result.answers:
                self.learn(request, answer)
        if isinstance(request, PullMessages) and isinstance(result, PullReply):
            if result.suggested_broker_id == MASTER_ID:
                self._ids.pop(request.queue, None)
            else:
                self._ids[request.queue] = result.suggested_broker_id

    def is_shunned(self, address: str, now_ms: int) -> bool:
        """True while the replica there is not to be asked."""
        until_ms, _ = self._shunned.get(address, (0, None))
        return now_ms < until_ms

    def shun(self, address: str, now_ms: int) -> None:
        """The replica there failed. All that was asked of it fails together, and counts once."""
        if not self.is_shunned(address, now_ms):
            _, backoff = self._shunned.get(address) or (0, Backoff(REPLICA))
            self._shunned[address] = now_ms + backoff.next_delay_ms(), backoff

    def trust(self, address: str) -> None:
        """The replica there gave what it was asked for."""
        self._shunned.pop(address, None)

    def forget(self, request: Request[Reply]) -> None:
        """Go back to the master for this queue."""
        if isinstance(request, PullMessages):
            self._ids.pop(request.queue, None)


def is_useful(request: Request[Reply], result: Reply | RocketMQError) -> bool:
    """True for a replica's answer that holds, however far the replica is behind its master."""
    if isinstance(result, PullReplies):
        return all(getattr(one, "status", None) is PullStatus.FOUND for one in result.answers)
    if not isinstance(request, PullMessages) or not isinstance(result, PullReply):
        return False
    if result.status is PullStatus.FOUND:
        return True
    goes_on = result.next_begin > request.start and result.remark != _BEING_REMOVED
    return result.status is PullStatus.NO_MATCHED_MESSAGE and goes_on


def is_failure(result: Reply | RocketMQError) -> bool:
    """True if nothing at all was had of a replica."""
    if isinstance(result, PullReplies):
        return all(isinstance(one, RocketMQError) for one in result.answers)
    return isinstance(result, RocketMQError)
