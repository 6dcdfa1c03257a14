"""What a decoded row must hold, computed from the message alone, one field at a time."""

from __future__ import annotations

import datetime
import ipaddress
from typing import Any

from rocketmq_wire.model import Host, QueueId, StoredMessage

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def shown_time(time_ms: int) -> datetime.datetime:
    """What is beyond Python's calendar is cut to it."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=time_ms)
    except OverflowError:
        limit = datetime.datetime.max if time_ms > 0 else datetime.datetime.min
        whole_ms = limit.microsecond // 1000 * 1000
        return limit.replace(microsecond=whole_ms, tzinfo=datetime.timezone.utc)


def host_text(host: Host) -> str:
    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"


def offset_message_id(message: StoredMessage) -> str:
    host = message.store_host
    port = host.port.to_bytes(4, "big", signed=True)
    offset = message.physical_offset.to_bytes(8, "big", signed=True)
    return (host.address + port + offset).hex().upper()


def expected_row(message: StoredMessage, queue: QueueId, *, body: bytes) -> dict[str, Any]:
    """Every column but corruptReason; `body` as users get it."""
    properties = dict(message.properties)
    return {
        "topic": queue.topic,
        "brokerName": queue.broker,
        "queueId": queue.index,
        "queueOffset": message.queue_offset,
        "body": body,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "bornTimestamp": shown_time(message.born_ms),
        "storeTimestamp": shown_time(message.store_ms),
        "properties": properties,
        "msgId": properties.get("UNIQ_KEY") or offset_message_id(message),
        "offsetMsgId": offset_message_id(message),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "physicalOffset": message.physical_offset,
        "bodyCrc": message.body_crc,
        "storeSize": message.store_size,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "deliveryAttempt": message.reconsume_times + 1,
        "receiptHandle": None,
    }
