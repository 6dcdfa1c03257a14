"""A plain blocking client of RocketMQ's public gRPC service, for tests of single calls."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import grpc

from rocketmq_wire.grpc.public.messages import put_duration
from rocketmq_wire.stubs import public

TIMEOUT_SECONDS: Final = 20.0
_STREAMED: Final = ("ReceiveMessage", "PullMessage")


def resource(name: str) -> Any:
    return public.message_class("Resource")(name=name)


def outgoing(topic: str, body: bytes = b"body", kind: int = 1, **system: Any) -> Any:
    """A message to send; `system` are system properties of plain types."""
    made = public.message_class("Message")(body=body)
    made.topic.name = topic
    made.system_properties.message_type = kind
    made.system_properties.message_id = system.pop("message_id", "id-1")
    made.system_properties.body_encoding = 1
    for name, value in system.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        else:
            setattr(made.system_properties, name, value)
    return made


# A fixed window: the tests know how much is sent ahead of a reader that does not read.
_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))


class PublicPeer:
    """One client: its own channel, its own id."""

    def __init__(self, endpoints: str, client_id: str = "tester@1", **metadata: str) -> None:
        self._channel: Any = grpc.insecure_channel(endpoints, _WINDOW)
        named = {"x-mq-client-id": client_id, "x-mq-client-version": "5.0.7", **metadata}
        self._metadata = [(name, value) for name, value in named.items() if value]
        self._said: queue.Queue[Any] = queue.Queue()
        self._stream: Any = None

    def __enter__(self) -> PublicPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._said.put(None)
        self._channel.close()

    def begin(self, name: str, **fields: Any) -> Any:
        """A streamed call whose frames, as bytes, the test takes one by one."""
        request = public.message_class(f"{name}Request")(**fields)
        return self._channel.unary_stream(f"/{public.SERVICE}/{name}")(
            bytes(request.SerializeToString()), metadata=self._metadata, timeout=TIMEOUT_SECONDS
        )

    def call(self, name: str, **fields: Any) -> Any:
        """A call's one answer, or all the frames of one that is streamed."""
        if name in _STREAMED:
            return [public.parse(f"{name}Response", frame) for frame in self.begin(name, **fields)]
        request = public.message_class(f"{name}Request")(**fields)
        path = f"/{public.SERVICE}/{name}"
        content = bytes(request.SerializeToString())
        answer = self._channel.unary_unary(path)(
            content, metadata=self._metadata, timeout=TIMEOUT_SECONDS
        )
        return public.parse(f"{name}Response", answer)

    def begin_telemetry(self, settings: Any) -> Any:
        """Open the stream with these settings; returns the command that answers them."""
        self.say(settings=settings)
        self._stream = self._channel.stream_stream(f"/{public.SERVICE}/Telemetry")(
            self._words(), metadata=self._metadata, timeout=TIMEOUT_SECONDS
        )
        return self.hear()

    def say(self, **command: Any) -> None:
        """Send a command by the stream."""
        self._said.put(public.message_class("TelemetryCommand")(**command))

    def hear(self) -> Any:
        """The next command of the broker; None when it has ended the stream."""
        content = next(self._stream, None)
        return None if content is None else public.parse("TelemetryCommand", content)

    def be_consumer(self, group: str, *topics: str, kind: int = 3) -> Any:
        """Open telemetry as a consumer."""
        settings = public.message_class("Settings")(client_type=kind)
        settings.subscription.group.name = group
        for topic in topics:
            entry = settings.subscription.subscriptions.add()
            entry.topic.name, entry.expression.type = topic, 1
            entry.expression.expression = "*"
        return self.begin_telemetry(settings)

    def be_producer(self, *topics: str) -> Any:
        """Open telemetry as a producer."""
        settings = public.message_class("Settings")(client_type=1)
        settings.publishing.topics.extend(resource(topic) for topic in topics)
        return self.begin_telemetry(settings)

    def send(self, *messages: Any) -> Any:
        return self.call("SendMessage", messages=messages)

    def receive(self, group: str, topic: str, **fields: Any) -> tuple[int, list[Any]]:
        """The status of a receive and its messages; it waits for none."""
        request: dict[str, Any] = {"batch_size": 16, **fields}
        invisible = public.message_class("ReceiveMessageRequest")()
        put_duration(invisible.invisible_duration, fields.pop("invisible_ms", 10_000))
        request.pop("invisible_ms", None)
        if not request.get("auto_renew"):
            request["invisible_duration"] = invisible.invisible_duration
        frames = self.call(
            "ReceiveMessage", group=resource(group), message_queue=_queue(topic, -1), **request
        )
        kinds = [frame.WhichOneof("content") for frame in frames]
        assert kinds[0] == "status"
        assert kinds[1:] == [] or kinds[-1] == "delivery_timestamp"
        return frames[0].status.code, [frame.message for frame in frames[1:-1]]

    def _words(self) -> Iterator[bytes]:
        while (command := self._said.get()) is not None:
            yield bytes(command.SerializeToString())


def _queue(topic: str, index: int) -> Any:
    made = public.message_class("MessageQueue")(id=index)
    made.topic.name = topic
    return made


queue_of = _queue
