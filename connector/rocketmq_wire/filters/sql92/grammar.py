"""SQL92 tokens -> a selector, by recursive descent.

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary | [NOT] CONTAINS string
                        | [NOT] STARTSWITH string | [NOT] ENDSWITH string
                        | [NOT] BETWEEN unary AND unary | [NOT] IN "(" string { "," string } ")" }
    unary       = ("+" | "-" | NOT) unary | primary
    primary     = string | number | TRUE | FALSE | NULL | property | "(" or ")"

The parser does not read text after a complete expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import EvaluationError, SqlSyntaxError
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
from rocketmq_wire.filters.sql92.tokens import Kind, Token, Tokens
from rocketmq_wire.filters.sql92.values import INTEGER_MAX, LONG_MAX, LongInteger

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
    """A compiled expression."""

    root: Node
    names: frozenset[str]
    """The properties that the expression reads."""
    unread: str
    """The text after the expression, which brokers ignore."""

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


def parse_selector(text: str) -> Selector:
    """Compile an expression. Raises SqlSyntaxError."""
    parser = _Parser(text)
    root = parser.built(as_boolean, parser.any_of())
    if _height_is_over(root, _HEIGHT_MAX):
        raise SqlSyntaxError(text, 0, f"more than {_HEIGHT_MAX} operators follow each other")
    rest = parser.tokens.peek()
    return Selector(root, frozenset(parser.names), text[rest.position :])


class _Parser:
    """One method per rule of the grammar, from the loosest binding to the tightest."""

    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
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


def _height_is_over(root: Node, limit: int) -> bool:
    """True for a tree that is too high to be evaluated by recursion."""
    level: list[Node] = [root]
    for _ in range(limit):
        level = [child for node in level for child in children_of(node)]
        if not level:
            return False
    return True
