"""JSON with unquoted and object keys, as fastjson writes it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    ObjectKeyed,
    canonical,
    dumps,
    json_object,
    loads,
    member_float,
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(st.characters(codec="utf-8"))
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)

ROUTE_OF_4_9_3 = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a"'
    ',"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    '"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)


def test_strict_json_is_read():
    assert loads('{"a":[1,2.5,true,null,"x"]}') == {"a": [1, 2.5, True, None, "x"]}
    assert loads(b'{"a":"\xc3\xa9"}') == {"a": "é"}
    assert loads(memoryview(b"[1]")) == [1]


def test_unquoted_integer_keys_become_text():
    route = loads(ROUTE_OF_4_9_3)
    strict = ROUTE_OF_4_9_3.replace("{0:", '{"0":').replace(",1:", ',"1":')
    assert route == json.loads(strict)


def test_object_keys_become_their_canonical_text():
    text = '{"offsetTable":{{"topic":"T","queueId":0,"brokerName":"a"}:{"maxOffset":7}},"tps":0.0}'
    key = '{"brokerName":"a","queueId":0,"topic":"T"}'
    assert loads(text) == {"offsetTable": {key: {"maxOffset": 7}}, "tps": 0.0}
    assert loads(key) == {"brokerName": "a", "queueId": 0, "topic": "T"}


def test_several_object_keys_and_blanks_between_are_read():
    assert loads(' { {"q" : 1 } : 2 , {"q":2}:{} , 7 : [ ] } ') == {
        '{"q":1}': 2,
        '{"q":2}': {},
        "7": [],
    }


def test_colons_and_braces_in_text_are_no_keys():
    text = r'{0:"{1:2}","a\"{3:":"}",-4:{}}'
    assert loads(text) == {"0": "{1:2}", 'a"{3:': "}", "-4": {}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{0:1",
        "{0:1,}",
        "{0 1}",
        "{0:}",
        "{:1}",
        "{[1]:1}",
        "{0:1}}",
        "[1,]",
        "[1 2]",
        "{a:1}",
        "{0:nul}",
        '{0:"x}',
        "{0:'x'}",
        "{1.5:1}",
        "{true:1}",
        "{{0:1}:2",
        "0:1",
    ],
)
def test_what_is_no_json_is_refused(text: str):
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        loads(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:", "{{", "[{0:"])
def test_deep_nesting_is_refused_without_exhausting_the_stack(opening: str):
    with pytest.raises(RemoteProtocolError):
        loads(opening * 200_000)


def test_an_endless_number_is_refused():
    with pytest.raises(RemoteProtocolError):
        loads("{0:" + "1" * 10_000 + "}")


def test_bytes_that_are_no_utf8_do_not_raise():
    assert loads(b'{"a":"\xff"}') == {"a": "�"}


def test_integer_keys_are_quoted_only_on_request():
    value = {"b": {0: "x", 10: "y", 2: "z"}, "a": None}
    assert dumps(value) == '{"b":{"0":"x","2":"z","10":"y"}}'
    assert dumps(value, quotes_integer_keys=False) == '{"b":{0:"x",2:"z",10:"y"}}'


def test_object_keyed_maps_are_written_as_fastjson_does():
    table = ObjectKeyed({canonical({"topic": "T", "queueId": 0}): {"minOffset": 1}})
    assert dumps({"offsetTable": table}) == (
        '{"offsetTable":{{"queueId":0,"topic":"T"}:{"minOffset":1}}}'
    )


def test_tuples_are_lists_and_text_is_not_escaped_to_ascii():
    assert dumps({"list": ("é", 1, True, None)}) == '{"list":["é",1,true,null]}'


@given(values)
def test_strict_json_is_read_as_the_standard_library_reads_it(value: object):
    assert loads(json.dumps(value)) == value


@given(st.dictionaries(st.integers(-(10**18), 10**18), values, min_size=1, max_size=5))
def test_unquoted_maps_survive_a_round_trip(table: dict[int, object]):
    text = dumps(
        {"table": {key: [value] for key, value in table.items()}}, quotes_integer_keys=False
    )
    # Inside the table None values of objects vanish, as fastjson leaves them out.
    assert loads(text) == json.loads(dumps({"table": {k: [v] for k, v in table.items()}}))


@given(st.text(alphabet='{}[]:,"0a1-. \\n', max_size=30))
def test_no_text_raises_anything_else(text: str):
    try:
        loads(text)
    except RemoteProtocolError:
        return


def test_a_key_that_is_an_object_has_no_such_keys_itself() -> None:
    # Each level would double the length of the text: 40 levels are a terabyte.
    text = "{" * 40 + '"a":1' + "}:1" * 39 + "}"
    with pytest.raises(RemoteProtocolError):
        loads(text)


@pytest.mark.parametrize("key", ['{"a":{"b":1}}', '{"a":[{}]}', "{1:2}"])
def test_a_key_is_a_flat_object_of_strict_json(key: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        loads(f"{{{key}:1}}")


SLOW = {
    "keys": "{" + "1:1," * 1_000_000 + "1:1}",
    "object keys": "{" + '{"a":1}:1,' * 400_000 + "1:1}",
    "digits": "{" + "1" * 4_000_000,
    "escapes": '{"' + r"\"" * 2_000_000,
    "texts in an object": "{{" + '"a",' * 1_000_000 + "}",
    "objects in no object": '{"a"' * 1_000_000,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_hostile_text_is_refused_in_linear_time(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(RemoteProtocolError):
        loads(text)
    assert time.thread_time() - began < 3


def test_json_that_is_not_strict_has_limits_unless_it_is_trusted() -> None:
    pairs = {str(number): 0 for number in range(500_000)}
    text = json.dumps(pairs).replace('"', "")
    with pytest.raises(RemoteProtocolError, match="that is not strict"):
        loads(text)
    with pytest.raises(RemoteProtocolError, match="more than 65536 keys"):
        loads(text[:1_000_000].rpartition(",")[0] + "}")
    assert loads(text, is_trusted=True) == pairs
    # Strict JSON of any size is parsed in C.
    assert loads(" " * 5_000_000 + "{}") == {}


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999", "-1e300", "NaN", "true", '"5"'])
def test_a_number_that_no_server_has_is_refused(number: str) -> None:
    with pytest.raises(RemoteProtocolError, match="tps is no number, or a huge one"):
        member_float(json_object(b'{"tps":%b}' % number.encode()), "tps")


def test_a_missing_number_is_zero() -> None:
    assert (member_float({}, "tps"), member_float({"tps": 5}, "tps")) == (0.0, 5.0)
