"""The numbers of RocketMQ's consumer, each with RocketMQ's name for it."""

from __future__ import annotations

import pytest

from rocketmq_client.consumer.common import io_thread
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings, PopSettings
from rocketmq_client.consumer.consuming import consumption
from rocketmq_client.consumer.lite_pull import WAITING_MAX
from rocketmq_client.consumer.popping import puller
from rocketmq_client.consumer.pulling import process_queue

SETTINGS, POP = ConsumerSettings("g"), PopSettings()
LIMITS = SETTINGS.limits
DEFAULTS = {
    "pullThresholdForQueue": (LIMITS.count_max, 1_000),
    "pullThresholdSizeForQueue": (LIMITS.size_max, 100 * 1024 * 1024),
    "consumeConcurrentlyMaxSpan": (LIMITS.span_max, 2_000),
    "pullThresholdForTopic": (LIMITS.topic_count_max, None),
    "pullThresholdSizeForTopic": (LIMITS.topic_size_max, None),
    "pullThresholdForAll": (WAITING_MAX, 10_000),
    "pollNameServerInterval": (SETTINGS.route_ms, 30_000),
    "heartbeatBrokerInterval": (SETTINGS.heartbeat_ms, 30_000),
    "persistConsumerOffsetInterval": (SETTINGS.persist_ms, 5_000),
    "rocketmq.client.rebalance.waitInterval": (SETTINGS.rebalance_ms, 20_000),
    "rocketmq.client.rebalance.lockInterval": (SETTINGS.lock_ms, 20_000),
    "rocketmq.client.rebalance.lockMaxLiveTime": (process_queue.LOCK_AGE_MS_MAX, 30_000),
    "rocketmq.client.pull.pullMaxIdleTime": (process_queue.PULL_AGE_MS_MAX, 120_000),
    "BROKER_SUSPEND_MAX_TIME_MILLIS": (SETTINGS.suspend_ms, 15_000),
    "CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND": (SETTINGS.pull_timeout_ms, 30_000),
    "mqClientApiTimeout": (SETTINGS.request_timeout_ms, 3_000),
    "PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL": (process_queue.FLOW_DELAY_MS, 50),
    "PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL": (process_queue.BROKER_FLOW_DELAY_MS, 20),
    "PULL_TIME_DELAY_MILLS_WHEN_SUSPEND": (process_queue.SUSPENDED_DELAY_MS, 1_000),
    "pullTimeDelayMillsWhenException": (process_queue.ERROR_DELAY_MS, 3_000),
    "pullTimeDelayMillsWhenException, no lock": (process_queue.UNLOCKED_DELAY_MS, 3_000),
    "executeTaskLater of an illegal offset": (process_queue.ILLEGAL_DELAY_MS, 10_000),
    "pullInterval": (SETTINGS.pull_interval_ms, 0),
    "postSubscriptionWhenPull": (SETTINGS.post_subscription_when_pull, False),
    "consumeFromWhere": (SETTINGS.consume_from, ConsumeFrom.LAST),
    "consumeMessageBatchMaxSize": (SETTINGS.consume_batch_size, 1),
    "consumeThreadMin and Max": (SETTINGS.threads, 20),
    "consumeTimeout": (SETTINGS.consume_timeout_ms, 15 * 60_000),
    "maxReconsumeTimes": (SETTINGS.attempts, 16),
    "suspendCurrentQueueTimeMillis": (SETTINGS.suspend_queue_ms, 1_000),
    "MAX_TIME_CONSUME_CONTINUOUSLY": (consumption.TURN_MS_MAX, 60_000),
    "submitConsumeRequestLater": (consumption.LOCAL_RETRY_MS, 5_000),
    "popInvisibleTime": (POP.invisible_ms, 60_000),
    "popBatchNums": (POP.batch_size, 32),
    "popThresholdForQueue": (POP.pending_max, 96),
    "BROKER_SUSPEND_MAX_TIME_MILLIS of pops": (POP.poll_ms, 15_000),
    "PULL_TIME_DELAY_MILLS_WHEN_CACHE_FLOW_CONTROL of pops": (puller._FULL_PAUSE_MS, 50),
    "clientAsyncSemaphoreValue": (io_thread.PERMITS, 65_535),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_number_is_rocketmq_s_default(name: str) -> None:
    ours, theirs = DEFAULTS[name]
    assert ours == theirs
