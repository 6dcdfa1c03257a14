"""Whole DataFrames compared with chispa: names, types, nullability and rows."""

from __future__ import annotations

from collections.abc import Iterable

from chispa import assert_df_equality
from pyspark.sql import DataFrame

MESSAGES = "topic STRING, queueId INT, queueOffset BIGINT, body BINARY"
"""The columns that a test of reads compares."""
TEXTS = "body STRING"


def assert_rows(
    frame: DataFrame, rows: Iterable[tuple[object, ...]], schema: str = MESSAGES
) -> None:
    """Assert that the columns of a schema hold these rows, in any order."""
    wanted = frame.sparkSession.createDataFrame(list(rows), schema)
    assert_df_equality(frame.select(wanted.columns), wanted, ignore_row_order=True)


def assert_bodies(frame: DataFrame, bodies: Iterable[str]) -> None:
    """Assert that the bodies are these texts, in any order."""
    texts = frame.selectExpr("CAST(body AS STRING) AS body")
    assert_rows(texts, [(body,) for body in bodies], TEXTS)
