"""The calls of the bulk service that carry many requests: offsets and committed offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.grpc.bulk import values
from rocketmq_wire.grpc.bulk.methods import AnyRequest, Method, Outcome
from rocketmq_wire.grpc.bulk.values import queue_from_message, queue_to_message
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    GetCommittedOffset,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)
from rocketmq_wire.stubs import message_class, parse, serialize

# The limit of one call, far below the size limit of both sides; clients split longer lists.
ITEMS_MAX: Final = 10_000


def _checked(results: Sequence[Any], requests: Sequence[AnyRequest]) -> Sequence[Any]:
    if len(results) != len(requests):
        raise RemoteProtocolError(f"{len(requests)} requests got {len(results)} answers")
    return results


def _limited(items: Sequence[Any]) -> Sequence[Any]:
    if len(items) > ITEMS_MAX:
        raise RemoteProtocolError(f"a call has {len(items)} items, over {ITEMS_MAX}")
    return items


def _offset_results(outcomes: Sequence[Outcome]) -> list[Any]:
    result = message_class("OffsetResult")
    return [
        result(status=values.status_to_message(outcome))
        if isinstance(outcome, BrokerError)
        else result(value=outcome.value)  # type: ignore[attr-defined]  # An OffsetReply, always.
        for outcome in outcomes
    ]


def _outcome_of_result(result: Any) -> Outcome:
    return values.error_from_status(result.status) or OffsetReply(result.value)


_KIND_MIN, _KIND_MAX, _KIND_BY_TIMESTAMP, _KIND_EARLIEST_STORE_TIME = 1, 2, 3, 4
_KINDS: Final[dict[type[AnyRequest], int]] = {
    GetMinOffset: _KIND_MIN,
    GetMaxOffset: _KIND_MAX,
    GetEarliestStoreTime: _KIND_EARLIEST_STORE_TIME,
}
_REQUESTS_OF_KIND: Final[dict[int, Any]] = {kind: found for found, kind in _KINDS.items()}


def _query_of(request: Any) -> Any:
    query, queue = message_class("OffsetQuery"), queue_to_message(request.queue)
    if isinstance(request, SearchOffset):
        return query(
            queue=queue,
            kind=_KIND_BY_TIMESTAMP,
            timestamp_ms=request.timestamp_ms,
            boundary=values.BOUNDARY_NUMBERS[request.boundary],
        )
    return query(queue=queue, kind=_KINDS[type(request)])


def _request_of_query(query: Any) -> AnyRequest:
    queue = queue_from_message(query.queue)
    if query.kind == _KIND_BY_TIMESTAMP:
        boundary = values.BOUNDARIES.get(query.boundary, Boundary.LOWER)
        return SearchOffset(queue, query.timestamp_ms, boundary)
    request_type = _REQUESTS_OF_KIND.get(query.kind)
    if request_type is None:
        raise RemoteProtocolError(f"there is no offset of kind {query.kind}")
    found: AnyRequest = request_type(queue)
    return found


GET_OFFSETS: Final = Method(
    name="GetOffsets",
    request_types=(*_KINDS, SearchOffset),
    encode_requests=lambda requests: serialize(
        message_class("GetOffsetsRequest")(queries=[_query_of(request) for request in requests])
    ),
    decode_requests=lambda content: tuple(
        _request_of_query(query) for query in _limited(parse("GetOffsetsRequest", content).queries)
    ),
    encode_outcomes=lambda _, outcomes: serialize(
        message_class("GetOffsetsResponse")(results=_offset_results(outcomes))
    ),
    decode_outcomes=lambda requests, content: [
        _outcome_of_result(result)
        for result in _checked(parse("GetOffsetsResponse", content).results, requests)
    ],
    sharing_key=lambda _: None,
)


def _encode_get_committed(requests: Sequence[Any]) -> bytes:
    return serialize(
        message_class("GetCommittedOffsetRequest")(
            group=requests[0].group,
            queues=[queue_to_message(request.queue) for request in requests],
            zero_if_absent=requests[0].zero_if_absent,
        )
    )


def _decode_get_committed(content: bytes) -> tuple[AnyRequest, ...]:
    message = parse("GetCommittedOffsetRequest", content)
    return tuple(
        GetCommittedOffset(message.group, queue_from_message(queue), message.zero_if_absent)
        for queue in _limited(message.queues)
    )


GET_COMMITTED_OFFSET: Final = Method(
    name="GetCommittedOffset",
    request_types=(GetCommittedOffset,),
    encode_requests=_encode_get_committed,
    decode_requests=_decode_get_committed,
    encode_outcomes=lambda _, outcomes: serialize(
        message_class("GetCommittedOffsetResponse")(results=_offset_results(outcomes))
    ),
    decode_outcomes=lambda requests, content: [
        _outcome_of_result(result)
        for result in _checked(parse("GetCommittedOffsetResponse", content).results, requests)
    ],
    sharing_key=lambda request: (request.group, request.zero_if_absent),  # type: ignore[attr-defined]
)


def _encode_commit(requests: Sequence[Any]) -> bytes:
    entry = message_class("QueueOffset")
    return serialize(
        message_class("CommitOffsetRequest")(
            group=requests[0].group,
            offsets=[
                entry(queue=queue_to_message(request.queue), offset=request.offset)
                for request in requests
            ],
        )
    )


def _decode_commit(content: bytes) -> tuple[AnyRequest, ...]:
    message = parse("CommitOffsetRequest", content)
    return tuple(
        CommitOffset(message.group, queue_from_message(entry.queue), entry.offset)
        for entry in _limited(message.offsets)
    )


def _encode_commit_outcomes(_: Sequence[AnyRequest], outcomes: Sequence[Outcome]) -> bytes:
    status = message_class("Status")
    return serialize(
        message_class("CommitOffsetResponse")(
            results=[
                values.status_to_message(outcome) if isinstance(outcome, BrokerError) else status()
                for outcome in outcomes
            ]
        )
    )


COMMIT_OFFSET: Final = Method(
    name="CommitOffset",
    request_types=(CommitOffset,),
    encode_requests=_encode_commit,
    decode_requests=_decode_commit,
    encode_outcomes=_encode_commit_outcomes,
    decode_outcomes=lambda requests, content: [
        values.error_from_status(status) or Done()
        for status in _checked(parse("CommitOffsetResponse", content).results, requests)
    ],
    sharing_key=lambda request: request.group,  # type: ignore[attr-defined]
)
