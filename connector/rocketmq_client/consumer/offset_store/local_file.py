"""A broadcasting member's progress in a file of its own, as RocketMQ's Java client writes it.

<home>/.rocketmq_offsets/<client id>/<group>/offsets.json        and offsets.json.bak

{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:42}}   keys are objects

One process at a time may have it, which `offsets.lock` beside it says: the progress of two in one
file would let each skip what only the other one has consumed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError, RocketMQError
from rocketmq_wire.fastjson import Json, ObjectKeyed, member_int, member_object
from rocketmq_wire.model import QueueId
from rocketmq_wire.remoting.codecs.json_bodies import queue_key, queue_of_key

if sys.platform != "win32":
    import fcntl

FILE_NAME: Final = "offsets.json"
_LOCK_NAME: Final = "offsets.lock"
_DIRECTORY: Final = ".rocketmq_offsets"


def encode_progress(offsets: Mapping[QueueId, int]) -> bytes:
    """The file's content."""
    table: dict[str, Json] = {queue_key(queue): offsets[queue] for queue in sorted(offsets)}
    return fastjson.dumps({"offsetTable": ObjectKeyed(table)}).encode()


def decode_progress(content: bytes) -> dict[QueueId, int]:
    """What a file says, Java's too. Raises RemoteProtocolError when it is damaged."""
    value = fastjson.loads(content)
    if not isinstance(value, dict):
        raise RemoteProtocolError("a JSON object was expected")
    table = member_object(value, "offsetTable")
    return {queue_of_key(key): member_int(table, key) for key in table}


class ProgressFileError(RocketMQError):
    """Neither a member's file nor its backup can be read, so nobody knows where it was."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_GROUP.PROGRESS_FILE] {self.path} and its backup (.bak) cannot be read: "
            f"{self.reason}. Put one of them back, or remove both: then consumption begins where "
            "consume_from says."
        )


class LocalOffsetFile:
    """The file of one member of one group."""

    def __init__(self, client_id: str, group: str, home: Path | None = None) -> None:
        base = home or Path.home() / _DIRECTORY
        self.path = base / client_id / group / FILE_NAME
        self._backup = self.path.with_name(f"{FILE_NAME}.bak")
        self._claim: IO[bytes] | None = None

    def claim(self) -> bool:
        """Have it alone until `release` or the process's end; False if another process has it.

        Raises OSError where files can be neither made nor locked.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claim = self.path.with_name(_LOCK_NAME).open("ab")
        if sys.platform != "win32":
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                claim.close()
                return False
            except OSError:
                claim.close()
                raise
        self._claim = claim
        return True

    def release(self) -> None:
        """Others may have it now. Again: harmless."""
        claim, self._claim = self._claim, None
        if claim is None:
            return
        if sys.platform != "win32":
            # Closing it leaves the claim to children that were forked meanwhile.
            fcntl.flock(claim, fcntl.LOCK_UN)
        claim.close()

    def load(self) -> dict[QueueId, int]:
        """What was stored; a damaged or half-written file is passed for the one before it.

        Raises ProgressFileError when there is a file, and none that can be read.
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
        """Return once the new content is on the disk; what was there becomes the backup."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{FILE_NAME}.tmp")
        with fresh.open("wb") as file:
            file.write(encode_progress(offsets))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, self._backup)
        os.replace(fresh, self.path)


def _read(path: Path) -> tuple[dict[QueueId, int] | None, str]:
    """What a file says, or why it cannot be read; neither where there is none."""
    try:
        content = path.read_bytes()
        return (decode_progress(content), "") if content.strip() else (None, "it is empty")
    except FileNotFoundError:
        return None, ""
    except (OSError, RemoteProtocolError) as error:
        return None, str(error)
