"""Owns the protobuf descriptors of our services, in a private pool, and the classes made of them.

The default pool is never touched: it refuses a second file with the same names, and the official
RocketMQ client registers its own files there.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer

PACKAGE: Final = "rocketmq.bulk.v1"
SERVICE: Final = f"{PACKAGE}.Bulk"


def descriptor_files() -> tuple[descriptor_pb2.FileDescriptorProto, ...]:
    """Every file of the committed descriptor set, dependencies first."""
    content = resources.files(__name__).joinpath("descriptors.binpb").read_bytes()
    return tuple(descriptor_pb2.FileDescriptorSet.FromString(content).file)


@functools.cache
def pool() -> descriptor_pool.DescriptorPool:
    """The private pool that holds our files and nothing else."""
    private = descriptor_pool.DescriptorPool()
    for file in descriptor_files():
        private.Add(file)
    return private


@functools.cache
def message_class(name: str) -> Any:  # Made at run time: nothing for a type checker to know.
    """The class of a message of our package, by its short name."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse(name: str, content: Buffer) -> Any:
    """A message of our package from its bytes; RemoteProtocolError when they are none."""
    message = message_class(name)()
    try:
        message.ParseFromString(bytes(content))
    except DecodeError as error:
        raise RemoteProtocolError(f"not a {name}: {error}") from error
    return message


def serialize(message: Any) -> bytes:
    """The bytes of a message."""
    return bytes(message.SerializeToString())


def service() -> ServiceDescriptor:
    """The descriptor of the bulk service."""
    return pool().FindServiceByName(SERVICE)
