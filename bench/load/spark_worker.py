"""A Spark session that measures on request: a line of JSON in, a line of JSON out.

Runs in our interpreter and in that of the stock connector, so it imports nothing of ours before a
request needs it. ``python spark_worker.py JSON`` with ``jars`` and ``directory``; every answer has
``rows`` and ``seconds``, or ``error``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

_PLACES = ("topic", "partition", "offset", "timestamp", "key")


def main() -> None:
    """Answer requests until standard input ends."""
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    spark = _session(settings)
    print(json.dumps({"rows": 0, "seconds": 0.0}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = ACTIONS[request["action"]](spark, request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


def _session(settings: dict[str, Any]) -> Any:
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.local.dir": f"{settings['directory']}/local",
        "spark.sql.warehouse.dir": f"{settings['directory']}/warehouse",
    }
    if not settings["jars"]:
        from millstream.spark import session

        spark = session("bench", master="local[2]", settings=own)
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config(
            "spark.jars", ",".join(settings["jars"])
        )
        for name, value in own.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _frame(spark: Any, request: dict[str, Any]) -> Any:
    if request["format"] == "prebuilt":
        sys.path[:0] = [str(Path(__file__).parents[2])]
        from bench.load.prebuilt_source import PrebuiltDataSource

        spark.dataSource.register(PrebuiltDataSource)
    reader = spark.read.format(request["format"]).options(**request["options"])
    return reader.load(request["path"]) if request.get("path") else reader.load()


def _noop(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    _frame(spark, request).write.format("noop").mode("overwrite").save()
    return {"rows": 0, "seconds": time.perf_counter() - started}


def _length(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    row = _frame(spark, request).selectExpr("sum(length(value)) s", "count(*) n").collect()[0]
    return {"rows": row.n, "seconds": time.perf_counter() - started, "bytes": row.s}


def _to_parquet(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    _frame(spark, request).write.mode("overwrite").parquet(request["target"])
    return {"rows": 0, "seconds": time.perf_counter() - started, **_files(request["target"])}


def _decoded(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Write a Parquet table of values that Spark's own functions read."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    started = time.perf_counter()
    if request["read_as"] == "json":
        value = f.from_json(f.col("value").cast("string"), request["schema"])
    else:
        value = from_avro("value", request["schema"])
    places = [f.col(name).alias(f"_{name}") for name in _PLACES]
    rows = _frame(spark, request).select(value.alias("read"), *places)
    rows.select("read.*", *(f"_{name}" for name in _PLACES)).write.mode("overwrite").parquet(
        request["target"]
    )
    return {"rows": 0, "seconds": time.perf_counter() - started, **_files(request["target"])}


def _land(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    from millstream.spark import load
    from millstream.spark.lakehouse.settings import LoadSettings
    from millstream.spark.lakehouse.table import parse_table_name

    shutil.rmtree(request["target"], ignore_errors=True)
    rows = 0

    def count(report: Any) -> None:
        nonlocal rows
        rows += report.rows

    settings = LoadSettings(
        source=request["options"],
        table=parse_table_name(f"{request['kind']}:{request['target']}"),
        group_id="",
        parallelism=2,
        format=request.get("read_as", "raw"),
        format_options=request.get("read_options", {}),
        schema_file=request.get("schema_file"),
    )
    started = time.perf_counter()
    load(settings, spark=None if request.get("local") else spark, on_batch=count)
    return {"rows": rows, "seconds": time.perf_counter() - started, **_files(request["target"])}


def _plan(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    tasks = _frame(spark, request).rdd.getNumPartitions()
    return {"rows": tasks, "seconds": time.perf_counter() - started}


def _available_now(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    shutil.rmtree(request["target"], ignore_errors=True)
    started = time.perf_counter()
    query = (
        spark.readStream.format(request["format"])
        .options(**request["options"])
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", request["target"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"rows": 0, "seconds": time.perf_counter() - started}


def _rows(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return every row of a read, as text: for comparing readers, not for measuring."""
    from pyspark.sql import functions as f

    frame = _frame(spark, request)
    columns = [
        f.hex(c.name) if c.dataType.simpleString() == "binary" else f.to_json(f.struct(c.name))
        for c in frame.schema.fields
    ]
    found = frame.orderBy("topic", "partition", "offset").select(*columns).collect()
    return {"rows": [list(row) for row in found], "schema": frame.schema.simpleString()}


def _files(directory: str) -> dict[str, Any]:
    sizes = sorted(path.stat().st_size for path in Path(directory).rglob("*.parquet"))
    return {"files": len(sizes), "bytes": sum(sizes), "largest": sizes[-1] if sizes else 0}


ACTIONS = {
    "noop": _noop,
    "length": _length,
    "parquet": _to_parquet,
    "decoded": _decoded,
    "land": _land,
    "plan": _plan,
    "available now": _available_now,
    "rows": _rows,
}

if __name__ == "__main__":
    main()
