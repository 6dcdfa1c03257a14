"""Made-up orders for the demo, sent a few at a time by a thread of their own."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator

from rocketmq_cli.messages.sending import LineSender
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig

_PRODUCTS = {"apples": 0.4, "bread": 3.2, "coffee": 7.9, "dates": 5.5, "eggs": 2.8}
_SEED = 7
_BATCH = 100
_INTERVAL_S = 0.1
# The rest waits until the query runs: it shall see messages arrive.
_FIRST_SHARE = 0.3


class OrderStream:
    """Creates the topic and sends orders at a steady pace: some at first, the rest when told to."""

    def __init__(self, name_server: str, topic: str, queues: int, count: int) -> None:
        self.count = count
        self.sent = 0
        self.error: Exception | None = None
        self._settings = ConnectionSettings(name_servers=(name_server,))
        self._topic = TopicConfig(topic, read_queue_count=queues, write_queue_count=queues)
        self._stopped = threading.Event()
        self._goes_on = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        """Create the topic and begin."""
        with open_cluster(self._settings) as cluster:
            cluster.create_topic(self._topic)
        self._thread.start()

    def go_on(self) -> None:
        """Send the rest."""
        self._goes_on.set()

    def stop(self) -> None:
        """End early, or wait for the end."""
        self._stopped.set()
        self._goes_on.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with LineSender(self._settings, self._topic.name) as sender:
                for batch in _batches(self.count):
                    if self.sent >= self.count * _FIRST_SHARE:
                        self._goes_on.wait()
                    if self._stopped.wait(_INTERVAL_S):
                        return
                    sender.send(batch)
                    self.sent += len(batch)
        except Exception as error:  # noqa: BLE001 - outermost frame; the main loop raises it.
            self.error = error


def _batches(count: int) -> Iterator[list[bytes]]:
    chance = random.Random(_SEED)
    for start in range(0, count, _BATCH):
        yield [_order(chance, number) for number in range(start, min(start + _BATCH, count))]


def _order(chance: random.Random, number: int) -> bytes:
    product = chance.choice(list(_PRODUCTS))
    pieces = chance.randint(1, 9)
    order = {
        "order": number,
        "product": product,
        "pieces": pieces,
        "amount": round(pieces * _PRODUCTS[product], 2),
        "at": round(time.time(), 3),
    }
    return json.dumps(order).encode()
