"""Builds stored records, realistic and odd ones, from a seed: an encoder of its own for tests.

It shares no code with the codecs under test, so that a common mistake cannot hide.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rocketmq_wire.model import Host, StoredMessage

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BORN_HOST = Host(bytes((10, 0, 0, 9)), 5555)
STORE_HOST = Host(bytes((10, 0, 0, 1)), 10911)
BORN_HOST_V6 = Host(bytes(range(16)), 65535)
STORE_HOST_V6 = Host(bytes(range(16, 32)), 10911)
BORN_MS = 1_700_000_000_000
SYS_BORN_V6 = 0x10
SYS_STORE_V6 = 0x20
SYS_COMPRESSED = 0x1

# Appendix A of the protocol notes: queue 3, flag 7, offset 42, position 1000, "hello" to topic "T".
GOLDEN_RECORD = bytes.fromhex(
    "0000006FDAA320A73610A6860000000300000007000000000000002A00000000000003E800000000"
    "0000018BCFE568000A000009000015B30000018BCFE5687B0A00000100002A9F0000000000000000"
    "000000000000000568656C6C6F0154000E544147530154616741026B017602"
)


def properties_text(properties: Mapping[str, str], *, trailing: bool = True) -> bytes:
    """The properties as brokers store them; 4.9.1 to 5.1.4 leave out the last separator."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return text.encode() + (b"\x02" if trailing and text else b"")


def lay_out(message: StoredMessage, *, properties: bytes | None = None) -> bytes:
    """One record; V2 when the topic is longer than 127 bytes. Sizes and CRC are computed."""
    topic = message.topic.encode()
    is_v2 = len(topic) > 127
    stored = properties_text(message.properties) if properties is None else properties
    tail = b"".join(
        (
            struct.pack(">q", message.born_ms),
            message.born_host.address,
            struct.pack(">iq", message.born_host.port, message.store_ms),
            message.store_host.address,
            struct.pack(">i", message.store_host.port),
            struct.pack(">iq", message.reconsume_times, message.prepared_transaction_offset),
            struct.pack(">i", len(message.body)),
            message.body,
            struct.pack(">h" if is_v2 else ">b", len(topic)),
            topic,
            struct.pack(">h", len(stored)),
            stored,
        )
    )
    return (
        struct.pack(
            ">iIIiiqqi",
            40 + len(tail),
            MAGIC_V2 if is_v2 else MAGIC_V1,
            zlib.crc32(message.body) & 0x7FFFFFFF,
            message.queue_index,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            message.sys_flag,
        )
        + tail
    )


def make_messages(
    count: int,
    body_size: int = 100,
    *,
    topic: str = "orders",
    queue_index: int = 0,
    start: int = 0,
    seed: int = 0,
    tags: Sequence[str] = ("created", "paid"),
    extra_properties: int = 0,
) -> list[StoredMessage]:
    """What a producer with keys and tags leaves in one queue: offsets `start, start + 1, ...`.

    `body_crc`, `store_size` and `physical_offset` are those of the laid-out records.
    """
    source = random.Random(seed)
    messages = []
    position = 0
    for index in range(count):
        offset = start + index
        properties = {
            "KEYS": f"order-{offset:08d}",
            "UNIQ_KEY": f"0A000009{source.getrandbits(96):024X}",
            "WAIT": "true",
            "TAGS": source.choice(tags),
        }
        for extra in range(extra_properties):
            properties[f"name-{extra}"] = f"value-{source.randrange(1000)}"
        message = StoredMessage(
            topic=topic,
            body=source.randbytes(body_size),
            properties=properties,
            flag=0,
            queue_index=queue_index,
            queue_offset=offset,
            physical_offset=position,
            sys_flag=0,
            born_ms=BORN_MS + index,
            born_host=BORN_HOST,
            store_ms=BORN_MS + index + 1,
            store_host=STORE_HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            store_size=0,
        )
        messages.append(sealed(message))
        position += messages[-1].store_size
    return messages


def sealed(message: StoredMessage) -> StoredMessage:
    """The message with the size and the checksum that its record has."""
    crc = zlib.crc32(message.body) & 0x7FFFFFFF
    return replace(message, body_crc=crc, store_size=len(lay_out(message)))


def make_odd_messages(*, topic: str = "orders", queue_index: int = 0) -> list[StoredMessage]:
    """What is rare but legal: IPv6 hosts, compressed, empty and bare messages, odd properties."""
    plain = make_messages(8, 40, topic=topic, queue_index=queue_index, seed=7)
    long_body = b"abc" * 2000
    odd = [
        replace(plain[0], sys_flag=SYS_BORN_V6, born_host=BORN_HOST_V6),
        replace(plain[1], sys_flag=SYS_STORE_V6, store_host=STORE_HOST_V6),
        replace(
            plain[2],
            sys_flag=SYS_BORN_V6 | SYS_STORE_V6,
            born_host=BORN_HOST_V6,
            store_host=STORE_HOST_V6,
        ),
        replace(plain[3], sys_flag=SYS_COMPRESSED, body=zlib.compress(long_body, 5)),
        replace(plain[4], body=b""),
        replace(plain[5], properties={}),
        replace(plain[6], properties={"KEYS": "k1 k2", "größe": "中文😀", "eq": "a\x01b"}),
        replace(plain[7], flag=-1, reconsume_times=16, born_ms=0, prepared_transaction_offset=-1),
    ]
    return [sealed(message) for message in odd]


def make_records(
    count: int,
    body_size: int = 100,
    *,
    topic: str = "orders",
    queue_index: int = 0,
    start: int = 0,
    seed: int = 0,
) -> tuple[bytes, bytes]:
    """`count` realistic records back to back, and their sizes as little-endian int32."""
    return join_records(
        [
            lay_out(message)
            for message in make_messages(
                count, body_size, topic=topic, queue_index=queue_index, start=start, seed=seed
            )
        ]
    )


def join_records(records: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Records as a pull body, and their sizes as little-endian int32."""
    return b"".join(records), struct.pack(f"<{len(records)}i", *map(len, records))
