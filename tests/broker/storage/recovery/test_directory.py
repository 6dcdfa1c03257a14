"""Which directories a broker takes for its data, and what it says of the others."""

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
from rocketmq_broker.storage.recovery.directory import check_data_directory


def test_an_empty_directory_and_one_to_be_made_are_fine(tmp_path: Path) -> None:
    check_data_directory(str(tmp_path))
    check_data_directory(str(tmp_path / "below" / "it"))
    (tmp_path / "lost+found").mkdir()
    check_data_directory(str(tmp_path))


def test_a_brokers_directory_is_taken_again_whatever_else_is_in_it(tmp_path: Path) -> None:
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
def test_what_a_broker_left_is_taken_over(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    check_data_directory(str(tmp_path))


def test_a_directory_of_other_files_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("main.py", "config", "a.txt", "b.txt", "z.txt"):
        (tmp_path / name).mkdir()
    with pytest.raises(DataDirectoryError) as refused:
        Broker(BrokerConfig(data_dir=str(tmp_path))).start()
    told = str(refused.value)
    assert told.startswith(f"[ROCKETMQ_STORAGE.DIRECTORY] data directory {tmp_path}: it holds")
    assert "(a.txt, b.txt, main.py, ...)" in told
    assert "--data-dir" in told
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt", "config", "main.py", "z.txt"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match=r"file is not a directory\. Give"):
            check_data_directory(str(place))


@contextlib.contextmanager
def foreign_directory() -> Iterator[Path]:
    """A directory that this process, for a while somebody without rights, may only read."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield place
    finally:
        os.seteuid(user)
        place.chmod(0o755)
        shutil.rmtree(place)


def test_a_directory_that_can_only_be_read_is_named_with_the_remedy() -> None:
    with foreign_directory() as place:
        for wanted in (place, place / "data"):
            with pytest.raises(DataDirectoryError) as refused:
                check_data_directory(str(wanted))
            assert f"data directory {wanted}: " in str(refused.value)
            assert "cannot be written to by this user. Give" in str(refused.value)


def test_a_directory_that_the_system_does_not_make_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataDirectoryError) as refused:
        OsFiles(tmp_path / "data")
    told = f"data directory {tmp_path}/data: it cannot be created (No such file or directory). Give"
    assert told in str(refused.value)
    assert "byte=" not in str(refused.value)


def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    lock = OsFiles(tmp_path).lock("lock")
    try:
        with pytest.raises(StoreLockedError, match=rf"data directory {tmp_path} is in use\. Stop"):
            OsFiles(tmp_path).lock("lock")
    finally:
        lock.close()
