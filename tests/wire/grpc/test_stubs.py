"""The committed descriptors: up to date, whole, and out of the default pool."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from rocketmq_wire import stubs
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.grpc.bulk.mapping import METHODS, PULL_RECORDS_PATH, SEND_RECORDS_STREAM_PATH
from rocketmq_wire.stubs import generate, public


def test_the_committed_descriptors_are_what_the_proto_files_say() -> None:
    pytest.importorskip("grpc_tools")
    assert generate.DESCRIPTOR_SET.read_bytes() == generate.descriptor_set()
    public_set = generate.descriptor_set(generate.PUBLIC_PROTO_FILES)
    assert generate.PUBLIC_DESCRIPTOR_SET.read_bytes() == public_set


def test_our_names_stay_out_of_the_default_pool() -> None:
    stubs.message_class("Queue")
    public.message_class("Message")
    for file in ("rocketmq/bulk/v1/bulk.proto", "apache/rocketmq/v2/public.proto"):
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindFileByName(file)


def test_another_packages_file_of_the_same_name_can_live_in_the_same_process() -> None:
    # In a process of its own: what is added to the default pool stays there.
    script = """
from google.protobuf import descriptor_pool
from rocketmq_wire import stubs
for file in stubs.descriptor_files():
    file.message_type[0].field[0].name = "quite_another"
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
assert stubs.message_class("Status")(code=1).code == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_every_call_of_the_service_has_a_mapping() -> None:
    paths = {f"/{stubs.SERVICE}/{method.name}" for method in stubs.service().methods}
    mapped = [method.path for method in METHODS]
    assert {*mapped, PULL_RECORDS_PATH, SEND_RECORDS_STREAM_PATH} == paths
    assert len(mapped) == len(set(mapped))


def test_a_large_field_stands_behind_all_small_ones() -> None:
    for message in stubs.pool().FindFileByName("rocketmq/bulk/v1/bulk.proto").message_types_by_name:
        fields = stubs.message_class(message).DESCRIPTOR.fields
        large = {field.number for field in fields if field.name in ("sizes", "records", "body")}
        assert large <= {14, 15}
        assert all(field.number < 14 for field in fields if field.number not in large)


def test_the_public_service_has_every_call_and_reads_its_messages() -> None:
    calls = {method.name for method in public.service().methods}
    assert len(calls) == 17
    message = public.message_class("Message")(body=b"x")
    message.system_properties.born_timestamp.seconds = 7
    assert public.parse("Message", message.SerializeToString()) == message
    with pytest.raises(RemoteProtocolError, match="not a Message"):
        public.parse("Message", b"\xff")


def test_bytes_that_are_no_message_are_refused_by_name() -> None:
    with pytest.raises(RemoteProtocolError, match="not a Queue"):
        stubs.parse("Queue", b"\xff")
