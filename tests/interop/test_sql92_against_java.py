"""Our SQL92 and RocketMQ's own, over generated expressions and messages: the same answers."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from rocketmq_wire.errors import SqlSyntaxError
from rocketmq_wire.filters.sql92 import parse_selector
from support.real_cluster import run_program

PROGRAM = Path(__file__).parent / "java" / "Selectors.java"
VALUES = [
    *("5", "-5", "+5", "05", "0", "-0", "5.5", "5.0", "5e0", " 5 ", "5d", "0x1p3", "2147483647"),
    *("2147483648", "-2147483649", "9223372036854775808", "1e400", "NaN", "Infinity", "-Infinity"),
    *("-0.0", "0.0", "true", "TRUE", "True", "false", "yes", "abc", "ab'c", "", " ", "中文", "😀x"),
    *("٥", "５", "𝟓", "TagA", "a", "A"),
]
CONSTANTS = [
    *("5", "5L", "5l", "05", "0", "0.0", "5.0", "5.5", "5.", ".5", "5e0", "5E-1", "1e400"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "0x5", "5d"),
    *("'5'", "'abc'", "'ab''c'", "''", "'中文'", "'😀x'", "'open", "TRUE", "false", "NULL", "null"),
]
NAMES = ["a", "b", "c", "A", "missing", "TAGS", "$d", "_e", "notx", "inn"]
JUNK = [
    *(
        "(",
        ")",
        ",",
        "=",
        "<>",
        "!=",
        "==",
        ">",
        "+",
        "-",
        "--",
        "/*x*/",
        "/**/",
        "/***/",
        "@",
        "%",
    ),
    *("NOT", "AND", "OR", "IN", "IS", "LIKE", "BETWEEN", "CONTAINS", "-- x\n", "\n", "\f", "\x0b"),
]


class Writer:
    """Makes expressions: mostly sound ones, with every rule of the grammar in them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self) -> str:
        text = self.condition(3)
        if self._random.random() < 0.25:
            words = text.split(" ")
            for _ in range(self._random.randrange(1, 3)):
                index = self._random.randrange(len(words) + 1)
                if self._random.random() < 0.5:
                    words.insert(index, self._random.choice([*JUNK, *CONSTANTS]))
                elif len(words) > 1:
                    words.pop(index - 1)
            text = " ".join(words)
        return text

    def operand(self) -> str:
        kind = self._random.random()
        if kind < 0.45:
            return self._random.choice(NAMES)
        if kind < 0.85:
            return self._random.choice(CONSTANTS)
        if kind < 0.95:
            return self._random.choice(["- ", "+ ", "-", "NOT "]) + self.operand()
        return f"( {self.operand()} )"

    def condition(self, depth: int) -> str:
        pick, test = self._random.choice, self._random.randrange(12 if depth else 7)
        negation = pick(["", "", "NOT ", "not "])
        left = self.operand()
        if test < 3:
            return f"{left} {pick(['=', '<>', '>', '>=', '<', '<='])} {self.operand()}"
        if test == 3:
            return f"{left} {negation}BETWEEN {self.operand()} AND {self.operand()}"
        if test == 4:
            texts = " , ".join(pick(CONSTANTS[-11:-4]) for _ in range(self._random.randrange(1, 7)))
            return f"{pick(NAMES)} {negation}IN ( {texts} )"
        if test == 5:
            return f"{left} IS {negation}NULL"
        if test == 6:
            word = pick(["CONTAINS", "STARTSWITH", "ENDSWITH", "Contains"])
            return f"{left} {negation}{word} {pick(CONSTANTS[-11:-4])}"
        if test < 10:
            inner = f"{self.condition(depth - 1)} {pick(['AND', 'OR'])} {self.condition(depth - 1)}"
            return inner if self._random.random() < 0.5 else f"( {inner} )"
        return f"NOT ( {self.condition(depth - 1)} )" if test == 10 else f"NOT {left}"


def made_messages(seed: int, count: int) -> list[dict[str, str]]:
    source = random.Random(seed)
    return [
        {
            name: source.choice(VALUES)
            for name in NAMES
            if source.random() < 0.8 and name != "missing"
        }
        for _ in range(count)
    ]


def answers_of_ours(expression: str, messages: list[dict[str, str]]) -> str:
    try:
        selector = parse_selector(expression)
    except SqlSyntaxError:
        return "refused"
    return "".join("01"[selector.matches(message)] for message in messages)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_generated_expressions_get_the_same_answers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    writer, messages = Writer(seed), made_messages(seed, 60)
    expressions = [
        writer.one() for _ in range(4_000 if request.config.getoption("--short") else 20_000)
    ]
    lines = [
        "M " + " ".join(f"{encoded(k)} {encoded(v)}" for k, v in message.items())
        for message in messages
    ]
    table = tmp_path / "table.txt"
    table.write_text("\n".join([*lines, *(f"E {encoded(text)}" for text in expressions)]))
    theirs = run_program("5.3.3", PROGRAM, str(table)).splitlines()
    ours = [answers_of_ours(text, messages) for text in expressions]
    different = [
        (text, mine, real)
        for text, mine, real in zip(expressions, ours, theirs, strict=True)
        if mine != real
    ]
    assert different[:5] == [], f"seed {seed}: {len(different)} of {len(expressions)} differ"
    # The table must not be one of refusals.
    assert sum(answer != "refused" for answer in ours) > len(ours) // 4
    assert sum("1" in answer for answer in ours) > len(ours) // 20
