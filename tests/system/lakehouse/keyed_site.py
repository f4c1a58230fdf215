"""A topic of records with keys, and tables of the present loaded from it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.lake_readers import library_rows
from tests.system.lakehouse.topic_site import TopicSite
from tests.topics import append_batches

from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec

Row = dict[str, Any] | None


class KeyedSite(TopicSite):
    """A topic of records with keys."""

    def put(
        self,
        partition: int,
        *records: tuple[object, object],
        time: int = 1_700_000_000_000,
        codec: Codec = Codec.NONE,
    ) -> None:
        """Write keys and values; what is not bytes or None is written as JSON."""
        builder = BatchBuilder(BatchOptions(codec=codec))
        for key, value in records:
            builder.append(time, as_bytes(key), as_bytes(value))
        append_batches(self.bootstrap, [(TopicPartition(self.topic, partition), builder.build())])

    def using(self, **changes: Any) -> KeyedSite:
        other = KeyedSite(self.bootstrap, self.topic, self.directory)
        other.settings = replace(self.settings, **changes)
        return other

    def upserting(self, kind: str, form: str, *key: str, **more: Any) -> KeyedSite:
        table = replace(self.settings.table, kind=kind, path=self.directory / kind)
        return self.using(table=table, mode="upsert", format=form, key=key, **more)

    def held(self, *columns: str) -> list[tuple[Any, ...]]:
        return library_rows(self.table, columns)


def as_bytes(value: object) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def change(op: str, before: Row, after: Row) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": 1, "table": "users"}
    return {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1}


def wrapped(payload: object) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": payload}
