"""Reads and stores committed offsets, and computes where a member starts in a queue it gains.

A group that shares its queues commits to the brokers; a broadcasting member writes a local file.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.errors import ProgressFileError
from rocketmq_client.offsets.bounds import search_times
from rocketmq_client.offsets.offset_commit import commit_in_rounds
from rocketmq_wire import fastjson
from rocketmq_wire.errors import ProgressNotFoundError, RemoteProtocolError, RocketMQError
from rocketmq_wire.fastjson import Json, ObjectKeyed, member_int, member_object
from rocketmq_wire.model import RETRY_PREFIX, QueueId
from rocketmq_wire.remoting.codecs.body import queue_key, queue_of_key
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)

if sys.platform != "win32":
    import fcntl

_LOG = logging.getLogger(__name__)
_HALF_HOUR_MS: Final = 30 * 60_000
FILE_NAME: Final = "offsets.json"
_LOCK_NAME: Final = "offsets.lock"
_DIRECTORY: Final = ".rocketmq_offsets"


class StartAt(enum.Enum):
    """A start that only the broker knows."""

    END = enum.auto()
    TIMESTAMP = enum.auto()


def start_of(queue: QueueId, committed: int | None, consume_from: ConsumeFrom) -> int | StartAt:
    """The offset where a member starts in a queue, or what to ask the broker for."""
    if committed is not None and committed >= 0:
        return committed
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from is ConsumeFrom.FIRST:
        # If 0 has expired, the broker answers the first pull with its first offset.
        return 0
    if consume_from is ConsumeFrom.LAST:
        # The group has seen the messages that wait for a retry, so it must not skip any of them.
        return 0 if is_retry else StartAt.END
    return StartAt.END if is_retry else StartAt.TIMESTAMP


@dataclass(eq=False)
class OffsetStore:
    """The committed offsets of one member's group.

    A forward-only store never moves a committed offset backward: its member may be behind another
    one.
    """

    io: IoThread
    client_id: str
    settings: ConsumerSettings
    is_forward_only: bool = False
    known: Mapping[QueueId, int] = field(default_factory=dict)
    """Offsets that a forward-only member consumed, whether they are committed or not."""

    def __post_init__(self) -> None:
        """Raises ProgressFileError if a broadcasting member's file is damaged."""
        self._file: LocalOffsetFile | None = None
        self.consumed: dict[QueueId, int] = {}
        """The consumed offsets of owned queues, as last noted."""
        if self.settings.is_broadcasting:
            self._file = LocalOffsetFile(self.client_id, self.settings.group)
            self.consumed = self._file.load()

    def note(self, queue: QueueId, offset: int) -> None:
        """Note a consumed offset, unless it is behind the noted one."""
        self.consumed[queue] = max(offset, self.consumed.get(queue, offset))

    def reset(self, queue: QueueId, offset: int) -> None:
        """Note an offset that may be smaller than the noted one."""
        self.consumed[queue] = offset

    def forget(self, queues: Iterable[QueueId]) -> None:
        """Drop queues that this member lost: their new owner commits them now."""
        for queue in queues:
            self.consumed.pop(queue, None)

    def due(self, owned: Collection[QueueId]) -> dict[QueueId, int]:
        """The offsets to store: every owned queue each time, so a reset is stored as well."""
        self.forget([queue for queue in self.consumed if queue not in owned])
        return dict(self.consumed)

    def store(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
        """Store offsets; returns those that could not be stored and may be stored later."""
        if not offsets:
            return {}
        if self._file is not None:
            try:
                self._file.save({**self._file.load(), **self.consumed, **offsets})
            except (OSError, ProgressFileError) as error:
                _LOG.warning("offsets cannot be stored in %s: %s", self._file.path, error)
                return dict(offsets)
            return {}
        replies = self.commit(offsets)
        failed = {q: reply for q, reply in replies.items() if isinstance(reply, RocketMQError)}
        return {queue: offsets[queue] for queue, error in failed.items() if error.retryable}

    def commit(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, Reply | RocketMQError]:
        """Commit offsets to the brokers, whatever this member has noted."""
        group = self.settings.group

        def commit(queues: Sequence[QueueId]) -> dict[QueueId, Reply | RocketMQError]:
            requests = {queue: CommitOffset(group, queue, offsets[queue]) for queue in queues}
            return self._ask_all(requests, "commit the group's offset")

        return commit_in_rounds(offsets, commit)

    def store_forward(self, offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
        """As `store`, but without the offsets behind the committed ones if it is forward-only."""
        if not offsets or not self.is_forward_only:
            return self.store(offsets)
        committed = self._committed(offsets)
        unknown = {queue: offset for queue, offset in offsets.items() if queue not in committed}
        ahead = {q: n for q, n in offsets.items() if q in committed and n > (committed[q] or 0)}
        return {**self.store(ahead), **unknown}

    def starting_offsets(self, queues: Iterable[QueueId]) -> dict[QueueId, int]:
        """Where to start; a queue whose broker does not answer is left out."""
        starts: dict[QueueId, int] = {}
        asked: dict[QueueId, Request[Reply]] = {}
        by_time: list[QueueId] = []
        for queue, committed in self._committed(queues).items():
            offset = committed
            if self.is_forward_only and (offset is None or offset < self.known.get(queue, 0)):
                offset = self.known.get(queue, offset)
            start = start_of(queue, offset, self.settings.consume_from)
            if start is StartAt.END:
                asked[queue] = GetMaxOffset(queue)
            elif start is StartAt.TIMESTAMP:
                by_time.append(queue)
            elif self.is_forward_only and (offset is None or offset < 0):
                asked[queue] = GetMinOffset(queue)
            else:
                starts[queue] = start
        for queue, reply in self._ask_all(asked, "get its starting offset").items():
            if isinstance(reply, OffsetReply):
                starts[queue] = max(reply.value, 0)
        return {**starts, **self._search(by_time)}

    def _search(self, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        """The offsets of the starting time; the answers of old brokers alone skip messages."""
        chosen_ms = self.settings.consume_timestamp_ms
        if chosen_ms is None:
            chosen_ms = time.time_ns() // 1_000_000 - _HALF_HOUR_MS
        found = search_times(
            lambda requests: self.io.call_many(
                requests, timeout_ms=self.settings.request_timeout_ms
            ),
            dict.fromkeys(queues, chosen_ms),
            Boundary.LOWER,
            self.settings.group,
        )
        for queue, offset in found.items():
            if isinstance(offset, RocketMQError):
                _LOG.warning("%s: could not get its starting offset: %s", queue, offset)
        return {queue: offset for queue, offset in found.items() if isinstance(offset, int)}

    def _committed(self, queues: Iterable[QueueId]) -> dict[QueueId, int | None]:
        """The committed offsets, None without one; a queue whose broker fails is left out."""
        if self._file is not None:
            stored = self._file.load()
            return {queue: stored.get(queue) for queue in queues}
        # For a young queue brokers answer 0 to a group without a committed offset, so that the
        # group skips no message sent since its first member started. A group that starts at a
        # timestamp skips none either, and asks for that timestamp.
        is_by_time = self.settings.consume_from is ConsumeFrom.TIMESTAMP
        requests = {
            queue: GetCommittedOffset(
                self.settings.group,
                queue,
                zero_if_absent=not is_by_time or queue.topic.startswith(RETRY_PREFIX),
            )
            for queue in queues
        }
        found: dict[QueueId, int | None] = {}
        for queue, reply in self._ask_all(requests, "get the group's committed offset").items():
            if isinstance(reply, OffsetReply):
                found[queue] = reply.value
            elif isinstance(reply, ProgressNotFoundError):
                found[queue] = None
        return found

    def _ask_all(
        self, requests: Mapping[QueueId, Request[Reply]], what: str
    ) -> dict[QueueId, Reply | RocketMQError]:
        replies = self.io.call_many(
            [(queue.broker, request) for queue, request in requests.items()],
            timeout_ms=self.settings.request_timeout_ms,
        )
        for queue, reply in zip(requests, replies, strict=True):
            if isinstance(reply, RocketMQError) and not isinstance(reply, ProgressNotFoundError):
                _LOG.warning("%s: could not %s: %s", queue, what, reply)
        return dict(zip(requests, replies, strict=True))


def encode_offsets(offsets: Mapping[QueueId, int]) -> bytes:
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
    """A broadcasting member's offsets in a local file, as RocketMQ's Java client writes it.

    <home>/.rocketmq_offsets/<client id>/<group>/offsets.json        and offsets.json.bak

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:42}}   keys are objects

    One process at a time may use the file, by a lock on `offsets.lock` beside it: if two processes
    shared the file, each would skip messages that only the other one has consumed.
    """

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
