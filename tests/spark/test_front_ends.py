"""What people start: the command line, Declarative Pipelines, Spark Connect, a listener."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import BrokerProcess

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.record import Record
from millstream.spark import read_table
from millstream.spark.lakehouse.fan_out import FanOut, FanOutError
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.load import Loader, spark_runner
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, parse_table_name
from millstream.spark.lakehouse.transform import Transform
from millstream.spark.lakehouse.works import Work, land_works_on_spark
from millstream.spark.progress import GroupOffsets
from millstream.spark.sessions import prepare_environment
from millstream.spark.supervisor import supervise

ROOT = Path(__file__).parents[2]
LINE = b'1.2.3.4 - - [17/May/2015:10:05:%02d +0000] "GET /%d HTTP/1.1" 200 12 "-" "agent"'

Write = Callable[..., None]


@pytest.fixture
def access_log(topic: str, write: Write) -> str:
    for partition in range(2):
        lines = [LINE % (number % 60, number) for number in range(100)]
        write(topic, partition, [Record(0, 0, None, line) for line in lines])
    return topic


def millstream(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_load_audit_and_report(broker: BrokerProcess, access_log: str, tmp_path: Path) -> None:
    at = ("-b", broker.bootstrap)
    table = f"delta:{tmp_path / 'a table'}"
    text = ("--format", "text", "--format-option", "pattern=access_log", "--event-time", "time")
    loaded = millstream(
        "load", access_log, "--to", table, *text, "--driver-size", "0", *at, "--json"
    )
    assert json.loads(loaded)["rows"] == 200
    found = json.loads(millstream("audit", access_log, table, *at, "--json"))
    assert (found["clean"], found["rows"]) == (True, 200)
    page = tmp_path / "page.html"
    assert millstream("report", table, "--html", str(page)) == "200\t200\n"
    assert "<svg" in page.read_text()


@pytest.mark.long
def test_ctrl_c_stops_between_two_batches(
    broker: BrokerProcess, access_log: str, tmp_path: Path
) -> None:
    """A terminal sends it to the whole group of processes: to the JVM and its workers too."""
    at = ("-b", broker.bootstrap)
    words = ["load", access_log, "--to", f"delta:{tmp_path / 't'}", *at, "--follow"]
    small = ["--batch-size", "4K", "--driver-size", "0", "--master", "local[1]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream.cli.main", *words, *small],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("batch 3"):
                break
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    loaded = int(out.split()[0])
    assert 0 < loaded < 200, out
    found = json.loads(millstream("audit", access_log, f"delta:{tmp_path / 't'}", *at, "--json"))
    assert (found["clean"], found["rows"]) == (True, loaded)


@pytest.mark.parametrize("kind", KINDS)
def test_loads_with_spark_are_read_by_spark(
    spark: SparkSession, broker: BrokerProcess, access_log: str, tmp_path: Path, kind: str
) -> None:
    settings = LoadSettings(
        source={"kafka.bootstrap.servers": broker.bootstrap, "subscribe": access_log},
        table=parse_table_name(f"{kind}:{tmp_path / 't'}"),
        format="text",
        format_options={"pattern": "access_log"},
        event_time="time",
        driver_bytes=0,
        group_id="",
    )
    Loader(settings, spark_runner(spark)).run()
    rows = read_table(spark, str(settings.table))
    assert rows.where("status = 200").count() == 200
    assert rows.selectExpr("count(distinct _partition, _offset) n").collect()[0].n == 200


def test_two_topics_into_two_tables_in_one_job(
    spark: SparkSession,
    broker: BrokerProcess,
    access_log: str,
    admin: Admin,
    write: Write,
    tmp_path: Path,
) -> None:
    other = f"{access_log}-other"
    admin.create_topics([NewTopic(other, 1)]).get_all()
    write(other, 0, [Record(0, 0, None, b"no access log"), Record(0, 0, None, LINE % (1, 2))])
    settings = LoadSettings(
        source={
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": f"{access_log},{other}",
        },
        table=parse_table_name(f"delta:{tmp_path / 'the lake'}/{{topic}}"),
        format="text",
        format_options={"pattern": "access_log"},
        dead_letters=False,
        driver_bytes=0,
        group_id="",
    )
    jobs = []

    def runner(works: Sequence[Work]) -> list[Landed | Exception]:
        jobs.append({work.topic for work in works})
        return land_works_on_spark(spark, works)

    with pytest.raises(FanOutError, match=f"^{other}: offset 0 of {other}-0"):
        FanOut(settings, runner).run()
    assert jobs == [{access_log, other}]
    assert read_table(spark, f"delta:{tmp_path / 'the lake' / access_log}").count() == 200
    assert read_table(spark, f"delta:{tmp_path / 'the lake' / other}").count() == 0


def test_a_query_in_between(
    spark: SparkSession, broker: BrokerProcess, access_log: str, tmp_path: Path
) -> None:
    def query(rows: DataFrame) -> DataFrame:
        return rows.where("offset % 2 = 0").selectExpr(
            "topic", "partition", "offset", "length(value) as size"
        )

    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": access_log}
    settings = LoadSettings(
        source=source, table=parse_table_name(f"delta:{tmp_path / 't'}"), query=query, group_id=""
    )
    for _ in range(2):
        transform = Transform(spark, source, query, parallelism=2)
        Loader(settings, spark_runner(spark), transform=transform).run()
    rows = read_table(spark, str(settings.table))
    assert (rows.count(), rows.where("size > 60").count()) == (100, 100)


def test_offsets_go_to_a_group_after_the_last_batch(
    spark: SparkSession, broker: BrokerProcess, access_log: str, tmp_path: Path
) -> None:
    listener = GroupOffsets("watchers-of-a-query", broker.bootstrap, None)
    spark.streams.addListener(listener)
    try:

        def start() -> object:
            reader = spark.readStream.format("millstream").option("subscribe", access_log)
            reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
            writer = reader.option("startingOffsets", "earliest").load().writeStream
            writer = writer.format("noop").option("checkpointLocation", str(tmp_path / "c"))
            return writer.trigger(availableNow=True).start()

        supervise(start)  # type: ignore[arg-type]
        expected = {TopicPartition(access_log, number): 100 for number in range(2)}
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for _ in range(100):
                found = admin.list_group_offsets(["watchers-of-a-query"])[
                    "watchers-of-a-query"
                ].get()
                if {place: each.offset for place, each in found.items()} == expected:
                    return
                subprocess.run(["sleep", "0.1"], check=True)
        pytest.fail(f"committed: {found}")
    finally:
        spark.streams.removeListener(listener)


def run_apart(script: str, *, cwd: Path, **environment: str) -> str:
    """Run Python in a process of its own, which has a JVM of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.long
def test_spark_connect(
    broker: BrokerProcess, admin: Admin, access_log: str, tmp_path: Path
) -> None:
    copy = f"{access_log}-copy"
    admin.create_topics([NewTopic(copy, 1)]).get_all()
    script = f"""
from millstream.spark import load, session
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import parse_table_name
spark = session(remote="local[2]", settings={{"spark.ui.enabled": "false"}})
rows = spark.read.format("millstream").option("subscribe", {access_log!r})
assert rows.option("kafka.bootstrap.servers", {broker.bootstrap!r}).load().count() == 200
settings = LoadSettings(
    source={{"kafka.bootstrap.servers": {broker.bootstrap!r}, "subscribe": {access_log!r}}},
    table=parse_table_name("parquet:t"), driver_bytes=0, group_id="")
load(settings, spark=spark)
print("rows", sum(1 for _ in spark.read.parquet("t").collect()))
from millstream.spark.source_metrics import watch_sources
import threading
told = []
done = threading.Event()
def on_progress(progress, sources):
    told.append(sources[0].total)
    if told[-1] == 0:
        done.set()
watch_sources(spark, on_progress)
stream = spark.readStream.format("millstream").option("subscribe", {access_log!r})
stream = stream.option("kafka.bootstrap.servers", {broker.bootstrap!r})
stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "150").load()
writer = stream.select("value").writeStream.format("millstream")
writer = writer.option("kafka.bootstrap.servers", {broker.bootstrap!r}).option("topic", {copy!r})
writer = writer.option("checkpointLocation", "checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
done.wait(60)
print("behind", told)
rows = spark.read.format("millstream").option("subscribe", {copy!r})
print("copied", rows.option("kafka.bootstrap.servers", {broker.bootstrap!r}).load().count())
spark.stop()
"""
    told = run_apart(script, cwd=tmp_path)
    assert "rows 200" in told
    assert "behind [50, 0]" in told, told
    assert "copied 200" in told


@pytest.mark.long
def test_a_declarative_pipeline(broker: BrokerProcess, access_log: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "declarative", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(
        spec.read_text().replace("file:///tmp/millstream-declarative", tmp_path.as_uri())
    )
    prepare_environment()
    # Spark's scripts look for their home by a command line that they split at spaces.
    home = str(Path(pyspark.__file__).parent)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run"],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=project,
        env={
            **os.environ,
            "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "CLICKS_TOPIC": access_log,
            "SPARK_HOME": home,
        },
    )
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stderr[-3000:]
    script = """
from millstream.spark import session
spark = session(master="local[1]", settings={"spark.ui.enabled": "false"})
print("rows", spark.read.parquet("spark-warehouse/clicks").count())
spark.stop()
"""
    assert "rows 200" in run_apart(script, cwd=project)
