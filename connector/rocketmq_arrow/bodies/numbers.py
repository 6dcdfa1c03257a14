"""Texts of numbers, true, false and null -> Arrow arrays, and which of them JSON would not read.

A text that is not marked as right may still be a number: one near the limits of its type, or one
with very many digits. The caller reads those with Arrow's parser.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, equals_at, values_of
from rocketmq_arrow.kernels.numpy_arrays import array_of, mask_of

# Some 150 fields. The states of a larger expression do not fit in its memory, and the search takes
# longer than validating the bodies one by one.
_SIZE_MAX: Final = 50_000
INTEGER_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_MINUS, _POINT, _ZERO, _NINE = b"-.09"
# This many digits are below the limit of 64 bits, and one more if the first of them is no nine.
_DIGITS_MAX: Final = 18
# Of a float that no type cuts or takes for zero: digits with the point, digits behind it, exponent.
_FLOAT_SIZE_MAX: Final = 26
_FRACTION_MAX: Final = {pa.float32(): 25, pa.float64(): 99}
_EXPONENT_MAX: Final = {pa.float32(): 1, pa.float64(): 2}


def scalars(texts: pa.BinaryArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """The values of some texts, and which of them are right; the others' values mean nothing."""
    if pa.types.is_boolean(kind):
        return _booleans(texts)
    is_whole = kind in INTEGER_BITS
    is_right = _are_plain(texts, is_whole=is_whole)
    missing = None
    if not is_right.all():
        others = np.flatnonzero(~is_right)
        odd = texts.take(array_of(others))
        if not is_whole:
            is_right[others] = matches(odd, _float_pattern(kind))
        missing = ~is_right
        texts = pc.if_else(array_of(is_right), texts, None)
        is_right[others] |= matches(odd, "^null$")
    found = texts.view(pa.string()).cast(pa.int64() if is_whole else kind)
    if is_whole and kind != pa.int64():
        found, is_within = _narrow(found, kind, missing)
        is_right &= is_within
    return found, is_right


def are_scalars(texts: pa.BinaryArray) -> Mask:
    """Which of some texts are numbers, true, false or null."""
    is_right = _are_plain(texts, is_whole=False)
    if not is_right.all():
        others = np.flatnonzero(~is_right)
        odd = texts.take(array_of(others))
        are_words = _are_words(odd)
        if not are_words.all():
            are_words |= matches(odd, _float_pattern(pa.float64()))
        is_right[others] = are_words
    return is_right


def _float_pattern(kind: pa.DataType) -> str:
    fraction, exponent = f"{{1,{_FRACTION_MAX[kind]}}}", f"{{1,{_EXPONENT_MAX[kind]}}}"
    return rf"^-?(?:0|[1-9][0-9]{{0,25}})(?:\.[0-9]{fraction})?(?:[eE][-+]?[0-9]{exponent})?$"


def _narrow(wide: pa.Int64Array, kind: pa.DataType, missing: Mask | None) -> tuple[pa.Array, Mask]:
    bits = INTEGER_BITS[kind]
    values = np.frombuffer(wide.buffers()[1], np.int64, len(wide))
    limit = 1 << (bits - 1)
    is_within = (values >= -limit) & (values < limit)
    if missing is not None:
        is_within |= missing
    return array_of(values.astype(f"i{bits // 8}"), missing), is_within


def _are_plain(texts: pa.BinaryArray, *, is_whole: bool) -> Mask:
    """Which texts are numbers without exponents, and not too long."""
    text, offsets = values_of(texts)
    if not len(text):
        return np.zeros(len(texts), np.bool_)
    last = len(text) - 1
    starts, ends = offsets[:-1], offsets[1:]
    is_negative = text[np.minimum(starts, last)] == _MINUS
    digits = starts + is_negative
    sizes = ends - digits
    first = text[np.minimum(digits, last)]
    is_plain: Mask = sizes > 0
    if is_whole:
        is_plain &= (first != _ZERO) | (sizes == 1)
        is_plain &= sizes <= _DIGITS_MAX + (first < _NINE)
    else:
        second = text[np.minimum(digits + 1, last)]
        is_plain &= (first != _ZERO) | (sizes == 1) | (second == _POINT)
        is_plain &= sizes <= _FLOAT_SIZE_MAX
    # The signs alone, or something else among the digits.
    is_other = text - _ZERO > _NINE - _ZERO
    if np.count_nonzero(is_other) > np.count_nonzero(is_negative & (ends > starts)):
        others = np.flatnonzero(is_other)
        before = np.append(0, np.cumsum(is_other))[offsets]
        counts = np.diff(before) - is_negative
        if is_whole:
            is_plain &= counts == 0
        else:
            position = others[np.minimum(before[:-1] + is_negative, len(others) - 1)]
            is_point = (text[position] == _POINT) & (position > digits) & (position < ends - 1)
            is_plain &= (counts == 0) | ((counts == 1) & is_point)
    return is_plain


def _booleans(texts: pa.BinaryArray) -> tuple[pa.Array, Mask]:
    text, offsets = values_of(texts)
    is_true, is_false = (_are_word(text, offsets, word) for word in (b"true", b"false"))
    is_right = is_true | is_false
    missing = None
    if not is_right.all():
        missing = ~is_right
        is_right |= _are_word(text, offsets, b"null")
    return array_of(is_true, missing), is_right


def _are_words(texts: pa.BinaryArray) -> Mask:
    text, offsets = values_of(texts)
    is_word = _are_word(text, offsets, b"true")
    for word in (b"false", b"null"):
        is_word |= _are_word(text, offsets, word)
    return is_word


def _are_word(text: Bytes, offsets: Positions, word: bytes) -> Mask:
    room = len(text) - len(word)
    if room < 0:
        return np.zeros(len(offsets) - 1, np.bool_)
    is_word = equals_at(text, np.minimum(offsets[:-1], room), word)
    is_word &= np.diff(offsets) == len(word)
    return is_word


def integer_pattern(bits: int) -> str:
    """Matches decimal integers of this size without leading zeros, except the smallest one."""
    return f"-?{_up_to(str((1 << (bits - 1)) - 1))}"


def _up_to(limit: str) -> str:
    """Numbers from 0 up to a limit of two digits and more."""
    choices = ["0", f"[1-9][0-9]{{0,{len(limit) - 2}}}", limit]
    for index, digit in enumerate(limit):
        least = "0" if index else "1"
        if digit > least:
            smaller = f"[{least}-{chr(ord(digit) - 1)}]"
            choices.append(f"{limit[:index]}{smaller}[0-9]{{{len(limit) - index - 1}}}")
    return f"(?:{'|'.join(choices)})"


def matches(bodies: pa.BinaryArray, pattern: str) -> Mask:
    """Which bodies match the pattern; none if the pattern is too large."""
    if len(pattern) > _SIZE_MAX:
        return np.zeros(len(bodies), np.bool_)
    return mask_of(pc.match_substring_regex(bodies, pattern))
