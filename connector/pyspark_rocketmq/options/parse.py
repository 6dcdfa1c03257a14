"""Turns the options that a user wrote into `ReadOptions` or `WriteOptions`, and checks them once.

Keys are case-insensitive. An unknown key is refused with the nearest known one, a value outside its
range with what the option takes, and an unsupported option with "not supported yet". A batch read
warns of options for streams, as Spark's Kafka source does: one dictionary serves both. No option is
ignored silently, except those that Spark itself adds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options import checks
from pyspark_rocketmq.options.definition import OptionDefinition, Use
from pyspark_rocketmq.options.tables import (
    CONNECTION_DEFINITIONS,
    READ_DEFINITIONS,
    SINK_DEFINITIONS,
)
from pyspark_rocketmq.options.values import (
    BodyOptions,
    ConnectionOptions,
    ConsumerOptions,
    PullOptions,
    ReadOptions,
    WriteOptions,
)
from rocketmq_wire.model import NAME_PATTERN
from rocketmq_wire.suggest import nearest

_log = logging.getLogger("pyspark_rocketmq")

DEFINITIONS: Final = (*CONNECTION_DEFINITIONS, *READ_DEFINITIONS, *SINK_DEFINITIONS)
"""Every option: parsing, error messages and the reference page come from these tables."""

_BY_KEY: Final[dict[str, OptionDefinition]] = {
    spelling.lower(): definition
    for definition in DEFINITIONS
    for spelling in (definition.name, *definition.aliases)
}
# Spark adds these itself: paths of its own, and the stored facts of a table. (`require_selection`
# and `refuse_path_in_write` refuse a user's own `path`.)
_SPARKS_OWN: Final = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "serialization.format",
        "provider",
        "location",
        "owner",
        "comment",
        "external",
        "is_managed_location",
        "collation",
        "transient_lastddltime",
    }
)
# Spark passes these of a stored table, beside its path.
_TABLE_FACTS: Final = ("provider", "owner")
# Spark repeats the options of a stored table under this prefix.
_STORED_PREFIX: Final = "option."
# Options of Spark's CSV, which users give along with bodyFormat=csv.
_OF_FROM_CSV: Final = ("delimiter", "sep", "nullvalue")

_Part = TypeVar("_Part")


def spellings_of(definitions: Iterable[OptionDefinition]) -> frozenset[str]:
    return frozenset(
        spelling.lower()
        for definition in definitions
        for spelling in (definition.name, *definition.aliases)
    )


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """Options whose names and values are checked, before it is known what they are used for."""

    values: Mapping[str, Any] = field(repr=False)
    """By field; keys of accounts are among them."""
    given: frozenset[str]
    has_path: bool
    """True if the user gave a path."""
    is_table: bool
    """True if the options are those of a stored table."""

    def unchecked_read(self) -> ReadOptions:
        return ReadOptions(
            given=self.given,
            connection=self._part(ConnectionOptions),
            consumer=self._part(ConsumerOptions),
            pull=self._part(PullOptions),
            bodies=self._part(BodyOptions),
            **self._values_of(ReadOptions),
        )

    def selected_read(self) -> ReadOptions:
        """The options of a read that names a cluster and topics."""
        options = self.unchecked_read()
        checks.require_connection(options, is_table=self.is_table or not self.given)
        checks.require_selection(options, has_path=self.has_path, is_table=self.is_table)
        return options

    def read(self, use: Use) -> ReadOptions:
        """The options of a stream or a batch, all of them meant for it."""
        options = self.selected_read()
        self._check_uses(use)
        checks.check_read(options, use)
        return options

    def write(self) -> WriteOptions:
        """The options of a write, all of them meant for it."""
        options = WriteOptions(
            given=self.given,
            connection=self._part(ConnectionOptions),
            **self._values_of(WriteOptions),
        )
        # Spark does not tell a write whether it is into a table.
        checks.require_connection(options, is_table=True)
        checks.refuse_path_in_write(has_path=self.has_path)
        self._check_uses(Use.SINK)
        checks.check_write(options)
        return options

    def _part(self, kind: type[_Part]) -> _Part:
        return kind(**self._values_of(kind))

    def _values_of(self, kind: type[Any]) -> dict[str, Any]:
        names = (known.name for known in fields(kind))
        return {name: self.values[name] for name in names if name in self.values}

    def _check_uses(self, use: Use) -> None:
        for name in sorted(self.given):
            definition = _BY_KEY[name.lower()]
            if use in definition.uses:
                continue
            if use is Use.BATCH and Use.STREAM in definition.uses:
                _log.warning("option '%s' is for streams: this batch read ignores it", name)
            else:
                belongs = " or ".join(sorted(known.value for known in definition.uses))
                here = "write" if use is Use.SINK else f"{use.value} query"
                raise OptionError(
                    name, f"is for {belongs} and has no meaning in a {here}", "NOT_HERE"
                )


def read_options(raw: Mapping[str, str], use: Use | None = None) -> ReadOptions:
    """Parse the options of a read; without a `use` only names and values are checked.

    Raises OptionError and UnsupportedError.
    """
    parsed = parse_options(raw)
    return parsed.unchecked_read() if use is None else parsed.read(use)


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    return parse_options(raw).write()


def parse_options(raw: Mapping[str, str]) -> ParsedOptions:
    """Check every name and value, and what excludes what. Raises OptionError, UnsupportedError."""
    values: dict[str, Any] = {definition.field: definition.default for definition in DEFINITIONS}
    spelled: dict[str, str] = {}
    for key, text in raw.items():
        lowered = key.lower()
        if lowered in _SPARKS_OWN or _is_stored_copy(lowered, raw):
            continue
        definition = _definition(key)
        # Spark passes keys in lower case.
        spelling = _spelling(lowered)
        value = _value(definition, spelling, text, _topic_of(raw, text))
        earlier = spelled.setdefault(definition.name, key)
        if earlier != key and values[definition.field] != value:
            reason = f"contradicts option '{_spelling(earlier.lower())}': give one of them"
            raise OptionError(spelling, reason, "CONFLICT")
        values[definition.field] = value
    parsed = ParsedOptions(values, frozenset(spelled), _has_path(raw), _is_table(raw))
    options = parsed.unchecked_read()
    checks.check_connection(options.connection, options.given)
    checks.check_read_together(options)
    return parsed


def _is_stored_copy(lowered: str, raw: Mapping[str, str]) -> bool:
    return lowered.startswith(_STORED_PREFIX) and any(
        key.lower() == lowered[len(_STORED_PREFIX) :] for key in raw
    )


def _has_path(raw: Mapping[str, str]) -> bool:
    """True if the user gave a path; a stored table has one of its own."""
    keys = {key.lower() for key in raw}
    return not _is_table(raw) and not keys.isdisjoint(("path", "paths"))


def _is_table(raw: Mapping[str, str]) -> bool:
    keys = {key.lower() for key in raw}
    return not keys.isdisjoint(_TABLE_FACTS) or any(key.startswith(_STORED_PREFIX) for key in keys)


def _definition(key: str) -> OptionDefinition:
    lowered = key.lower()
    definition = _BY_KEY.get(lowered)
    if definition is not None:
        return definition
    near = nearest(lowered, _BY_KEY)
    if lowered == "kafka.bootstrap.servers":
        hint = "give the name server's address as 'nameServer'; docs/from-kafka.md has the others"
    elif lowered.startswith("kafka."):
        hint = "docs/from-kafka.md says what takes the place of Kafka's options"
    elif lowered in _OF_FROM_CSV:
        hint = "Spark's from_csv takes it, which reads CSV bodies from the column 'body'"
    elif near:
        hint = f"did you mean '{_spelling(near)}'?"
    else:
        hint = "the options reference lists every option"
    raise OptionError(key, f"is unknown: {hint}", "UNKNOWN")


def _spelling(lowered: str) -> str:
    definition = _BY_KEY[lowered]
    spellings = (definition.name, *definition.aliases)
    return next(spelling for spelling in spellings if spelling.lower() == lowered)


def _topic_of(raw: Mapping[str, str], text: str) -> str:
    """The topic to show in an example: the one that is selected, or named in JSON that is cut."""
    selected = next((value.strip() for key, value in raw.items() if key.lower() == "subscribe"), "")
    if NAME_PATTERN.fullmatch(selected):
        return selected
    named = re.match(r'\s*\{\s*"([^"]+)"', text)
    return named[1] if named else "orders"


def _value(definition: OptionDefinition, key: str, text: str, topic: str) -> object:
    if definition.supported == ():
        raise UnsupportedError("OPTION", f"option '{key}' is not supported yet: leave it out")
    try:
        value = definition.kind.parse(text)
    except ValueError as error:
        got = "" if definition.kind.is_secret else f", got {_shown(text)}"
        json_form = re.search(r"JSON like (.*)", definition.kind.takes)
        shape = f". Write {json_form[1].replace('orders', topic)}" if json_form else ""
        raise OptionError(key, f"{error}{got}{shape}") from error
    if definition.supported is not None and value not in definition.supported:
        only = ", ".join(str(known).lower() for known in definition.supported)
        raise UnsupportedError(
            "OPTION", f"option '{key}' = {text.strip()} is not supported yet: use {only}"
        )
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
