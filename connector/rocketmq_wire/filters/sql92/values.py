"""The values of SQL92 expressions and how two of them compare, as Java's types do.

    null None    boolean bool    Integer int    Long LongInteger    Double float    String str

A property is always a text. Beside a number it is read as a number of the other side's type, so
"5.5" beside 5 and "99999999999" beside 5 are errors, which a filter answers with "no match".
"""

from __future__ import annotations

import math
import re
from typing import Final

from rocketmq_wire.errors import EvaluationError


class LongInteger(int):
    """A whole number of Java's type Long; a text beside it is read as a Long, not as an Integer."""

    __slots__ = ()


Value = str | float | int | bool | None

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes."""
_LAST_UNIT: Final = "\uffff"


def compare(left: Value, right: Value) -> int:
    """Negative, zero or positive; -1 also for types that never compare. Neither may be None.

    Raises EvaluationError for a text beside a number if it is no number.
    """
    left_kind, right_kind = type(left), type(right)
    if left_kind is right_kind:
        return _compare_same(left, right)
    if left_kind is str:
        return _compare_same(_read_as(right_kind, str(left)), right)
    if left_kind is bool:
        if right_kind is str:
            # A cast of the wrong operand in RocketMQ.
            raise EvaluationError("a boolean stands left of a text")
        return -1
    if right_kind is bool:
        return -1
    if right_kind is str:
        return _compare_same(left, _read_as(left_kind, str(right)))
    if left_kind is float or right_kind is float:
        return _compare_floats(_to_float(left), _to_float(right))
    return _compare_same(left, right)


def compare_in_order(left: Value, right: Value) -> int:
    """As `compare`, for `<`, `<=`, `>`, `>=`, which read two texts as numbers."""
    if type(left) is str and type(right) is str:
        return _compare_floats(read_double(left), read_double(right))
    return compare(left, right)


def negate(value: Value) -> Value:
    """Minus a number; None for anything else."""
    kind = type(value)
    if kind is LongInteger:
        return LongInteger(-int(value))  # type: ignore[arg-type]
    if kind is int or kind is float:
        return -value  # type: ignore[operator]
    return None


def read_whole(text: str, limit: int) -> int:
    """Java's `Integer.valueOf` and `Long.valueOf`. Raises EvaluationError."""
    # Java reads single UTF-16 units, so it takes no digits beyond the basic plane.
    if _WHOLE.fullmatch(text) and max(text) <= _LAST_UNIT:
        try:
            value = int(text)
        except ValueError:
            # More digits than Python reads.
            value = limit + 1
        if -limit - 1 <= value <= limit:
            return value
    raise EvaluationError(f"{text[:40]!r} is no whole number up to {limit}")


def read_double(text: str) -> float:
    """Java's `Double.valueOf`. Raises EvaluationError."""
    trimmed = text.strip(_BLANKS)
    if _DECIMAL.fullmatch(trimmed):
        if trimmed.endswith("NaN"):
            return math.nan
        return float(trimmed if trimmed.endswith("y") else trimmed.rstrip("fFdD"))
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal:
        try:
            return float.fromhex(hexadecimal.group(1))
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise EvaluationError(f"{text[:40]!r} is no number")


def _read_as(kind: type, text: str) -> Value:
    if kind is bool:
        return text.lower() == "true"
    if kind is float:
        return read_double(text)
    return read_whole(text, LONG_MAX if kind is LongInteger else INTEGER_MAX)


def _to_float(value: Value) -> float:
    return float(value)  # type: ignore[arg-type]


def _compare_same(left: Value, right: Value) -> int:
    if type(left) is float:
        return _compare_floats(left, _to_float(right))
    if left == right:
        return 0
    return 1 if left > right else -1  # type: ignore[operator]


def _compare_floats(left: float, right: float) -> int:
    """Java's `Double.compare`: NaN equals itself and is the largest, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (math.isnan(left), not math.isnan(left) and math.copysign(1.0, left))
    right_key = (math.isnan(right), not math.isnan(right) and math.copysign(1.0, right))
    if left_key == right_key:
        return 0
    return 1 if left_key > right_key else -1
