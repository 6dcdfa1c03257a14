"""A start on a full tmpfs, where to read a map behind what was written ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.log.commit_log import Segment

_UNSHARED = ("unshare", "--user", "--map-root-user", "--mount")
_FILL = """
import os, sys
from pathlib import Path
from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from support.storage_blocks import block_of, read_all

root = Path(sys.argv[1])
config = StoreConfig(segment_size=1 << 20, queue_file_entries=1_000)
bodies = [b"%05d" % number * 1_000 for number in range(250)]
if os.fork() == 0:
    # Two files of the log, the first with a filler; the process is killed.
    store = Store.open(OsFiles(root / "data"), config, 1)
    for body in bodies:
        store.append("orders", 0, block_of("orders", body), 1)
    store.sync()
    store.publish()
    store.checkpoint()
    os._exit(0)
os.wait()
with (root / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4_096)):
            pass
    except OSError:
        pass
files = OsFiles(root / "data")
assert inspect(files).message_count == len(bodies)
store = Store.open(files, config, 1)
assert read_all(store, "orders") == bodies
print("opened")
"""


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mounting = [*_UNSHARED, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mounting, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this user may not mount a tmpfs of its own")
def test_a_store_on_a_full_tmpfs_is_opened_and_inspected(tmp_path: Path) -> None:
    script = f'mount -t tmpfs -o size=4m tmpfs {tmp_path} && exec "$@"'
    python = [sys.executable, "-c", _FILL, str(tmp_path)]
    ended = subprocess.run(
        [*_UNSHARED, "sh", "-c", script, "sh", *python],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "tests"},
    )
    assert (ended.returncode, ended.stdout) == (0, "opened\n"), ended.stderr


def test_the_tail_is_what_the_map_shows_and_fillers_take_space(tmp_path: Path) -> None:
    size = 4 << 20
    files = OsFiles(tmp_path)
    files.make_directory("commitlog")
    segment = Segment(files, 0, size, create=True)
    segment.write(b"a" * 5_000, 0)
    segment.write(b"b" * 10, 2 << 20)
    for position in (0, 4_999, 5_000, (2 << 20) + 5, size - 1):
        assert bytes(segment.tail(position)) == bytes(segment.view[position:])
    path = tmp_path / segment.name
    assert path.stat().st_blocks * 512 < 1 << 20
    segment.reserve(3 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20
    segment.close()
