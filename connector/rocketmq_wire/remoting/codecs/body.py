"""Members of JSON bodies <-> the attributes of requests and replies.

The functions make the entries of `members`: the member's name, then the attribute, if it has
another name. Members are read in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    ObjectKeyed,
    as_object,
    json_object,
    member_bool,
    member_float,
    member_int,
    member_object,
    member_objects,
    member_text,
    member_texts,
)
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.limits import CALL_ITEMS_MAX
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.remoting.codecs.layouts import Content, Field, field

JsonObject = Mapping[str, Json]
Member = Field[JsonObject, Json]
T = TypeVar("T")
V = TypeVar("V")


class Object(Generic[T]):
    """A value as a JSON object."""

    def __init__(self, value: Callable[..., T], *fields: Member) -> None:
        self._value = value
        self._fields = fields

    def read(self, source: JsonObject) -> T:
        return self._value(**_read(self._fields, source))

    def read_table(self, owner: JsonObject, name: str) -> dict[str, T]:
        """The values of a member that is a map."""
        found = member_object(owner, name)
        return {key: self.read(as_object(value, name)) for key, value in found.items()}

    def write(self, value: T) -> dict[str, Json]:
        return _write(self._fields, value)


def members(*fields: Member) -> Content:
    """A body that is a JSON object."""
    return Content(
        lambda record: (json_bytes(_write(fields, record)),),
        lambda content: _read(fields, json_object(content)),
    )


def whole(
    attribute: str,
    read: Callable[[dict[str, Json]], V],
    write: Callable[[V], Json],
    *,
    quotes_integer_keys: bool = True,
) -> Content:
    """A body whose JSON object is one attribute."""
    return Content(
        lambda record: (
            json_bytes(write(getattr(record, attribute)), quotes_integer_keys=quotes_integer_keys),
        ),
        lambda content: {attribute: read(json_object(content))},
    )


def _read(fields: Iterable[Member], source: JsonObject) -> dict[str, object]:
    return {each.attribute: each.read(source) for each in fields if each.read is not None}


def _write(fields: Iterable[Member], record: object) -> dict[str, Json]:
    target: dict[str, Json] = {}
    for each in fields:
        each.write(target, record)
    return target


def json_bytes(value: Json, *, quotes_integer_keys: bool = True) -> bytes:
    return fastjson.dumps(value, quotes_integer_keys=quotes_integer_keys).encode("utf-8", "replace")


# --- members ---------------------------------------------------------------------------------


def member(
    name: str,
    attribute: str,
    read: Callable[[JsonObject, str], V],
    write: Callable[[V], Json] = lambda value: value,
) -> Member:
    """An attribute; `read` gets the owner and the name."""
    return field(name, attribute, lambda owner: read(owner, name), write)


def text(name: str, attribute: str = "", default: str | None = None) -> Member:
    return member(name, attribute, lambda owner, name: member_text(owner, name, default))


def integer(name: str, attribute: str = "", default: int | None = None) -> Member:
    return member(name, attribute, lambda owner, name: member_int(owner, name, default))


def boolean(name: str, attribute: str, default: bool = False) -> Member:
    return member(name, attribute, lambda owner, name: member_bool(owner, name, default))


def number(name: str, attribute: str) -> Member:
    """A float; 0 if absent."""
    return member(name, attribute, member_float, float)


def texts(name: str, attribute: str) -> Member:
    """A list of texts, sorted when read."""
    return member(name, attribute, lambda owner, name: tuple(sorted(member_texts(owner, name))))


def texts_by_name(name: str, attribute: str) -> Member:
    """A map of texts."""

    def read(owner: JsonObject, name: str) -> dict[str, str]:
        found = member_object(owner, name)
        return {key: member_text(found, key) for key in found}

    return member(name, attribute, read, dict)


def objects(name: str, attribute: str, each: Object[V]) -> Member:
    def read(owner: JsonObject, name: str) -> tuple[V, ...]:
        return tuple([each.read(item) for item in member_objects(owner, name)])

    return member(name, attribute, read, lambda values: [each.write(value) for value in values])


def table(name: str, attribute: str, each: Object[V]) -> Member:
    """A map of objects by name."""

    def write(values: Mapping[str, V]) -> Json:
        return {key: each.write(value) for key, value in values.items()}

    return member(name, attribute, each.read_table, write)


def by_queue(name: str, attribute: str, each: Object[V]) -> Member:
    """A map of objects by queue."""

    def read(owner: JsonObject, name: str) -> dict[QueueId, V]:
        found = each.read_table(owner, name)
        return {queue_of_key(key): value for key, value in found.items()}

    return member(name, attribute, read, lambda values: keyed_by_queue(values, each.write))


def offsets(name: str, attribute: str) -> Member:
    """A map of offsets by queue."""
    return member(name, attribute, offsets_from_json, offsets_json)


def queues(name: str, attribute: str) -> Member:
    """A list of queues, sorted when read."""
    return member(
        name,
        attribute,
        lambda owner, name: tuple(sorted(map(QUEUE.read, limited_objects(owner, name)))),
        lambda values: [QUEUE.write(queue) for queue in values],
    )


def limited_objects(owner: JsonObject, name: str) -> list[dict[str, Json]]:
    """The items of a request's list. Raises RemoteProtocolError if there are too many."""
    items = member_objects(owner, name)
    if len(items) > CALL_ITEMS_MAX:
        raise RemoteProtocolError(f"{name} has {len(items)} items, over {CALL_ITEMS_MAX}")
    return items


# --- values that many bodies share -----------------------------------------------------------

QUEUE: Final = Object(
    QueueId, text("topic"), text("brokerName", "broker"), integer("queueId", "index")
)
NO_VERSION: Final[Json] = {"counter": 0, "stateVersion": 0, "timestamp": 0}


def queue_key(queue: QueueId) -> str:
    """A queue as the key of a JSON map."""
    return fastjson.canonical(QUEUE.write(queue))


def queue_of_key(key: str) -> QueueId:
    """The queue that is the key of a JSON map: an object, or text that holds one."""
    return QUEUE.read(as_object(fastjson.loads(key), "a queue"))


def keyed_by_queue(values: Mapping[QueueId, V], write: Callable[[V], Json]) -> ObjectKeyed:
    return ObjectKeyed({queue_key(queue): write(value) for queue, value in values.items()})


def offsets_json(values: Mapping[QueueId, int]) -> ObjectKeyed:
    return keyed_by_queue(values, int)


def offsets_from_json(owner: JsonObject, name: str) -> dict[QueueId, int]:
    found = member_object(owner, name)
    return {queue_of_key(key): member_int(found, key) for key in found}


def subscription_json(topic: str, expression: str, kind: str, version: int) -> Json:
    """A subscription as heartbeats and running infos carry it."""
    tags = TagExpression.parse(expression) if kind == "TAG" else TagExpression()
    return {
        "classFilterMode": False,
        "codeSet": list(tags.hashes),
        "expressionType": kind,
        "subString": expression,
        "subVersion": version,
        "tagsSet": sorted(tags.tags),
        "topic": topic,
    }


def subscriptions(
    name: str,
    attribute: str,
    version_of: Callable[[JsonObject], int] = lambda entry: member_int(entry, "subVersion", 0),
) -> Member:
    """A list of (topic, expression, kind, version)."""

    def read_one(entry: JsonObject) -> tuple[str, str, str, int]:
        topic, selected = member_text(entry, "topic"), subscription_from_json(entry)
        return topic, selected.expression, selected.kind, version_of(entry)

    return member(
        name,
        attribute,
        lambda owner, name: tuple(map(read_one, member_objects(owner, name))),
        lambda found: [subscription_json(*entry) for entry in found],
    )


def subscription_from_json(subscription: JsonObject) -> Subscription:
    return Subscription(
        member_text(subscription, "subString", "*"),
        member_text(subscription, "expressionType", "TAG"),
    )
