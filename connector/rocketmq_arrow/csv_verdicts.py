"""What a CSV body is worth to a schema: at a glance over many of them, or one alone in Python.

The glance is a regular expression of lines with these fields: 0.2 microseconds a body. It knows the
types and limits of fields as they are mostly written.

Alone, a body is cut at its delimiters, and what could be a number is converted by Arrow, value by
value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from rocketmq_arrow.body_patterns import INTEGER_BITS, integer_pattern
from rocketmq_arrow.read_bodies import Verdict

_GOOD, _UNSURE, _BAD = Verdict

TRUE: Final = ["true", "True", "TRUE"]
FALSE: Final = ["false", "False", "FALSE"]
_NUMBER_SPACES: Final = " \t"
# All that Arrow takes for a number, and more: it is asked.
_WHOLE_LIKE: Final = re.compile(r"[ \t]*-?(?:0[xX])?[0-9a-fA-F]+[ \t]*")
_NUMBER_LIKE: Final = re.compile(r"[ \t]*[-+]?[0-9.iInN][-+0-9.a-zA-Z()_]*[ \t]*")
# What it takes for certain.
_WHOLE: Final = re.compile(r"-?[0-9]{1,40}")
_NUMBER: Final = r"-?[0-9]{1,25}(?:\.[0-9]*)?(?:[eE][-+]?[0-9])?"
_PLAIN_NUMBER: Final = re.compile(_NUMBER)
_QUOTED: Final = r'"[^"]*(?:""[^"]*)*"'


class CsvVerdicts:
    """Judges bodies that are not empty and do not begin with a line break."""

    def __init__(self, schema: pa.Schema, delimiter: str, null_value: str) -> None:
        # Asked of pyarrow once: for each body it would take as long as all else.
        self._fields_are = [_field_verdicts(kind, null_value) for kind in schema.types]
        self._delimiter = delimiter
        plain = rf'[^"\r\n{_literal(delimiter)}]*'
        between = _literal(delimiter)
        fields = [_pattern(kind, plain, _literal(null_value)) for kind in schema.types]
        self.pattern = rf"^{between.join(fields)}\r?\n?$"
        """Matches what looks good at a glance."""
        # Arrow's parser knows quotes at the start of a field; behind their end anything may stand.
        rest = rf"[^\r\n{between}]*"
        field = rf'(?:{_QUOTED}(?!"){rest}|(?!"){rest})'
        self._line = re.compile(rf"{field}(?:{between}{field})*")
        self._fields = re.compile(rf"(?:^|{between})({field})")

    def verdict(self, body: bytes) -> Verdict:
        """Whether Arrow's parser would read a body."""
        try:
            line = body.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            return _BAD
        if '"' in line:
            if not self._line.fullmatch(line):
                return _BAD  # Open quotes, or several lines.
            fields = self._fields.findall(line)
        elif "\n" in line or "\r" in line:
            return _BAD
        else:
            fields = line.split(self._delimiter)
        if len(fields) != len(self._fields_are):
            return _BAD
        worst = _GOOD
        for field, judge in zip(fields, self._fields_are, strict=True):
            if judge is not None and (found := judge(field)) > worst:
                worst = found
                if worst is _BAD:
                    break
        return worst


def _field_verdicts(kind: pa.DataType, null_value: str) -> Callable[[str], Verdict] | None:
    """What is to be thought of a field of this type; None: all are good."""
    if pa.types.is_string(kind):
        return None
    is_boolean, bits = pa.types.is_boolean(kind), INTEGER_BITS.get(kind)
    nulls = ("", null_value)

    def verdict(field: str) -> Verdict:
        if field in nulls:
            return _GOOD
        if field[0] == '"':
            field, rest = field[1:-1], field[-1]
            if '"' in field or rest != '"' or field in nulls:
                return _UNSURE
        if is_boolean:
            if field in TRUE or field in FALSE:
                return _GOOD
            return _UNSURE if field.strip().lower() in ("true", "false") else _BAD
        return _GOOD if _is_number(field, kind, bits) else _BAD

    return verdict


def _is_number(field: str, kind: pa.DataType, bits: int | None) -> bool:
    """Whether Arrow takes a text for a number of this type."""
    if bits is not None:
        if _WHOLE.fullmatch(field):
            limit = 1 << (bits - 1)
            return -limit <= int(field) < limit
        if not _WHOLE_LIKE.fullmatch(field):
            return False
    elif _PLAIN_NUMBER.fullmatch(field):
        return True
    elif not _NUMBER_LIKE.fullmatch(field):
        return False
    try:
        pa.scalar(field.strip(_NUMBER_SPACES)).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _pattern(kind: pa.DataType, plain: str, null_value: str) -> str:
    """A field as it is mostly written."""
    if kind == pa.string():
        return f"(?:{plain}|{_QUOTED})"
    if kind in INTEGER_BITS:
        wanted = integer_pattern(INTEGER_BITS[kind])
    elif pa.types.is_boolean(kind):
        wanted = "|".join((*TRUE, *FALSE))
    else:
        wanted = _NUMBER
    return f'(?:{wanted}|"(?:{wanted})"|{null_value}|)'


def _literal(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())
