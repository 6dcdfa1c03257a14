"""The broker as a process: its options, its ready file, and every way to end it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from rocketmq_broker.__main__ import add_arguments, config_of
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.errors import ConfigError
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.requests.messages import PullMessages, SendBatch, SendMessage, SendReply
from rocketmq_wire.requests.offsets import GetMaxOffset
from rocketmq_wire.requests.topics import CreateTopic
from support.remoting_peer import RemotingPeer
from support.storage_blocks import bodies_of

ORDERS_0 = QueueId("orders", "broker-a", 0)
START_SECONDS_MAX = 60


def parse(*words):
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return config_of(parser.parse_args(words))


class TestOptions:
    def test_without_options_everything_has_its_default(self):
        assert parse() == BrokerConfig()

    def test_command_line_wins_over_the_file(self, tmp_path):
        path = tmp_path / "broker.toml"
        path.write_text('port = 1000\nretention_hours = 5\nflush = "async"\n')
        config = parse(
            *("--config", str(path), "--port", "2000", "--set", "retention_hours=6", "--memory")
        )
        assert (config.port, config.retention_hours, config.flush) == (2000, 6, "memory")

    def test_unknown_key_is_refused_with_the_nearest_one(self):
        with pytest.raises(ConfigError, match=r"did you mean 'flush'"):
            parse("--set", "flus=sync")

    def test_a_wrong_way_to_flush_is_refused_also_in_memory(self):
        with pytest.raises(ConfigError, match="one of sync, async, memory"):
            parse("--memory", "--set", "flush=snyc")


class Process:
    """A broker process that has printed its addresses."""

    def __init__(self, directory, *words, command=None):
        self.ready_file = directory / "ready.json"
        self.command = command or [sys.executable, "-m", "rocketmq_broker"]
        self.command += [*words, "--ready-file", str(self.ready_file)]
        self.popen = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.ready_file.exists():
            assert self.popen.poll() is None, self.popen.communicate()
            assert time.monotonic() < deadline, "the broker did not get ready"
            select.select([], [], [], 0.01)
        self.ready = json.loads(self.ready_file.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.communicate()

    def end(self, number):
        """Send a signal; returns the exit status and the output."""
        self.popen.send_signal(number)
        output, errors = self.popen.communicate(timeout=START_SECONDS_MAX)
        return self.popen.returncode, output, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly(tmp_path, number):
    with Process(tmp_path, "--data-dir", str(tmp_path / "data")) as process:
        ready = process.ready
        assert ready["pid"] == process.popen.pid
        with RemotingPeer(ready["nameServer"]) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            peer.call(SendMessage("p", ORDERS_0, 1, b"one"))
        status, output, errors = process.end(number)
        assert (status, errors) == (0, "")
        assert f"nameServer={ready['nameServer']}\n" in output
        assert f"endpoints={ready['endpoints']}\n" in output
        assert not process.ready_file.exists()
    # No trace of a running broker is left; RocketMQ's abort file would mean that it was killed.
    assert not (tmp_path / "data" / "abort").exists()


def test_killed_broker_comes_back_at_its_address_with_every_acknowledged_message(tmp_path):
    words = ("--data-dir", str(tmp_path / "data"), "--set", "grpc=false")
    with Process(tmp_path, *words) as process:
        before = process.ready["nameServer"]
        with RemotingPeer(before) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            for number in range(50):
                peer.call(SendMessage("p", ORDERS_0, 1, b"%d" % number))
        assert process.end(signal.SIGKILL)[0] == -signal.SIGKILL
        process.ready_file.unlink()
    with Process(tmp_path, *words) as process:
        assert process.ready["nameServer"] == before
        with RemotingPeer(before) as peer:
            assert peer.call(GetMaxOffset(ORDERS_0)).value == 50


def test_broker_killed_amid_sends_keeps_what_it_acknowledged_in_order_and_once(tmp_path):
    words = ("--data-dir", str(tmp_path / "data"), "--set", "grpc=false")
    acknowledged = 0
    with Process(tmp_path, *words) as process:
        with RemotingPeer(process.ready["nameServer"]) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            for number in range(400):
                entries = [BatchEntry(0, b"%d" % (number * 10 + at), b"") for at in range(10)]
                peer.start(SendBatch("p", ORDERS_0, 1, encode_batch(entries)))
            for _ in range(100):
                assert peer.next_reply(SendReply).start == acknowledged
                acknowledged += 10
            # The other sends are somewhere between the socket and the disk.
            process.end(signal.SIGKILL)
        process.ready_file.unlink()
    with Process(tmp_path, *words) as process, RemotingPeer(process.ready["nameServer"]) as peer:
        reply = peer.call(PullMessages("g", ORDERS_0, 0, 10_000))
        bodies = bodies_of([memoryview(part) for part in reply.records])
        assert len(bodies) == reply.end >= acknowledged
        assert bodies == [b"%d" % number for number in range(reply.end)]
        assert peer.call(SendMessage("p", ORDERS_0, 1, b"next")).start == reply.end


def test_what_cannot_start_says_why_in_one_line(tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "rocketmq_broker", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=False
        )

    wrong = run("--set", "prot=1")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "did you mean 'port'" in wrong.stderr
    words = ("--data-dir", str(tmp_path / "data"))
    with Process(tmp_path, *words):
        second = run(*words)
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "ROCKETMQ_STORAGE.LOCKED" in second.stderr


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie process has ended, too.
    status = f"/proc/{pid}/stat"
    if os.path.exists(status):
        with open(status, encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    return True


@pytest.mark.skipif(os.name != "posix", reason="processes have no parents to lose elsewhere")
def test_broker_ends_with_the_process_that_started_it(tmp_path):
    starter = (
        "import subprocess, sys, threading\n"
        # A thread starts the broker and ends: that alone must not end the broker.
        "thread = threading.Thread(target=lambda: subprocess.Popen(sys.argv[1:]))\n"
        "thread.start(); thread.join()\n"
        "sys.stdin.read()\n"
    )
    ready_file = tmp_path / "ready.json"
    command = [sys.executable, "-c", starter, sys.executable, "-m", "rocketmq_broker"]
    command += ["--memory", "--exit-with-parent", "--ready-file", str(ready_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as parent:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready_file.exists():
            assert time.monotonic() < deadline
            select.select([], [], [], 0.01)
        ready = json.loads(ready_file.read_text())
        # Longer than the broker waits between two checks of its parent.
        select.select([], [], [], 1.2)
        with RemotingPeer(ready["nameServer"]) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
        parent.kill()
    deadline = time.monotonic() + START_SECONDS_MAX
    while is_alive(ready["pid"]):
        assert time.monotonic() < deadline, "the broker outlived its parent"
        select.select([], [], [], 0.01)
    assert not ready_file.exists()


@pytest.mark.parametrize("port", ["nameServer", "endpoints"])
def test_idle_connections_stop_no_writes(tmp_path, port):
    limited = ["bash", "-c", 'ulimit -n 256; exec "$@"', "-", sys.executable, "-m"]
    command = [*limited, "rocketmq_broker"]
    words = ("--data-dir", str(tmp_path / "data"))
    with Process(tmp_path, *words, command=command) as process:
        with RemotingPeer(process.ready["nameServer"]) as peer:
            peer.call(CreateTopic(TopicConfig("orders", 4, 4)))
            host, _, number = process.ready[port].rpartition(":")
            idle = [socket.socket() for _ in range(300)]
            for one in idle:
                one.setblocking(False)
                one.connect_ex((host, int(number)))
            time.sleep(1)
            for index in range(4):
                peer.call(SendMessage("p", QueueId("orders", "broker-a", index), 1, b"one"))
            peer.call(CreateTopic(TopicConfig("payments", 1, 1)))
            for one in idle:
                one.close()
        status, _, errors = process.end(signal.SIGTERM)
        assert status == 0, errors
