"""Values in a heartbeat's JSON, as clients in Java and in C++ write them.

RocketMQ reads names and places of its enumerations, numbers and text that holds one. Clients in
Java write the former, clients in C++ the latter.
"""

from __future__ import annotations

from typing import Final

from rocketmq_wire.fastjson import Json, member_int, member_text

# In the order in which Java declares them.
_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
_CONSUME_FROM: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_NUMBER_DIGITS_MAX: Final = 18


def consume_type(consumer: dict[str, Json]) -> str:
    return _choice(consumer, "consumeType", _CONSUME_TYPES, "CONSUME_PASSIVELY")


def message_model(consumer: dict[str, Json]) -> str:
    return _choice(consumer, "messageModel", _MESSAGE_MODELS, "CLUSTERING")


def consume_from(consumer: dict[str, Json]) -> str:
    return _choice(consumer, "consumeFromWhere", _CONSUME_FROM, "CONSUME_FROM_LAST_OFFSET")


def subscription_version(subscription: dict[str, Json]) -> int:
    value = subscription.get("subVersion")
    if isinstance(value, str) and value.isdecimal() and len(value) <= _NUMBER_DIGITS_MAX:
        return int(value)
    return member_int(subscription, "subVersion", 0)


def _choice(owner: dict[str, Json], name: str, choices: tuple[str, ...], default: str) -> str:
    value = owner.get(name)
    if type(value) is int and 0 <= value < len(choices):
        return choices[value]
    return member_text(owner, name, default)
