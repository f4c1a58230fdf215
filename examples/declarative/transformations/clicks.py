"""A Declarative Pipeline over a topic: rows as they come, and a table computed from them."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = os.environ.get("MILLSTREAM_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
TOPIC = os.environ.get("CLICKS_TOPIC", "clicks")


def active() -> SparkSession:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    return spark


@dp.table
def clicks() -> DataFrame:
    """Every record of the topic, once."""
    reader = active().readStream.format("millstream").option("startingOffsets", "earliest")
    rows = reader.option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", TOPIC).load()
    return rows.selectExpr("partition", "offset", "timestamp", "cast(value as string) as line")


@dp.materialized_view
def clicks_per_partition() -> DataFrame:
    """How many records each partition has."""
    return active().table("clicks").groupBy("partition").count()
