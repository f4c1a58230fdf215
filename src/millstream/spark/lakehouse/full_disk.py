"""A disk that is full under a load: trying again does not help until somebody makes room."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.config.quantities import human_bytes
from millstream.model.errors import NO_ROOM, MillstreamError
from millstream.spark.lakehouse.table import TableName

_TEXTS: Final = tuple(os.strerror(each) for each in (errno.ENOSPC, errno.EDQUOT))
"""All that libraries written in Rust, and workers of Spark, tell of these errors."""


class FullDiskError(MillstreamError):
    """There is no room for what a load writes; the text names the places, and what is free."""


def of_a_full_disk(error: Exception, table: TableName) -> FullDiskError | None:
    """Return what is to be told of an error, None if it is not one of a full disk.

    A library says neither which file it could not write nor where, so the places that a load writes
    to on this machine are named, the fullest first.
    """
    number = error.errno if isinstance(error, OSError) else None
    told = next((each for each in _TEXTS if each in str(error)), None)
    if number not in NO_ROOM and told is None:
        return None
    what = told if number is None or number not in NO_ROOM else os.strerror(number)
    filename = error.filename if isinstance(error, OSError) else None
    places = [Path(tempfile.gettempdir())]
    if table.path.is_local:
        places.insert(0, Path(table.path.uri()))
    if filename is not None:
        places.insert(0, Path(os.fsdecode(filename)))
    found = "; ".join(_rooms(places))
    return FullDiskError(
        f"{what}: {found}. The load goes on where the table ends when it is started again"
    )


def _rooms(places: list[Path]) -> list[str]:
    """Return what is free on the disk of each place, the least first; each disk once."""
    found: dict[int, tuple[int, str]] = {}
    for place in places:
        there = next((each for each in (place, *place.absolute().parents) if each.exists()), None)
        if there is None:
            continue
        with suppress(OSError):
            usage = shutil.disk_usage(there)
            free = f"{place} has {human_bytes(usage.free)} of {human_bytes(usage.total)} free"
            found.setdefault(there.stat().st_dev, (usage.free, free))
    return [text for _, text in sorted(found.values())]
