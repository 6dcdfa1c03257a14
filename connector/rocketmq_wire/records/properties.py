"""Message properties <-> the separated string that records and send requests carry.

    name 0x01 value 0x02 name 0x01 value 0x02 ...      in UTF-8

Brokers from 4.9.1 to 5.1.4 leave out the last 0x02: the reader accepts both forms. Nothing is
escaped, so readers skip an empty value, and no name or value can contain a separator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.model import PROPERTIES_SIZE_MAX

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQUE_KEY: Final = "UNIQ_KEY"
WAIT_STORED: Final = "WAIT"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
LITE_TOPIC: Final = "__LITE_TOPIC"
MESSAGE_GROUP: Final = "__SHARDINGKEY"
WRITE_PROPERTY: Final = "PYSPARK_WRITE"
ROW_PROPERTY: Final = "PYSPARK_ROW"
"""The Spark write and the row that a message comes from: `drop_replays` compares them."""
LIFECYCLE: Final = (
    *(KEYS, TAGS, WAIT_STORED, UNIQUE_KEY, "CLUSTER", "MSG_REGION", "TRACE_ON", "BORN_TIMESTAMP"),
    *("DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"),
    *("MAX_RECONSUME_TIMES", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "CONSUME_START_TIME"),
    *("MIN_OFFSET", "MAX_OFFSET", "1ST_POP_TIME", "POP_CK", "TRAN_MSG", "PGROUP"),
    *("TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__"),
    *("TRAN_PREPARED_QUEUE_OFFSET", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", DELIVER_MS),
    *("TIMER_DEL_UNIQKEY", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL"),
    *("INNER_NUM", "INNER_BASE", "__CRC32#", "__BORNHOST", WRITE_PROPERTY, ROW_PROPERTY),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
)
"""Properties that RocketMQ and its clients set during a message's life, unlike its sender's.

A message sent again with them would be delayed, half or misrouted, or look retried or repeated.
"""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Join properties without empty values, which no reader would see.

    Raises LocalProtocolError for an empty name, a separator inside, or more than 32,767 bytes.
    """
    items: list[str] = []
    for name, value in properties.items():
        if not value:
            continue
        pair = name + value
        if not name or NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise LocalProtocolError(
                f"property {name!r} cannot be sent: names must not be empty, and neither names nor "
                "values may contain the characters 0x01 and 0x02"
            )
        items.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    # Java's encoder, too, replaces an unpaired surrogate by a question mark.
    encoded = "".join(items).encode("utf-8", "replace")
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"the properties take {len(encoded)} bytes, more than the {PROPERTIES_SIZE_MAX} that a "
            "record can hold"
        )
    return encoded


def decode_properties(encoded: bytes | bytearray | memoryview) -> dict[str, str]:
    """Split properties as Java does: skip malformed items; the last of equal names wins.

    Never raises: bytes that are no UTF-8 become U+FFFD.
    """
    properties: dict[str, str] = {}
    for item in str(encoded, "utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = item.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties
