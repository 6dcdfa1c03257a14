"""A small, durable RocketMQ broker: name server, broker and gRPC services in one process."""

from __future__ import annotations

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig, ConfigError, config_from, load_config

__all__ = ["Broker", "BrokerConfig", "ConfigError", "config_from", "load_config"]
