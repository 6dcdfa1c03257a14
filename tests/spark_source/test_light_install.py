"""What works without grpcio and protobuf, and what says in one line that it needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('grpc', 'grpc_health', 'google')));"
READ = """
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_rocketmq import DefaultSource

options = {"nameServer": sys.argv[1], "subscribe": "orders"}
reader = DefaultSource(options).reader(StructType([StructField("body", BinaryType())]))
batches = [batch for part in reader.partitions() for batch in reader.read(part)]
print([body.as_py() for batch in batches for body in batch["body"]])
"""


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}{code}", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def rmq(*words: str) -> subprocess.CompletedProcess[str]:
    return run("from rocketmq_cli.main import main; sys.exit(main(sys.argv[1:]))", *words)


def test_a_name_server_is_read_without_grpcio_and_protobuf(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\n")
    with Broker(BrokerConfig(flush="memory")) as broker:
        where = ("--name-server", broker.name_server)
        assert main(["topic", "create", "orders", *where]) == 0
        assert main(["produce", "orders", str(tmp_path / "lines"), "--quiet", *where]) == 0
        assert rmq("tail", "orders", *where).stdout == "a\n"
        done = run(READ, broker.name_server)
    assert done.stdout == "[b'a']\n", done.stderr


def test_endpoints_without_grpcio_say_what_to_install() -> None:
    done = rmq("topic", "list", "--endpoints", "127.0.0.1:1")
    assert done.returncode == EXIT_FAILED
    assert done.stderr == (
        "rmq: [ROCKETMQ_INSTALL.MISSING] the option endpoints needs the package grpcio, which is "
        "not installed. Install it by pip install 'pyspark-rocketmq[broker]'.\n"
    )


def test_a_broker_without_its_packages_says_what_to_install() -> None:
    done = rmq("serve", "--memory", "--port", "0")
    assert done.returncode == EXIT_FAILED
    (line,) = done.stderr.splitlines()
    assert line.startswith("rocketmq broker: [ROCKETMQ_INSTALL.MISSING] the broker's gRPC service")


def test_a_fixture_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(rocketmq_faults): pass\n")
    (tmp_path / "grpc_health.py").write_text(
        "raise ModuleNotFoundError('none here', name='grpc_health')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "[ROCKETMQ_INSTALL.MISSING]" in done.stdout
    assert "process.start()" not in done.stdout
    assert "Traceback" not in done.stdout


def test_the_source_without_spark_says_what_to_install() -> None:
    done = run("sys.modules['pyspark'] = None; import pyspark_rocketmq")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pyspark_rocketmq needs the package pyspark, which is not installed. "
        "Install it by pip install 'pyspark-rocketmq[spark]'."
    )
