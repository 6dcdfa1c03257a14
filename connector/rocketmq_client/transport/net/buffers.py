"""Buffers for large bodies, used again once nobody looks at them any more.

A fresh buffer costs more than filling it: the kernel maps and clears every page at its first touch,
and takes it back at the end. Bodies travel on as views (memoryview, numpy, Arrow), and each view
holds a reference to the buffer below it: when only the pool's own is left, the buffer is free.
"""

from __future__ import annotations

import sys
from typing import Final

# Bodies are a few MiB at most, and a reader has few of them in its hands at a time.
POOL_BYTES_MAX: Final = 32 * 1024 * 1024
# Small bodies come from the allocator's own free lists, which need no help.
_POOLED_SIZE_MIN: Final = 128 * 1024
_GRAIN: Final = 256 * 1024


class BufferPool:
    """Not thread-safe; belongs to one transport."""

    def __init__(self, bytes_max: int = POOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffers: list[bytearray] = []
        self._bytes = 0
        # What a buffer's count is when nobody but the pool holds it, as this interpreter counts.
        self._free_count = _count([bytearray(1)], 0)

    @property
    def size(self) -> int:
        """Bytes that the pool keeps, used or free."""
        return self._bytes

    def allocate(self, size: int) -> memoryview:
        """A writable buffer of exactly `size` bytes; what it holds is left over."""
        if size < _POOLED_SIZE_MIN:
            return memoryview(bytearray(size))
        for index in range(len(self._buffers)):
            fits = size <= len(self._buffers[index]) <= 2 * size + _GRAIN
            if fits and self._is_free(index):
                return memoryview(self._buffers[index])[:size]
        capacity = -(-size // _GRAIN) * _GRAIN
        fresh = bytearray(capacity)
        if self._make_room(capacity):
            self._buffers.append(fresh)
            self._bytes += capacity
        return memoryview(fresh)[:size]

    def clear(self) -> None:
        """Keep nothing; buffers in use live on with those who use them."""
        self._buffers.clear()
        self._bytes = 0

    def _make_room(self, capacity: int) -> bool:
        """Let free buffers go until `capacity` more bytes fit; False when they never will."""
        if self._bytes + capacity > self._bytes_max:
            used = [i for i in range(len(self._buffers)) if not self._is_free(i)]
            self._buffers = [self._buffers[index] for index in used]
            self._bytes = sum(map(len, self._buffers))
        return self._bytes + capacity <= self._bytes_max

    def _is_free(self, index: int) -> bool:
        return _count(self._buffers, index) <= self._free_count


def _count(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])
