r"""Renders record batches as lines of output, whole columns at a time.

A format is text with kcat's tokens:

    %s body    %k keys    %T tags    %t topic    %b broker    %p queue    %o offset
    %S body's length    %i message id    %h properties    %% a %
    %x store time    %X born time, as text in UTC    %d %D the same in milliseconds since 1970

and `\n`, `\t`, `\0`, `\\`.
"""

from __future__ import annotations

import itertools
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_arrow.kernels.gather import values_of
from rocketmq_cli.usage import UsageError

JSON_FIELDS: Final = {
    "topic": "topic",
    "brokerName": "broker",
    "queueId": "queue",
    "queueOffset": "offset",
    "msgId": "id",
    "tags": "tags",
    "keys": "keys",
    "bornTimestamp": "born",
    "storeTimestamp": "stored",
    "properties": "properties",
    "body": "body",
}
"""The fields of a message as JSON, by the source's columns."""
_TOKENS: Final = {
    "s": "body",
    "S": "body",
    "k": "keys",
    "T": "tags",
    "t": "topic",
    "b": "brokerName",
    "p": "queueId",
    "o": "queueOffset",
    "d": "storeTimestamp",
    "D": "bornTimestamp",
    "x": "storeTimestamp",
    "X": "bornTimestamp",
    "i": "msgId",
    "h": "properties",
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PART: Final = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)


class Format:
    """A parsed format: the columns that it needs, and its output for a batch."""

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | str] = []
        for match in _PART.finditer(text):
            token, escape, plain, lone = match.groups()
            if token == "%":
                self._parts.append(b"%")
            elif token is not None:
                if token not in _TOKENS:
                    known = " ".join(f"%{name}" for name in _TOKENS)
                    raise UsageError(f"%{token} is no token of a format; the tokens are {known} %%")
                self._parts.append(token)
            elif escape is not None:
                if escape not in _ESCAPES:
                    raise UsageError(
                        f"\\{escape} is no escape; the escapes are \\n \\t \\r \\0 \\\\"
                    )
                self._parts.append(_ESCAPES[escape])
            elif lone is not None:
                raise UsageError(f"the format ends in {lone!r}: write {lone * 2}")
            else:
                self._parts.append(plain.encode())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read, at least one."""
        names = {_TOKENS[part] for part in self._parts if isinstance(part, str)}
        return tuple(sorted(names)) or ("queueOffset",)

    def render(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        """Yield the output of a batch in pieces."""
        pieces = [self._piece(part, batch) for part in self._parts]
        if not pieces:
            return
        first = next((at for at, piece in enumerate(pieces) if isinstance(piece, pa.Array)), None)
        if first is None:
            pieces[0] = pa.repeat(pieces[0], batch.num_rows)
        joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
        yield values_of(joined)[0].data

    def _piece(self, part: bytes | str, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        if isinstance(part, bytes):
            return pa.scalar(part, pa.binary())
        column = batch.column(_TOKENS[part])
        if part == "S":
            column = pc.binary_length(column)
        elif part == "h":
            texts = [json.dumps(dict(row), ensure_ascii=False) for row in column.to_pylist()]
            column = pa.array(texts, pa.string())
        elif part in ("x", "X"):
            column = _times(column)
        elif pa.types.is_timestamp(column.type):
            column = pc.divide(column.cast(pa.int64()), 1_000)
        if not pa.types.is_binary(column.type):
            column = column.cast(pa.string()).cast(pa.binary())
        return pc.fill_null(column, b"")


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes | memoryview]:
    """Yield a JSON object per row; a body that is not text becomes `bodyBase64`."""
    names: Sequence[str] = [JSON_FIELDS[name] for name in batch.schema.names]
    texts = [_json_texts(column) for column in batch.columns]
    if all(text is not None for text in texts):
        # A quarter of the work: most batches need no check of every row.
        parts: list[pa.Array | pa.Scalar] = []
        for name, text in zip(names, texts, strict=True):
            parts += [pa.scalar(f'{"," if parts else "{"}"{name}":'), text]
        joined = pc.binary_join_element_wise(*parts, pa.scalar("}\n"), pa.scalar(""))
        yield values_of(joined)[0].data
        return
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for row in zip(*map(_values_for_json, batch.columns), strict=True):
        fields: dict[str, Any] = dict(zip(names, row, strict=True))
        if "body" in fields:
            body = fields.pop("body")
            try:
                fields["body"] = body.decode()
            except UnicodeDecodeError:
                fields["bodyBase64"] = b64encode(body).decode()
        yield encode(fields).encode() + b"\n"


def _json_texts(column: pa.Array) -> pa.Array | None:
    """A column's values as JSON; None if one needs more than escaped quotes and backslashes."""
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pa.types.is_timestamp(column.type):
        return _quoted(_times(column))
    if pa.types.is_map(column.type):
        names, values = _json_texts(column.keys), _json_texts(column.items)
        if column.null_count or column.items.null_count or names is None or values is None:
            return None
        pairs = pc.binary_join_element_wise(names, values, ":")
        rows = pc.binary_join(pa.ListArray.from_arrays(column.offsets, pairs), ",")
        return pc.binary_join_element_wise(pa.scalar("{"), rows, pa.scalar("}"), "")
    if pa.types.is_binary(column.type):
        try:
            column = column.cast(pa.string())
        except pa.ArrowInvalid:
            return None
    if pc.any(pc.match_substring_regex(column, "[\\x00-\\x1f]")).as_py():
        return None
    for sign in ("\\", '"'):
        if pc.any(pc.match_substring(column, sign)).as_py():
            column = pc.replace_substring(column, sign, f"\\{sign}")
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    quote = pa.scalar('"')
    return pc.fill_null(pc.binary_join_element_wise(quote, column, quote, ""), "null")


def _times(column: pa.Array) -> pa.Array:
    # Without a zone: they are UTC, and the machine may lack a zone database.
    local = pc.cast(column.cast(pa.int64()), pa.timestamp("us")).cast(pa.timestamp("ms"), False)
    # Ten times as fast as `strftime`.
    texts = pc.replace_substring(local.cast(pa.string()), " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, pa.scalar("Z"), "")


def _values_for_json(column: pa.Array) -> list[Any]:
    """A column's values, with texts for times and dicts for maps."""
    if pa.types.is_timestamp(column.type):
        return list(_times(column).to_pylist())
    if pa.types.is_map(column.type):
        ends = column.offsets.to_pylist()
        names, values = column.keys.to_pylist(), column.items.to_pylist()
        return [
            dict(zip(names[start:end], values[start:end], strict=True))
            for start, end in itertools.pairwise(ends)
        ]
    return list(column.to_pylist())
