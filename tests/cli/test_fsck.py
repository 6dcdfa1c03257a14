"""`rmq fsck` on stores that are whole, damaged, in use, or no stores at all, and its repairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE
from support.documented_fields import documented
from support.storage_blocks import block_of

_NOW = 1_700_000_000_000
_SMALL = StoreConfig(segment_size=4096, queue_file_entries=16, checksum_range_size=1024)
_BODIES = [b"%03d" % number * 20 for number in range(40)]


def filled(root: Path) -> Store:
    store = Store.open(OsFiles(root), _SMALL, _NOW)
    for number, body in enumerate(_BODIES):
        store.append("orders", number % 2, block_of("orders", body), _NOW)
        store.sync()
        store.publish()
    return store


def content_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_sound_store_is_said_to_be_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    assert main(["fsck", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "40 in 2 queues" in printed
    assert "Everything is sound" in printed


def test_damaged_messages_are_named_and_nothing_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    for number in (6, 8, 33):
        for path in (tmp_path / "commitlog").iterdir():
            content = path.read_bytes()
            path.write_bytes(content.replace(_BODIES[number], b"#" * 60))
    before = content_of(tmp_path)
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "orders/0: 3-4\n" in printed
    assert "orders/1: 16\n" in printed
    assert "are not what was written" in printed
    assert content_of(tmp_path) == before


def test_a_torn_file_of_the_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":')
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "config     [ROCKETMQ_STORAGE.CONFIG] file=config/consumerOffset.json: " in printed
    assert "All messages are sound." in printed
    assert main(["fsck", str(tmp_path), "--json"]) == EXIT_FAILED
    shown = json.loads(capsys.readouterr().out)
    assert shown["sound"] is False
    assert [each["file"] for each in shown["configs"]] == ["config/consumerOffset.json"]


def test_a_missing_file_of_the_log_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "is missing" in printed
    assert "damaged    orders/0" in printed


def test_a_long_verification_says_how_far_it_is(tmp_path: Path) -> None:
    filled(tmp_path).close()
    said: list[str] = []
    assert inspect(OsFiles(tmp_path), said.append).is_sound
    assert [line for line in said if line.startswith("comparing")][-1] == "comparing the log: 100 %"
    assert said[-1] == "checking messages: 40"


def damage(root: Path, *numbers: int) -> None:
    for number in numbers:
        for path in (root / "commitlog").iterdir():
            path.write_bytes(path.read_bytes().replace(_BODIES[number], b"#" * 60))


def test_a_repair_sets_damage_aside_and_the_broker_starts_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    damage(tmp_path, 6, 8, 33)
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "lost       orders/0: 3-4\n" in printed
    assert "in all     3 messages lost" in printed
    assert "--repair` sets the damage aside" in printed
    assert not (tmp_path / "quarantine").exists()
    assert main(["fsck", str(tmp_path), "--repair"]) == 0
    assert "quarantine/0001" in capsys.readouterr().out
    copies = b"".join(path.read_bytes() for path in (tmp_path / "quarantine/0001").iterdir())
    assert copies.count(b"#" * 60) == 3
    store = Store.open(OsFiles(tmp_path), _SMALL, _NOW)
    for number in (5, 6, 9, 33, 39):
        found = store.read("orders", number % 2, number // 2, count_max=1, bytes_max=1 << 20)
        assert (found.count, found.lost > 0) == ((0, True) if number in (6, 33) else (1, False))
    store.close()
    assert main(["fsck", str(tmp_path)]) == 0
    assert main(["fsck", str(tmp_path), "--repair"]) == 0
    assert "37 in 2 queues" in capsys.readouterr().out


def test_a_repaired_store_has_nothing_left_to_repair_before_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    damage(tmp_path, 6, 8, 33)
    assert main(["fsck", str(tmp_path), "--repair"]) == 0
    repaired = content_of(tmp_path)
    for options in ([], ["--repair"]):
        capsys.readouterr()
        assert main(["fsck", str(tmp_path), *options]) == 0
        printed = capsys.readouterr().out
        assert "queues     rebuilt from the log at the next start" in printed
        assert "Repaired: the log is sound." in printed
        assert "damage" not in printed
        assert content_of(tmp_path) == repaired
    assert main(["fsck", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sound"], report["rebuilding"], report["messages"]) == (True, True, None)
    Store.open(OsFiles(tmp_path), _SMALL, _NOW).close()
    assert main(["fsck", str(tmp_path)]) == 0
    assert "37 in 2 queues" in capsys.readouterr().out


def test_new_damage_of_a_repaired_store_is_found_before_the_next_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    damage(tmp_path, 6)
    assert main(["fsck", str(tmp_path), "--repair"]) == 0
    damage(tmp_path, 9)
    capsys.readouterr()
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "lost       orders/1: 4\n" in printed
    assert "gives up the messages that are listed as lost" in printed


def test_one_lost_message_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path).close()
    damage(tmp_path, 6)
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    assert "in all     1 message lost\n" in capsys.readouterr().out


def test_a_repair_is_reported_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path).close()
    damage(tmp_path, 6)
    assert main(["fsck", str(tmp_path), "--json"]) == EXIT_FAILED
    report = json.loads(capsys.readouterr().out)
    assert list(report) == documented()["fsck"]
    assert (report["sound"], report["repaired"]) == (False, False)
    assert main(["fsck", str(tmp_path), "--json", "--repair"]) == 0
    assert json.loads(capsys.readouterr().out) == {**report, "repaired": True}
    lost = {"topic": "orders", "queue": 0, "start": 3, "end": 4, "count": 1}
    assert report["repair"]["lost"] == [lost]
    written = (tmp_path / report["repair"]["quarantine"] / "report.json").read_text()
    assert json.loads(written) == report["repair"]
    Store.open(OsFiles(tmp_path), _SMALL, _NOW).close()
    assert main(["fsck", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repair"] is None


def test_a_damaged_queue_is_rebuilt_from_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    queue = tmp_path / "consumequeue/orders/1" / f"{0:020d}"
    entries = queue.read_bytes()
    queue.write_bytes(entries[:60] + entries[80:100] + entries[60:80] + entries[100:])
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "rewritten  consumequeue: by the next start, from the log\n" in printed
    assert "loses no message" in printed
    assert "gives up" not in printed
    assert main(["fsck", str(tmp_path), "--repair"]) == 0
    assert "0 messages lost" in capsys.readouterr().out
    Store.open(OsFiles(tmp_path), _SMALL, _NOW).close()
    assert main(["fsck", str(tmp_path)]) == 0
    assert "40 in 2 queues" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_store_in_use_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    store = filled(tmp_path)
    damage(tmp_path, 6)
    assert main(["fsck", str(tmp_path), *options]) == EXIT_FAILED
    assert "LOCKED" in capsys.readouterr().err
    assert not (tmp_path / "quarantine").exists()
    store.close()


def test_what_is_no_data_directory_is_a_wrong_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", str(tmp_path / "nowhere")]) == EXIT_USAGE
    assert "nowhere does not exist" in capsys.readouterr().err
    assert main(["fsck", str(tmp_path)]) == EXIT_USAGE
    assert "no commitlog" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
