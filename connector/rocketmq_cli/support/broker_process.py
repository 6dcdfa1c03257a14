"""Runs the bundled broker in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.01


class BrokerProcess:
    """One broker over one data directory; after a restart it serves at the same addresses."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.name_server = ""
        self.endpoints = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log_path(self) -> Path:
        return self._directory / "broker.out"

    def start(self) -> None:
        """Start the broker and wait until it serves.

        Raises RuntimeError with the end of its output if it does not.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        ready_file = self._directory / "ready.json"
        ready_file.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "rocketmq_broker"),
            *("--data-dir", str(self._directory / "data"), "--port", "0"),
            *("--ready-file", str(ready_file), "--exit-with-parent"),
            # The broker must not delete messages because the machine's disk is nearly full.
            *("--set", "disk_use_percent_max=100"),
            *self._options,
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        ready = self._wait_for(ready_file)
        self.name_server, self.endpoints = ready["nameServer"], ready.get("endpoints") or ""

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, signal_number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_for(self, ready_file: Path) -> dict[str, Any]:
        assert self._process is not None
        give_up_at = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < give_up_at:
            if (ready := _read_if_whole(ready_file)) is not None:
                return ready
            if self._process.poll() is not None:
                break
            time.sleep(_POLL_S)
        self.kill()
        output = self.log_path.read_bytes()[-2_000:].decode(errors="replace")
        raise RuntimeError(f"the broker did not start; its output:{os.linesep}{output}")


def _read_if_whole(path: Path) -> dict[str, Any] | None:
    try:
        ready: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return ready
