"""Regular expressions for bodies: integers within the limits of their types, and the search."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_arrow.kernels.gather import Mask
from rocketmq_arrow.kernels.numpy_arrays import mask_of

# Some 150 fields. The states of a larger expression do not fit in its memory, and the search takes
# longer than validating the bodies one by one.
_SIZE_MAX: Final = 50_000
INTEGER_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


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
