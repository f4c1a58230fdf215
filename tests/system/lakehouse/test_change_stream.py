"""A change stream with kills ends with a table that equals the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.lakehouse.change_stream import ChangeStream

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_equals_the_database(kind: str, encoding: str, tmp_path: Path) -> None:
    stream = ChangeStream(tmp_path, kind, records=4_000, parts=2, batch_size="512KB")
    stream.encoding = encoding
    stream.run()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "encoding"), [("delta", "json"), ("iceberg", "json"), ("delta", "avro")]
)
def test_under_fire(kind: str, encoding: str, tmp_path: Path) -> None:
    """Drivers and brokers die."""
    stream = ChangeStream(tmp_path, kind, records=40_000, kills=4, batch_size="256KB", seed=3)
    stream.encoding = encoding
    stream.run()
    assert stream.killed == 4
