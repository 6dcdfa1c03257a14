"""Spark's progress in all its shapes -> offsets and lag."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_rocketmq.consumer_group import listener
from pyspark_rocketmq.consumer_group.listener import OffsetCommitListener
from pyspark_rocketmq.errors import GroupInUseError, OptionError
from pyspark_rocketmq.jobs.session import follows_group
from pyspark_rocketmq.monitoring import lag
from pyspark_rocketmq.monitoring.lag import QueueLag, measure_lag
from pyspark_rocketmq.planning.progress_report import source_progress
from pyspark_rocketmq.read import pinned_offsets as pinning
from pyspark_rocketmq.read.pinned_offsets import pin_offsets
from rocketmq_wire.model import QueueId
from support.fake_cluster import FakeWorld

A, B = (QueueId("orders", "broker-a", index) for index in range(2))
END = {"version": 1, "offsets": {"orders": {"broker-a": {"0": 5, "1": 7}}}, "starts": {}}
LATEST = {"version": 1, "offsets": {"orders": {"broker-a": {"0": 9, "1": 7}}}}
OPTIONS = {"nameServer": "h:1"}


@pytest.mark.parametrize(
    "progress",
    [
        {"sources": [{"endOffset": END, "latestOffset": LATEST}]},
        {"sources": [{"endOffset": json.dumps(END), "latestOffset": json.dumps(LATEST)}]},
        SimpleNamespace(
            sources=[SimpleNamespace(endOffset=json.dumps(END), latestOffset=json.dumps(LATEST))]
        ),
    ],
)
def test_progress_comes_as_objects_dicts_and_text(progress: object) -> None:
    (source,) = source_progress(progress)
    assert source.end == {A: 5, B: 7}
    assert measure_lag(progress).queues == {A: QueueLag(4, None), B: QueueLag(0, 0.0)}


@pytest.mark.parametrize(
    "end", [None, "null", "7", "not json", {"topic": {"0": 1}}, {"version": 1, "offsets": 3}]
)
def test_other_sources_are_passed_over(end: object) -> None:
    assert source_progress({"sources": [{"endOffset": end}]}) == []
    assert measure_lag({"sources": [{"endOffset": end}]}).messages == 0
    assert measure_lag(None).seconds == 0.0


def test_an_initial_offset_in_a_progress_differs_from_one_that_was_read_to() -> None:
    initial = {**END, "initial": True}
    (source,) = source_progress({"sources": [{"endOffset": initial}]})
    assert source.is_initial
    (source,) = source_progress({"sources": [{"endOffset": END}]})
    assert not source.is_initial


def test_with_a_connection_lag_is_fresh_and_has_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    world.put(A, 12)
    world.put(B, 7)
    monkeypatch.setattr(lag, "open_cluster", world.open_cluster)
    monkeypatch.setattr(
        lag, "time", SimpleNamespace(time=lambda: (world.queues[A].stored[5][0] + 2_500) / 1_000)
    )
    found = measure_lag({"sources": [{"endOffset": END}]}, OPTIONS)
    assert found.queues == {A: QueueLag(7, 2.5), B: QueueLag(0, 0.0)}
    assert (found.messages, found.seconds) == (7, 2.5)
    assert world.calls.count("store_times_at") == 1
    only = {**OPTIONS, "assign": '{"orders":[1]}'}
    assert measure_lag({"sources": [{"endOffset": END}]}, only).queues == {B: QueueLag(0, 0.0)}


def report(name: str, *ends: object) -> Any:
    sources = [SimpleNamespace(endOffset=json.dumps(end)) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="1", sources=sources))


def test_the_progress_listener_commits_what_was_read_of_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    world.create("bills", 1)
    monkeypatch.setattr(listener, "open_cluster", world.open_cluster)
    options = {**OPTIONS, "group": "g", "subscribe": "orders"}
    bills = {"version": 1, "offsets": {"bills": {"broker-a": {"0": 3}}}, "starts": {}}

    listening = OffsetCommitListener(options, query="mine")
    listening.onQueryProgress(report("other", END))
    listening.onQueryProgress(report("mine", {**END, "initial": True}))
    assert world.committed == {}
    listening.onQueryProgress(report("mine", END, bills))
    assert world.committed == {("g", A): 5, ("g", B): 7}
    listening.onQueryProgress(report("mine", END, bills))
    assert len(world.commit_log) == 1
    listening.close()


@pytest.mark.parametrize(
    ("mode", "also_unconfirmed", "commits"),
    [("false", True, False), ("confirmed", False, False), ("confirmed", True, True)],
)
def test_the_progress_listener_heeds_commit_offsets(
    monkeypatch: pytest.MonkeyPatch, mode: str, also_unconfirmed: bool, commits: bool
) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    monkeypatch.setattr(listener, "open_cluster", world.open_cluster)
    options = {**OPTIONS, "group": "g", "subscribe": "orders", "commitOffsets": mode}
    listening = OffsetCommitListener(options, also_unconfirmed=also_unconfirmed)
    listening.onQueryProgress(report("mine", END))
    listening.close()
    assert world.committed == ({("g", A): 5, ("g", B): 7} if commits else {})


def test_the_progress_listener_leaves_other_committers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    monkeypatch.setattr(listener, "open_cluster", world.open_cluster)
    listening = OffsetCommitListener({**OPTIONS, "group": "g", "subscribe": "orders"})
    world.live_members["g"] = ("another",)
    listening.onQueryProgress(report("mine", END))
    assert world.committed == {}
    world.live_members.clear()
    world.committed["g", A] = 9
    listening.onQueryProgress(report("mine", END))
    assert world.committed == {("g", A): 9, ("g", B): 7}
    # Its own commit goes back with a corrected offset.
    corrected = {**END, "offsets": {"orders": {"broker-a": {"0": 12, "1": 6}}}}
    listening.onQueryProgress(report("mine", corrected))
    assert world.committed == {("g", A): 12, ("g", B): 6}
    listening.close()


def test_the_job_follows_a_group_by_any_of_its_names() -> None:
    for name in ("group", "consumerGroup", "CONSUMERGROUP", "consumer.group"):
        assert follows_group({**OPTIONS, "subscribe": "orders", name: "g"})
    assert not follows_group({**OPTIONS, "subscribe": "orders"})


def test_the_progress_listener_wants_a_group() -> None:
    with pytest.raises(OptionError, match="'group' is missing"):
        OffsetCommitListener(OPTIONS)


def test_pinned_offsets_are_numbers_that_read_the_same_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    world.put(A, 12)
    world.put(B, 7)
    monkeypatch.setattr(pinning, "open_cluster", world.open_cluster)
    pinned = pin_offsets({**OPTIONS, "topic": "orders", "minPartitions": "4", "group": "g"})
    assert json.loads(pinned.starting_offsets) == {"orders": {"broker-a": {"0": 0, "1": 0}}}
    assert json.loads(pinned.ending_offsets) == {"orders": {"broker-a": {"0": 12, "1": 7}}}
    assert (pinned.messages, pinned.queues, pinned.tasks) == (19, 2, 4)
    world.create("orders", 3)
    world.put(A, 5)
    again = pin_offsets(pinned.options)
    assert again.ranges == pinned.ranges
    assert world.committed == {}
    world.live_members["g"] = ("other@1",)
    with pytest.raises(GroupInUseError, match="has 1 live member "):
        pinned.check_group()
    with pytest.raises(GroupInUseError, match="has 1 live member "):
        pinned.commit()
    world.live_members.clear()
    pinned.check_group()
    assert world.committed == {}
    pinned.commit()
    assert world.committed == {("g", A): 12, ("g", B): 7}
    with pytest.raises(OptionError, match="'group' is missing"):
        pin_offsets({**OPTIONS, "subscribe": "orders"}).commit()
