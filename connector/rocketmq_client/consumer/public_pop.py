"""Pops over RocketMQ's public gRPC service: all that a cluster may show behind its proxies.

A proxy holds a receive for five seconds at least. So one for each broker stays under way between
two calls of `receive_records`: what comes meanwhile is had by the next one.
"""

from __future__ import annotations

import itertools
import logging
import os
import platform
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.consumer.pop import PoppedRecords
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.public_channel import Pending, PublicChannel
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.grpc.public import pops
from rocketmq_wire.model import Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.pop import AT_ONCE_MS, POP_COUNT_MAX, PopReply, PopStatus

_LOG = logging.getLogger(__name__)

_GRACE_MS: Final = 10_000
_LOOK_MS: Final = 100
"""How long a receive that was just begun is waited for: what is there comes at once."""
_TURN_MS_MAX: Final = 1_000
_ACKS_MAX: Final = 256
# Of a loan. The rest is for the renewals, which begin when half of it is used.
_UNREAD_SHARE_MAX: Final = 0.25


class PublicPopClient:
    """One client of the service, for any number of topics. One thread at a time."""

    def __init__(
        self, settings: ConnectionSettings, group: str, topics: Mapping[str, Subscription]
    ) -> None:
        """Connects nothing. Raises ValueError for endpoints that are no addresses."""
        name = f"{platform.node()}@{os.getpid()}@{secrets.token_hex(4)}"
        self.group, self.settings = group, settings
        telemetry, heartbeat = pops.telemetry(group, topics), pops.heartbeat(group)
        self.channel = PublicChannel(settings, name, telemetry, heartbeat)

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()


@dataclass
class _Held:
    """A receive under way."""

    pending: Pending
    asked_ms: int
    unseen_ms: int
    """When it was last seen unanswered: what it brought may be lent since then."""

    @property
    def has_arrived(self) -> bool:
        return self.pending.is_done and self.pending.error is None


class PublicPopConsumer:
    """One topic of a client; offers what `PopConsumer` offers for records."""

    def __init__(
        self,
        client: PublicPopClient,
        topic: str,
        *,
        subscription: Subscription | None = None,
        invisible_ms: int = 60_000,
        route_ms: int = 30_000,
    ) -> None:
        self._client, self._topic = client, topic
        self._subscription = subscription or Subscription()
        self._invisible_ms, self._route_ms = invisible_ms, route_ms
        self._queues: dict[str, bytes] = {}
        self._route_due_ms = 0
        self._held: dict[str, _Held] = {}
        """Receives under way by broker."""
        self._turns = itertools.count()
        self._is_anew = False

    def receive_records(
        self, count_max: int = POP_COUNT_MAX, *, wait_ms: int = 0
    ) -> PoppedRecords | None:
        """Messages of the first broker that has some; None when none came. Raises RocketMQError.

        What has just been asked for is waited for a moment, also without `wait_ms`.
        """
        self._look_up()
        if self._held:
            self._turn(0)
        began_ms = _now_ms()
        while True:
            for broker, queue in self._queues.items():
                if broker not in self._held:
                    self._begin(broker, queue, count_max)
            found = self._take()
            if found is not None:
                return found
            now_ms = _now_ms()
            ends = [began_ms + wait_ms, *(held.asked_ms + _LOOK_MS for held in self._held.values())]
            # Who does not hold receives is not asked for ever.
            left_ms = min(max(ends), began_ms + max(wait_ms, _LOOK_MS)) - now_ms
            if left_ms <= 0:
                return None
            self._turn(left_ms)

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        """Acknowledge messages; what went wrong. Whatever was not acknowledged comes again."""
        wanted = list(handles)
        group, size = self._client.group, _ACKS_MAX
        requests = [
            pops.acks(group, self._topic, wanted[first : first + size])
            for first in range(0, len(wanted), size)
        ]
        errors: list[RocketMQError] = []
        for answer in self._ask("AckMessage", requests):
            errors += [answer] if isinstance(answer, RocketMQError) else pops.ack_errors(answer)
        return errors

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]:
        """The new handle of each, or why it has none; the old ones are void."""
        group = self._client.group
        requests = [pops.change(group, self._topic, one, invisible_ms) for one in handles]
        return [
            answer if isinstance(answer, RocketMQError) else _handle_of(answer)
            for answer in self._ask("ChangeInvisibleDuration", requests)
        ]

    def close(self) -> None:
        """Hand back what has come and nobody took. The client stays open."""
        self._client.channel.turn(0)
        arrived: list[ReceiptHandle] = []
        for held in self._held.values():
            if held.has_arrived:
                try:
                    arrived += pops.received(self._topic, held.pending.frames)[1]
                except RocketMQError as error:
                    _LOG.warning("topic=%s: a receive ended with %s", self._topic, error)
        self._held.clear()
        self.change_handles(arrived, AT_ONCE_MS)

    # --- inside -------------------------------------------------------------------------------

    def _ask(self, name: str, requests: Sequence[bytes]) -> list[bytes | RocketMQError]:
        timeout_ms = self._client.settings.request_timeout_ms
        return self._client.channel.call_many(name, requests, timeout_ms=timeout_ms)

    def _look_up(self) -> None:
        """The topic's brokers, asked for now and then."""
        if self._queues and _now_ms() < self._route_due_ms:
            return
        channel = self._client.channel
        timeout_ms = self._client.settings.request_timeout_ms
        request = pops.route_query(self._topic, channel.address)
        answer = channel.call("QueryRoute", request, timeout_ms=timeout_ms)
        self._queues = dict(pops.brokers_of(self._topic, answer))
        self._route_due_ms = _now_ms() + self._route_ms

    def _begin(self, broker: str, queue: bytes, count_max: int) -> None:
        request = pops.receive(
            self._client.group,
            queue,
            self._subscription,
            count_max=min(count_max, POP_COUNT_MAX),
            invisible_ms=self._invisible_ms,
        )
        timeout_ms = pops.POLL_MS + _GRACE_MS
        pending = self._client.channel.start("ReceiveMessage", request, timeout_ms)
        self._held[broker] = _Held(pending, _now_ms(), _now_ms())

    def _turn(self, wait_ms: int) -> None:
        """Read what has come, or wait for it."""
        began_ms = _now_ms()
        self._client.channel.turn(min(wait_ms, _TURN_MS_MAX))
        for held in self._held.values():
            # Messages are lent once the first of them came.
            if not held.pending.is_done and not held.pending.frames:
                held.unseen_ms = began_ms

    def _take(self) -> PoppedRecords | None:
        """What has come, of another broker first each time. Raises RocketMQError."""
        brokers = list(self._held)
        first = next(self._turns)
        for step in range(len(brokers)):
            broker = brokers[(first + step) % len(brokers)]
            held = self._held[broker]
            pending = held.pending
            if not pending.is_done:
                continue
            del self._held[broker]
            if pending.error is not None:
                raise pending.error
            try:
                records, handles = pops.received(self._topic, pending.frames)
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_ERROR or self._is_anew:
                    raise
                # Perhaps it knows our settings no more: the next call tells them again.
                self._is_anew = True
                self._client.channel.forget()
                arrived = {b: one for b, one in self._held.items() if one.has_arrived}
                self._held = arrived
                return None
            self._is_anew = False
            if handles and _now_ms() - held.unseen_ms > self._invisible_ms * _UNREAD_SHARE_MAX:
                # Nobody has looked for long, and these may be lent to another by now.
                unnoticed = plural(len(handles), "message")
                _LOG.info("topic=%s: %s came unnoticed", self._topic, unnoticed)
                self.change_handles(handles, AT_ONCE_MS)
            elif handles:
                reply = PopReply(PopStatus.FOUND)
                return PoppedRecords(self._topic, broker, records, handles, reply)
        return None


def _handle_of(answer: bytes) -> ReceiptHandle | RocketMQError:
    try:
        return pops.changed(answer)
    except RocketMQError as error:
        return error


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
