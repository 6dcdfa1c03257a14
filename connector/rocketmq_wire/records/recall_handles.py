"""The handles by which clients name messages that wait for their delivery time.

handle = base64url of "v1 topic broker timestamp unique-key", the timestamp in milliseconds
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError

_VERSION: Final = "v1"


_PART_COUNT: Final = 5


_HANDLE_SIZE_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Which message is meant."""

    topic: str
    broker: str
    due_ms: int
    unique_key: str


def encode_handle(handle: RecallHandle) -> str:
    """The handle's text."""
    parts = (_VERSION, handle.topic, handle.broker, str(handle.due_ms), handle.unique_key)
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode("ascii")


def decode_handle(text: str) -> RecallHandle:
    """What a handle names. Raises RemoteProtocolError for anything else."""
    raw = b""
    if len(text) <= _HANDLE_SIZE_MAX:
        try:
            # Java's decoder takes it with and without the signs that fill it up.
            raw = base64.b64decode(
                text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), b"-_", True
            )
        except (binascii.Error, ValueError):
            raw = b""
    parts = str(raw, "utf-8", "replace").split(" ")
    is_number = len(parts) >= _PART_COUNT and parts[3].isascii() and parts[3].isdecimal()
    if not is_number or parts[0] != _VERSION or len(parts[3]) > 18:
        raise RemoteProtocolError(f"not a recall handle: {text[:80]!r}")
    return RecallHandle(parts[1], parts[2], int(parts[3]), parts[4])
