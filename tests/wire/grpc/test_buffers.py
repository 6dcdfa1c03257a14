"""Freed buffers of a few MiB stay in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
from rocketmq_wire.allocator import keep_freed_buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        joined = b"".join((b"x" * 1_100_000, b"y"))
        other = b"".join((joined, b"z"))
        del joined, other
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_buffers()
faults()
print(before, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc")
def test_large_buffers_are_not_made_of_fresh_pages_each_time() -> None:
    output = subprocess.run(
        [sys.executable, "-c", _FAULTS], check=True, capture_output=True, text=True, timeout=60
    )
    before, after = (int(number) for number in output.stdout.split())
    if before < 5_000:
        pytest.skip(f"this C library keeps them anyway: {before} faults")
    assert after < before / 10
