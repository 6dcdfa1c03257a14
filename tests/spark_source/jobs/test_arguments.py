"""What the jobs' command lines have in common becomes options of the source."""

from __future__ import annotations

import argparse
import re
from types import ModuleType

import pytest

from pyspark_rocketmq.errors import JobError
from pyspark_rocketmq.jobs.arguments import (
    JobParser,
    add_source_arguments,
    connection_of,
    count,
    interval,
    microseconds_of,
    period,
    positive,
    source_options,
    stream_options,
)
from pyspark_rocketmq.monitoring.lag import Lag, QueueLag
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


def test_a_wrong_command_line_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = JobParser(prog="a_job.py")
    parser.add_argument("--times", type=count)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--times", "0"])
    assert ended.value.code == 2
    message = "a_job.py: argument --times: must be 1 or more, got 0. See a_job.py --help.\n"
    assert capsys.readouterr().err == message
    with pytest.raises(SystemExit):
        parser.parse_args(["--time", "1"])
    assert "unrecognized arguments: --time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 seconds", 10.0),
        (" 1 Minute ", 60.0),
        ("interval 1 day 12 hours", 129_600.0),
        ("1.5 seconds 250 milliseconds", 1.75),
        ("2 weeks", 1_209_600.0),
        ("7 microseconds", 7e-6),
        ("0 seconds", 0.0),
    ],
)
def test_a_duration_is_distinguished_from_garbage(text: str, seconds: float) -> None:
    assert interval(text) == text
    assert microseconds_of(text) == pytest.approx(seconds * 1e6)


@pytest.mark.parametrize(
    "text",
    [
        *("", "garbage", "10", "10s", "seconds", "-1 seconds", "1.5 minutes", "1 month"),
        *("1 secondss", "10 seconds garbage", "interval", "1 minute, 2 seconds"),
        "99999999 weeks",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"duration|hundred years"):
        interval(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_a_number_above_zero_is_wanted(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be above 0"):
        positive(text)


def test_a_window_takes_time() -> None:
    assert period("1 second") == "1 second"
    with pytest.raises(argparse.ArgumentTypeError, match="must be above 0"):
        period("0 seconds")


def test_both_jobs_hand_their_own_arguments_on() -> None:
    copied = topic_to_parquet.parse_arguments(
        [*WHERE, "--output", "o", "--start", "2026-05-01T00:00:00Z", "--end", '{"a":{"0":5}}']
    )
    assert topic_to_parquet.options_of(copied) == {
        "nameServer": "h:1",
        "subscribe": "a,b",
        "startingTimestamp": "1777593600000",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": '{"a":{"0":5}}',
    }
    streamed = stream_to_parquet.parse_arguments(
        [*WHERE, "--output", "o", "--checkpoint", "c", "--max-offsets-per-trigger", "9"]
    )
    assert stream_options(streamed) == {
        "nameServer": "h:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "9",
    }


def test_a_start_by_time_passes_over_queues_that_have_nothing_so_late() -> None:
    def options(*words: str) -> dict[str, str]:
        args = topic_to_parquet.parse_arguments([*WHERE, "--output", "o", *words])
        return topic_to_parquet.options_of(args)

    strategy = "startingOffsetsByTimestampStrategy"
    assert options("--start", "2026-05-01")[strategy] == "latest"
    assert strategy not in options("--end", "2026-05-01")
    # An option can still refuse it.
    asked = ("--option", f"{strategy}=error")
    assert options("--start", "2026-05-01", *asked)[strategy] == "error"


def redriven(*words: str) -> dict[str, str]:
    args = redrive_dead_letters.parse_arguments(["--name-server", "h:1", "--group", "g", *words])
    return redrive_dead_letters.options_of(args)


def test_dead_letters_of_some_tags_have_offsets_of_their_own() -> None:
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
    ):
        assert parquet_to_topic.queue_names(known, brokers) == wanted
    for known, brokers, missing in (
        (columns[:1], frozenset("a"), "no column queueId.* leave out --keep-queues"),
        (columns[:2], frozenset("ab"), "no column brokerName.* on a, b"),
    ):
        with pytest.raises(JobError, match=missing):
            parquet_to_topic.queue_names(known, brokers)


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


def test_what_is_about_sending_goes_to_the_write_of_a_job_that_reads() -> None:
    def parsed(*words: str) -> argparse.Namespace:
        return redrive_dead_letters.parse_arguments(
            ["--name-server", "h:1", "--group", "g", *words]
        )

    # Dead letters whose bodies only fit in when they are compressed came compressed.
    assert parsed().sending == {"compression": "zlib"}
    args = parsed("--option", "Compression=zstd", "--option", "maxBatchBytes=1m")
    assert args.sending == {"Compression": "zstd", "maxBatchBytes": "1m"}
    assert redrive_dead_letters.options_of(args) == redriven()


NEEDED: dict[ModuleType, list[str]] = {
    lag_report: [*WHERE, "--group", "g"],
    parquet_to_topic: [*WHERE, "--input", "i", "--checkpoint", "c"],
    stream_to_parquet: [*WHERE, "--output", "o", "--checkpoint", "c"],
    topic_to_parquet: [*WHERE, "--output", "o"],
    windowed_totals: [*WHERE, "--output", "o", "--checkpoint", "c"],
}


@pytest.mark.parametrize(
    ("job", "words", "complaint"),
    [
        (parquet_to_topic, ["--rate", "0"], "must be above 0"),
        (parquet_to_topic, ["--tasks", "0"], "must be 1 or more"),
        (parquet_to_topic, ["--trigger", "soon"], "--trigger: no duration: 'soon'"),
        (stream_to_parquet, ["--trigger", "soon"], "--trigger: no duration: 'soon'"),
        (stream_to_parquet, ["--max-partitions", "0"], "must be 1 or more"),
        (windowed_totals, ["--trigger", "available"], "no duration: 'available'"),
        (windowed_totals, ["--window", "garbage"], "--window: no duration: 'garbage'"),
        (windowed_totals, ["--window", "0 seconds"], "--window: must be above 0"),
        (windowed_totals, ["--slide", "garbage"], "--slide: no duration"),
        (windowed_totals, ["--slide", "2 minutes"], "is longer than --window '1 minute'"),
        (windowed_totals, ["--watermark", "garbage"], "--watermark: no duration"),
        (windowed_totals, ["--by", "customer"], "or a field as '$.customer', got 'customer'"),
        (windowed_totals, ["--time", "at"], "must be stored, born, or a field"),
        (windowed_totals, ["--sum", "amount"], "must be a field as"),
        (topic_to_parquet, ["--start", "garbage"], "neither offsets nor a time: 'garbage'"),
        (
            topic_to_parquet,
            ["--start", "2026-05-02", "--end", "2026-05-01"],
            "--end is before --start",
        ),
        (lag_report, ["--every", "1", "--times", "0"], "--times: must be 1 or more, got 0"),
        (lag_report, ["--every", "-1", "--times", "2"], "--every: must be above 0, got -1"),
        (lag_report, ["--times", "2"], "--times says how often, and needs --every"),
    ],
)
def test_what_a_job_cannot_do_is_refused_in_one_line(
    job: ModuleType, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.parse_arguments([*NEEDED[job], *words])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert complaint in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("job", NEEDED)
def test_what_a_job_needs_is_enough(job: ModuleType) -> None:
    job.parse_arguments(NEEDED[job])


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
