"""Refusals: one function per reason, which returns the error with RocketMQ's response code."""

from __future__ import annotations

from rocketmq_wire.codes import ResponseCode as Code
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import Bounds, QueueId


def topic_missing(topic: str) -> BrokerError:
    return broker_error(Code.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")


def route_missing(topic: str) -> BrokerError:
    # Clients match this text.
    return broker_error(
        Code.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}"
    )


def group_missing(group: str) -> BrokerError:
    return broker_error(
        Code.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist"
    )


def group_illegal(group: str, reason: str) -> BrokerError:
    return broker_error(
        Code.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [{group}] is not a valid name: {reason}",
    )


def topic_illegal(topic: str, reason: str) -> BrokerError:
    return broker_error(Code.INVALID_PARAMETER, f"topic[{topic}] {reason}")


def queue_illegal(queue: QueueId, count: int) -> BrokerError:
    return broker_error(
        Code.INVALID_PARAMETER,
        f"queueId[{queue.index}] is illegal, topic:[{queue.topic}] has {count} queues",
    )


def not_readable(topic: str) -> BrokerError:
    return broker_error(Code.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")


def not_writable(topic: str) -> BrokerError:
    return broker_error(Code.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")


def message_illegal(reason: str) -> BrokerError:
    return broker_error(Code.MESSAGE_ILLEGAL, reason)


def committed_offset_missing(group: str, queue: QueueId) -> BrokerError:
    return broker_error(
        Code.QUERY_NOT_FOUND, f"Not found, {group} has no committed offset in {queue}"
    )


def subscription_illegal(expression: str, reason: str) -> BrokerError:
    return broker_error(
        Code.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {expression!r}: {reason}",
    )


def subscription_missing(group: str, topic: str) -> BrokerError:
    return broker_error(
        Code.SUBSCRIPTION_NOT_EXIST,
        f"the consumer's subscription not exist: group {group} has no heartbeat for {topic}",
    )


def subscription_outdated(group: str, topic: str) -> BrokerError:
    return broker_error(
        Code.SUBSCRIPTION_NOT_LATEST, f"the consumer's subscription not latest: {group}, {topic}"
    )


def filter_unsupported(kind: str) -> BrokerError:
    # As a RocketMQ broker with its default enablePropertyFilter=false.
    return broker_error(
        Code.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
    )


def filter_missing(reason: str) -> BrokerError:
    return broker_error(
        Code.FILTER_DATA_NOT_EXIST,
        "The broker's consumer filter data is not exist!Your expression may be wrong! " + reason,
    )


def group_offline(group: str) -> BrokerError:
    return broker_error(Code.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")


def member_offline(group: str, client_id: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")


def member_silent(group: str, client_id: str) -> BrokerError:
    return broker_error(
        Code.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: it did not answer"
    )


def member_unclear(group: str, client_id: str, reason: str) -> BrokerError:
    return broker_error(
        Code.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> failed: {reason}"
    )


def members_busy() -> BrokerError:
    return broker_error(
        Code.SYSTEM_BUSY, "too many members are being asked something, try again later"
    )


def message_id_illegal(reason: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"the message cannot be looked up: {reason}")


def producers_missing(group: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"the producer group[{group}] not exist")


def group_setting_illegal(name: str, reason: str) -> BrokerError:
    return broker_error(Code.INVALID_PARAMETER, f"subscription group: {name} {reason}")


def setting_illegal(name: str, reason: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"{name} cannot be set: {reason}")


def reset_topic_missing(topic: str) -> BrokerError:
    return broker_error(Code.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")


def reset_group_missing(group: str) -> BrokerError:
    return broker_error(Code.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")


def reset_outside(offset: int, bounds: Bounds) -> BrokerError:
    return broker_error(
        Code.SYSTEM_ERROR,
        f"Target offset {offset} not in consume queue range [{bounds.start}-{bounds.end}]",
    )


def record_missing(position: int) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"can not find message by the offset, {position}")


def message_not_found() -> BrokerError:
    return broker_error(Code.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")


def feature_unsupported(feature: str) -> BrokerError:
    return broker_error(Code.REQUEST_CODE_NOT_SUPPORTED, f"this broker does not support {feature}")


def store_unavailable(reason: str) -> BrokerError:
    return broker_error(Code.SERVICE_NOT_AVAILABLE, f"the message store takes no writes: {reason}")


def outcome_unknown(reason: str) -> BrokerError:
    """The message may or may not be on disk: not retryable by itself."""
    return broker_error(Code.SYSTEM_ERROR, f"the message may be stored or not: {reason}")


def too_many_waiting(what: str, count_max: int) -> BrokerError:
    return broker_error(Code.SYSTEM_BUSY, f"{count_max} {what} are waiting, send again later")


def half_missing() -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, "Find prepared transaction message failed")


def record_damaged(position: int, reason: str) -> BrokerError:
    words = f"the message at {position} of the log is damaged, see `rmq fsck`: {reason}"
    return broker_error(Code.SYSTEM_ERROR, words)


def transaction_missing(transaction_id: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, f"the transaction[{transaction_id}] is not pending here")


def end_illegal(reason: str) -> BrokerError:
    return broker_error(Code.SYSTEM_ERROR, reason)


def end_too_late(late_ms: int) -> BrokerError:
    return broker_error(
        Code.ILLEGAL_OPERATION,
        f"the transaction is ended {late_ms} ms too late: wait for the check of its state",
    )


def already_ended(how: str) -> BrokerError:
    return broker_error(Code.ILLEGAL_OPERATION, f"the transaction has ended already: {how}")


def timer_illegal(reason: str) -> BrokerError:
    return broker_error(Code.MESSAGE_ILLEGAL, f"timer message illegal, {reason}")


def recall_illegal(reason: str) -> BrokerError:
    return broker_error(Code.ILLEGAL_OPERATION, f"recall failed, {reason}")
