"""Words of SQL92 filters that brokers before 5.1.3 misread."""

from __future__ import annotations

import pickle

import pytest

from rocketmq_wire.errors import FilterWordsError
from rocketmq_wire.filters.sql92_support import V5_1_3, check_words, version_name
from rocketmq_wire.model import Subscription
from rocketmq_wire.remoting.session import ClientSession, ServerSession
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.pop import PopMessages, PopReply, PopStatus
from support.remoting_sessions import QUEUE, asked, completed, receive


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (393, "4.9.0"), (407, "4.9.7"), (409, "4.9.8"), (413, "5.0.0"), (433, "5.1.0"),
        (435, "5.1.1"), (V5_1_3, "5.1.3"), (441, "5.1.4"), (453, "5.2.0"), (479, "5.3.3"),
        (513, "5.5.0"), (232, "4.1.0"), (0, ""),
    ],
)  # fmt: skip
def test_a_version_number_has_a_release_name(version: int, name: str) -> None:
    assert version_name(version) == name


@pytest.mark.parametrize("version", [0, 407, 413, 437, V5_1_3 - 1])
@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a CONTAINS 'x'", ("CONTAINS",)),
        ("n > 1 AND (a not startswith 'x' OR b EndsWith '')", ("STARTSWITH", "ENDSWITH")),
        ("a = 'it''s' OR b CONTAINS 'x' OR c CONTAINS 'y'", ("CONTAINS",)),
    ],
)
def test_old_brokers_do_not_know_some_words(
    version: int, expression: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(FilterWordsError) as caught:
        check_words(Subscription(expression, "SQL92"), "broker-a", version)
    assert caught.value.words == words
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 'CONTAINS'", "a = 'it''s CONTAINS'", "contains_x = 1", "a > 1 -- CONTAINS",
        "a /* b\nENDSWITH 'x' */ > 1",
    ],
)  # fmt: skip
def test_words_in_texts_comments_and_names_are_none(expression: str) -> None:
    check_words(Subscription(expression, "SQL92"), "broker-a", 407)


def test_new_brokers_and_tag_filters_are_accepted() -> None:
    check_words(Subscription("a CONTAINS 'x'", "SQL92"), "broker-a", V5_1_3)
    check_words(Subscription("CONTAINS || b"), "broker-a", 407)


@pytest.mark.parametrize(
    ("request_of", "reply"),
    [
        (
            lambda wanted: PullMessages("g", QUEUE, 0, 32, subscription=wanted),
            PullReply(PullStatus.NO_NEW_MESSAGE, 0, 0, 0),
        ),
        (
            lambda wanted: PopMessages("g", QUEUE, 32, 1_000, subscription=wanted),
            PopReply(PopStatus.FOUND),
        ),
    ],
)
@pytest.mark.parametrize("version", [407, 479])
def test_what_a_broker_answers_that_is_too_old_is_an_error(request_of, reply, version) -> None:
    client, server = ClientSession(), ServerSession(version=version)
    request = request_of(Subscription("region CONTAINS 'north'", "SQL92"))
    receive(server, *client.start(request, now_ms=0, timeout_ms=1_000).parts)
    (question,) = asked(server)
    receive(client, *server.answer(question, reply))
    ((_, result),) = completed(client)
    assert isinstance(result, FilterWordsError if version == 407 else type(reply))
