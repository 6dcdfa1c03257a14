"""Opens a store: makes a new one, or brings an old one to the state its mark vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketmq_broker_sim.storage.configs import CONFIG_DIRECTORY, Configs
from rocketmq_broker_sim.storage.durability import Durability
from rocketmq_broker_sim.storage.errors import StorageError
from rocketmq_broker_sim.storage.files import Files
from rocketmq_broker_sim.storage.log import CommitLog
from rocketmq_broker_sim.storage.mark import Mark, MarkFile
from rocketmq_broker_sim.storage.queue_index import QUEUE_DIRECTORY
from rocketmq_broker_sim.storage.queue_table import QueueTable
from rocketmq_broker_sim.storage.seals import SealFile
from rocketmq_broker_sim.storage.segment import LOG_DIRECTORY
from rocketmq_broker_sim.storage.settings import RecoveryReport, StoreConfig

LOCK_NAME: Final = "lock"
ABORT_NAME: Final = "abort"
INDEX_DIRECTORY: Final = "index"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The parts of an open store."""

    log: CommitLog
    queues: QueueTable
    durability: Durability
    configs: Configs
    report: RecoveryReport
    store_ms: int
    """The store time of the newest record."""


def recover(files: Files, config: StoreConfig) -> Recovered:
    """Open what is there, or make a new store."""
    for directory in (LOG_DIRECTORY, QUEUE_DIRECTORY, INDEX_DIRECTORY, CONFIG_DIRECTORY):
        files.make_directory(directory)
    if files.names(LOG_DIRECTORY):
        raise StorageError(LOG_DIRECTORY, 0, "opening an existing log is not built yet")
    mark_file = MarkFile(files, create=True)
    mark_file.write(
        Mark(
            end=0,
            log_start=0,
            anchor=0,
            checksum=0,
            segment_size=config.segment_size,
            queue_file_entries=config.queue_file_entries,
        )
    )
    seals = SealFile(files, log_start=0, anchor=0, create=True)
    files.open(ABORT_NAME, create=True).close()
    files.sync_directory("")
    log = CommitLog(files, config.segment_size, [], 0)
    return Recovered(
        log=log,
        queues=QueueTable(files, config.queue_file_entries),
        durability=Durability(log, mark_file, seals, config.seal_size),
        configs=Configs(files),
        report=RecoveryReport(was_clean=True, log_start=0, log_end=0),
        store_ms=0,
    )
