"""On an executor: offset ranges to finished data files (raw landing).

A task reads its ranges in order, decodes the values, and writes rows to the files of the table and
unreadable records to those of the dead letters. It returns a line of JSON; only the driver commits.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.batching import ByteLimit
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats import FormatSpec, Rejected, make_format
from millstream.spark.lakehouse.formats.changes import ChangeFormat
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.reject_limit import add_reasons
from millstream.spark.lakehouse.widening import merge
from millstream.spark.leader_epochs import EpochEnd
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import RangeReader, ReadRules
from millstream.spark.workers import spare_garbage_collection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASON = "reason"
DEAD_LETTER_COLUMNS = pa.schema([*RAW_COLUMNS, (REASON, pa.string())])
"""The original record, and the reason why it could not be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """The parameters of one batch, pickled to the executors."""

    read: ReadRules
    format: FormatSpec
    files: FileRules
    dead_letters: FileRules | None
    """The files for unreadable records; None: the first one ends the load."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, if records are changes; (): each record is a row."""
    limit: ByteLimit | None = None
    """How much the task may read; None: whatever its ranges have."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The result of a task."""

    files: Sequence[DataFile] = ()
    dead_letters: Sequence[DataFile] = ()
    wider: pa.Schema | None = None
    """Further columns that the values need; then the files lack some of what was read."""
    read_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of records read, by topic."""
    task: int = 0
    """The number of the task."""
    epochs: Mapping[TopicPartition, Sequence[EpochEnd]] = field(default_factory=dict)
    """The leader epochs of the batches that were read, and where those ended."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why records are dead letters, and how many."""
    reached_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The timestamp of the last record of each partition."""
    excess: Mapping[str, float] = field(default_factory=dict)
    """Bytes of an offset of each topic, if the task has stopped at its limit."""

    @property
    def rows(self) -> int:
        """Rows in the table's files."""
        return sum(file.rows for file in self.files)

    @property
    def rejected(self) -> int:
        """Rows in the files of the dead letters."""
        return sum(file.rows for file in self.dead_letters)

    def to_json(self) -> str:
        """Return what :meth:`from_json` reads."""
        wider = self.wider
        return json.dumps(
            {
                "files": [file.to_json() for file in self.files],
                "deadLetters": [file.to_json() for file in self.dead_letters],
                "wider": wider and base64.b64encode(wider.serialize().to_pybytes()).decode(),
                "readBytes": dict(self.read_bytes),
                "task": self.task,
                "reasons": dict(self.reasons),
                "epochs": [[e.topic, e.partition, list(ends)] for e, ends in self.epochs.items()],
                "reached": [[e.topic, e.partition, ms] for e, ms in self.reached_ms.items()],
                "excess": dict(self.excess),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Landed:
        """Read what :meth:`to_json` returned."""
        value: dict[str, Any] = json.loads(text)
        wider = value["wider"]
        return cls(
            [DataFile.from_json(each) for each in value["files"]],
            [DataFile.from_json(each) for each in value["deadLetters"]],
            wider and pa.ipc.read_schema(pa.py_buffer(base64.b64decode(wider))),
            value["readBytes"],
            value["task"],
            {
                TopicPartition(topic, partition): [(epoch, end) for epoch, end in ends]
                for topic, partition, ends in value["epochs"]
            },
            value["reasons"],
            {TopicPartition(topic, number): ms for topic, number, ms in value["reached"]},
            value["excess"],
        )


def reached_by(landed: Sequence[Landed]) -> dict[TopicPartition, int]:
    """Return how far a batch is in each partition, as a timestamp."""
    found: dict[TopicPartition, int] = {}
    for part in landed:
        for topic_partition, ms in part.reached_ms.items():
            found[topic_partition] = max(ms, found.get(topic_partition, ms))
    return found


class UnreadableRecordError(MillstreamError):
    """A record cannot be decoded, and there is no table for dead letters."""


def land(ranges: Sequence[OffsetRange], landing: Landing, task: int) -> Landed:
    """Write the records of ``ranges`` to files.

    Raises UnreadableRecordError, and the errors of ``RangeReader.read``.
    """
    form = ChangeFormat(landing.format, landing.key) if landing.key else make_format(landing.format)
    writer = FileWriter(landing.files, form.table_schema(), task)
    rules = landing.dead_letters
    dead_letters = None if rules is None else FileWriter(rules, DEAD_LETTER_COLUMNS, task)
    wider: pa.Schema | None = None
    read_bytes: Counter[str] = Counter()
    reasons: dict[str, int] = {}
    reached_ms: dict[TopicPartition, int] = {}
    excess: dict[str, float] = {}
    limit = math.inf if landing.limit is None else landing.limit.of(ranges)
    with RangeReader(landing.read) as reader:
        for number, each in enumerate(ranges):
            for batch in () if excess else reader.read(each, RAW_COLUMNS):
                read_bytes[each.topic_partition.topic] += batch.nbytes
                if batch.num_rows:
                    last = batch.column("timestamp")[batch.num_rows - 1]
                    reached_ms[each.topic_partition] = (last.value or 0) // 1000
                decoded = form.decode(batch)
                writer.write(decoded.rows)
                if decoded.wider is not None:
                    wider = decoded.wider if wider is None else merge(wider, decoded.wider)
                if decoded.rejected and wider is None:
                    here = Counter(each.reason for each in decoded.rejected)
                    reasons = add_reasons([reasons, here])
                    _set_aside(dead_letter_rows(batch, decoded.rejected), dead_letters)
                if read_bytes.total() > limit:
                    end = batch.column("offset")[batch.num_rows - 1].as_py() + 1
                    excess = _per_offset(read_bytes, [*ranges[:number], replace(each, end=end)])
                    break
    letters = [] if dead_letters is None else dead_letters.finish()
    if wider is not None:  # all is read again, and what only needed those columns is no dead letter
        letters, reasons = [], {}
    return Landed(
        files=writer.finish(),
        dead_letters=letters,
        wider=wider,
        read_bytes=read_bytes,
        task=task,
        epochs=reader.epochs,
        reasons=reasons,
        reached_ms=reached_ms,
        excess=excess,
    )


def _per_offset(read_bytes: Mapping[str, int], ranges: Sequence[OffsetRange]) -> dict[str, float]:
    """Return how many bytes an offset has, of each topic of ranges that were read."""
    offsets: Counter[str] = Counter()
    for each in ranges:
        offsets[each.topic_partition.topic] += each.size
    return {topic: read_bytes.get(topic, 0) / max(count, 1) for topic, count in offsets.items()}


def _set_aside(rejected: pa.RecordBatch, dead_letters: FileWriter | None) -> None:
    """Write dead letters; UnreadableRecordError if there is no table for them."""
    if dead_letters is None:
        raise unreadable(rejected)
    dead_letters.write(rejected)


def unreadable(rejected: pa.RecordBatch) -> UnreadableRecordError:
    """Return what is said of the first of some records that cannot be read."""
    first = rejected.slice(0, 1).to_pylist()[0]
    return UnreadableRecordError(
        f"offset {first['offset']} of {first['topic']}-{first['partition']}: {first[REASON]}"
    )


def dead_letter_rows(batch: pa.RecordBatch, rejected: Sequence[Rejected]) -> pa.RecordBatch:
    """Return the records of a batch that cannot be read, each with the reason."""
    rows = batch.take(pa.array([each.row for each in rejected], pa.int32()))
    reasons = pa.array([each.reason for each in rejected], pa.string())
    return pa.RecordBatch.from_arrays([*rows.columns, reasons], schema=DEAD_LETTER_COLUMNS)


def land_on_spark(
    spark: SparkSession, tasks: Sequence[Sequence[OffsetRange]], landing: Landing
) -> list[Landed]:
    """Run every task on the executors; works over Spark Connect too."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                landed = land(tasks[number], landing, number)
                yield pa.RecordBatch.from_pydict({"landed": [landed.to_json()]})
        spare_garbage_collection()

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return [
        Landed.from_json(row.landed) for row in numbers.mapInArrow(work, "landed string").collect()
    ]
