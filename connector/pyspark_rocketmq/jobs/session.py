"""The session of a job; registers the source if the package came by `--py-files`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_rocketmq.source import RocketMQDataSource


def job_session(name: str) -> SparkSession:
    """The session that spark-submit prepared.

    Spark's own lookup does not search `--py-files`: such a source must be registered.
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    if spark.conf.get("spark.submit.pyFiles", ""):
        spark.dataSource.register(RocketMQDataSource)
    return spark
