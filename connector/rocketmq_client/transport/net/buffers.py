"""Buffers for large bodies, reused when no view of them is left.

A fresh buffer costs more than filling it: the kernel maps and clears every page at its first touch,
and takes it back at the end. Bodies travel on as views (memoryview, numpy, Arrow), and each view
holds a reference to its buffer. If only the pool's reference is left, the buffer is free.
"""

from __future__ import annotations

import sys
from typing import Final

# Bodies are a few MiB at most, and a reader holds few of them at a time.
POOL_BYTES_MAX: Final = 32 * 1024 * 1024
# Small bodies come from the allocator's own free lists.
_POOLED_SIZE_MIN: Final = 128 * 1024
_GRAIN: Final = 256 * 1024


class BufferPool:
    """Not thread-safe; belongs to one transport."""

    def __init__(self, bytes_max: int = POOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffers: list[bytearray] = []
        self._bytes = 0
        # The reference count of a buffer that only the pool holds, as this interpreter counts.
        self._free_count = _count([bytearray(1)], 0)

    @property
    def size(self) -> int:
        """The bytes of the pool, used or free."""
        return self._bytes

    def allocate(self, size: int) -> memoryview:
        """Return a writable buffer of `size` bytes, with old contents."""
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
        """Drop all buffers; those in use live as long as their views."""
        self._buffers.clear()
        self._bytes = 0

    def _make_room(self, capacity: int) -> bool:
        """Drop free buffers so that `capacity` more bytes fit; False if they do not."""
        if self._bytes + capacity > self._bytes_max:
            used = [i for i in range(len(self._buffers)) if not self._is_free(i)]
            self._buffers = [self._buffers[index] for index in used]
            self._bytes = sum(map(len, self._buffers))
        return self._bytes + capacity <= self._bytes_max

    def _is_free(self, index: int) -> bool:
        return _count(self._buffers, index) <= self._free_count


def _count(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])
