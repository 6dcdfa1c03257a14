"""Remoting headers, in JSON or RocketMQ's binary form <-> `Header`.

    JSON     {"code":…,"extFields":{…},"flag":…,"language":"…","opaque":…,"remark":"…",
              "serializeTypeCurrentRPC":"JSON","version":…}
    binary   code i16, language i8, version i16, opaque i32, flag i32, remark i32 length + bytes,
             extFields i32 length, then per field: name i16 length + bytes, value i32 length + bytes

The binary form has no null: an empty field is absent. Its code has 16 bits only, so request codes
above 32,767 are cut off; this project sends JSON, which every server takes.
"""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import dataclass, field
from typing import Final, cast

from rocketmq_wire import fastjson
from rocketmq_wire.codes import CLIENT_VERSION
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.fastjson import Json

FLAG_REPLY: Final = 1
FLAG_ONEWAY: Final = 2

LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)
_ORDINALS: Final = {name: ordinal for ordinal, name in enumerate(LANGUAGES)}
_DEFAULT_LANGUAGE: Final = "JAVA"
_UNKNOWN_LANGUAGE: Final = "OTHER"

_FIXED = struct.Struct(">hbhiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_TEXT: Final = {str}
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1

_JSON_DECODER = json.JSONDecoder()
_JSON_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


class HeaderCodec(enum.IntEnum):
    """How a header is written; the value is the frame's type byte."""

    JSON = 0
    BINARY = 1


@dataclass(frozen=True, slots=True)
class Header:
    code: int
    language: str = "PYTHON"
    version: int = CLIENT_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)

    @property
    def is_reply(self) -> bool:
        return bool(self.flag & FLAG_REPLY)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)


def encode_header(header: Header, codec: HeaderCodec = HeaderCodec.JSON) -> bytes:
    """Write a header. Raises LocalProtocolError if the binary form cannot hold it."""
    return _encode_json(header) if codec is HeaderCodec.JSON else _encode_binary(header)


def decode_header(buffer: bytes | bytearray | memoryview, codec: HeaderCodec) -> Header:
    """Read a header. Raises RemoteProtocolError."""
    return _decode_json(buffer) if codec is HeaderCodec.JSON else _decode_binary(buffer)


def _encode_json(header: Header) -> bytes:
    fields: dict[str, object] = {"code": header.code}
    # Java clients read the fields of a reply without a check for null.
    if header.ext_fields or header.flag & FLAG_REPLY:
        fields["extFields"] = header.ext_fields
    fields["flag"] = header.flag
    fields["language"] = header.language
    fields["opaque"] = header.opaque
    if header.remark is not None:
        fields["remark"] = header.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = header.version
    return _JSON_ENCODER.encode(fields).encode("utf-8", "replace")


def _decode_json(buffer: bytes | bytearray | memoryview) -> Header:
    fields = _load(str(buffer, "utf-8", "replace"))
    if not isinstance(fields, dict):
        raise RemoteProtocolError("a frame's header is no JSON object")
    language = fields.get("language")
    remark = fields.get("remark")
    return Header(
        _integer(fields, "code"),
        language if type(language) is str else _DEFAULT_LANGUAGE,
        _integer(fields, "version"),
        _integer(fields, "opaque"),
        _integer(fields, "flag"),
        remark if remark is None or type(remark) is str else _as_text(remark),
        _ext_fields(fields.get("extFields")),
    )


def _load(text: str) -> Json:
    """Parse strict JSON without blanks around it at the least cost; else as fastjson does."""
    try:
        value: Json
        value, end = _JSON_DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return fastjson.loads(text)
    return value if end == len(text) else fastjson.loads(text)


def _integer(fields: dict[str, Json], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and _INT_MIN <= value <= _INT_MAX:
        return value
    if value is None:
        return 0
    raise RemoteProtocolError(f"a frame's header has {name} {str(value)[:40]!r}, no 32-bit number")


def _ext_fields(value: Json) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("a frame's extFields are no JSON object")
    if {*map(type, value.values())} <= _TEXT:
        return cast("dict[str, str]", value)
    return {
        name: item if type(item) is str else _as_text(item)
        for name, item in value.items()
        if item is not None
    }


def _as_text(value: Json) -> str:
    """The text that fastjson makes of a value in place of a string."""
    return value if isinstance(value, str) else fastjson.canonical(value)


def _encode_binary(header: Header) -> bytes:
    ext_fields = b"".join(
        _sized(_SHORT, name) + _sized(_INT, value)
        for name, value in header.ext_fields.items()
        if name and value
    )
    remark = (header.remark or "").encode("utf-8", "replace")
    try:
        fixed = _FIXED.pack(
            header.code,
            _ORDINALS.get(header.language, _ORDINALS[_UNKNOWN_LANGUAGE]),
            header.version,
            header.opaque,
            header.flag,
            len(remark),
        )
    except struct.error as error:
        raise LocalProtocolError(f"the binary header cannot hold {header}: {error}") from error
    return b"".join((fixed, remark, _INT.pack(len(ext_fields)), ext_fields))


def _sized(length: struct.Struct, text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    try:
        return length.pack(len(encoded)) + encoded
    except struct.error as error:
        raise LocalProtocolError(f"a header field of {len(encoded)} bytes is too long") from error


def _decode_binary(buffer: bytes | bytearray | memoryview) -> Header:
    view = memoryview(buffer)
    if len(view) < _FIXED.size + _INT.size:
        raise RemoteProtocolError(f"a binary header of {len(view)} bytes is cut off")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(view)
    remark, at = _take(view, _FIXED.size, remark_size)
    fields_size, at = _take_length(_INT, view, at)
    if not 0 <= fields_size <= len(view) - at:
        raise RemoteProtocolError(f"header fields of {fields_size} bytes do not fit the header")
    end = at + fields_size
    ext_fields: dict[str, str] = {}
    while at < end:
        name_size, at = _take_length(_SHORT, view[:end], at)
        name, at = _take(view[:end], at, name_size)
        value_size, at = _take_length(_INT, view[:end], at)
        value, at = _take(view[:end], at, value_size)
        if name and value:
            ext_fields[name] = value
    return Header(
        code,
        LANGUAGES[language] if 0 <= language < len(LANGUAGES) else _UNKNOWN_LANGUAGE,
        version,
        opaque,
        flag,
        remark or None,
        ext_fields,
    )


def _take_length(length: struct.Struct, view: memoryview, at: int) -> tuple[int, int]:
    if len(view) - at < length.size:
        raise RemoteProtocolError("a binary header is cut off")
    (size,) = length.unpack_from(view, at)
    return size, at + length.size


def _take(view: memoryview, at: int, size: int) -> tuple[str, int]:
    if not 0 <= size <= len(view) - at:
        raise RemoteProtocolError(f"a text of {size} bytes does not fit the binary header")
    return str(view[at : at + size], "utf-8", "replace"), at + size
