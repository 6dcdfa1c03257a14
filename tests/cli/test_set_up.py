"""`rmq checkpoint` and `rmq check`: what lies on a disk, what is wrong with a set-up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli import checks
from rocketmq_cli.checks import Finding
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import BrokerAddresses, QueueId
from rocketmq_wire.requests.brokers import GetBrokerSettings, SettingsReply
from rocketmq_wire.requests.contract import Reply, Request
from support.scripted_broker import Script, ScriptedBroker
from support.simulated_queue import SimulatedQueue

OFFSET = {
    "version": 1,
    "births": {},
    "offsets": {"orders": {"broker-a": {"0": 10, "1": 20}}},
    "starts": {},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two finished batches, one that was planned; the second source is not ours."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in range(3):
        ours = {**OFFSET, "offsets": {"orders": {"broker-a": {"0": 10 * batch, "1": 20}}}}
        lines = ["v1", json.dumps({"batchTimestampMs": 1}), json.dumps(ours), '{"other":1}', "-"]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
        if batch < 2:
            (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    (tmp_path / "offsets" / ".2.crc").write_bytes(b"")
    return tmp_path


def test_a_checkpoint_shows_its_newest_finished_batch(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "show", str(checkpoint)]) == 0
    printed = capsys.readouterr().out
    assert "batch 1, finished" in printed
    assert "batch 2 is planned and will be run again" in printed
    assert main(["checkpoint", "show", str(checkpoint), "--batch", "2", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["next"], first["finished"], second["queue"]) == (20, False, 1)


def test_a_checkpoint_gives_the_text_for_starting_offsets(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "show", str(checkpoint), "--as-starting-offsets"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text) == {"orders": {"broker-a": {"0": 10, "1": 20}}}


def write_offsets(root: Path, batch: int, *sources: dict[str, object]) -> None:
    (root / "offsets").mkdir(exist_ok=True)
    lines = ["v1", json.dumps({"batchTimestampMs": 1}), *map(json.dumps, sources)]
    (root / "offsets" / str(batch)).write_text("\n".join(lines))


def offset_of(offsets: dict[str, int], starts: dict[str, int]) -> dict[str, object]:
    return {
        "version": 1,
        "births": {},
        "offsets": {"orders": {"broker-a": offsets}},
        "starts": {"orders": {"broker-a": starts}},
    }


def starting_offsets(
    root: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, object]:
    assert main(["checkpoint", "show", str(root), "--as-starting-offsets", *words]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_first_batch_that_is_not_finished_is_begun_again_not_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_offsets(tmp_path, 0, offset_of({"0": 500}, {"0": 7}))
    assert starting_offsets(tmp_path, capsys) == {"orders": {"broker-a": {"0": 7}}}
    assert main(["checkpoint", "show", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["finished"], shown["start"], shown["next"]) == (False, 7, 500)
    assert main(["checkpoint", "show", str(tmp_path)]) == 0
    assert "begins at" in capsys.readouterr().out


def test_a_planned_batch_begins_where_the_one_before_ended_and_where_it_is_anchored(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_offsets(checkpoint, 2, offset_of({"0": 30, "1": 40, "2": 9}, {"1": 35, "2": 0}))
    wanted = {"orders": {"broker-a": {"0": 10, "1": 35, "2": 0}}}
    assert starting_offsets(checkpoint, capsys, "--batch", "2") == wanted
    finished = {"orders": {"broker-a": {"0": 10, "1": 20}}}
    assert starting_offsets(checkpoint, capsys, "--batch", "1") == finished


def test_a_planned_batch_whose_beginning_is_not_kept_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_offsets(tmp_path, 7, offset_of({"0": 500, "1": 20}, {"1": 7}))
    assert main(["checkpoint", "show", str(tmp_path), "--as-starting-offsets"]) == EXIT_USAGE
    assert "does not contain its start" in capsys.readouterr().err
    assert main(["checkpoint", "show", str(tmp_path), "--json"]) == 0
    shown = [json.loads(line)["start"] for line in capsys.readouterr().out.splitlines()]
    assert shown == [None, 7]


def test_a_source_that_pops_is_said_to_have_no_offsets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pops: dict[str, object] = {"batch": 3, "run": "ab", "version": 1}
    write_offsets(tmp_path, 3, pops)
    assert main(["checkpoint", "show", str(tmp_path)]) == EXIT_USAGE
    assert "source 0 of batch 3 pops (consumeMode=pop)" in capsys.readouterr().err
    write_offsets(tmp_path, 0, offset_of({"0": 5}, {"0": 1}), pops)
    assert starting_offsets(tmp_path, capsys, "--batch", "0", "--source", "0") == {
        "orders": {"broker-a": {"0": 1}}
    }
    words = ["checkpoint", "show", str(tmp_path), "--batch", "0", "--source", "1"]
    assert main(words) == EXIT_USAGE
    assert "pops" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--batch", "9"), ("--source", "1"), ("--source", "x")], ids=str)
def test_what_a_checkpoint_does_not_have_is_said(
    words: tuple[str, ...], checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "show", str(checkpoint), *words]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("rmq: ")


def test_a_folder_that_is_no_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "show", str(tmp_path)]) == EXIT_USAGE
    assert "is no checkpoint" in capsys.readouterr().err
    assert main(["checkpoint", "show", str(tmp_path / "nowhere")]) == EXIT_USAGE
    assert f"{tmp_path}/nowhere does not exist on this machine" in capsys.readouterr().err


def test_check_finds_a_sound_cluster_and_a_missing_topic(
    broker: Broker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "--no-spark", "--name-server", broker.name_server]
    assert main(words) == 0
    assert f"{broker.name_server} knows 1 broker\n" in capfd.readouterr().out
    assert main([*words, "--topic", topic]) == 0
    assert f"ok    topic            {topic}: 1 queue, 0 messages" in capfd.readouterr().out
    assert main([*words, "--topic", topic[:-1] + "x"]) == EXIT_FAILED
    assert f"Did you mean '{topic}'?" in capfd.readouterr().out


def test_check_says_what_to_do_when_nobody_answers(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--no-spark", "--name-server", "127.0.0.1:1", "--json"]) == EXIT_FAILED
    (line,) = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["check"], found["state"]) == ("cluster", "FAIL")
    assert "127.0.0.1:1" in found["do"]


def test_check_names_the_option_for_a_grpc_port(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--no-spark", "-n", broker.endpoints, "--json"]) == EXIT_FAILED
    (line,) = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert "Give it as --endpoints" in found["found"]
    assert found["do"] == ""


QUEUE = QueueId("orders", "broker-a", 0)


def found_at(broker: ScriptedBroker, timeout_ms: int = 5_000) -> list[Finding]:
    settings = ConnectionSettings(name_servers=(broker.address,))
    return [found for found in checks.check(settings, None, timeout_ms) if found.what == "broker"]


def hangs_up(request: Request[Reply]) -> Reply | None:
    if isinstance(request, GetBrokerSettings):
        raise OSError("hung up")
    return None


def says_nothing(request: Request[Reply]) -> Reply | None:
    return ScriptedBroker.SILENCE if isinstance(request, GetBrokerSettings) else None


@pytest.mark.parametrize("script", [says_nothing, hangs_up])
def test_check_fails_a_broker_that_does_not_answer(script: Script) -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 0)}) as broker:
        broker.script = script
        (found,) = found_at(broker, 400)
    assert found.state == "FAIL"
    assert f"broker-a at {broker.address} does not answer" in found.found


def test_check_fails_an_advertised_address_that_nobody_reaches() -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 0)}) as broker:
        broker.published = "127.0.0.1:1"
        (found,) = found_at(broker)
    assert (found.state, "broker-a at 127.0.0.1:1 cannot be" in found.found) == ("FAIL", True)
    assert "brokerIP1" in found.remedy


def test_check_fails_a_broker_of_which_only_slaves_are_there() -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 0)}) as broker:
        broker.script = shows({})
        broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {1: broker.address}),)
        slave, master = found_at(broker)
    assert (slave.state, slave.found) == ("FAIL", "broker-b has no master")
    assert master.state == "ok  "


def shows(settings: dict[str, str]) -> Script:
    return lambda request: (
        SettingsReply(settings) if isinstance(request, GetBrokerSettings) else None
    )


@pytest.mark.parametrize(
    ("settings", "state"),
    [({"enablePropertyFilter": "false"}, "note"), ({"enablePropertyFilter": "true"}, "ok  ")],
    ids=str,
)
def test_check_says_where_sql_filters_are_off(settings: dict[str, str], state: str) -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 0)}) as broker:
        broker.script = shows(settings)
        (found,) = found_at(broker)
    assert found.state == state
    assert ("property_filter = true at the bundled" in found.remedy) == (state == "note")


def test_a_broker_that_keeps_its_settings_to_itself_is_no_failure() -> None:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 0)}) as broker:
        broker.script = lambda request: (
            BrokerError(16, "no permission") if isinstance(request, GetBrokerSettings) else None
        )
        (found,) = found_at(broker)
    assert (found.state, "does not show its settings" in found.found) == ("note", True)


def test_a_java_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = checks.java()
    assert (found.state, "17" in found.remedy) == ("FAIL", True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024' >&2\n")
    (found,) = checks.java()
    assert found.state == "ok  "


def test_a_worker_with_another_python_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.8.1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    _, found = checks.python()
    assert (found.state, "3.8.1" in found.found) == ("FAIL", True)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    _, found = checks.python()
    assert found.state == "ok  "


def test_a_package_that_hides_every_source_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "pyspark_broken"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no such wheel')\n")
    code = "from rocketmq_cli.checks import discovery; print([*discovery()][0].found)"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/bin", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pyspark_broken cannot be imported (ImportError: no such wheel)" in ended.stdout


def test_the_source_is_looked_for_in_the_python_that_spark_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\ncase $2 in 'import pyspark_'*) exit 1; esac\n")
    other.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (found,) = checks.discovery()
    assert found.state == "FAIL"
    assert found.found == (
        f"Spark looks for it in python3 of PATH, {other}, which has no pyspark_rocketmq"
    )
    export = f"export PYSPARK_PYTHON={sys.executable}"
    assert found.remedy == f"{export}, or import pyspark_rocketmq before the session starts"
    # The import leaves a Python that is set as it is.
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    (found,) = checks.discovery()
    assert found.remedy == export
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (found,) = checks.discovery()
    assert found.state == "ok  "
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(tmp_path / "jupyter"))
    (found,) = checks.discovery()
    assert (found.state, "jupyter, which does not run" in found.found) == ("FAIL", True)
