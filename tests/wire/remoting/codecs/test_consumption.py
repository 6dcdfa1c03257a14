"""What push consumers send beside pulls, as Java clients write it."""

from __future__ import annotations

import json

from rocketmq_wire.model import QueueId
from rocketmq_wire.remoting.codec import decode_request, encode_reply
from rocketmq_wire.requests.groups import LockQueues, QueuesReply
from rocketmq_wire.requests.messages import SendBack
from support.remoting_exchanges import header_of


def test_a_java_lock_is_read_and_answered() -> None:
    body = (
        b'{"clientId":"10.0.0.9@4711","consumerGroup":"g","mqSet":[{"brokerName":"broker-a",'
        b'"queueId":1,"topic":"orders"},{"brokerName":"broker-a","queueId":0,"topic":"orders"}],'
        b'"onlyThisBroker":false}'
    )
    first, second = QueueId("orders", "broker-a", 0), QueueId("orders", "broker-a", 1)
    request = decode_request(header_of(41, {}), body)
    assert request == LockQueues("g", "10.0.0.9@4711", (first, second))
    (answer,) = encode_reply(request, QueuesReply((second,))).body
    assert json.loads(bytes(answer)) == {
        "lockOKMQSet": [{"brokerName": "broker-a", "queueId": 1, "topic": "orders"}]
    }


def test_an_attempt_limit_counts_only_from_clients_that_mean_it() -> None:
    fields = {"offset": "7", "group": "g", "delayLevel": "3", "maxReconsumeTimes": "5"}
    assert decode_request(header_of(36, fields, version=121), b"") == SendBack(
        "g", 7, 3, attempts_max=5
    )
    assert decode_request(header_of(36, fields, version=120), b"") == SendBack("g", 7, 3)
