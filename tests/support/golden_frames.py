"""What real brokers sent, as `tests/golden` keeps it: frames, and messages as Java read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeVar

from rocketmq_wire.model import Host, QueueId, StoredMessage
from rocketmq_wire.remoting.codec import decode_reply
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages
from support.remoting_sessions import receive

R = TypeVar("R", bound=Reply)

_FOLDER: Final = Path(__file__).parents[1] / "golden"
VERSIONS: Final = ("4.9.7", "5.3.3")
QUEUE: Final = QueueId("Golden", "broker-a", 0)
LONG_QUEUE: Final = QueueId("%RETRY%" + "G" * 200, "broker-a", 0)
PULLS: Final = (
    ("4.9.7", "pull-found", QUEUE),
    ("5.3.3", "pull-found", QUEUE),
    ("5.3.3", "pull-long-topic", LONG_QUEUE),
)
"""Version, name of the frame, queue."""
_SYS_COMPRESSED: Final = 0x1


def golden_frame(version: str, name: str) -> Frame:
    """One whole answer, as it came from the socket."""
    frames = json.loads((_FOLDER / f"rocketmq-{version}-frames.json").read_text())
    decoder = FrameDecoder()
    receive(decoder, bytes.fromhex(frames[name]))
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.is_between_frames
    return frame


def golden_answer(version: str, name: str, request: Request[R]) -> R:
    """The frame `name`, read as the answer to `request`."""
    frame = golden_frame(version, name)
    return decode_reply(request, frame.header, frame.body)


def golden_records(version: str, name: str, queue: QueueId) -> bytes:
    """The records in a pull's answer."""
    (records,) = golden_answer(version, name, PullMessages("g", queue, 0, 32)).records
    return bytes(records)


def java_messages(version: str, name: str) -> list[dict[str, Any]]:
    """The messages of that answer as the official consumer of that version printed them."""
    text = (_FOLDER / f"rocketmq-{version}-messages.json").read_text("utf-8")
    messages: list[dict[str, Any]] = json.loads(text)[name]
    for message in messages:
        message["body"] = bytes.fromhex(message["body"]) * message["bodyTimes"]
    return messages


def golden_configs(version: str) -> dict[str, str]:
    """The broker's tables, file name -> text as it wrote them."""
    text = (_FOLDER / f"rocketmq-{version}-configs.json").read_text("utf-8")
    configs: dict[str, str] = json.loads(text)
    return configs


def golden_batch(version: str) -> bytes:
    """The body of a batch request of three messages, as that version's producer encodes it."""
    batches = json.loads((_FOLDER / f"rocketmq-{version}-batches.json").read_text())
    return bytes.fromhex(batches["three"])


def as_stored(printed: dict[str, Any], stored_body: bytes) -> StoredMessage:
    """A printed message as a record holds it; only the stored form of the body is given."""
    # Java's decoder of 5.x clears the bit once the body is inflated.
    is_inflated = stored_body != printed["body"]
    return StoredMessage(
        topic=printed["topic"],
        body=stored_body,
        properties=printed["properties"],
        flag=printed["flag"],
        queue_index=printed["queueId"],
        queue_offset=printed["queueOffset"],
        physical_offset=printed["physicalOffset"],
        sys_flag=printed["sysFlag"] | (_SYS_COMPRESSED if is_inflated else 0),
        born_ms=printed["bornMs"],
        born_host=_host(printed["bornHost"]),
        store_ms=printed["storeMs"],
        store_host=_host(printed["storeHost"]),
        reconsume_times=printed["reconsumeTimes"],
        prepared_transaction_offset=printed["prepared"],
        body_crc=printed["bodyCrc"],
        store_size=printed["storeSize"],
    )


def _host(printed: str) -> Host:
    address, _, port = printed.rpartition(":")
    return Host(bytes.fromhex(address), int(port))
