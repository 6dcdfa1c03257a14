"""The errors of the broker's configuration and start; storage has its own module.

ValueError
    ConfigError             a key, a value or a file of the configuration cannot be used
        PortTakenError      a wanted port is in use
"""

from __future__ import annotations

from dataclasses import dataclass


class ConfigError(ValueError):
    """A key of the broker's configuration is unknown, or its value or file cannot be used."""


@dataclass(eq=False, repr=False)
class PortTakenError(ConfigError):
    """A wanted port is in use."""

    host: str
    port: int
    reason: str
    advice: str = ""

    def __str__(self) -> str:
        return f"cannot listen on {self.host}:{self.port}: {self.reason}{self.advice}"
