"""Pops over RocketMQ's public gRPC service, the only one that a cluster behind proxies may offer.

A proxy holds a receive for five seconds at least. So one receive per broker stays open between two
calls of `receive_records`, and the next call returns the messages that arrived meanwhile.
"""

from __future__ import annotations

import itertools
import logging
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from rocketmq_client.consumer.common.io_thread import now_ms
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
_FIRST_WAIT_MS: Final = 100
"""The wait for a receive that was just opened: stored messages arrive at once."""
_READ_MS_MAX: Final = 1_000
_ACKS_MAX: Final = 256
_UNREAD_SHARE_MAX: Final = 0.25
"""The share of the invisible time that messages may wait unread; renewals start at half of it."""


class PublicPopClient:
    """A client of the service for any number of topics, in one thread at a time."""

    def __init__(
        self, settings: ConnectionSettings, group: str, topics: Mapping[str, Subscription]
    ) -> None:
        """Does not connect yet. Raises ValueError for invalid endpoints."""
        name = f"{platform.node()}@{os.getpid()}@{secrets.token_hex(4)}"
        self.group = group
        self.settings = settings
        telemetry, heartbeat = pops.telemetry(group, topics), pops.heartbeat(group)
        self.channel = PublicChannel(settings, name, telemetry, heartbeat)

    def close(self) -> None:
        self.channel.close()


@dataclass
class _Receive:
    pending: Pending
    asked_ms: int
    unseen_ms: int
    """When it was last seen without messages: they may be invisible since then."""

    @property
    def has_arrived(self) -> bool:
        return self.pending.is_done and self.pending.error is None


@dataclass(eq=False)
class PublicPopConsumer:
    """One topic of a client, with the methods of `PopConsumer` for records."""

    client: PublicPopClient
    topic: str
    _: KW_ONLY
    subscription: Subscription | None = None
    invisible_ms: int = 60_000
    route_ms: int = 30_000

    def __post_init__(self) -> None:
        self._queues: dict[str, bytes] = {}
        self._route_due_ms = 0
        self._receives: dict[str, _Receive] = {}
        """Open receives by broker."""
        self._rotation = itertools.count()
        self._has_resent_settings = False

    def receive_records(
        self, count_max: int = POP_COUNT_MAX, *, wait_ms: int = 0
    ) -> PoppedRecords | None:
        """Messages of the first broker that has some; None without any. Raises RocketMQError.

        Waits a moment for a receive that was just opened, also without `wait_ms`.
        """
        self._refresh_route()
        if self._receives:
            self._read(0)
        began_ms = now_ms()
        while True:
            for broker, queue in self._queues.items():
                if broker not in self._receives:
                    self._begin(broker, queue, count_max)
            found = self._take()
            if found is not None:
                return found
            time_ms = now_ms()
            ends = [
                began_ms + wait_ms,
                *(one.asked_ms + _FIRST_WAIT_MS for one in self._receives.values()),
            ]
            # A server that does not hold receives must not be asked without end.
            left_ms = min(max(ends), began_ms + max(wait_ms, _FIRST_WAIT_MS)) - time_ms
            if left_ms <= 0:
                return None
            self._read(left_ms)

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        """Acknowledge messages; returns errors. The broker redelivers the other messages."""
        wanted = list(handles)
        group, size = self.client.group, _ACKS_MAX
        requests = [
            pops.acks(group, self.topic, wanted[first : first + size])
            for first in range(0, len(wanted), size)
        ]
        errors: list[RocketMQError] = []
        for answer in self._ask("AckMessage", requests):
            errors += [answer] if isinstance(answer, RocketMQError) else pops.ack_errors(answer)
        return errors

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]:
        """Defer messages; returns each one's new handle or error. Old handles become invalid."""
        group = self.client.group
        requests = [pops.change(group, self.topic, one, invisible_ms) for one in handles]
        return [
            answer if isinstance(answer, RocketMQError) else _handle_of(answer)
            for answer in self._ask("ChangeInvisibleDuration", requests)
        ]

    def close(self) -> None:
        """Hand back messages that arrived and were not returned. The client stays open."""
        self.client.channel.turn(0)
        arrived: list[ReceiptHandle] = []
        for receive in self._receives.values():
            if receive.has_arrived:
                try:
                    arrived += pops.received(self.topic, receive.pending.frames)[1]
                except RocketMQError as error:
                    _LOG.warning("topic=%s: a receive ended with %s", self.topic, error)
        self._receives.clear()
        self.change_handles(arrived, AT_ONCE_MS)

    def _ask(self, name: str, requests: Sequence[bytes]) -> list[bytes | RocketMQError]:
        timeout_ms = self.client.settings.request_timeout_ms
        return self.client.channel.call_many(name, requests, timeout_ms=timeout_ms)

    def _refresh_route(self) -> None:
        """Ask for the topic's brokers once per period."""
        if self._queues and now_ms() < self._route_due_ms:
            return
        channel = self.client.channel
        timeout_ms = self.client.settings.request_timeout_ms
        request = pops.route_query(self.topic, channel.address)
        answer = channel.call("QueryRoute", request, timeout_ms=timeout_ms)
        self._queues = dict(pops.brokers_of(self.topic, answer))
        self._route_due_ms = now_ms() + self.route_ms

    def _begin(self, broker: str, queue: bytes, count_max: int) -> None:
        request = pops.receive(
            self.client.group,
            queue,
            self.subscription or Subscription(),
            count_max=min(count_max, POP_COUNT_MAX),
            invisible_ms=self.invisible_ms,
        )
        timeout_ms = pops.POLL_MS + _GRACE_MS
        pending = self.client.channel.start("ReceiveMessage", request, timeout_ms)
        self._receives[broker] = _Receive(pending, now_ms(), now_ms())

    def _read(self, wait_ms: int) -> None:
        began_ms = now_ms()
        self.client.channel.turn(min(wait_ms, _READ_MS_MAX))
        for receive in self._receives.values():
            # Messages are invisible from the arrival of the first one on.
            if not receive.pending.is_done and not receive.pending.frames:
                receive.unseen_ms = began_ms

    def _take(self) -> PoppedRecords | None:
        """Messages that arrived, starting with another broker each time. Raises RocketMQError."""
        brokers = list(self._receives)
        first = next(self._rotation)
        for step in range(len(brokers)):
            broker = brokers[(first + step) % len(brokers)]
            receive = self._receives[broker]
            pending = receive.pending
            if not pending.is_done:
                continue
            del self._receives[broker]
            if pending.error is not None:
                raise pending.error
            try:
                records, handles = pops.received(self.topic, pending.frames)
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_ERROR or self._has_resent_settings:
                    raise
                # The server may have lost our settings: the next call sends them again.
                self._has_resent_settings = True
                self.client.channel.forget()
                arrived = {b: one for b, one in self._receives.items() if one.has_arrived}
                self._receives = arrived
                return None
            self._has_resent_settings = False
            if handles and now_ms() - receive.unseen_ms > self.invisible_ms * _UNREAD_SHARE_MAX:
                # No call has read for long, and other consumers may have these messages by now.
                unread = plural(len(handles), "message")
                _LOG.info("topic=%s: %s waited unread for too long", self.topic, unread)
                self.change_handles(handles, AT_ONCE_MS)
            elif handles:
                reply = PopReply(PopStatus.FOUND)
                return PoppedRecords(self.topic, broker, records, handles, reply)
        return None


def _handle_of(answer: bytes) -> ReceiptHandle | RocketMQError:
    try:
        return pops.changed(answer)
    except RocketMQError as error:
        return error
