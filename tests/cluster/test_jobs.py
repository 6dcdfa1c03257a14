"""Every job by spark-submit, in local mode and on one master with two workers.

The executors' Python does not have our package: it reaches them as the README says, as a zip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.accounting.sink_files import read_rows
from documents.blocks import blocks_of
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import MessageColumns, Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, OffsetRange, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendBack
from support.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]
ORDERS = 3_000
SECONDS_MAX = 900


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our package as a zip: a wheel by another name."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel.rename(folder / "pyspark_rocketmq.zip")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with what we depend on and without us: no .pth file is looked at."""
    script = tmp_path_factory.mktemp("python") / "python"
    site = sysconfig.get_paths()["purelib"]
    script.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{sys.executable}" -S "$@"\n'
    )
    script.chmod(0o755)
    check = subprocess.run([script, "-c", "import pyarrow, pyspark_rocketmq"], capture_output=True)
    assert b"No module named 'pyspark_rocketmq'" in check.stderr
    return script


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandaloneCluster]:
    folder = tmp_path / "standalone"
    folder.mkdir()
    with StandaloneCluster(folder) as running:
        yield running


Submit = Callable[..., str]


@pytest.fixture
def start(
    request: pytest.FixtureRequest, package: Path, python: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Starts a job; the test's parameter says where."""
    master = (
        "local[2]" if request.param == "local" else request.getfixturevalue("standalone").master
    )

    def spark_submit(job: str, *words: str) -> subprocess.Popen[str]:
        command = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", master, "--executor-memory", "512m", "--py-files", str(package)),
            *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
            str(ROOT / "spark_jobs" / job),
            *words,
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": str(package),
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("PYSPARK_DRIVER_PYTHON", None)
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    return spark_submit


@pytest.fixture
def submit(start: Callable[..., subprocess.Popen[str]]) -> Submit:
    """Runs a job and returns what it said."""

    def run(job: str, *words: str, code: int = 0) -> str:
        ended = start(job, *words)
        said, _ = ended.communicate(timeout=SECONDS_MAX)
        assert ended.returncode == code, said
        return said

    return run


def order(number: int) -> bytes:
    at = f"2026-05-01T{number // 3_600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    fields = {"n": number, "customer": f"c{number % 7}", "amount": number / 4, "at": at}
    return json.dumps(fields).encode()


def produce(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(TopicConfig(topic, 4, 4))
    queues = cluster.queues(topic)
    with Producer(cluster) as producer:
        requests = [
            producer.column_request(
                queue,
                MessageColumns(
                    pa.array([order(number) for number in numbers], pa.binary()),
                    tags=pa.array(["odd" if number % 2 else "even" for number in numbers]),
                    keys=pa.array([f"order-{number}" for number in numbers]),
                ),
            )
            for queue, numbers in (
                (queue, range(first, ORDERS, len(queues))) for first, queue in enumerate(queues)
            )
        ]
        for sent in producer.send_many(requests):
            assert not isinstance(sent.result, Exception)


def stored(cluster: Cluster, topic: str) -> list[int]:
    """The numbers of the orders in a topic, sorted."""
    found = []
    queues = cluster.queues(topic)
    ranges = [
        OffsetRange(queue, held.start, held.end)
        for queue, held in cluster.bounds(queues).items()
        if isinstance(held, Bounds)
    ]
    for chunk in cluster.read_ranges(ranges, ReadSpec("test")):
        position = 0
        while position < len(chunk.body):
            message, position = decode_record(chunk.body, position)
            if chunk.start <= message.queue_offset < chunk.end:
                found.append(json.loads(message.body)["n"])
    return sorted(found)


def numbers(table: pa.Table) -> list[int]:
    return sorted(json.loads(body)["n"] for body in table["body"].to_pylist())


LOCAL_AND_CLUSTER = pytest.mark.parametrize("start", ["local", "standalone"], indirect=True)


@LOCAL_AND_CLUSTER
def test_all_jobs_one_after_the_other(
    submit: Submit, broker: Broker, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mode = request.node.callspec.params["start"]
    topic, again = f"orders-{mode}", f"again-{mode}"
    produce(cluster, topic)
    cluster.create_topic(TopicConfig(again, 4, 4))
    where = ("--name-server", broker.name_server)
    everything = list(range(ORDERS))

    copy = str(tmp_path / "copy")
    said = submit("topic_to_parquet.py", *where, "--topic", topic, "--output", copy)
    assert f"{ORDERS:,} messages in 4 queues" in said
    assert numbers(pq.read_table(copy)) == everything

    streamed = tmp_path / "streamed"
    now = ("--trigger", "available-now")
    words = (
        *(*where, "--topic", topic, "--output", str(streamed), "--group", f"job-{mode}", *now),
        *("--checkpoint", str(tmp_path / "c1"), "--max-offsets-per-trigger", "2000"),
    )
    assert f"ended after {ORDERS:,} messages" in submit("stream_to_parquet.py", *words)
    assert numbers(read_rows(streamed, ["body"])) == everything

    check_totals(submit, where, topic, tmp_path)

    rate = ORDERS / 4
    replay = (*where, "--input", copy, "--topic", again, "--checkpoint", str(tmp_path / "c3"))
    began = time.monotonic()
    said = submit("parquet_to_topic.py", *replay, "--rate", str(rate))
    assert f"ended after {ORDERS:,} messages" in said
    assert time.monotonic() - began > 3
    assert stored(cluster, again) == everything
    # The checkpoint knows that all of it is sent.
    assert "ended after 0 messages" in submit("parquet_to_topic.py", *replay)

    check_redrive(submit, where, cluster, again, f"failing-{mode}")
    check_lag(submit, where, topic, f"job-{mode}", tmp_path / "lag")


def check_totals(submit: Submit, where: tuple[str, ...], topic: str, folder: Path) -> None:
    output = folder / "totals"
    words = (
        *(*where, "--topic", topic, "--output", str(output), "--checkpoint", str(folder / "c2")),
        *("--by", "$.customer", "--sum", "$.amount", "--time", "$.at", "--trigger"),
        *("available-now", "--watermark", "1 minute", "--max-offsets-per-trigger", "1000"),
    )
    assert f"ended after {ORDERS:,} messages" in submit("windowed_totals.py", *words)
    rows = read_rows(output, ["key", "messages", "total"])
    # Orders are a second apart: what is closed ends a minute and more before the last one.
    closed = range((ORDERS - 1 - 60) // 60 * 60)
    assert rows.num_rows == len(closed) // 60 * 7
    assert sum(rows["messages"].to_pylist()) == len(closed)
    assert sum(rows["total"].to_pylist()) == sum(number / 4 for number in closed)


def check_redrive(
    submit: Submit, where: tuple[str, ...], cluster: Cluster, topic: str, group: str
) -> None:
    """Some messages become dead letters at once, and come back to their topic once."""
    # The replay needed few requests, so some queues may have got nothing.
    queue = max(
        cluster.bounds(cluster.queues(topic)).items(),
        key=lambda item: item[1].end if isinstance(item[1], Bounds) else 0,
    )[0]
    cluster.pull(queue, 0, 1, group=group)
    before = stored(cluster, topic)
    dead = []
    for chunk in cluster.read_ranges([OffsetRange(queue, 0, 5)], ReadSpec("test")):
        position = 0
        while position < len(chunk.body):
            message, position = decode_record(chunk.body, position)
            if message.queue_offset < 5:
                request = SendBack(group, message.physical_offset, -1, "", topic)
                cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
                dead.append(json.loads(message.body)["n"])
    words = (*where, "--group", group)
    assert "5 dead letters" in submit("redrive_dead_letters.py", *words, "--dry-run")
    assert stored(cluster, topic) == before
    assert f"5 to {topic}" in submit("redrive_dead_letters.py", *words)
    assert stored(cluster, topic) == sorted(before + dead)
    assert "0 dead letters" in submit("redrive_dead_letters.py", *words)
    assert stored(cluster, topic) == sorted(before + dead)
    # A run for one tag does not count the dead letters of the other tag as sent.
    odd = [number for number in dead if number % 2]
    for tag, sent in (("odd", odd), ("even", dead), ("odd", dead)):
        submit("redrive_dead_letters.py", *words, "--tags", tag)
        assert stored(cluster, topic) == sorted(before + dead + sent)


def check_lag(submit: Submit, where: tuple[str, ...], topic: str, group: str, output: Path) -> None:
    words = (*where, "--topic", topic, "--group", group, "--group", "nobody", "--output")
    said = submit("lag_report.py", *words, str(output), "--messages-max", "100", code=2)
    assert f"{group}: 0 messages, 0.0 seconds behind, in 0 of 4 queues" in said
    assert f"nobody: {ORDERS:,} messages" in said
    table = pq.read_table(output)
    assert sum(table["messages"].to_pylist()) == ORDERS
    assert table.num_rows == 8


def test_the_page_on_deploying_submits_its_job(
    standalone: StandaloneCluster,
    package: Path,
    python: Path,
    broker: Broker,
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    """With its own commands, by executors that do not have the package."""
    produce(cluster, "orders")
    page = blocks_of((ROOT / "docs" / "deploying.md").read_text(encoding="utf-8"))
    needed = ("cat > /tmp/count_orders.py", "--master spark://master:7077")
    (write,), (submit,) = ([b.text for b in page if words in b.text] for words in needed)
    text = (write + submit).replace("/tmp/", f"{tmp_path}/")
    text = text.replace("spark://master:7077", standalone.master)
    ended = subprocess.run(
        ["bash", "-euc", text.replace("127.0.0.1:9876", broker.name_server)],
        cwd=package.parent,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert f"{ORDERS} orders" in ended.stdout.splitlines(), ended.stderr


STANDALONE = pytest.mark.parametrize("start", ["standalone"], indirect=True)


@dataclass(frozen=True)
class Bereaved:
    """Runs a job and kills a worker when it has said something."""

    start: Callable[..., subprocess.Popen[str]]
    workers: StandaloneCluster

    def run(self, said_before: str, job: str, *words: str) -> str:
        """What the job said; it must end well. Killed is what runs its tasks."""
        said = []
        is_killed = False
        with self.start(job, *words) as running:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line)
                if said_before in line and not is_killed:
                    self.workers.kill_worker(0)
                    is_killed = True
        assert running.returncode == 0, "".join(said)
        assert is_killed, "".join(said)
        return "".join(said)


@pytest.fixture
def bereaved(
    start: Callable[..., subprocess.Popen[str]], standalone: StandaloneCluster
) -> Bereaved:
    return Bereaved(start, standalone)


@pytest.mark.short
@STANDALONE
def test_a_stream_into_files_outlives_a_worker_that_is_killed(
    bereaved: Bereaved, broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    """Nothing is lost and nothing there twice: Spark runs the dead worker's tasks again."""
    topic, output = "outlived", tmp_path / "output"
    produce(cluster, topic)
    bereaved.run(
        "batch 2 ",
        "stream_to_parquet.py",
        *("--name-server", broker.name_server, "--topic", topic, "--output", str(output)),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"),
        *("--max-offsets-per-trigger", "300"),
    )
    assert numbers(read_rows(output, ["body"])) == list(range(ORDERS))


@STANDALONE
def test_totals_outlive_a_worker_that_is_killed(
    bereaved: Bereaved, broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    """The state that died with it is read from the checkpoint: each message counts once."""
    topic, output = "totalled", tmp_path / "output"
    produce(cluster, topic)
    said = bereaved.run(
        "batch 2 ",
        "windowed_totals.py",
        *("--name-server", broker.name_server, "--topic", topic, "--output", str(output)),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "available-now"),
        *("--max-offsets-per-trigger", "300", "--time", "$.at", "--by", "$.customer"),
        *("--watermark", "1 minute"),
    )
    reported = re.search(r"ended after ([\d,]+) messages", said)
    # Spark counts the rows of a task again if it repeats the task.
    assert reported, said
    assert int(reported[1].replace(",", "")) >= ORDERS
    assert "not counted" not in said
    assert "too late" not in said
    closed = (ORDERS - 1 - 60) // 60 * 60
    assert sum(read_rows(output, ["messages"])["messages"].to_pylist()) == closed


@STANDALONE
def test_a_copy_outlives_a_worker_that_is_killed(
    start: Callable[..., subprocess.Popen[str]],
    standalone: StandaloneCluster,
    broker: Broker,
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    """It is killed when the first of a hundred tasks have written their files."""
    topic, output = "copied-on", tmp_path / "output"
    produce(cluster, topic)
    with start(
        "topic_to_parquet.py",
        *("--name-server", broker.name_server, "--topic", topic, "--output", str(output)),
        *("--option", f"maxRecordsPerPartition={ORDERS // 100}"),
    ) as job:
        deadline = time.monotonic() + SECONDS_MAX
        while not [*output.glob("_temporary/0/task_*")]:
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        standalone.kill_worker(0)
        assert not (output / "_SUCCESS").exists()
        said, _ = job.communicate(timeout=SECONDS_MAX)
    assert job.returncode == 0, said
    assert numbers(pq.read_table(output)) == list(range(ORDERS))


@STANDALONE
def test_a_replay_outlives_a_worker_that_is_killed(
    bereaved: Bereaved, submit: Submit, broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    """Nothing is lost: what the dead worker had sent of its task is sent again."""
    topic, again, copy = "to-replay", "replayed", str(tmp_path / "copy")
    produce(cluster, topic)
    cluster.create_topic(TopicConfig(again, 4, 4))
    where = ("--name-server", broker.name_server)
    submit(
        "topic_to_parquet.py",
        *(*where, "--topic", topic, "--output", copy),
        *("--option", f"maxRecordsPerPartition={ORDERS // 20}"),
    )
    bereaved.run(
        "batch 1 ",
        "parquet_to_topic.py",
        *(*where, "--input", copy, "--topic", again, "--files-per-batch", "2"),
        *("--checkpoint", str(tmp_path / "checkpoint")),
        *("--rate", "300", "--tasks", "2"),
    )
    assert sorted(set(stored(cluster, again))) == list(range(ORDERS))
