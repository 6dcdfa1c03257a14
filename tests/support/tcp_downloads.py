"""Downloads from a scripted broker over TCP: its queues, the way to it, and what came."""

from __future__ import annotations

import contextlib
import socket

from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import (
    OffsetRange,
    QueueId,
)
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue, offsets_in

QUEUES = [QueueId("orders", "broker-a", index) for index in range(4)]
SPEC = ReadSpec("readers")


@contextlib.contextmanager
def scripted_broker():
    """Serves `QUEUES` with five thousand messages each, at most a thousand a pull."""
    queues = {queue: SimulatedQueue(0, 5_000, count_cap=1_000) for queue in QUEUES}
    with ScriptedBroker(queues) as broker:
        yield broker


def settings_for(*brokers, **options):
    return ConnectionSettings(tuple(broker.address for broker in brokers), **options)


def read(transport, ranges, spec=SPEC):
    """Offsets by queue, and the chunks."""
    chunks = list(transport.read_ranges(ranges, spec))
    found: dict[QueueId, list[int]] = {wanted.queue: [] for wanted in ranges}
    for chunk in chunks:
        found[chunk.queue] += [o for o in offsets_in(chunk.body) if chunk.start <= o < chunk.end]
    return found, chunks


def ranges_of(start, end):
    return [OffsetRange(queue, start, end) for queue in QUEUES]


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
