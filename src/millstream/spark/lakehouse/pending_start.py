"""The starting offsets of a load whose table cannot be created yet, because its topics have no
record to infer columns from.

::

    PATH/_millstream/start.json      {app id: the entries of the ledger's first commit}

The file is written before the load reads its topics again, and read once: the table is created with
its entries, and from then on only the table is used (decision 0057).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millstream.model.topic import ZERO_TOPIC_ID
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.table import MILLSTREAM_DIRECTORY, TableName
from millstream.spark.lakehouse.topic_reader import TopicEnds


class PendingStart:
    """The first entries of one load's ledger, until they are in its table."""

    def __init__(self, table: TableName, app_id: str) -> None:
        self._path = table.path / MILLSTREAM_DIRECTORY / "start.json"
        self._app_id = app_id

    def entries(self, ends: TopicEnds) -> dict[str, int]:
        """Return the stored entries; nothing if the topics were recreated since."""
        entries: dict[str, int] = self._read().get(self._app_id, {})
        ledger = Ledger(entries)
        is_current = all(
            ledger.is_of(topic_partition, ends.topic_ids.get(topic_partition.topic, ZERO_TOPIC_ID))
            for topic_partition in ends.topic_partitions
        )
        return entries if is_current else {}

    def keep(self, entries: Mapping[str, int]) -> None:
        """Store the entries durably."""
        self._write({**self._read(), self._app_id: dict(entries)})

    def drop(self) -> None:
        """Delete the entries: they are in the table."""
        kept = self._read()
        if self._app_id in kept:
            del kept[self._app_id]
            self._write(kept)

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def _write(self, kept: Mapping[str, Any]) -> None:
        if not kept:
            self._path.unlink(missing_ok=True)
            return
        self._path.replace_with(json.dumps(kept).encode())
