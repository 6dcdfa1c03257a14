r"""Record batches -> lines of output, whole columns at a time.

A format is text with tokens, as kcat has them:

    %s body    %k keys    %T tags    %t topic    %b broker    %p queue    %o offset
    %S body's length    %d store time    %D born time    %i message id    %h properties    %% a %

and `\n`, `\t`, `\0`, `\\`. Times are milliseconds since 1970.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_cli.usage import UsageError

JSON_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "tags",
    "keys",
    "bornTimestamp",
    "storeTimestamp",
    "properties",
    "body",
)
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
    "i": "msgId",
    "h": "properties",
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PART: Final = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)


class Format:
    """A parsed format: which columns it needs, and the bytes it makes of a batch."""

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | str] = []
        for match in _PART.finditer(text):
            token, escape, plain, lone = match.groups()
            if token == "%":
                self._parts.append(b"%")
            elif token is not None:
                if token not in _TOKENS:
                    known = " ".join(f"%{name}" for name in _TOKENS)
                    raise UsageError(f"%{token} is no token of a format; there are {known} %%")
                self._parts.append(token)
            elif escape is not None:
                if escape not in _ESCAPES:
                    raise UsageError(f"\\{escape} is no escape; there are \\n \\t \\r \\0 \\\\")
                self._parts.append(_ESCAPES[escape])
            elif lone is not None:
                raise UsageError(f"the format ends in {lone!r}: write {lone * 2}")
            else:
                self._parts.append(plain.encode())

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be read, at least one column."""
        names = {_TOKENS[part] for part in self._parts if isinstance(part, str)}
        return tuple(sorted(names)) or ("queueOffset",)

    def render(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        """The output of a batch, in pieces."""
        pieces = [self._piece(part, batch) for part in self._parts]
        if not pieces:
            return
        first = next((at for at, piece in enumerate(pieces) if isinstance(piece, pa.Array)), None)
        if first is None:
            pieces[0] = pa.repeat(pieces[0], batch.num_rows)
        joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
        yield values_of(joined)

    def _piece(self, part: bytes | str, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        if isinstance(part, bytes):
            return pa.scalar(part, pa.binary())
        column = batch.column(_TOKENS[part])
        if part == "S":
            column = pc.binary_length(column)
        elif part == "h":
            texts = [json.dumps(dict(row), ensure_ascii=False) for row in column.to_pylist()]
            column = pa.array(texts, pa.string())
        elif pa.types.is_timestamp(column.type):
            column = pc.divide(column.cast(pa.int64()), 1_000)
        if not pa.types.is_binary(column.type):
            column = column.cast(pa.string()).cast(pa.binary())
        return pc.fill_null(column, b"")


def values_of(array: pa.Array) -> memoryview:
    """The values of a binary array back to back, not copied."""
    _, offsets, values = array.buffers()
    if values is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(values)[int(bounds[0]) : int(bounds[-1])]


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A JSON object a row; a body that is no text is given in base64, as `bodyBase64`."""
    names: Sequence[str] = batch.schema.names
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for row in zip(*map(_values_for_json, batch.columns), strict=True):
        fields: dict[str, Any] = dict(zip(names, row, strict=True))
        if "body" in fields:
            _put_body(fields, fields.pop("body"))
        yield encode(fields).encode() + b"\n"


def _values_for_json(column: pa.Array) -> list[Any]:
    """Texts for times and dicts for maps, both made whole columns at a time."""
    if pa.types.is_timestamp(column.type):
        # Without a zone: there may be no data of zones here, and they are UTC.
        local = pc.cast(column.cast(pa.int64()), pa.timestamp("us")).cast(pa.timestamp("ms"), False)
        return list(pc.strftime(local, "%Y-%m-%dT%H:%M:%SZ").to_pylist())
    if pa.types.is_map(column.type):
        ends = column.offsets.to_pylist()
        names, values = column.keys.to_pylist(), column.items.to_pylist()
        return [
            dict(zip(names[start:end], values[start:end], strict=True))
            for start, end in itertools.pairwise(ends)
        ]
    return list(column.to_pylist())


def _put_body(fields: dict[str, Any], body: bytes) -> None:
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        fields["bodyBase64"] = b64encode(body).decode()
