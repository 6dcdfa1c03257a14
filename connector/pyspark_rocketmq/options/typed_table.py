"""The options of typed bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options.definition import READ, OptionDefinition
from pyspark_rocketmq.options.kinds import Choice, Text

_JSON: Final = "json"
# JSON wins against from_json by a factor of two (docs/benchmarks.md). A format ships only if it
# wins clearly: CSV gained too little over from_csv. For Avro and Protobuf Python makes an object a
# row, and takes longer for that than Spark for the whole read (core-microseconds a body of the same
# orders, up to columns): Avro 4.3 by fastavro, 0.25 by from_avro; Protobuf 2.4 by upb, where
# from_json takes 1.3 for JSON. from_protobuf was not measured: its jar was not available.
_FROM_CSV: Final = (
    "must be json: leave it out, give the read no schema, and read CSV by Spark's own from_csv: "
    "from pyspark.sql.functions import col, from_csv; "
    'df.select(from_csv(col("body").cast("string"), schema_ddl).alias("f")).select("f.*"); '
    "schema_ddl is such as 'order_id LONG, note STRING'"
)
_SPARKS_WAY: Final = {
    "avro": "from_avro(body, schema)",
    "protobuf": "from_protobuf(body, message, descriptor)",
}


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """The format that workers read."""

    takes: str = _JSON

    def __call__(self, text: str) -> str:
        word = text.strip().lower()
        if word == "csv":
            raise ValueError(_FROM_CSV)
        if word in _SPARKS_WAY:
            raise ValueError(
                f"must be json: leave it out, and read {word} by Spark's own {_SPARKS_WAY[word]}"
            )
        if word != _JSON:
            raise ValueError("must be json")
        return word


_O = OptionDefinition

TYPED_DEFINITIONS: Final = (
    _O(
        "bodyFormat",
        BodyFormat(),
        None,
        READ,
        "rows",
        "Read the fields of JSON bodies as columns, in the workers: .schema('order_id LONG, "
        "amount DOUBLE, __tags STRING, __offset LONG'). Columns of messages are named with two "
        "underlines before. For other formats use Spark's from_csv, from_avro and from_protobuf.",
    ),
    _O(
        "bodyMode",
        Choice(("permissive", "dropmalformed", "failfast")),
        "permissive",
        READ,
        "rows",
        "With bodyFormat: what becomes of a body that is not one JSON object with values of these "
        "types. permissive: its fields are null, and its text is in the column _corrupt_record if "
        "the schema has one; dropmalformed: it is left out; failfast: the query fails.",
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
)
