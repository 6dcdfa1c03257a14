"""Pytest fixtures for RocketMQ brokers, their faults, and Spark. Start at `plugin`.

The names here are for annotations. Pytest finds the fixtures itself; `pytest --fixtures -v` lists
them, their names begin with `rocketmq`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rocketmq.faults import RocketMQFaults
    from pytest_rocketmq.handle import RocketMQ

__all__ = ["RocketMQ", "RocketMQFaults"]


def __getattr__(name: str) -> Any:
    # Pytest imports this package wherever it is installed, so imports wait until they are needed.
    if name == "RocketMQ":
        from pytest_rocketmq.handle import RocketMQ

        return RocketMQ
    if name == "RocketMQFaults":
        from pytest_rocketmq.faults import RocketMQFaults

        return RocketMQFaults
    raise AttributeError(name)
