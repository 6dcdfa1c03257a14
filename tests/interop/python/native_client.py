"""The native-core Python client (PyPI `rocketmq`) at work; each scenario prints what it saw.

Run by the Python it is installed in: `native_client.py NAME_SERVER TOPIC SCENARIO...`.
"""

import sys
import threading
import time

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

NAME_SERVER, TOPIC = sys.argv[1:3]
COUNT = 20


def message(number):
    made = Message(TOPIC)
    made.set_keys(f"key-{number}")
    made.set_tags("TagA" if number % 2 else "TagB")
    made.set_property("n", str(number))
    # Longer than 4 KiB is sent compressed.
    made.set_body(f"body-{number}" + ("x" * 5_000 if number == 3 else ""))
    return made


def with_name_server(client):
    client.set_namesrv_addr(NAME_SERVER)
    return client


def send():
    producer = with_name_server(Producer("NativeProducer"))
    producer.start()
    statuses = set()
    for number in range(COUNT - 5):
        statuses.add(producer.send_sync(message(number)).status.name)
    for number in range(COUNT - 5, COUNT):
        producer.send_oneway(message(number))
    time.sleep(1)
    producer.shutdown()
    return f"{sorted(statuses)}"


def push(expression, wanted):
    consumer = with_name_server(PushConsumer(f"NativePush{len(expression)}"))
    seen, all_there = [], threading.Event()

    def consume(got):
        seen.append((int(got[b"n"] or -1), got.tags, got.keys, len(got.body)))
        if len(seen) == wanted:
            all_there.set()

    consumer.subscribe(TOPIC, consume, expression)
    consumer.start()
    all_there.wait(40)
    time.sleep(0.3)
    consumer.shutdown()
    return f"{len(seen)} messages, {sorted(set(seen))}"


def pull():
    consumer = with_name_server(PullConsumer("NativePull"))
    consumer.start()
    seen = sorted(len(got.body) for got in consumer.pull(TOPIC))
    consumer.shutdown()
    return f"{len(seen)} messages, longest {max(seen, default=0)}"


SCENARIOS = {
    "send": send,
    "push": lambda: push("*", COUNT),
    "push-tag": lambda: push("TagA", COUNT // 2),
    "pull": pull,
}
for name in sys.argv[3:]:
    try:
        result = SCENARIOS[name]()
    except Exception as error:  # noqa: BLE001 - a scenario's outermost frame
        result = f"FAILED {type(error).__name__} {error}"
    print(f"{name}: {result}", flush=True)
