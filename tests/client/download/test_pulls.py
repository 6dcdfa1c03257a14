"""The prediction of how many offsets a pull covers."""

from __future__ import annotations

from rocketmq_client.download.pulls import PullWidth


def predicted(*widths: int) -> int | None:
    prediction = PullWidth(10_000)
    for width in widths:
        prediction.observe(width)
    return prediction.value


def test_one_short_answer_does_not_shrink_the_width() -> None:
    assert predicted(32, 32, 32, 32, 5, 32, 32) == 32


def test_a_lifted_cap_is_believed_at_once() -> None:
    assert predicted(32, 32, 32, 32, 4_000) == 4_000
