"""Lite topics by RocketMQ's gRPC client in Python (`rocketmq-python-client`): what scenarios saw.

Run by the Python it is installed in: `lite_client.py ENDPOINTS SCENARIO...`.
"""

import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    Message,
    MessageListener,
    Producer,
)
from rocketmq.v5.consumer import LitePushConsumer, LiteSimpleConsumer

ENDPOINTS = sys.argv[1]
PARENT = "chats"


def configuration():
    return ClientConfiguration(ENDPOINTS, Credentials("", ""), request_timeout=20)


PRODUCER = Producer(configuration(), [PARENT])


def send(lite_topic, *bodies):
    for body in bodies:
        made = Message()
        made.topic, made.body, made.lite_topic = PARENT, body.encode(), lite_topic
        PRODUCER.send(made)


class Listener(MessageListener):
    def __init__(self, decide=None):
        self.got, self._decide = [], decide or (lambda _: True)

    def consume(self, message):
        self.got.append(message)
        return ConsumeResult.SUCCESS if self._decide(message) else ConsumeResult.FAILURE


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)


def shown(got):
    by = {}
    for message in sorted(got, key=lambda one: bytes(one.body)):
        by.setdefault(message.lite_topic, []).append(message.body.decode())
    return str({name: by[name] for name in sorted(by)})


def started(consumer):
    consumer.startup()
    # Its quota is 0 until it has heard of another one.
    time.sleep(1)
    return consumer


def subscribe(consumer, *lite_topics):
    for name in lite_topics:
        consumer.subscribe_lite(name)
    # This version adds a name letter by letter; the whole list, which follows by itself after half
    # a minute, is right.
    consumer.subscribe_lite_all()


def pushed(group, listener):
    return started(LitePushConsumer(configuration(), group, PARENT, listener))


def lite():
    listener = Listener()
    send("lite-a", "0", "1")
    consumer = pushed("G-lite", listener)
    subscribe(consumer, "lite-a", "lite-b")
    send("lite-a", "2")
    send("lite-b", "0", "1")
    send("lite-c", "0")
    until(lambda: len(listener.got) >= 5)
    consumer.shutdown()
    return shown(listener.got)


def again():
    listener = Listener(lambda got: got.delivery_attempt > 2)
    consumer = pushed("G-again", listener)
    subscribe(consumer, "again")
    send("again", "bad")
    until(lambda: len(listener.got) >= 3, 40)
    consumer.shutdown()
    return f"attempts {[one.delivery_attempt for one in listener.got]}"


def quota():
    consumer = pushed("G-few", Listener())
    try:
        for number in range(3):
            consumer.subscribe_lite(f"quota-{number}")
    except Exception as error:  # noqa: BLE001 - the name of whatever it is
        return type(error).__name__
    finally:
        consumer.shutdown()
    return "none"


def simple():
    send("simple", "0", "1")
    consumer = started(LiteSimpleConsumer(PARENT, configuration(), "G-simple", 5))
    subscribe(consumer, "simple")
    got = []

    def receive():
        for message in consumer.receive(16, 10) or ():
            got.append(message)
            consumer.ack(message)

    deadline = time.monotonic() + 20
    while len(got) < 2 and time.monotonic() < deadline:
        receive()
    send("simple", "2")
    while len(got) < 3 and time.monotonic() < deadline:
        receive()
    consumer.shutdown()
    return shown(got)


def main():
    PRODUCER.startup()

    def run(name):
        try:
            said = globals()[name]()
        except Exception as error:  # noqa: BLE001 - each scenario for itself
            said = f"FAILED {type(error).__name__}: {error}".replace("\n", " ")
        print(f"{name}: {said}", flush=True)

    threads = [threading.Thread(target=run, args=(name,)) for name in sys.argv[2:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
