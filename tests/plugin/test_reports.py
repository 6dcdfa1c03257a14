"""Runs of pytest with the plugin: reports of failures, settings, several processes."""

from __future__ import annotations

import logging
import re
from pathlib import Path

# Runs within this process forget what they imported; numpy and pyarrow cannot be imported twice.
import pyarrow.compute  # noqa: F401
import pytest

import pytest_rocketmq.handle  # noqa: F401
import rocketmq_broker  # noqa: F401
from pytest_rocketmq.logs import RecentLines

pytest_plugins = ["pytester"]

# What the tests of a run need; the rest of this suite's settings stays outside.
QUIET = ("-p", "no:cacheprovider", "-p", "no:randomly")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_it(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*QUIET, *arguments)

    return run_it


FAILING = """
import logging

def test_it(rocketmq):
    for number in range(50):
        logging.getLogger("rocketmq_broker.engine").warning("line %d", number)
    assert rocketmq.consume_all() == ["something"]

def test_without_a_broker():
    assert False
"""


def test_a_failure_shows_the_brokers_last_log_lines(run) -> None:
    result = run(FAILING, "-o", "rocketmq_log_lines=3", "-p", "no:logging")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*RocketMQ broker 127.0.0.1:*: last log lines*"])
    shown = [line for line in result.stdout.lines if "rocketmq_broker.engine: line" in line]
    assert [line.rpartition(" ")[2] for line in shown] == ["47", "48", "49"]


ORDINARY = """
def test_it(rocketmq):
    rocketmq.produce(["x"])
    assert len(rocketmq.consume_all()) == 2
"""


def test_a_failure_shows_what_an_ordinary_broker_logs(run) -> None:
    logger = logging.getLogger("rocketmq_broker")
    before = logger.level
    result = run(ORDINARY)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*RocketMQ broker *: last log lines*", "* INFO rocketmq_broker.*"])
    said = result.stdout.str()
    assert "it logged nothing" not in said
    assert "store opened: log from 0 to 0\n" in said
    assert "RecoveryReport" not in said
    assert logger.level == before
    quiet = run(ORDINARY, "-o", "rocketmq_log_lines=0", "-p", "no:logging").stdout.str()
    assert "RocketMQ broker" not in quiet


def test_several_brokers_in_this_process_leave_the_logger_as_it_was() -> None:
    logger = logging.getLogger("rocketmq_broker")
    before = logger.level
    one, other = RecentLines(), RecentLines()
    with one:
        other.__enter__()
    # The first has ended before the second.
    logger.info("said")
    other.__exit__()
    assert (one.lines(), len(other.lines())) == ([], 1)
    assert logger.level == before


def test_an_existing_cluster_keeps_its_own_log(run, rocketmq) -> None:
    source = "def test_it(rocketmq_noproc):\n    assert not rocketmq_noproc.topic"
    result = run(source, "--rocketmq-name-server", rocketmq.name_server)
    result.assert_outcomes(failed=1)
    where = f"RocketMQ at {rocketmq.name_server}"
    result.stdout.fnmatch_lines([f"*{where}*", "*its brokers log on their own machines*"])
    assert "last log lines" not in result.stdout.str()


def test_a_server_that_failed_a_test_shows_its_log(run) -> None:
    result = run("def test_it(rocketmq_server):\n    assert rocketmq_server.topic == 'x'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: last log lines*", "*RocketMQ broker broker-a is ready*"])


def test_a_success_shows_no_log(run) -> None:
    result = run("def test_it(rocketmq):\n    rocketmq.produce(['x'])")
    result.assert_outcomes(passed=1)
    assert "last log lines" not in result.stdout.str()


def test_an_existing_cluster_must_be_named(run) -> None:
    result = run("def test_it(rocketmq_noproc):\n    pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*rocketmq_noproc needs a cluster: give --rocketmq-name-server*"])


def test_an_existing_cluster_is_left_unchanged(run, rocketmq) -> None:
    before = rocketmq.cluster.topics()
    source = """
def test_it(rocketmq_noproc):
    rocketmq_noproc.produce(["x", "y"])
    assert len(rocketmq_noproc.consume_all()) == 2
"""
    run(source, "--rocketmq-name-server", rocketmq.name_server).assert_outcomes(passed=1)
    assert rocketmq.cluster.topics() == before


def test_the_fixtures_are_listed_with_what_they_are_for(run) -> None:
    listed = run("", "--fixtures").stdout.str()
    for name in ("rocketmq", "rocketmq_server", "rocketmq_noproc", "rocketmq_factory"):
        assert f"{name} -- " in listed
    for name in ("rocketmq_faults", "spark_rocketmq", "collect_stream"):
        assert f"{name}" in listed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_documented_tests_pass_with_a_spark_of_their_own(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    source = "\n".join(block for block in blocks if block.startswith("def test_"))
    source += """
def test_the_session_is_the_plugins_own(spark_rocketmq):
    assert spark_rocketmq.sparkContext.appName == "pytest-rocketmq"
    assert spark_rocketmq.sparkContext.master == "local[2]"
    assert spark_rocketmq.conf.get("spark.ui.enabled") == "false"
"""
    pytester.makepyfile(source)
    # In a process of its own, which has no session yet, as other projects' tests have none.
    pytester.runpytest_subprocess(*QUIET, timeout=240).assert_outcomes(passed=6)


@pytest.mark.slow
def test_several_processes_share_nothing(run, rocketmq) -> None:
    source = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(rocketmq, rocketmq_noproc, number):
    for handle in (rocketmq, rocketmq_noproc):
        handle.produce([str(number)])
        assert [each.body for each in handle.consume_all()] == [str(number).encode()]
"""
    result = run(source, "-n", "2", "--rocketmq-name-server", rocketmq.name_server)
    result.assert_outcomes(passed=6)
