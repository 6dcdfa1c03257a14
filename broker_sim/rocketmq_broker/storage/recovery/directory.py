"""Whether a directory may hold a broker's data: writable, and empty or a broker's already."""

from __future__ import annotations

from typing import Final

from rocketmq_broker.storage.disk.checkpoint_file import CHECKPOINT_NAME
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import names_in_directory
from rocketmq_broker.storage.errors import DataDirectoryError
from rocketmq_broker.storage.keys.key_index import INDEX_DIRECTORY
from rocketmq_broker.storage.log.durable_mark import MARK_NAME
from rocketmq_broker.storage.log.log_checksums import LOG_CHECKSUMS_NAME
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import DERIVED_NAME
from rocketmq_broker.storage.recovery.recover import ABORT_NAME, LOCK_NAME

# One of these is enough: nobody else has them.
_SIGNS: Final = frozenset({LOG_DIRECTORY, QUEUE_DIRECTORY, MARK_NAME, LOG_CHECKSUMS_NAME})
# A broker that ended while it began may have left only these.
_OTHERS: Final = frozenset(
    {ABORT_NAME, CHECKPOINT_NAME, CONFIG_DIRECTORY, DERIVED_NAME, INDEX_DIRECTORY, LOCK_NAME}
)
# What file systems and desktops put into any directory.
_NOBODYS: Final = frozenset({"lost+found", ".DS_Store", ".directory"})
_SHOWN_MAX: Final = 3


def check_data_directory(name: str) -> None:
    """Refuse a directory that cannot be written to, or that belongs to something else.

    Raises DataDirectoryError. One that does not exist yet is fine if it can be made.
    """
    names = set(names_in_directory(name)) - _NOBODYS
    temporary = {entry for entry in names if entry.removesuffix(".tmp") in _SIGNS | _OTHERS}
    if names & _SIGNS or names == temporary:
        return
    foreign = sorted(names - temporary)
    shown = ", ".join(foreign[:_SHOWN_MAX]) + (", ..." if len(foreign) > _SHOWN_MAX else "")
    raise DataDirectoryError(name, f"it holds other files ({shown}) and no broker's data")
