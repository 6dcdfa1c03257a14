"""Range downloads by chance: queues, limits, ways that reorder and lose, readers that dawdle."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from rocketmq_client.download.contract import ReadLimits
from rocketmq_client.loss import LossPolicy
from rocketmq_wire.model import OffsetRange
from support.simulated_queue import ORDERS, Driver, Faults, SimulatedQueue, window_of

Scene = tuple[SimulatedQueue, ReadLimits, Faults, OffsetRange, int, float]
Changes = Sequence[tuple[int, Callable[[SimulatedQueue], None]]]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A queue, a way to it that misbehaves, and a reader's limits and pace."""
    start = draw(st.integers(0, 3_000))
    length = draw(st.integers(1, 3_000))
    is_filtered = draw(st.booleans())
    modulus = draw(st.sampled_from([1, 2, 7, 97, 2_003])) if is_filtered else 1
    sizes = draw(st.lists(st.integers(91, 4_000), min_size=1, max_size=5))
    queue = SimulatedQueue(
        start=0,
        end=start + length + draw(st.integers(0, 50)),
        count_cap=draw(st.sampled_from([1, 8, 32, 500, 10_000])),
        bytes_cap=draw(st.sampled_from([1, 4_096, 65_536, 262_144, 4 << 20])),
        index_file_count=draw(st.sampled_from([50, 333, 1_000, 300_000])),
        is_filtered=is_filtered,
        matches=lambda offset: offset % modulus == 0,
        size_of=lambda offset: sizes[offset % len(sizes)],
        reset_is_pending=draw(st.booleans()),
    )
    limits = ReadLimits(
        messages_max=draw(st.sampled_from([1, 10, 1_000, 32_768])),
        bytes_max=draw(st.sampled_from([1, 50_000, 100 << 20])),
        span_max=draw(st.sampled_from([None, 1, 100, 2_000])),
        count_per_pull=draw(st.sampled_from([1, 32, 10_000])),
        pulls_in_flight=draw(st.sampled_from([1, 2, 8, 40])),
    )
    share = st.sampled_from([0.0, 0.05, 0.3])
    faults = Faults(
        lost=draw(share) / 3,
        duplicated=draw(share),
        busy=draw(share),
        broken=draw(share),
        delay_ms_max=draw(st.sampled_from([1, 20, 400])),
        outage=draw(st.sampled_from([(0, 0), (1_010, 9_000)])),
    )
    wanted = OffsetRange(ORDERS, start, start + length)
    seed = draw(st.integers(0, 2**32))
    take_share = draw(st.sampled_from([1.0, 0.5, 0.05]))
    return queue, limits, faults, wanted, seed, take_share


def run_scene(scene: Scene, policy: LossPolicy, changes: Changes = (), **options: Any) -> Driver:
    """Read the scene's range to its end; `options` are the window's."""
    queue, limits, faults, wanted, seed, take_share = scene
    # Small limits and lossy ways need many pulls: keep the work of one example bounded.
    if min(limits.messages_max, queue.count_cap, limits.bytes_max) == 1:
        wanted = OffsetRange(ORDERS, wanted.start, min(wanted.end, wanted.start + 60))
    options = {"times_max": random.Random(seed).choice([1, 2, 5, 16]), **options}
    start, end = wanted.start, wanted.end
    driver = Driver(
        window_of(start, end, limits, is_filtered=queue.is_filtered, loss_policy=policy, **options),
        queue,
        random.Random(seed),
        faults=faults,
        take_share=take_share,
        changes=list(changes),
    )
    return driver.run()
