"""A client instance: one client id and one set of connections for the consumers that share it.

The housekeeping thread works on timers: it refreshes routes, sends heartbeats, and lets each
consumer rebalance, commit its offsets and renew its locks. A broker's notice starts a rebalance at
once. Every step waits for replies for a bounded time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from rocketmq_client.consumer.common.io_thread import IoThread, RpcHook, now_ms
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.offset_store import LocalOffsetFile
from rocketmq_client.errors import ClientStateError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.addresses import local_address
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError, broker_error
from rocketmq_wire.model import (
    MASTER_ID,
    RETRY_PREFIX,
    ConsumerInfo,
    QueueId,
    Route,
    Subscription,
)
from rocketmq_wire.remoting.session import Deferred
from rocketmq_wire.requests import groups, members
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.offsets import OffsetsReply
from rocketmq_wire.requests.topics import GetRoute, RouteReply

_LOG = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 3_000
_STOP_SECONDS_MAX: Final = 10.0
_IDLE_MS_MAX: Final = 1_000
_RESETS_MAX: Final = 1_000
_NO_ROUTE_DELAY_MS: Final = 2_000
_WARNING_MS: Final = 60_000
_HEARTBEAT_MS_MIN: Final = 1_000
"""The least time between heartbeats that brokers without the members' subscriptions cause."""


class Member(Protocol):
    """A consumer as its client instance sees it, called by the housekeeping thread."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes the consumer needs."""

    def consumer_info(self) -> ConsumerInfo:
        """The consumer's part of the heartbeat."""

    def rebalance(self) -> None:
        """Gain and lose queues by the group's current members."""

    def housekeep(self, now_ms: int) -> int:
        """Do the work that is due; returns when to call again at the latest."""

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        """Continue the owned ones of these queues at an administrator's offsets."""

    def offsets(self) -> Mapping[QueueId, int]:
        """The consumed offsets. The I/O thread calls this and `running_info`: neither may wait."""

    def running_info(self) -> members.RunningInfoReply:
        """The state that tools show."""

    def consume_directly(
        self, request: members.ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """Consume a message that a tool sends; any thread may call `on_done`."""


def client_id_of(address: str, instance: str | None, unit: str | None) -> str:
    """`ip@instance[@unit]`; process and time name an instance without a name."""
    name = instance or f"{os.getpid()}#{time.monotonic_ns()}"
    return "@".join(part for part in (address, name, unit) if part)


_shared: dict[str, ClientInstance] = {}
_shared_lock = threading.Lock()


class ClientInstance:
    """Consumers with one client id share one instance, which `acquire` creates."""

    def __init__(self, settings: ConnectionSettings, client_id: str) -> None:
        self.settings = settings
        self.client_id = client_id
        self.io = IoThread(
            settings,
            name=f"rocketmq-io-{client_id}",
            on_notice=self._on_notice,
            responder=self._respond,
        )
        self._members: dict[str, Member] = {}
        self._files: dict[str, LocalOffsetFile] = {}
        """The offset files of broadcasting groups."""
        self._routes: dict[str, Route] = {}
        self._route_warning_due_ms: dict[str, int] = {}
        self._wanted = threading.Condition()
        self._is_rebalance_wanted = False
        self._is_nudged = False
        self._is_stopping = False
        self._resets: deque[tuple[Member, Mapping[QueueId, int]]] = deque(maxlen=_RESETS_MAX)
        self._users = 0
        self._heartbeat_ms = 30_000
        self._heartbeat_due_ms = 0
        self._heartbeat_sent_ms = 0
        self._route_ms = 30_000
        self._routes_due_ms = 0
        self._rebalance_ms = 20_000
        self._rebalance_due_ms = 0
        self._thread = threading.Thread(
            target=self._run, name=f"rocketmq-housekeeping-{client_id}", daemon=True
        )

    @classmethod
    def acquire(
        cls, settings: ConnectionSettings, *, instance: str | None = None, unit: str | None = None
    ) -> ClientInstance:
        """The started instance of this id; the caller has to `release` it."""
        client_id = client_id_of(local_address(), instance, unit)
        with _shared_lock:
            known = _shared.get(client_id)
            if known is not None and known.settings != settings:
                raise ClientStateError(
                    f"the client id {client_id} is in use for other name servers or settings: "
                    "name the instance differently"
                )
            if known is None:
                known = _shared[client_id] = cls(settings, client_id)
                known.io.start()
                known._thread.start()
            known._users += 1
            return known

    def release(self) -> None:
        """End the instance if this was its last user."""
        with _shared_lock:
            self._users -= 1
            if self._users:
                return
            _shared.pop(self.client_id, None)
        self._is_stopping = True
        with self._wanted:
            self._wanted.notify_all()
        # Closing the connections fails the request that housekeeping waits for, so it ends at once.
        self.io.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS_MAX)

    # --- consumers ----------------------------------------------------------------------------

    def register(
        self, member: Member, settings: ConsumerSettings, hooks: Sequence[RpcHook] = ()
    ) -> None:
        """Add a consumer and send a heartbeat for it at once.

        `hooks` are called for the requests of every consumer that shares the instance.

        Raises ClientStateError if the group has a consumer here already, or a broadcasting one in
        another process with the same client id.
        """
        with self._wanted:
            if member.group in self._members:
                raise ClientStateError(
                    f"the group {member.group} has a consumer in the client {self.client_id} "
                    "already: name the instance differently, or the group"
                )
            if settings.is_broadcasting:
                self._lock_file(member.group)
            self._members[member.group] = member
            self.io.hooks += tuple(hook for hook in hooks if hook not in self.io.hooks)
            self._heartbeat_ms = min(self._heartbeat_ms, settings.heartbeat_ms)
            self._route_ms = min(self._route_ms, settings.route_ms)
            self._rebalance_ms = min(self._rebalance_ms, settings.rebalance_ms)
        self.refresh_routes()
        self.send_heartbeats()
        # The first heartbeat of a group creates its retry topic.
        self.refresh_routes()
        self.want_rebalance()

    def unregister(self, member: Member) -> None:
        """Remove a consumer, and send its leave to the brokers."""
        with self._wanted:
            if self._members.get(member.group) is not member:
                return
            del self._members[member.group]
            if (file := self._files.pop(member.group, None)) is not None:
                file.release()
        request = groups.UnregisterClient(self.client_id, None, member.group)
        self._send_to_brokers(request, "leave the group")

    def want_rebalance(self) -> None:
        """Rebalance at once instead of at the next period."""
        with self._wanted:
            self._is_rebalance_wanted = True
            self._wanted.notify_all()

    def want_heartbeat(self) -> None:
        """Send a heartbeat soon: a broker does not know a member's newest subscription.

        Brokers forget members with their connection, and learn of a new subscription later.
        """
        with self._wanted:
            soon_ms = self._heartbeat_sent_ms + _HEARTBEAT_MS_MIN
            self._heartbeat_due_ms = min(self._heartbeat_due_ms, soon_ms)
        self.nudge()

    def nudge(self) -> None:
        """Let members do due work now."""
        with self._wanted:
            self._is_nudged = True
            self._wanted.notify_all()

    # --- what consumers ask -------------------------------------------------------------------

    def route(self, topic: str) -> Route | None:
        """A topic's route as of the last refresh; None while it is unknown."""
        return self._routes.get(topic)

    def members_of(self, group: str, topic: str) -> tuple[str, ...]:
        """A group's live members, from the first of the topic's brokers that answers.

        Raises the last broker's error if none answers.
        """
        error: RocketMQError | None = None
        for reply in self._replies(topic, groups.ListGroupClients(group)):
            if isinstance(reply, groups.ClientsReply):
                return reply.client_ids
            error = reply if isinstance(reply, RocketMQError) else error
        if error is not None:
            raise error
        return ()

    def check_subscription(self, group: str, topic: str, wanted: Subscription) -> None:
        """Let a broker of the topic check an expression. Raises BrokerError if it is refused."""
        request = groups.CheckSubscription(self.client_id, group, topic, wanted)
        for reply in self._replies(topic, request):
            if isinstance(reply, BrokerError):
                raise reply
            if not isinstance(reply, RocketMQError):
                return

    def refresh_routes(self) -> None:
        """Ask the name server for the routes of all consumed topics."""
        with self._wanted:
            topics = sorted({t for member in self._members.values() for t in member.topics()})
        before = self._brokers()
        replies = self.io.call_many(
            [(None, GetRoute(topic)) for topic in topics], timeout_ms=_TIMEOUT_MS
        )
        for topic, reply in zip(topics, replies, strict=True):
            if isinstance(reply, RouteReply):
                if self._routes.get(topic) != reply.route:
                    self._routes[topic] = reply.route
                    self._is_rebalance_wanted = True
            elif isinstance(reply, RocketMQError) and topic not in self._routes:
                self._note_missing_route(topic, reply)
        if not self._brokers() <= before:
            # A new broker answers pulls once it knows the subscriptions.
            self._heartbeat_due_ms = 0
        is_complete = all(topic in self._routes for topic in topics)
        self._routes_due_ms = now_ms() + (self._route_ms if is_complete else _NO_ROUTE_DELAY_MS)

    def _note_missing_route(self, topic: str, error: RocketMQError) -> None:
        """Warn once a minute: the topic may be created later, and its name may be misspelt."""
        if topic.startswith(RETRY_PREFIX):
            return  # The first heartbeat creates it.
        if now_ms() >= self._route_warning_due_ms.get(topic, 0):
            self._route_warning_due_ms[topic] = now_ms() + _WARNING_MS
            _LOG.warning("topic=%s: nothing is consumed until it has a route: %s", topic, error)

    def send_heartbeats(self) -> None:
        """Send a heartbeat to every broker that serves the consumers' topics, slaves too."""
        with self._wanted:
            infos = tuple(member.consumer_info() for member in self._members.values())
        if infos:
            self._send_to_brokers(groups.Heartbeat(self.client_id, (), infos), "send a heartbeat")
        self._heartbeat_sent_ms = now_ms()
        self._heartbeat_due_ms = self._heartbeat_sent_ms + self._heartbeat_ms

    def _lock_file(self, group: str) -> None:
        file = LocalOffsetFile(self.client_id, group)
        try:
            is_ours = file.acquire()
        except OSError as error:
            raise ClientStateError(
                f"offsets of the group {group} cannot be stored in {file.path}: {error}. Let HOME "
                "be a directory that may be written to, on a file system that knows locks"
            ) from error
        if not is_ours:
            raise ClientStateError(
                f"another process broadcasts to the group {group} as the client {self.client_id}, "
                f"and stores its offsets in {file.path}: name the instance differently"
            )
        self._files[group] = file

    def _replies(self, topic: str, request: Request[Reply]) -> Iterator[Reply | RocketMQError]:
        """Ask the topic's brokers one after the other, until the caller has its reply."""
        route = self._routes.get(topic)
        for name in sorted({queues.broker for queues in route.queue_sets}) if route else ():
            yield from self.io.call_many([(name, request)], timeout_ms=_TIMEOUT_MS)

    def _brokers(self) -> set[tuple[str, int]]:
        """The names and ids of the brokers in the routes."""
        return {
            (broker.name, broker_id)
            for route in self._routes.values()
            for broker in route.brokers
            for broker_id in broker.addresses
        }

    def _send_to_brokers(self, request: Request[Reply], what: str) -> None:
        """Send to all brokers, and wait for the masters."""
        brokers = sorted(self._brokers())
        for name, broker_id in brokers:
            if broker_id != MASTER_ID:
                self.io.tell_slave(request, broker=name, broker_id=broker_id)
        names = [name for name, broker_id in brokers if broker_id == MASTER_ID]
        replies = self.io.call_many([(name, request) for name in names], timeout_ms=_TIMEOUT_MS)
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, RocketMQError):
                _LOG.warning("broker=%s: could not %s: %s", name, what, reply)

    def _on_notice(self, notice: groups.NotifyMembersChanged) -> None:
        if notice.group in self._members:
            self.want_rebalance()

    def _respond(self, request: Request[Reply]) -> Reply | BrokerError | Deferred | None:
        """Answer a broker's request, in the I/O thread."""
        if not isinstance(
            request,
            (
                members.ResetOffsets,
                members.GetClientOffsets,
                members.GetRunningInfo,
                members.ConsumeDirectly,
            ),
        ):
            return None
        member = self._members.get(request.group)
        if member is None:
            remark = f"the consumer group {request.group} is not in this client"
            return broker_error(ResponseCode.SYSTEM_ERROR, remark)
        try:
            if isinstance(request, members.GetRunningInfo):
                return member.running_info()
            if isinstance(request, members.GetClientOffsets):
                found = member.offsets()
                return OffsetsReply({q: at for q, at in found.items() if q.topic == request.topic})
        except Exception as error:  # noqa: BLE001 - a request's outermost frame
            _LOG.exception("%s could not be answered", type(request).__name__)
            return broker_error(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(request, members.ConsumeDirectly):
            deferred = Deferred()
            member.consume_directly(
                request, lambda reply: self.io.post(lambda: deferred.deliver(reply))
            )
            return deferred
        with self._wanted:
            self._resets.append((member, request.offsets))
            self._wanted.notify_all()
        return Done()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                due_ms = self._run_once()
            except BaseException:  # noqa: BLE001 - application callbacks raise anything
                _LOG.exception("housekeeping of %s failed", self.client_id)
                due_ms = now_ms() + _IDLE_MS_MAX
            with self._wanted:
                is_idle = not (self._is_rebalance_wanted or self._is_nudged or self._resets)
                if is_idle and not self._is_stopping:
                    wait_ms = max(1, min(due_ms - now_ms(), _IDLE_MS_MAX))
                    self._wanted.wait(wait_ms / 1_000)

    def _run_once(self) -> int:
        """Do the due work; returns when the next work is due."""
        time_ms = now_ms()
        with self._wanted:
            self._is_nudged = False
            consumers = tuple(self._members.values())
        if not consumers:
            return time_ms + _IDLE_MS_MAX
        while self._resets:
            member, offsets = self._resets.popleft()
            member.restart(offsets)
        if time_ms >= self._routes_due_ms:
            self.refresh_routes()
        if time_ms >= self._heartbeat_due_ms:
            self.send_heartbeats()
        if self._is_rebalance_wanted or time_ms >= self._rebalance_due_ms:
            self._is_rebalance_wanted = False
            self._rebalance_due_ms = time_ms + self._rebalance_ms
            for member in consumers:
                member.rebalance()
        dues = [member.housekeep(now_ms()) for member in consumers]
        return min([self._routes_due_ms, self._heartbeat_due_ms, self._rebalance_due_ms, *dues])
