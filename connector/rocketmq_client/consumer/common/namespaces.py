"""Names of topics and groups within a namespace: pure. `a%orders` is the topic orders of a."""

from __future__ import annotations

from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic

_PREFIXES = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def wrapped(namespace: str | None, name: str) -> str:
    """The name as the brokers know it; the cluster's own topics are in no namespace."""
    if not namespace:
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + wrapped(namespace, name.removeprefix(prefix))
    if is_system_topic(name) or name.startswith(f"{namespace}%"):
        return name
    return f"{namespace}%{name}"


def unwrapped(namespace: str | None, name: str) -> str:
    """The name as users of the namespace know it."""
    if not namespace:
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + unwrapped(namespace, name.removeprefix(prefix))
    return name.removeprefix(f"{namespace}%")
