"""The jobs of `spark_jobs`, run as an operator runs them: by spark-submit with our `conf`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.accounting.sink_files import read_rows
from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.main import main as rmq
from rocketmq_cli.support.local_spark import QUICK_START
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "spark_jobs"
QUEUES = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerConfig(flush="memory"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield cluster


def produce(broker: Broker, topic: str, start: int, end: int) -> None:
    """Send the numbers as messages, one batch a queue."""
    where = ("--name-server", broker.name_server)
    if start == 0:
        assert rmq(["topic", "create", topic, "--queues", str(QUEUES), *where]) == 0
    middle = (start + end) // 2
    for queue, numbers in enumerate((range(start, middle), range(middle, end))):
        send(broker, topic, queue, map(str, numbers))


def send(broker: Broker, topic: str, queue: int, texts: Iterable[str]) -> None:
    words = [sys.executable, "-m", "rocketmq_cli", "produce", topic, "--queue", str(queue)]
    words += ["--quiet", "--name-server", broker.name_server]
    lines = "".join(f"{text}\n" for text in texts).encode()
    subprocess.run(words, input=lines, check=True, timeout=60)


# spark-submit hands on the driver's standard error in its own standard output.
def submit(job: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]"),
        *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
        *("--conf", "spark.ui.enabled=false", "--driver-java-options", QUICK_START),
        str(JOBS / job),
        *words,
    ]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(ROOT / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


def numbers(bodies: Iterator[bytes] | list[bytes]) -> list[int]:
    return sorted(int(body) for body in bodies)


def test_a_topic_is_copied_up_to_its_end_and_the_group_goes_on_from_there(
    broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    topic, output = "copied", tmp_path / "output"
    produce(broker, topic, 0, 1_000)
    queues = cluster.queues(topic)
    # A group that has read the first ten messages of every queue.
    cluster.commit("copier", dict.fromkeys(queues, 10))
    ended = submit(
        "topic_to_parquet.py",
        *("--name-server", broker.name_server, "--topic", topic),
        *("--start", "group", "--group", "copier", "--output", str(output)),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "980 messages in 2 queues" in ended.stdout
    copied = pq.read_table(output)
    assert numbers(copied["body"].to_pylist()) == [*range(10, 500), *range(510, 1_000)]
    assert cluster.committed_offsets("copier", queues) == dict.fromkeys(queues, 500)


def test_a_dry_run_says_what_would_be_read_and_reads_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    topic, output = "looked-at", tmp_path / "output"
    produce(broker, topic, 0, 100)
    end = json.dumps({topic: {"broker-a": {"0": 7, "1": 50}}})
    words = ("--endpoints", broker.endpoints, "--topic", topic, "--end", end)
    ended = subprocess.run(
        [
            *(sys.executable, str(JOBS / "topic_to_parquet.py")),
            *(*words, "--output", str(output), "--dry-run"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "57 messages in 2 queues" in ended.stderr
    assert not output.exists()


def test_a_stream_that_ends_and_starts_again_writes_every_message_once(
    broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    topic, output = "streamed", tmp_path / "output"
    produce(broker, topic, 0, 1_000)
    words = (
        *("--endpoints", broker.endpoints, "--topic", topic, "--group", "streamer"),
        *("--output", str(output), "--checkpoint", str(tmp_path / "checkpoint")),
        *("--trigger", "available-now", "--max-offsets-per-trigger", "400"),
    )
    first = submit("stream_to_parquet.py", *words)
    assert first.returncode == 0, first.stdout + first.stderr
    assert numbers(read_rows(output, ["body"])["body"].to_pylist()) == list(range(1_000))
    produce(broker, topic, 1_000, 1_200)
    second = submit("stream_to_parquet.py", *words)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "ended after 200 messages" in second.stdout
    assert numbers(read_rows(output, ["body"])["body"].to_pylist()) == list(range(1_200))
    queues = cluster.queues(topic)
    assert cluster.committed_offsets("streamer", queues) == dict.fromkeys(queues, 600)


def test_messages_without_a_time_are_logged_and_all_others_are_summed(
    broker: Broker, tmp_path: Path
) -> None:
    topic, output = "timed", tmp_path / "output"
    produce(broker, topic, 0, 100)
    send(broker, topic, 1, [json.dumps({"at": "tomorrow"})] * 7)
    times = [f"2026-05-01T00:{minute:02}:00Z" for minute in range(50)]
    send(broker, topic, 0, [json.dumps({"at": time}) for time in times])
    ended = submit(
        "windowed_totals.py",
        *("--name-server", broker.name_server, "--topic", topic, "--output", str(output)),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"),
        *("--max-offsets-per-trigger", "80", "--time", "$.at"),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (
        "ended after 157 messages, 107 without a time were not counted, "
        "totals of open windows are not written yet\n"
    ) in ended.stdout
    # The watermark is a minute behind the last one; what it has not passed is not closed yet.
    assert sum(read_rows(output, ["messages"])["messages"].to_pylist()) == 48


@pytest.mark.parametrize(
    ("job", "words", "error"),
    [
        (
            "parquet_to_topic.py",
            ["--topic", "refused", "--input", "{folder}/none", "--checkpoint", "{folder}/c"],
            "there is no {folder}/none: give --input a folder of parquet files",
        ),
        (
            "stream_to_parquet.py",
            ["--topic", "none", "--output", "{folder}/output", "--checkpoint", "{folder}/c"],
            "[ROCKETMQ_TOPIC_NOT_FOUND] no route to topic none. {advice}",
        ),
    ],
)
def test_a_refused_job_prints_one_line_and_no_traceback(
    broker: Broker, tmp_path: Path, job: str, words: list[str], error: str
) -> None:
    if job == "parquet_to_topic.py":
        produce(broker, "refused", 0, 2)
    given = [word.format(folder=tmp_path) for word in words]
    advice = "Create the topic first, or check its spelling and the name server's address."
    ended = submit(job, "--name-server", broker.name_server, *given)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert error.format(folder=tmp_path, advice=advice) in said.splitlines()
    # Neither Java's nor the driver's; Spark's workers may mourn it at its end.
    assert "\tat " not in said
    assert "py4j" not in said
