"""A streaming query's offsets in a consumer group, so that every Kafka tool sees its lag.

Spark reports a finished micro-batch to the source only when it plans the next one, so the last one
of a query is never reported. A listener is called for each.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millstream.client import Admin
from millstream.spark.stream_offsets import Positions, StreamOffset, is_ours
from millstream.spark.topics import commit_positions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def commit_to_group(
    spark: SparkSession,
    group: str,
    *,
    bootstrap_servers: str,
    query_name: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> StreamingQueryListener:
    """Commit the offsets of every micro-batch that is done to a consumer group.

    Of all queries of the session, or of the one called ``query_name``. Returns the listener, for
    ``spark.streams.removeListener``. ``settings`` are an administrator's, for TLS and SASL. Errors
    are logged: only the checkpoint matters for correctness.
    """
    listener = GroupOffsets(group, bootstrap_servers, query_name, settings)
    spark.streams.addListener(listener)
    return listener


class GroupOffsets(StreamingQueryListener):
    """Commits the progress of queries."""

    def __init__(
        self,
        group: str,
        bootstrap_servers: str,
        query_name: str | None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = settings
        self._group = group
        self._bootstrap_servers = bootstrap_servers
        self._query_name = query_name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: all progress is committed already."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the ends of a finished micro-batch."""
        progress = event.progress
        if self._query_name is not None and progress.name != self._query_name:
            return
        for source in progress.sources:
            positions = _positions(source.endOffset)
            if not positions:
                continue
            with Admin(self._settings, bootstrap_servers=self._bootstrap_servers) as admin:
                commit_positions(admin, self._group, positions)


def _positions(end_offset: str | None) -> Positions:
    """Return the positions of a source's offset; none for a source of another kind."""
    value = json.loads(end_offset) if end_offset else None
    return StreamOffset.from_json(value).positions if is_ours(value) else {}
