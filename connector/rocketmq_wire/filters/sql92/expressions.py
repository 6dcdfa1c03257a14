"""The nodes of a parsed SQL92 expression; each gives a value for a message's properties.

Logic has three values: None means unknown, and a message matches only if the result is true. The
builder functions check which operands are allowed; they raise ValueError with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rocketmq_wire.filters.sql92.values import Value, compare, compare_in_order, negate

Properties = Mapping[str, str]


class Node:
    __slots__ = ()
    is_boolean = False
    """True if the expression can only be true, false or unknown."""

    def value(self, properties: Properties) -> Value:
        """The value. Raises EvaluationError if a text is compared as a number and is none."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant(Node):
    constant: Value

    @property
    def is_boolean(self) -> bool:  # type: ignore[override]
        return self.constant is None or type(self.constant) is bool

    @property
    def is_number(self) -> bool:
        return isinstance(self.constant, (int, float)) and type(self.constant) is not bool

    def value(self, properties: Properties) -> Value:
        del properties
        return self.constant


@dataclass(frozen=True, slots=True)
class Property(Node):
    name: str

    def value(self, properties: Properties) -> Value:
        return properties.get(self.name)


@dataclass(frozen=True, slots=True)
class Negation(Node):
    """Unary minus."""

    operand: Node

    def value(self, properties: Properties) -> Value:
        return negate(self.operand.value(properties))


class BooleanNode(Node):
    """An expression that is true, false or unknown."""

    __slots__ = ()
    is_boolean = True


@dataclass(frozen=True, slots=True)
class BooleanCast(BooleanNode):
    """A property in place of a boolean: a property is a text, so it is never true."""

    operand: Property

    def value(self, properties: Properties) -> Value:
        return None if self.operand.value(properties) is None else False


@dataclass(frozen=True, slots=True)
class Not(BooleanNode):
    operand: Node

    def value(self, properties: Properties) -> Value:
        value = self.operand.value(properties)
        return None if value is None else not value


@dataclass(frozen=True, slots=True)
class Junction(BooleanNode):
    """A chain of ANDs or of ORs, left to right; the value `decisive` ends it."""

    terms: tuple[Node, ...]
    decisive: bool

    def value(self, properties: Properties) -> Value:
        is_known = True
        for term in self.terms:
            value = term.value(properties)
            if value is self.decisive:
                return value
            is_known = is_known and value is not None
        return not self.decisive if is_known else None


@dataclass(frozen=True, slots=True)
class Equality(BooleanNode):
    """`=`. As in RocketMQ, unknown only if the left side alone is missing."""

    left: Node
    right: Node

    def value(self, properties: Properties) -> Value:
        left, right = self.left.value(properties), self.right.value(properties)
        if left is None:
            return None if right is not None else True
        return right is not None and compare(left, right) == 0


@dataclass(frozen=True, slots=True)
class Ordering(BooleanNode):
    """`<`, `<=`, `>`, `>=`; `holds` decides by the sign of the comparison."""

    left: Node
    right: Node
    holds: Callable[[int], bool]

    def value(self, properties: Properties) -> Value:
        left = self.left.value(properties)
        if left is None:
            return None
        right = self.right.value(properties)
        if right is None:
            return None
        return self.holds(compare_in_order(left, right))


@dataclass(frozen=True, slots=True)
class Membership(BooleanNode):
    """`IN` and `NOT IN`."""

    operand: Property
    texts: frozenset[str]
    is_negated: bool

    def value(self, properties: Properties) -> Value:
        value = self.operand.value(properties)
        return None if value is None else (value in self.texts) is not self.is_negated


@dataclass(frozen=True, slots=True)
class TextTest(BooleanNode):
    """`CONTAINS`, `STARTSWITH`, `ENDSWITH`: false, also if negated, for a missing value."""

    operand: Node
    wanted: str
    test: Callable[[str, str], bool]
    is_negated: bool

    def value(self, properties: Properties) -> Value:
        value = self.operand.value(properties)
        if not self.wanted or type(value) is not str:
            return False
        return self.test(value, self.wanted) is not self.is_negated


def children_of(node: Node) -> list[Node]:
    if isinstance(node, Junction):
        return list(node.terms)
    parts = (getattr(node, name, None) for name in ("operand", "left", "right"))
    return [part for part in parts if isinstance(part, Node)]


# --- builders --------------------------------------------------------------------------------


def as_boolean(node: Node) -> Node:
    """The node as a boolean. Raises ValueError if it cannot be one."""
    if node.is_boolean:
        return node
    if isinstance(node, Property):
        return BooleanCast(node)
    raise ValueError("this has no boolean value")


def equality(left: Node, right: Node) -> Node:
    for side in (left, right):
        if isinstance(side, Constant) and side.constant is None:
            raise ValueError("NULL cannot be compared; use IS NULL")
    both_constant = isinstance(left, Constant) and isinstance(right, Constant)
    if both_constant and left.is_boolean and not right.is_boolean:
        raise ValueError("a boolean cannot be compared with this")
    return Equality(left, right)


def is_null(node: Node) -> Node:
    return Equality(node, Constant(None))


def ordering(left: Node, right: Node, holds: Callable[[int], bool]) -> Node:
    for side in (left, right):
        if isinstance(side, Constant) and not side.is_number:
            raise ValueError("only properties and numbers have an order")
        if side.is_boolean:
            raise ValueError("a condition has no order")
    return Ordering(left, right, holds)


def between(node: Node, low: Node, high: Node, *, is_negated: bool) -> Node:
    if is_negated:
        below = ordering(node, low, lambda sign: sign < 0)
        return Junction((below, ordering(node, high, lambda sign: sign > 0)), decisive=True)
    from_low = ordering(node, low, lambda sign: sign >= 0)
    to_high = ordering(node, high, lambda sign: sign <= 0)
    if (
        isinstance(low, Constant)
        and isinstance(high, Constant)
        and compare(high.constant, low.constant) < 0
    ):
        raise ValueError("the lower bound of BETWEEN is above the upper one")
    return Junction((from_low, to_high), decisive=False)


def membership(node: Node, texts: frozenset[str], *, is_negated: bool) -> Node:
    if not isinstance(node, Property):
        raise ValueError("IN stands behind a property only")
    return Membership(node, texts, is_negated)
