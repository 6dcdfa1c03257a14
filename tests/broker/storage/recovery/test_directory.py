"""The directories that a broker accepts for its data, and the errors for all others."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import DataDirectoryError, StoreLockedError
from rocketmq_broker.storage.recovery.recover import check_data_directory


def test_an_empty_directory_and_a_missing_one_are_accepted(tmp_path: Path) -> None:
    check_data_directory(str(tmp_path))
    check_data_directory(str(tmp_path / "below" / "it"))
    (tmp_path / "lost+found").mkdir()
    check_data_directory(str(tmp_path))


def test_a_brokers_directory_is_accepted_again_with_other_files_in_it(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=str(tmp_path / "data"), flush="async")
    with Broker(config):
        pass
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with Broker(config):
        pass


@pytest.mark.parametrize(
    "names",
    [
        ["commitlog", "consumequeue", "index", "config", "checkpoint", "timerwheel", "rocksdb"],
        ["lock"],
        ["config", "durable.mark.tmp"],
    ],
    ids=["RocketMQ's", "a start that ended at once", "a crash while starting"],
)
def test_the_directory_of_a_stopped_broker_is_accepted(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    check_data_directory(str(tmp_path))


def test_a_directory_of_other_files_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("main.py", "config", "a.txt", "b.txt", "z.txt"):
        (tmp_path / name).mkdir()
    with pytest.raises(DataDirectoryError) as refused:
        Broker(BrokerConfig(data_dir=str(tmp_path))).start()
    text = str(refused.value)
    assert text.startswith(f"[ROCKETMQ_STORAGE.DIRECTORY] data directory {tmp_path}: it holds")
    assert "(a.txt, b.txt, main.py, ...)" in text
    assert "--data-dir" in text
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt", "config", "main.py", "z.txt"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match=r"file is not a directory\. Give"):
            check_data_directory(str(directory))


@contextlib.contextmanager
def read_only_directory() -> Iterator[Path]:
    """A directory that this process may only read: for a while it runs as another user."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield directory
    finally:
        os.seteuid(user)
        directory.chmod(0o755)
        shutil.rmtree(directory)


def test_a_read_only_directory_is_named_with_the_remedy() -> None:
    with read_only_directory() as directory:
        for wanted in (directory, directory / "data"):
            with pytest.raises(DataDirectoryError) as refused:
                check_data_directory(str(wanted))
            assert f"data directory {wanted}: " in str(refused.value)
            assert "cannot be written to by this user. Give" in str(refused.value)


def test_a_directory_that_cannot_be_created_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataDirectoryError) as refused:
        OsFiles(tmp_path / "data")
    text = f"data directory {tmp_path}/data: it cannot be created (No such file or directory). Give"
    assert text in str(refused.value)
    assert "byte=" not in str(refused.value)


def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    lock = OsFiles(tmp_path).lock("lock")
    try:
        with pytest.raises(StoreLockedError, match=rf"data directory {tmp_path} is in use\. Stop"):
            OsFiles(tmp_path).lock("lock")
    finally:
        lock.close()
