"""A schema with fields of bodies -> the columns to decode, and record batches of those fields.

A column is a field of the bodies, a column of messages with two underscores before its name
(`__offset` is `queueOffset`), or the column for the texts of bad bodies.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.errors import BadBodyError, OptionError, SchemaError
from pyspark_rocketmq.options.values import ReadOptions
from rocketmq_arrow.bodies.reader import JsonBodies
from rocketmq_arrow.kernels.gather import as_text
from rocketmq_arrow.kernels.numpy_arrays import array_of, integers_of
from rocketmq_arrow.source_columns import COLUMNS, check_schema
from rocketmq_wire.model import QueueId
from rocketmq_wire.suggest import nearest

_log = logging.getLogger("pyspark_rocketmq")
_PREFIX: Final = "__"
_COLUMN_OF: Final = {f"{_PREFIX}{name}": name for name in COLUMNS} | {"__offset": "queueOffset"}
_OFFSET: Final = pa.field("queueOffset", pa.int64())
_BODY: Final = pa.field("body", pa.binary())
# Options of reads whose rows do not pass this module.
_UNFIT: Final = ("messageKey", "messageId", "consumeMode")
_OF_TYPED: Final = ("bodyMode", "columnNameOfCorruptRecord")


@dataclass(frozen=True, slots=True)
class TypedPlan:
    """The columns of a typed read; Spark carries it to the workers pickled."""

    output: pa.Schema
    """The schema that Spark expects."""
    fields: pa.Schema
    """The fields of bodies."""
    mode: str
    bad_column: str | None

    @property
    def messages(self) -> pa.Schema:
        """The columns to decode of every message."""
        wanted = {"queueOffset": _OFFSET, "body": _BODY}
        for field in self.output:
            column = _COLUMN_OF.get(field.name)
            if column is not None:
                wanted[column] = field.with_name(column)
        return pa.schema(list(wanted.values()))


def typed_plan(options: ReadOptions, schema: pa.Schema) -> TypedPlan | None:
    """Plan how to read the bodies; None without bodyFormat. Raises OptionError, SchemaError."""
    if options.bodies.body_format is None:
        for name in _OF_TYPED:
            if name in options.given:
                raise OptionError(name, "has no meaning without bodyFormat", "MISSING")
        return None
    for name in _UNFIT:
        if name in options.given:
            raise OptionError("bodyFormat", f"does not go with '{name}' yet", "CONFLICT")
    bad_column = options.bodies.column_name_of_corrupt_record
    if bad_column.lower() in map(str.lower, _COLUMN_OF):
        raise OptionError(
            "columnNameOfCorruptRecord",
            f"= {bad_column} is a column of messages: take another name, such as _corrupt_record",
            "CONFLICT",
        )
    _check_names(schema.names, "")
    fields = []
    for field in schema:
        if field.name == bad_column:
            if field.type != pa.string() or not field.nullable:
                raise OptionError("columnNameOfCorruptRecord", "must be a STRING that can be null")
        elif not field.name.startswith(_PREFIX):
            _check_field(field, field.name)
            fields.append(field)
            if field.name in COLUMNS:
                _log.warning(
                    "bodyFormat=json: the column '%s' is read from the bodies; did you mean '%s', "
                    "the column of messages?",
                    field.name,
                    _PREFIX + field.name,
                )
        elif field.name not in _COLUMN_OF:
            near = nearest(field.name, _COLUMN_OF)
            hint = f"did you mean '{near}'?" if near else f"known are {', '.join(_COLUMN_OF)}"
            raise SchemaError(f"unknown column '{field.name}', {hint}")
    if not fields:
        raise OptionError("bodyFormat", "needs .schema(...) with at least one field of the bodies")
    has_bad = bad_column in schema.names
    plan = TypedPlan(
        output=schema,
        fields=pa.schema(fields),
        mode=options.bodies.body_mode,
        bad_column=bad_column if has_bad else None,
    )
    try:
        check_schema(plan.messages)
    except ValueError as error:
        raise SchemaError(f"{error} (written with two underscores before it)") from error
    return plan


def _check_names(names: list[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise OptionError(
                "bodyFormat",
                f"= json: the schema names '{path}{name}' twice: give every column a name of its "
                "own, or leave one out",
            )
        seen.add(name)


def _check_field(field: pa.Field, path: str) -> None:
    kind = field.type
    if not field.nullable:
        raise OptionError(
            "bodyFormat", f"= json: field '{path}' must be able to be null, as bodies may lack it"
        )
    if pa.types.is_struct(kind):
        _check_names([inner.name for inner in kind], f"{path}.")
        for inner in kind:
            _check_field(inner, f"{path}.{inner.name}")
    elif pa.types.is_list(kind):
        _check_field(kind.value_field, f"{path}[]")
    elif not (
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.string())
    ):
        from pyspark.sql.pandas.types import from_arrow_type  # Keeps workers light.

        shown = from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString().upper()
        raise OptionError(
            "bodyFormat",
            f"= json cannot read field '{path}' as {shown}: declare a STRING and convert it in "
            "Spark, such as by to_date or to_timestamp, or use from_json(body.cast('string'), "
            "schema)",
        )


class TypedBatches:
    """Turns batches of messages into batches of their bodies' fields.

    `name` is hexadecimal text that is in no body.
    """

    def __init__(self, plan: TypedPlan, name: str) -> None:
        self._plan = plan
        self._bodies = JsonBodies(plan.fields, name)
        self.dropped = 0
        """The number of bad bodies dropped in mode dropmalformed."""

    def convert(self, queue: QueueId, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert messages of a queue. Raises BadBodyError in mode failfast."""
        plan, bodies = self._plan, batch.column("body")
        read = self._bodies.read(bodies)
        if read.bad and plan.mode == "failfast":
            row = read.bad[0]
            offset = int(integers_of(batch.column("queueOffset"))[row])
            raise BadBodyError(queue, offset, read.why(row))
        fields = dict(zip(plan.fields.names, read.columns, strict=True))
        columns = []
        for field in plan.output:
            if field.name == plan.bad_column:
                columns.append(_texts_of(bodies, read.bad))
            elif field.name in fields:
                columns.append(fields[field.name])
            else:
                columns.append(batch.column(_COLUMN_OF[field.name]))
        made = pa.RecordBatch.from_arrays(columns, schema=plan.output)
        if read.bad and plan.mode == "dropmalformed":
            self.dropped += len(read.bad)
            made = made.filter(array_of(~_mask(read.bad, len(bodies))))
        return made


def _mask(rows: list[int], count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


def _texts_of(bodies: pa.BinaryArray, bad: list[int]) -> pa.StringArray:
    if not bad:
        return pa.nulls(len(bodies), pa.string())
    rows = array_of(np.array(bad, np.int64))
    texts = as_text(bodies.take(rows))
    indexes = np.zeros(len(bodies), np.int64)
    indexes[bad] = np.arange(len(bad))
    return texts.take(array_of(indexes, ~_mask(bad, len(bodies))))
