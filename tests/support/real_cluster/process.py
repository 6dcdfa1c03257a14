"""A Java process: started, awaited until its ready line, stopped or killed; never outlives us."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_READY_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 40.0
_LOG_TAIL_LINES: Final = 25
# Below the range from which systems give ports to outgoing connections.
_PORTS: Final = range(20_000, 32_000)
# Its input ends when we do, however that happens; every line names all that must not outlive us.
_GUARD: Final = 'while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -9 $pids'


class Guard:
    """A shell that kills the registered processes once this process is gone.

    A death signal of the kernel would follow the thread that started a process, and tests start
    brokers from threads that end before them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: set[int] = set()
        self._shell: subprocess.Popen[str] | None = None

    def add(self, pid: int) -> None:
        with self._lock:
            self._pids.add(pid)
            self._tell()

    def drop(self, pid: int) -> None:
        with self._lock:
            self._pids.discard(pid)
            self._tell()

    def _tell(self) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["sh", "-c", _GUARD], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, sorted(self._pids))) + "\n")
        self._shell.stdin.flush()


_guard: Final = Guard()


class JavaProcess:
    """`java ARGUMENTS`, writing what it prints to `log`."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path,
        folder: Path,
        ready: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log, self.folder = name, log, folder
        self._arguments, self._ready, self._environment = arguments, ready, environment
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready_seconds: float = _READY_SECONDS) -> JavaProcess:
        """Start and wait for the ready line. Raises RuntimeError with the end of the log."""
        assert not self.is_running, f"{self.name} runs already"
        java = shutil.which("java")
        if java is None:
            raise RuntimeError("no java on the path: ./run test-real finds or installs one")
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for us, who then stop it in order.
            self._process = subprocess.Popen(
                [java, *self._arguments],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, env=self._environment,
            )  # fmt: skip
        _guard.add(self._process.pid)
        if self._ready is not None:
            self.wait_for(self._ready, ready_seconds)
        return self

    def wait_for(self, text: str, seconds: float) -> None:
        """Wait until it has printed something. Raises RuntimeError with the end of the log."""
        deadline = time.monotonic() + seconds
        while text not in self.log.read_text("utf-8", "replace"):
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended with {self.end_code()}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                tail = self.log_tail()
                self.kill()
                raise RuntimeError(f"{self.name} did not say {text!r} in {seconds:g} s\n{tail}")
            time.sleep(0.05)

    def end_code(self, seconds: float = 10.0) -> int:
        """Wait for its end and return its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        code = self._process.wait(seconds)
        _guard.drop(self._process.pid)
        return code

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; what takes too long is killed."""
        try:
            self._signal(signal.SIGTERM, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals, seconds: float = 10.0) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        self.end_code(seconds)

    def pause(self) -> None:
        """Let it stand still: connections stay open and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """The end of what it printed, with where the whole is."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"--- {self.log}", *lines])


def free_port(*beside: int) -> int:
    """A port that is free on every address, as are those at the given distances from it."""
    source = random.SystemRandom()
    for _ in range(200):
        port = source.choice(_PORTS)
        if all(_is_free(port + distance) for distance in (0, *beside)):
            return port
    raise RuntimeError(f"no free ports in {_PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
