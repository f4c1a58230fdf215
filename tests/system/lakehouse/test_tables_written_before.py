"""Tables that older versions of Millstream wrote are carried on.

``tests/data/tables`` has one of each kind with its dead letters, written by the version of decision
0093, whose dead letters had a commit before that of the rows. Its load died between the two: the
dead letters of the last three records of partition 0 are committed, and their rows are not. The
records were ``BEFORE`` and ``AFTER`` in partition 0 and one more in partition 1.
"""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.model.topic import TopicId
from millstream.spark.lakehouse.dead_letters import Replay, replay
from millstream.spark.lakehouse.ledger import fold
from millstream.spark.lakehouse.load import source_options_of
from millstream.spark.lakehouse.table import KINDS
from millstream.spark.topics import open_topics

pytestmark = pytest.mark.system

DATA: Final = Path(__file__).parents[2] / "data" / "tables"
BEFORE: Final = (b'{"n":1}', b"bad", b'{"n":2}', b'{"n":"x"}')
AFTER: Final = (b'{"n":3}', b"worse", b'{"n":4}')
TOPIC: Final = "written"
OLD_PLACE: Final = "/tmp/written-before"
OLD_ID: Final = 7309111049734223368
"""The topic's id as the ledgers have it."""


@pytest.fixture(params=KINDS)
def old(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """A table written before, and a topic with what it was loaded from."""
    kind = str(request.param)
    with (
        BrokerProcess(tmp_path_factory.mktemp("broker")) as broker,
        tarfile.open(DATA / f"{kind}.tar.gz") as archive,
    ):
        site = TopicSite(broker.bootstrap, TOPIC, tmp_path).kind(kind).using(format="json")
        site.create(2)
        site.write(0, [*BEFORE, *AFTER])
        site.write(1, [b'{"n":10}'])
        archive.extractall(tmp_path, filter="data")
        with open_topics(source_options_of(site.settings.source)) as topics:
            move(tmp_path, topics.ids([TOPIC])[TOPIC])
        yield site


def move(directory: Path, topic_id: TopicId) -> None:
    """Give the tables their new place, which Iceberg writes everywhere, and the topic's new id."""
    changes = {OLD_PLACE: str(directory), str(OLD_ID): str(fold(topic_id))}

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            for old, new in changes.items():
                value = value.replace(old, new)
            return value
        if isinstance(value, dict):
            return {changed(key): changed(each) for key, each in value.items()}
        return [changed(each) for each in value] if isinstance(value, list) else value

    for path in directory.rglob("*.json"):
        path.write_text(changed(path.read_text()))
    for path in directory.rglob("*.avro"):
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema, metadata, rows = reader.writer_schema, reader.metadata, list(reader)
        kept = {k: v for k, v in metadata.items() if not k.startswith("avro.")}  # type: ignore[union-attr]
        with path.open("wb") as file:
            fastavro.writer(file, schema, changed(rows), metadata=kept)
    for path in directory.rglob("catalog.db"):
        with closing(sqlite3.connect(path)) as catalog, catalog:
            for column in ("metadata_location", "previous_metadata_location"):
                catalog.execute(
                    f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)",
                    (OLD_PLACE, str(directory)),
                )


def test_its_load_goes_on(old: TopicSite) -> None:
    old.load()
    assert old.rows("_partition", "_offset", "n") == [
        *((0, 0, 1), (0, 2, 2), (0, 4, 3), (0, 6, 4), (1, 0, 10)),
    ]
    letters = read_rows(old.letters, ["offset", "value"])
    assert letters == [(1, b"bad"), (3, b'{"n":"x"}'), (5, b"worse")]
    assert old.audit().is_clean
    old.write(0, [b"the worst", b'{"n":5}'])
    old.load()
    assert old.audit().is_clean
    assert [(each.end, each.dead_letters) for each in old.audit().partitions] == [(9, 4), (1, 0)]


def test_a_replay_comes_before_its_load(old: TopicSite) -> None:
    """The record that was a dead letter before its row was judged is not taken twice."""
    schema = old.settings.table.path / "_millstream" / "schema.json"
    text = old.using(format="text", format_options={"pattern": "(?P<n>.*)"})
    schema.write_text('{"format": "text", "columns": [{"name": "n", "type": "int64"}]}')
    assert replay(text.settings) == Replay(tried=2, written=0, still_unreadable=2)
    text.load()
    found = text.audit()
    assert found.is_clean
    assert found.partitions[0].dead_letters == 5
