"""Records what real brokers of a version send and write, into the files beside this one.

    ./run exec env PYTHONPATH=tests python tests/golden/capture.py [--to FOLDER] VERSION...

Needs the ports 9876 and 10909 to 10912 to be free.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId, Subscription, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.remoting.codec import encode_request
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import ListGroupClients
from rocketmq_wire.requests.messages import PullMessages, SendBatch, SendMessage
from rocketmq_wire.requests.offsets import (
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
)
from rocketmq_wire.requests.topics import GetRoute, GetTopicConfig, GetTopicStats
from support.real_cluster import VERSIONS, RealCluster, run_program
from support.remoting_sessions import encode_frame, receive

_HERE: Final = Path(__file__).parent
_JAVA: Final = _HERE.parent / "real" / "java"
_QUEUE: Final = QueueId("Golden", "broker-a", 0)
_SENT_TO: Final = QueueId("GoldenSent", "broker-a", 6)
_GROUP: Final = "GoldenGroup"
_LONG_GROUP: Final = "G" * 200
_LONG_QUEUE: Final = QueueId(f"%RETRY%{_LONG_GROUP}", "broker-a", 0)
_KINDS: Final = ("plain", "unicode", "surrogate", "collision", "zlib", "batch3")
_COUNT: Final = 13
_CONFIGS: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
_HEADER_VERSION: Final = 401
_OLD_HEADER_VERSION: Final = 300
# Brokers write their tables every 5 s.
_CONFIG_SECONDS_MAX: Final = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=_HERE)
    parser.add_argument("versions", nargs="*", default=list(VERSIONS))
    arguments = parser.parse_args()
    for version in arguments.versions:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            files = record(version, Path(folder))
        for name, content in files.items():
            path = arguments.to / f"rocketmq-{version}-{name}.json"
            text = json.dumps(content, ensure_ascii=False, indent=1)
            path.write_text(text + "\n", "utf-8")
            print(path, file=sys.stderr)
    return 0


def record(version: str, folder: Path) -> dict[str, Any]:
    """Everything of one version, by the name of its file."""
    with RealCluster(version, folder, has_usual_ports=True) as real:
        with real.open() as cluster:
            cluster.create_topic(TopicConfig("Golden", 1, 1))
            cluster.create_topic(TopicConfig("GoldenSent", 8, 8))
            encoded = fill(real, cluster)
        frames = {name: asked(real, *question).hex() for name, question in questions(real).items()}
        messages = {"pull-found": shown(real, _QUEUE.topic)}
        if not real.is_4:
            messages["pull-long-topic"] = shown(real, _LONG_QUEUE.topic)[:1]
        return {
            "frames": frames,
            "messages": messages,
            "batches": {"three": encoded},
            "configs": configs(real),
        }


def fill(real: RealCluster, cluster: Cluster) -> str:
    """Put the messages into the topic; the body of a batch request as Java encodes it."""

    def send(*kinds: str, compress_type: str = "ZLIB") -> str:
        return run_program(
            real.version, _JAVA / "Send.java", real.name_server, "Golden", "broker-a", *kinds,
            jvm=(f"-Drocketmq.message.compressType={compress_type}",),
        )  # fmt: skip

    printed = send(*_KINDS, "encoded")
    for kind in ("lz4", "zstd"):
        send(kind, compress_type=kind.upper())
    # A host of 16 bytes: our client, coming over IPv6. Java's prefers IPv4.
    settings = ConnectionSettings((real.name_server,), address_map={"127.0.0.1": "::1"})
    with open_cluster(settings) as six:
        properties = encode_properties({"TAGS": "six", "KEYS": "a b"})
        born_ms = int(time.time() * 1_000)
        sent = SendMessage("GoldenSenders", _QUEUE, born_ms, b"from six", properties)
        six.transport.call(sent, broker="broker-a", timeout_ms=5_000)
    if not real.is_4:
        real.java(_JAVA / "Refuse.java", "Golden", _LONG_GROUP, "TagA", seconds=120)
    while cluster.bounds([_QUEUE])[_QUEUE].end < _COUNT:  # type: ignore[union-attr]
        time.sleep(0.05)
    cluster.commit(_GROUP, {_QUEUE: 3})
    return next(line for line in printed.splitlines() if line.startswith("000000"))


def questions(real: RealCluster) -> dict[str, tuple[str, Request[Reply], int]]:
    """Name of the frame -> whom to ask, what, and with which header version."""
    name_server, broker = real.name_server, real.master.address
    three = encode_batch([BatchEntry(0, b"b%d" % n, b"") for n in range(3)])
    bad_queue = QueueId(_SENT_TO.topic, "broker-a", 99)
    to_broker: dict[str, Request[Reply]] = {
        "topic-stats": GetTopicStats("Golden"),
        "consume-stats": GetConsumeStats(_GROUP, "Golden"),
        "progress": GetCommittedOffset(_GROUP, _QUEUE),
        "max-offset": GetMaxOffset(_QUEUE),
        "earliest": GetEarliestStoreTime(_QUEUE),
        "members-none": ListGroupClients(_GROUP),
        "pull-found": PullMessages(_GROUP, _QUEUE, 0, 32),
        "pull-no-new": PullMessages(_GROUP, _QUEUE, _COUNT, 32),
        "pull-no-match": PullMessages(_GROUP, _QUEUE, 0, 32, subscription=Subscription("Nope")),
        "pull-illegal": PullMessages(_GROUP, _QUEUE, 99, 32),
        "pull-missing-topic": PullMessages(_GROUP, QueueId("NoSuch", "broker-a", 0), 0, 32),
        "send": SendMessage("GoldenSenders", _SENT_TO, 1, b"x"),
        "send-batch": SendBatch("GoldenSenders", _SENT_TO, 1, three),
        "send-bad-queue": SendMessage("GoldenSenders", bad_queue, 1, b"x"),
    }
    if not real.is_4:
        to_broker["topic-config"] = GetTopicConfig("Golden")
        to_broker["progress-absent"] = GetCommittedOffset("NoGroup", _QUEUE)
        to_broker["pull-long-topic"] = PullMessages(_GROUP, _LONG_QUEUE, 0, 1)
    return {
        "route": (name_server, GetRoute("Golden"), _HEADER_VERSION),
        "route-old-client": (name_server, GetRoute("Golden"), _OLD_HEADER_VERSION),
        "route-missing": (name_server, GetRoute("NoSuch"), _HEADER_VERSION),
        "cluster": (name_server, GetCluster(), _HEADER_VERSION),
        **{name: (broker, request, _HEADER_VERSION) for name, request in to_broker.items()},
    }


def asked(real: RealCluster, address: str, request: Request[Reply], version: int) -> bytes:
    """The answer's whole frame as the socket gave it."""
    del real
    host, _, port = address.rpartition(":")
    code, fields, body = encode_request(request)
    header = Header(code=code, language="PYTHON", version=version, opaque=7, ext_fields=fields)
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(encode_frame(Frame(header, b"".join(map(bytes, body)))))
        while not is_whole(received):
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError(f"{address} closed instead of answering {request}")
            received += data
    return received


def is_whole(received: bytes) -> bool:
    decoder = FrameDecoder()
    receive(decoder, received)
    return decoder.next_frame() is not None


def shown(real: RealCluster, topic: str) -> list[dict[str, Any]]:
    """A topic as the Java consumer has it, texts as texts, long bodies by their period."""
    printed = real.java(_JAVA / "Show.java", topic)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    for line in lines:
        for name in ("topic", "msgId", "offsetMsgId", "tags", "keys"):
            line[name] = None if line[name] is None else bytes.fromhex(line[name]).decode()
        line["properties"] = {
            bytes.fromhex(name).decode(): bytes.fromhex(value).decode()
            for name, value in line["properties"].items()
        }
        del line["broker"]
        body, line["bodyTimes"] = line["body"], 1
        period = (body + body).find(body, 2)
        if period % 2 == 0 and 0 < period < len(body):
            line["body"], line["bodyTimes"] = body[:period], len(body) // period
    return lines


def configs(real: RealCluster) -> dict[str, str]:
    """The broker's own tables as it wrote them, once they hold what was committed."""
    folder = real.master.store / "config"
    deadline = time.monotonic() + _CONFIG_SECONDS_MAX
    while _GROUP not in text_of(folder / "consumerOffset.json"):
        if time.monotonic() > deadline:
            raise TimeoutError("the broker does not write its offsets")
        time.sleep(0.2)
    return {name: text_of(folder / name) for name in _CONFIGS}


def text_of(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
