"""Checkpoints of an earlier commit open, resume, and are written the same today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_rocketmq.planning.checkpoint import SourceOffset
from support.driver_queries import Query
from support.fake_cluster import FakeWorld
from support.group_member_queries import GroupWorld, JoinedQuery

TEXTS: dict[str, str] = json.loads(
    (Path(__file__).parents[2] / "golden/checkpoints.json").read_text("utf-8")
)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_an_old_text_is_read_and_written_byte_for_byte(text: str) -> None:
    assert json.dumps(SourceOffset.from_json(json.loads(text)).to_json()) == text


def test_the_same_reads_give_the_old_texts_and_a_restart_resumes_from_each() -> None:
    world = FakeWorld()
    a, b = world.create("orders", 2)
    world.put(a, 5)
    world.put(b, 3)
    query = Query(world, startingOffsets="earliest")
    assert json.dumps(query.driver.initial_offset()) == TEXTS["initial"]
    assert json.dumps(query.latest(json.loads(TEXTS["initial"]))) == TEXTS["first batch"]
    query.driver.close()
    world.put(a, 4)
    restarted = Query(world, startingOffsets="earliest")
    second = restarted.latest(json.loads(TEXTS["first batch"]))
    assert json.dumps(second) == TEXTS["second batch"]
    assert json.dumps(restarted.latest(second)) == TEXTS["second batch"]
    restarted.driver.close()


def test_first_offsets_are_written_as_before() -> None:
    world = FakeWorld()
    (queue,) = world.create("orders", 1)
    world.put(queue, 5)
    world.expire(queue, 2)
    query = Query(world, startingOffsets="earliest")
    end = query.latest(query.driver.initial_offset())
    assert json.dumps(end) == TEXTS["first messages expired"]
    query.driver.close()


def test_a_group_member_writes_the_old_texts() -> None:
    world = GroupWorld(2)
    for queue in world.made:
        world.put(queue, 4)
    query = JoinedQuery(world, "one")
    query.start()
    assert json.dumps(query.initial) == TEXTS["group member, initial"]
    assert query.plan()
    assert json.dumps(query.logged[-1]) == TEXTS["group member, first batch"]
