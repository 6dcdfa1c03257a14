"""What the jobs' command lines have in common becomes options of the source."""

from __future__ import annotations

import argparse
import re
from types import ModuleType

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.job_arguments import (
    add_source_arguments,
    connection_of,
    source_options,
    told_in_one_line,
)
from pyspark_rocketmq.lag import Lag, QueueLag
from rocketmq_wire.model import QueueId
from spark_jobs import (
    lag_report,
    parquet_to_topic,
    redrive_dead_letters,
    stream_to_parquet,
    topic_to_parquet,
    windowed_totals,
)

WHERE = ["--name-server", "h:1", "--topic", "a,b"]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_source_arguments(parser)
    return parser.parse_args([*WHERE, *words])


def test_what_is_given_becomes_an_option_and_what_is_not_is_left_out() -> None:
    options = source_options(parsed("--group", "g"), maxPartitions=2, startingOffsets=None)
    assert options == {"nameServer": "h:1", "subscribe": "a,b", "group": "g", "maxPartitions": "2"}


def test_an_option_by_name_goes_before_the_jobs_own_whatever_its_case() -> None:
    args = parsed("--option", "MaxPartitions=7", "--option", "tags=A || B=C")
    options = source_options(args, maxPartitions=2)
    assert options["MaxPartitions"] == "7"
    assert options["tags"] == "A || B=C"
    assert "maxPartitions" not in options


@pytest.mark.parametrize("text", ["tags", "=x"])
def test_an_option_without_a_key_and_a_value_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("--option", text)
    assert f"an option is KEY=VALUE, got {text!r}" in capsys.readouterr().err


def test_one_cluster_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--endpoints", "h:2")
    assert "not allowed with argument --name-server" in capsys.readouterr().err


def test_an_error_of_ours_is_a_jobs_only_words() -> None:
    with pytest.raises(SystemExit) as ended, told_in_one_line():
        raise OptionError("tags", "is odd")
    assert ended.value.code == "[ROCKETMQ_OPTION.INVALID] option 'tags' is odd"
    assert ended.value.__suppress_context__
    with pytest.raises(ZeroDivisionError), told_in_one_line():
        _ = 1 / 0


def test_both_jobs_hand_their_own_arguments_on() -> None:
    copied = topic_to_parquet.parse_arguments(
        [*WHERE, "--output", "o", "--start", "2026-05-01T00:00:00Z", "--end", '{"a":{"0":5}}']
    )
    assert topic_to_parquet.options_of(copied) == {
        "nameServer": "h:1",
        "subscribe": "a,b",
        "startingTimestamp": "1777593600000",
        "endingOffsets": '{"a":{"0":5}}',
    }
    streamed = stream_to_parquet.parse_arguments(
        [*WHERE, "--output", "o", "--checkpoint", "c", "--max-offsets-per-trigger", "9"]
    )
    assert stream_to_parquet.options_of(streamed) == {
        "nameServer": "h:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "9",
    }


def redriven(*words: str) -> dict[str, str]:
    args = redrive_dead_letters.parse_arguments(["--name-server", "h:1", "--group", "g", *words])
    return redrive_dead_letters.options_of(args)


def test_dead_letters_of_some_tags_have_a_progress_of_their_own() -> None:
    """Else those of other tags would be taken for sent."""
    some = redriven("--tags", "a || b")
    assert some["tags"] == "a || b"
    assert re.fullmatch("g-redrive-[0-9a-f]{8}", some["group"])
    assert redriven("--tags", "b||a")["group"] == some["group"]
    assert redriven("--option", "subExpression=a||b")["group"] == some["group"]
    others = [
        redriven("--tags", "a"),
        redriven("--tags", "b"),
        redriven("--option", "sql=a = 1"),
        redriven("--tags", "a || b", "--progress", "p"),
        redriven(),
        some,
    ]
    assert len({options["group"] for options in others}) == len(others)
    assert redriven("--tags", "*")["group"] == "g-redrive"
    assert redriven("--progress", "p")["group"] == "p"


def test_a_replay_into_kept_queues_names_the_broker_where_there_are_several() -> None:
    columns = ["body", "queueId", "brokerName"]
    for known, brokers, wanted in (
        (columns, frozenset("ab"), ["queueId", "brokerName"]),
        (columns, frozenset("a"), ["queueId"]),
        (columns[:2], frozenset("ab"), ["queueId"]),
    ):
        assert parquet_to_topic.queue_names(known, brokers) == wanted


def test_dead_letters_are_read_behind_what_was_sent_again_before() -> None:
    options = redriven("--option", "tls=true")
    assert options == {
        "nameServer": "h:1",
        "deadLettersOf": "g",
        "group": "g-redrive",
        "startingOffsets": "group:earliest",
        "includeProperties": "true",
        "tls": "true",
    }
    # What goes to the sink says where the cluster is, and nothing of the read.
    assert connection_of(options) == {"nameServer": "h:1", "tls": "true"}
    assert connection_of({"nameservers": "x", "Topic": "t"}) == {"nameservers": "x"}


@pytest.mark.parametrize(
    ("job", "words", "complaint"),
    [
        (parquet_to_topic, ["--rate", "0"], "must be above 0"),
        (parquet_to_topic, ["--tasks", "0"], "take 1 or more"),
        (windowed_totals, [], "--checkpoint"),
    ],
)
def test_what_a_job_cannot_do_is_refused(
    job: ModuleType, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["--input", "i"] if job is parquet_to_topic else ["--output", "o"]
    checkpoint = ["--checkpoint", "c"] if words else []
    with pytest.raises(SystemExit):
        job.parse_arguments([*WHERE, *usual, *checkpoint, *words])
    assert complaint in capsys.readouterr().err


def test_a_lag_is_too_far_beyond_a_limit_or_where_nobody_can_tell() -> None:
    queue = QueueId("t", "b", 0)
    words = ["--name-server", "h:1", "--topic", "t", "--group", "g"]
    free = lag_report.parse_arguments(words)
    limited = lag_report.parse_arguments([*words, "--messages-max", "10", "--seconds-max", "5"])
    for messages, seconds, is_far in ((10, 5.0, False), (11, 0.0, True), (1, 6.0, True)):
        lag = Lag({queue: QueueLag(messages, seconds)})
        assert lag_report.is_too_far(lag, limited) is is_far
        assert not lag_report.is_too_far(lag, free)
    assert lag_report.is_too_far(Lag({queue: QueueLag(1, None)}), limited)
