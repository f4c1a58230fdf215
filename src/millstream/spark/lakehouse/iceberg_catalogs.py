"""Catalogues of Iceberg tables: those of the environment by name, and one of a directory's own.

``iceberg:CATALOG.NAMESPACE.TABLE`` is a table of a catalogue that pyiceberg knows: one of
``~/.pyiceberg.yaml`` or of the environment (``PYICEBERG_CATALOG__PROD__URI`` for one that is named
``prod``), with the storage options over it (``type``, ``uri``, ``warehouse``, ``token``, …). REST,
SQL, Glue and Hive catalogues are served. The catalogue decides which of two commits counts, and
where the table lies.

``iceberg:PATH`` is a table of a directory with a catalogue of its own, the SQLite file
``PATH/catalog.db``, under the name ``millstream.<last part of PATH>``: one machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from millstream.model.errors import ConfigError
from millstream.platform import lock_file
from millstream.spark.locations.directories import LocalPath
from millstream.spark.locations.location import Location, parse_location
from millstream.spark.locations.named import NamedPlace, plain_uri

_OWN_NAMESPACE: Final = "millstream"
_DEAD_LETTERS: Final = "_dead_letters"
_CATALOG_FILE: Final = "catalog.db"
_SQL_TABLES: Final = 2
_LOCK_WAIT_S: Final = 60
"""How long a question or a commit waits for locks of others on a SQLite catalogue: SQLite's own 5 s
are too short for a copy that a backup makes, or for a disk that is slow to flush another's commit.
"""
_KEYS_S: Final = 600
_OF_FILE_IO: Final[Mapping[str, str]] = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "gcs.oauth2.token": "GOOGLE_BEARER_TOKEN",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN",
    "adls.tenant-id": "AZURE_STORAGE_TENANT_ID",
    "adls.client-id": "AZURE_STORAGE_CLIENT_ID",
    "adls.client-secret": "AZURE_STORAGE_CLIENT_SECRET",
}
"""What pyiceberg calls an option of a store, and what `obstore` calls it."""


class IcebergHome(Protocol):
    """The catalogue of one table, and the table's place."""

    @property
    def path(self) -> Location:
        """The directory of the table."""

    @property
    def identifier(self) -> tuple[str, ...]:
        """The table's name in the catalogue."""

    @property
    def own_files(self) -> Sequence[str]:
        """The catalogue's files inside the table's directory."""

    def is_there(self) -> bool:
        """True if there is a catalogue."""

    def catalog(self) -> Catalog:
        """Return the catalogue."""

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from committing meanwhile, where that is possible: a load that
        commits continuously would starve maintenance.
        """


def home_of(place: Location) -> IcebergHome:
    """Return the catalogue of a table; ConfigError if none can be there."""
    if isinstance(place, CatalogPath):
        return NamedCatalog(place)
    if isinstance(place, LocalPath):
        return OwnCatalog(place)
    raise ConfigError(
        f"iceberg:{place}: an Iceberg table in an object store needs a catalogue, which decides "
        "which of two commits counts: name it iceberg:CATALOG.NAMESPACE.TABLE"
    )


class OwnCatalog:
    """The SQLite catalogue of a directory."""

    own_files = (_CATALOG_FILE, f"{_CATALOG_FILE}-journal")

    def __init__(self, path: LocalPath) -> None:
        self.path = path
        self.identifier = (_OWN_NAMESPACE, re.sub(r"[^A-Za-z0-9_]", "_", path.name) or "table")

    def is_there(self) -> bool:
        """See :class:`IcebergHome`."""
        return (self.path / _CATALOG_FILE).is_file()

    def catalog(self) -> Catalog:
        """See :class:`IcebergHome`.

        A catalogue without its two SQL tables gets them here. Another process may make one of them
        between the look and the making; each such failure leaves one less to make.
        """
        catalog = self._open()
        for _ in range(_SQL_TABLES):
            with contextlib.suppress(OperationalError):
                catalog.create_tables()
                return catalog
        catalog.create_tables()
        return catalog

    def _open(self) -> SqlCatalog:
        url = URL.create(
            "sqlite",
            database=str(self.path / _CATALOG_FILE),
            query={"timeout": str(_LOCK_WAIT_S)},
        )
        catalog = SqlCatalog(
            "millstream",
            uri=url.render_as_string(),
            warehouse=file_uri(self.path),
            init_catalog_tables="false",
        )
        # Nobody closes a catalogue: it is to keep no connection between two questions.
        catalog.engine.dispose()
        catalog.engine = create_engine(url, poolclass=NullPool)
        return catalog

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See :class:`IcebergHome`. The catalogue is on one machine: a file lock is enough."""
        path = self.path / "_millstream" / "lock"
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as file:
            lock_file(file.fileno())
            yield


class NamedCatalog:
    """A catalogue of the environment."""

    own_files = ()

    def __init__(self, place: CatalogPath) -> None:
        self._place = place
        self.identifier = place.identifier

    @property
    def path(self) -> Location:
        """See :class:`IcebergHome`."""
        return self._place.place()

    def is_there(self) -> bool:
        """True: one that cannot be reached is an error."""
        return True

    def catalog(self) -> Catalog:
        """See :class:`IcebergHome`."""
        return _catalog(os.getpid(), self._place.catalog, self._place.options)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """See :class:`IcebergHome`: nothing, the catalogue alone decides."""
        return contextlib.nullcontext()


class CatalogPath(NamedPlace):
    """The name of an Iceberg table in a catalogue of the environment."""

    __slots__ = ()

    def place(self) -> Location:
        """See :class:`NamedPlace`."""
        # Keys that a catalogue lends end after a while: it is asked again.
        period = int(time.monotonic() // _KEYS_S)
        return _place(os.getpid(), self, self.options, period)

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Those of the catalogue."""
        return dict(self.options)

    def check_commits(self) -> None:
        """Do nothing: the catalogue decides which of two commits counts."""


def parse_catalog_name(text: str, storage_options: Mapping[str, str]) -> CatalogPath:
    """Read ``CATALOG.NAMESPACE.TABLE``."""
    catalog, *identifier = text.split(".")
    return CatalogPath(catalog, tuple(identifier), tuple(sorted(storage_options.items())))


def make_namespace(catalog: Catalog, identifier: tuple[str, ...]) -> None:
    """Make the namespace of a table, unless it is there."""
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(identifier[:-1])


@lru_cache(maxsize=16)
def _catalog(process: int, name: str, options: tuple[tuple[str, str], ...]) -> Catalog:
    given = dict(options)
    properties = {
        of_io: given[of_store] for of_io, of_store in _OF_FILE_IO.items() if of_store in given
    }
    properties |= {key: text for key, text in given.items() if key not in _OF_FILE_IO.values()}
    try:
        return load_catalog(name, **properties)
    except ValueError as error:
        raise ConfigError(
            f"catalogue {name}: {error}. Name its type and uri in ~/.pyiceberg.yaml, in the "
            f"environment (PYICEBERG_CATALOG__{name.upper()}__URI) or by storage options; a "
            f"directory of that name is written ./{name}"
        ) from None


@lru_cache(maxsize=64)
def _place(
    process: int, name: CatalogPath, options: tuple[tuple[str, str], ...], period: int
) -> Location:
    catalog = _catalog(process, name.catalog, options)
    try:
        table: Any = catalog.load_table(name.identifier)
        uri, properties = table.location(), table.io.properties
    except NoSuchTableError:
        if name.name.endswith(_DEAD_LETTERS):
            # Beside the table, whose place is fixed: they have files before they are a table.
            table_name = name.with_name(name.name[: -len(_DEAD_LETTERS)])
            beside = _place(process, table_name, options, period)
            return beside.with_name(f"{beside.name}{_DEAD_LETTERS}")
        make_namespace(catalog, name.identifier)
        staged: Any = catalog.create_table_transaction(
            name.identifier, schema=pa.schema([("offset", pa.int64())])
        )
        uri, properties = staged.table_metadata.location, staged._table.io.properties
    given = {
        of_store: properties[of_io]
        for of_io, of_store in _OF_FILE_IO.items()
        if properties.get(of_io)
    }
    if given.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        given["AWS_ALLOW_HTTP"] = "true"
    return parse_location(plain_uri(uri), storage_options=given)


def file_uri(place: Location) -> str:
    """Return the URI of a place in pyiceberg's form: it does not decode the escapes of a URI."""
    return f"file://{place.uri()}" if place.is_local else place.uri()
