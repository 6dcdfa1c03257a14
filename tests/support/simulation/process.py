"""One process of a broker in the simulation: store, engine, shell and protocol, without threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from unittest import mock

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.servers.remoting.server import RemotingServer
from rocketmq_broker.servers.shell import shell as shell_module
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.group_commit import GroupCommit
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.servers.sockets.descriptors import Room
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from support.engines import BROKER, STORE_HOST
from support.simulation.disk import SimulatedDisk
from support.simulation.loop import VirtualLoop

_CONNECTIONS_MAX = 1_000


class SimulatedWall:
    """The wall clock, which may step, beside the loop's time, which does not."""

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._start_ms = start_ms
        self.stepped_ms = 0

    def now_ns(self) -> int:
        return (self._start_ms + self.stepped_ms) * 1_000_000 + self.monotonic_ns()

    def now_ms(self) -> int:
        return self.now_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return round(self._loop.seconds * 1e9)


class _Commit(GroupCommit):
    """Syncs on the loop."""

    def __init__(
        self, sync_seconds: Callable[[], tuple[float, float]], *args: object, **named: object
    ) -> None:
        """`sync_seconds` returns how long a sync takes before and after the disk has the log."""
        self._sync_seconds = sync_seconds
        super().__init__(*args, **named)  # type: ignore[arg-type]

    def _run(self) -> None:
        """No thread is needed."""

    def _begin(self) -> None:
        self._idle.clear()
        before, after = self._sync_seconds()
        self._loop.call_later(before, self._sync_for, after)

    def _sync_for(self, seconds: float) -> None:
        try:
            durable_end = self._sync()
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame
            self._loop.call_later(seconds, self._failed, error)
        else:
            self._loop.call_later(seconds, self._synced, durable_end)


class Process:
    """A running broker. It ends by `stop`, or by `end` if it is killed."""

    def __init__(
        self,
        loop: VirtualLoop,
        wall: SimulatedWall,
        disk: SimulatedDisk,
        config: BrokerConfig,
        store_config: StoreConfig,
        sync_seconds: Callable[[], tuple[float, float]],
    ) -> None:
        """Recovers the store. Raises StorageError, PowerCutError."""
        self._loop = loop
        self.disk = disk
        self._sync_seconds = sync_seconds
        store = Store.open(disk, store_config, wall.now_ms())
        self.clock = BrokerClock(
            store.newest_ms, wall_ns=wall.now_ns, monotonic_ns=wall.monotonic_ns
        )
        identity = Identity(BROKER, "DefaultCluster", "127.0.0.1", 10911, STORE_HOST)
        self.engine = Engine(config, store, identity, self.clock.ahead_ms)
        self.store = store
        self._shell = EngineShell(self.engine, store, config, self.clock)
        self.server = RemotingServer(self._shell, config, room=Room(_CONNECTIONS_MAX))
        self._run(self._start())

    async def _start(self) -> None:
        with mock.patch.object(shell_module, "GroupCommit", partial(_Commit, self._sync_seconds)):
            await self._shell.start()

    @property
    def takes_no_writes(self) -> bool:
        """True if only a restart helps, as after a failed sync."""
        return self._shell._ended is not None

    def stop(self) -> None:
        """Stop in order."""
        self._run(self._stop())

    async def _stop(self) -> None:
        await self._shell.stop_serving()
        await self.server.close()
        await self._shell.close()

    def end(self) -> None:
        """Forget what the process still had to do."""
        self._loop.cancel_tasks()
        for connection in self.server.connections:
            self._shell.forget_peer(connection.peer)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        self._loop.run_until_complete(work)
