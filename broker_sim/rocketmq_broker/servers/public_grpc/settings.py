"""A client's settings -> the settings with the broker's decisions: retries, batches, waits."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_broker.servers.public_grpc.limits import MINUTE_MS, PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import GroupLookup, Lookup
from rocketmq_broker.servers.public_grpc.routing import lite_refusal
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal
from rocketmq_wire.grpc.public.messages import put_duration

PRODUCER, PUSH, SIMPLE, PULL, _LITE_PUSH, _LITE_SIMPLE = range(1, 7)
"""`ClientType` in the protocol."""
# RocketMQ's waits before each further delivery: its delay levels from the third on.
RETRY_DELAYS_MS: Final = (
    *(10_000, 30_000, MINUTE_MS),
    *(minutes * MINUTE_MS for minutes in (2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_ATTEMPTS_MAX: Final = 3
"""A producer's attempts to send a message."""


def decided_settings(settings: Any, lookup: Lookup, limits: PublicLimits) -> Any:
    """The settings that the client gets. Raises PublicRefusal if they fit no kind of client."""
    if settings.ByteSize() > limits.settings_size_max:
        raise PublicRefusal(
            PublicCode.BAD_REQUEST, f"the settings take more than {limits.settings_size_max} bytes"
        )
    decided = type(settings)()
    decided.CopyFrom(settings)
    decided.metric.on = False
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        _decide_publishing(decided, limits)
    elif kind == "subscription":
        _decide_subscription(decided, lookup, limits)
    else:
        raise PublicRefusal(
            PublicCode.UNRECOGNIZED_CLIENT_TYPE, "settings name neither publishing nor subscription"
        )
    return decided


def _decide_publishing(settings: Any, limits: PublicLimits) -> None:
    settings.ClearField("backoff_policy")
    policy = settings.backoff_policy
    policy.max_attempts = _ATTEMPTS_MAX
    put_duration(policy.exponential_backoff.initial, 10)
    put_duration(policy.exponential_backoff.max, 1_000)
    policy.exponential_backoff.multiplier = 2
    settings.publishing.max_body_size = limits.body_size_max
    settings.publishing.validate_message_type = True


def _decide_subscription(settings: Any, lookup: Lookup, limits: PublicLimits) -> None:
    name = settings.subscription.group.name
    group = lookup.group(name)
    if settings.client_type in (_LITE_PUSH, _LITE_SIMPLE):
        raise lite_refusal(f"a lite consumer of group {name}")
    settings.ClearField("backoff_policy")
    _put_backoff(settings.backoff_policy, group)
    subscription = settings.subscription
    subscription.fifo = group.is_fifo
    subscription.receive_batch_size = limits.receive_count_max
    put_duration(subscription.long_polling_timeout, limits.poll_ms_max)


def _put_backoff(policy: Any, group: GroupLookup) -> None:
    policy.max_attempts = group.attempts_max
    if group.backoff is None:
        for delay_ms in RETRY_DELAYS_MS:
            put_duration(policy.customized_backoff.next.add(), delay_ms)
        return
    exponential = policy.exponential_backoff
    put_duration(exponential.initial, int(group.backoff.get("initial", 5_000)))
    put_duration(exponential.max, int(group.backoff.get("max", 2 * 60 * MINUTE_MS)))
    exponential.multiplier = float(group.backoff.get("multiplier", 2))
