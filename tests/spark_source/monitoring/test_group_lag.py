"""How far a group is behind, by what brokers keep of it."""

from __future__ import annotations

import pytest

from pyspark_rocketmq import measure_group_lag
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.monitoring import lag
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId
from support.loader import Loader


def test_a_group_is_behind_by_what_it_has_not_committed():
    with (
        Broker(BrokerConfig(flush="memory", grpc=False)) as broker,
        open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster,
    ):
        loader = Loader(cluster)
        first, second = loader.create("orders", 2)
        loader.put(first, 10)
        loader.put(second, 5)
        cluster.commit("g", {first: 4, second: 5})
        options = {"nameServer": broker.name_server, "subscribe": "orders"}
        lag = measure_group_lag({**options, "group": "g"})
        assert {queue: of.messages for queue, of in lag.queues.items()} == {first: 6, second: 0}
        assert lag.messages == 6
        assert lag.seconds is not None
        assert 0 <= lag.seconds < 60
        nobody = measure_group_lag({**options, "group": "nobody"})
        assert {queue: of.messages for queue, of in nobody.queues.items()} == {first: 10, second: 5}
        with pytest.raises(OptionError, match="group"):
            measure_group_lag(options)


def test_a_lag_is_seen_without_a_configuration_of_logging(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = "query totals: 3 messages behind, unknown seconds behind"
    some = lag.Lag({QueueId("t", "b", 0): lag.QueueLag(3, None)})
    lag._log_lag("totals", some)
    assert text in capsys.readouterr().err
    with caplog.at_level("INFO", "pyspark_rocketmq"):
        lag._log_lag("totals", some)
    assert (caplog.messages, capsys.readouterr().err) == ([text], "")
