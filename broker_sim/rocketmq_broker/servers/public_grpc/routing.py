"""Routes and assignments of the public service: a topic's queues and their endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocketmq_broker.engine.core.topics import check_topic_name
from rocketmq_broker.servers.public_grpc.caller import Caller, ok_reply
from rocketmq_broker.servers.public_grpc.lookup import accepted_types
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import BrokerError, PublicRefusal
from rocketmq_wire.model import PERMISSION_READ, PERMISSION_WRITE, TopicConfig, is_system_topic
from rocketmq_wire.requests.groups import QueryAssignment
from rocketmq_wire.requests.pop import ANY_QUEUE
from rocketmq_wire.requests.topics import GetRoute

NONE, READ, WRITE, READ_WRITE = 1, 2, 3, 4
"""`Permission` in the protocol."""
_IPV4, _IPV6, _DOMAIN = 1, 2, 3


def topic_named(resource: Any) -> str:
    """A topic's checked name. Raises PublicRefusal."""
    name: str = resource.name
    try:
        check_topic_name(name)
    except BrokerError as error:
        raise PublicRefusal(PublicCode.ILLEGAL_TOPIC, error.remark) from error
    if is_system_topic(name):
        raise PublicRefusal(PublicCode.ILLEGAL_TOPIC, f"topic {name} is the system's own")
    return name


def group_named(resource: Any) -> str:
    """A consumer group's checked name. Raises PublicRefusal."""
    # The name is part of the group's retry topic.
    try:
        check_topic_name(resource.name)
    except BrokerError as error:
        raise PublicRefusal(PublicCode.ILLEGAL_CONSUMER_GROUP, error.remark) from error
    return str(resource.name)


def lite_refusal(what: str) -> PublicRefusal:
    """The refusal (50100) of a request about lite topics."""
    return PublicRefusal(PublicCode.NOT_IMPLEMENTED, f"{what}: lite topics are not supported")


def require_topic(caller: Caller, name: str) -> TopicConfig:
    """A topic's configuration. Raises PublicRefusal (40402)."""
    config = caller.service.lookup.topic(name)
    if config is None:
        raise PublicRefusal(
            PublicCode.TOPIC_NOT_FOUND,
            f"No topic route info in name server for the topic: {name}. Create the topic first",
        )
    return config


async def query_route(caller: Caller, request: Any) -> Any:
    """The reply to QueryRoute. Raises PublicRefusal."""
    caller.check_right(GetRoute(request.topic.name))
    config = require_topic(caller, topic_named(request.topic))
    reply = ok_reply("QueryRoute")
    types = accepted_types(config)
    for index, permission in enumerate(_permissions(config)):
        queue = reply.message_queues.add(id=index, permission=permission)
        _fill_queue(queue, request, caller)
        queue.accept_message_types.extend(types)
    return reply


async def query_assignment(caller: Caller, request: Any) -> Any:
    """The reply to QueryAssignment: all members of a group share every queue."""
    name = topic_named(request.topic)
    group = group_named(request.group)
    caller.check_right(QueryAssignment(group, name, caller.client_id))
    lookup = caller.service.lookup
    config = require_topic(caller, name)
    if not config.permission & PERMISSION_READ or not config.read_queue_count:
        raise PublicRefusal(PublicCode.FORBIDDEN, f"no queue of topic {name} can be read")
    indices = range(config.read_queue_count) if lookup.group(group).is_fifo else (ANY_QUEUE,)
    reply = ok_reply("QueryAssignment")
    for index in indices:
        queue = reply.assignments.add().message_queue
        queue.id = index
        queue.permission = READ if index < 0 else READ_WRITE
        _fill_queue(queue, request, caller)
        queue.accept_message_types.extend(accepted_types(config))
    return reply


async def refuse_lite_topics(caller: Caller, request: Any) -> Any:
    del caller
    raise lite_refusal(f"SyncLiteSubscription of topic {request.topic.name}")


def _permissions(config: TopicConfig) -> Iterator[int]:
    """The permission of each queue, in the proxy's order."""
    may_read = bool(config.permission & PERMISSION_READ)
    may_write = bool(config.permission & PERMISSION_WRITE)
    reads = config.read_queue_count if may_read else 0
    writes = config.write_queue_count if may_write else 0
    both = min(reads, writes)
    yield from [READ] * (reads - both)
    yield from [WRITE] * (writes - both)
    yield from [READ_WRITE] * both
    if not reads and not writes:
        yield NONE


def _fill_queue(queue: Any, request: Any, caller: Caller) -> None:
    service = caller.service
    queue.topic.CopyFrom(request.topic)
    queue.broker.name = service.lookup.broker_name
    queue.broker.id = 0
    endpoints = queue.broker.endpoints
    if request.endpoints.addresses:
        # The client has reached the broker by this address, so it can do so again.
        endpoints.scheme = request.endpoints.scheme
        endpoints.addresses.append(request.endpoints.addresses[0])
        return
    host = service.lookup.host or caller.peer.local_host or "127.0.0.1"
    endpoints.scheme = scheme_of(host)
    endpoints.addresses.add(host=host, port=service.own_port)


def scheme_of(host: str) -> int:
    if ":" in host:
        return _IPV6
    return _IPV4 if host.replace(".", "").isdecimal() else _DOMAIN
