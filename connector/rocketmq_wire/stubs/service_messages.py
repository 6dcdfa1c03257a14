"""One committed descriptor set -> its service and message classes, in a private pool.

The default pool is never touched: it refuses a second file with the same names, and the official
RocketMQ client registers its own files there.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer


class ServiceMessages:
    """A service's package, loaded at its first use."""

    def __init__(self, file_name: str, service_name: str) -> None:
        self._file_name = file_name
        self._service_name = service_name
        self._package = service_name.rpartition(".")[0]
        self.pool = functools.cache(self._make_pool)
        self.message_class = functools.cache(self._make_class)

    def descriptor_files(self) -> tuple[descriptor_pb2.FileDescriptorProto, ...]:
        """Every file of the committed descriptor set, dependencies first."""
        content = resources.files(__package__).joinpath(self._file_name).read_bytes()
        return tuple(descriptor_pb2.FileDescriptorSet.FromString(content).file)

    def service(self) -> ServiceDescriptor:
        return self.pool().FindServiceByName(self._service_name)

    def parse(self, name: str, content: Buffer) -> Any:
        """A message of the package from its bytes; RemoteProtocolError if they are none."""
        message = self.message_class(name)()
        try:
            message.ParseFromString(bytes(content))
        except DecodeError as error:
            raise RemoteProtocolError(f"not a {name}: {error}") from error
        return message

    def _make_pool(self) -> descriptor_pool.DescriptorPool:
        """The private pool that holds these files and nothing else."""
        private = descriptor_pool.DescriptorPool()
        for file in self.descriptor_files():
            private.Add(file)
        return private

    def _make_class(self, name: str) -> Any:  # Made at run time: nothing for a type checker.
        found = self.pool().FindMessageTypeByName(f"{self._package}.{name}")
        return message_factory.GetMessageClass(found)
