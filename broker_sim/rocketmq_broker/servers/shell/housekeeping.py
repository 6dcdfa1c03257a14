"""Slow disk work that nobody waits for: tables, checkpoints, retention, the key index, and the
comparison of old log with its checksums.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.servers.shell.index_turns import IndexTurns
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError, RocketMQError

_LOG = logging.getLogger(__name__)
_CLEAN_SECONDS: Final = 10.0
# How much log a start after a crash has to read again.
_CHECKPOINT_SECONDS: Final = 1.0
_INDEX_PAUSE_SECONDS: Final = 0.05
_AFTER_FAILURE_SECONDS: Final = 1.0
_VERIFIED_SIZE_PER_SECOND: Final = 64 * 1024 * 1024
"""A terabyte takes four hours and a half, and readers keep most of the disk."""


async def repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do some work again and again; what it fails by is logged."""
    pause = seconds
    while True:
        await asyncio.sleep(pause)
        pause = seconds
        try:
            await work()
        except (OSError, RocketMQError) as error:
            _LOG.error("background work failed: %s", error)
            if not isinstance(error, BrokerError):
                # A disk that refuses is not asked again at once.
                pause = max(seconds, _AFTER_FAILURE_SECONDS)


class Housekeeping:
    """Works on the running loop and on one thread of its own: its jobs must not meet each other."""

    def __init__(self, engine: Engine, store: Store, config: BrokerConfig) -> None:
        self._engine, self._store, self._config = engine, store, config
        self._is_short_of_room = False
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
        """Begin nothing any more; `flush` may still be asked for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        """Wait for what runs, and end the thread."""
        self._thread.shutdown()

    async def flush(self) -> None:
        """Save how far the groups have consumed, and what was delivered late."""
        for file in self._engine.config_files:
            content = file.take_changes()
            if content is None:
                continue
            try:
                await self._loop.run_in_executor(
                    self._thread, self._store.configs.save, file.name, content
                )
            except BaseException:
                file.put_back()
                raise

    async def _checkpoint(self) -> None:
        await self._loop.run_in_executor(self._thread, self._store.checkpoint)

    async def clean(self) -> None:
        """Delete what has expired or what the disk has no room for, and say so."""
        now_ms = time.time_ns() // 1_000_000
        report = await self._loop.run_in_executor(self._thread, self._store.clean, now_ms)
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
        elif used > used_max and not self._is_short_of_room:
            _LOG.warning(
                "the disk is %.1f %% full, more than disk_use_percent_max=%d, and the log has no "
                "file left that could go",
                used,
                used_max,
            )
        self._is_short_of_room = used > used_max

    async def _index(self) -> None:
        """Keep the key index close behind the log, a step at a time."""
        store, clock = self._store, self._loop.time
        turns = IndexTurns(clock(), store.appended_end)
        while True:
            if turns.must_wait(
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
            turns.worked(clock(), index_end=store.index_end)
            await asyncio.sleep(0 if is_behind else _INDEX_PAUSE_SECONDS)

    async def _verify(self) -> None:
        """Compare the log that the start did not read with its checksums, unhurriedly."""
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
