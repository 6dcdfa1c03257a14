"""What measurements on a real broker stand on: RocketMQ, a loaded topic, a Java reader."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from bench.bed import say
from bench.load import QUEUES, batch_request, create_topic
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, OffsetRange
from rocketmq_wire.requests.messages import SendBatch
from support.real_cluster import RealCluster
from support.real_cluster.java import class_path, compile_program, make_home

VERSION: Final = "5.3.3"
TOPIC: Final = "bench100"
BODY_SIZE: Final = 100
# What a real broker gives at most: of what is in memory, and of older data.
PULL_BATCH_SIZE: Final = 32
PULL_BATCH_SIZE_ON_DISK: Final = 8
_BATCH: Final = 500
_PROGRAM: Final = Path(__file__).parents[1] / "java" / "LitePull.java"
_QUIET_SECONDS: Final = 30.0
_COMPLAINTS_MAX: Final = 2_000
# The brokers' default file sizes.
_BROKER_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
}


class RealBed:
    """A name server and a broker of their own, and the topic on them. Use it in `with`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._stack = ExitStack()

    def __enter__(self) -> RealBed:
        folder = Path(tempfile.mkdtemp(prefix="rocketmq-bench-real-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            say(f"starting RocketMQ {VERSION}")
            self._cluster = RealCluster(VERSION, folder)
            self._stack.callback(self._cluster.close)
            self._cluster.start_name_server()
            self._cluster.add_broker("broker-a", **_BROKER_SETTINGS)
            say(f"loading {self.count:,} messages of {BODY_SIZE} bytes into {TOPIC}")
            self._load()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def settings(self) -> ConnectionSettings:
        return self._cluster.settings

    @property
    def name_server(self) -> str:
        return self._cluster.name_server

    @property
    def broker_address(self) -> str:
        return self._cluster.master.address

    def ranges(self) -> list[OffsetRange]:
        """All of the topic, queue by queue."""
        with self._cluster.open() as cluster:
            bounds = cluster.bounds(cluster.queues(TOPIC))
        found = []
        for queue, bounds_of_queue in bounds.items():
            assert isinstance(bounds_of_queue, Bounds), bounds_of_queue
            found.append(OffsetRange(queue, bounds_of_queue.start, bounds_of_queue.end))
        return sorted(found, key=lambda wanted: wanted.queue.index)

    def treat_as_on_disk(self) -> None:
        """Let the broker take everything for older than its memory: it gives 8 a pull then."""
        bounds_of_queue = ("-b", self.broker_address)
        setting = ("-k", "accessMessageInMemoryMaxRatio", "-v", "0")
        self._cluster.admin("updateBrokerConfig", *bounds_of_queue, *setting)

    @cached_property
    def lite_pull(self) -> LitePull:
        """The Java client in a process of its own; ends with the bed."""
        home = make_home(Path(self._stack.enter_context(tempfile.TemporaryDirectory())))
        return self._stack.enter_context(LitePull(self, home))

    def _load(self) -> None:
        create_topic(self.settings, TOPIC)
        acknowledged = 0
        with Producer(self.settings, "bench-producer") as producer:
            self._await_route(producer)
            for sent in producer.send_many(self._batches(producer)):
                if isinstance(sent.result, RocketMQError):
                    raise sent.result
                acknowledged += sent.result.count
        self._await_queues()

    def _batches(self, producer: Producer) -> Iterator[SendBatch]:
        each = self.count // QUEUES
        for first in range(0, each, _BATCH):
            for queue in producer.queues(TOPIC):
                yield batch_request(queue, first, min(_BATCH, each - first), BODY_SIZE)

    def _await_route(self, producer: Producer) -> None:
        """The name server hears of a new topic a moment after it was made."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while True:
            try:
                if len(producer.queues(TOPIC)) == QUEUES:
                    return
            except RocketMQError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"the name server never heard of {TOPIC}")
            time.sleep(0.1)

    def _await_queues(self) -> None:
        """A broker makes its queues behind its log: wait until they hold everything."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while (found := sum(wanted.end - wanted.start for wanted in self.ranges())) < self.count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the queues hold {found} of {self.count} messages")
            time.sleep(0.1)
        assert found == self.count


class JavaRead(NamedTuple):
    messages: int
    seconds: float


class LitePull:
    """One JVM, warm from its first read on; every `read` is a consumer of its own."""

    def __init__(self, bed: RealBed, home: Path) -> None:
        # The JVM's own settings: what it measures shall be what users have.
        self._command = [
            *("java", f"-Duser.home={home}", "-Djava.net.preferIPv4Stack=true", "-Xmx1g"),
            *("-cp", class_path(VERSION, compile_program(VERSION, _PROGRAM)), _PROGRAM.stem),
            *(bed.name_server, TOPIC, str(bed.count), str(PULL_BATCH_SIZE)),
        ]
        self._home = home

    def __enter__(self) -> LitePull:
        self._complaints = self._home / "lite-pull.err"
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        self._await("ready")
        return self

    def __exit__(self, *_: object) -> None:
        # The end of its input ends it; whatever it still does is of no use to anybody.
        self._process.kill()
        self._process.communicate()

    def read(self) -> JavaRead:
        """Read the topic once; the seconds are those from the first pull to the last message."""
        assert self._process.stdin is not None
        self._process.stdin.write("read\n")
        self._process.stdin.flush()
        messages, nanoseconds = self._await("").split()
        return JavaRead(int(messages), int(nanoseconds) / 1e9)

    def _await(self, text: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not (line.startswith(text) if text else line[:1].isdigit()):
            line = self._process.stdout.readline()
        if not line:
            said = self._complaints.read_text(errors="replace")[-_COMPLAINTS_MAX:]
            raise RuntimeError(f"the Java reader ended: {said}")
        return line
