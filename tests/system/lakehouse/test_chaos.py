"""A load under fire ends with a table that equals its topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.iceberg_rest import RestCatalogMissingError
from tests.system.lakehouse.chaos import Chaos

from millstream.spark.lakehouse.table import KINDS


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "form"),
    [*((kind, "raw") for kind in KINDS), ("delta", "avro"), ("parquet", "protobuf")],
)
def test_kills_at_random_moments(kind: str, form: str, tmp_path: Path) -> None:
    """Without Spark, so that it is quick: drivers and brokers die."""
    chaos = Chaos(
        tmp_path, kind, records=200_000, kills=4, seed=7, engine="local", batch_bytes=128 << 10
    )
    chaos.victims, chaos.form = ("driver", "broker"), form
    chaos.longest_pause_s = 1.0
    chaos.run()
    assert chaos.killed == {"driver": 2, "broker": 2}


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("to", "kind", "mode"),
    [
        ("s3", "delta", "append"),
        ("s3", "delta", "upsert"),
        ("s3", "parquet", "append"),  # the Parquet log has no tables of the present
        ("rest", "iceberg", "append"),
        ("rest", "iceberg", "upsert"),
    ],
)
def test_kills_of_loads_into_stores_and_catalogues(
    to: str, kind: str, mode: str, tmp_path: Path
) -> None:
    chaos = Chaos(
        tmp_path, kind, records=60_000, kills=4, seed=5, engine="local", batch_bytes=64 << 10
    )
    chaos.to, chaos.mode = to, mode
    chaos.victims = ("driver", "broker")
    chaos.longest_pause_s = 1.0
    try:
        chaos.run()
    except RestCatalogMissingError as error:
        pytest.skip(str(error))
    assert chaos.killed == {"driver": 2, "broker": 2}
