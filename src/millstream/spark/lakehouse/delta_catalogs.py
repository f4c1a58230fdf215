"""Delta tables by their names in a catalogue: Unity Catalog, or one of the Spark session.

``delta:CATALOG.SCHEMA.TABLE`` is a table of

* Unity Catalog, by its REST API, where the storage option ``uri`` names the server, or the
  environment does (``MILLSTREAM_CATALOG__PROD__URI`` for a catalogue ``prod``, ``DATABRICKS_HOST``
  for any);
* the Spark session, with ``type=spark``, for the name ``spark_catalog``, and for any other name if
  a session is there.

Further options, each in the environment too: ``token``, and ``warehouse``, the place in which new
tables are made as ``WAREHOUSE/SCHEMA/TABLE``. All others are those of the store.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.config.properties import CATALOG_PREFIX
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse import session_catalog
from millstream.spark.lakehouse.session_catalog import SPARK_CATALOG, SessionCatalog
from millstream.spark.lakehouse.table_catalog import Listed, TableCatalog
from millstream.spark.lakehouse.unity import UnityCatalog
from millstream.spark.locations.location import Location, parse_location
from millstream.spark.locations.named import NamedPlace, plain_uri

TYPES: Final = ("unity", "spark")
_OWN_OPTIONS: Final = ("type", "uri", "token", "warehouse")
_DEAD_LETTERS: Final = "_dead_letters"
_ASKED_AGAIN_S: Final = 600
_OWN_KEYS: Final = re.compile(
    r"(aws_)?(access_key_id|skip_signature)|(azure_storage_)?(account_key|access_key|sas_token|sas_key)"
    r"|(azure_)?(storage_)?client_secret|(google_)?(service_account(_key|_path)?|bearer_token)",
    re.IGNORECASE,
)
"""Storage options that are keys to a store: with them none are asked of the catalogue."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a catalogue has said of a name."""

    place: Location
    uri: str
    is_listed: bool
    asked_s: float


_known: Final[dict[tuple[int, DeltaCatalogPath, tuple[tuple[str, str], ...]], _Known]] = {}


class DeltaCatalogPath(NamedPlace):
    """The name of a Delta table in a catalogue."""

    __slots__ = ()

    def place(self) -> Location:
        """See :class:`NamedPlace`. A table that is not listed has the place where it would be."""
        known = _known.get(self._key)
        # Keys that a catalogue lends end after a while: it is asked again.
        if known is None or time.monotonic() - known.asked_s > _ASKED_AGAIN_S:
            known = self._ask()
        return known.place

    def is_listed(self) -> bool:
        """Ask the catalogue whether it lists the table."""
        catalog = self._catalog()
        found, known = catalog.find(self.identifier), _known.get(self._key)
        if found is None:
            _known.pop(self._key, None)
        elif known is None or not known.is_listed or known.uri != found.uri.rstrip("/"):
            self._keep(catalog, found, is_listed=True)
        return found is not None

    def add(self, columns: Sequence[Mapping[str, Any]]) -> None:
        """List the table, unless it is listed; its log is there. ``columns`` are Delta's."""
        known = self._ask()
        if known.is_listed:
            return
        self._catalog().add(self.identifier, known.uri, columns)
        now = self._ask()
        if now.place != known.place:
            raise ConfigError(
                f"{self}: another load has made the table meanwhile, at {now.place}; what was made "
                f"at {known.place} is no table of the catalogue"
            )

    @property
    def _key(self) -> tuple[int, DeltaCatalogPath, tuple[tuple[str, str], ...]]:
        return os.getpid(), self, self.options

    def _catalog(self) -> TableCatalog:
        return catalog_of(self.catalog, dict(self.options))

    def _ask(self) -> _Known:
        catalog = self._catalog()
        found = catalog.find(self.identifier)
        if found is not None:
            return self._keep(catalog, found, is_listed=True)
        uri = self._beside(catalog) or catalog.home(self.identifier)
        return self._keep(catalog, Listed(uri), is_listed=False)

    def _keep(self, catalog: TableCatalog, found: Listed, *, is_listed: bool) -> _Known:
        uri = found.uri.rstrip("/")
        options = {name: text for name, text in self.options if name not in _OWN_OPTIONS}
        options |= catalog.keys(found)
        place = parse_location(plain_uri(uri), storage_options=options)
        known = _Known(place, uri, is_listed, time.monotonic())
        _known[self._key] = known
        return known

    def _beside(self, catalog: TableCatalog) -> str | None:
        """Return where new dead letters lie: they have files before they are a table, beside their
        table, whose place is fixed. None for other tables.
        """
        if not self.name.endswith(_DEAD_LETTERS):
            return None
        own = catalog.find(self.with_name(self.name[: -len(_DEAD_LETTERS)]).identifier)
        return None if own is None else f"{own.uri.rstrip('/')}{_DEAD_LETTERS}"


def parse_delta_name(text: str, storage_options: Mapping[str, str]) -> DeltaCatalogPath:
    """Read ``CATALOG.SCHEMA.TABLE``."""
    catalog, *identifier = text.split(".")
    return DeltaCatalogPath(catalog, tuple(identifier), tuple(sorted(storage_options.items())))


def catalog_of(name: str, options: Mapping[str, str]) -> TableCatalog:
    """Return the catalogue of a name; ConfigError if nothing says which one is meant."""

    def given(key: str) -> str | None:
        return options.get(key) or os.environ.get(_variable(name, key))

    kind, uri, token = given("type"), given("uri"), given("token")
    if kind not in (None, *TYPES):
        raise ConfigError(f"catalogue {name}: its type is one of {', '.join(TYPES)}, not {kind!r}")
    if kind is None and uri is None and (name == SPARK_CATALOG or not _has_databricks()):
        kind = "spark" if name == SPARK_CATALOG or session_catalog.is_there() else None
        if kind is None:
            raise ConfigError(
                f"catalogue {name}: nothing says where it is. Name the server of Unity Catalog "
                f"(storage option uri, {_variable(name, 'uri')} or DATABRICKS_HOST), or say "
                "type=spark for a catalogue of the Spark session; a directory of that name is "
                "written ./NAME"
            )
    if kind == "spark":
        return SessionCatalog(name, given("warehouse"))
    if uri is None and _has_databricks():
        uri, token = os.environ["DATABRICKS_HOST"], token or os.environ.get("DATABRICKS_TOKEN")
    if uri is None:
        raise ConfigError(
            f"catalogue {name}: Unity Catalog needs the address of its server: storage option uri, "
            f"{_variable(name, 'uri')} or DATABRICKS_HOST"
        )
    lends = not any(_OWN_KEYS.fullmatch(each) for each in options)
    return UnityCatalog(name, uri, token, given("warehouse"), lends=lends)


def _variable(name: str, key: str) -> str:
    return f"{CATALOG_PREFIX}{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}__{key.upper()}"


def _has_databricks() -> bool:
    return bool(os.environ.get("DATABRICKS_HOST"))
