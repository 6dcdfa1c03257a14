"""Header fields of layouts: the field's name, then the attribute's if it differs."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.model import QueueId
from rocketmq_wire.remoting.codecs.layouts import Field, Fields, HeaderField, field


def text(name: str, attribute: str = "", default: str | None = None) -> HeaderField:
    return field(name, attribute, lambda fields: fields.text(name, default), str)


def optional(name: str, attribute: str = "", default: str | None = "") -> HeaderField:
    """A text that is left out if it is empty."""
    return field(
        name, attribute, lambda fields: fields.text(name, default), lambda text: text or None
    )


def nullable(name: str, attribute: str = "") -> HeaderField:
    """A text or None; an empty field is None, too."""
    return field(name, attribute, lambda fields: fields.optional_text(name), lambda text: text)


def int32(name: str, attribute: str = "", default: int | None = None) -> HeaderField:
    return field(name, attribute, lambda fields: fields.int32(name, default), str)


def int64(name: str, attribute: str = "", default: int | None = None) -> HeaderField:
    return field(name, attribute, lambda fields: fields.int64(name, default), str)


def boolean(name: str, attribute: str = "", default: bool = False) -> HeaderField:
    return field(name, attribute, lambda fields: fields.boolean(name, default), bool_text)


def bool_text(value: bool) -> str:
    """A boolean as Java writes it."""
    return "true" if value else "false"


BROKER_NAME: Final = "bname"
"""The broker that a request is meant for: brokers ignore it, RocketMQ's proxy insists on it."""
BROKER: Final = optional(BROKER_NAME, "broker")


def queue_of(fields: Fields) -> QueueId:
    """The queue that a request names; its broker is "" if the request names none."""
    return QueueId(fields.text("topic"), fields.text(BROKER_NAME, ""), fields.int32("queueId"))


def _write_queue(target: dict[str, str], record: object) -> None:
    queue: QueueId = record.queue  # type: ignore[attr-defined]
    target["topic"] = queue.topic
    target["queueId"] = str(queue.index)
    if queue.broker:
        target[BROKER_NAME] = queue.broker


QUEUE: Final = Field("queue", queue_of, _write_queue)
