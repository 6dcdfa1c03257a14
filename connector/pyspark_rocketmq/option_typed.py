"""The options of typed bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.option_definition import READ, OptionDefinition
from pyspark_rocketmq.option_kinds import Choice, Text

BODY_FORMATS: Final = ("json", "csv")
# Against Spark's functions on the same messages in one quiet run of `./run bench typed`, over TCP
# and gRPC: JSON 1.51 and 1.64 times the rows a second, CSV 1.42 and 1.41. With one body in a
# hundred bad, by core time: JSON 1.22 and 1.20 times, CSV 1.19 and 1.13. A format ships only when
# it has won. What to write instead of the others: Python makes an object a row of them, and takes
# longer for that than Spark for all (core-microseconds a body of the same orders, up to columns):
# Avro 4.3 by fastavro, 0.25 by from_avro; Protobuf 2.4 by upb, where from_json takes 1.3 for JSON.
# from_protobuf itself was not measured, as its jar could not be had.
_SPARKS_WAY: Final = {
    "avro": "from_avro(body, schema)",
    "protobuf": "from_protobuf(body, message, descriptor)",
}


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format that workers read."""

    takes: str = "json | csv"

    def __call__(self, text: str) -> str:
        word = text.strip().lower()
        if word in _SPARKS_WAY:
            raise ValueError(
                f"must be json or csv: leave it out, and read {word} by Spark's own "
                f"{_SPARKS_WAY[word]}"
            )
        if word not in BODY_FORMATS:
            raise ValueError(f"must be one of {', '.join(BODY_FORMATS)}")
        return word


@dataclass(frozen=True, slots=True)
class Delimiter:
    """What stands between the fields of CSV: one ASCII character, white space too.

    Not a letter or digit: it would be part of the fields, and of the row's number before them. Nor
    a backslash, which escapes within quotes.
    """

    takes: str = "one character"

    def __call__(self, text: str) -> str:
        found = {"\\t": "\t"}.get(text, text)
        is_one = len(found) == 1 and found.isascii()
        if not is_one or found.isalnum() or found in '"\\\r\n\0':
            raise ValueError(
                "must be one ASCII character: no letter, digit, quote, backslash or line break"
            )
        return found


@dataclass(frozen=True, slots=True)
class NullValue:
    """What a field without quotes holds that is null, beside nothing at all."""

    takes: str = "text"

    def __call__(self, text: str) -> str:
        if any(char in '"\r\n' for char in text):
            raise ValueError("must not contain quotes or line breaks")
        return text


_O = OptionDefinition

TYPED_DEFINITIONS: Final = (
    _O(
        "bodyFormat",
        BodyFormat(),
        None,
        READ,
        "rows",
        "Read the fields of JSON or CSV bodies as columns, in the workers: .schema('order_id LONG, "
        "amount DOUBLE, __tags STRING, __offset LONG'). Columns of messages are named with two "
        "underlines before. For other formats use Spark's from_avro and from_protobuf.",
    ),
    _O(
        "bodyMode",
        Choice(("permissive", "dropmalformed", "failfast")),
        "permissive",
        READ,
        "rows",
        "With bodyFormat: what becomes of a body that is not one JSON object, or one line of CSV, "
        "with values of these types. permissive: its fields are null, and its text is in the "
        "column _corrupt_record if the schema has one; dropmalformed: it is left out; failfast: "
        "the query fails.",
        ("mode",),
    ),
    _O(
        "columnNameOfCorruptRecord",
        Text(),
        "_corrupt_record",
        READ,
        "rows",
        "With bodyFormat: the STRING column for the text of bad bodies, if the schema has it.",
    ),
    _O(
        "delimiter",
        Delimiter(),
        ",",
        READ,
        "rows",
        "With bodyFormat=csv: what stands between fields.",
        ("sep",),
    ),
    _O(
        "nullValue",
        NullValue(),
        "",
        READ,
        "rows",
        "With bodyFormat=csv: what a field without quotes holds that is null, beside nothing at "
        "all.",
    ),
)
