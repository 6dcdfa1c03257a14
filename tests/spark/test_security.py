"""A guarded, encrypted broker through Spark; and that no key is to be found anywhere afterwards."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings, TlsSettings
from rocketmq_wire.model import Bounds
from rocketmq_wire.signing import Credentials
from support.certificates import Authority
from support.frames import assert_rows
from support.loader import Loader
from support.queries import Batches, rows_of

# Words that stand nowhere by accident.
ACCESS, SECRET, TOKEN = "ak0a6d3f71c2", "sk94be17d05f", "st5d20c8e6b1"
WRONG = "wr7f31aa90de"
ADMIN = ("AdminAdmin", "ad60e2c419b8")
ACL = f"""
accounts:
- accessKey: {ADMIN[0]}
  secretKey: {ADMIN[1]}
  admin: true
- accessKey: {ACCESS}
  secretKey: {SECRET}
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""
KEYS = {"accessKey": ACCESS, "secretKey": SECRET, "securityToken": TOKEN}
BAD_KEYS = {**KEYS, "secretKey": WRONG}
# A user who can write here can write anywhere.
WRITER = {"accessKey": ADMIN[0], "secretKey": ADMIN[1], "securityToken": TOKEN}
_OF_READS = ("subscribe", "startingOffsets")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of its own process that takes TLS alone and asks who reads."""
    folder, pair = tmp_path_factory.mktemp("guarded"), authority.issue()
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACL)
    keys = {"tls_mode": "enforcing", "acl_file": str(accounts)}
    keys |= {"tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file}
    words = [word for name, text in keys.items() for word in ("--set", f"{name}={text}")]
    with BrokerProcess(folder, "--memory", "--verbose", *words) as running:
        yield running


@pytest.fixture
def loader(guarded: BrokerProcess, authority: Authority) -> Iterator[Loader]:
    settings = ConnectionSettings(
        name_servers=(guarded.name_server,),
        credentials=Credentials(*ADMIN),
        tls=TlsSettings(authority.ca_file),
    )
    with open_cluster(settings) as cluster:
        yield Loader(cluster)


@pytest.fixture(params=["nameServer", "endpoints"])
def options(
    request: pytest.FixtureRequest, guarded: BrokerProcess, authority: Authority, topic: str
) -> dict[str, str]:
    """How a query reaches the broker, but for the keys."""
    name = str(request.param)
    address = guarded.name_server if name == "nameServer" else guarded.endpoints
    tls = {"tls": "true", "tls.caFile": authority.ca_file}
    return {name: address, "subscribe": topic, "startingOffsets": "earliest", **tls}


def test_a_query_reads_through_keys_and_tls(
    spark: SparkSession, loader: Loader, topic: str, options: dict[str, str], tmp_path: Path
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 300)
    frame = spark.read.format("rocketmq").options(**options, **KEYS).load()
    assert_rows(frame, loader.rows(*queues))
    batches = Batches()
    query = stream(spark, {**options, **KEYS, "group": f"g-{topic}"}, batches, tmp_path)
    finish(query)
    assert batches.rows == loader.rows(*queues)


def test_a_wrong_key_or_certificate_fails_at_once_and_says_what_to_do(
    spark: SparkSession, loader: Loader, topic: str, options: dict[str, str]
) -> None:
    loader.put(loader.create(topic, 1)[0], 10)
    plain = {name: text for name, text in options.items() if not name.startswith("tls")}
    wanted = (
        ({**options, **BAD_KEYS}, "ROCKETMQ_AUTH.WRONG_KEY"),
        (options, "ROCKETMQ_AUTH.MISSING_KEY"),
        ({**plain, **KEYS}, "ROCKETMQ_TLS.REQUIRED"),
        ({**options, **KEYS, "tls.serverName": "mq.example"}, "ROCKETMQ_TLS.CERTIFICATE_NAME"),
    )
    for given, error_class in wanted:
        began = time.monotonic()
        with pytest.raises(PySparkException, match=error_class):
            rows_of(spark.read.format("rocketmq").options(**given).load())
        # Spark starts a Python process to plan, which takes part of this.
        assert time.monotonic() - began < 20


def test_no_key_shows_in_plans_errors_logs_or_checkpoints(
    spark: SparkSession,
    guarded: BrokerProcess,
    loader: Loader,
    topic: str,
    options: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for logger in ("pyspark_rocketmq", "rocketmq_client", "rocketmq_wire"):
        caplog.set_level("DEBUG", logger)
    loader.put(loader.create(topic, 1)[0], 10)
    texts: list[str] = []
    frame = spark.read.format("rocketmq").options(**options, **KEYS).load()
    texts += plans_of(frame.groupBy("topic").count()), repr(frame), str(frame.schema)
    rows_of(frame)

    batches = Batches()
    query = stream(spark, {**options, **KEYS, "group": f"g-{topic}"}, batches, tmp_path)
    finish(query)
    texts += said(lambda: query.explain(True)), str(query.recentProgress), str(query.status)
    source = spark.readStream.format("rocketmq").options(**options, **KEYS).load()
    texts += plans_of(source), repr(source)

    bad = {**options, **BAD_KEYS}
    texts.append(failure_of(lambda: rows_of(spark.read.format("rocketmq").options(**bad).load())))
    failing = stream(spark, bad, Batches(), tmp_path / "failing")
    texts.append(failure_of(lambda: finish(failing)))
    texts += str(failing.exception()), said(lambda: failing.explain(True))
    broken = Batches(fail_at=0)
    texts.append(
        failure_of(lambda: finish(stream(spark, {**options, **KEYS}, broken, tmp_path / "broken")))
    )

    out = capfd.readouterr()
    texts += out.out, out.err, caplog.text, guarded.log_path.read_text()
    assert "[ROCKETMQ_AUTH.WRONG_KEY]" in "".join(texts)
    assert leaks(texts, tmp_path) == []
    assert any(path.is_file() for path in (tmp_path / "checkpoint").rglob("*"))


@pytest.mark.parametrize("delivery", ["at-least-once", "transactional"])
def test_no_key_shows_where_topics_are_written(
    spark: SparkSession,
    guarded: BrokerProcess,
    loader: Loader,
    topic: str,
    options: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    delivery: str,
) -> None:
    if delivery == "transactional" and "endpoints" in options:
        delivery = "at-least-once"  # Transactions need nameServer.
    for logger in ("pyspark_rocketmq", "rocketmq_client", "rocketmq_wire"):
        caplog.set_level("DEBUG", logger)
    queues = loader.create(topic, 1)
    where = {**writing(options, topic), "delivery": delivery}
    texts = [executions_of(spark)]

    rows = spark.range(10).selectExpr("string(id) body")
    rows.write.format("rocketmq").options(**where, **WRITER).mode("append").save()
    source = tmp_path / "in"
    rows.write.json(str(source))
    bodies = spark.readStream.schema("body STRING").json(str(source))

    def sent(folder: str, keys: dict[str, str]) -> StreamingQuery:
        writer = bodies.writeStream.format("rocketmq").options(**where, **keys)
        writer = writer.option("checkpointLocation", str(tmp_path / folder))
        return writer.trigger(availableNow=True).start()

    query = sent("checkpoint", WRITER)
    finish(query)
    texts += said(lambda: query.explain(True)), str(query.recentProgress), str(query.status)
    held = loader.cluster.bounds(queues)[queues[0]]
    assert isinstance(held, Bounds)
    assert held.end == 20

    wrong = {**WRITER, "secretKey": WRONG}
    writer = rows.write.format("rocketmq").options(**where, **wrong).mode("append")
    texts.append(failure_of(writer.save))
    failing = sent("failing", wrong)
    texts.append(failure_of(lambda: finish(failing)))
    texts += str(failing.exception()), said(lambda: failing.explain(True))

    out = capfd.readouterr()
    texts += out.out, out.err, caplog.text, guarded.log_path.read_text(), executions_of(spark)
    assert "[ROCKETMQ_AUTH.WRONG_KEY]" in "".join(texts)
    assert leaks(texts, tmp_path) == []


def test_no_key_shows_where_sql_holds_the_options(
    spark: SparkSession,
    loader: Loader,
    topic: str,
    options: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    queues = loader.create(topic, 1)
    loader.put(queues[0], 10)
    view, outbox, table = (f"{name}_{topic}".replace("-", "_") for name in ("v", "o", "t"))
    read, write = listed({**options, **KEYS}), listed({**writing(options, topic), **WRITER})
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING rocketmq OPTIONS ({read})")
    spark.sql(f"CREATE TEMPORARY VIEW {outbox} (body BINARY) USING rocketmq OPTIONS ({write})")
    spark.sql(f"CREATE TABLE {table} (body BINARY) USING rocketmq")
    texts: list[str] = []
    try:
        insert = f"INSERT INTO {outbox} VALUES (X'31')"
        insert_with = f"INSERT INTO {table} WITH ({write}) VALUES (X'32')"
        select_with = f"SELECT * FROM {table} WITH ({listed({**options, **KEYS})})"
        stream_with = f"SELECT * FROM STREAM {table} WITH ({listed({**options, **KEYS})})"
        spark.sql(insert)
        spark.sql(insert_with)
        for query in (f"SELECT * FROM {view}", select_with):
            frame = spark.sql(query)
            assert frame.count() == 12
            texts += plans_of(frame), repr(frame)
        texts.append(plans_of(spark.sql(stream_with)))
        for query in (insert, insert_with, select_with, f"SELECT * FROM {view}"):
            for kind in ("", "EXTENDED", "FORMATTED", "COST", "CODEGEN"):
                texts.append(str(spark.sql(f"EXPLAIN {kind} {query}").collect()))
        for name in (view, outbox, table):
            texts.append(str(spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()))
            texts.append(str(spark.sql(f"SHOW TABLE EXTENDED LIKE '{name}'").collect()))
        texts += str(spark.catalog.listTables()), str(spark.sql("SHOW VIEWS").collect())
        texts.append(str(spark.sql(f"SHOW CREATE TABLE {table}").collect()))
        bad = f"SELECT * FROM {table} WITH ({listed({**options, **BAD_KEYS})})"
        texts.append(failure_of(lambda: spark.sql(bad).collect()))
    finally:
        spark.sql(f"DROP TABLE {table}")
        for name in (view, outbox):
            spark.catalog.dropTempView(name)
    out = capfd.readouterr()
    texts += out.out, out.err, executions_of(spark)
    assert "[ROCKETMQ_AUTH.WRONG_KEY]" in "".join(texts)
    assert leaks(texts, tmp_path) == []


def leaks(texts: list[str], folder: Path) -> list[str]:
    """Where one of the keys stands: around it in a text, or which of the folder's files."""
    words = (SECRET, TOKEN, WRONG, ADMIN[1])
    found = [
        f"{index}: {text[max(0, at - 300) : at + 30]}"
        for index, text in enumerate(texts)
        for word in words
        if (at := text.find(word)) >= 0
    ]
    files = [path for path in folder.rglob("*") if path.is_file()]
    keys = [word.encode() for word in words]
    return found + [str(path) for path in files if any(key in path.read_bytes() for key in keys)]


def writing(options: dict[str, str], topic: str) -> dict[str, str]:
    """Of the options of a read those that a write takes, and the topic."""
    kept = {name: text for name, text in options.items() if name not in _OF_READS}
    return {**kept, "topic": topic}


def listed(options: dict[str, str]) -> str:
    """Options as SQL takes them in `OPTIONS` and `WITH`."""
    return ", ".join(f"`{name}`='{text}'" for name, text in options.items())


def executions_of(spark: SparkSession) -> str:
    """What Spark remembers of all that it ran, for its page and its event log."""
    store = spark._jsparkSession.sharedState().statusStore()  # type: ignore[operator]
    listed = store.executionsList()
    executions = [listed.apply(index) for index in range(listed.size())]
    return "".join(
        f"{execution.description()}{execution.details()}{execution.physicalPlanDescription()}"
        for execution in executions
    )


def stream(
    spark: SparkSession, options: dict[str, str], batches: Batches, folder: Path
) -> StreamingQuery:
    frame = spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.foreachBatch(batches).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(120), "the query did not end"
    finally:
        query.stop()


def plans_of(frame: DataFrame) -> str:
    """Every form of a plan that Spark prints."""
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    printed = "".join(said(lambda mode=mode: frame.explain(mode=mode)) for mode in modes)  # type: ignore[misc]
    execution = frame._jdf.queryExecution()  # type: ignore[operator]
    return printed + str(execution.toString()) + str(execution.logical().treeString())


def said(work: Callable[[], object]) -> str:
    """What is printed meanwhile."""
    with redirect_stdout(io.StringIO()) as printed:
        work()
    return printed.getvalue()


def failure_of(work: Callable[[], object]) -> str:
    """The text of the error that this must raise, with all that Spark adds."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its text is what counts
        work()
    error = caught.value
    return f"{error}{error!r}{error.__cause__!r}{getattr(error, 'desc', '')}"


def test_a_leaked_key_is_found_when_there_is_one(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr(f"'{SECRET}' AS leaked")
    assert SECRET in plans_of(frame)
    frame.collect()
    assert SECRET in executions_of(spark)
    (tmp_path / "state").write_text(f"b{WRONG}")
    assert leaks(["", f"a{TOKEN}"], tmp_path) == [f"1: a{TOKEN}", str(tmp_path / "state")]
