"""The jobs of `spark_jobs` in this process: what they read and send, and what they refuse."""

from __future__ import annotations

import signal
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.jobs.arguments import interval, microseconds_of
from pyspark_rocketmq.jobs.session import files_in, require_rows_fit
from rocketmq_broker import Broker
from rocketmq_client.download.contract import ReadSpec
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import OffsetRange, QueueId
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendBack, SendMessage
from spark_jobs import (
    lag_report,
    parquet_to_topic,
    redrive_dead_letters,
    stream_to_parquet,
    topic_to_parquet,
    windowed_totals,
)
from support.frames import assert_rows
from support.loader import Loader

Read = Callable[..., DataFrame]
ZLIB_FLAG = 1


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """Jobs listen to SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def where(spark: SparkSession, broker: Broker) -> list[str]:
    """The cluster; jobs take the session that is there."""
    del spark
    return ["--name-server", broker.name_server]


def bodies(frame: DataFrame) -> dict[int, list[bytes]]:
    """What each queue holds, in its order."""
    found: dict[int, list[bytes]] = {}
    for row in frame.orderBy("queueId", "queueOffset").collect():
        found.setdefault(row.queueId, []).append(bytes(row.body))
    return found


# --- topic_to_parquet -----------------------------------------------------------------------


def moment() -> datetime:
    """A time that nothing was, or will be, stored at: brokers count milliseconds."""
    time.sleep(0.02)
    now = datetime.now(timezone.utc)
    time.sleep(0.02)
    return now


def test_a_copy_between_two_times_passes_over_queues_that_have_nothing_there(
    where: list[str], loader: Loader, topic: str, tmp_path: Path
) -> None:
    """One queue is empty, one idle since before the start, one has messages in between."""
    _, idle, busy = loader.create(topic, 3)
    loader.put(idle, 5)
    start = moment()
    loader.put(busy, 7)
    end = moment()
    loader.put(busy, 2)
    words = [*where, "--topic", topic, "--start", start.isoformat()]
    for name, more, count in (
        ("between", ["--end", end.isoformat()], 7),
        ("up to now", [], 9),
        ("up to later", ["--end", (end + timedelta(hours=1)).isoformat()], 9),
    ):
        output = tmp_path / name
        topic_to_parquet.main([*words, *more, "--output", str(output)])
        copied = pq.read_table(output)
        assert sorted(copied["body"].to_pylist()) == sorted(loader.sent[busy][:count])
        assert set(copied["queueId"].to_pylist()) == {busy.index}


@pytest.mark.parametrize(
    ("start", "end"), [("2020-01-01", "2020-02-01"), ("2120-01-01", "2120-02-01")]
)
def test_a_copy_of_times_without_messages_has_no_rows(
    where: list[str], loader: Loader, topic: str, tmp_path: Path, start: str, end: str
) -> None:
    loader.put(loader.create(topic, 2)[0], 5)
    output = tmp_path / "output"
    words = [*where, "--topic", topic, "--start", start, "--end", end, "--output", str(output)]
    topic_to_parquet.main(words)
    assert (output / "_SUCCESS").exists()
    assert sum(pq.read_table(path).num_rows for path in output.glob("*.parquet")) == 0


def test_an_output_that_is_there_already_is_refused_with_what_to_say(
    where: list[str], loader: Loader, topic: str, tmp_path: Path
) -> None:
    loader.put(loader.create(topic, 1)[0], 3)
    words = [*where, "--topic", topic, "--output", str(tmp_path)]
    with pytest.raises(JobError, match=r"is there already: say --mode append or overwrite"):
        topic_to_parquet.main(words)
    topic_to_parquet.main([*words, "--mode", "append"])
    assert pq.read_table(tmp_path).num_rows == 3


# --- parquet_to_topic -----------------------------------------------------------------------


def write_files(folder: Path, **columns: list[object]) -> Path:
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder


def replay(where: list[str], files: Path, topic: str, *words: str) -> None:
    checkpoint = files.with_name(f"{files.name}-checkpoint")
    words = ("--topic", topic, "--input", str(files), "--checkpoint", str(checkpoint), *words)
    parquet_to_topic.main([*where, *words])


def test_each_message_of_a_replay_lands_in_the_queue_it_came_from(
    where: list[str], loader: Loader, topic: str, read: Read, tmp_path: Path
) -> None:
    queues = loader.create(topic, 4)
    for count, queue in zip((30, 0, 7, 1), queues, strict=True):
        loader.put(queue, count)
    copy, again = tmp_path / "copy", f"again-{topic}"
    # More queues than there were are no trouble.
    loader.create(again, 6)
    topic_to_parquet.main([*where, "--topic", topic, "--output", str(copy)])
    replay(where, copy, again, "--keep-queues")
    sent = {queue.index: messages for queue, messages in loader.sent.items() if messages}
    assert bodies(read(subscribe=again)) == sent


def test_a_replay_into_a_topic_with_fewer_queues_sends_nothing(
    where: list[str], loader: Loader, topic: str, read: Read, tmp_path: Path
) -> None:
    loader.create(topic, 2)
    rows: list[object] = [b"a", b"b", b"c", b"d"]
    files = write_files(tmp_path / "files", body=rows, queueId=[0, 7, None, 3])
    error = r"name queue 3, 7, and \S+ has 2 queues for writing. Nothing was sent. .*--keep-queues"
    with pytest.raises(JobError, match=error):
        replay(where, files, topic, "--keep-queues")
    assert read().count() == 0
    replay(where, files, topic)
    assert read().count() == 4


def test_rows_name_the_broker_of_a_queue_where_there_are_several(spark: SparkSession) -> None:
    names, queues = ["queueId", "brokerName"], [QueueId("t", "a", 0), QueueId("t", "b", 1)]

    def rows(*values: tuple[int | None, str | None]) -> DataFrame:
        return spark.createDataFrame(values, "queueId INT, brokerName STRING")

    require_rows_fit(rows((0, "a"), (1, "b"), (None, None)), names, queues)
    with pytest.raises(JobError, match=r"name queue 0 of b, 1 of a, and t has 2 queues"):
        require_rows_fit(rows((0, "b"), (1, "a"), (1, "b")), names, queues)


def test_a_replay_of_what_is_not_there_is_refused_with_what_to_give(
    where: list[str], loader: Loader, topic: str, tmp_path: Path
) -> None:
    loader.create(topic, 1)
    empty = tmp_path / "empty"
    empty.mkdir()
    for files, error in (
        (tmp_path / "missing", "there is no .*missing: give --input"),
        (empty, "no parquet files in .*empty: give --input"),
        (write_files(tmp_path / "other", n=[1], Body=["x"]), "no column body, .* only n, Body"),
    ):
        with pytest.raises(JobError, match=error):
            replay(where, files, topic)


def test_files_are_looked_for_without_what_is_in_them(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "n=1"
    assert files_in(spark, str(folder)) is None
    folder.mkdir()
    assert files_in(spark, str(folder)) == []
    (folder / "a").write_bytes(b"\xff")
    (found,) = files_in(spark, str(tmp_path)) or []
    assert found.endswith("/n=1/a")


# --- topics that are not there --------------------------------------------------------------


def test_a_missing_topic_is_reported_before_the_job_starts(
    where: list[str], loader: Loader, tmp_path: Path
) -> None:
    files = write_files(tmp_path / "files", body=["x"], queueId=[0])
    (queue,) = loader.create("there-alone", 1)
    loader.put(queue, 1)
    kill(loader, queue, [0], "group-of-none")
    output = ["--topic", "there-alone,none", "--output", str(tmp_path / "output")]
    stream = [*output, "--checkpoint", str(tmp_path / "checkpoint")]
    sent = ["--topic", "none", "--input", str(files), "--checkpoint", str(tmp_path / "c")]
    redriven = ["--group", "group-of-none", "--to", "none"]
    for job, words in (
        (topic_to_parquet, output),
        (stream_to_parquet, stream),
        (windowed_totals, stream),
        (parquet_to_topic, sent),
        (parquet_to_topic, [*sent, "--keep-queues"]),
        (redrive_dead_letters, redriven),
        (redrive_dead_letters, [*redriven, "--dry-run"]),
        (lag_report, ["--topic", "none", "--group", "g"]),
    ):
        with pytest.raises(TopicNotFoundError, match=r"no route to topic none. Create the topic"):
            job.main([*where, *words])
    assert not (tmp_path / "output").exists()


def test_the_files_of_another_query_are_refused(
    where: list[str], loader: Loader, topic: str, tmp_path: Path
) -> None:
    """Spark's file sink would skip batches that have the numbers of those that are there."""
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 3)
    words = [*where, "--topic", topic, "--output", str(tmp_path / "output")]
    words += ["--trigger", "available-now", "--checkpoint"]
    stream_to_parquet.main([*words, str(tmp_path / "first")])
    loader.put(queue, 3)
    with pytest.raises(JobError, match=r"files of a query whose checkpoint is not .*second"):
        stream_to_parquet.main([*words, str(tmp_path / "second")])
    stream_to_parquet.main([*words, str(tmp_path / "first")])
    assert pq.read_table(tmp_path / "output").num_rows == 6


def test_a_stream_that_has_begun_judges_a_missing_topic_by_itself(
    where: list[str], loader: Loader, topic: str, tmp_path: Path
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 3)
    words = [*where, "--topic", topic, "--output", str(tmp_path / "output"), "--trigger"]
    words += ["available-now", "--checkpoint", str(tmp_path / "checkpoint")]
    stream_to_parquet.main(words)
    loader.cluster.delete_topic(topic)
    stream_to_parquet.main([*words, "--option", "failOnDataLoss=false"])


# --- redrive_dead_letters -------------------------------------------------------------------


def send_body(loader: Loader, queue: QueueId, body: bytes, sys_flag: int = 0) -> None:
    properties = encode_properties({"UNIQ_KEY": f"key-{len(body)}"})
    now_ms = int(time.time() * 1_000)
    request = SendMessage("test", queue, now_ms, body, properties, sys_flag=sys_flag)
    loader.cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)


def kill(loader: Loader, queue: QueueId, offsets: list[int], group: str) -> None:
    """These messages become dead letters of the group."""
    cluster = loader.cluster
    cluster.pull(queue, 0, 1, group=group)
    ranges = [OffsetRange(queue, offset, offset + 1) for offset in offsets]
    for chunk in cluster.read_ranges(ranges, ReadSpec("test")):
        message, _ = decode_record(chunk.body, 0)
        request = SendBack(group, message.physical_offset, -1, "", queue.topic)
        cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
    loader.await_end(QueueId(f"%DLQ%{group}", queue.broker, 0), len(offsets))


def redrive(where: list[str], group: str, *words: str) -> None:
    redrive_dead_letters.main([*where, "--group", group, *words])


def test_dead_letters_are_sent_to_another_topic_once(
    where: list[str], loader: Loader, topic: str, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 6, tag="B")
    group, other = f"group-{topic}", f"other-{topic}"
    kill(loader, queue, [1, 4], group)
    loader.create(other, 2)
    for _ in range(2):
        redrive(where, group, "--to", other)
        dead = [(loader.sent[queue][offset], "B", "k") for offset in (1, 4)]
        assert_rows(read(subscribe=other), dead, "body BINARY, tags STRING, keys STRING")
        assert read().count() == 6
    said = capsys.readouterr().err
    assert f"2 to {other}" in said
    assert f"0 dead letters of {group}" in said


def test_a_dead_letter_that_fits_only_compressed_comes_back_unchanged(
    where: list[str], loader: Loader, topic: str, read: Read
) -> None:
    """Brokers take 4 MiB, of what is stored; a body may be larger when it is read."""
    (queue,) = loader.create(topic, 1)
    large = b"".join(b"%09d" % number for number in range(600_000))
    packed = zlib.compress(large)
    assert len(packed) < 4 * 1024 * 1024 < len(large)
    send_body(loader, queue, b"small")
    send_body(loader, queue, packed, ZLIB_FLAG)
    loader.await_end(queue, 2)
    group = f"group-{topic}"
    kill(loader, queue, [0, 1], group)
    with pytest.raises(Exception, match=r"\[ROCKETMQ_SEND.TOO_LARGE\]"):
        redrive(where, group, "--option", "compression=none", "--start", "earliest")
    before = read().count()
    redrive(where, group)
    columns = "queueId INT, queueOffset BIGINT, body BINARY, sysFlag INT"
    again = read(columns).where(sf.col("queueOffset") >= before).collect()
    assert sorted(bytes(row.body) for row in again) == [large, b"small"]
    assert {row.sysFlag & ZLIB_FLAG for row in again if len(row.body) > 5} == {ZLIB_FLAG}


# --- lag_report -----------------------------------------------------------------------------


def test_a_lag_is_measured_as_often_as_is_said(
    where: list[str],
    loader: Loader,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loader.put(loader.create(topic, 2)[0], 5)
    words = [*where, "--topic", topic, "--group", f"group-{topic}"]
    assert lag_report.main(words) == 0
    assert capsys.readouterr().err.count("5 messages") == 1
    began = time.monotonic()
    every = ["--every", "0.3", "--times", "3", "--messages-max", "4"]
    assert lag_report.main([*words, *every, "--output", str(tmp_path / "lag")]) == 2
    assert time.monotonic() - began >= 2 * 0.3
    assert capsys.readouterr().err.count("5 messages") == 3
    rows = pq.read_table(tmp_path / "lag").to_pylist()
    assert sorted((row["queueId"], row["messages"]) for row in rows) == [(0, 5)] * 3 + [(1, 0)] * 3
    assert len({row["measured"] for row in rows}) == 3


# --- lengths of time ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("10 seconds", " 1 Minute ", "interval 1 day 12 hours", "1.5 seconds 250 milliseconds"),
        *("2 weeks", "5214 weeks", "99999999 microseconds", "1 second 2 seconds"),
    ],
)
def test_spark_takes_what_we_take_for_a_length_of_time(spark: SparkSession, text: str) -> None:
    stream = spark.readStream.format("rate").load()
    stream.writeStream.trigger(processingTime=interval(text))
    window = sf.window("timestamp", text).alias("window")
    frame = stream.withWatermark("timestamp", text).groupBy(window).count()
    assert frame.columns == ["window", "count"]
    length = sf.expr("unix_micros(window.end) - unix_micros(window.start)").alias("us")
    (row,) = spark.range(1).select(sf.window(sf.current_timestamp(), text)).select(length).collect()
    assert row.us == microseconds_of(text)
