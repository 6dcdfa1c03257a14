"""Tells whose record a pull of a queue's offset 0 was answered with: it may be another message's.

RocketMQ finds the record at the very first place of its log in the oldest file that is left, once
the file that had it has expired: the pull brings as many bytes of whatever begins there. Every
other place that has expired is found missing. The message at that place has offset 0 in its queue.
"""

from __future__ import annotations

from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.records.record import decode_record


def first_offset(queue: QueueId, body: Buffer) -> int | None:
    """The queue offset of the record that `body` begins with; None when it is cut off, or not of
    this queue. Bytes that are merely damaged count as offset 0: they are for the decoder to judge.
    """
    if _is_cut_off(body):
        return None
    try:
        message, _ = decode_record(body, check_crc=False)
    except CorruptRecordError:
        return 0
    is_own = (message.topic, message.queue_index) == (queue.topic, queue.index)
    return message.queue_offset if is_own else None


def _is_cut_off(body: Buffer) -> bool:
    return int.from_bytes(body[:4], "big") > len(body)
