"""Loads and queries on a Spark standalone cluster: driver and workers are processes that share no
directory but Python's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.broker_process import BrokerProcess
from tests.iceberg_rest import RestCatalogMissingError, RestCatalogServer
from tests.object_store import S3Server
from tests.packed_python import bare_python, pack
from tests.spark_cluster import SparkCluster, can_hide
from tests.system.lakehouse.topic_site import TopicSite

from millstream.client import Admin, Consumer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.table import parse_table_name

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

PADDING = "x" * 5_000
COUNT = 4_000
"""Records of so many bytes are more than a task's least."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the driver's machine, which is empty for the workers."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[SparkCluster]:
    hidden = [lake] if can_hide() else []
    with SparkCluster(tmp_path_factory.mktemp("cluster"), hidden=hidden) as made:
        yield made


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(4)
    return made


def write(site: TopicSite, count: int) -> None:
    values = [json.dumps({"n": n, "text": PADDING}).encode() for n in range(count)]
    for partition in range(4):
        site.write(partition, values[partition::4])


def load(
    site: TopicSite, cluster: SparkCluster, table: str, options: dict[str, str], *more: str
) -> list[str]:
    given = [f"--storage-option={name}={text}" for name, text in options.items()]
    return [
        *("load", site.topic, "--to", table, "--format", "json", "-b", site.bootstrap),
        *("--master", cluster.master, "--driver-size", "0", *given, *more),
    ]


def in_delta(site: TopicSite, server: S3Server) -> list[int]:
    """Read the table with another program, after an audit."""
    name = f"delta:s3://lake/{site.topic}"
    at = site.using(table=parse_table_name(name, storage_options=server.options), format="json")
    assert at.audit().is_clean
    stored = DeltaTable(f"s3://lake/{site.topic}", storage_options=server.options)
    return sorted(stored.to_pyarrow_table(columns=["n"])["n"].to_pylist())


def test_two_workers_load_into_a_store(
    site: TopicSite, cluster: SparkCluster, server: S3Server
) -> None:
    write(site, COUNT)
    name = f"delta:s3://lake/{site.topic}"
    done = cluster.run(*load(site, cluster, name, server.options, "--json"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["rows"] == COUNT
    assert all(map(cluster.tasks, cluster.workers)), "each worker has had a task"
    assert in_delta(site, server) == list(range(COUNT))


def test_files_on_the_disks_of_workers_are_in_no_commit(
    site: TopicSite, cluster: SparkCluster, lake: Path
) -> None:
    if not can_hide():
        pytest.skip("workers see the driver's directories here")
    write(site, 100)
    site = site.using(table=parse_table_name(f"delta:{lake / 'clicks'}"), format="json")
    done = cluster.run(*load(site, cluster, str(site.settings.table), {}))
    assert done.returncode == 1
    assert "do driver and executors see the same directory?" in done.stderr
    assert list(site.table.files()) == []


def test_two_workers_load_into_a_table_of_a_rest_catalogue(
    site: TopicSite, cluster: SparkCluster, server: S3Server, tmp_path: Path
) -> None:
    write(site, COUNT)
    table = f"web.{site.topic.replace('-', '_')}"
    try:
        with RestCatalogServer(tmp_path, server) as rest:
            options = rest.options
            done = cluster.run(*load(site, cluster, f"iceberg:prod.{table}", options, "--json"))
            assert done.returncode == 0, done.stderr[-3000:]
            assert json.loads(done.stdout)["rows"] == COUNT
            stored = load_catalog("prod", **options).load_table(table)
            assert stored.location().startswith("s3://lake/warehouse/")
            rows = stored.scan(selected_fields=("n",)).to_arrow()
            assert sorted(rows["n"].to_pylist()) == list(range(COUNT))
    except RestCatalogMissingError as error:
        pytest.skip(str(error))


def test_a_worker_that_is_killed_costs_no_record(
    site: TopicSite, cluster: SparkCluster, server: S3Server
) -> None:
    count = 16_000
    write(site, count)
    name = f"delta:s3://lake/{site.topic}"
    words = load(site, cluster, name, server.options, "--batch-size", "16MB")
    with cluster.driver(*words) as process:
        try:
            assert process.stderr is not None
            told = []
            for line in process.stderr:
                told.append(line)
                if line.startswith("batch 1"):
                    cluster.workers[0].kill()
            out, _ = process.communicate(timeout=240)
        finally:
            process.kill()
            cluster.start(cluster.workers[0])
    assert process.returncode == 0, told[-30:]
    assert out.startswith(f"{count:,} rows"), out
    assert any("executor" in line.lower() for line in told), "Spark has lost an executor"
    assert in_delta(site, server) == list(range(count))


JOB = """
import json, os
from pyspark.sql import SparkSession
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import parse_table_name

bootstrap, topic, options = json.loads(os.environ["JOB"])
spark = SparkSession.builder.getOrCreate()
source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
run_load(
    LoadSettings(
        source=source,
        table=parse_table_name(f"delta:s3://lake/{topic}", storage_options=options),
        format="json",
        driver_bytes=0,
    ),
    make_session=lambda: spark,
    give_back=lambda session: None,
)
rows = spark.read.format("millstream").options(**source).load()
print("rows", rows.selectExpr("count(distinct partition, offset)").collect()[0][0])
spark.stop()
"""


def test_a_job_whose_python_has_what_is_packed_for_it_and_nothing_else(
    site: TopicSite, cluster: SparkCluster, server: S3Server, tmp_path: Path
) -> None:
    """What docs/spark-clusters.md says of spark-submit."""
    python = bare_python()
    missing = subprocess.run([python, "-c", "import pyarrow"], capture_output=True, check=False)
    if not missing.returncode:
        pytest.skip("the Python that the environment was made with has packages of its own")
    write(site, COUNT)
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = cluster.submit(
        job,
        archive=pack(tmp_path),
        python=python,
        variables={"JOB": json.dumps([site.bootstrap, site.topic, server.options])},
    )
    assert done.returncode == 0, done.stdout[-3000:]  # where spark-submit has Python's errors too
    assert f"rows {COUNT}" in done.stdout
    assert in_delta(site, server) == list(range(COUNT))


COPY = """
import sys
from millstream.spark import session

bootstrap, source, target, again, checkpoint, master = sys.argv[1:]
spark = session("copy", master=master, settings={"spark.sql.shuffle.partitions": "2"})
rows = spark.read.format("millstream").option("kafka.bootstrap.servers", bootstrap)
rows = rows.option("subscribe", source).load()
print("batch", rows.selectExpr("count(distinct partition, offset)").collect()[0][0], flush=True)
writer = rows.select("key", "value").write.format("millstream").mode("append")
writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target).save()
print("written", flush=True)
stream = spark.readStream.format("millstream").option("kafka.bootstrap.servers", bootstrap)
stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
stream = stream.option("maxOffsetsPerTrigger", "1500").load().select("key", "value")
query = stream.writeStream.format("millstream").option("kafka.bootstrap.servers", bootstrap)
query = query.option("topic", again).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def test_sources_and_sinks(site: TopicSite, cluster: SparkCluster, lake: Path) -> None:
    """The checkpoint lies with the driver."""
    write(site, COUNT)
    copies = (f"{site.topic}-copy", f"{site.topic}-again")
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2) for name in copies]).get_all()
    words = (site.bootstrap, site.topic, *copies, (lake / "checkpoint").as_uri(), cluster.master)
    done = cluster.run(*words, python=["-c", COPY])
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"batch {COUNT}" in done.stdout
    for name in copies:
        assert numbers(site.bootstrap, name) == list(range(COUNT))


def numbers(bootstrap: str, topic: str) -> Sequence[int]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        places = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[int] = []
        while any(consumer.position(place) < ends[place] for place in places):
            found += [json.loads(record.value or b"")["n"] for record in consumer.poll(1)]
        return sorted(found)
