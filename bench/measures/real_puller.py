"""A puller of a real broker that decodes nothing: what a download costs at the very least.

One connection, one thread. Every request is the same bytes but for its offset and number; of an
answer only its length, its code and where it ends are looked at.
"""

from __future__ import annotations

import re
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketmq_wire.addresses import split_address
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.remoting.codec import encode_request
from rocketmq_wire.remoting.frames import encode_frame_head
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.messages import PullMessages

GROUP: Final = "bench-bare"
_COUNT_MAX: Final = 32
_HEAD: Final = struct.Struct(">iI")
_HEADER_SIZE_MASK: Final = 0xFF_FFFF
_RECEIVE_SIZE: Final = 1 << 20
_SILENCE_SECONDS: Final = 20.0
_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')
_CODE: Final = re.compile(rb'"code":(\d+)')
_NEXT: Final = re.compile(rb'"nextBeginOffset":"?(\d+)')
# Placeholders that are found again in the encoded frame; as wide as the widest number.
_OFFSET_MARK: Final = 1_111_111_111_111_111_111
_OPAQUE_MARK: Final = 1_222_222_222
# JSON has no leading zeros: numbers of ten digits from the start.
_OPAQUE_FIRST: Final = 1_000_000_000


class Pulled(NamedTuple):
    offsets: int
    pulls: int


class BarePuller:
    """Reads ranges of one broker's queues."""

    def __init__(self, address: str, ranges: Sequence[OffsetRange], *, pull_count: int) -> None:
        self._address, self._pull_count = address, pull_count
        self._templates = [_template(wanted) for wanted in ranges]
        self._ranges = ranges

    def read(self, *, in_flight: int) -> Pulled:
        """Pull everything once, with this many pulls in flight per queue; 1 is strictly serial."""
        waiting = [_steps(wanted, self._pull_count) for wanted in self._ranges]
        asked: dict[int, tuple[int, int, int]] = {}
        offsets = pulls = 0
        opaque = _OPAQUE_FIRST
        host, port = split_address(self._address)
        with socket.create_connection((host, port), _SILENCE_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            free = [in_flight] * len(self._ranges)
            received = bytearray()
            while True:
                out = []
                for index, steps in enumerate(waiting):
                    while free[index] and steps:
                        start, end = steps.popleft()
                        head, middle, tail = self._templates[index]
                        out.append(b"%b%019d%b%010d%b" % (head, start, middle, opaque, tail))
                        asked[opaque] = index, start, end
                        opaque += 1
                        free[index] -= 1
                if out:
                    connection.sendall(b"".join(out))
                if not asked:
                    return Pulled(offsets, pulls)
                data = connection.recv(_RECEIVE_SIZE)
                if not data:
                    raise ConnectionError("the broker closed the connection")
                received += data
                at = 0
                while len(received) - at >= _HEAD.size:
                    total, mark = _HEAD.unpack_from(received, at)
                    if len(received) - at < 4 + total:
                        break
                    header = bytes(received[at + 8 : at + 8 + (mark & _HEADER_SIZE_MASK)])
                    at += 4 + total
                    index, start, end = asked.pop(_number(_OPAQUE, header))
                    reached = min(_number(_NEXT, header), end)
                    if _number(_CODE, header) or reached <= start:
                        raise RuntimeError(f"the broker answered {header!r}")
                    offsets += reached - start
                    pulls += 1
                    free[index] += 1
                    if reached < end:
                        waiting[index].appendleft((reached, end))
                del received[:at]


def _steps(wanted: OffsetRange, pull_count: int) -> deque[tuple[int, int]]:
    starts = range(wanted.start, wanted.end, pull_count)
    return deque((start, min(start + pull_count, wanted.end)) for start in starts)


def _template(wanted: OffsetRange) -> tuple[bytes, bytes, bytes]:
    """A pull's frame without its number and its offset; fixed widths keep its length the same."""
    pull = PullMessages(group=GROUP, queue=wanted.queue, start=_OFFSET_MARK, count_max=_COUNT_MAX)
    code, fields, _ = encode_request(pull)
    frame = encode_frame_head(Header(code, opaque=_OPAQUE_MARK, ext_fields=fields), 0)
    head, _, rest = frame.partition(b"%d" % _OFFSET_MARK)
    middle, _, tail = rest.partition(b"%d" % _OPAQUE_MARK)
    return head, middle, tail


def _number(pattern: re.Pattern[bytes], header: bytes) -> int:
    found = pattern.search(header)
    if found is None:
        raise RuntimeError(f"the answer {header!r} lacks {pattern.pattern!r}")
    return int(found[1])
