"""The contract of all requests: a request class names its reply type and its access right.

A class also says whether it may be repeated after a broken connection, and which server answers it.
`rocketmq_wire.remoting` and `rocketmq_wire.grpc` turn requests into bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rocketmq_wire.requests.permissions import AccessRight, Permission, Resources, named_by_fields


class Reply:
    """Base of all replies."""

    __slots__ = ()


R = TypeVar("R", bound=Reply, covariant=True)


class Request(Generic[R]):
    """Base of all requests; `R` is the reply's type."""

    __slots__ = ()
    access: ClassVar[AccessRight]
    """Every request class declares its own."""
    repeatable: ClassVar[bool] = True
    to_name_server: ClassVar[bool] = False

    def resources(self) -> Resources:
        """The topics and groups that the access right is about."""
        return named_by_fields(self)

    def permissions(self) -> tuple[Permission, ...]:
        """The permissions that the sender needs, all of them."""
        return self.access.on(self.resources())


@dataclass(frozen=True, slots=True)
class Done(Reply):
    """Success without a value."""

    remark: str = ""


@dataclass(frozen=True, slots=True)
class CountReply(Reply):
    """A number of topics or of waiting requests."""

    count: int
