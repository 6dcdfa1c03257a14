"""Tag expressions: `*`, or tags as in `A || B`. Brokers compare the tags' Java hashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.hashes import java_hash

_SELECT_ALL = frozenset(("", "*"))
# People write these where RocketMQ has `||`; brokers take them for a part of a tag.
_OTHER_SEPARATORS: Final = re.compile(r"\|+|,|\s+or\s+", re.IGNORECASE)
_AND: Final = re.compile(r"&&|\s+and\s+", re.IGNORECASE)


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


def separator_problem(text: str) -> str | None:
    """Why an expression would select nothing: it has more than tags and `||`."""
    if _AND.search(text):
        return (
            "must not have && or AND, as a message has one tag: SQL92 selects by the tag and by "
            "properties, as in TAGS = 'a' AND colour = 'red'"
        )
    meant = [name for part in _OTHER_SEPARATORS.split(text) if (name := part.strip())]
    if not meant:
        return "must name a tag, or * for every message"
    if set(meant) == {name for part in text.split("||") if (name := part.strip())}:
        return _star_problem(meant)
    return (
        f"must join tags by ||: write {' || '.join(meant)!r}; a tag that has such characters is "
        "selected by SQL92, as in TAGS = 'a,b'"
    )


def _star_problem(tags: list[str]) -> str | None:
    """A `*` means every message if it stands alone, and is an ordinary character elsewhere."""
    starred = [tag for tag in tags if "*" in tag]
    if not starred or tags == ["*"]:
        return None
    part = max(starred[0].split("*"), key=len).replace("'", "''")
    if not part:
        return "must be * alone for every message, or tags without it"
    word = {starred[0]: "CONTAINS", f"{part}*": "STARTSWITH", f"*{part}": "ENDSWITH"}[starred[0]]
    return (
        f"must name whole tags, not {starred[0]!r}: SQL92 selects by a part, as in TAGS {word} "
        f"'{part}'"
    )


def sent_tag_problem(tag: str | None) -> str | None:
    """Why no expression would select the tag of a message."""
    if tag is not None and "||" in tag:
        return f"{tag!r} has ||, which joins tags in a filter: a message has one tag"
    return None
