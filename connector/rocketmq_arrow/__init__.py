"""Stored records <-> Arrow columns, whole buffers at a time. No I/O, no object per message.

Start reading at `decode.decoder` and `encode.rows`. Importing the package loads neither numpy nor
pyarrow: a name is loaded at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
    from rocketmq_arrow.encode.rows import encode_batch_body, encode_records
    from rocketmq_arrow.source_columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema

_LAZY = {
    "COLUMNS": "rocketmq_arrow.source_columns",
    "CorruptPolicy": "rocketmq_arrow.decode.decoder",
    "DEFAULT_COLUMNS": "rocketmq_arrow.source_columns",
    "DecodeOptions": "rocketmq_arrow.decode.decoder",
    "Decoder": "rocketmq_arrow.decode.decoder",
    "arrow_schema": "rocketmq_arrow.source_columns",
    "encode_batch_body": "rocketmq_arrow.encode.rows",
    "encode_records": "rocketmq_arrow.encode.rows",
}

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "CorruptPolicy",
    "DecodeOptions",
    "Decoder",
    "arrow_schema",
    "encode_batch_body",
    "encode_records",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
