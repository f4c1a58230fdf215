"""The files that a Delta table's log names, in any state that is still in it.

::

    _delta_log/<version>.json                      a commit, and <from>.<to>.compacted.json
    _delta_log/<version>.checkpoint.parquet        a checkpoint; of several parts …<n>.<of>.parquet
    _delta_log/<version>.checkpoint.<uuid>.json    a checkpoint of V2 spec, or .parquet
    _delta_log/_sidecars/<uuid>.parquet            file actions that such a checkpoint names

A checkpoint of V2 spec may have the file actions in itself, in sidecars, or in both; a classic name
says nothing about its spec.
Source: the Delta protocol, "Checkpoints", "Sidecar Files", "V2 Checkpoint Table Feature".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from millstream.spark.locations.location import Location

_KINDS: Final = ("add", "remove")
_SIDECAR: Final = "sidecar"
_SIDECARS: Final = "_sidecars"
_PATHS: Final = tuple(f"{kind}.path" for kind in (*_KINDS, _SIDECAR))


def named_files(log: Location) -> set[str]:
    """Return the paths of all files that are added or removed in a log, its checkpoints included.

    A file of the log that is removed meanwhile was of states that are forgotten.
    """
    found: dict[str, set[str]] = {kind: set() for kind in (*_KINDS, _SIDECAR)}
    for name in log.entries():
        with contextlib.suppress(FileNotFoundError):
            for kind, path in _actions(log / name):
                found[kind].add(path)
    for path in found[_SIDECAR]:
        sidecar = log / _SIDECARS / path.rpartition("/")[2]
        with contextlib.suppress(FileNotFoundError):
            for kind, each in _rows(sidecar):
                found[kind].add(each)
    return found["add"] | found["remove"]


def _actions(file: Location) -> Iterator[tuple[str, str]]:
    """Yield the kinds and paths of the actions of a commit or a checkpoint."""
    if file.name.endswith(".json"):
        yield from _lines(file)
    elif fnmatch(file.name, "*.checkpoint*.parquet"):
        yield from _rows(file)


def _lines(file: Location) -> Iterator[tuple[str, str]]:
    for line in file.read_bytes().splitlines():
        action = json.loads(line)
        for kind in (*_KINDS, _SIDECAR):
            if kind in action:
                yield kind, unquote(action[kind]["path"])


def _rows(file: Location) -> Iterator[tuple[str, str]]:
    parquet = pq.ParquetFile(file.open_input())
    known = {parquet.schema.column(number).path for number in range(len(parquet.schema))}
    for column in (path for path in _PATHS if path in known):
        kind = column.partition(".")[0]
        # A column of structs with this one field.
        for each in parquet.read(columns=[column]).column(0).combine_chunks().field(0).drop_null():
            yield kind, unquote(each.as_py())
