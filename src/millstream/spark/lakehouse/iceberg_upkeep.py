"""The files of an Iceberg table that somebody still needs, and the removal of the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from pyiceberg.table import Table

from millstream.spark.lakehouse.data_files import SUFFIX
from millstream.spark.lakehouse.iceberg_catalogs import file_uri
from millstream.spark.locations.location import FoundFile, Location, parse_location
from millstream.spark.locations.named import plain_uri

_METADATA: Final = ".metadata.json"
_STALE_S: Final = 86_400.0


class IcebergUpkeep:
    """The files of one table, which lies at ``path``."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._manifests: dict[str, list[str]] = {}
        """The files that each manifest names, as they were read last."""

    def remove(self, named_before: set[str], table: Table, *, keep_ms: int) -> int:
        """Remove files of ``named_before`` that the table names no more, its older states, and
        what crashed commits have left; return how many were data files of expired states.
        """
        named = self.named_files(table)
        gone = named_before - named
        gone |= set(self._older_states(table, named, keep_ms))
        for uri in gone | set(self._left_behind(named)):
            self._file(uri).unlink(missing_ok=True)
        return sum(uri.endswith(SUFFIX) for uri in gone)

    def named_files(self, table: Table) -> set[str]:
        """Return every file that the table or a snapshot references: data, deletes, manifests,
        manifest lists, and the table's own older metadata.

        A manifest never changes and is in the lists of many snapshots: each is read once.
        """
        named = {table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)}
        present: dict[str, list[str]] = {}
        for snapshot in table.snapshots():
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                path = manifest.manifest_path
                if path not in present:
                    present[path] = self._manifests.get(path) or [
                        entry.data_file.file_path
                        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                    ]
        self._manifests = present
        for path, files in present.items():
            named.add(path)
            named.update(files)
        return {plain_uri(uri) for uri in named}

    def _file(self, uri: str) -> Location:
        return parse_location(uri, storage_options=self._path.storage_options)

    def _found(self, directory: str) -> Iterator[tuple[str, FoundFile]]:
        """Yield the files of one of the table's directories, with their URIs."""
        root = self._path / directory
        for each in root.found_files():
            yield f"{file_uri(root)}/{each.path}", each

    def _older_states(self, table: Table, named: set[str], keep_ms: int) -> Iterator[str]:
        """Yield the files of expired states."""
        current = table.metadata_location.rpartition("/")[2]
        for uri, found in self._found("metadata"):
            is_older = found.path.partition("-")[0] < current.partition("-")[0]
            is_old = found.modified_s < time.time() - keep_ms / 1000
            if found.path.endswith(_METADATA) and is_older and is_old and uri not in named:
                yield uri

    def _left_behind(self, named: set[str]) -> Iterator[str]:
        """Yield the files of commits that crashed.

        The files of a running load are not referenced either: only their age distinguishes them.
        """
        for directory, suffix in (("data", SUFFIX), ("metadata", ".avro")):
            for uri, found in self._found(directory):
                name = found.path.rpartition("/")[2]
                is_own = name.startswith("millstream-") or suffix == ".avro"
                is_stale = found.modified_s < time.time() - _STALE_S
                if name.endswith(suffix) and is_own and is_stale and uri not in named:
                    yield uri
