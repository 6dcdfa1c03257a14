"""Checks that a directory may hold a broker's data: writable, and empty or a broker's."""

from __future__ import annotations

from typing import Final

from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import names_in_directory
from rocketmq_broker.storage.errors import DataDirectoryError
from rocketmq_broker.storage.keys.key_index import INDEX_DIRECTORY
from rocketmq_broker.storage.log.durable_mark import MARK_NAME
from rocketmq_broker.storage.log.log_checksums import LOG_CHECKSUMS_NAME
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import CHECKPOINT_NAME, DERIVED_NAME
from rocketmq_broker.storage.recovery.recover import ABORT_NAME, LOCK_NAME

# Only a broker's directory has one of these.
_BROKER_NAMES: Final = frozenset({LOG_DIRECTORY, QUEUE_DIRECTORY, MARK_NAME, LOG_CHECKSUMS_NAME})
# A broker that ended during its first start may have left only these.
_EARLY_NAMES: Final = frozenset(
    {ABORT_NAME, CHECKPOINT_NAME, CONFIG_DIRECTORY, DERIVED_NAME, INDEX_DIRECTORY, LOCK_NAME}
)
# File systems and desktops create these in any directory.
_SYSTEM_NAMES: Final = frozenset({"lost+found", ".DS_Store", ".directory"})
_SHOWN_MAX: Final = 3


def check_data_directory(name: str) -> None:
    """Raise DataDirectoryError if a directory is not writable, or holds other files.

    A directory that does not exist yet is accepted if it can be created.
    """
    names = set(names_in_directory(name)) - _SYSTEM_NAMES
    known = _BROKER_NAMES | _EARLY_NAMES
    brokers = {entry for entry in names if entry.removesuffix(".tmp") in known}
    if names & _BROKER_NAMES or names == brokers:
        return
    others = sorted(names - brokers)
    shown = ", ".join(others[:_SHOWN_MAX]) + (", ..." if len(others) > _SHOWN_MAX else "")
    raise DataDirectoryError(name, f"it holds other files ({shown}) and no broker's data")
