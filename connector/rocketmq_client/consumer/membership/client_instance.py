"""A client instance: one id and one set of connections for the consumers that share them.

A housekeeping thread refreshes routes, sends heartbeats and has each consumer share queues anew,
store its progress and renew its locks, all on timers; a notice from a broker brings the sharing
forward. Every step waits for its answers for a bounded time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from rocketmq_client.consumer.common.io_thread import IoThread, RpcHook, now_ms
from rocketmq_client.consumer.common.settings import MessageModel
from rocketmq_client.consumer.offset_store.local_file import LocalOffsetFile
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.local_address import local_address
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError, broker_error
from rocketmq_wire.model import MASTER_ID, ConsumerInfo, QueueId, Route, Subscription
from rocketmq_wire.remoting.session import Deferred
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    ClientsReply,
    Heartbeat,
    ListGroupClients,
    NotifyMembersChanged,
    UnregisterClient,
)
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    GetClientOffsets,
    GetRunningInfo,
    ResetOffsets,
    RunningInfoReply,
)
from rocketmq_wire.requests.offsets import OffsetsReply
from rocketmq_wire.requests.topics import GetRoute, RouteReply

_LOG = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 3_000
_STOP_SECONDS_MAX: Final = 10.0
_IDLE_MS_MAX: Final = 1_000
_RESETS_MAX: Final = 1_000
_ROUTE_RETRY_MS: Final = 2_000


class Member(Protocol):
    """A consumer as its instance sees it. Called by the housekeeping thread only."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs."""
        ...

    def consumer_info(self) -> ConsumerInfo:
        """Its part of the heartbeat."""
        ...

    def rebalance(self) -> None:
        """Share the queues anew."""
        ...

    def housekeep(self, now_ms: int) -> int:
        """Do what is due; when to be called again at the latest."""
        ...

    def restart(self, offsets: Mapping[QueueId, int]) -> None:
        """Go on elsewhere in the queues that it has, for an administrator wants it."""
        ...

    def offsets(self) -> Mapping[QueueId, int]:
        """How far it is. Called by the I/O thread, as is `running_info`: neither may wait."""
        ...

    def running_info(self) -> RunningInfoReply:
        """What tools show of it."""
        ...

    def consume_directly(
        self, request: ConsumeDirectly, on_done: Callable[[Reply | BrokerError], None]
    ) -> None:
        """Have a message consumed for a tool; `on_done` may be called from any thread."""
        ...


class ClientStateError(RocketMQError):
    """A consumer was used in a way that its state does not allow."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"[ROCKETMQ_GROUP.STATE] {self.what}"


def client_id_of(address: str, instance: str | None, unit: str | None) -> str:
    """`ip@instance[@unit]`; without a name the instance is called by process and time."""
    name = instance or f"{os.getpid()}#{time.monotonic_ns()}"
    return "@".join(part for part in (address, name, unit) if part)


_shared: dict[str, ClientInstance] = {}
_shared_lock = threading.Lock()


class ClientInstance:
    """Made by `acquire`: consumers with one client id share one instance."""

    def __init__(self, settings: ConnectionSettings, client_id: str) -> None:
        if not settings.name_servers:
            raise ValueError("consumer groups need name servers: endpoints speak no groups")
        self.settings, self.client_id = settings, client_id
        self.io = IoThread(
            settings,
            name=f"rocketmq-io-{client_id}",
            on_notice=self._on_notice,
            responder=self._respond,
        )
        self._members: dict[str, Member] = {}
        self._files: dict[str, LocalOffsetFile] = {}
        """Of the groups that broadcast."""
        self._routes: dict[str, Route] = {}
        self._wanted = threading.Condition()
        self._is_rebalance_wanted = self._is_nudged = False
        self._is_stopping = False
        self._resets: deque[tuple[Member, Mapping[QueueId, int]]] = deque(maxlen=_RESETS_MAX)
        self._users = 0
        self._routes_due_ms = self._heartbeat_due_ms = self._rebalance_due_ms = 0
        self._periods_ms = {"heartbeat": 30_000, "route": 30_000, "rebalance": 20_000}
        self._thread = threading.Thread(
            target=self._run, name=f"rocketmq-housekeeping-{client_id}", daemon=True
        )

    @classmethod
    def acquire(
        cls, settings: ConnectionSettings, *, instance: str | None = None, unit: str | None = None
    ) -> ClientInstance:
        """The instance of this id, started; `release` it."""
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
        """One user less; the last one ends it."""
        with _shared_lock:
            self._users -= 1
            if self._users:
                return
            _shared.pop(self.client_id, None)
        self._is_stopping = True
        with self._wanted:
            self._wanted.notify_all()
        # What the housekeeping waits for fails with the connections, so it ends at once.
        self.io.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS_MAX)

    # --- consumers ----------------------------------------------------------------------------

    def register(
        self, member: Member, periods_ms: Mapping[str, int], hooks: Sequence[RpcHook] = ()
    ) -> None:
        """Let a consumer take part; it is in the next heartbeat, which is sent at once.

        `hooks` are called for the requests of all who share the instance.

        Raises ClientStateError when its group has a consumer here already, or one that broadcasts
        in another process under the same id.
        """
        with self._wanted:
            if member.group in self._members:
                raise ClientStateError(
                    f"the group {member.group} has a consumer in the client {self.client_id} "
                    "already: name the instance differently, or the group"
                )
            if member.consumer_info().message_model == MessageModel.BROADCASTING.value:
                self._claim_file(member.group)
            self._members[member.group] = member
            self.io.hooks += tuple(hook for hook in hooks if hook not in self.io.hooks)
            for name, period_ms in periods_ms.items():
                self._periods_ms[name] = min(self._periods_ms[name], period_ms)
        self.refresh_routes()
        self.send_heartbeats()
        # The first heartbeat of a group makes the topic of its retries.
        self.refresh_routes()
        self.want_rebalance()

    def unregister(self, member: Member) -> None:
        """The consumer leaves its group, and the brokers are told."""
        with self._wanted:
            if self._members.get(member.group) is not member:
                return
            del self._members[member.group]
            if (file := self._files.pop(member.group, None)) is not None:
                file.release()
        request = UnregisterClient(self.client_id, None, member.group)
        self._tell(self._masters(), request, "leave the group")

    def want_rebalance(self) -> None:
        """Share queues anew at once instead of at the next turn."""
        with self._wanted:
            self._is_rebalance_wanted = True
            self._wanted.notify_all()

    def nudge(self) -> None:
        """Let members do now what is due."""
        with self._wanted:
            self._is_nudged = True
            self._wanted.notify_all()

    # --- what consumers ask -------------------------------------------------------------------

    def route(self, topic: str) -> Route | None:
        """Where a topic lives, as of the last refresh; None while that is not known."""
        return self._routes.get(topic)

    def members_of(self, group: str, topic: str) -> tuple[str, ...]:
        """A group's live members, from whichever of the topic's brokers answers first.

        Raises the last broker's error when none does.
        """
        route = self._routes.get(topic)
        names = sorted({queues.broker for queues in route.queue_sets}) if route else []
        error: RocketMQError | None = None
        for name in names:
            (reply,) = self.io.call_many([(name, ListGroupClients(group))], timeout_ms=_TIMEOUT_MS)
            if isinstance(reply, ClientsReply):
                return reply.client_ids
            error = reply if isinstance(reply, RocketMQError) else error
        if error is not None:
            raise error
        return ()

    def check_subscription(self, group: str, topic: str, wanted: Subscription) -> None:
        """Ask a broker of the topic whether it takes an expression. Raises BrokerError if not."""
        route = self._routes.get(topic)
        for name in sorted({queues.broker for queues in route.queue_sets}) if route else ():
            request = CheckSubscription(self.client_id, group, topic, wanted)
            (reply,) = self.io.call_many([(name, request)], timeout_ms=_TIMEOUT_MS)
            if isinstance(reply, BrokerError):
                raise reply
            if not isinstance(reply, RocketMQError):
                return

    def refresh_routes(self) -> None:
        """Ask the name server for every topic that somebody consumes."""
        with self._wanted:
            topics = sorted({t for member in self._members.values() for t in member.topics()})
        replies = self.io.call_many(
            [(None, GetRoute(topic)) for topic in topics], timeout_ms=_TIMEOUT_MS
        )
        for topic, reply in zip(topics, replies, strict=True):
            if isinstance(reply, RouteReply):
                if self._routes.get(topic) != reply.route:
                    self._routes[topic] = reply.route
                    self._is_rebalance_wanted = True
            elif isinstance(reply, RocketMQError) and topic not in self._routes:
                # A retry topic is made by the first heartbeat; others must come to exist.
                _LOG.info("topic=%s: no route: %s", topic, reply)
        is_complete = all(topic in self._routes for topic in topics)
        period_ms = self._periods_ms["route"]
        self._routes_due_ms = now_ms() + (period_ms if is_complete else _ROUTE_RETRY_MS)

    def send_heartbeats(self) -> None:
        """Tell every master that serves our topics that we are here."""
        with self._wanted:
            infos = tuple(member.consumer_info() for member in self._members.values())
        if infos:
            self._tell(self._masters(), Heartbeat(self.client_id, (), infos), "send a heartbeat")
        self._heartbeat_due_ms = now_ms() + self._periods_ms["heartbeat"]

    # --- inside -------------------------------------------------------------------------------

    def _claim_file(self, group: str) -> None:
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

    def _masters(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                {
                    broker.name
                    for route in self._routes.values()
                    for broker in route.brokers
                    if MASTER_ID in broker.addresses
                }
            )
        )

    def _tell(self, brokers: Iterable[str], request: Request[Reply], what: str) -> None:
        names = tuple(brokers)
        replies = self.io.call_many([(name, request) for name in names], timeout_ms=_TIMEOUT_MS)
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, RocketMQError):
                _LOG.warning("broker=%s: could not %s: %s", name, what, reply)

    def _on_notice(self, notice: NotifyMembersChanged) -> None:
        if notice.group in self._members:
            self.want_rebalance()

    def _respond(self, request: Request[Reply]) -> Reply | BrokerError | Deferred | None:
        """Answer a broker, in the I/O thread."""
        if not isinstance(
            request, (ResetOffsets, GetClientOffsets, GetRunningInfo, ConsumeDirectly)
        ):
            return None
        member = self._members.get(request.group)
        if member is None:
            remark = f"the consumer group {request.group} is not in this client"
            return broker_error(ResponseCode.SYSTEM_ERROR, remark)
        try:
            if isinstance(request, GetRunningInfo):
                return member.running_info()
            if isinstance(request, GetClientOffsets):
                found = member.offsets()
                return OffsetsReply({q: at for q, at in found.items() if q.topic == request.topic})
        except Exception as error:  # noqa: BLE001 - a request's outermost frame
            _LOG.exception("%s could not be answered", type(request).__name__)
            return broker_error(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(request, ConsumeDirectly):
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
                due_ms = self._turn()
            except BaseException:  # noqa: BLE001 - owners' callbacks too: the next turn tries again
                _LOG.exception("housekeeping of %s failed", self.client_id)
                due_ms = now_ms() + _IDLE_MS_MAX
            with self._wanted:
                is_idle = not (self._is_rebalance_wanted or self._is_nudged or self._resets)
                if is_idle and not self._is_stopping:
                    wait_ms = max(1, min(due_ms - now_ms(), _IDLE_MS_MAX))
                    self._wanted.wait(wait_ms / 1_000)

    def _turn(self) -> int:
        """Do what is due; the time of what is due next."""
        time_ms = now_ms()
        with self._wanted:
            self._is_nudged = False
            members = tuple(self._members.values())
        if not members:
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
            self._rebalance_due_ms = time_ms + self._periods_ms["rebalance"]
            for member in members:
                member.rebalance()
        dues = [member.housekeep(now_ms()) for member in members]
        return min([self._routes_due_ms, self._heartbeat_due_ms, self._rebalance_due_ms, *dues])
