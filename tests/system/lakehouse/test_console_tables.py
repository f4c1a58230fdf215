"""The tables that the console shows, against loads of a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.console.table_views import ShownTable, tables_view
from millstream.model.errors import ConfigError

pytestmark = pytest.mark.system


def test_position_files_and_what_cannot_be_read(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    site = TopicSite(broker.bootstrap, new_topic(), tmp_path).kind("delta")
    site.create(2)
    shown = ShownTable.parse(f"{site.topic}=delta:{tmp_path / 'delta'}")
    source = {"kafka.bootstrap.servers": broker.bootstrap}
    assert tables_view([shown], source)["tables"] == [
        {
            "table": shown.table,
            "topic": site.topic,
            "error": f"there is no table {shown.table}",
        }
    ]
    site.write(0, [b"a", b"b"])
    site.load()
    site.write(1, [b"c", b"d", b"e"])
    other = ShownTable(site.topic, "delta:" + str(tmp_path / "none"))
    row, missing = tables_view([shown, other], source)["tables"]  # type: ignore[misc, attr-defined]
    written = list((tmp_path / "delta").rglob("*.parquet"))
    assert row == {
        "table": shown.table,
        "topic": site.topic,
        "lag": 3,
        "files": len(written),
        "bytes": sum(path.stat().st_size for path in written),
    }
    assert missing["error"].startswith("there is no table")


@pytest.mark.parametrize("text", ["hits", "hits=", "=delta:x", "hits=lake/hits"])
def test_a_table_that_is_not_written_so(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPIC=KIND:PLACE"):
        ShownTable.parse(text)
