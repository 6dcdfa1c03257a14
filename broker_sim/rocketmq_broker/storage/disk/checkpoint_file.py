"""RocketMQ's `checkpoint` file: the store times up to which its files are on the disk."""

from __future__ import annotations

import struct
from typing import Final

from rocketmq_broker.storage.disk.files import Files, write_file

CHECKPOINT_NAME: Final = "checkpoint"
_TIMES: Final = struct.Struct(">qqq")
_FILE_SIZE: Final = 4096


def save_checkpoint(files: Files, *, log_ms: int, queues_ms: int, index_ms: int) -> None:
    """Return once the times are on the disk. We never read them: RocketMQ does."""
    data = _TIMES.pack(log_ms, queues_ms, index_ms)
    write_file(files, CHECKPOINT_NAME, data.ljust(_FILE_SIZE, b"\x00"))
