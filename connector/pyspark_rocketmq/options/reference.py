"""The tables of options and columns -> the reference page, in Markdown.

python -m pyspark_rocketmq.options.reference > docs/options.md
"""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import OptionDefinition
from pyspark_rocketmq.options.parse import DEFINITIONS
from rocketmq_arrow.source_columns import COLUMNS, DEFAULT_COLUMNS, Column

_HEAD: Final = """\
<!-- Written by python -m pyspark_rocketmq.options.reference: change options/tables.py. -->

# Options and columns

Keys are case-insensitive; an unknown one is refused with the nearest known name.

A batch read whose end is `latest` is not repeatable: every use of the DataFrame, and a task that
Spark runs again, reads what is there then. To read the same rows twice, give numbers as the end, or
take them from `pin_offsets`.
"""
_SECTION_HEADS: Final = {
    "sink": "The topic of all rows is the option `topic`, another spelling of "
    "[`subscribe`](#subscribe).\n\n",
    "pull": "These have the names of RocketMQ's consumer and other defaults: a task downloads a "
    "known range, and nothing waits for a listener. With RocketMQ's own values "
    "(`pullBatchSize` 32, `pullThresholdForQueue` 1000, `consumeMaxSpan` 2000) a batch read of "
    "600,000 messages of 100 bytes from the bundled broker reached 0.3 of the rows a second, and "
    "with `pullsInFlight` 1 as well, as RocketMQ's clients pull, 0.1, in one run. Set these four "
    "to read as gently as they do.\n\n",
}
_COLUMNS_HEAD: Final = """\
## Columns

Without a `.schema(...)` a read has the columns marked as default, and `properties` with
`includeProperties=true`. A schema names any of them, in any order; only what it names is decoded.

| column | type | default | what it holds |
|---|---|---|---|
"""
_CONTENTS: Final = {
    "topic": "the topic's name",
    "brokerName": "the broker that holds the queue",
    "queueId": "the queue's number at its broker",
    "queueOffset": "the message's offset in its queue; unique with topic, broker and queue",
    "body": "the body, decompressed",
    "tags": "the tag; null without one",
    "keys": "the keys, separated by spaces; null without any",
    "bornTimestamp": (
        "when the producer created it, by the producer's clock; a time outside the years 1 to 9999 "
        "becomes the nearest inside"
    ),
    "storeTimestamp": "when the broker stored it: timestamp options mean this time",
    "properties": "every property, the user's own and RocketMQ's",
    "msgId": "the producer's unique id, else the broker's",
    "offsetMsgId": "the broker's id: its address and the byte position in its log",
    "flag": "the producer's own flag",
    "sysFlag": "RocketMQ's flags, as bits",
    "reconsumeTimes": "how often a consumer group sent it back",
    "bornHost": "the producer's address",
    "storeHost": "the broker's address",
    "physicalOffset": "the byte position in the broker's log",
    "bodyCrc": "the stored checksum of the body",
    "storeSize": "the size in the broker's log, in bytes",
    "preparedTransactionOffset": "the byte position of its transaction's half message, else 0",
    "deliveryAttempt": "`reconsumeTimes` + 1",
    "receiptHandle": "acknowledges a popped message, until it is renewed; else null",
    "corruptReason": "why the message is corrupt, with `corruptMessages=emit`; else null",
}


def reference_markdown() -> str:
    return f"{_HEAD}\n{_options()}{_columns()}"


def _columns() -> str:
    return _COLUMNS_HEAD + "\n".join(map(_column, COLUMNS.values())) + "\n"


def _column(column: Column) -> str:
    is_default = "yes" if column.name in DEFAULT_COLUMNS else ""
    return f"| {column.name} | {column.spark_type} | {is_default} | {_CONTENTS[column.name]} |"


def _options() -> str:
    groups: dict[str, list[OptionDefinition]] = {}
    for definition in DEFINITIONS:
        groups.setdefault(definition.group, []).append(definition)
    return "".join(
        f"## {group[0].upper()}{group[1:]}\n\n"
        + _SECTION_HEADS.get(group, "")
        + "".join(map(_option, definitions))
        for group, definitions in groups.items()
    )


def _option(definition: OptionDefinition) -> str:
    text = definition.help
    if definition.supported == ():
        text += " Not supported yet."
    elif definition.supported is not None:
        text += f" Only {', '.join(map(_shown, definition.supported))} so far."
    facts = [f"For {', '.join(sorted(use.value for use in definition.uses))}"]
    facts.append(f"takes {definition.kind.takes}")
    if definition.default not in (None, ()):
        facts.append(f"default {_shown(definition.default)}")
    if definition.aliases:
        facts.append("also spelled " + ", ".join(f"`{alias}`" for alias in definition.aliases))
    return f"### `{definition.name}`\n\n{text}\n\n*{' · '.join(facts)}*\n\n"


def _shown(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    print(reference_markdown(), end="")
