"""The one reader of whole numbers in texts of peers: headers, properties, handles, files.

Python's `int` also takes blanks, underscores and digits of other scripts, and it raises ValueError
for more than 4,300 digits. `str.isdigit` passes characters that `int` does not take.
"""

from __future__ import annotations

from typing import Final

DIGITS_MAX: Final = 18
"""Numbers of this many digits always fit into 64 bits."""
QUEUE_DIGITS_MAX: Final = 9
"""Of a queue's index, which RocketMQ stores in 32 bits."""


def whole_number(
    text: str | None, *, digits_max: int = DIGITS_MAX, is_signed: bool = False
) -> int | None:
    """The number of a text of ASCII digits, after a minus if `is_signed`; None for other texts."""
    if text is None:
        return None
    digits = text.removeprefix("-") if is_signed else text
    if len(digits) > digits_max or not digits.isascii() or not digits.isdecimal():
        return None
    return int(text)
