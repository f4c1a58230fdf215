"""The snapshots of an Iceberg table: whose they are, and how many of them stay.

Each commit writes all that is known of a table anew, and pyiceberg copies it several times. So a
commit would cost the more, the more commits there were: those of a load that follows for a day are
thousands. A commit that finds more than MOST_SNAPSHOTS keeps the newer half of them, and of the
others half as many, spread evenly over their time. `maintain` forgets what is older than it keeps,
and removes the files that only forgotten snapshots name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, update_table_metadata
from pyiceberg.utils.properties import property_as_int

APP_ID: Final = "millstream.app-id"
"""The property of a snapshot that names the load."""
MOST_SNAPSHOTS: Final = 500
_LEAST: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's property of the snapshots that stay; more than MOST_SNAPSHOTS stay where it says so."""


class OneCopyTransaction(Transaction):
    """A transaction that copies the table's metadata once for each change, and not at each look.

    Nothing changes what it returns: pyiceberg makes other metadata from it.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._known: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with the changes so far."""
        count = len(self._updates)
        if self._known is None or self._known[0] != count:
            self._known = count, update_table_metadata(self._table.metadata, self._updates)
        return self._known[1]


def forget_some(transaction: Transaction) -> None:
    """Forget some of very many snapshots, as part of a commit."""
    metadata = transaction.table_metadata
    least = property_as_int(metadata.properties, _LEAST, MOST_SNAPSHOTS) or 0
    heads = {each.snapshot_id for each in metadata.refs.values()}
    gone = surplus(metadata.snapshots, most=max(least, MOST_SNAPSHOTS), heads=heads)
    if gone:
        transaction._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),))


def surplus(snapshots: Sequence[Snapshot], *, most: int, heads: Collection[int]) -> list[int]:
    """Return the ids of snapshots to be forgotten; ``heads`` are those of branches and tags."""
    if len(snapshots) <= most:
        return []
    older = sorted(snapshots, key=_age)[: len(snapshots) - most // 2]
    span_ms = older[-1].timestamp_ms - older[0].timestamp_ms
    step_ms = span_ms / max(most // 4 - 1, 1)
    gone: list[int] = []
    due_ms = float(older[0].timestamp_ms)
    for each in older:
        if each.timestamp_ms >= due_ms:
            due_ms = each.timestamp_ms + max(step_ms, 1)
        elif each.snapshot_id not in heads:
            gone.append(each.snapshot_id)
    return gone


def _age(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def is_of(snapshot: Snapshot, app_id: str) -> bool:
    """Tell whether a snapshot is one of a load."""
    return snapshot.summary is not None and snapshot.summary.get(APP_ID) == app_id


def was_set_back(table: Table, app_id: str) -> bool:
    """Tell whether a table is without the last snapshot of a load.

    Ancestors may be forgotten: where the last known one is of others, only a snapshot of the load
    that is newer than that one is missing for certain.
    """
    snapshots = {each.snapshot_id: each for each in table.snapshots()}
    own = [each.sequence_number or 0 for each in snapshots.values() if is_of(each, app_id)]
    found = table.current_snapshot()
    if found is None:
        return bool(own)
    while not is_of(found, app_id):
        parent = snapshots.get(found.parent_snapshot_id or -1)
        if parent is None:
            break
        found = parent
    return max(own, default=-1) > (found.sequence_number or 0)
