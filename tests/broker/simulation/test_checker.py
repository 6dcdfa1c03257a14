"""The checker names each kind of broken promise, and accepts what is promised to nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.message_checker import Checker, Kind, Message, Queue, Stored, Violation

QUEUE = Queue("orders", 0, 0)
OTHER = Queue("orders", 0, 1)


def acknowledged(
    checker: Checker,
    body: bytes,
    offset: int | None,
    *,
    delay_ms: int = 0,
    is_half: bool = False,
) -> Message:
    message = checker.send(body, QUEUE, 1_000, delay_ms=delay_ms, is_half=is_half)
    checker.acknowledge(message, offset)
    return message


def read(checker: Checker, *bodies: bytes, start: int = 0, queue: Queue = QUEUE) -> None:
    found = [Stored(start + index, body, 2_000) for index, body in enumerate(bodies)]
    checker.read(queue, start, found)


def lost_at_the_end(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.finish({QUEUE: (0, 0)})


def lost_end(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.read_bounds(QUEUE, 0, checker.end_of(QUEUE), 0, 0)


def lost_before_its_time(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.may_expire(stored_before_ms=1_000)
    checker.read_bounds(QUEUE, 0, 1, 1, 1)


def lost_to_a_group(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.finish_group("g", {QUEUE: (0, 1)}, drained=set())


def lost_transaction(checker: Checker) -> None:
    acknowledged(checker, b"a", None, is_half=True)
    checker.finish({QUEUE: (0, 0)})


def stored_twice(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    read(checker, b"a", b"a")


def popped_after_its_acknowledgement(checker: Checker) -> None:
    message = acknowledged(checker, b"a", 0)
    pop(checker, 1_000)
    checker.acknowledged_pop("g", message, 1_100, crashes=0)
    pop(checker, 9_000)


def pop(checker: Checker, pop_ms: int) -> None:
    checker.pop("g", QUEUE, b"a", offset=0, pop_ms=pop_ms, invisible_ms=1_000)


def popped_while_invisible(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    pop(checker, 1_000)
    pop(checker, 1_999)


def before_the_message_acknowledged_before(checker: Checker) -> None:
    acknowledged(checker, b"a", 1)
    acknowledged(checker, b"b", 0)


def offsets_left_out(checker: Checker) -> None:
    checker.send(b"a", QUEUE, 1_000)
    checker.read(QUEUE, 0, [Stored(1, b"a", 2_000)])


def committed_by_nobody(checker: Checker) -> None:
    checker.commit("g", QUEUE, 3)
    checker.committed("g", QUEUE, 4)


def delayed_message_at_once(checker: Checker) -> None:
    acknowledged(checker, b"a", None, delay_ms=1_001)
    read(checker, b"a")


def half_message_without_commit(checker: Checker) -> None:
    acknowledged(checker, b"a", None, is_half=True)
    read(checker, b"a")


def another_body_than_before(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.send(b"b", QUEUE, 1_000)
    read(checker, b"b")


def body_of_nobody(checker: Checker) -> None:
    read(checker, b"x")


def in_another_queue(checker: Checker) -> None:
    checker.send(b"a", QUEUE, 1_000)
    read(checker, b"a", queue=OTHER)


def refused_message(checker: Checker) -> None:
    checker.refuse(checker.send(b"a", QUEUE, 1_000))
    read(checker, b"a")


def rolled_back_message(checker: Checker) -> None:
    acknowledged(checker, b"a", None, is_half=True).is_withdrawn = True
    read(checker, b"a")


def message_of_a_deleted_topic(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    recreate(checker)
    read(checker, b"a", queue=checker.queue("orders", 0))


def recreate(checker: Checker) -> None:
    checker.deleting_topic("orders")
    checker.deleted_topic("orders")
    checker.created_topic("orders")


@pytest.mark.parametrize(
    ("kind", "break_promise"),
    [
        (Kind.LOST, lost_at_the_end),
        (Kind.LOST, lost_end),
        (Kind.LOST, lost_before_its_time),
        (Kind.LOST, lost_to_a_group),
        (Kind.LOST, lost_transaction),
        (Kind.DUPLICATE, stored_twice),
        (Kind.DUPLICATE, popped_after_its_acknowledgement),
        (Kind.REORDERED, before_the_message_acknowledged_before),
        (Kind.GAP, offsets_left_out),
        (Kind.GAP, committed_by_nobody),
        (Kind.EARLY, delayed_message_at_once),
        (Kind.EARLY, half_message_without_commit),
        (Kind.EARLY, popped_while_invisible),
        (Kind.WRONG_BODY, another_body_than_before),
        (Kind.WRONG_BODY, body_of_nobody),
        (Kind.WRONG_BODY, in_another_queue),
        (Kind.UNEXPECTED, refused_message),
        (Kind.UNEXPECTED, rolled_back_message),
        (Kind.UNEXPECTED, message_of_a_deleted_topic),
    ],
)
def test_a_broken_promise_has_its_kind(kind: Kind, break_promise: Callable[[Checker], None]):
    with pytest.raises(Violation) as caught:
        break_promise(Checker())
    assert caught.value.kind is kind


def sent_twice(checker: Checker) -> None:
    """The first answer was lost: both copies may be there."""
    checker.send(b"a", QUEUE, 1_000)
    acknowledged(checker, b"a", 1)
    read(checker, b"a", b"a")


def unanswered(checker: Checker) -> None:
    checker.send(b"a", QUEUE, 1_000)
    checker.finish({QUEUE: (0, 0)})


def delivered_again_after_a_crash(checker: Checker) -> None:
    acknowledged(checker, b"a", None, delay_ms=1_000)
    checker.crash()
    read(checker, b"a", b"a")


def popped_again_after_a_crash(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    pop(checker, 1_000)
    checker.crash()
    pop(checker, 1_001)


def sent_while_its_topic_was_recreated(checker: Checker) -> None:
    checker.send(b"a", QUEUE, 1_000)
    recreate(checker)
    read(checker, b"a", queue=checker.queue("orders", 0))


def expired(checker: Checker) -> None:
    acknowledged(checker, b"a", 0)
    checker.may_expire(stored_before_ms=1_001)
    checker.read_bounds(QUEUE, 0, 1, 1, 1)
    checker.finish({QUEUE: (1, 1)})


@pytest.mark.parametrize(
    "keep_promise",
    [
        sent_twice,
        unanswered,
        delivered_again_after_a_crash,
        popped_again_after_a_crash,
        sent_while_its_topic_was_recreated,
        expired,
    ],
)
def test_what_nobody_was_promised_is_accepted(keep_promise: Callable[[Checker], None]):
    keep_promise(Checker())
