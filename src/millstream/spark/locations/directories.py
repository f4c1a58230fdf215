"""Locations in a file system of this machine, or one that is mounted."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.platform import flush_directory, flush_file
from millstream.spark.locations.location import FoundFile, Location

if TYPE_CHECKING:
    import pyarrow as pa


class LocalPath(PosixPath):
    """A path, with the operations of :class:`Location`.

    What is written survives a loss of power once the method has returned.
    """

    @property
    def is_local(self) -> bool:
        """True."""
        return True

    @property
    def storage_options(self) -> Mapping[str, str]:
        """None."""
        return MappingProxyType({})

    def filled(self, field: str, text: str) -> LocalPath:
        """See :class:`Location`."""
        return LocalPath(str(self).replace(field, text))

    def uri(self) -> str:
        """Return the path."""
        return str(self)

    def entries(self) -> list[str]:
        """See :class:`Location`."""
        return os.listdir(self) if self.is_dir() else []

    def found_files(self) -> Iterator[FoundFile]:
        """See :class:`Location`."""
        for path in self.rglob("*") if self.is_dir() else ():
            try:
                status = path.stat()
            except FileNotFoundError:  # somebody has removed it meanwhile
                continue
            if path.is_file():
                yield FoundFile(str(path.relative_to(self)), status.st_size, status.st_mtime)

    def size_bytes(self) -> int:
        """See :class:`Location`."""
        return self.stat().st_size

    def replace_with(self, data: bytes) -> None:
        """See :class:`Location`."""
        temporary = self._written(data)
        os.replace(temporary, self)
        flush_directory(self.parent)

    def create(self, data: bytes) -> None:
        """See :class:`Location`."""
        temporary = self._written(data)
        try:
            os.link(temporary, self)
        finally:
            temporary.unlink()
        flush_directory(self.parent)

    def _written(self, data: bytes) -> Path:
        made = [each for each in self.parents if not each.is_dir()]
        self.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.with_name(f"{self.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            flush_file(file.fileno())
        for each in made:
            flush_directory(each.parent)
        return temporary

    def rename_to(self, target: Location) -> None:
        """See :class:`Location`."""
        path = Path(target.uri())
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self, path)

    def remove_all(self) -> None:
        """See :class:`Location`."""
        shutil.rmtree(self, ignore_errors=True)

    def renew(self) -> None:
        """See :class:`Location`."""
        os.utime(self)

    def open_input(self) -> str:
        """See :class:`Location`."""
        return str(self)

    def open_output(self) -> pa.NativeFile:
        """See :class:`Location`."""
        import pyarrow as pa

        self.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(self), "wb")

    def settle(self) -> None:
        """See :class:`Location`."""
        descriptor = os.open(self, os.O_RDONLY)  # a file, which is no directory to be flushed
        try:
            flush_file(descriptor)
        finally:
            os.close(descriptor)
        flush_directory(self.parent)

    def make_directory(self) -> None:
        """See :class:`Location`."""
        self.mkdir(parents=True, exist_ok=True)

    def check_commits(self) -> None:
        """Do nothing: a link is made once."""
