"""Background disk work: config files, checkpoints, retention, the key index, log checksums."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError, RocketMQError

_LOG = logging.getLogger(__name__)
_CLEAN_SECONDS: Final = 10.0
# Bounds the log that a start after a crash reads again.
_CHECKPOINT_SECONDS: Final = 1.0
_INDEX_PAUSE_SECONDS: Final = 0.05
_AFTER_FAILURE_SECONDS: Final = 1.0
_VERIFIED_SIZE_PER_SECOND: Final = 64 * 1024 * 1024
"""A terabyte takes four hours and a half, and leaves most of the disk's bandwidth to readers."""

INDEX_WAIT_SECONDS_MAX: Final = 1.0
INDEX_LAG_SIZE_MAX: Final = 128 * 1024 * 1024
_BUSY_SIZE_PER_SECOND: Final = 10 * 1024 * 1024
"""A log that grows faster is busy."""


async def repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do some work periodically. A failure is logged, and the work is done again."""
    pause = seconds
    while True:
        await asyncio.sleep(pause)
        pause = seconds
        try:
            await work()
        except (OSError, RocketMQError) as error:
            _LOG.error("background work failed: %s", error)
            if not isinstance(error, BrokerError):
                # A failing disk gets a pause.
                pause = max(seconds, _AFTER_FAILURE_SECONDS)
        except Exception:  # noqa: BLE001 - the outermost frame of work that must not end
            _LOG.exception("background work failed")
            pause = max(seconds, _AFTER_FAILURE_SECONDS)


class Housekeeping:
    """Runs its jobs on one thread of its own, one after the other; timers run on the loop."""

    def __init__(
        self, engine: Engine, store: Store, config: BrokerConfig, clock: BrokerClock
    ) -> None:
        self._engine = engine
        self._store = store
        self._config = config
        self._clock = clock
        self._is_disk_full = False
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rocketmq-housekeeping")
        self._tasks = [
            self._loop.create_task(work)
            for work in (
                repeat(config.progress_flush_ms / 1_000, self.flush),
                repeat(_CLEAN_SECONDS, self.clean),
                repeat(_CHECKPOINT_SECONDS, self._checkpoint),
                self._index(),
                self._verify(),
            )
        ]

    async def end(self) -> None:
        """Start no more jobs; `flush` may still be called."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        """Wait for the running job, and end the thread."""
        self._thread.shutdown()

    async def flush(self) -> None:
        """Save the config files that changed: committed offsets, delay offsets, and others."""
        for file in self._engine.config_files:
            content = file.unsaved()
            if content is not None:
                await self._loop.run_in_executor(
                    self._thread, self._store.configs.save, file.name, content
                )
                file.note_saved(content)

    async def _checkpoint(self) -> None:
        await self._loop.run_in_executor(self._thread, self._store.checkpoint)

    async def clean(self) -> None:
        """Delete log files that have expired or that the disk has no room for, and log it."""
        report = await self._loop.run_in_executor(
            self._thread, self._store.clean, self._clock.wall_ms()
        )
        if report.log_files > report.early_files:
            _LOG.info(
                "deleted %d files of the log older than retention_hours=%d: it begins at %d now",
                report.log_files - report.early_files,
                self._config.retention_hours,
                report.log_start,
            )
        used, used_max = 100 * report.disk_used_ratio, self._config.disk_use_percent_max
        if report.early_files:
            _LOG.warning(
                "the disk was fuller than disk_use_percent_max=%d: deleted %d files of the log "
                "that were NOT older than retention_hours=%d, it begins at %d now; the disk is "
                "%.1f %% full. Make room, or set a higher disk_use_percent_max",
                used_max,
                report.early_files,
                self._config.retention_hours,
                report.log_start,
                used,
            )
        elif used > used_max and not self._is_disk_full:
            _LOG.warning(
                "the disk is %.1f %% full, more than disk_use_percent_max=%d, and the log has no "
                "file left that could go",
                used,
                used_max,
            )
        self._is_disk_full = used > used_max

    async def _index(self) -> None:
        """Keep the key index close behind the log, a step at a time."""
        store, clock = self._store, self._loop.time
        pacing = IndexPacing(clock(), store.appended_end)
        while True:
            if pacing.must_wait(
                clock(),
                appended_end=store.appended_end,
                index_end=store.index_end,
                index_lag=store.index_lag,
            ):
                await asyncio.sleep(_INDEX_PAUSE_SECONDS)
                continue
            try:
                is_behind = await self._loop.run_in_executor(self._thread, store.index_step)
            except (OSError, RocketMQError) as error:
                _LOG.error("the key index is not written any more: %s", error)
                return
            pacing.worked(clock(), index_end=store.index_end)
            await asyncio.sleep(0 if is_behind else _INDEX_PAUSE_SECONDS)

    async def _verify(self) -> None:
        """Compare the log that the start did not read with its checksums, at a limited rate."""
        size = 1
        while size:
            try:
                size = await self._loop.run_in_executor(self._thread, self._store.verify_step)
            except DamagedStoreError as error:
                _LOG.error("reads of this part of the log fail until it is repaired: %s", error)
            except (OSError, StorageError) as error:
                _LOG.error("old log is not compared with its checksums any more: %s", error)
                return
            await asyncio.sleep(size / _VERIFIED_SIZE_PER_SECOND)


class IndexPacing:
    """Decides when the key index works and when it waits; times are seconds of one clock.

    The index waits during bursts, because it competes with the senders for the interpreter: 500,000
    messages are stored at full speed. After a second of waiting, or with `INDEX_LAG_SIZE_MAX` to
    read, the index catches up completely before it may wait again, which takes half a second.
    """

    def __init__(self, now: float, appended_end: int) -> None:
        self._measured_at = now
        self._appended_end = appended_end
        self._began_to_wait = now
        self._catch_up_end = 0

    def must_wait(self, now: float, *, appended_end: int, index_end: int, index_lag: int) -> bool:
        """True if the index should leave the interpreter to the senders for now."""
        grown = appended_end - self._appended_end
        is_busy = grown > _BUSY_SIZE_PER_SECOND * (now - self._measured_at)
        self._measured_at, self._appended_end = now, appended_end
        if index_end < self._catch_up_end:
            return False
        may_wait = now - self._began_to_wait < INDEX_WAIT_SECONDS_MAX
        if is_busy and may_wait and index_lag < INDEX_LAG_SIZE_MAX:
            return True
        self._catch_up_end = index_end + index_lag
        return False

    def worked(self, now: float, *, index_end: int) -> None:
        """Note that the index has done a step."""
        if index_end >= self._catch_up_end:
            self._began_to_wait = now
