"""How far streaming queries are behind their topics, from Spark's own progress events.

The stock connector puts ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest`` and
``avgOffsetsBehindLatest`` into ``sources[…].metrics`` of a query's progress. Spark asks for them a
source that implements ``ReportsSourceMetrics``, which its class for Python data sources does not:
``metrics`` of this source is always empty. But Spark asks every source for its latest offset
(``reportLatestOffset``), so the progress has both ends, and the same numbers are made of them here,
without a question to the brokers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millstream.spark.stream_offsets import StreamOffset, is_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from millstream.model.offsets import Offset
    from millstream.model.topic import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """One source of a query after a micro-batch."""

    source: int
    """Its number among the query's sources."""
    offsets_behind: Mapping[TopicPartition, Offset]
    """By partition: offsets that could be read when the micro-batch was planned, and that no
    micro-batch has read. Offsets of transactions that were open then are not among them if the
    source reads committed records only.
    """
    input_rows_per_second: float
    processed_rows_per_second: float

    @property
    def total(self) -> int:
        """Offsets behind, of all partitions."""
        return sum(self.offsets_behind.values())

    def to_json(self) -> dict[str, str]:
        """Return them under the stock connector's names, as texts."""
        behind = list(self.offsets_behind.values())
        average = sum(behind) / len(behind) if behind else 0.0
        return {
            "minOffsetsBehindLatest": str(min(behind, default=0)),
            "maxOffsetsBehindLatest": str(max(behind, default=0)),
            "avgOffsetsBehindLatest": str(average),
        }


def source_metrics(progress: Mapping[str, Any]) -> list[SourceMetrics]:
    """Return the metrics of the Millstream sources of a progress: an event's ``progress``, or
    ``query.lastProgress``. Sources of other kinds are left out.
    """
    found = []
    for number, source in enumerate(progress.get("sources", ())):
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if not is_ours(end) or not is_ours(latest):
            continue
        reached = StreamOffset.from_json(end).positions
        ends = StreamOffset.from_json(latest).positions
        found.append(
            SourceMetrics(
                number,
                # Of a partition that is new since the batch was planned all is unread.
                {each: max(last - reached.get(each, 0), 0) for each, last in ends.items()},
                float(source.get("inputRowsPerSecond") or 0),
                float(source.get("processedRowsPerSecond") or 0),
            )
        )
    return found


def _offset(value: object) -> Any:
    """Return an offset, which is a text in a progress, and a value in its JSON."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else None
    try:
        read = json.loads(value)
    except ValueError:  # of a source whose offsets are no JSON
        return None
    return read if isinstance(read, Mapping) else None


def watch_sources(
    spark: SparkSession,
    on_progress: Callable[[StreamingQueryProgress, list[SourceMetrics]], None],
    *,
    query_name: str | None = None,
) -> StreamingQueryListener:
    """Call ``on_progress`` after every micro-batch that reads topics, with Spark's progress and the
    metrics of its sources.

    Of all queries of the session, or of the one called ``query_name``. Returns the listener, for
    ``spark.streams.removeListener``. If ``on_progress`` raises, Spark logs it and the query goes
    on.
    """
    listener = SourceListener(on_progress, query_name)
    spark.streams.addListener(listener)
    return listener


class SourceListener(StreamingQueryListener):
    """Passes the metrics of sources on."""

    def __init__(
        self,
        on_progress: Callable[[StreamingQueryProgress, list[SourceMetrics]], None],
        query_name: str | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._query_name = query_name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the values after the last micro-batch still apply."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Tell the metrics of a micro-batch."""
        progress = event.progress
        if self._query_name is not None and progress.name != self._query_name:
            return
        found = source_metrics(progress)
        if found:
            self._on_progress(progress, found)
