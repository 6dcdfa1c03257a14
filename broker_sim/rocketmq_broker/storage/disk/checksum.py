"""CRC-32 of large buffers, at ISA-L's speed where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from rocketmq_wire.model import Buffer

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    # The standard library's is five times slower, but platforms without a wheel still work.
    from zlib import crc32 as _crc32

crc32 = cast("Callable[[Buffer, int], int]", _crc32)
"""`crc32(data, start)` continues the CRC-32 `start` over `data`."""
