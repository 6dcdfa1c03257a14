"""The line that says what a batch reads, and where it shows."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from pyspark_rocketmq.read.batch_log import batch_line, log_batch
from rocketmq_wire.model import QueueId

A0, A1 = (QueueId("orders", "broker-a", index) for index in (0, 1))
B0 = QueueId("bills", "broker-b", 0)


def test_a_line_counts_the_messages_of_each_topic() -> None:
    counts = [(B0, 1), (A0, 1_000), (A1, 234)]
    expected = "1,235 messages in 2 tasks: orders 1,234 in 2 queues, bills 1 in 1 queue"
    assert batch_line(counts, 2) == expected
    assert batch_line([(A0, 1)], 1) == "1 message in 1 task: orders 1 in 1 queue"


def test_a_queue_in_several_parts_is_one() -> None:
    assert batch_line([(A0, 5), (A0, 6)], 2) == "11 messages in 2 tasks: orders 11 in 1 queue"


def test_nothing_read_is_no_line() -> None:
    assert batch_line([], 0) is None
    assert batch_line([(A0, 0), (B0, 0)], 3) is None


def test_a_line_does_not_grow_with_the_number_of_topics() -> None:
    counts = [(QueueId(f"t{n}", "broker-a", 0), 10 - n) for n in range(7)]
    line = batch_line(counts, 7)
    assert line is not None
    assert line.startswith("49 messages in 7 tasks: t0 10 in 1 queue, t1 9 ")
    assert line.endswith("t4 6 in 1 queue, 2 other topics 9")


def test_lines_are_where_logging_was_set_up_and_nowhere_else_unless_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_batch("batch", [(A0, 5)], 1, is_shown=False)
    assert caplog.messages == []
    log_batch("batch", [(A0, 5)], 1, is_shown=True)
    log_batch("batch", [(A0, 5)], 1, is_shown=False)
    assert caplog.messages == ["batch of 5 messages in 1 task: orders 5 in 1 queue"]
    with caplog.at_level(logging.INFO, "pyspark_rocketmq"):
        log_batch("read", [(A0, 5)], 1, is_shown=False)
        log_batch("read", [], 0, is_shown=True)
    assert caplog.messages[1:] == ["read of 5 messages in 1 task: orders 5 in 1 queue"]


def test_a_process_without_logging_writes_each_line_once() -> None:
    program = (
        "from pyspark_rocketmq.read.batch_log import log_batch\n"
        "from rocketmq_wire.model import QueueId\n"
        "for shown in (False, True, True, False):\n"
        "    log_batch('batch', [(QueueId('orders', 'broker-a', 0), 5)], 1, is_shown=shown)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    expected = "INFO pyspark_rocketmq.batches: batch of 5 messages in 1 task: orders 5 in 1 queue"
    lines = done.stderr.splitlines()
    assert [line.partition(" INFO ")[1:] for line in lines] == [
        (" INFO ", expected.removeprefix("INFO "))
    ] * 2
