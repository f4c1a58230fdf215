"""`pipeline.toml`: what it says becomes loads, and what is wrong in it is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.pipeline_file import read_pipeline
from millstream.spark.lakehouse.table import TableName

EXAMPLE = Path(__file__).parents[4] / "examples" / "pipeline.toml"
WHOLE = """
[source]
"kafka.bootstrap.servers" = "h:9092"
failOnDataLoss = false

[load.access]
topic = "access"
to = "delta:lake/access"
format = "text"
format_options = { pattern = "access_log" }
event_time = "time"
follow = true
freshness = "5s"
file_size = "64MB"
batch_size = "1G"
maintain_every = "1h"

[load.orders]
pattern = "orders-.*"
to = "iceberg:lake/{topic}"
format = "avro"
format_options = { definition = "order.avsc" }
schema = "schemas/{topic}.json"
dead_letters_topic = "bad"
group = ""
source = { "kafka.bootstrap.servers" = "other:9092" }
"""


SOURCE = '[source]\n"kafka.bootstrap.servers" = "h:9092"\n'
LOAD = '[load.a]\ntopic = "t"\nto = "delta:x"\n'


def written(directory: Path, text: str) -> Path:
    path = directory / "pipeline.toml"
    path.write_text(text)
    return path


def test_every_key(tmp_path: Path) -> None:
    loads = read_pipeline(written(tmp_path, WHOLE))
    access, orders = loads["access"], loads["orders"]
    assert access.source == {
        "kafka.bootstrap.servers": "h:9092",
        "failOnDataLoss": "false",
        "subscribe": "access",
    }
    assert str(access.table) == f"delta:{tmp_path / 'lake' / 'access'}"
    assert access.load_id == "access"
    assert re.fullmatch(r"millstream-access-[0-9a-f]{8}", access.group)
    elsewhere = replace(access, table=TableName("delta", Path("/elsewhere/access")))
    assert access.group != elsewhere.group
    assert (access.format, access.event_time, access.follow) == ("text", "time", True)
    assert (access.freshness_ms, access.maintain_every_ms) == (5_000, 3_600_000)
    assert (access.file_bytes, access.batch_bytes) == (64 << 20, 1 << 30)
    assert orders.source["subscribePattern"] == "orders-.*"
    assert orders.source["kafka.bootstrap.servers"] == "other:9092"
    assert orders.table.is_per_topic
    assert orders.format_options == {"definition": str(tmp_path / "order.avsc")}
    assert orders.schema_file == tmp_path / "schemas" / "{topic}.json"
    assert (orders.dead_letters_topic, orders.group) == ("bad", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[load", "pipeline.toml"),
        ("", "no \\[load.NAME\\]"),
        ("[sink]\n[load.a]", "unknown table \\[sink\\]"),
        ('[load.a]\nto = "delta:x"', "load.a: exactly one of topic and pattern"),
        ('[load.a]\ntopic = "t"', "load.a: to is missing"),
        ('[load.a]\ntopic = "t"\nto = "csv:x"', "load.a: a table is named"),
        ('[load.a]\ntopic = "t"\nto = "delta:x"\nfresh = 1', "load.a: unknown key fresh"),
        ('[load.a]\ntopic = "t"\nto = "delta:x"\nfreshness = "soon"', "load.a: freshness"),
        ('[load.a]\ntopic = "t"\nto = "delta:x"\ndead_letters_topic = "b"', "needs a format"),
        (
            SOURCE
            + '[load.a]\ntopic = "t"\nto = "delta:x"\n[load.b]\ntopic = "u"\nto = "parquet:x"',
            "load.b and load.a name one directory",
        ),
        ("load = 3", "no \\[load.NAME\\]"),
        ("[load]\na = 3", "load.a: a load is a table"),
        ("source = 3\n[load.a]", "source has to be a table"),
        (SOURCE + LOAD + 'follow = "false"', "load.a: follow has to be true or false, not 'false'"),
        (SOURCE + LOAD + "format = 3", "load.a: format has to be a text, not 3"),
        (SOURCE + LOAD + "file_size = true", "load.a: file_size has to be a text or a number"),
        (SOURCE + LOAD + "source = { startingOffset = 1 }", "did you mean startingOffsets"),
        (SOURCE + LOAD + 'source = { endingOffsets = "latest" }', "option endingOffsets is of"),
        (LOAD, "load.a: option kafka.bootstrap.servers is missing"),
        (SOURCE + LOAD + 'format_options = { patern = "x" }', "no option patern"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_pipeline(written(tmp_path, text))


def test_the_example() -> None:
    assert list(read_pipeline(EXAMPLE)) == ["access", "orders", "archive"]
