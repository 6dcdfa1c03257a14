"""Files of the operating system have all written bytes, also of large writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import StorageError

PIECE = 256 * 1024


@pytest.mark.parametrize("size", [0, 1, PIECE - 7, PIECE, 3 * PIECE + 5])
@pytest.mark.parametrize("position", [0, 7, PIECE])
def test_a_write_of_several_pieces_is_complete(tmp_path: Path, size: int, position: int) -> None:
    file = OsFiles(tmp_path).open("log", create=True)
    data = bytes(index * 7 % 251 for index in range(size))
    file.pwrite(memoryview(data), position)
    try:
        assert file.pread(size, position) == data
        assert file.size() == (position + size if size else 0)
        assert file.pread(position, 0) == bytes(position if size else 0)
    finally:
        file.close()


def test_a_refused_write_names_its_position(tmp_path: Path) -> None:
    file = OsFiles(tmp_path).open("log", create=True)
    file.close()
    with pytest.raises(StorageError) as caught:
        file.pwrite(bytes(2 * PIECE), 5)
    assert (caught.value.file, caught.value.position) == ("log", 5)


def test_other_users_read_neither_files_nor_folders(tmp_path: Path) -> None:
    root = tmp_path / "above" / "data"
    files = OsFiles(root)
    files.make_directory("commitlog")
    files.open("commitlog/0", create=True).close()
    modes = [path.stat().st_mode & 0o777 for path in (root, *sorted(root.rglob("*")))]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/out", "a//b", "a/./b", "a/", "a\0b", "n" * 256, "é" * 128]
)
def test_a_name_that_leaves_the_directory_or_cannot_be_is_refused(
    tmp_path: Path, name: str
) -> None:
    files = OsFiles(tmp_path / "data")
    for work in (
        lambda: files.open(name, create=True),
        lambda: files.names(name),
        lambda: files.make_directory(name),
        lambda: files.remove_directory(name),
        lambda: files.rename("a", name),
        lambda: files.unlink(name),
        lambda: files.sync_directory(name),
    ):
        with pytest.raises(StorageError, match=r"the name|no such name"):
            work()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
