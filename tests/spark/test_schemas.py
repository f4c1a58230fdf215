"""Tasks of Spark ask a registry for the schemas that records name."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from tests.broker_process import BrokerProcess
from tests.schema_registry import Fault, RegistryServer
from tests.system.lakehouse.change_stream import Database, write
from tests.system.lakehouse.debezium_records import AvroChanges
from tests.system.lakehouse.topic_site import TopicSite

from millstream.schemas.framing import frame
from millstream.spark import read_table
from millstream.spark.lakehouse.jobs import may_pass
from millstream.spark.lakehouse.load import spark_runner
from millstream.spark.lakehouse.table import parse_table_name

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.slow]

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "note", "type": "string"}, {"name": "id", "type": "long"}],
}


def datum(number: int, schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return frame(number, out.getvalue())


def test_each_worker_asks_once_for_each_id(
    spark: SparkSession, broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    site = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    site.create(4)
    with RegistryServer() as registry:
        old = registry.register(f"{site.topic}-value", OLD)
        new = registry.register("other", NEW)
        for partition in range(4):
            value = {"id": partition, "note": "x"}
            site.write(partition, [datum(old, OLD, value), datum(new, NEW, value)] * 50)
        site = site.using(
            format="avro", registry={"schema.registry.url": registry.url}, driver_bytes=0
        )
        registry.register("first", OLD)
        runner = spark_runner(spark)
        site.load(runner)
        rows = site.rows("_partition", "_offset", "id", "note")
        assert rows == [
            (partition, offset, partition, "x" if offset % 2 else None)
            for partition in range(4)
            for offset in range(100)
        ]
        asked = [path for path in registry.asked if path == f"/schemas/ids/{new}"]
        workers = spark.sparkContext.defaultParallelism
        assert 1 <= len(asked) <= workers + 1  # and the driver
        # A registry that is away while tasks run is told, and passes.
        third = registry.register("third", {**NEW, "doc": "another"})
        site.write(0, [datum(third, NEW, {"id": 9, "note": "y"})])
        registry.fault = Fault(503)
        with pytest.raises(Exception, match="RegistryAwayError") as away:
            site.load(runner)
        assert may_pass(away.value)
        registry.fault = None
        site.load(runner)
        assert len(site.rows("id")) == 401
        assert site.audit().is_clean


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_envelopes_in_avro_become_the_database(
    spark: SparkSession,
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
    kind: str,
) -> None:
    """Executors read the envelopes, through a change of the schema; Spark reads the table."""
    site = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    site.create(4)
    with RegistryServer() as registry:
        database = Database(5, AvroChanges(registry, site.topic))
        site = site.using(
            format="debezium",
            mode="upsert",
            key=("id",),
            table=parse_table_name(f"{kind}:{tmp_path}/users"),
            registry={"schema.registry.url": registry.url},
            driver_bytes=0,
        )
        runner = spark_runner(spark)
        write(site.bootstrap, site.topic, database, 1_500)
        site.load(runner)
        database.change_schema()
        write(site.bootstrap, site.topic, database, 1_500)
        site.load(runner)
        found = site.audit()
    assert found.is_clean
    assert found.keys is not None
    expected = database.as_table()
    assert found.keys.rows == expected.num_rows
    columns = expected.column_names
    rows = read_table(spark, str(site.settings.table)).select(*columns).orderBy("id").toArrow()
    assert rows.cast(expected.schema).equals(expected)
