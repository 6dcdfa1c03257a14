"""Brokers for tests: fixtures that give a RocketMQ broker, its faults, and Spark beside it.

The names are for annotations; pytest finds the fixtures by itself (`pytest --fixtures -v` lists
them, they begin with `rocketmq`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rocketmq.faults import RocketMQFaults
    from pytest_rocketmq.handle import RocketMQ

__all__ = ["RocketMQ", "RocketMQFaults"]


def __getattr__(name: str) -> Any:
    # pytest imports this package wherever it is installed: nobody pays who does not use it.
    if name == "RocketMQ":
        from pytest_rocketmq.handle import RocketMQ

        return RocketMQ
    if name == "RocketMQFaults":
        from pytest_rocketmq.faults import RocketMQFaults

        return RocketMQFaults
    raise AttributeError(name)
