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
from rocketmq_wire.errors import LocalProtocolError, SqlSyntaxError
from rocketmq_wire.filters.sql92 import Selector, parse_selector
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import Buffer, Subscription
from rocketmq_wire.records.properties import decode_properties

_SQL_SCAN_MAX: Final = 20_000
"""Records that one pull evaluates at most: some 100 ms of the broker's loop."""
_SQL_SCAN_SIZE_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Filter:
    """Passes every message if both are None."""

    tag_hashes: npt.NDArray[np.int64] | None = None
    selector: Selector | None = None


EVERYTHING: Final = Filter()


@lru_cache(maxsize=1_024)
def filter_of(subscription: Subscription, *, allows_sql: bool, is_registered: bool) -> Filter:
    """The filter of a subscription. Refusals: 1, 23, 27.

    As in RocketMQ, an unknown kind and an expression that does not parse filter nothing, unless a
    heartbeat registered the expression: that is refused. Clients learn it by `check_subscription`.
    """
    if subscription.kind in ("TAG", ""):
        return _tag_filter(subscription)
    if not subscription.expression:
        raise refusals.subscription_illegal("", "the expression is empty")
    selector = None
    if subscription.kind == "SQL92":
        try:
            selector = parse_selector(subscription.expression)
        except SqlSyntaxError as error:
            if is_registered:
                raise refusals.filter_missing(str(error)) from error
    if not allows_sql:
        raise refusals.filter_unsupported(subscription.kind)
    return Filter(selector=selector)


def check_subscription(subscription: Subscription, *, allows_sql: bool) -> None:
    """Refuse (1, 23) a subscription that no pull can use."""
    if subscription.kind in ("TAG", ""):
        _tag_filter(subscription)
        return
    if not allows_sql:
        raise refusals.filter_unsupported(subscription.kind)
    if subscription.kind != "SQL92":
        raise refusals.subscription_illegal(subscription.kind, "no such kind of filter")
    try:
        parse_selector(subscription.expression)
    except SqlSyntaxError as error:
        raise refusals.subscription_illegal(subscription.expression, str(error)) from error


def _tag_filter(subscription: Subscription) -> Filter:
    try:
        expression = TagExpression.parse(subscription.expression)
    except LocalProtocolError as error:
        raise refusals.subscription_illegal(subscription.expression, str(error)) from error
    if expression.matches_all:
        return EVERYTHING
    return Filter(tag_hashes=np.array(expression.hashes, dtype=np.int64))


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
        count_max=min(scan_max, _SQL_SCAN_MAX),
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
    scanned, size = 0, 0
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
            text = slice(*next(texts)) if is_sound[row] else slice(0)
            if not selector.matches(decode_properties(part[text])):
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
