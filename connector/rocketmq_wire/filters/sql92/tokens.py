"""SQL92 text -> tokens, one at a time, as the grammar reads them.

Text that the grammar never reaches may be anything, so a lexer that reads ahead would refuse text
that brokers take. As in RocketMQ the longest match wins; a line comment needs the end of its line,
so `--5` at the end of the text is 5, negated twice.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from rocketmq_wire.errors import SqlSyntaxError

TEXT_SIZE_MAX: Final = 64 * 1024
"""RocketMQ has no limit; this one protects the event loop of the broker, which parses texts."""


class Kind(enum.Enum):
    """The kinds of tokens; the value of a word is its spelling in upper case."""

    NOT = "NOT"
    AND = "AND"
    OR = "OR"
    BETWEEN = "BETWEEN"
    IN = "IN"
    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    IS = "IS"
    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"
    EQUAL = "="
    NOT_EQUAL = "<>"
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    PLUS = "+"
    MINUS = "-"
    NAME = "a property"
    STRING = "a text in quotes"
    WHOLE = "a whole number"
    FLOAT = "a number with a fraction"
    END = "the end"


class Token(NamedTuple):
    """One token: its kind, its text as written, and where it begins."""

    kind: Kind
    text: str
    position: int


_WORDS: Final = {kind.value: kind for kind in Kind if kind.value.isalpha() and kind.value.isupper()}
_SYMBOLS: Final = {kind.value: kind for kind in Kind if not kind.value[0].isalpha()}
_BLANKS: Final = re.compile(
    r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
)
_TOKEN: Final = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<WHOLE>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<NAME>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<SYMBOL><>|>=|<=|[=<>(),+-])"
)


class Tokens:
    """The tokens of one text, with any look-ahead."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_SIZE_MAX:
            raise SqlSyntaxError(text, 0, f"it is longer than {TEXT_SIZE_MAX} characters")
        self.text = text
        self._position = 0
        self._ahead: list[Token] = []

    def peek(self, count: int = 0) -> Token:
        """The token `count` after the next one. Raises SqlSyntaxError for malformed text."""
        while len(self._ahead) <= count:
            self._ahead.append(self._read())
        return self._ahead[count]

    def take(self) -> Token:
        """Consume and return the next token."""
        self.peek()
        return self._ahead.pop(0)

    def expect(self, kind: Kind) -> Token:
        """Consume and return the next token. Raises SqlSyntaxError if it is of another kind."""
        token = self.peek()
        if token.kind is not kind:
            raise self.unexpected(f"{kind.value} was expected")
        return self.take()

    def unexpected(self, reason: str) -> SqlSyntaxError:
        """The error for a next token that the grammar does not allow."""
        return SqlSyntaxError(self.text, self.peek().position, reason)

    def _read(self) -> Token:
        blanks = _BLANKS.match(self.text, self._position)
        begin = blanks.end() if blanks else self._position
        if begin == len(self.text):
            return Token(Kind.END, "", begin)
        match = _TOKEN.match(self.text, begin)
        if match is None:
            raise SqlSyntaxError(self.text, begin, "no word, number or operator begins like this")
        self._position = match.end()
        written = match.group()
        group = match.lastgroup
        if group == "SYMBOL":
            return Token(_SYMBOLS[written], written, begin)
        if group == "NAME":
            return Token(_WORDS.get(written.upper(), Kind.NAME), written, begin)
        return Token(Kind[str(group)], written, begin)
