"""Streams through a real Spark session: batches, restarts, discovery, several sources."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from support.loader import Loader
from support.queries import Batches, Queries, rows_of


def test_available_now_reads_all_there_is_in_several_batches(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 3)
    for queue, count in zip(queues, (101, 11, 1), strict=True):
        loader.put(queue, count)
    batches = queries.available(startingOffsets="earliest", maxOffsetsPerTrigger="50")
    assert batches.rows == loader.rows(*queues)
    assert batches.sizes[0] == 44 + 4 + 1
    assert len(batches.sizes) == 3


def test_a_run_resumes_where_the_one_before_ended(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    loader.put(queues[0], 30)
    first = queries.available(startingOffsets="earliest")
    loader.put(queues[0], 5)
    loader.put(queues[1], 7)
    second = queries.available(startingOffsets="earliest")
    third = queries.available(startingOffsets="earliest")
    assert first.rows == loader.rows(queues[0], end=30)
    assert sorted(first.rows + second.rows) == loader.rows(*queues)
    assert third.rows == []


def test_grpc_streams_the_same(
    broker: Broker, loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 200)
    batches = queries.available(
        endpoints=broker.endpoints,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="150",
        group=f"group-{topic}",
    )
    assert batches.rows == loader.rows(*queues)
    committed = loader.cluster.committed_offsets(f"group-{topic}", queues)
    assert committed == dict.fromkeys(queues, 200)


def test_a_checkpoint_serves_the_other_transport(
    broker: Broker, loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    rows = []
    for round_, where in enumerate(({}, {"endpoints": broker.endpoints}, {})):
        for queue in queues:
            loader.put(queue, 20 + round_)
        rows += queries.available(startingOffsets="earliest", **where).rows
    assert sorted(rows) == loader.rows(*queues)


def test_a_restart_may_change_partitions_limits_and_names(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 3)
    for queue in queues:
        loader.put(queue, 30)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    failing = Batches(fail_at=1)
    with pytest.raises(PySparkException, match="the driver dies here"):
        queries.run(failing, group=f"a-{topic}", minPartitions="7", **options)
    # The logged batch is the same rows in other tasks, whatever the limits are by now.
    again = queries.available(
        maxPartitions="1", maxOffsetsPerTrigger="1000", startingOffsets="latest",
        group=f"b-{topic}", includeProperties="true", maxRecordsPerPartition="100",
    )  # fmt: skip
    assert again.sizes == [30, 30]
    assert sorted(failing.rows + again.rows) == loader.rows(*queues)
    assert loader.cluster.committed_offsets(f"b-{topic}", queues) == dict.fromkeys(queues, 30)


def test_a_topic_that_a_restart_leaves_out_is_read_on_when_it_is_selected_again(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (here,), (there,) = loader.create(f"{topic}-a", 1), loader.create(f"{topic}-b", 1)
    both = f"{topic}-a,{topic}-b"

    def put() -> None:
        loader.put(here, 5)
        loader.put(there, 5)

    put()
    first = queries.available(subscribe=both, startingOffsets="earliest")
    put()
    narrow = queries.available(subscribe=f"{topic}-a", startingOffsets="earliest")
    put()
    wide = queries.available(subscribe=both, startingOffsets="earliest")
    assert narrow.rows == loader.rows(here, start=5, end=10)
    assert sorted(first.rows + narrow.rows + wide.rows) == loader.rows(here, there)


def test_trigger_once_ignores_the_limits(loader: Loader, topic: str, queries: Queries) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 30)
    batches = Batches()
    frame = queries.load(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert queries.start(frame, batches, once=True).awaitTermination(120)
    assert batches.sizes == [30]


def test_a_crash_in_batch_0_of_a_query_from_latest_loses_nothing(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    with pytest.raises(PySparkException, match="the driver dies here"):
        queries.run(Batches(fail_at=0))
    # Batch 0 is in the offset log and not committed; `latest` is somewhere else by now.
    loader.put(queue, 10)
    assert queries.available().rows == loader.rows(queue, start=5)


def test_a_crash_in_batch_0_repeats_exactly_that_batch(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 10)
    group = f"group-{topic}"
    options = {"startingOffsets": "group", "group": group, "commitOffsets": "false"}
    loader.cluster.commit(group, {queue: 3})
    with pytest.raises(PySparkException, match="the driver dies here"):
        queries.run(Batches(fail_at=0), **options)
    loader.cluster.commit(group, {queue: 8})
    loader.put(queue, 10)
    batches = queries.available(**options)
    assert batches.seen[0] == (0, loader.rows(queue, start=3, end=10))
    assert batches.rows == loader.rows(queue, start=3)


def test_a_crash_in_a_later_batch_repeats_exactly_that_batch(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 20)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    failing = Batches(fail_at=2)
    with pytest.raises(PySparkException, match="the driver dies here"):
        queries.run(failing, **options)
    loader.create(topic, 3)  # Queues found since do not disturb the logged batch.
    loader.put(loader.cluster.queues(topic)[2], 5)
    again = queries.available(**options)
    assert again.seen[0][0] == 2
    assert len(again.seen[0][1]) == 10
    assert sorted(failing.rows + again.rows) == loader.rows(*loader.cluster.queues(topic))


def test_new_queues_and_new_topics_are_found_while_running(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 1)
    loader.put(queues[0], 5)
    batches = Batches()
    frame = queries.load(subscribePattern=f"{topic}.*", startingOffsets="latest")
    query = queries.start(frame, batches)
    queries.until(query, lambda: query.lastProgress is not None)
    queues = loader.create(topic, 3)
    loader.put(queues[2], 4)
    others = loader.create(f"{topic}-more", 1)
    loader.put(others[0], 6)
    loader.put(queues[0], 3)
    wanted = sorted(loader.rows(queues[0], start=5) + loader.rows(*queues[1:], *others))
    queries.until(query, lambda: len(batches.rows) >= len(wanted))
    assert batches.rows == wanted


def test_an_offset_is_the_text_that_is_documented(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    batches = Batches()
    query = queries.run(batches, startingOffsets="earliest")
    logged = (queries.folder / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    value = json.loads(logged)
    assert value["version"] == 1
    assert value["offsets"] == {topic: {"broker-a": {"0": 5}}}
    assert value["starts"] == {topic: {"broker-a": {"0": 0}}}
    assert query.lastProgress is not None


def test_several_actions_on_a_batch_see_the_same_rows(
    loader: Loader, topic: str, queries: Queries
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 50)
    seen: list[tuple[int, list[object]]] = []

    def twice(frame: DataFrame, _batch_id: int) -> None:
        loader.put(queues[0], 1)  # What arrives in between belongs to another batch.
        seen.append((frame.count(), list(rows_of(frame.union(frame)))))

    query = queries.start(queries.load(startingOffsets="earliest"), twice, availableNow=True)
    assert query.awaitTermination(120)
    (count, rows), *_ = seen
    assert count == 100
    assert rows == sorted(loader.rows(*queues, end=50) * 2)


def test_two_sources_in_one_query(loader: Loader, topic: str, queries: Queries) -> None:
    (here,) = loader.create(topic, 1)
    (there,) = loader.create(f"{topic}-b", 1)
    loader.put(here, 40)
    loader.put(there, 15)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    batches = Batches()
    frame = queries.load(group=f"a-{topic}", **options).union(
        queries.load(subscribe=f"{topic}-b", group=f"b-{topic}", **options)
    )
    assert queries.start(frame, batches, availableNow=True).awaitTermination(120)
    assert batches.rows == loader.rows(here, there)
    assert loader.cluster.committed_offsets(f"a-{topic}", [here]) == {here: 40}
    assert loader.cluster.committed_offsets(f"b-{topic}", [there]) == {there: 15}


def test_an_idle_topic_does_not_keep_a_busy_one_waiting(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (busy,) = loader.create(topic, 1)
    loader.create(f"{topic}-idle", 1)
    batches = Batches()
    frame = queries.load().union(queries.load(subscribe=f"{topic}-idle"))
    query = queries.start(frame, batches)
    queries.until(query, lambda: query.lastProgress is not None)

    def has_rows(count: int) -> bool:
        return len(batches.rows) >= count

    for count in range(1, 6):
        loader.put(busy, 20)
        queries.until(query, partial(has_rows, count * 20))
    planning = [
        progress["durationMs"]["latestOffset"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    # Each source alone may wait 100 ms when the query idles; a batch is never kept for it twice.
    assert min(planning) <= 150, planning


def test_min_offsets_wait_for_more(loader: Loader, topic: str, queries: Queries) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    batches = Batches()
    frame = queries.load(
        startingOffsets="earliest", minOffsetsPerTrigger="20", maxTriggerDelay="1h"
    )
    query = queries.start(frame, batches)
    queries.until(query, lambda: bool(batches.sizes))
    loader.put(queue, 5)
    loader.put(queue, 15)
    queries.until(query, lambda: len(batches.sizes) > 1)
    assert batches.sizes == [5, 20], "only the first batch does not wait"


@pytest.mark.parametrize("is_idle", [True, False])
def test_stop_is_prompt(loader: Loader, topic: str, queries: Queries, is_idle: bool) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 2_000)
    batches = Batches()
    options = {} if is_idle else {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    query = queries.start(queries.load(**options), batches)
    queries.until(query, lambda: query.lastProgress is not None)
    started = time.monotonic()
    query.stop()
    assert time.monotonic() - started < 10


def test_stop_is_prompt_while_the_broker_is_unavailable_and_a_query_survives_its_return(
    queries: Queries, topic: str, tmp_path: Path
) -> None:
    config = BrokerConfig(data_dir=str(tmp_path / "away"), flush="async")
    batches = Batches()
    with Broker(config) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with open_cluster(settings) as cluster:
            (queue,) = Loader(cluster).create(topic, 1)
        options = {"nameServer": broker.name_server}
        query = queries.start(queries.load(**options), batches)
        queries.until(query, lambda: query.lastProgress is not None)
    query.awaitTermination(1)
    assert query.isActive
    with Broker(config) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with open_cluster(settings) as cluster:
            Loader(cluster).put(queue, 5)
        queries.until(query, lambda: len(batches.rows) == 5)
    query.awaitTermination(0.5)  # type: ignore[arg-type]  # Spark takes parts of a second.
    started = time.monotonic()
    query.stop()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "has no meaning in a stream query"),
        ({"consumeMode": "pop"}, "needs the option 'group'"),
        ({"startingOffsets": "group"}, "needs the option 'group'"),
    ],
)
def test_wrong_options_are_refused_by_name(
    loader: Loader, topic: str, queries: Queries, options: dict[str, str], message: str
) -> None:
    loader.create(topic, 1)
    with pytest.raises(PySparkException, match=message):
        queries.available(**options)


def test_a_checkpoint_of_another_version_is_refused_by_name(
    loader: Loader, topic: str, queries: Queries
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    queries.available(startingOffsets="earliest")
    folder = queries.folder / "checkpoint"
    logged = folder / "offsets" / "0"
    logged.write_text(logged.read_text().replace('"version": 1', '"version": 7'))
    (folder / "offsets" / ".0.crc").unlink()
    with pytest.raises(PySparkException, match=r"CHECKPOINT_VERSION\].*version 7"):
        queries.available(startingOffsets="earliest")
