"""One suite of downloads for every transport: ranges, filters, losses, ends."""

from __future__ import annotations

import pytest

from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_wire.model import (
    Bounds,
    OffsetRange,
    Subscription,
    TopicConfig,
)
from support.contracts import SPEC, fill, messages_in, queue_of, read

# --- downloads ------------------------------------------------------------------------------


def test_a_range_arrives_whole_and_in_order(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 5_000)
    messages = read(cluster, [OffsetRange(queue, 123, 4_567)])[queue]
    assert [m.queue_offset for m in messages] == list(range(123, 4_567))
    assert [m.body for m in messages] == [str(n).encode() for n in range(123, 4_567)]


def test_many_ranges_arrive_in_the_order_given(cluster, topic):
    for index in range(4):
        fill(cluster, queue_of(topic, index), 1_000)
    ranges = [OffsetRange(queue_of(topic, index), 10 * index, 1_000) for index in (2, 0, 3, 1)]
    found = read(cluster, ranges)
    assert list(found) == [wanted.queue for wanted in ranges]
    assert [len(messages) for messages in found.values()] == [980, 1_000, 970, 990]


def test_two_ranges_of_one_queue_are_two_ranges(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    ranges = [OffsetRange(queue, 10, 20), OffsetRange(queue, 50, 60)]
    offsets = [
        message.queue_offset
        for chunk in cluster.read_ranges(ranges, SPEC)
        for message in messages_in(chunk)
    ]
    assert offsets == [*range(10, 20), *range(50, 60)]


def test_small_limits_change_nothing_about_what_arrives(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 1_000, size=2_000)
    limits = ReadLimits(
        messages_max=50, bytes_max=64 * 1024, span_max=40, count_per_pull=16, pulls_in_flight=3
    )
    messages = read(cluster, [OffsetRange(queue, 0, 1_000)], ReadSpec("r", limits=limits))[queue]
    assert [m.queue_offset for m in messages] == list(range(1_000))


def test_a_tag_filter_selects_at_the_broker(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 3_000, tags=lambda n: "rare" if n % 500 == 0 else "common")
    spec = ReadSpec("readers", Subscription("rare || absent"))
    messages = read(cluster, [OffsetRange(queue, 0, 3_000)], spec)[queue]
    assert [m.queue_offset for m in messages] == [0, 500, 1_000, 1_500, 2_000, 2_500]


def test_a_filter_that_matches_nothing_still_covers_the_range(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 2_500)
    spec = ReadSpec("readers", Subscription("absent"))
    assert read(cluster, [OffsetRange(queue, 0, 2_500)], spec)[queue] == []


def test_an_end_that_does_not_exist_is_truncated_after_the_outage_limit(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    spec = ReadSpec("readers", limits=ReadLimits(outage_ms=300))
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 50, 150)], spec)
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (100, 150, LossReason.TRUNCATED)
    assert loss.bounds == Bounds(0, 100)


def test_a_start_behind_the_end_is_truncated_at_once(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 500, 600)])
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (500, 600, LossReason.TRUNCATED)


def test_what_is_truncated_can_be_skipped(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    spec = ReadSpec("r", limits=ReadLimits(outage_ms=300), loss_policy=LossPolicy.SKIP)
    chunks = list(cluster.read_ranges([OffsetRange(queue, 50, 150)], spec))
    assert sum(len(messages_in(chunk)) for chunk in chunks) == 50
    losses = [chunk.loss for chunk in chunks if chunk.loss is not None]
    assert [(loss.start, loss.end) for loss in losses] == [(100, 150)]


def test_a_deleted_topic_is_distinguished(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    cluster.delete_topic(topic)
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 0, 100)])
    assert caught.value.loss.reason is LossReason.TOPIC_DELETED


def test_a_removed_queue_is_reported_as_missing(cluster, topic):
    queue = queue_of(topic, 3)
    fill(cluster, queue, 100)
    cluster.create_topic(TopicConfig(topic, 2, 2))
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 0, 100)])
    assert caught.value.loss.reason is LossReason.QUEUE_REMOVED


def test_an_abandoned_download_leaves_the_cluster_usable(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 5_000, size=500)
    generator = cluster.read_ranges([OffsetRange(queue, 0, 5_000)], SPEC)
    next(generator)
    generator.close()
    assert cluster.bounds([queue]) == {queue: Bounds(0, 5_000)}
    assert len(read(cluster, [OffsetRange(queue, 0, 5_000)])[queue]) == 5_000


def test_calls_work_while_a_download_is_held(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 2_000, size=1_000)
    limits = ReadLimits(messages_max=200, count_per_pull=100)
    count = 0
    spec = ReadSpec("r", limits=limits)
    for chunk in cluster.read_ranges([OffsetRange(queue, 0, 2_000)], spec):
        count += len(messages_in(chunk))
        assert cluster.bounds([queue]) == {queue: Bounds(0, 2_000)}
    assert count == 2_000
