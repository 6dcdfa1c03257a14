"""Records -> entries of the key index: hashes of `topic#key` for UNIQ_KEY and each KEYS word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.gather import Bytes, Positions
from rocketmq_wire.record import decode_record
from rocketmq_wire.tags import java_hash


def index_hash(topic: str, key: str) -> int:
    """The hash that RocketMQ's index files keep of a key: never negative."""
    value = abs(java_hash(f"{topic}#{key}"))
    # Java's Math.abs leaves the smallest int negative; RocketMQ then takes 0.
    return value if value < 2**31 else 0


def key_entries(
    data: Bytes, starts: Positions, sizes: Positions
) -> tuple[npt.NDArray[np.int32], Positions]:
    """The hash of every key, and where its record starts; in the order of the records."""
    hashes: list[int] = []
    found: list[int] = []
    for start, _ in zip(starts.tolist(), sizes.tolist(), strict=True):
        message, _ = decode_record(data.data, start)
        unique, words = (message.properties.get(name, "") for name in ("UNIQ_KEY", "KEYS"))
        for key in filter(None, (unique, *words.split(" "))):
            hashes.append(index_hash(message.topic, key))
            found.append(start)
    return np.array(hashes, np.int32), np.array(found, np.int64)
