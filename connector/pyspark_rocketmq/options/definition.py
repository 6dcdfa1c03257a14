"""What an option is: its spellings, what it takes, who may use it, and what it is for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options.kinds import Kind


class Use(enum.Enum):
    """What an option may be given to."""

    STREAM = "stream"
    BATCH = "batch"
    SINK = "sink"


READ: Final = frozenset({Use.STREAM, Use.BATCH})
STREAM: Final = frozenset({Use.STREAM})
BATCH: Final = frozenset({Use.BATCH})
SINK: Final = frozenset({Use.SINK})
ALL: Final = frozenset(Use)


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    """One option: its spellings, what it takes, who may use it, and what it is for."""

    name: str
    kind: Kind
    default: object
    uses: frozenset[Use]
    group: str
    help: str
    aliases: tuple[str, ...] = ()
    supported: tuple[object, ...] | None = None
    """The values that this version carries out; None: all of them, (): none."""

    @property
    def field(self) -> str:
        """The attribute of ReadOptions that holds the value."""
        words = "".join("_" + c.lower() if c.isupper() else c for c in self.name)
        return words.replace(".", "_")


def later(name: str, kind: Kind, uses: frozenset[Use], group: str, help: str) -> OptionDefinition:
    """An option that is refused until there is something behind it."""
    return OptionDefinition(name, kind, None, uses, group, help, supported=())
