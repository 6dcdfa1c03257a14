"""SQL92 text -> tokens -> a selector, by recursive descent.

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary | [NOT] CONTAINS string
                        | [NOT] STARTSWITH string | [NOT] ENDSWITH string
                        | [NOT] BETWEEN unary AND unary | [NOT] IN "(" string { "," string } ")" }
    unary       = ("+" | "-" | NOT) unary | primary
    primary     = string | number | TRUE | FALSE | NULL | property | "(" or ")"

The parser does not read text after a complete expression, which may be anything: a lexer that
reads ahead would refuse text that brokers take. As in RocketMQ the longest token wins; a line
comment needs the end of its line, so `--5` at the end of the text is 5, negated twice.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_wire.errors import EvaluationError, LocalProtocolError, SqlSyntaxError
from rocketmq_wire.filters.sql92.expressions import (
    Constant,
    Junction,
    Negation,
    Node,
    Not,
    Properties,
    Property,
    TextTest,
    as_boolean,
    between,
    children_of,
    equality,
    is_null,
    membership,
    ordering,
)
from rocketmq_wire.filters.sql92.values import INTEGER_MAX, LONG_MAX, LongInteger

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
_COMMENT: Final = r"/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/"
_BLANKS: Final = re.compile(rf"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|{_COMMENT})*")
_BLANKS_OF_LAST_LINE: Final = re.compile(rf"(?:[ \t\f]+|{_COMMENT})*")
"""Without line comments: to look for the line end that each `--` lacks takes quadratic time."""
_TOKEN: Final = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<WHOLE>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<NAME>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<SYMBOL><>|>=|<=|[=<>(),+-])"
)


class Tokens:
    """The tokens of one text, with any look-ahead."""

    def __init__(self, text: str, count_max: int = TEXT_SIZE_MAX) -> None:
        if len(text) > TEXT_SIZE_MAX:
            raise SqlSyntaxError(text, 0, f"it is longer than {TEXT_SIZE_MAX} characters")
        self.text = text
        self._count_max = count_max
        self._left = count_max
        self._position = 0
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
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
        is_last_line = self._position > self._last_line_end
        pattern = _BLANKS_OF_LAST_LINE if is_last_line else _BLANKS
        blanks = pattern.match(self.text, self._position)
        begin = blanks.end() if blanks else self._position
        if begin == len(self.text):
            return Token(Kind.END, "", begin)
        match = _TOKEN.match(self.text, begin)
        if match is None:
            raise SqlSyntaxError(self.text, begin, "no word, number or operator begins like this")
        if not self._left:
            raise LocalProtocolError(f"more than {self._count_max} words, values and operators")
        self._left -= 1
        self._position = match.end()
        written = match.group()
        group = match.lastgroup
        if group == "SYMBOL":
            return Token(_SYMBOLS[written], written, begin)
        if group == "NAME":
            return Token(_WORDS.get(written.upper(), Kind.NAME), written, begin)
        return Token(Kind[str(group)], written, begin)


_NESTING_MAX: Final = 40
"""Levels of brackets and unary operators; Java's own stack ends at some thousand."""
_HEIGHT_MAX: Final = 200
"""Levels of the tree, which is evaluated by recursion; a chain of ANDs or ORs is one level."""

_ORDERS: Final[dict[Kind, Callable[[int], bool]]] = {
    Kind.GREATER: lambda sign: sign > 0,
    Kind.GREATER_EQUAL: lambda sign: sign >= 0,
    Kind.LESS: lambda sign: sign < 0,
    Kind.LESS_EQUAL: lambda sign: sign <= 0,
}
_TEXT_TESTS: Final[dict[Kind, Callable[[str, str], bool]]] = {
    Kind.CONTAINS: lambda text, wanted: wanted in text,
    Kind.STARTS_WITH: str.startswith,
    Kind.ENDS_WITH: str.endswith,
}
_CONSTANTS: Final = {Kind.TRUE: True, Kind.FALSE: False, Kind.NULL: None}


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled SQL92 expression over the properties of messages."""

    root: Node
    names: frozenset[str]
    """The properties that the expression reads."""
    unread: str
    """The text after the expression, which brokers ignore."""
    node_count: int
    """What one evaluation costs at most, in nodes of the tree."""

    @property
    def problem(self) -> str | None:
        """The objection to text after the expression; None if there is none."""
        if not self.unread:
            return None
        return (
            f"is complete before {self.unread[:40]!r}, which brokers would ignore: join it by AND "
            "or OR, or leave it out"
        )

    def matches(self, properties: Properties) -> bool:
        """True only if the result is true; neither unknown nor an EvaluationError matches."""
        try:
            return self.root.value(properties) is True
        except EvaluationError:
            return False


def parse_selector(text: str, *, tokens_max: int = TEXT_SIZE_MAX) -> Selector:
    """Compile an expression. Raises SqlSyntaxError, and LocalProtocolError for too many tokens."""
    parser = _Parser(text, tokens_max)
    root = parser.built(as_boolean, parser.any_of())
    node_count = _count_nodes(root)
    if node_count is None:
        raise SqlSyntaxError(text, 0, f"more than {_HEIGHT_MAX} operators follow each other")
    rest = parser.tokens.peek()
    return Selector(root, frozenset(parser.names), text[rest.position :], node_count)


class _Parser:
    """One method per rule of the grammar, from the loosest binding to the tightest."""

    def __init__(self, text: str, tokens_max: int) -> None:
        self.tokens = Tokens(text, tokens_max)
        self.names: set[str] = set()
        self._depth = 0

    def built(self, build: Callable[..., Node], *parts: object, **named: object) -> Node:
        """Build a node; a refusal becomes a syntax error at the next token."""
        try:
            return build(*parts, **named)
        except (ValueError, EvaluationError) as error:
            raise self.tokens.unexpected(str(error)) from None

    def any_of(self) -> Node:
        return self._chain(Kind.OR, self._all_of, decisive=True)

    def _all_of(self) -> Node:
        return self._chain(Kind.AND, self._equality, decisive=False)

    def _chain(self, kind: Kind, part: Callable[[], Node], *, decisive: bool) -> Node:
        first = part()
        if self.tokens.peek().kind is not kind:
            return first
        # A flat node: a chain of thousands must not nest.
        terms: list[Node] = []
        while self.tokens.peek().kind is kind:
            self.tokens.take()
            following = part()
            if not terms:
                terms.append(self.built(as_boolean, first))
            terms.append(self.built(as_boolean, following))
        return Junction(tuple(terms), decisive)

    def _equality(self) -> Node:
        left, tokens = self._comparison(), self.tokens
        while tokens.peek().kind in (Kind.EQUAL, Kind.NOT_EQUAL, Kind.IS):
            operator = tokens.take().kind
            if operator is Kind.IS:
                is_negated = tokens.peek().kind is Kind.NOT
                if is_negated:
                    tokens.take()
                tokens.expect(Kind.NULL)
                left = is_null(left)
            else:
                is_negated = operator is Kind.NOT_EQUAL
                left = self.built(equality, left, self._comparison())
            left = Not(left) if is_negated else left
        return left

    def _comparison(self) -> Node:
        left, tokens = self._unary(), self.tokens
        while True:
            operator = tokens.peek().kind
            if operator in _ORDERS:
                tokens.take()
                left = self.built(ordering, left, self._unary(), _ORDERS[operator])
                continue
            is_negated = operator is Kind.NOT
            if is_negated:
                operator = tokens.peek(1).kind
            if operator in _TEXT_TESTS or operator in (Kind.BETWEEN, Kind.IN):
                for _ in range(1 + is_negated):
                    tokens.take()
                left = self._tested(left, operator, is_negated=is_negated)
            elif is_negated:
                raise tokens.unexpected("NOT stands here only before BETWEEN, IN or a text test")
            else:
                return left

    def _tested(self, left: Node, operator: Kind, *, is_negated: bool) -> Node:
        if operator in _TEXT_TESTS:
            return TextTest(left, self._string(), _TEXT_TESTS[operator], is_negated)
        if operator is Kind.BETWEEN:
            low = self._unary()
            self.tokens.expect(Kind.AND)
            return self.built(between, left, low, self._unary(), is_negated=is_negated)
        self.tokens.expect(Kind.OPEN)
        texts = {self._string()}
        while self.tokens.peek().kind is Kind.COMMA:
            self.tokens.take()
            texts.add(self._string())
        self.tokens.expect(Kind.CLOSE)
        return self.built(membership, left, frozenset(texts), is_negated=is_negated)

    def _unary(self) -> Node:
        kind = self.tokens.peek().kind
        if kind not in (Kind.PLUS, Kind.MINUS, Kind.NOT):
            return self._primary()
        self.tokens.take()
        operand = self._nested(self._unary)
        if kind is Kind.PLUS:
            return operand
        return Negation(operand) if kind is Kind.MINUS else Not(self.built(as_boolean, operand))

    def _primary(self) -> Node:
        token = self.tokens.peek()
        if token.kind is Kind.STRING:
            return Constant(self._string())
        if token.kind is Kind.OPEN:
            self.tokens.take()
            node = self._nested(self.any_of)
            self.tokens.expect(Kind.CLOSE)
            return node
        if token.kind is Kind.NAME:
            self.names.add(token.text)
            self.tokens.take()
            return Property(token.text)
        if token.kind in (Kind.WHOLE, Kind.FLOAT):
            return Constant(self._number(self.tokens.take()))
        if token.kind in _CONSTANTS:
            self.tokens.take()
            return Constant(_CONSTANTS[token.kind])
        raise self.tokens.unexpected("a property, a value or ( was expected")

    def _number(self, token: Token) -> int | float:
        if token.kind is Kind.FLOAT:
            value = float(token.text)
            # Java's smallest double is positive, so RocketMQ refuses 0.0, too.
            if not 0 < value < math.inf:
                raise SqlSyntaxError(self.tokens.text, token.position, "out of a double's range")
            return value
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise SqlSyntaxError(self.tokens.text, token.position, "more than 64 bits can hold")
        return int(digits) if int(digits) <= INTEGER_MAX else LongInteger(digits)

    def _string(self) -> str:
        return self.tokens.expect(Kind.STRING).text[1:-1].replace("''", "'")

    def _nested(self, rule: Callable[[], Node]) -> Node:
        if self._depth >= _NESTING_MAX:
            raise self.tokens.unexpected(f"nested deeper than {_NESTING_MAX} levels")
        self._depth += 1
        node = rule()
        self._depth -= 1
        return node


def _count_nodes(root: Node) -> int | None:
    """The nodes of a tree; None if it is too high to be evaluated by recursion."""
    level: list[Node] = [root]
    count = 0
    for _ in range(_HEIGHT_MAX):
        count += len(level)
        level = [child for node in level for child in children_of(node)]
        if not level:
            return count
    return None
