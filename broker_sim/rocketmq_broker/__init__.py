"""A small, durable RocketMQ broker: name server, broker and gRPC services in one process."""

from __future__ import annotations

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig, config_from, load_config
from rocketmq_broker.errors import ConfigError

__all__ = ["Broker", "BrokerConfig", "ConfigError", "config_from", "load_config"]
