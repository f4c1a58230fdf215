"""What a load asks of a catalogue of Delta tables, whichever it is.

The log in the table's directory is the table: what it holds, its columns, its ledger. The catalogue
maps a name to that directory, and may lend keys to its store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from millstream.model.errors import ConfigError

MANAGED_FEATURES: Final = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")
"""Properties of tables whose commits the catalogue makes: their log alone says too little."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Where a table lies."""

    uri: str
    """In the catalogue's own spelling, such as ``s3a://…`` or ``file:/…``."""
    table_id: str | None = None
    """What the catalogue calls the table when keys are asked for."""


class TableCatalog(Protocol):
    """A catalogue; ``identifier`` is the schema's name and the table's."""

    def find(self, identifier: Sequence[str]) -> Listed | None:
        """Return where a table lies; None if the catalogue does not list it.

        ConfigError if a load cannot write to it.
        """

    def home(self, identifier: Sequence[str]) -> str:
        """Return where a table that is not listed would be made; ConfigError if nothing says it."""

    def keys(self, place: Listed) -> Mapping[str, str]:
        """Return the storage options that the catalogue lends for a place; without an id a table is
        to be made there.
        """

    def add(
        self, identifier: Sequence[str], uri: str, columns: Sequence[Mapping[str, Any]]
    ) -> None:
        """List a table, with its schema if that is not there; nothing if another load has done it.

        ``columns`` are the fields of Delta's schema in JSON.
        """


def refused(name: str, kind: str) -> ConfigError:
    """Return the error for what the catalogue lists under a name and is no table of this kind."""
    return ConfigError(f"{name} is {kind} in its catalogue: a load writes external Delta tables")


def refused_managed(name: str) -> ConfigError:
    """Return the error for a table whose storage is the catalogue's own."""
    return ConfigError(
        f"{name} is a managed table: only its catalogue may commit to it. Load into an external "
        "table: a name that does not exist yet creates one"
    )
