"""Snapshots that remove files of an Iceberg table, with manifests of live files alone.

pyiceberg's own carry on each manifest whose files were all removed, for ever: every later plan and
commit reads them all, which is the square of the merges of a table. Iceberg's own library leaves
them out (Iceberg: SnapshotProducer, MergingSnapshotProducer.apply).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _OverwriteFiles

_NOTHING: Final[Mapping[str, str]] = {}


class Overwrite(_OverwriteFiles):
    """A context manager: the snapshot is part of the transaction when it ends."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return [
            each
            for each in super()._existing_manifests()
            if each.has_added_files() or each.has_existing_files()
        ]


def overwrite(transaction: Transaction, properties: Mapping[str, str] = _NOTHING) -> Overwrite:
    """Return a snapshot that removes and adds files; ``properties`` become part of its summary."""
    is_first = transaction.table_metadata.current_snapshot() is None
    return Overwrite(
        operation=Operation.APPEND if is_first else Operation.OVERWRITE,
        transaction=transaction,
        io=transaction._table.io,
        branch=MAIN_BRANCH,
        snapshot_properties=dict(properties),
    )
