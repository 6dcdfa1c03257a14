"""A member of a producer group that brokers can ask about the outcome of half messages.

One thread owns the connections: it refreshes routes, sends heartbeats, and receives the requests. A
small pool answers them, since a listener may have to look the outcome up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.consumer.membership.client_instance import client_id_of
from rocketmq_client.retry_schedules import PRODUCER_HEARTBEAT
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.addresses import local_address
from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.model import MASTER_ID
from rocketmq_wire.remoting.session import Deferred
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import Heartbeat, UnregisterClient
from rocketmq_wire.requests.topics import GetRoute, RouteReply
from rocketmq_wire.requests.transactions import (
    PRODUCER_GROUP,
    CheckTransaction,
    EndTransaction,
    Resolution,
)

_LOG = logging.getLogger(__name__)

OnCheck = Callable[[ReceivedMessage], Resolution]
"""Returns the outcome of a half message's transaction; several threads may call it at once."""

_TIMEOUT_MS: Final = 3_000
_PERIOD_MS: Final = 30_000
_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The limit of checks that wait for their answer. Others are dropped, and brokers repeat them. But
brokers give a message up after 15 checks, so the limit is high."""
_CHECK_BYTES: Final = 1_024
"""The memory of a check beside its record."""


class CheckService:
    """Answers brokers' checks while it runs; use it in `with`, or start and stop it."""

    def __init__(
        self,
        settings: ConnectionSettings,
        group: str,
        topics: Iterable[str],
        on_check: OnCheck,
        *,
        thread_count: int = 1,
    ) -> None:
        """Register at the brokers of `topics`; `add_topic` adds more topics."""
        if not settings.name_servers:
            raise ValueError("transactions need name servers: endpoints ask no producers")
        self.group = group
        self._on_check = on_check
        self.client_id = client_id_of(local_address(), None, None)
        self._topics = dict.fromkeys(topics)
        self._masters: dict[str, str] = {}
        """Addresses by broker name."""
        self._heard: set[str] = set()
        self._is_known = threading.Event()
        self._wire = IoThread(
            settings,
            name=f"rocketmq-checks-{group}",
            on_notice=lambda _: None,
            responder=self._respond,
        )
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix="rocketmq-checks")
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        """Guards the count: one thread adds checks, and others answer them."""

    def __enter__(self) -> CheckService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start to send heartbeats."""
        self._wire.start()
        self._wire.post(self._beat)

    def stop(self) -> None:
        """Leave the group; brokers send unanswered checks to other members."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        leaving = UnregisterClient(self.client_id, self.group, None)
        names = tuple(self._heard)
        replies = self._wire.call_many([(name, leaving) for name in names], timeout_ms=_TIMEOUT_MS)
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, RocketMQError):
                _LOG.info("broker=%s: could not leave the producer group: %s", name, reply)
        self._wire.stop()

    def add_topic(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics[topic] = None
            self._wire.post(self._ask_routes)

    def wait_known(self, timeout_seconds: float) -> bool:
        """Wait until a broker has taken a heartbeat; False after the time-out."""
        return self._is_known.wait(timeout_seconds)

    # --- in the thread of the connections -----------------------------------------------------

    def _beat(self) -> None:
        self._ask_routes()
        period_ms = _PERIOD_MS if self._heard else PRODUCER_HEARTBEAT.first_delay_ms
        self._wire.at(now_ms() + period_ms, self._beat)

    def _ask_routes(self) -> None:
        for topic in tuple(self._topics):
            self._wire.send(
                GetRoute(topic), broker=None, timeout_ms=_TIMEOUT_MS, on_done=self._on_route
            )

    def _on_route(self, reply: Reply | RocketMQError) -> None:
        if not isinstance(reply, RouteReply):
            _LOG.info("producer group %s: no route: %s", self.group, reply)
            return
        for broker in reply.route.brokers:
            if MASTER_ID in broker.addresses:
                self._masters[broker.name] = broker.addresses[MASTER_ID]
                self._send_heartbeat(broker.name)

    def _send_heartbeat(self, broker: str) -> None:
        def done(reply: Reply | RocketMQError) -> None:
            if isinstance(reply, RocketMQError):
                _LOG.warning("broker=%s: could not send a heartbeat: %s", broker, reply)
                self._heard.discard(broker)
            else:
                self._heard.add(broker)
                self._is_known.set()

        request = Heartbeat(self.client_id, (self.group,))
        self._wire.send(request, broker=broker, timeout_ms=_TIMEOUT_MS, on_done=done)

    def _respond(self, request: Request[Reply]) -> Reply | BrokerError | Deferred | None:
        if not isinstance(request, CheckTransaction):
            return None
        size = len(request.record) + _CHECK_BYTES
        if self._count_waiting(size):
            try:
                self._pool.submit(self._answer, request)
            except RuntimeError:
                # The pool has been stopped.
                self._count_waiting(-size)
        else:
            _LOG.warning("group=%s: too many checks wait, dropping one", self.group)
        return Done()

    def _count_waiting(self, size: int) -> bool:
        """Add to the bytes of checks that wait; False if that would be too many."""
        with self._lock:
            has_room = self._waiting_bytes + size <= _WAITING_BYTES_MAX
            self._waiting_bytes += size if has_room else 0
        return has_room

    # --- in the pool --------------------------------------------------------------------------

    def _answer(self, check: CheckTransaction) -> None:
        try:
            self._decide(check)
        except Exception:  # noqa: BLE001 - a check's outermost frame: the broker repeats it
            _LOG.exception("a check of group %s could not be answered", self.group)
        finally:
            self._count_waiting(-len(check.record) - _CHECK_BYTES)

    def _decide(self, check: CheckTransaction) -> None:
        (message,) = decode_messages(check.record, broker=check.broker, topic=check.topic)
        if message.properties.get(PRODUCER_GROUP) != self.group:
            _LOG.warning("group=%s received a check of another group's %r", self.group, message)
            return
        broker = self._broker_of(check, message)
        message.broker = broker or ""
        resolution = self._on_check(message)
        _LOG.info("group=%s: answering %r with %s", self.group, message, resolution.name)
        if resolution is Resolution.UNKNOWN:
            # Java brokers only log it.
            return
        end = EndTransaction(
            self.group,
            check.half_offset,
            check.position,
            resolution,
            check.message_id,
            check.transaction_id or message.message_id,
            message.topic,
            is_from_check=True,
            broker=broker or "",
        )
        self._wire.call(end, broker=broker, timeout_ms=_TIMEOUT_MS)

    def _broker_of(self, check: CheckTransaction, message: ReceivedMessage) -> str | None:
        """Return the asking broker: 5.x names it, and the record has the address of others."""
        masters = dict(self._masters)
        if check.broker in masters:
            return check.broker
        address, port = message.store_host
        stored_at = f"{'.'.join(map(str, address))}:{port}"
        named = [name for name, at in masters.items() if at == stored_at]
        return named[0] if named else next(iter(masters), None)
