"""HTTP/2 header blocks <-> header fields (HPACK, RFC 7541).

    1xxxxxxx  field from a table            01xxxxxx  literal that joins the dynamic table
    001xxxxx  new size of the table         0000xxxx, 0001xxxx  literal that does not
    strings   H bit, size, bytes; with H the bytes are Huffman-coded

We send literals that join no table, so that no state has to survive between our requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.hpack_tables import HUFFMAN_CODES, STATIC_FIELDS

Field = tuple[bytes, bytes]

# What every peer may use unless it is told otherwise.
TABLE_SIZE_MAX: Final = 4_096
# Of one decoded block: a broker's remark is the longest thing in there.
FIELDS_SIZE_MAX: Final = 64 * 1024
# RFC 7541 section 4.1: what an entry costs beyond its text.
_ENTRY_OVERHEAD: Final = 32
_END_OF_STRING: Final = 256
_INTEGER_MAX: Final = 1 << 31

_SYMBOLS: Final = {(length, code): symbol for symbol, (code, length) in enumerate(HUFFMAN_CODES)}
_STATIC_NAMES: Final = {
    name: index for index, (name, _) in reversed(list(enumerate(STATIC_FIELDS, 1)))
}


def encode_fields(fields: Iterable[Field]) -> bytes:
    """One header block of literals."""
    block = bytearray()
    for name, value in fields:
        index = _STATIC_NAMES.get(name, 0)
        block += _encode_integer(index, 4)
        if not index:
            block += _encode_integer(len(name), 7) + name
        block += _encode_integer(len(value), 7) + value
    return bytes(block)


def _encode_integer(value: int, prefix_bits: int) -> bytes:
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((value,))
    content = bytearray((limit,))
    value -= limit
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def decode_huffman(content: bytes) -> bytes:
    """The text of a Huffman-coded string. Raises RemoteProtocolError."""
    text = bytearray()
    code = length = 0
    for byte in content:
        for shift in range(7, -1, -1):
            code, length = code << 1 | byte >> shift & 1, length + 1
            symbol = _SYMBOLS.get((length, code))
            if symbol is None:
                continue
            if symbol == _END_OF_STRING:
                raise RemoteProtocolError("a header string contains its own end")
            text.append(symbol)
            code = length = 0
    # What is left is padding: at most seven bits, the beginning of the end's code (all ones).
    if length > 7 or code != (1 << length) - 1:
        raise RemoteProtocolError("a header string is padded wrongly")
    return bytes(text)


class HeaderDecoder:
    """Decodes the header blocks of one connection, in order: they share a table."""

    def __init__(self) -> None:
        self._entries: deque[Field] = deque()
        self._size = 0
        self._size_max = TABLE_SIZE_MAX

    def decode(self, block: bytes) -> list[Field]:
        """The fields of one block. Raises RemoteProtocolError; the decoder is then useless."""
        reader = _Reader(block)
        fields: list[Field] = []
        total = 0
        while not reader.is_at_end:
            first = block[reader.position]
            if first & 0x80:
                field = self._entry(reader.integer(7))
            elif first & 0x40:
                field = self._literal(reader, 6)
                self._insert(field)
            elif first & 0x20:
                self._resize(reader.integer(5))
                continue
            else:
                field = self._literal(reader, 4)
            total += _size_of(field)
            # A few bytes can name a long entry again and again.
            if total > FIELDS_SIZE_MAX:
                raise RemoteProtocolError(f"header fields of more than {FIELDS_SIZE_MAX} bytes")
            fields.append(field)
        return fields

    def _literal(self, reader: _Reader, prefix_bits: int) -> Field:
        index = reader.integer(prefix_bits)
        name = self._entry(index)[0] if index else reader.string()
        return name, reader.string()

    def _entry(self, index: int) -> Field:
        if 0 < index <= len(STATIC_FIELDS):
            return STATIC_FIELDS[index - 1]
        place = index - len(STATIC_FIELDS) - 1
        if not 0 <= place < len(self._entries):
            raise RemoteProtocolError(f"there is no header field {index}")
        return self._entries[place]

    def _insert(self, field: Field) -> None:
        self._entries.appendleft(field)
        self._size += _size_of(field)
        self._evict()

    def _resize(self, size: int) -> None:
        if size > TABLE_SIZE_MAX:
            raise RemoteProtocolError(f"a header table of {size} bytes, over {TABLE_SIZE_MAX}")
        self._size_max = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._size_max:
            self._size -= _size_of(self._entries.pop())


def _size_of(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _ENTRY_OVERHEAD


class _Reader:
    """A cursor over one block."""

    __slots__ = ("_block", "position")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._block)

    def integer(self, prefix_bits: int) -> int:
        limit = (1 << prefix_bits) - 1
        value = self._byte() & limit
        if value < limit:
            return value
        shift = 0
        while True:
            byte = self._byte()
            value += (byte & 0x7F) << shift
            shift += 7
            if value > _INTEGER_MAX or shift > 42:
                raise RemoteProtocolError("a header integer is too large")
            if byte < 0x80:
                return value

    def string(self) -> bytes:
        is_coded = not self.is_at_end and self._block[self.position] & 0x80
        size = self.integer(7)
        end = self.position + size
        if end > len(self._block):
            raise RemoteProtocolError(
                f"a header string ends at byte {end} of a block of {len(self._block)}"
            )
        content = self._block[self.position : end]
        self.position = end
        return decode_huffman(content) if is_coded else content

    def _byte(self) -> int:
        if self.is_at_end:
            raise RemoteProtocolError(f"a header block is cut off at byte {self.position}")
        byte = self._block[self.position]
        self.position += 1
        return byte
