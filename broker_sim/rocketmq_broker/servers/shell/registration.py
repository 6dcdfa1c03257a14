"""Keeps the broker registered with its name servers: at its start, with each change, every 30 s.

Each name server has a task and a connection of its own. One that is unavailable is logged once and
asked again; the broker serves meanwhile. A name server forgets a broker whose connection ends, so
the broker connects again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Final, TypeVar, cast

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.broker_table import NO_ROUTE
from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.held_requests import Done, GiveUp
from rocketmq_broker.servers.shell.housekeeping import repeat
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, TopicConfig
from rocketmq_wire.remoting.session import ClientSession
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import QueryAssignment
from rocketmq_wire.requests.registration import (
    BrokerNode,
    DataVersion,
    RegisterBroker,
    UnregisterBroker,
)
from rocketmq_wire.requests.topics import CreateTopic, GetRoute
from rocketmq_wire.signing import Credentials

_LOG = logging.getLogger(__name__)
# As in RocketMQ; name servers forget a broker after 120 s.
_PERIOD_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0
_CALL_SECONDS: Final = 3.0
_CHANGES_SECONDS: Final = 0.05
_READ_SIZE: Final = 64 * 1024
_PART_TOPICS: Final = 1_000
"""Topics of one request, so that it keeps a bundled name server busy for a moment only."""

R = TypeVar("R", bound=Reply)


class _Unavailable(Exception):
    """A name server does not answer."""


class NameServerLink:
    """One connection to a name server, opened when it is needed."""

    def __init__(self, address: str, credentials: Credentials | None) -> None:
        self.address = address
        self._credentials = credentials
        self._session = ClientSession()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._opening = asyncio.Lock()
        self.local_host = ""
        """The broker's own address on the last connection."""
        self.wake = asyncio.Event()
        """Set if the topics must be registered again: they changed, or the connection ended."""

    async def open(self) -> None:
        """Connect, if there is no connection. Raises _Unavailable."""
        async with self._opening:
            if self._writer is not None:
                return
            host, _, port = self.address.rpartition(":")
            try:
                opening = asyncio.open_connection(host.strip("[]"), int(port))
                reader, writer = await asyncio.wait_for(opening, _CALL_SECONDS)
            except (OSError, asyncio.TimeoutError) as error:
                raise _Unavailable(str(error) or "no connection in time") from error
            self._session = ClientSession(credentials=self._credentials)
            self._writer = writer
            self.local_host = str(writer.get_extra_info("sockname")[0])
            self._reading = asyncio.create_task(self._read(reader, writer, self._session))

    async def call(self, request: Request[R]) -> R:
        """The reply to a request. Raises _Unavailable and what the name server refuses."""
        await self.open()
        assert self._writer is not None
        opaque, parts = self._session.start(request, now_ms=0, timeout_ms=0)
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = waiting
        self._writer.writelines([bytes(part) for part in parts])
        try:
            return cast("R", await asyncio.wait_for(waiting, _CALL_SECONDS))
        except asyncio.TimeoutError:
            self.close()
            raise _Unavailable("no answer in time") from None
        finally:
            self._waiting.pop(opaque, None)

    def close(self) -> None:
        self.wake.set()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(_Unavailable("the connection ended"))

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: ClientSession
    ) -> None:
        with contextlib.suppress(OSError, RocketMQError):
            while data := await reader.read(_READ_SIZE):
                self._received(session, data)
                # A name server may ask, too; it gets the answer that its request is not supported.
                writer.writelines(session.take_answers())
        if self._writer is writer:
            self.close()

    def _received(self, session: ClientSession, data: bytes) -> None:
        view = memoryview(data)
        while view:
            buffer = session.next_buffer()
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            session.received(size)
            view = view[size:]
            while (completed := session.next_completed()) is not None:
                waiting = self._waiting.get(completed.opaque)
                if waiting is None or waiting.done():
                    continue
                if isinstance(completed.result, RocketMQError):
                    waiting.set_exception(completed.result)
                else:
                    waiting.set_result(completed.result)


class Registration:
    """The broker as its name servers know it."""

    def __init__(self, tables: Tables, config: BrokerConfig, *, now_ms: int) -> None:
        """`now_ms` tells this start's versions of the topics from those of earlier starts."""
        self._tables = tables
        credentials = None
        if config.name_server_access_key:
            credentials = Credentials(config.name_server_access_key, config.name_server_secret_key)
        self._links = [NameServerLink(each, credentials) for each in config.name_servers]
        self._started_ms = now_ms
        self._seen_version = tables.topics.version
        self._registered: dict[NameServerLink, int] = {}
        """The version of the topics that each available name server knows."""
        self._failed: dict[NameServerLink, type[Exception]] = {}
        """The kind of failure that is logged of each name server."""
        self._changed = asyncio.Condition()
        """Notified when a name server got the topics, or did not answer."""
        self._tasks: list[asyncio.Task[None]] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._is_ending = False
        """Beside cancelling: `asyncio.wait_for` of Python 3.11 may lose a cancellation."""

    async def begin(self) -> None:
        """Register with every name server; returns once each has answered or failed once."""
        loop = asyncio.get_running_loop()
        tried = [asyncio.Event() for _ in self._links]
        self._tasks = [
            loop.create_task(self._keep(link, event))
            for link, event in zip(self._links, tried, strict=True)
        ]
        self._tasks.append(loop.create_task(repeat(_CHANGES_SECONDS, self._notice_changes)))
        await asyncio.gather(*(event.wait() for event in tried))

    async def end(self) -> None:
        """Unregister, so that clients choose other brokers before this one stops."""
        self._is_ending = True
        for task in (*self._tasks, *self._answering):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._answering, return_exceptions=True)
        reached = [link for link in self._links if link in self._registered]
        await asyncio.gather(*map(self._unregister, reached))
        for link in self._links:
            link.close()

    # --- registering --------------------------------------------------------------------------

    async def _keep(self, link: NameServerLink, tried: asyncio.Event) -> None:
        while not self._is_ending:
            link.wake.clear()
            pause = _PERIOD_SECONDS
            try:
                await self._register(link)
            except (_Unavailable, RocketMQError) as error:
                self._registered.pop(link, None)
                pause = _RETRY_SECONDS
                if self._failed.get(link) is not type(error):
                    self._failed[link] = type(error)
                    _LOG.warning(
                        "nameServer=%s: the broker is not registered there, tried again each "
                        "second: %s",
                        link.address,
                        error,
                    )
            except Exception:  # noqa: BLE001 - the outermost frame of work that must not end
                _LOG.exception("nameServer=%s: the broker is not registered there", link.address)
                pause = _RETRY_SECONDS
            async with self._changed:
                self._changed.notify_all()
            tried.set()
            if pause == _RETRY_SECONDS:
                await asyncio.sleep(pause)
                continue
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(link.wake.wait(), pause)

    async def _register(self, link: NameServerLink) -> None:
        topics = self._tables.topics
        version = topics.version
        await link.open()
        node = self._node(link)
        for number, part in enumerate(_parts(topics.with_built_in())):
            # A name server takes changed topics only with another version than the last one.
            known = DataVersion(version, self._started_ms + number)
            await link.call(RegisterBroker(node, known, part))
        self._registered[link] = version
        if self._failed.pop(link, None) is not None:
            _LOG.warning("nameServer=%s: the broker is registered again", link.address)

    async def _unregister(self, link: NameServerLink) -> None:
        try:
            await link.call(UnregisterBroker(self._node(link)))
        except (_Unavailable, RocketMQError) as error:
            _LOG.warning("nameServer=%s: the broker is not unregistered: %s", link.address, error)

    def _node(self, link: NameServerLink) -> BrokerNode:
        identity = self._tables.identity
        # Without a host of its own, the broker is reached where it reaches the name server from.
        address = identity.address(Peer(0, "", 0, link.local_host))
        return BrokerNode(identity.cluster_name, identity.broker_name, MASTER_ID, address)

    async def _notice_changes(self) -> None:
        if self._seen_version != self._tables.topics.version:
            self._wake()

    def _wake(self) -> None:
        self._seen_version = self._tables.topics.version
        for link in self._links:
            link.wake.set()

    # --- requests that need the name servers --------------------------------------------------

    def after_registration(self, then: Callable[[], object]) -> None:
        """Call `then` once the name servers know the topics, or do not answer."""
        self._start(self._await_registration(then))

    def learn_route(self, topic: str, then: Callable[[], object]) -> None:
        """Ask for the route of a topic, and call `then`: the broker assigns its queues."""
        self._start(self._learn_route(topic, then))

    async def _await_registration(self, then: Callable[[], object]) -> None:
        version = self._tables.topics.version
        self._wake()

        def is_registered() -> bool:
            return all(known >= version for known in self._registered.values())

        with contextlib.suppress(asyncio.TimeoutError):
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(is_registered), _CALL_SECONDS)
        then()

    async def _learn_route(self, topic: str, then: Callable[[], object]) -> None:
        route = NO_ROUTE
        for link in list(self._registered):
            with contextlib.suppress(_Unavailable, RocketMQError):
                route = (await link.call(GetRoute(topic))).route
                break
        self._tables.brokers.learn(topic, route)
        then()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


class RegisteredShell(EngineShell):
    """The shell of a broker with name servers elsewhere; some answers wait for them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        config: BrokerConfig,
        clock: BrokerClock,
        registration: Registration,
    ) -> None:
        super().__init__(engine, store, config, clock)
        self._registration = registration

    def _do(self, request: Request[Reply], peer: Peer, done: Done) -> GiveUp | None:
        do = super()._do
        if isinstance(request, QueryAssignment):
            self._registration.learn_route(request.topic, lambda: do(request, peer, done))
            return None
        if isinstance(request, CreateTopic):
            # As in RocketMQ: the topic has its route when the request is answered.
            return do(request, peer, lambda result: self._created(result, done))
        return do(request, peer, done)

    def _created(self, result: Reply | RocketMQError, done: Done) -> None:
        if isinstance(result, RocketMQError):
            done(result)
        else:
            self._registration.after_registration(lambda: done(result))


def _parts(configs: Sequence[TopicConfig]) -> Iterator[tuple[TopicConfig, ...]]:
    for start in range(0, len(configs), _PART_TOPICS):
        yield tuple(configs[start : start + _PART_TOPICS])
