"""Body buffers: used again when free, never while anybody looks at them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rocketmq_client.transport.net.buffers import BufferPool

MIB = 1024 * 1024


def address_of(view):
    return np.frombuffer(view, np.uint8).__array_interface__["data"][0]


def test_a_buffer_is_used_again_when_its_last_view_is_gone():
    pool = BufferPool()
    view = pool.allocate(MIB)
    address = address_of(view)
    del view
    assert address_of(pool.allocate(MIB - 5)) == address
    assert pool.size == MIB


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view[7:9],
        lambda view: np.frombuffer(view[10:20], np.uint8),
        lambda view: pa.py_buffer(view[10:20]),
        lambda view: pa.Array.from_buffers(pa.int8(), 10, [None, pa.py_buffer(view)]).slice(3, 2),
        lambda view: pa.py_buffer(np.frombuffer(view, np.uint8)[4:]).slice(5),
    ],
)
def test_a_buffer_with_a_view_is_not_reused(look):
    pool = BufferPool()
    view = pool.allocate(MIB)
    address, kept = address_of(view), look(view)
    del view
    assert address_of(pool.allocate(MIB)) != address
    del kept
    assert address_of(pool.allocate(MIB)) == address


def test_buffers_have_the_size_asked_for_and_can_be_written():
    pool = BufferPool()
    for size in (0, 1, 1_000, 200_000, 5 * MIB):
        view = pool.allocate(size)
        assert len(view) == size
        view[:] = b"x" * size


def test_a_much_too_large_buffer_is_not_taken_for_a_small_body():
    pool = BufferPool()
    address = address_of(pool.allocate(8 * MIB))
    assert address_of(pool.allocate(MIB)) != address


def test_the_pool_keeps_no_more_than_its_limit():
    pool = BufferPool(4 * MIB)
    used = [pool.allocate(MIB) for _ in range(10)]
    assert pool.size == 4 * MIB
    assert len({address_of(view) for view in used}) == 10
    used.clear()
    pool.allocate(3 * MIB)
    assert pool.size <= 4 * MIB
