"""Maintenance of a table: joins small files, expires old states, removes orphans, reports sizes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.spark.lakehouse.commits import remove_orphans
from millstream.spark.lakehouse.compaction import COMPACTED_PREFIX
from millstream.spark.lakehouse.dead_letter_commits import settle_all
from millstream.spark.lakehouse.ledger import BATCH
from millstream.spark.lakehouse.table import Compaction, Table

DEFAULT_KEEP_MS: Final = 7 * 24 * 3_600_000
_SIZES: Final = ((1 << 20, "< 1 MB"), (16 << 20, "1-16 MB"), (128 << 20, "16-128 MB"))
_LARGEST: Final = ">= 128 MB"
_STALE_COMPACTION_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The result of a maintenance run."""

    compaction: Compaction
    expired_files: int
    orphans: int
    histogram: Sequence[tuple[str, int]]
    """Files by size afterwards."""


def maintain(
    table: Table, app_id: str, *, target_bytes: int, keep_ms: int = DEFAULT_KEEP_MS
) -> Maintenance:
    """Do all of it. Loads may run meanwhile; readers of states older than ``keep_ms`` fail."""
    settle_all(table.name)  # no file of theirs is an orphan
    compaction = table.compact(target_bytes=target_bytes)
    expired = table.expire(keep_ms=keep_ms)  # first: there is less to look through then
    batch = table.ledger(app_id, [BATCH]).get(BATCH, 0)
    removed = len(remove_orphans(table, app_id, batch=batch)) + _remove_dead_compactions(table)
    return Maintenance(
        compaction=compaction,
        expired_files=expired,
        orphans=removed,
        histogram=histogram(table),
    )


def _remove_dead_compactions(table: Table) -> int:
    """Remove outputs of compactions that crashed at least a day ago."""
    root = table.staging_directory
    named = set(table.files())
    stale = [
        each.path
        for each in root.found_files()
        if each.path.rpartition("/")[2].startswith(COMPACTED_PREFIX)
        and each.modified_s < time.time() - _STALE_COMPACTION_S
        and each.path not in named
    ]
    named = table.retained() if stale else named  # a reader may use an older state
    removed = [path for path in stale if path not in named]
    for path in removed:
        (root / path).unlink(missing_ok=True)
    return len(removed)


def histogram(table: Table) -> list[tuple[str, int]]:
    """Return how many files of the table fall into each class of sizes."""
    counts: Counter[str] = Counter()
    for path in set(table.files()):
        size = (table.data_directory / path).size_bytes()
        counts[next((name for limit, name in _SIZES if size < limit), _LARGEST)] += 1
    return [(name, counts[name]) for name in (*(name for _, name in _SIZES), _LARGEST)]
