"""Settings and clusters as RocketMQ's own tools write and read them."""

from __future__ import annotations

from rocketmq_wire.model import (
    ClusterInfo,
)
from rocketmq_wire.remoting.codec import decode_request, encode_reply
from rocketmq_wire.requests.brokers import (
    ChangeBrokerSettings,
    ClusterReply,
    GetCluster,
    SettingsReply,
)
from support.remoting_exchanges import BROKER_A, body_of, header_of


def test_settings_are_lines_of_names_and_values() -> None:
    body = b"#comment\n! another\n\n a = 1 \nb=x=y\nnot a setting\n=c\n"
    assert decode_request(header_of(25, {}), body) == ChangeBrokerSettings({"a": "1", "b": "x=y"})
    request = decode_request(header_of(26, {}), b"")
    assert body_of(request, SettingsReply({"a": "1", "b": ""})) == "a=1\nb=\n"


def test_the_cluster_has_unquoted_keys_for_every_client():
    cluster = ClusterReply(ClusterInfo((BROKER_A,), {"DefaultCluster": ("broker-a",)}))
    (body,) = encode_reply(GetCluster(), cluster).body
    assert body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
