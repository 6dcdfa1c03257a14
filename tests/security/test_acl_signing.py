"""Signatures against vectors made by RocketMQ's own Java code, and the fields that are signed."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import NotAuthorizedError, broker_error
from rocketmq_wire.signing import (
    Credentials,
    call_signature,
    is_signed_by,
    sign_call,
    sign_request,
    signed_version,
)

KEYS = Credentials("ak", "sk")
VERSION = 401


def test_a_request_is_signed_as_the_java_client_signs_it() -> None:
    fields = sign_request(KEYS, {"topic": "T", "queueId": "1"}, (b"B",))
    assert fields == {
        "topic": "T",
        "queueId": "1",
        "AccessKey": "ak",
        "Signature": "wHB43wuKlxnf/VCyH0RwNHuEPoM=",
    }
    assert is_signed_by("sk", fields, VERSION, b"B")


def test_a_call_is_signed_as_the_official_clients_sign_it() -> None:
    fields = dict(sign_call(KEYS, "20240102T030405Z"))
    assert fields == {
        "x-mq-date-time": "20240102T030405Z",
        "authorization": "MQv2-HMAC-SHA1 Credential=ak, SignedHeaders=x-mq-date-time, "
        "Signature=E446BA40A67910D13B443BD6FE605630D5B93C8E",
    }


def test_a_body_in_parts_is_signed_like_the_whole() -> None:
    whole = sign_request(KEYS, {"a": "1"}, (b"left right",))
    assert sign_request(KEYS, {"a": "1"}, (b"left", b" ", memoryview(b"right"))) == whole


def test_a_token_travels_along_and_is_signed() -> None:
    fields = sign_request(Credentials("ak", "sk", "token"), {"a": "1"})
    assert fields["SecurityToken"] == "token"
    assert is_signed_by("sk", fields, VERSION, b"")
    assert not is_signed_by("sk", {**fields, "SecurityToken": "other"}, VERSION, b"")
    assert dict(sign_call(Credentials("ak", "sk", "token"), "t"))["x-mq-session-token"] == "token"


def test_names_beyond_the_basic_plane_sort_as_java_sorts_them() -> None:
    # In UTF-16 the smiley begins with a surrogate, below the full-width letter.
    forwards = sign_request(KEYS, {"\U0001f600": "x", "\uff21": "y"})
    joined = sign_request(KEYS, {"b": "xy"})
    assert forwards["Signature"] == joined["Signature"]


def test_the_unique_key_mark_is_signed_only_where_every_broker_agrees() -> None:
    fields = sign_request(KEYS, {"topic": "T", "_UNIQUE_KEY_QUERY": "true"})
    version = signed_version(fields, VERSION)
    assert version == 399
    assert is_signed_by("sk", fields, version, b"")
    assert not is_signed_by("sk", fields, VERSION, b"")
    assert signed_version({"topic": "T"}, VERSION) == VERSION


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6),
    st.binary(max_size=20),
    st.binary(min_size=1, max_size=5),
)
def test_what_was_signed_is_accepted_and_nothing_else(
    fields: dict[str, str], body: bytes, added: bytes
) -> None:
    signed = sign_request(KEYS, fields, (body,))
    if "_UNIQUE_KEY_QUERY" not in fields:
        assert is_signed_by("sk", signed, VERSION, body)
    assert not is_signed_by("other", signed, VERSION, body)
    assert not is_signed_by("sk", signed, VERSION, body + added)
    assert not is_signed_by("sk", {**signed, "Signature": ""}, VERSION, body)


def test_a_signature_is_read_in_either_case_of_its_digits() -> None:
    fields = dict(sign_call(KEYS, "t"))
    found = call_signature(fields)
    assert found is not None
    assert found.access_key == "ak"
    assert found.is_by("sk")
    assert not found.is_by("other")
    head, _, digits = fields["authorization"].rpartition("=")
    lower = call_signature({**fields, "authorization": f"{head}={digits.lower()}"})
    assert lower == found
    scoped = fields["authorization"].replace("Credential=ak", "Credential=ak/region/RocketMQ")
    assert call_signature({**fields, "authorization": scoped}) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer abc",
        "MQv2-HMAC-SHA1 Credential=ak",
        "MQv2-HMAC-SHA1 Signature=00",
        "MQv2-HMAC-SHA1 Credential=ak, Signature=xyz",
    ],
)
def test_what_is_no_signature_is_none(text: str) -> None:
    assert call_signature({"authorization": text}) is None


def _thrown(reason: str, method: str, line: int) -> str:
    """A remark of a 4.9 broker, which names the line of its source."""
    method_name = f"org.apache.rocketmq.acl.plain.PlainPermissionManager.{method}"
    where = f"{method_name}(PlainPermissionManager.java:{line})"
    return f"org.apache.rocketmq.acl.common.AclException: {reason}, {where}"


@pytest.mark.parametrize(
    ("code", "remark", "text"),
    [
        (
            1,
            _thrown("No accessKey is configured", "validate", 663),
            "[ROCKETMQ_AUTH.MISSING_KEY] No accessKey is configured. Give the options accessKey",
        ),
        (
            1,
            _thrown("Check signature failed for accessKey=a", "validate", 683),
            "[ROCKETMQ_AUTH.WRONG_KEY] Check signature failed for accessKey=a. Check the options",
        ),
        (16, "username cannot be null.", "[ROCKETMQ_AUTH.MISSING_KEY] username cannot be null. "),
        (16, "check signature failed.", "[ROCKETMQ_AUTH.WRONG_KEY] check signature failed. "),
        (16, "User:Nobody is not found.", "[ROCKETMQ_AUTH.WRONG_KEY] User:Nobody is not found. "),
        (
            1,
            _thrown("No default permission for topic:closed", "checkPerm", 610),
            "[ROCKETMQ_AUTH.NO_PERMISSION] No default permission for topic:closed. Grant",
        ),
        (
            16,
            "the topic[t] sending message is forbidden",
            "[ROCKETMQ_AUTH.NO_PERMISSION] the topic[t] sending message is forbidden. Grant",
        ),
        (16, "no", "[ROCKETMQ_AUTH] no. Check the credentials"),
    ],
)
def test_refusals_of_every_version_are_one_error_that_says_what_to_do(
    code: int, remark: str, text: str
) -> None:
    error = broker_error(code, remark)
    assert isinstance(error, NotAuthorizedError)
    assert error.code == 16, "code 1 would be asked again"
    assert str(error).startswith(text)


def test_other_errors_of_code_1_stay_what_they_are() -> None:
    assert not isinstance(broker_error(1, "java.lang.NullPointerException"), NotAuthorizedError)


def test_credentials_never_show_what_they_hold() -> None:
    secret = Credentials("access", "secret", "token")
    for text in (repr(secret), str(secret), f"{secret}", repr((secret,))):
        assert not any(word in text for word in ("access", "secret", "token"))
    assert pickle.loads(pickle.dumps(secret)) == secret


@pytest.mark.parametrize("bad", ["", "with space", "sch\u00fcssel", "line\nbreak"])
def test_keys_that_no_header_can_carry_are_refused_without_being_shown(bad: str) -> None:
    with pytest.raises(ValueError, match="secret_key must be printable") as refused:
        Credentials("ak", bad)
    assert not bad or bad not in str(refused.value)


def test_an_endless_signature_is_refused_at_once() -> None:
    began = time.process_time()
    for _ in range(20):
        assert call_signature({"authorization": "MQv2-HMAC-SHA1 " + "a" * 100_000}) is None
    assert time.process_time() - began < 1
