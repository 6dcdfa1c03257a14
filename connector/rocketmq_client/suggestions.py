"""Which replica each queue is to be pulled from, as the masters suggest: pure.

A master whose data for a pull is no longer in memory suggests a replica. What the replica has is
taken; whatever else it answers proves nothing, for it may lag: the master is asked instead.
"""

from __future__ import annotations

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, QueueId
from rocketmq_wire.requests import PullMessages, PullReply, PullStatus, Reply, Request

_BEING_REMOVED = "MESSAGE_WAS_REMOVING"


class Suggestions:
    """Broker ids by queue; a queue that is not there is pulled from its master."""

    def __init__(self) -> None:
        self._ids: dict[QueueId, int] = {}

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
        if isinstance(request, PullMessages) and isinstance(result, PullReply):
            if result.suggested_broker_id == MASTER_ID:
                self._ids.pop(request.queue, None)
            else:
                self._ids[request.queue] = result.suggested_broker_id

    def forget(self, request: Request[Reply]) -> None:
        """Go back to the master for this queue."""
        if isinstance(request, PullMessages):
            self._ids.pop(request.queue, None)


def is_useful(request: Request[Reply], result: Reply | RocketMQError) -> bool:
    """True for a replica's answer that holds, however far the replica is behind its master."""
    if not isinstance(request, PullMessages) or not isinstance(result, PullReply):
        return False
    if result.status is PullStatus.FOUND:
        return True
    goes_on = result.next_begin > request.start and result.remark != _BEING_REMOVED
    return result.status is PullStatus.NO_MATCHED_MESSAGE and goes_on
