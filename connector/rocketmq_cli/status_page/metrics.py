"""A sample -> Prometheus' text format, with the names and labels of RocketMQ 5's metrics: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rocketmq_cli.status_page.samples import Sample
from rocketmq_wire.model import RETRY_PREFIX

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NODE_TYPE: Final = "broker"
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class _Place(NamedTuple):
    """What one line counts. A broker that is away loses its own lines, and no counter shrinks."""

    broker: str
    topic: str
    group: str = ""

    def labels(self) -> dict[str, str]:
        labels = {"node_type": _NODE_TYPE, "node_id": self.broker, "topic": self.topic}
        if self.group:
            is_retry = str(self.topic.startswith(RETRY_PREFIX)).lower()
            labels |= {"consumer_group": self.group, "is_retry": is_retry}
        # RocketMQ's own are not looked at.
        return {**labels, "is_system": "false"}


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
        node = {"cluster": broker.cluster, "node_type": _NODE_TYPE, "node_id": broker.name}
        labels = {**node, "address": broker.address}
        yield _line("rocketmq_broker_up", labels, int(broker.error is None))


def _topics(sample: Sample) -> Iterator[str]:
    stored: Counter[_Place] = Counter()
    held: Counter[_Place] = Counter()
    for queues in sample.topics.values():
        for queue, stat in queues.items():
            place = _Place(queue.broker, queue.topic)
            stored[place] += stat.end
            held[place] += stat.end - stat.start
    clusters = _clusters(sample)
    yield from _head("rocketmq_messages_in_total", "counter", "messages stored in a topic")
    yield from _lines("rocketmq_messages_in_total", stored, clusters)
    yield from _head("rocketmq_topic_messages", "gauge", "messages that a topic holds")
    yield from _lines("rocketmq_topic_messages", held, clusters)


def _groups(sample: Sample) -> Iterator[str]:
    lag: Counter[_Place] = Counter()
    done: Counter[_Place] = Counter()
    for group, queues in sample.groups.items():
        for queue, at in queues.items():
            place = _Place(queue.broker, queue.topic, group)
            lag[place] += at.lag
            done[place] += at.consumer_offset
    clusters = _clusters(sample)
    yield from _head("rocketmq_consumer_lag_messages", "gauge", "messages not committed")
    yield from _lines("rocketmq_consumer_lag_messages", lag, clusters)
    yield from _head("rocketmq_messages_out_total", "counter", "messages committed by a group")
    yield from _lines("rocketmq_messages_out_total", done, clusters)


def _clusters(sample: Sample) -> dict[str, str]:
    return {broker.name: broker.cluster for broker in sample.brokers}


def _lines(name: str, values: Mapping[_Place, int], clusters: Mapping[str, str]) -> Iterator[str]:
    for place in sorted(values):
        labels = {"cluster": clusters.get(place.broker, ""), **place.labels()}
        yield _line(name, labels, values[place])


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{text}}} {value}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)
