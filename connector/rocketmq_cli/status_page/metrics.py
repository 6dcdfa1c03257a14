"""Renders a sample in Prometheus' text format, with RocketMQ 5's metric names and labels: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rocketmq_cli.status_page.history import Sample
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NODE_TYPE: Final = "broker"
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class _Key(NamedTuple):
    """The subject of a line. It has a broker, so that a counter cannot shrink if one is down."""

    broker: str
    topic: str
    group: str = ""

    def labels(self) -> dict[str, str]:
        labels = {"node_type": _NODE_TYPE, "node_id": self.broker, "topic": self.topic}
        if self.group:
            is_retry = str(self.topic.startswith(RETRY_PREFIX)).lower()
            labels |= {"consumer_group": self.group, "is_retry": is_retry}
        # Samples contain no topics and groups of RocketMQ itself.
        return {**labels, "is_system": "false"}


def render(sample: Sample | None) -> str:
    """Render every metric; without a sample only `rocketmq_exporter_up 0`."""
    lines = _head("rocketmq_exporter_up", "gauge", "1 if the last sample found a cluster")
    lines.append(f"rocketmq_exporter_up {int(sample is not None and bool(sample.brokers))}")
    if sample is None:
        return "\n".join(lines) + "\n"
    lines += _head("rocketmq_broker_up", "gauge", "1 if the broker answered the last sample")
    for broker in sample.brokers:
        node = {"cluster": broker.cluster, "node_type": _NODE_TYPE, "node_id": broker.name}
        labels = {**node, "address": broker.address}
        lines.append(_line("rocketmq_broker_up", labels, int(broker.error is None)))
    clusters = {broker.name: broker.cluster for broker in sample.brokers}
    for name, kind, text, values in _counts(sample):
        lines += _head(name, kind, text)
        for key in sorted(values):
            labels = {"cluster": clusters.get(key.broker, ""), **key.labels()}
            lines.append(_line(name, labels, values[key]))
    return "\n".join(lines) + "\n"


def _counts(sample: Sample) -> Iterator[tuple[str, str, str, Counter[_Key]]]:
    """Name, kind, help and values of each metric of topics and groups."""
    stored: Counter[_Key] = Counter()
    held: Counter[_Key] = Counter()
    lag: Counter[_Key] = Counter()
    done: Counter[_Key] = Counter()
    dead: Counter[_Key] = Counter()
    age_ms: Counter[_Key] = Counter()
    for queues in sample.topics.values():
        for queue, stat in queues.items():
            key = _Key(queue.broker, queue.topic)
            stored[key] += stat.end
            held[key] += stat.end - stat.start
            if queue.topic.startswith(DEAD_LETTER_PREFIX):
                dead[key._replace(group=queue.topic.removeprefix(DEAD_LETTER_PREFIX))] += stat.end
    for group, offsets in sample.groups.items():
        for queue, at in offsets.items():
            key = _Key(queue.broker, queue.topic, group)
            lag[key] += at.lag
            done[key] += at.consumer_offset
            age_s = sample.queue_age(group, queue) if at.lag else 0.0
            if age_s is not None:
                age_ms[key] = max(age_ms[key], round(age_s * 1_000))
    yield "rocketmq_messages_in_total", "counter", "messages stored in a topic", stored
    yield "rocketmq_topic_messages", "gauge", "messages that a topic holds", held
    yield "rocketmq_consumer_lag_messages", "gauge", "messages not committed", lag
    yield "rocketmq_messages_out_total", "counter", "messages committed by a group", done
    text = "age of the oldest message not committed, in milliseconds"
    yield "rocketmq_consumer_lag_latency", "gauge", text, age_ms
    text = "messages stored in a group's dead-letter topic"
    yield "rocketmq_send_to_dlq_messages_total", "counter", text, dead


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{text}}} {value}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(sign, sign) for sign in text)
