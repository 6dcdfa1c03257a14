"""The definition of an option: its spellings, values, uses and help text."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from pyspark_rocketmq.options.kinds import Kind


class Use(enum.Enum):
    STREAM = "stream"
    BATCH = "batch"
    SINK = "writes"


READ: Final = frozenset({Use.STREAM, Use.BATCH})
STREAM: Final = frozenset({Use.STREAM})
BATCH: Final = frozenset({Use.BATCH})
SINK: Final = frozenset({Use.SINK})
ALL: Final = frozenset(Use)


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    name: str
    kind: Kind
    default: object
    uses: frozenset[Use]
    group: str
    help: str = ""
    aliases: tuple[str, ...] = ()
    supported: tuple[object, ...] | None = None
    """The values that this version supports; None: all of them, (): none."""

    @property
    def field(self) -> str:
        """The field of ReadOptions, WriteOptions or one of their parts that has the value."""
        words = "".join("_" + c.lower() if c.isupper() else c for c in self.name)
        return words.replace(".", "_")

    def with_help(self, text: str) -> OptionDefinition:
        return replace(self, help=text)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the reference page: options for the same uses, unless one says otherwise."""

    group: str
    uses: frozenset[Use]

    def option(
        self,
        name: str,
        kind: Kind,
        default: object = None,
        *,
        aliases: tuple[str, ...] = (),
        uses: frozenset[Use] | None = None,
        supported: tuple[object, ...] | None = None,
    ) -> OptionDefinition:
        return OptionDefinition(
            name, kind, default, uses or self.uses, self.group, "", aliases, supported
        )

    def later(self, name: str, kind: Kind, help: str) -> OptionDefinition:
        """Define an option that this version refuses."""
        return self.option(name, kind, supported=()).with_help(help)
