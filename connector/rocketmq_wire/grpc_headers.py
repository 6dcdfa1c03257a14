"""gRPC's header fields: a request's head, an answer's status and trailing metadata."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from rocketmq_wire.hpack import Field, encode_fields

Metadata = tuple[tuple[str, str | bytes], ...]

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

# What a proxy's HTTP status means where no gRPC status came (gRPC's own mapping).
_STATUS_OF_HTTP: Final = {
    400: INTERNAL,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    429: UNAVAILABLE,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: UNAVAILABLE,
}
# The format allows eight digits.
_TIMEOUT_MS_MAX: Final = 99_999_999


def encode_request(
    scheme: str,
    authority: str,
    path: str,
    *,
    timeout_ms: int | None,
    metadata: Iterable[tuple[str, str]] = (),
) -> bytes:
    """The header block of a call; `metadata` has lower-case names and ASCII values."""
    fields: list[Field] = [
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"pyspark-rocketmq"),
    ]
    if timeout_ms is not None:
        fields.append((b"grpc-timeout", b"%dm" % max(1, min(timeout_ms, _TIMEOUT_MS_MAX))))
    fields.extend((name.encode(), text.encode()) for name, text in metadata)
    return encode_fields(fields)


def refusal_of(fields: Iterable[Field]) -> tuple[int, str] | None:
    """Why the head of an answer is none of gRPC's: status and text; None when it is one."""
    found = dict(fields)
    status = found.get(b":status", b"")
    if status == b"200" and found.get(b"content-type", b"").startswith(b"application/grpc"):
        return None
    if status.startswith(b"1"):
        return None  # 100 to 199 announce the real head.
    code = int(status) if status.isdigit() else 0
    kind = found.get(b"content-type", b"").decode("latin-1")
    return _STATUS_OF_HTTP.get(code, UNKNOWN), f"HTTP status {code}, content type {kind!r}"


def decode_trailers(fields: Iterable[Field]) -> tuple[int, str, Metadata]:
    """Status, text and metadata at the end of an answer."""
    fields = list(fields)
    found = dict(fields)
    status = found.get(b"grpc-status")
    if status is None:
        code, text = refusal_of(fields) or (UNKNOWN, "the answer ended without a status")
        return code, text, ()
    text = unquote_to_bytes(found.get(b"grpc-message", b"")).decode("utf-8", "replace")
    metadata = tuple(
        (name.decode("latin-1"), _value_of(name, value))
        for name, value in fields
        if not name.startswith((b":", b"grpc-"))
    )
    return int(status) if status.isdigit() else UNKNOWN, text, metadata


def _value_of(name: bytes, value: bytes) -> str | bytes:
    if not name.endswith(b"-bin"):
        return value.decode("latin-1")
    try:
        # Peers may leave out the padding.
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return b""
