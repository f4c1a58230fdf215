"""A place for files: a directory of a file system, or a prefix of an object store.

Tables are written through this interface alone, so they are the same in both. A location of a file
system is a :class:`pathlib.Path` besides; one of a store is a URI.

::

    lake/clicks, file:///lake/clicks                         a directory
    s3://bucket/clicks, s3a://…                              Amazon S3, and stores with its API
    gs://bucket/clicks                                       Google Cloud Storage
    abfss://container@account.dfs.core.windows.net/clicks    Azure Data Lake Storage
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.model.errors import ConfigError, MillstreamError

if TYPE_CHECKING:
    import pyarrow as pa

STORES: Final = ("s3", "s3a", "gs", "gcs", "abfss", "abfs", "az")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class StoreError(MillstreamError):
    """An object store has not answered, or has refused a request; whether a write was done is not
    known.
    """


class StoreRefusedError(MillstreamError):
    """The keys that were given do not permit a request."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file below a location."""

    path: str
    """Relative to the location."""
    size_bytes: int
    modified_s: float
    """When it was written, in seconds since 1970."""


class Location(Protocol):
    """One file or directory. Every method looks at the storage again: nothing is cached.

    An object store has no directories: one is there if a file below it is.
    """

    @property
    def name(self) -> str:
        """The last part of the path."""

    @property
    def stem(self) -> str:
        """The name without its suffix."""

    @property
    def parent(self) -> Location:
        """The directory."""

    @property
    def parents(self) -> Sequence[Location]:
        """All directories above, the nearest first."""

    @property
    def is_local(self) -> bool:
        """True in a file system of this machine."""

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What the store's client was told besides the environment; it holds secrets."""

    def __truediv__(self, name: str) -> Location:
        """Return what lies below."""

    def with_name(self, name: str) -> Location:
        """Return what lies beside."""

    def filled(self, field: str, text: str) -> Location:
        """Return the location with ``text`` wherever ``field`` stands in it."""

    def uri(self) -> str:
        """Return the name under which libraries find it: a path, or the store's URI."""

    def is_file(self) -> bool:
        """True if there is a file."""

    def is_dir(self) -> bool:
        """True if there is a directory."""

    def entries(self) -> list[str]:
        """Return the names of what lies directly in a directory; [] if there is none."""

    def found_files(self) -> Iterator[FoundFile]:
        """Yield all files below, in directories too."""

    def size_bytes(self) -> int:
        """Return the size of a file. FileNotFoundError if it is not there."""

    def read_bytes(self) -> bytes:
        """Return a file's content. FileNotFoundError if it is not there."""

    def replace_with(self, data: bytes) -> None:
        """Write a file, whole and durably, over one that is there."""

    def create(self, data: bytes) -> None:
        """Write a file, whole and durably. FileExistsError if it is there: of two processes that
        do this at once, only one succeeds. OSError on a file system without links.
        """

    def rename_to(self, target: Location) -> None:
        """Move a file, over one that is there. FileNotFoundError if there is none.

        In a store it is copied and then deleted: for an instant both are there.
        """

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file."""

    def remove_all(self) -> None:
        """Delete a directory with everything below."""

    def renew(self) -> None:
        """Set the time at which a file was written to the present. FileNotFoundError if there is
        none.
        """

    def open_input(self) -> Any:
        """Return what pyarrow reads a file from: a path or a file object."""

    def open_output(self) -> pa.NativeFile:
        """Open a new file for writing. It is there, whole and durable, when :meth:`settle` has
        returned after the file was closed.
        """

    def settle(self) -> None:
        """Make a file that was written through :meth:`open_output` and closed durable."""

    def make_directory(self) -> None:
        """Make a directory with those above it; nothing in a store."""

    def check_commits(self) -> None:
        """Raise ConfigError unless :meth:`create` keeps what it says here."""


def as_location(place: Location | Path | str) -> Location:
    """Return the location of a path, or the location itself."""
    from millstream.spark.locations.directories import LocalPath

    if isinstance(place, str):
        return parse_location(place)
    return LocalPath(place) if isinstance(place, Path) else place


def parse_location(
    text: str, base: Path = Path(), storage_options: Mapping[str, str] = MappingProxyType({})
) -> Location:
    """Read a path or a URI; ConfigError says what is wrong.

    A relative path starts from ``base``. A leading ``~`` is expanded. ``storage_options`` go to the
    client of the store, over those of the environment.
    """
    from millstream.spark.locations.directories import LocalPath

    text = text.removeprefix("file://")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalPath((base / Path(text).expanduser()).absolute())
    if scheme[1].lower() not in STORES:
        raise ConfigError(
            f"{text}: tables lie in a local or mounted directory, or in a store: s3://, gs://, "
            "abfss://"
        )
    from millstream.spark.locations.object_stores import parse_store_path

    return parse_store_path(text, storage_options)
