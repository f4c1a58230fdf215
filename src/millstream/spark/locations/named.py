"""Places that a catalogue knows: a table's name in it stands for a directory."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from millstream.spark.locations.location import FoundFile, Location

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NamedPlace(ABC):
    """A table's name in a catalogue, in the place of a directory: the catalogue is asked where that
    is when the first file is.
    """

    catalog: str
    identifier: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.identifier))

    @abstractmethod
    def place(self) -> Location:
        """Return the table's directory. ConfigError if the catalogue does not name one."""

    @property
    def name(self) -> str:
        """Return the table's own name."""
        return self.identifier[-1]

    @property
    def stem(self) -> str:
        """See :class:`Location`."""
        return self.name

    @property
    def parent(self) -> Location:
        """See :class:`Location`."""
        return self.place().parent

    @property
    def parents(self) -> Sequence[Location]:
        """See :class:`Location`."""
        return self.place().parents

    @property
    def is_local(self) -> bool:
        """See :class:`Location`."""
        return self.place().is_local

    @property
    def storage_options(self) -> Mapping[str, str]:
        """See :class:`Location`."""
        return self.place().storage_options

    def __truediv__(self, name: str) -> Location:
        """Return what lies in the table's directory."""
        return self.place() / name

    def with_name(self, name: str) -> Self:
        """Return another table of the namespace."""
        return replace(self, identifier=(*self.identifier[:-1], name))

    def filled(self, field: str, text: str) -> Self:
        """See :class:`Location`; what no catalogue takes in a name becomes ``_``."""
        text = as_identifier(text)
        return replace(
            self, identifier=tuple(each.replace(field, text) for each in self.identifier)
        )

    def uri(self) -> str:
        """See :class:`Location`."""
        return self.place().uri()

    def is_file(self) -> bool:
        """See :class:`Location`."""
        return self.place().is_file()

    def is_dir(self) -> bool:
        """See :class:`Location`."""
        return self.place().is_dir()

    def entries(self) -> list[str]:
        """See :class:`Location`."""
        return self.place().entries()

    def found_files(self) -> Iterator[FoundFile]:
        """See :class:`Location`."""
        return self.place().found_files()

    def size_bytes(self) -> int:
        """See :class:`Location`."""
        return self.place().size_bytes()

    def read_bytes(self) -> bytes:
        """See :class:`Location`."""
        return self.place().read_bytes()

    def replace_with(self, data: bytes) -> None:
        """See :class:`Location`."""
        self.place().replace_with(data)

    def create(self, data: bytes) -> None:
        """See :class:`Location`."""
        self.place().create(data)

    def rename_to(self, target: Location) -> None:
        """See :class:`Location`."""
        self.place().rename_to(target)

    def unlink(self, missing_ok: bool = False) -> None:
        """See :class:`Location`."""
        self.place().unlink(missing_ok)

    def remove_all(self) -> None:
        """See :class:`Location`."""
        self.place().remove_all()

    def renew(self) -> None:
        """See :class:`Location`."""
        self.place().renew()

    def open_input(self) -> Any:
        """See :class:`Location`."""
        return self.place().open_input()

    def open_output(self) -> pa.NativeFile:
        """See :class:`Location`."""
        return self.place().open_output()

    def settle(self) -> None:
        """See :class:`Location`."""
        self.place().settle()

    def make_directory(self) -> None:
        """See :class:`Location`."""
        self.place().make_directory()

    def check_commits(self) -> None:
        """See :class:`Location`."""
        self.place().check_commits()


def as_identifier(text: str) -> str:
    """Return a text as a part of a name in a catalogue: what none takes becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def place_of(location: Location) -> Location:
    """Return where files lie: what a catalogue says now, for a name of one."""
    return location.place() if isinstance(location, NamedPlace) else location


def plain_uri(uri: str) -> str:
    """Return the URI of a file as this package writes it; Spark and Trino write ``file:/path``, the
    path alone, or ``s3a://``.
    """
    if uri.startswith(("s3a://", "s3n://")):
        return f"s3{uri[3:]}"
    if uri.startswith("/") or uri.startswith("file:"):
        return f"file://{re.sub('^file:(//[^/]*)?', '', uri)}"
    return uri
