"""A broadcasting member's offsets in a local file, as RocketMQ's Java client writes it.

<home>/.rocketmq_offsets/<client id>/<group>/offsets.json        and offsets.json.bak

{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:42}}   keys are objects

One process at a time may use the file, by a lock on `offsets.lock` beside it: if two processes
shared the file, each would skip messages that only the other one has consumed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from rocketmq_client.errors import ProgressFileError
from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, ObjectKeyed, member_int, member_object
from rocketmq_wire.model import QueueId
from rocketmq_wire.remoting.codecs.body import queue_key, queue_of_key

if sys.platform != "win32":
    import fcntl

FILE_NAME: Final = "offsets.json"
_LOCK_NAME: Final = "offsets.lock"
_DIRECTORY: Final = ".rocketmq_offsets"


def encode_offsets(offsets: Mapping[QueueId, int]) -> bytes:
    """Encode the file's content."""
    table: dict[str, Json] = {queue_key(queue): offsets[queue] for queue in sorted(offsets)}
    return fastjson.dumps({"offsetTable": ObjectKeyed(table)}).encode()


def decode_offsets(content: bytes) -> dict[QueueId, int]:
    """Decode a file's content, Java's too. Raises RemoteProtocolError if it is damaged."""
    value = fastjson.loads(content)
    if not isinstance(value, dict):
        raise RemoteProtocolError("a JSON object was expected")
    table = member_object(value, "offsetTable")
    return {queue_of_key(key): member_int(table, key) for key in table}


class LocalOffsetFile:
    """The file of one member of one group."""

    def __init__(self, client_id: str, group: str, home: Path | None = None) -> None:
        base = home or Path.home() / _DIRECTORY
        self.path = base / client_id / group / FILE_NAME
        self._backup = self.path.with_name(f"{FILE_NAME}.bak")
        self._lock: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Lock the file until `release` or the process ends; False if another process has it.

        Raises OSError if the directory does not allow new files or locks.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(_LOCK_NAME).open("ab")
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            except OSError:
                lock.close()
                raise
        self._lock = lock
        return True

    def release(self) -> None:
        """Unlock the file; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if sys.platform != "win32":
            # Closing alone would leave the lock with children forked meanwhile.
            fcntl.flock(lock, fcntl.LOCK_UN)
        lock.close()

    def load(self) -> dict[QueueId, int]:
        """Read the stored offsets; the backup replaces a damaged or half-written file.

        Raises ProgressFileError if files exist and none can be read.
        """
        reasons = []
        for path in (self.path, self._backup):
            found, reason = _read(path)
            if found is not None:
                return found
            reasons += [reason] if reason else []
        if reasons:
            raise ProgressFileError(str(self.path), reasons[0])
        return {}

    def save(self, offsets: Mapping[QueueId, int]) -> None:
        """Write the offsets durably; the previous file becomes the backup."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{FILE_NAME}.tmp")
        with fresh.open("wb") as file:
            file.write(encode_offsets(offsets))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, self._backup)
        os.replace(fresh, self.path)


def _read(path: Path) -> tuple[dict[QueueId, int] | None, str]:
    """A file's offsets, or the reason why it cannot be read; neither if it does not exist."""
    try:
        content = path.read_bytes()
        return (decode_offsets(content), "") if content.strip() else (None, "it is empty")
    except FileNotFoundError:
        return None, ""
    except (OSError, RemoteProtocolError) as error:
        return None, str(error)
