"""Turns a subscription into a filter: no filter, tag hashes, or an SQL92 selector.

The consume queue holds the hash of each message's tag, so the store filters by tags there. A
selector needs the properties in the records, so it filters the records after they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.decode.layout import read_layout
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.storage.log.reading import ReadResult
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError, LocalProtocolError, SqlSyntaxError
from rocketmq_wire.filters.sql92 import Selector, parse_selector
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.limits import EXPRESSION_SIZE_MAX, FILTER_KIND_SIZE_MAX
from rocketmq_wire.model import Buffer, Subscription
from rocketmq_wire.records.properties import decode_properties

_SQL_SCAN_MAX: Final = 10_000
"""Records that one pull evaluates at most: some 15 ms of the broker's loop."""
_SQL_SCAN_SIZE_MAX: Final = 64 * 1024 * 1024
_SQL_COST_MAX: Final = 100_000
"""Nodes that one pull evaluates at most: some 15 ms. A long expression examines fewer records."""
_SQL_TOKENS_MAX: Final = 4_096
"""Words, values and operators of an expression, which take some 15 ms to compile."""
_SQL_COST_SIZE: Final = 512
"""Bytes of properties for which a record's nodes count once more: texts are searched."""
_SHORT_EXPRESSION_MAX: Final = 512
"""Characters of an expression for the large cache. A compiled one takes a hundred times as much."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Passes every message if both are None."""

    tag_hashes: npt.NDArray[np.int64] | None = None
    selector: Selector | None = None


EVERYTHING: Final = Filter()


def filter_of(
    subscription: Subscription,
    *,
    allows_sql: bool,
    is_registered: bool = False,
    is_strict: bool = False,
) -> Filter:
    """The filter of a subscription. Refusals: 1, 23, 27.

    As in RocketMQ, an unknown kind and an expression that does not parse filter nothing. They are
    refused if a heartbeat registered the expression (`is_registered`) or a pop names it
    (`is_strict`). Clients learn it by `check_subscription`.
    """
    size = len(subscription.expression)
    if size > EXPRESSION_SIZE_MAX or len(subscription.kind) > FILTER_KIND_SIZE_MAX:
        reason = f"it has {size} characters, over {EXPRESSION_SIZE_MAX}, or its kind has too many"
        raise refusals.subscription_illegal(subscription.expression[:80], reason)
    find = _found_short if size <= _SHORT_EXPRESSION_MAX else _found_long
    found = find(subscription, allows_sql, is_registered, is_strict)
    if isinstance(found, Filter):
        return found
    # Each raise would add its frames to the traceback of the cached error.
    raise found.with_traceback(None)


def check_subscription(subscription: Subscription, *, allows_sql: bool) -> None:
    """Refuse (1, 23) a subscription that no pull can use."""
    filter_of(subscription, allows_sql=allows_sql, is_strict=True)


def _find(
    subscription: Subscription, allows_sql: bool, is_registered: bool, is_strict: bool
) -> Filter | BrokerError:
    """A filter, or the refusal: a client may repeat a refused pull a thousand times a second."""
    try:
        return _filter(subscription, allows_sql, is_registered, is_strict)
    except BrokerError as error:
        return error


_found_short = lru_cache(maxsize=1_024)(_find)
_found_long = lru_cache(maxsize=32)(_find)


def _filter(
    subscription: Subscription, allows_sql: bool, is_registered: bool, is_strict: bool
) -> Filter:
    kind, expression = subscription.kind, subscription.expression
    if kind in ("TAG", ""):
        return _tag_filter(subscription)
    if is_strict and not allows_sql:
        raise refusals.filter_unsupported(kind)
    if is_strict and kind != "SQL92":
        raise refusals.subscription_illegal(kind, "no such kind of filter")
    if not expression and not is_strict:
        raise refusals.subscription_illegal("", "the expression is empty")
    selector = None
    if kind == "SQL92":
        try:
            selector = parse_selector(expression, tokens_max=_SQL_TOKENS_MAX)
        except SqlSyntaxError as error:
            if is_strict:
                raise refusals.subscription_illegal(expression, str(error)) from error
            if is_registered:
                raise refusals.filter_missing(str(error)) from error
        except LocalProtocolError as error:
            raise refusals.subscription_illegal(expression[:80], str(error)) from error
    if not allows_sql:
        raise refusals.filter_unsupported(kind)
    return Filter(selector=selector)


def _tag_filter(subscription: Subscription) -> Filter:
    try:
        expression = TagExpression.parse(subscription.expression)
    except LocalProtocolError as error:
        raise refusals.subscription_illegal(subscription.expression, str(error)) from error
    if expression.matches_all:
        return EVERYTHING
    return Filter(tag_hashes=np.array(expression.hashes, dtype=np.int64))


def selector_scan_max(wanted: Filter) -> int:
    """The records that one request may examine by a selector."""
    if wanted.selector is None:
        return _SQL_SCAN_MAX
    return min(_SQL_SCAN_MAX, max(_SQL_COST_MAX // wanted.selector.node_count, 1))


def read_matching(
    store: Store,
    topic: str,
    queue_index: int,
    start: int,
    wanted: Filter,
    *,
    count_max: int,
    bytes_max: int,
    scan_max: int,
    stops_at_file_end: bool = False,
) -> ReadResult:
    """Read the matching records from an offset on; examines at most `scan_max` entries."""
    selector = wanted.selector
    if selector is None:
        return store.read(
            topic,
            queue_index,
            start,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_hashes=wanted.tag_hashes,
            scan_max=scan_max,
            stops_at_file_end=stops_at_file_end,
        )
    read = store.read(
        topic,
        queue_index,
        start,
        count_max=min(scan_max, selector_scan_max(wanted)),
        bytes_max=_SQL_SCAN_SIZE_MAX,
        stops_at_file_end=stops_at_file_end,
    )
    return read if read.lost else _select(selector, read, start, count_max, bytes_max)


def _select(
    selector: Selector, read: ReadResult, start: int, count_max: int, bytes_max: int
) -> ReadResult:
    """The matching records of a read, up to the limits; at least one."""
    sizes = np.frombuffer(read.sizes, "<i4")
    kept_parts: list[Buffer] = []
    kept_sizes: list[int] = []
    scanned, size, cost = 0, 0, 0
    for part in read.parts:
        data = np.frombuffer(part, np.uint8)
        ends = np.cumsum(sizes[scanned:], dtype=np.int64)
        count = int(np.searchsorted(ends, len(data), side="right"))
        ends = ends[:count]
        part_sizes = sizes[scanned : scanned + count].astype(np.int64)
        layout, damaged = read_layout(data, ends - part_sizes, part_sizes, None)
        is_sound = np.ones(count, np.bool_)
        is_sound[damaged] = False
        texts = zip(layout.text_start.tolist(), layout.text_end.tolist(), strict=True)
        for row in range(count):
            # A damaged record has no properties; a client gets it by a read without a filter.
            begin, end = next(texts) if is_sound[row] else (0, 0)
            cost += selector.node_count * (1 + (end - begin) // _SQL_COST_SIZE)
            if cost > _SQL_COST_MAX and scanned:
                return _selected(kept_parts, kept_sizes, start + scanned)
            if not selector.matches(decode_properties(part[begin:end])):
                scanned += 1
                continue
            record_size = int(part_sizes[row])
            if len(kept_sizes) >= count_max or (kept_sizes and size + record_size > bytes_max):
                return _selected(kept_parts, kept_sizes, start + scanned)
            begin = int(ends[row]) - record_size
            kept_parts.append(part[begin : begin + record_size])
            kept_sizes.append(record_size)
            size += record_size
            scanned += 1
    return _selected(kept_parts, kept_sizes, start + scanned)


def _selected(parts: list[Buffer], sizes: list[int], next_begin: int) -> ReadResult:
    # One buffer: this copy costs less than sending thousands of small parts.
    joined = (memoryview(b"".join(parts)),) if parts else ()
    return ReadResult(joined, np.array(sizes, "<i4").tobytes(), len(sizes), next_begin)
