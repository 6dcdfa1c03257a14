"""`rmq fsck` on stores that are whole, damaged, in use, or no stores at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_broker_sim.storage.files import OsFiles
from rocketmq_broker_sim.storage.settings import StoreConfig
from rocketmq_broker_sim.storage.store import Store
from rocketmq_cli.main import EXIT_FAILED, EXIT_USAGE, main
from support.storage_blocks import block_of

_NOW = 1_700_000_000_000
_SMALL = StoreConfig(segment_size=4096, queue_file_entries=16, seal_size=1024)
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


def test_a_missing_file_of_the_log_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path).close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "is missing" in printed
    assert "damaged    orders/0" in printed


def test_a_store_in_use_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(tmp_path)
    assert main(["fsck", str(tmp_path)]) == EXIT_FAILED
    assert "LOCKED" in capsys.readouterr().err
    store.close()


def test_what_is_no_data_directory_is_a_wrong_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", str(tmp_path / "nowhere")]) == EXIT_USAGE
    assert "no commitlog" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
