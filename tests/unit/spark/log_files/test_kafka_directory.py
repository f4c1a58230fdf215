"""A directory that Apache Kafka wrote, read without a broker, against what its consumers got."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.records.legacy import UnsupportedFormatError
from millstream.spark.options import SourceOptions, parse_options
from millstream.spark.plan import DataLossError, plan_ranges
from millstream.spark.reader import ReadRules, read_range

DATA = Path(__file__).parents[3] / "data"
SOURCE = DATA / "kafka-4.3.0"
EXPECTED = json.loads((SOURCE / "expected.json").read_text())
SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


def options(directory: Path = SOURCE, **given: str) -> SourceOptions:
    isolation = given.pop("isolation", "read_uncommitted")
    return parse_options(
        {"path": str(directory), "kafka.isolation.level": isolation, **given},
    )


def rows(chosen: SourceOptions) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for each in plan_ranges(chosen):
        for batch in read_range(each, ReadRules.of(chosen), SCHEMA):
            offsets, values = (column.to_pylist() for column in batch.columns)
            found += zip(offsets, (value.decode() for value in values), strict=True)
    return found


@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_what_kafkas_consumers_got(case: str) -> None:
    topic, isolation = case.split(" ")
    chosen = options(subscribe=topic, isolation=isolation)
    assert rows(chosen) == [(offset, value) for offset, value in EXPECTED[case]]


def test_the_same_from_the_checkpoint_of_a_broker_that_was_killed(tmp_path: Path) -> None:
    """Without the marker the log may be torn: the high watermark that was written down counts."""
    copy = tmp_path / "a path with spaces"
    shutil.copytree(SOURCE, copy)
    (copy / ".kafka_cleanshutdown").unlink()
    for case, expected in EXPECTED.items():
        topic, isolation = case.split(" ")
        assert len(rows(options(copy, subscribe=topic, isolation=isolation))) == len(expected)
    checkpoint = copy / "replication-offset-checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace("codecs 0 60", "codecs 0 7"))
    assert [offset for offset, _ in rows(options(copy, subscribe="codecs"))] == list(range(7))


def test_a_partitions_own_directory_and_a_whole_directory() -> None:
    assert len(rows(options(SOURCE / "moves-0"))) == len(EXPECTED["moves read_uncommitted"])
    everything = sum(len(EXPECTED[case]) for case in EXPECTED if case.endswith("uncommitted"))
    assert len(rows(options())) == everything
    both = parse_options(
        {"logDirs": f"{SOURCE}, {DATA / 'kafka-4.3.0-node'}", "subscribe": "moves"}
    )
    assert len(rows(both)) == len(EXPECTED["moves read_uncommitted"])


def test_an_open_transaction_ends_what_is_committed(tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(SOURCE, copy)
    (copy / ".kafka_cleanshutdown").unlink()
    checkpoint = copy / "replication-offset-checkpoint"
    # The transaction of offsets 4 to 6 has its marker at 7.
    checkpoint.write_text(checkpoint.read_text().replace("moves 0 16", "moves 0 6"))
    committed = rows(options(copy, subscribe="moves", isolation="read_committed"))
    assert [offset for offset, _ in committed] == [0, 1, 2]
    assert len(rows(options(copy, subscribe="moves"))) == 5


def test_times() -> None:
    chosen = options(subscribe="trimmed")
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    (each,) = plan_ranges(chosen)
    (batch,) = read_range(each, ReadRules.of(chosen), schema)
    times = [time // 1000 for time in batch.column(1).cast(pa.int64()).to_pylist()]
    third = options(subscribe="trimmed", startingTimestamp=str(times[2]))
    expected = next(n for n, time in enumerate(times) if time >= times[2])
    assert len(rows(third)) == len(times) - expected
    with pytest.raises(ConfigError, match="no record at or after"):
        rows(options(subscribe="trimmed", startingTimestamp=str(max(times) + 1)))


def test_offsets_that_are_not_there() -> None:
    starting = json.dumps({"trimmed": {"0": 2}})
    lost = {"subscribe": "trimmed", "startingOffsets": starting}
    with pytest.raises(DataLossError, match=r"\[2, 4\) of trimmed-0"):
        rows(options(**lost))
    assert len(rows(options(**lost, failOnDataLoss="false"))) == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "/no/such/directory"}, "option path: there is no directory"),
        ({"logDirs": " , ", "subscribe": "t"}, "option logDirs takes directories"),
        ({"path": str(SOURCE), "logDirs": "x"}, "only one of the options path and logDirs"),
        ({"logDirs": str(SOURCE)}, "exactly one of the options assign, subscribe"),
        (
            {"logDirs": "/no/such", "subscribe": "t"},
            "option logDirs: there is no directory /no/suc",
        ),
        ({"path": str(SOURCE), "subscribe": "nope"}, "option subscribe: topic 'nope' does not"),
        ({"path": str(SOURCE), "assign": '{"moves":[1]}'}, "option assign: partition moves-1"),
        ({"subscribe": "t"}, "option kafka.bootstrap.servers is missing"),
    ],
)
def test_an_error_names_the_option(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        plan_ranges(parse_options(given))


def test_messages_of_older_formats_are_named() -> None:
    old = parse_options({"path": str(DATA / "kafka-2.8.2"), "assign": '{"magic1":[0]}'})
    with pytest.raises(UnsupportedFormatError):
        rows(old)


def test_topic_ids() -> None:
    from millstream.spark.log_files.topics import FileTopics

    with FileTopics([str(SOURCE)]) as topics:
        assert len(topics.ids(["moves"])["moves"]) == 16
        place = TopicPartition("moves", 0)
        assert topics.sizes([place])[place] == (SOURCE / "moves-0" / f"{0:020}.log").stat().st_size
