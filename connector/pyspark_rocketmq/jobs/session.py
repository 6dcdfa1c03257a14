"""The session of a job: the format is known also where the package came along as a file."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_rocketmq.source import RocketMQDataSource


def job_session(name: str) -> SparkSession:
    """The session that spark-submit prepared.

    Spark's own lookup gives executors nothing of `--py-files`: a source that came so must be
    registered.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    if spark.conf.get("spark.submit.pyFiles", ""):
        spark.dataSource.register(RocketMQDataSource)
    return spark
