"""Refusals: each reason with RocketMQ's response code and text; a call fills in the facts."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.codes import ResponseCode as Code
from rocketmq_wire.errors import BrokerError, broker_error


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason to refuse a request."""

    code: Code
    text: str

    def __call__(self, *facts: object) -> BrokerError:
        """The error to raise, with as many facts as the text has places for them."""
        return broker_error(self.code, self.text % facts)


# --- topics, queues, groups ------------------------------------------------------------------

topic_missing = Refusal(Code.TOPIC_NOT_EXIST, "topic[%s] not exist, apply first please!")
# Clients match this text.
route_missing = Refusal(
    Code.TOPIC_NOT_EXIST, "No topic route info in name server for the topic: %s"
)
topic_illegal = Refusal(Code.INVALID_PARAMETER, "topic[%s] %s")
queue_illegal = Refusal(Code.INVALID_PARAMETER, "queueId[%d] is illegal, topic:[%s] has %d queues")
not_readable = Refusal(Code.NO_PERMISSION, "the topic[%s] pulling message is forbidden")
not_writable = Refusal(Code.NO_PERMISSION, "the topic[%s] sending message is forbidden")
group_missing = Refusal(Code.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [%s] does not exist")
group_illegal = Refusal(
    Code.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [%s] is not a valid name: %s"
)
heartbeat_illegal = Refusal(Code.SYSTEM_ERROR, "the heartbeat has %s")
clients_too_many = Refusal(
    Code.SYSTEM_BUSY, "the clients that are online take too much memory: close some of them"
)
group_setting_illegal = Refusal(Code.INVALID_PARAMETER, "subscription group: %s %s")
setting_illegal = Refusal(Code.SYSTEM_ERROR, "%s cannot be set: %s")
statistic_missing = Refusal(Code.SYSTEM_ERROR, "The stats <%s> <%s> not exist")
feature_unsupported = Refusal(Code.REQUEST_CODE_NOT_SUPPORTED, "this broker does not support %s")

registration_illegal = Refusal(Code.SYSTEM_ERROR, "the broker cannot be registered: %s")
broker_name_taken = Refusal(
    Code.SYSTEM_ERROR,
    "the broker cannot be registered: brokerName %s belongs to %s. Give each broker its own name",
)

# --- subscriptions and committed offsets -----------------------------------------------------

subscription_illegal = Refusal(
    Code.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed: %r: %s"
)
subscription_missing = Refusal(
    Code.SUBSCRIPTION_NOT_EXIST,
    "the consumer's subscription not exist: group %s has no heartbeat for %s",
)
subscription_outdated = Refusal(
    Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest: %s, %s"
)
# As a RocketMQ broker with its default enablePropertyFilter=false.
filter_unsupported = Refusal(
    Code.SYSTEM_ERROR, "The broker does not support consumer to filter message by %s"
)
filter_missing = Refusal(
    Code.FILTER_DATA_NOT_EXIST,
    "The broker's consumer filter data is not exist!Your expression may be wrong! %s",
)
committed_offset_missing = Refusal(
    Code.QUERY_NOT_FOUND, "Not found, %s has no committed offset in %s"
)
reset_topic_missing = Refusal(Code.TOPIC_NOT_EXIST, "Topic %s does not exist")
reset_group_missing = Refusal(Code.SUBSCRIPTION_GROUP_NOT_EXIST, "Group %s does not exist")
reset_outside = Refusal(Code.SYSTEM_ERROR, "Target offset %d not in consume queue range [%d-%d]")

# --- clients ---------------------------------------------------------------------------------

group_offline = Refusal(Code.CONSUMER_NOT_ONLINE, "the consumer group[%s] not online")
producers_missing = Refusal(Code.SYSTEM_ERROR, "the producer group[%s] not exist")
member_offline = Refusal(Code.SYSTEM_ERROR, "The Consumer <%s> <%s> not online")
member_silent = Refusal(Code.CONSUME_MSG_TIMEOUT, "consumer <%s> <%s> Timeout: it did not answer")
member_unclear = Refusal(Code.SYSTEM_ERROR, "invoke consumer <%s> <%s> failed: %s")
members_busy = Refusal(
    Code.SYSTEM_BUSY, "too many members are being asked something, try again later"
)

# --- messages --------------------------------------------------------------------------------

message_illegal = Refusal(Code.MESSAGE_ILLEGAL, "%s")
timer_illegal = Refusal(Code.MESSAGE_ILLEGAL, "timer message illegal, %s")
recall_illegal = Refusal(Code.ILLEGAL_OPERATION, "recall failed, %s")
message_id_illegal = Refusal(Code.SYSTEM_ERROR, "the message cannot be looked up: %s")
message_not_found = Refusal(
    Code.QUERY_NOT_FOUND, "can not find message, maybe time range not correct"
)
record_missing = Refusal(Code.SYSTEM_ERROR, "can not find message by the offset, %d")
record_damaged = Refusal(
    Code.SYSTEM_ERROR, "the message at %d of the log is damaged, see `rmq fsck`: %s"
)
too_many_waiting = Refusal(Code.SYSTEM_BUSY, "%d %s are waiting, send again later")
store_unavailable = Refusal(Code.SERVICE_NOT_AVAILABLE, "the message store takes no writes: %s")
disk_refused = Refusal(Code.SYSTEM_ERROR, "the disk refused, and nothing was changed: %s")
# The message may or may not be on disk: not retryable by itself.
outcome_unknown = Refusal(Code.SYSTEM_ERROR, "the message may be stored or not: %s")

# --- transactions ----------------------------------------------------------------------------

half_missing = Refusal(Code.SYSTEM_ERROR, "Find prepared transaction message failed")
transaction_missing = Refusal(Code.SYSTEM_ERROR, "the transaction[%s] is not pending here")
end_illegal = Refusal(Code.SYSTEM_ERROR, "%s")
end_too_late = Refusal(
    Code.ILLEGAL_OPERATION,
    "the transaction is ended %d ms too late: wait for the check of its state",
)
already_ended = Refusal(Code.ILLEGAL_OPERATION, "the transaction has ended already: %s")
