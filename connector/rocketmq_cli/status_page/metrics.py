"""A sample -> Prometheus' text format, under the names of RocketMQ 5's own metrics: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rocketmq_cli.status_page.samples import Sample
from rocketmq_wire.model import RETRY_PREFIX

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


def render(sample: Sample | None) -> str:
    """Every metric; without a sample only that there is none."""
    lines = list(_up(sample))
    if sample is not None:
        lines += _topics(sample)
        lines += _groups(sample)
    return "\n".join(lines) + "\n"


def _up(sample: Sample | None) -> Iterator[str]:
    yield from _head("rocketmq_exporter_up", "gauge", "1 when the last look found a cluster")
    yield f"rocketmq_exporter_up {int(sample is not None and bool(sample.brokers))}"
    if sample is None:
        return
    yield from _head("rocketmq_broker_up", "gauge", "1 when the broker answered the last look")
    for broker in sample.brokers:
        labels = {"cluster": broker.cluster, "node_id": broker.name, "address": broker.address}
        yield _line("rocketmq_broker_up", labels, int(broker.error is None))


def _topics(sample: Sample) -> Iterator[str]:
    yield from _head("rocketmq_messages_in_total", "counter", "messages stored in a topic")
    for topic in sorted(sample.topics):
        yield _line("rocketmq_messages_in_total", {"topic": topic}, sample.stored(topic))
    yield from _head("rocketmq_topic_messages", "gauge", "messages that a topic holds")
    for topic in sorted(sample.topics):
        yield _line("rocketmq_topic_messages", {"topic": topic}, sample.held(topic))


def _groups(sample: Sample) -> Iterator[str]:
    places = [
        (group, topic)
        for group in sorted(sample.groups)
        for topic in sorted({queue.topic for queue in sample.groups[group]})
    ]
    yield from _head("rocketmq_consumer_lag_messages", "gauge", "messages not committed")
    for group, topic in places:
        yield _line("rocketmq_consumer_lag_messages", _of(group, topic), sample.lag(group, topic))
    yield from _head("rocketmq_messages_out_total", "counter", "messages committed by a group")
    for group, topic in places:
        queues = sample.groups[group]
        done = sum(at.consumer_offset for queue, at in queues.items() if queue.topic == topic)
        yield _line("rocketmq_messages_out_total", _of(group, topic), done)


def _of(group: str, topic: str) -> dict[str, str]:
    is_retry = str(topic.startswith(RETRY_PREFIX)).lower()
    return {"consumer_group": group, "topic": topic, "is_retry": is_retry}


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{text}}} {value}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)
