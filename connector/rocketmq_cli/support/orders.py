"""Generated orders for the demo, which a thread sends a few at a time."""

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
# The rest is sent while the query runs, so that it sees messages arrive.
_FIRST_SHARE = 0.3


class OrderStream:
    """Creates the topic and sends orders steadily: some at first, the others after `send_rest`."""

    def __init__(self, name_server: str, topic: str, queues: int, count: int) -> None:
        self.count = count
        self.sent = 0
        self.error: Exception | None = None
        self._settings = ConnectionSettings(name_servers=(name_server,))
        self._topic = TopicConfig(topic, read_queue_count=queues, write_queue_count=queues)
        self._stopped = threading.Event()
        self._sends_rest = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        with open_cluster(self._settings) as cluster:
            cluster.create_topic(self._topic)
        self._thread.start()

    def send_rest(self) -> None:
        self._sends_rest.set()

    def stop(self) -> None:
        self._stopped.set()
        self._sends_rest.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with LineSender(self._settings, self._topic.name) as sender:
                for batch in _batches(self.count):
                    if self.sent >= self.count * _FIRST_SHARE:
                        self._sends_rest.wait()
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
