"""Files whose lines are ingested: plain, compressed, and all of a directory."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from millstream.cli.failures import CommandFailedError

_GZIP: Final = ".gz"
_ZSTD: Final = ".zst"
COMPRESSED: Final = (_GZIP, _ZSTD)
"""Endings of files that are read through their codec."""


class Source(Protocol):
    """Bytes that are read from their beginning to their end."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


def files_of(words: Sequence[str]) -> list[Path]:
    """Return the files that the words of a command name, each once.

    A directory stands for the files in it and below, those last modified first; hidden ones are
    left out. OSError for a word that is neither a file nor a directory.
    """
    found: dict[Path, None] = {}
    for word in words:
        path = Path(word)
        if stat.S_ISDIR(path.stat().st_mode):
            found |= dict.fromkeys(_files_below(path))
        else:
            found[path] = None
    return list(found)


def _files_below(directory: Path) -> list[Path]:
    found = []
    for place, directories, names in os.walk(directory):
        directories[:] = [each for each in directories if not each.startswith(".")]
        for name in names:
            path = Path(place, name)
            try:
                status = path.stat()
            except FileNotFoundError:  # rotated away meanwhile, or a link that leads nowhere
                continue
            if not name.startswith(".") and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def is_compressed(path: Path) -> bool:
    """Tell whether a file is read through a codec."""
    return path.suffix in COMPRESSED


def open_source(path: Path) -> Source:
    """Open a file; the content of a compressed one is what is read.

    Reading raises CommandFailedError where compressed data is damaged.
    """
    if path.suffix == _GZIP:
        return _Decompressing(path, cast(Source, gzip.open(path, "rb")))
    if path.suffix == _ZSTD:
        path.stat()  # its error names the file
        return _Decompressing(path, _open_zstd(path))
    return open(path, "rb")


def _open_zstd(path: Path) -> Source:
    # A stream, which no package that every installation has can read: it may be of any size.
    import pyarrow

    return cast(Source, pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd"))


class _Decompressing:
    """The content of a compressed file."""

    def __init__(self, path: Path, stream: Source) -> None:
        self._path = path
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes of content."""
        try:
            return self._stream.read(size)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise CommandFailedError(
                f"{self._path}: the compressed data is damaged, or not complete ({error})"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def total_bytes(files: Sequence[Path]) -> int | None:
    """Return how many bytes will be read; None where that is not known before."""
    size = 0
    for path in files:
        status = path.stat()
        if is_compressed(path) or not stat.S_ISREG(status.st_mode):
            return None
        size += status.st_size
    return size


_ROTATED: Final = "0123456789-_.T"


def rotated_beside(path: Path) -> Iterator[Path]:
    """Yield the files beside ``path`` whose names say that they held its lines before, those last
    modified first: ``app.log.1``, ``app.log-20260131.gz``, ``app.log.old``.
    """
    found = []
    for each in path.parent.iterdir():
        ending = each.name.removeprefix(path.name)
        if ending == each.name or not ending:
            continue
        for codec in COMPRESSED:
            ending = ending.removesuffix(codec)
        if ending in ("", ".old") or (ending[0] in ".-_" and not ending.strip(_ROTATED)):
            try:
                found.append((each.stat().st_mtime_ns, each))
            except FileNotFoundError:
                continue
    yield from (each for _, each in sorted(found))
