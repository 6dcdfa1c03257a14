"""RocketMQ's gRPC client in Python at work (`rocketmq-python-client`): what each scenario saw.

Run by the Python it is installed in: `public_client.py ENDPOINTS SCENARIO...`. Topics are named as
their scenarios, and must be there; `fifo-push` needs a group that consumes in order.
"""

import os
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

ENDPOINTS = sys.argv[1]
TLS = {"tls_enable": "WITH_TLS" in os.environ}
KEYS = (os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", ""))
COUNT = 12


def configuration():
    # Patient: a send that is repeated for lack of an answer would be there twice.
    return ClientConfiguration(ENDPOINTS, Credentials(*KEYS), request_timeout=20)


def message(topic, number, **fields):
    made = Message()
    made.topic = topic
    made.body = f"body-{number}".encode()
    made.tag = "TagA" if number % 2 else "TagB"
    made.keys = f"key-{number}"
    made.add_property("n", str(number))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def started_producer(*topics, checker=None):
    producer = Producer(configuration(), list(topics), checker=checker, **TLS)
    producer.startup()
    return producer


class Receiver:
    """A simple consumer in a thread: what it got is in `got`; `decide` says what becomes of it."""

    def __init__(self, topic, decide=None, expression=None, size=16):
        self.size = size
        self.got, self._lock, self._stops = [], threading.Lock(), threading.Event()
        self._decide = decide or (lambda consumer, got: consumer.ack(got))
        subscription = {topic: expression or FilterExpression()}
        self.consumer = SimpleConsumer(
            configuration(), f"G-{topic}", subscription, await_duration=5, **TLS
        )
        self.consumer.startup()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        # A new group begins behind the newest message: it must have asked once.
        time.sleep(1.5)

    def _run(self):
        while not self._stops.is_set():
            try:
                found = self.consumer.receive(self.size, 10) or []
            except Exception as error:  # noqa: BLE001 - the thread's outermost frame
                if "settings is null" not in str(error) and not self._stops.is_set():
                    print(f"receive: {error}", file=sys.stderr, flush=True)
                time.sleep(0.2)
                continue
            for got in found:
                with self._lock:
                    self.got.append((got, time.time()))
                self._decide(self.consumer, got)

    def wait(self, count, seconds=30):
        deadline = time.time() + seconds
        while len(self.got) < count and time.time() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        return self.got

    def bodies(self):
        return sorted(got.body.decode() for got, _ in self.got)

    def close(self):
        self._stops.set()
        self._thread.join(10)
        self.consumer.shutdown()


def summary(bodies, count=COUNT):
    expected = sorted(f"body-{number}" for number in range(count))
    return f"{len(bodies)} messages, as sent: {sorted(bodies) == expected}"


def simple():
    receiver = Receiver("simple")
    producer = started_producer("simple")
    ids = {producer.send(message("simple", number)).message_id for number in range(COUNT)}
    receiver.wait(COUNT)
    got = {found.message_id for found, _ in receiver.got}
    whole = all(
        found.topic == "simple"
        and list(found.keys) == [f"key-{found.properties['n']}"]
        and found.tag in ("TagA", "TagB")
        and not found.corrupted
        and found.delivery_attempt == 1
        and found.born_timestamp
        for found, _ in receiver.got
    )
    result = f"{summary(receiver.bodies())}, ids kept {ids == got}, whole {whole}"
    producer.shutdown()
    receiver.close()
    return result


def tags():
    expression = FilterExpression("TagA")
    receiver = Receiver("tags", expression=expression)
    producer = started_producer("tags")
    for number in range(COUNT):
        producer.send(message("tags", number))
    receiver.wait(COUNT // 2)
    producer.shutdown()
    receiver.close()
    return f"{len(receiver.got)} messages, tags {sorted({got.tag for got, _ in receiver.got})}"


def again():
    """What is not acknowledged comes again, at the time that was asked for."""
    attempts = []

    def decide(consumer, got):
        attempts.append((got.delivery_attempt, time.time()))
        if len(attempts) == 1:
            consumer.change_invisible_duration(got, 11)
        else:
            consumer.ack(got)

    receiver = Receiver("again", decide)
    producer = started_producer("again")
    producer.send(message("again", 0))
    receiver.wait(2, 40)
    producer.shutdown()
    receiver.close()
    apart = attempts[1][1] - attempts[0][1] if len(attempts) > 1 else 0
    return f"attempts {[attempt for attempt, _ in attempts]}, not early {apart >= 10.5}"


class Collector(MessageListener):
    def __init__(self, decide=None):
        self.got, self._lock = [], threading.Lock()
        self._decide = decide or (lambda _: ConsumeResult.SUCCESS)

    def consume(self, message):
        with self._lock:
            self.got.append(message)
        return self._decide(message)

    def wait(self, count, seconds=30):
        deadline = time.time() + seconds
        while len(self.got) < count and time.time() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)


def started_push(topic, listener):
    consumer = PushConsumer(
        configuration(), f"G-{topic}", listener, subscription={topic: FilterExpression()}, **TLS
    )
    consumer.startup()
    time.sleep(3)
    return consumer


def push():
    listener = Collector()
    consumer = started_push("push", listener)
    producer = started_producer("push")
    for number in range(COUNT):
        producer.send(message("push", number))
    listener.wait(COUNT)
    consumer.shutdown()
    producer.shutdown()
    return summary([got.body.decode() for got in listener.got])


def retry():
    """A listener that fails has the message again after the first of the broker's delays."""
    listener = Collector(
        lambda got: ConsumeResult.FAILURE if got.delivery_attempt < 2 else ConsumeResult.SUCCESS
    )
    consumer = started_push("retry", listener)
    producer = started_producer("retry")
    producer.send(message("retry", 0))
    listener.wait(2, 60)
    consumer.shutdown()
    producer.shutdown()
    return f"attempts {[got.delivery_attempt for got in listener.got]}"


def fifo():
    """Of a group the next message comes only when the one before is consumed."""
    listener = Collector()
    consumer = started_push("fifo", listener)
    producer = started_producer("fifo")
    for number in range(COUNT):
        producer.send(message("fifo", number, message_group=f"group-{number % 3}"))
    listener.wait(COUNT)
    consumer.shutdown()
    producer.shutdown()
    order = {}
    for got in listener.got:
        order.setdefault(got.message_group, []).append(int(got.properties["n"]))
    in_order = all(numbers == sorted(numbers) for numbers in order.values())
    return f"{summary([got.body.decode() for got in listener.got])}, in order {in_order}"


def delay():
    receiver = Receiver("delay")
    producer = started_producer("delay")
    due = {}
    for number in range(4):
        due[number] = int(time.time()) + 2 + number
        producer.send(message("delay", number, delivery_timestamp=int(due[number])))
    receiver.wait(4)
    early = [found for found, at in receiver.got if at < due[int(found.properties["n"])]]
    producer.shutdown()
    receiver.close()
    return f"{summary(receiver.bodies(), 4)}, early {len(early)}"


def recall():
    receiver = Receiver("recall")
    producer = started_producer("recall")
    at = int(time.time()) + 10
    kept = producer.send(message("recall", 0, delivery_timestamp=at))
    gone = producer.send(message("recall", 1, delivery_timestamp=at))
    recalled = producer.recall_message("recall", gone.recall_handle)
    receiver.wait(2, 16)
    producer.shutdown()
    receiver.close()
    same = getattr(recalled, "message_id", recalled) == gone.message_id
    return f"recalled {same}, came {receiver.bodies()}, handles {bool(kept.recall_handle)}"


class Checker(TransactionChecker):
    def check(self, message):
        is_even = int(message.properties["n"]) % 2 == 0
        return TransactionResolution.COMMIT if is_even else TransactionResolution.ROLLBACK


def transaction():
    """Committed, rolled back, and two that only the broker's question decides."""
    receiver = Receiver("transaction")
    producer = started_producer("transaction", checker=Checker())
    for number, end in enumerate(("commit", "rollback", None, None)):
        half = producer.begin_transaction()
        producer.send(message("transaction", number), half)
        if end is not None:
            getattr(half, end)()
    deadline = time.time() + 60
    while not {"body-0", "body-2"} <= set(receiver.bodies()) and time.time() < deadline:
        time.sleep(0.2)
    time.sleep(2)
    producer.shutdown()
    receiver.close()
    # A broker that asks before it knows of the commit delivers twice.
    return f"came {sorted(set(receiver.bodies()))}"


def priority():
    """What is more urgent comes first."""
    receiver = Receiver("priority")
    receiver.close()
    producer = started_producer("priority")
    for number in (1, 0, 3, 2):
        producer.send(message("priority", number, priority=number))
    # One at a time: the order of the whole is what counts.
    receiver = Receiver("priority", size=1)
    found = [got.priority for got, _ in receiver.wait(4)]
    receiver.close()
    producer.shutdown()
    return f"came {found}"


NAMES = (
    *("simple", "tags", "again", "push", "retry", "fifo", "delay", "recall", "transaction"),
    "priority",
)
SCENARIOS = {name: globals()[name] for name in NAMES}
threads = {}


def run(name):
    try:
        result = SCENARIOS[name]()
    except Exception as error:  # noqa: BLE001 - a scenario's outermost frame
        result = f"FAILED {type(error).__name__} {error}"
    print(f"{name}: {result}", flush=True)


# Side by side: most of them wait for something.
for name in sys.argv[2:]:
    threads[name] = threading.Thread(target=run, args=(name,))
    threads[name].start()
for thread in threads.values():
    thread.join()
os._exit(0)
