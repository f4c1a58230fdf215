"""The tasks of several tables' batches, run in one job.

What is wrong with one topic comes back from its task as a value, so that it stops no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.errors import ConfigError, CorruptLogError, MillstreamError
from millstream.schemas.schema import RegistryRefusedError
from millstream.spark.lakehouse.landing import Landed, Landing, UnreadableRecordError, land
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.parallelism import run_in_threads
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError
from millstream.spark.lakehouse.written_files import WrittenFileError
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FATAL_FOR_A_TOPIC: Final = {
    kind.__name__: kind
    for kind in (
        *(ConfigError, RegistryRefusedError, CorruptLogError),
        *(DataLossError, RecreatedTopicError, UnreadableRecordError, TooManyRejectsError),
    )
}
"""The errors that end the load of one topic only."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task of a round: ranges of one topic, for that topic's table."""

    topic: str
    number: int
    ranges: Sequence[OffsetRange]
    landing: Landing


WorkRunner = Callable[[Sequence[Work]], list[Landed | Exception]]
"""Runs the tasks of a round; a task's result may be the error of its topic."""


def land_works_locally(works: Sequence[Work]) -> list[Landed | Exception]:
    """Run every task in this process."""
    return run_in_threads(_land, works)


def land_works_on_spark(spark: SparkSession, works: Sequence[Work]) -> list[Landed | Exception]:
    """Run the tasks of all tables in one Spark job."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"work": [index], "outcome": [_to_json(_land(works[index]))]}
                )

    numbers = spark.range(0, len(works), 1, len(works))
    rows = numbers.mapInArrow(run, "work long, outcome string").collect()
    outcomes = {row.work: _from_json(row.outcome) for row in rows}
    missing = sorted(set(range(len(works))) - set(outcomes))
    if missing or len(rows) != len(works):
        raise WrittenFileError(
            f"{len(works)} tasks were run and {len(rows)} results came, none of {missing}: nothing "
            "is committed"
        )
    return [outcomes[index] for index in range(len(works))]


def _land(work: Work) -> Landed | Exception:
    try:
        return land(work.ranges, work.landing, work.number)
    except tuple(FATAL_FOR_A_TOPIC.values()) as error:
        return error


def _to_json(outcome: Landed | Exception) -> str:
    if isinstance(outcome, Landed):
        return json.dumps({"landed": outcome.to_json()})
    return json.dumps({"error": type(outcome).__name__, "text": str(outcome)})


def _from_json(text: str) -> Landed | Exception:
    value: dict[str, str] = json.loads(text)
    if "landed" in value:
        return Landed.from_json(value["landed"])
    return FATAL_FOR_A_TOPIC.get(value["error"], MillstreamError)(value["text"])
