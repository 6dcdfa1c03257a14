"""Which offsets are committed, and how another committer is recognised."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pyspark_rocketmq.consumer_group import commit as offset_commit
from pyspark_rocketmq.consumer_group.commit import OffsetCommitter, to_commit
from pyspark_rocketmq.errors import GroupInUseError
from rocketmq_wire.model import QueueId
from support.fake_cluster import FakeCluster, FakeWorld

A, B = (QueueId("orders", "broker-a", index) for index in range(2))


@pytest.mark.parametrize(
    ("wanted", "stored", "planned", "committed", "due", "others"),
    [
        ({A: 5}, {}, {A: 9}, {}, {A: 5}, []),  # The first commit overwrites whatever is there.
        ({A: 5}, {A: 5}, {A: 9}, {A: 5}, {}, []),
        ({A: 5}, {A: 3}, {A: 9}, {A: 3}, {A: 5}, []),
        ({A: 5}, {A: None}, {A: 9}, {A: 5}, {A: 5}, []),  # The broker lost it.
        ({A: 5}, {A: 9}, {A: 9}, {A: 4}, {}, []),  # A listener of this query was first.
        ({A: 5}, {A: 10}, {A: 9}, {A: 4}, {}, [A]),
        ({A: 5}, {A: 6}, {}, {A: 4}, {}, [A]),
        # The place was corrected backwards: our own commit goes back with it.
        ({A: 5}, {A: 8}, {A: 5}, {A: 8}, {A: 5}, []),
        ({A: 5}, {A: 7}, {A: 5}, {A: 8}, {}, []),
        ({A: 5}, {A: 9}, {A: 5}, {A: 8}, {}, [A]),
        ({A: 5, B: 2}, {A: 10, B: 1}, {A: 9, B: 2}, {A: 4, B: 1}, {B: 2}, [A]),
    ],
)
def test_what_is_sent_and_who_else_commits(
    wanted: dict[QueueId, int],
    stored: dict[QueueId, int | None],
    planned: dict[QueueId, int],
    committed: dict[QueueId, int],
    due: dict[QueueId, int],
    others: list[QueueId],
) -> None:
    assert to_commit(wanted, stored, planned, committed) == (due, others)


def committer(world: FakeWorld) -> OffsetCommitter:
    return OffsetCommitter(
        lambda: FakeCluster(world),  # type: ignore[arg-type,return-value]
        "g",
        lambda: ("orders",),
    )


def test_another_committer_is_reported_once_and_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = FakeWorld()
    world.create("orders", 2)
    mine = committer(world)
    mine.offer({A: 5, B: 5})
    assert mine.flush(2_000)
    world.committed["g", A] = 50
    for end in (6, 7):
        mine.offer({A: end, B: end})
        assert mine.flush(2_000)
    mine.close()
    assert world.committed == {("g", A): 50, ("g", B): 7}
    assert caplog.text.count("ROCKETMQ_GROUP.FOREIGN_COMMIT") == 1


def test_a_batch_planned_during_the_look_is_no_other_committer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = FakeWorld()
    world.create("orders", 1)
    mine = committer(world)
    mine.offer({A: 5})
    assert mine.flush(2_000)

    def look(_: FakeCluster, __: str, queues: Iterable[QueueId]) -> dict[QueueId, int]:
        mine.planned({A: 9})  # A listener commits this batch before the broker answers.
        return dict.fromkeys(queues, 9)

    monkeypatch.setattr(FakeCluster, "committed_offsets", look)
    mine.offer({A: 6})
    assert mine.flush(2_000)
    mine.close()
    assert "FOREIGN_COMMIT" not in caplog.text


def test_offsets_that_the_broker_lost_are_committed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_commit, "RESEND_MS", 20)
    world = FakeWorld()
    world.create("orders", 2)
    mine = committer(world)
    mine.offer({A: 5})
    assert mine.flush(2_000)
    world.committing.clear()
    world.committed.clear()
    assert world.committing.wait(5)
    mine.close()
    assert world.committed == {("g", A): 5}


def test_members_that_could_not_be_asked_for_are_found_before_the_first_commit() -> None:
    world = FakeWorld()
    world.create("orders", 2)
    world.name_server_away = True
    world.live_members["g"] = ("another-client",)
    mine = committer(world)
    mine.claim(FakeCluster(world))  # type: ignore[arg-type]
    world.name_server_away = False
    mine.offer({A: 5})
    assert mine.flush(2_000)
    with pytest.raises(GroupInUseError, match="another-client"):
        mine.offer({A: 6})
    assert world.committed == {}
    mine.close()


def test_nobody_waits_for_a_thread_that_has_died(caplog: pytest.LogCaptureFixture) -> None:
    def open_by_mistake() -> FakeCluster:
        raise KeyError("a mistake")

    mine = OffsetCommitter(open_by_mistake, "g", lambda: ("orders",))  # type: ignore[arg-type]
    mine.offer({A: 5})
    assert mine.flush(60_000)
    assert "offsets are no longer committed" in caplog.text
    for end in (6, 7):
        mine.offer({A: end})
        # Nothing is in flight: a caller that waited would wait until its time-out.
        assert mine.flush(60_000)
    mine.close(60_000)
