"""A producer in a process of its own that sends single messages at a steady pace.

Every body begins with the nanoseconds since 1970 at which it was sent, as 20 digits.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from types import TracebackType

from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import SendMessage

TIME_SIZE = 20
_BODY_SIZE = 100
_IN_FLIGHT_MAX = 256
_TIMEOUT_MS = 30_000
GROUP = "bench-producer"


class PacedProducer:
    """Sends `per_tick` messages every `tick_ms` in turn to all queues, until it is left."""

    def __init__(self, name_server: str, topic: str, *, tick_ms: int, per_tick: int) -> None:
        self._command = [
            *(sys.executable, "-m", "bench.paced", name_server, topic),
            *("--tick-ms", str(tick_ms), "--per-tick", str(per_tick)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PacedProducer:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--tick-ms", type=int, required=True)
    parser.add_argument("--per-tick", type=int, required=True)
    args = parser.parse_args()
    with open_cluster(ConnectionSettings(name_servers=(args.name_server,))) as cluster:
        queues = itertools.cycle(cluster.route(args.topic).writable_queues(args.topic))
        transport = cluster.transport
        in_flight = 0
        numbers = itertools.count()
        due = time.monotonic()
        while True:
            for queue in itertools.islice(queues, args.per_tick):
                number = next(numbers)
                sent_ns = time.time_ns()
                properties = {
                    "TAGS": f"Tag{number % 4}",
                    "KEYS": f"k{number:08d}",
                    "UNIQ_KEY": f"7F00000100002A139A55{number:012X}",
                }
                request = SendMessage(
                    GROUP,
                    queue,
                    born_ms=sent_ns // 1_000_000,
                    body=b"%020d" % sent_ns + b"x" * (_BODY_SIZE - TIME_SIZE),
                    properties=encode_properties(properties),
                )
                transport.submit(request, broker=queue.broker, timeout_ms=_TIMEOUT_MS)
                in_flight += 1
            due += args.tick_ms / 1_000
            # Not `Producer.send_many`: an answer that is late must not delay the next tick.
            in_flight -= _taken(transport, timeout_ms=0)
            while in_flight >= _IN_FLIGHT_MAX:
                in_flight -= _taken(transport, timeout_ms=_TIMEOUT_MS)
            time.sleep(max(due - time.monotonic(), 0.0))


def _taken(transport: Transport, *, timeout_ms: int) -> int:
    """How many answers came. Raises the first failure among them."""
    answers = transport.completed(timeout_ms=timeout_ms)
    for _, answer in answers:
        if isinstance(answer, RocketMQError):
            raise answer
    return len(answers)


if __name__ == "__main__":
    main()
