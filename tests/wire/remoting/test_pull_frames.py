"""Pulls -> frames from templates: the same bytes as the general way makes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.remoting.codec import encode_request
from rocketmq_wire.remoting.frames import encode_frame_head
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.remoting.pulls import PullFrames
from rocketmq_wire.requests.messages import PullMessages

PULL = PullMessages("readers", QueueId("orders", "broker-a", 3), start=0, count_max=32)
offsets = st.integers(0, 2**63 - 1)
opaques = st.integers(0, 2**31 - 1)
# Few of each, so that templates are met again.
pulls = st.builds(
    PullMessages,
    group=st.sampled_from(["readers", 'a"b\\', "1987654321", "Gruppe-ü"]),
    queue=st.builds(
        QueueId,
        st.sampled_from(["orders", "1234567890123456789"]),
        st.sampled_from(["", "broker-a"]),
        st.integers(0, 2),
    ),
    start=offsets,
    count_max=st.sampled_from([1, 32]),
    bytes_max=st.sampled_from([None, 0, 4096]),
    subscription=st.sampled_from(
        [Subscription(), Subscription("a || b"), Subscription("a", "SQL")]
    ),
    subscription_version=st.sampled_from([0, 1]),
    uses_registered_subscription=st.booleans(),
    commit=st.sampled_from([None, 0, 7]),
    suspend_ms=st.sampled_from([None, 0, 15_000]),
)


def general(pull: PullMessages, opaque: int) -> bytes:
    code, fields, _ = encode_request(pull)
    return encode_frame_head(Header(code, opaque=opaque, ext_fields=fields), 0)


@given(st.lists(st.tuples(pulls, opaques), max_size=12))
def test_frames_are_what_the_general_way_makes(asked: list[tuple[PullMessages, int]]) -> None:
    frames = PullFrames(general)
    for pull, opaque in asked:
        assert frames.frame(pull, opaque) == general(pull, opaque)


def test_pulls_that_differ_in_offset_and_number_alone_are_encoded_once() -> None:
    encoded = []

    def encode(pull: PullMessages, opaque: int) -> bytes:
        encoded.append(pull)
        return general(pull, opaque)

    frames = PullFrames(encode)
    for number in range(5):
        frames.frame(replace(PULL, start=32 * number), number)
    assert len(encoded) == 1


def test_templates_beyond_the_limit_are_dropped() -> None:
    frames = PullFrames(general)
    for index in range(1_000):
        pull = replace(PULL, queue=QueueId("orders", "broker-a", index))
        assert frames.frame(pull, index) == general(pull, index)
    assert len(frames._templates) <= 256


@given(pulls, st.lists(opaques, min_size=2, max_size=5, unique=True))
def test_frames_of_several_are_the_single_ones_back_to_back(
    pull: PullMessages, numbers: list[int]
) -> None:
    several = replace(pull, start=pull.start // 2, times=len(numbers))
    frames = PullFrames(general)
    assert frames.frames(several, numbers) == b"".join(
        general(replace(several, start=several.start + index * several.count_max, times=1), number)
        for index, number in enumerate(numbers)
    )
