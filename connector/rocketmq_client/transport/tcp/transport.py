"""RocketMQ's TCP protocol as a transport: requests to brokers and name servers, and downloads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.tcp.broker_requests import BrokerRequests
from rocketmq_client.transport.tcp.connection import Call
from rocketmq_client.transport.tcp.download import Download
from rocketmq_client.transport.tcp.exchange import Exchange
from rocketmq_wire.errors import DeadlineExceededError, RocketMQError
from rocketmq_wire.model import MASTER_ID, OffsetRange
from rocketmq_wire.remoting.session import Responder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged

R = TypeVar("R", bound=Reply)


class TcpTransport(Transport):
    """One thread's connections to a cluster, made at first use, and again in a forked process."""

    def __init__(self, settings: ConnectionSettings, *, responder: Responder | None = None) -> None:
        """`responder` answers requests of brokers."""
        self._settings = settings
        self._responder = responder
        self._reset()

    # --- the contract -------------------------------------------------------------------------

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        self._check_process()
        inbox: list[Call] = []
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            calls = [
                self._requests.ask(broker, request, inbox, timeout_ms=timeout_ms)
                for broker, request in requests
            ]
            while len(inbox) < len(calls):
                # Every request expires by itself; the end is a second guard against a hang.
                left_ms = end_ms - self._clock.now_ms()
                if left_ms < -1_000:
                    break
                self._requests.step(max(1, left_ms))
        late = DeadlineExceededError("the cluster", f"waited {timeout_ms} ms")
        done = set(inbox)
        return [cast("R | RocketMQError", c.result if c in done else late) for c in calls]

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        self._check_process()
        tickets = range(self._ticket + 1, self._ticket + 1 + len(requests))
        self._ticket += len(requests)
        with self._clock.inside():
            for ticket, (broker, request) in zip(tickets, requests, strict=True):
                call = self._requests.ask(broker, request, self._inbox, timeout_ms=timeout_ms)
                self._tickets[call] = ticket
            self._requests.flush()
        return list(tickets)

    def start(
        self,
        request: Request[Reply],
        broker: str | None,
        *,
        timeout_ms: int,
        fields: Mapping[str, str] | None = None,
    ) -> int:
        """As `submit`, with header fields to add."""
        self._check_process()
        self._ticket += 1
        with self._clock.inside():
            call = self._requests.ask(
                broker, request, self._inbox, timeout_ms=timeout_ms, fields=fields
            )
            self._tickets[call] = self._ticket
            self._requests.flush()
        return self._ticket

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Reply | RocketMQError]]:
        self._check_process()
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            self._exchange.listen_for_wakes()
            while not self._inbox and not self._exchange.take_wake():
                left_ms = end_ms - self._clock.now_ms()
                self._requests.step(max(0, left_ms))
                if left_ms <= 0:
                    break
        done = [
            (self._tickets.pop(call), call.result)
            for call in self._inbox
            if call.result is not None
        ]
        self._inbox.clear()
        return done

    def wake(self) -> None:
        self._exchange.wake()

    def broker_addresses(self) -> dict[str, str]:
        return self._requests.directory.broker_addresses()

    def hint(self, addresses: Mapping[str, str]) -> None:
        self._check_process()
        self._requests.directory.hint(addresses)

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        self._check_process()
        return Download(self._settings, self._clock, self._requests, ranges, spec).chunks()

    def close(self) -> None:
        """Close every connection; each request in flight fails. A later call connects again."""
        self._requests.close()
        self._inbox.clear()
        self._tickets.clear()

    # --- for clients that brokers know --------------------------------------------------------

    def tell(
        self,
        broker: str,
        request: Request[Reply],
        *,
        broker_id: int = MASTER_ID,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request that has no reply, and whose fate stays unknown."""
        self._check_process()
        with self._clock.inside():
            timeout_ms = self._settings.request_timeout_ms
            if broker_id == MASTER_ID:
                self._requests.tell(broker, request, timeout_ms=timeout_ms)
            else:
                self._requests.tell_slave(broker, broker_id, request, fields)

    def take_notices(self) -> list[NotifyMembersChanged]:
        """The notices of brokers; `completed` returns when there is one."""
        notices = list(self._exchange.notices)
        self._exchange.notices.clear()
        return notices

    @property
    def unsent_count(self) -> int:
        """The parts of frames that sockets have not taken yet. From any thread."""
        return self._exchange.unsent_count

    # --- inside -------------------------------------------------------------------------------

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            # Forked: the sockets belong to the parent. Closing our copies does not disturb them.
            self._exchange.close(is_forked=True)
            self._reset()

    def _reset(self) -> None:
        self._process_id = os.getpid()
        self._clock = ActiveClock()
        self._exchange = Exchange(self._settings, self._clock, self._responder)
        self._requests = BrokerRequests(self._settings, self._clock, self._exchange)
        self._inbox: list[Call] = []
        self._tickets: dict[Call, int] = {}
        self._ticket = 0
