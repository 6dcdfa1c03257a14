"""Ctrl-C, threads, and a Python that was started by its path: real signals to real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_cli.support.local_spark import QUICK_START
from support.loader import Loader

# Two programs that start Spark of their own, beside the suite's.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SUBMIT = ("--conf", "spark.ui.enabled=false", "--driver-java-options", QUICK_START)
# No option of the session finds the source, and no PATH.
SCRIPT = f"""
import sys, threading, time
import pyspark_rocketmq
from pyspark.sql import SparkSession

name_server, topic, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "{QUICK_START}").getOrCreate()
)
options = {{"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest"}}
query = (
    spark.readStream.format("rocketmq").options(**options).load()
    .writeStream.format("noop").option("checkpointLocation", checkpoint).start()
)

# Making it is what would repair the session.
rows = spark.createDataFrame([("a",)], "body STRING")

def write(word):
    try:
        sink = rows.write.format("rocketmq").option("nameServer", name_server)
        sink.option("topic", topic).mode("append").save()
        print("written", word, flush=True)
    except Exception as error:
        print(str(error).split("]")[0], flush=True)

def in_a_thread():
    write("lost")
    pyspark_rocketmq.restore_session(spark)
    write("threaded")

pyspark_rocketmq.show_progress(query)
print("shown", query.isActive, flush=True)
write("shown")
thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()

# Spark's handler hangs if the signal comes after its call was sent and before it reads the answer.
def say_when_it_waits():
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "readinto":
        time.sleep(0.01)
    print("waiting", flush=True)

try:
    threading.Thread(target=say_when_it_waits).start()
    query.awaitTermination()
except KeyboardInterrupt:
    write("interrupted")
    pyspark_rocketmq.restore_session()
    write("restored")
query.stop()
"""


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    """A program in a terminal of its own: a signal to its group is Ctrl-C."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    return subprocess.Popen(
        words,
        env=kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": f"{ROOT}/conf"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_until(program: subprocess.Popen[str], text: str) -> None:
    assert program.stdout is not None
    seen = []
    for line in program.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"it never said {text!r}:\n{''.join(seen)}")


def interrupted(program: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what it says after Ctrl-C."""
    os.killpg(program.pid, signal.SIGINT)
    said, _ = program.communicate(timeout=120)
    return program.returncode, said


def test_a_session_writes_after_ctrl_c_and_from_threads(
    broker: Broker, loader: Loader, topic: str, tmp_path: Path
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 1)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    where = (broker.name_server, topic, str(tmp_path / "checkpoint"))
    with started(sys.executable, str(script), *where, PATH="/usr/bin:/bin") as program:
        try:
            read_until(program, "batch 0")
            os.kill(program.pid, signal.SIGINT)
            read_until(program, "query.stop() ends it")
            for line in ("shown True", "written shown", "[DATA_SOURCE_NOT_FOUND"):
                read_until(program, line)
            read_until(program, "written threaded")
            read_until(program, "waiting")
            os.kill(program.pid, signal.SIGINT)
            read_until(program, "written restored")
        finally:
            program.kill()


def test_a_job_ends_on_ctrl_c_with_one_line(
    broker: Broker, loader: Loader, topic: str, tmp_path: Path
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 1)
    program = started(
        *(f"{Path(sys.executable).parent}/spark-submit", *SUBMIT),
        *(str(ROOT / "spark_jobs" / "stream_to_parquet.py"), "--topic", topic),
        *("--name-server", broker.name_server, "--output", str(tmp_path / "output")),
        *("--checkpoint", str(tmp_path / "checkpoint")),
        PYSPARK_PYTHON=sys.executable,
    )
    try:
        read_until(program, "Ctrl-C or SIGTERM ends it")
        read_until(program, "batch 0")
        assert interrupted(program) == (130, "ended by Ctrl-C\n")
    finally:
        program.kill()
