"""Tag expressions: `*`, or tags as in `A || B`. Brokers compare the tags' Java hashes."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.hashes import java_hash

_SELECT_ALL = frozenset(("", "*"))


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag expression. Hashes collide, so a reader must compare the tags themselves too."""

    tags: frozenset[str] = frozenset()
    """The selected tags; empty if every message is selected."""

    @classmethod
    def parse(cls, text: str | None) -> TagExpression:
        """Parse `*`, an empty text (everything), or tags joined by `||`.

        Raises LocalProtocolError if no tag is left.
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
        """True if a message with this tag is selected; without a tag only `*` selects it."""
        return not self.tags or tag in self.tags
