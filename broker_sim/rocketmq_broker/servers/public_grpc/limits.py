"""What the public service lets clients do: the proxy's own limits, where it has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class PublicLimits:
    """Of RocketMQ's proxy; those it does not have say why."""

    body_size_max: int = 4 * 1024 * 1024
    delay_ms_max: int = 24 * HOUR_MS
    recovery_ms_max: int = HOUR_MS
    poll_ms_min: int = 5_000
    poll_ms_max: int = 20_000
    invisible_ms_min: int = 10_000
    invisible_ms_max: int = 12 * HOUR_MS
    renewed_ms: int = MINUTE_MS
    receive_count_max: int = 32
    group_size_max: int = 64
    """Bytes of a message group, which must be less."""
    user_properties_max: int = 128
    properties_size_max: int = 16 * 1024
    sessions_max: int = 65_536
    """Clients known at once. Each costs some kilobytes, and anybody can make up an id."""
    settings_size_max: int = 128 * 1024
    """Of what a client says of itself, which is kept: some thousand subscriptions."""
    commands_max: int = 1_024
    """That wait for one client to read them; beyond it the client is cut off."""
    pull_count_max: int = 1_024
    pull_bytes_max: int = 4 * 1024 * 1024
