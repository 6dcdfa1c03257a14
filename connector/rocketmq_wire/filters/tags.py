"""Tag expressions (`*`, `A || B`) and Java's string hash, by which brokers filter tags."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.errors import LocalProtocolError

_SELECT_ALL = frozenset(("", "*"))


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag expression. Hashes collide, so a reader must look at the tags themselves too."""

    tags: frozenset[str] = frozenset()
    """The tags wanted; empty when every message is."""

    @classmethod
    def parse(cls, text: str | None) -> TagExpression:
        """Parse `*`, an empty text (everything), or tags joined by `||`.

        Raises LocalProtocolError when no tag is left.
        """
        stripped = (text or "").strip()
        if stripped in _SELECT_ALL:
            return cls()
        tags = frozenset(part.strip() for part in stripped.split("||")) - {""}
        if not tags:
            raise LocalProtocolError(f"the tag expression {text!r} names no tag")
        return cls(tags)

    @property
    def matches_all(self) -> bool:
        return not self.tags

    @property
    def hashes(self) -> tuple[int, ...]:
        """The distinct hash codes of the tags, sorted."""
        return tuple(sorted({java_hash(tag) for tag in self.tags}))

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted; without a tag only `*` wants it."""
        return not self.tags or tag in self.tags
