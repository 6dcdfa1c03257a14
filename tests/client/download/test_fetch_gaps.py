"""The range download of queues with holes, over ways that reorder, lose and double answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_wire.model import OffsetRange
from support.fetch_scenes import Changes, Scene, run_scene, scenes
from support.simulated_queue import ORDERS, SimulatedQueue, first_offset_in


@st.composite
def holes(draw: st.DrawFn) -> tuple[Scene, Changes, frozenset[int], int | None]:
    """A scene whose queue lists messages that are gone, or go while it is read: which ones, and
    what stands at offset 0 where that is another message's record.
    """
    queue, limits, faults, wanted, seed, take_share = draw(scenes())
    if draw(st.booleans()):
        wanted = OffsetRange(ORDERS, 0, len(wanted))
    queue.is_first_out_of_range = draw(st.booleans())
    end = draw(st.integers(0, queue.end))
    changes: list[tuple[int, Callable[[SimulatedQueue], None]]] = []
    gone = set(range(queue.is_first_out_of_range))
    first = len(gone)
    if draw(st.booleans()):
        # In the middle, as where a file is damaged.
        queue.vanished = range(draw(st.integers(first, max(first, end))), end)
        gone.update(queue.vanished)
    else:
        # From the front, as where old files expire.
        queue.vanished = range(first, end)
        for at_ms, further in draw(
            st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, queue.end)), max_size=3)
        ):
            end = max(end, further)
            changes.append((1_000 + at_ms, partial(_vanish, further)))
        gone.update(range(end))
    scene = (queue, limits, faults, wanted, seed, take_share)
    return scene, changes, frozenset(gone), draw(st.sampled_from([None, 7]))


def _vanish(end: int, queue: SimulatedQueue) -> None:
    queue.vanished = range(queue.vanished.start, max(queue.vanished.stop, end))


@settings(max_examples=200)
@given(holes())
def test_existing_messages_arrive_and_lost_ones_are_reported(drawn) -> None:
    scene, changes, gone, stray_is = drawn
    queue = scene[0]
    driver = run_scene(
        scene,
        LossPolicy.SKIP,
        changes,
        first_offset=partial(first_offset_in, stray_is=stray_is),
    )
    driver.check_order(gone)
    delivered, wanted = driver.offsets, driver.window.wanted
    assert delivered == sorted(set(delivered)), "once each, and in order"
    matching = {offset for offset in range(wanted.start, wanted.end) if queue.matches(offset)}
    assert matching - gone <= set(delivered) <= matching
    reported = {offset for loss in driver.losses for offset in range(loss.start, loss.end)}
    assert reported & matching <= gone, "offsets that match no filter are not reported"
    assert reported.isdisjoint(delivered)
    assert {loss.reason for loss in driver.losses} <= {LossReason.EXPIRED, LossReason.HOLE}
    if queue.is_first_out_of_range and wanted.start == 0 and queue.matches(0):
        assert 0 in reported, "a foreign record is never taken for the first message"
