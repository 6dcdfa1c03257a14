"""Options: names, aliases, values, what excludes what, and what is refused for now."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields as fields_of
from operator import attrgetter
from pathlib import Path

import pytest

from pyspark_rocketmq.client_settings import connection_settings, read_spec
from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.kinds import Assigned, PerQueue
from pyspark_rocketmq.options.parse import DEFINITIONS, read_options, write_options
from pyspark_rocketmq.options.reference import reference_markdown
from pyspark_rocketmq.options.values import (
    BodyOptions,
    ConnectionOptions,
    ConsumerOptions,
    PullOptions,
    ReadOptions,
    WriteOptions,
)
from rocketmq_arrow.source_columns import COLUMNS
from rocketmq_client.download.fetch_window import AHEAD_BYTES_MAX
from rocketmq_client.download.range_stream import WINDOW_SIZE_MAX
from rocketmq_client.settings import READER_GROUP
from rocketmq_wire.model import Subscription

BASE = {"nameServer": "h:9876", "subscribe": "orders"}


def parsed(use: Use = Use.STREAM, **given: str) -> ReadOptions:
    raw = {**BASE, **{name.replace("__", "."): text for name, text in given.items()}}
    return read_options(raw, use)


def test_every_definition_has_a_field_or_is_refused() -> None:
    parts = {"given", "connection", "consumer", "pull", "bodies"}
    values = (ReadOptions, WriteOptions, ConnectionOptions, ConsumerOptions)
    fields = {
        field.name for value in (*values, PullOptions, BodyOptions) for field in fields_of(value)
    } - parts
    supported = {d.field for d in DEFINITIONS if d.supported != ()}
    assert fields <= supported
    # What has no field can only be given its one supported value.
    left = supported - fields
    assert left == {"message_model"}


def test_no_spelling_is_used_twice() -> None:
    spellings = [s.lower() for d in DEFINITIONS for s in (d.name, *d.aliases)]
    assert len(spellings) == len(set(spellings))


def test_every_definition_has_a_help_text_and_a_kind() -> None:
    for definition in DEFINITIONS:
        assert definition.help.endswith("."), definition.name
        assert definition.kind.takes
        assert definition.uses


def test_defaults_are_those_of_the_design() -> None:
    options = parsed()
    assert options.fail_on_data_loss is True
    assert options.check_crc is True
    assert options.corrupt_messages == "fail"
    assert options.consumer.commit_offsets == "true"
    pull = options.pull
    assert (pull.pull_threshold_for_queue, pull.pull_threshold_size_for_queue) == (32_768, 100)
    assert pull.consume_max_span is None
    assert options.connection.retry_outage_ms == 60_000
    assert not options.has_limits


def test_keys_are_case_insensitive_and_values_keep_their_case() -> None:
    options = read_options({"NAMESERVER": "Host:1", "SUBSCRIBE": "Orders,Bills", "GROUP": "G"})
    assert options.connection.name_server == ("Host:1",)
    assert options.subscribe == ("Orders", "Bills")
    assert options.consumer.group == "G"


@pytest.mark.parametrize(
    ("alias", "text", "field", "value"),
    [
        ("topic", "a", "subscribe", ("a",)),
        ("consumerGroup", "g", "consumer.group", "g"),
        ("subExpression", "A || B", "tags", "A || B"),
        ("includeHeaders", "true", "include_properties", True),
        ("pullTimeout", "5s", "pull.pull_timeout_ms", 5_000),
        ("nameserver.addr", "a:1;b:2", "connection.name_server", ("a:1", "b:2")),
    ],
)
def test_other_connectors_spellings_are_taken(
    alias: str, text: str, field: str, value: object
) -> None:
    assert attrgetter(field)(read_options({alias: text})) == value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingtimestamp": "soon"}, "option 'startingTimestamp' must be"),
        ({"consumergroup": "a b"}, "option 'consumerGroup' must have"),
        ({"subscribe": "a", "SUBSCRIBE": "b"}, "option 'subscribe' contradicts option 'subscribe'"),
        ({"consumergroup": "a", "group": "b"}, "'group' contradicts option 'consumerGroup'"),
    ],
)
def test_errors_show_options_as_they_are_documented(given: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        read_options({"nameServer": "host:1", **given})


def test_an_alias_may_repeat_the_option_but_not_contradict_it() -> None:
    assert read_options({"subscribe": "a", "topic": "a"}).subscribe == ("a",)
    with pytest.raises(OptionError, match="contradicts option 'subscribe'"):
        read_options({"subscribe": "a", "topic": "b"})


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("maxOffsetPerTrigger", "did you mean 'maxOffsetsPerTrigger'"),
        ("nameservers_", "did you mean 'nameServers'"),
        ("statingOffsets", "did you mean 'startingOffsets'"),
        ("kafka.bootstrap.servers", "as 'nameServer'; docs/from-kafka.md"),
        ("kafka.group.id", "docs/from-kafka.md says"),
        ("zzz", "the options reference lists every option"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"\[ROCKETMQ_OPTION.UNKNOWN\] option '{key}'.*{hint}"):
        read_options({**BASE, key: "1"})


@pytest.mark.parametrize(
    "given",
    [
        {"messageModel": "broadcasting"},
        {"namespace": "n"},
    ],
)
def test_what_is_not_there_yet_is_refused_and_never_ignored(given: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match=r"\[ROCKETMQ_UNSUPPORTED\.OPTION\].*not supported"):
        read_options({**BASE, **given})


def test_saying_what_is_so_anyway_is_allowed() -> None:
    read_options(
        {**BASE, "tls": "false", "joinGroup": "false", "messageModel": "Clustering"}
        | {"consumeMode": "pull"}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-5"),
        ("maxOffsetsPerTrigger", "many"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxTriggerDelay", "5 parsecs"),
        ("maxTriggerDelay", "-1s"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "1x"),
        ("failOnDataLoss", "yes"),
        ("corruptMessages", "ignore"),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"orders":{"broker-a":{"0":-3}}}'),
        ("startingOffsets", '{"orders":{"broker-a":{"x":1}}}'),
        ("startingOffsets", '{"orders":{"broker-a":{"0":true}}}'),
        ("startingOffsets", '{"orders":{"broker-a":{"0":1},"1":2}}'),
        ("startingOffsets", '{"orders":{"0":1},"orders":{"0":2}}'),
        ("startingOffsets", "{"),
        ("startingOffsets", "{}"),
        ("startingOffsetsByTimestamp", '{"orders":{"broker-a":{"0":-1}}}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "1700000000000.0"),
        ("startingTimestamp", "1700000000"),  # Seconds, in all likelihood.
        ("endingTimestamp", "2026-01-31T08:00:00"),
        ("assign", '{"orders":{"broker-a":"0"}}'),
        ("assign", '{"orders":[-1]}'),
        ("assign", "[0]"),
        ("subscribe", " , "),
        ("subscribePattern", "("),
        ("group", " "),
        ("group", "no name!"),
        ("group", "g" * 121),
        ("pullBatchSize", "0"),
        ("addressMap", "a"),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_what_was_given(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"\[ROCKETMQ_OPTION\.INVALID\] option '{name}'.*got "):
        read_options({"nameServer": "h:1", name: text})


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [("250", 250), ("250ms", 250), ("5s", 5_000), ("15m", 900_000), ("1h", 3_600_000), ("0", 0)],
)
def test_durations_have_units(text: str, value_ms: int) -> None:
    assert parsed(maxTriggerDelay=text).max_trigger_delay == value_ms


@pytest.mark.parametrize(
    ("text", "value"), [("100", 100), ("64k", 65_536), ("1MB", 1 << 20), ("2g", 2 << 30)]
)
def test_sizes_have_units(text: str, value: int) -> None:
    assert parsed(maxBytesPerTrigger=text).max_bytes_per_trigger == value


def test_per_queue_json_has_two_forms() -> None:
    nested = parsed(startingOffsets='{"orders":{"broker-a":{"0":100,"1":-2}}}')
    assert nested.starting_offsets == PerQueue({"orders": {"broker-a": {0: 100, 1: -2}}})
    flat = parsed(startingOffsets='{"orders":{"0":100,"1":-1}}')
    assert flat.starting_offsets == PerQueue({"orders": {None: {0: 100, 1: -1}}})


def test_per_queue_json_without_queues_is_refused() -> None:
    with pytest.raises(OptionError, match=r'write \{"orders":\{"broker-a":\{"0":5\}\}\}'):
        parsed(startingOffsets='{"orders":{"broker-a":5}}')


def test_assign_has_two_forms() -> None:
    raw = {"nameServer": "h:1", "assign": '{"orders":{"broker-a":[1,0,1]},"bills":[2]}'}
    assert read_options(raw).assign == Assigned(
        {"orders": {"broker-a": (0, 1)}, "bills": {None: (2,)}}
    )


def test_address_map_is_pairs_or_json() -> None:
    wanted = (("a:1", "b:2"), ("c:3", "d:4"))
    assert parsed(addressMap="a:1=b:2, c:3=d:4").connection.address_map == wanted
    assert parsed(addressMap='{"c:3":"d:4","a:1":"b:2"}').connection.address_map == wanted


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"subscribe": "a"}, "'nameServer' is missing: [^.]*$"),
        (
            {"subscribe": "a", "provider": "rocketmq"},
            r"'nameServer' .*For a table give all .*writeTo\('t'\)\.options\(",
        ),
        ({"nameServer": "h:1"}, "'subscribe' is missing: name the topics, [^.]*$"),
        (
            {"nameServer": "h:1", "provider": "rocketmq"},
            r"'subscribe' .*For a table give all .*read\.options\(\.\.\.\)\.table",
        ),
        ({}, r"'nameServer' .*insertInto.*df\.writeTo\('t'\)\.options\(\.\.\.\)\.append\(\)"),
        ({"nameServer": "h:1", "path": "orders"}, "'subscribe' .*load\\(\\) takes no path"),
        ({**BASE, "startingOffsets": "group"}, "'startingOffsets' .*needs the option 'group'"),
        ({**BASE, "startingOffsets": "group:latest"}, "'startingOffsets' .*the option 'group'"),
    ],
)
def test_a_missing_option_is_named(raw: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^\[ROCKETMQ_OPTION\.MISSING\] option {reason}"):
        read_options(raw, Use.STREAM)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({**BASE, "assign": '{"a":[0]}'}, "'assign' excludes 'subscribe'"),
        ({**BASE, "endpoints": "h:2"}, "'endpoints' excludes 'nameServer'"),
        ({**BASE, "minPartitions": "4", "maxPartitions": "2"}, "below minPartitions = 4"),
        (
            {**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "2"},
            "above maxOffsetsPerTrigger = 2",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(raw: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^\[ROCKETMQ_OPTION\.CONFLICT\] option .*{reason}"):
        read_options(raw, Use.STREAM)


def test_a_batch_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(OptionError, match="'endingTimestamp' = 1000 is before startingTimestamp"):
        parsed(Use.BATCH, startingTimestamp="2000", endingTimestamp="1000")


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"startingOffsets": "{"}, '{"orders":{"broker-a":{"0":100}}}'),
        ({"endingOffsets": '{"orders":3}'}, '{"orders":{"broker-a":{"0":100}}}'),
        ({"startingOffsetsByTimestamp": "noon"}, '{"orders":{"broker-a":{"0":1700000000000}}}'),
        ({"subscribe": "", "assign": '{"sales": 0'}, '{"sales":{"broker-a":[0,1]}}'),
        ({"subscribe": "", "assign": "[0]"}, '{"orders":{"broker-a":[0,1]}}'),
    ],
)
def test_wrong_json_is_answered_with_its_shape_for_the_users_topic(
    given: dict[str, str], shape: str
) -> None:
    raw = {name: text for name, text in {**BASE, **given}.items() if text}
    with pytest.raises(OptionError, match=rf"\. Write {re.escape(shape)}$"):
        read_options(raw, Use.STREAM)


def test_a_batch_warns_of_options_for_streams(caplog: pytest.LogCaptureFixture) -> None:
    parsed(Use.BATCH, maxOffsetsPerTrigger="1", commitOffsets="false")
    assert caplog.messages == [
        f"option '{name}' is for streams: this batch read ignores it"
        for name in ("commitOffsets", "maxOffsetsPerTrigger")
    ]
    caplog.clear()
    parsed(maxOffsetsPerTrigger="1", commitOffsets="false")
    assert not caplog.messages


def test_an_option_that_belongs_elsewhere_is_refused() -> None:
    refused = r"^\[ROCKETMQ_OPTION\.NOT_HERE\] option"
    with pytest.raises(
        OptionError, match=f"{refused} 'endingOffsets' is for batch and has no meaning in a st"
    ):
        parsed(endingOffsets="latest")
    with pytest.raises(OptionError, match=f"{refused} 'joinGroup' is for streams"):
        parsed(Use.BATCH, joinGroup="true", group="g")
    with pytest.raises(OptionError, match=f"{refused} 'sendBack' is for writes and has no meaning"):
        parsed(Use.BATCH, sendBack="true")
    with pytest.raises(OptionError, match=f"{refused} 'tags' is for .* no meaning in a write$"):
        write_options({"nameServer": "h:1", "topic": "a", "tags": "x"})


def test_a_write_without_name_server_may_be_into_a_table() -> None:
    with pytest.raises(OptionError, match=r"'nameServer' is missing: .*For a table give all"):
        write_options({"topic": "a"})


def test_a_pattern_among_topics_is_pointed_to_its_option() -> None:
    with pytest.raises(OptionError, match=r"'orde\*': for patterns give 'subscribePattern'"):
        read_options({"nameServer": "h:1", "subscribe": "bills,orde*"}, Use.STREAM)


def test_a_name_server_has_the_usual_port_unless_one_is_given() -> None:
    read = read_options({"nameServer": "mq-1.local;mq-2:1"})
    assert read.connection.name_server == ("mq-1.local:9876", "mq-2:1")
    with pytest.raises(OptionError, match=r"must be host:port, got 'mq:x'$"):
        read_options({"nameServer": "mq:x"})


def test_a_batch_neither_starts_at_the_end_nor_ends_at_the_start() -> None:
    with pytest.raises(OptionError, match="latest makes no sense in a batch read: give earliest"):
        parsed(Use.BATCH, startingOffsets="latest")
    with pytest.raises(OptionError, match="has -1"):
        parsed(Use.BATCH, startingOffsets='{"orders":{"0":-1}}')
    with pytest.raises(OptionError, match="has -2"):
        parsed(Use.BATCH, endingOffsets='{"orders":{"0":-2}}')
    with pytest.raises(OptionError, match="must be latest or JSON"):
        parsed(Use.BATCH, endingOffsets="earliest")


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    raw = {**BASE, "path": "/w/t", "checkpointLocation": "/c", "option.subscribe": "orders"}
    assert read_options(raw, Use.STREAM).subscribe == ("orders",)
    stored = {**BASE, "path": "/w/t", "location": "/w/t", "provider": "rocketmq", "owner": "me"}
    assert read_options(stored, Use.BATCH).subscribe == ("orders",)
    assert write_options(stored).subscribe == ("orders",)
    with pytest.raises(OptionError, match=r"option\.x"):
        read_options({**BASE, "option.x": "1"})


@pytest.mark.parametrize("path", ["path", "PATH", "paths"])
def test_a_path_beside_a_topic_is_refused_with_what_to_call(path: str) -> None:
    raw = {**BASE, path: "/tmp/orders"}
    for use in (Use.STREAM, Use.BATCH):
        with pytest.raises(
            OptionError, match=r"CONFLICT\] option 'path' .*load\(\) without a path"
        ):
            read_options(raw, use)
    for given in (raw, {"nameServer": "h:1", path: "/tmp/orders"}):
        with pytest.raises(OptionError, match=r"CONFLICT\] option 'path' .*'topic'.*save\(\)"):
            write_options(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"compressionThreshold": "1k"}, "'compressionThreshold' has no effect: set compression="),
        ({"compressionThreshold": "1k", "compression": "none"}, "set compression=zlib"),
        *(
            ({"sendBack": "true", "group": "g", name: text}, f"'{name}' has no meaning with sendB")
            for name, text in (
                ("compression", "zlib"),
                ("compressionThreshold", "1k"),
                ("maxBatchBytes", "1m"),
                ("sendsInFlight", "2"),
                ("producerGroup", "p"),
            )
        ),
    ],
)
def test_options_of_a_write_without_an_effect_are_refused(
    given: dict[str, str], expected: str
) -> None:
    with pytest.raises(OptionError, match=rf"CONFLICT\] option .*{expected}"):
        write_options({"nameServer": "h:1", **given})


def test_a_threshold_goes_with_a_codec() -> None:
    raw = {"nameServer": "h:1", "compression": "zlib", "compressionThreshold": "1k"}
    assert write_options(raw).compression_threshold == 1_024


@pytest.mark.parametrize("name", ["messageKey", "messageId"])
@pytest.mark.parametrize("text", ["a b", "a\tb", "a\u00a0b"])
def test_a_key_with_blanks_is_refused_as_no_message_has_one(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"'{name}' must have no blanks, .*give one .*got "):
        read_options({**BASE, name: text})
    assert read_options({**BASE, name: " a "}).given == {"nameServer", "subscribe", name}


def test_pulls_without_a_group_name_the_clients_own() -> None:
    assert parsed().pull_group == READER_GROUP
    assert parsed(group="g").pull_group == "g"


def test_options_and_errors_survive_pickling() -> None:
    options = parsed(startingOffsets='{"orders":{"0":100}}', tags="A")
    assert pickle.loads(pickle.dumps(options)) == options
    error = OptionError("group", "is odd")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, ValueError)


def test_the_committed_page_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs/options.md"
    assert page.read_text("utf-8") == reference_markdown(), (
        "run python -m pyspark_rocketmq.options.reference > docs/options.md"
    )


def test_the_reference_names_every_column_and_what_cannot_be_repeated() -> None:
    page = reference_markdown()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for column in COLUMNS.values():
        assert any(row.startswith(f"| {column.name} | {column.spark_type} |") for row in rows)
    assert "`latest` is not repeatable" in page
    assert "corruptReason" in page


def test_the_reference_tells_how_far_ahead_a_read_asks_at_most() -> None:
    (row,) = [r for r in reference_markdown().splitlines() if "MiB for a queue and" in r]
    mib = 1024 * 1024
    queue, task, grpc = (
        -(-size // mib) for size in (AHEAD_BYTES_MAX, 2 * AHEAD_BYTES_MAX, WINDOW_SIZE_MAX)
    )
    assert f"{queue} MiB for a queue and {task} MiB for a task over nameServer" in row
    assert f"and {grpc} MiB for a task over endpoints" in row


def test_an_outage_of_0_ms_is_a_setting_like_any_other() -> None:
    options = read_options({"nameServer": "h:1", "retry.outageMs": "0"})
    assert read_spec(options).limits.outage_ms == 0
    assert connection_settings(options.connection).outage_ms == 1


def test_the_reference_names_every_option_with_its_default() -> None:
    page = reference_markdown()
    sections = dict(re.findall(r"^### `([\w.]+)`\n\n(.+\n\n\*.+\*)\n$", page, re.M))
    assert sorted(sections) == sorted(definition.name for definition in DEFINITIONS)
    assert sections["failOnDataLoss"].endswith("takes true | false · default `true`*")
    assert "Not supported yet." in sections["namespace"]
    assert "also spelled `nameServers`" in sections["nameServer"]
    assert "the option `topic`" in page.partition("## Sink\n")[2].partition("###")[0]


def test_an_sql_expression_becomes_the_subscription() -> None:
    options = read_options({**BASE, "sql": " n BETWEEN 1 AND 5 OR TAGS = 'A' "})
    assert options.subscription == Subscription("n BETWEEN 1 AND 5 OR TAGS = 'A'", "SQL92")
    assert not options.subscription.selects_all


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sql": "a >"}, "SQL92 expression is wrong at its end"),
        ({"sql": ""}, "SQL92 expression is wrong"),
        # Brokers would filter by the part before it, and say nothing.
        ({"sql": "a = 1 LIKE 'x'"}, "is complete before \"LIKE 'x'\""),
        ({"sql": "a = 05"}, "is complete before '5'"),
        ({"sql": "a = 1", "tags": "A"}, "excludes 'tags'"),
    ],
)
def test_sql_that_a_broker_would_misread_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        read_options({**BASE, **given})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1700000000000", 1_700_000_000_000),
        (" 0 ", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 23:13:20.123+01:00", 1_700_000_000_123),
    ],
)
def test_times_are_milliseconds_or_as_people_write_them(text: str, value: int) -> None:
    options = {"nameServer": "h:1", "subscribe": "orders", "startingTimestamp": text}
    assert read_options(options).starting_timestamp == value


@pytest.mark.parametrize("text", ["paid | new", "paid, new", "paid OR new"])
def test_tags_joined_by_anything_but_bars_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"'tags' must join tags by \|\|: write 'paid \|\| new'"):
        read_options({"tags": text})


@pytest.mark.parametrize("text", ["paid && new", "pai*"])
def test_tags_that_no_message_can_have_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"'tags' must (not have &&|name whole tags)"):
        read_options({"tags": text})
