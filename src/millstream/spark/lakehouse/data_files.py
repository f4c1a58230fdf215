"""Names of data files, which contain the load and the batch. Pure.

::

    millstream-<load>-<batch>-<task>-<attempt>.parquet
               8 hex   10 dig. 5 dig. 8 hex

A task that runs twice writes two files; the commit names one of them. Once a batch is committed,
files of the same load and of that or an older batch that the table does not reference can never be
committed any more. They are orphans.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.model.offsets import Offset

SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(r"millstream-([0-9a-f]{8})-(\d{10})-(\d{5})-([0-9a-f]{8})\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One finished file of a batch.

    ``path`` is relative to the table's directory. ``partition_values`` are the texts of the
    partition columns (None: null). ``min_offset`` and ``max_offset`` bound the offsets in it, over
    all partitions.
    """

    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    min_offset: Offset = 0
    max_offset: Offset = -1

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {
            "path": self.path,
            "size": self.size_bytes,
            "rows": self.rows,
            "partitionValues": dict(self.partition_values),
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataFile:
        """Read what :meth:`to_json` returned."""
        return cls(
            path=value["path"],
            size_bytes=value["size"],
            rows=value["rows"],
            partition_values=value["partitionValues"],
            min_offset=value["minOffset"],
            max_offset=value["maxOffset"],
        )


def load_mark(app_id: str) -> str:
    """Return the eight digits that identify a load in file names."""
    return hashlib.blake2b(app_id.encode(), digest_size=4).hexdigest()


def file_name(app_id: str, *, batch: int, task: int, attempt: str) -> str:
    """Return the name of one task's file; ``attempt`` is eight random hexadecimal digits."""
    return f"millstream-{load_mark(app_id)}-{batch:010d}-{task:05d}-{attempt}{SUFFIX}"


def is_data_file(name: str) -> bool:
    """Tell whether a name is that of a load's data file: tasks write before their table is
    created.
    """
    return _NAME.fullmatch(name) is not None


def orphans(
    app_id: str, *, batch: int, names: Iterable[str], referenced: Collection[str]
) -> list[str]:
    """Return the paths among ``names`` that no commit of this load can reference any more.

    ``batch`` is the last one committed; ``referenced`` are the paths in the table.
    """
    mark = load_mark(app_id)
    found = []
    for name in names:
        match = _NAME.fullmatch(name.rpartition("/")[2])
        if match is None or match[1] != mark or int(match[2]) > batch:
            continue
        if name not in referenced:
            found.append(name)
    return found
