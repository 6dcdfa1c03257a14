"""Sends requests many at a time and takes every answer; a refused one is an error."""

from __future__ import annotations

from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests import SendBatch, SendMessage, SendRecords, SendReply

_TIMEOUT_MS = 30_000

Send = SendMessage | SendBatch | SendRecords


class SendPipeline:
    """At most `in_flight_max` sends are under way."""

    def __init__(self, cluster: Cluster, in_flight_max: int) -> None:
        self._transport = cluster.transport
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self.acknowledged = 0
        """Messages that the broker said it stored."""

    def send(self, request: Send) -> None:
        """Send, and wait first when too many are under way."""
        while self._in_flight >= self._in_flight_max:
            self.take(timeout_ms=_TIMEOUT_MS)
        self._transport.submit(request, broker=request.queue.broker, timeout_ms=_TIMEOUT_MS)
        self._in_flight += 1

    def take(self, *, timeout_ms: int) -> None:
        """Take the answers that are there. Raises the first error among them."""
        for _, answer in self._transport.completed(timeout_ms=timeout_ms):
            self._in_flight -= 1
            if isinstance(answer, RocketMQError):
                raise answer
            assert isinstance(answer, SendReply)
            self.acknowledged += answer.count

    def finish(self) -> None:
        """Wait for every answer."""
        while self._in_flight:
            self.take(timeout_ms=_TIMEOUT_MS)
