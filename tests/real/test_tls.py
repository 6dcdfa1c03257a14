"""Real brokers with TLS: our handshakes, their refusals, and Spark through both TLS and keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from real.test_security import read, refused, send_one
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import TlsSettings
from rocketmq_wire.errors import TlsError
from rocketmq_wire.signing import Credentials
from support.certificates import Authority, Pair
from support.loader import Loader
from support.queries import Queries, rows_of
from support.real_cluster import VERSIONS, RealCluster
from support.secured_cluster import (
    ADMIN,
    READABLE,
    READER,
    READERS,
    WRITER,
    EncryptedCluster,
    add_guarded_broker,
)

pytestmark = pytest.mark.short


@pytest.fixture(scope="module", params=VERSIONS)
def encrypted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EncryptedCluster]:
    folder = tmp_path_factory.mktemp("encrypted")
    cluster = EncryptedCluster(str(request.param), folder, Authority(folder / "ca"))
    try:
        cluster.start_name_server()
        add_guarded_broker(cluster)
        yield cluster
    finally:
        cluster.close()


def test_a_real_enforcing_broker_is_written_and_read(encrypted: EncryptedCluster) -> None:
    send_one(encrypted.settings, "orders")
    with open_cluster(encrypted.settings) as cluster:
        assert read(cluster, "orders") == 1


def test_a_real_enforcing_broker_refuses_others_for_the_reasons_we_say(
    encrypted: EncryptedCluster, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue()
    wanted = (
        (replace(encrypted.settings, tls=None), "REQUIRED"),
        (encrypted.encrypted(None), "CLIENT_CERTIFICATE"),
        (encrypted.encrypted(stranger), "CLIENT_CERTIFICATE"),
    )
    for settings, kind in wanted:
        with open_cluster(settings) as cluster, refused(f"ROCKETMQ_TLS.{kind}", TlsError):
            cluster.topics()


def test_a_real_broker_as_it_comes_takes_tls_but_shows_a_strange_certificate(
    broker: RealCluster,
) -> None:
    loose = replace(broker.settings, tls=TlsSettings(verifies=False))
    send_one(loose, "loosely")
    with open_cluster(loose) as cluster:
        assert read(cluster, "loosely") == 1
    strict = replace(broker.settings, tls=TlsSettings())
    with (
        open_cluster(strict) as cluster,
        refused("ROCKETMQ_TLS.CERTIFICATE_UNKNOWN", TlsError),
    ):
        cluster.topics()


def test_a_real_brokers_certificate_is_checked_and_missing_tls_is_reported(
    encrypted: EncryptedCluster,
) -> None:
    expired = encrypted.authority.issue(is_expired=True)
    elsewhere = encrypted.authority.issue("DNS:mq.example")
    wanted = {
        "expired": ("CERTIFICATE_EXPIRED", shown(expired)),
        "elsewhere": ("CERTIFICATE_NAME", shown(elsewhere)),
        "disabled": ("PLAINTEXT_SERVER", {"server.mode": "disabled"}),
    }
    for name, (kind, settings) in wanted.items():
        encrypted.of_broker[name] = settings
        node = encrypted.add_broker(name)
        try:
            with open_cluster(encrypted.settings) as cluster:
                # Every broker has a topic of its own name.
                (queue,) = (one for one in cluster.queues(name) if one.broker == name)
                with refused(f"ROCKETMQ_TLS.{kind}", TlsError):
                    read(cluster, queue.topic)
        finally:
            encrypted.remove(node)


def keyed(encrypted: EncryptedCluster, who: Credentials) -> dict[str, str]:
    keys = {"accessKey": who.access_key, "secretKey": who.secret_key}
    return {**encrypted.options, **keys}


def shown(pair: Pair) -> dict[str, str]:
    return {"server.certPath": pair.cert_file, "server.keyPath": pair.key_file}


def test_spark_reads_and_writes_through_tls_with_the_rights_it_needs_alone(
    encrypted: EncryptedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    with open_cluster(encrypted.settings) as cluster:
        loader = Loader(cluster)
        queues = loader.create(READABLE, 2)
        for queue in (*queues, *loader.create("closed", 1)):
            loader.put(queue, 300)
        options = {**keyed(encrypted, READER), "group": READERS, "startingOffsets": "earliest"}
        frame = spark.read.format("rocketmq").options(**options, subscribe=READABLE).load()
        assert rows_of(frame) == loader.rows(*queues)
        queries = Queries(spark, encrypted.name_server, READABLE, tmp_path)
        assert queries.available(**options).rows == loader.rows(*queues)
        assert cluster.committed_offsets(READERS, queues) == dict.fromkeys(queues, 300)
    rows = spark.range(40).selectExpr("string(id) body")
    writer = rows.write.format("rocketmq").mode("append")
    writer.options(**keyed(encrypted, WRITER), topic=READABLE).save()
    frame = spark.read.format("rocketmq").options(**options, subscribe=READABLE).load()
    assert frame.count() == 640
    # 4.9 asks of batches for a signature alone.
    if not encrypted.is_4:
        with pytest.raises(PySparkException, match=r"ROCKETMQ_AUTH\.NO_PERMISSION"):
            writer.options(**keyed(encrypted, READER), topic=READABLE).save()
    for change, error_class in (
        ({"subscribe": "closed"}, "ROCKETMQ_AUTH.NO_PERMISSION"),
        ({"secretKey": ADMIN.secret_key}, "ROCKETMQ_AUTH.WRONG_KEY"),
        ({"tls": "false"}, "ROCKETMQ_TLS.REQUIRED"),
    ):
        changed = {**options, "subscribe": READABLE, **change}
        if "tls" in change:
            changed = {n: text for n, text in changed.items() if not n.startswith("tls")}
        with pytest.raises(PySparkException, match=error_class):
            rows_of(spark.read.format("rocketmq").options(**changed).load())
