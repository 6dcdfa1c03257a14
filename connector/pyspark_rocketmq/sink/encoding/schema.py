"""The schema of rows to write -> which column is which part of a message; refuses by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from pyspark.sql import types

from pyspark_rocketmq.errors import SinkSchemaError

_TEXT: Final = (types.StringType,)
_NUMBER: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_KINDS: Final[Mapping[str, tuple[tuple[type[types.DataType], ...], str]]] = {
    "topic": (_TEXT, "string"),
    "body": ((types.StringType, types.BinaryType), "string or binary"),
    "keys": (_TEXT, "string"),
    "tags": (_TEXT, "string"),
    "properties": ((types.MapType,), "map<string,string>"),
    "queueId": (_NUMBER, "int"),
    "brokerName": (_TEXT, "string"),
    "messageGroup": (_TEXT, "string"),
    "delayLevel": (_NUMBER, "int"),
    "deliveryTimestamp": ((types.TimestampType,), "timestamp"),
}
COLUMN_NAMES: Final = tuple(_KINDS)


def sink_columns(schema: types.StructType, *, has_topic_option: bool) -> dict[str, int]:
    """The index of each message part's column. Raises SinkSchemaError before anything is sent."""
    by_key = {name.lower(): name for name in COLUMN_NAMES}
    column_indices: dict[str, int] = {}
    for column_index, field in enumerate(schema.fields):
        name = by_key.get(field.name.lower())
        if name is None:
            raise SinkSchemaError(
                f"column '{field.name}' is no part of a message: {_hint(field.name)}"
            )
        if name in column_indices:
            raise SinkSchemaError(f"column '{name}' is there twice")
        kinds, wanted = _KINDS[name]
        if not isinstance(field.dataType, kinds) or not _is_text_map(field.dataType):
            found = field.dataType.simpleString()
            raise SinkSchemaError(f"column '{field.name}' must be {wanted}, not {found}")
        column_indices[name] = column_index
    if "body" not in column_indices:
        raise SinkSchemaError("column 'body' is missing")
    if "topic" not in column_indices and not has_topic_option:
        raise SinkSchemaError("there is neither an option 'topic' nor a column 'topic'")
    if "brokerName" in column_indices and "queueId" not in column_indices:
        raise SinkSchemaError("column 'brokerName' needs a column 'queueId'")
    return column_indices


def _is_text_map(kind: types.DataType) -> bool:
    if not isinstance(kind, types.MapType):
        return True
    return all(isinstance(one, types.StringType) for one in (kind.keyType, kind.valueType))


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in COLUMN_NAMES], n=1)
    for known in COLUMN_NAMES:
        if near and known.lower() == near[0]:
            return f"did you mean '{known}'?"
    return "messages have " + ", ".join(COLUMN_NAMES)
