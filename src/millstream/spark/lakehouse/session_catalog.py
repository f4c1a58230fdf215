"""A catalogue of the Spark session: ``spark_catalog``, or any that Spark's settings name.

It is asked in SQL, which Spark Connect has too. The session is that of the load, else the active
one, else a new one with the settings of ``spark-defaults.conf``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.table_catalog import (
    MANAGED_FEATURES,
    Listed,
    refused,
    refused_managed,
)

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Row, SparkSession

SPARK_CATALOG: Final = "spark_catalog"
"""The catalogue that every session has: Spark's own metastore, or Hive's."""
_DETAILS: Final = "# Detailed Table Information"
_NO_DELTA: Final = frozenset(
    {"DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"}
)
T = TypeVar("T")
_offered: Final[list[Callable[[], SparkSession]]] = []


@contextlib.contextmanager
def offering(make_session: Callable[[], SparkSession] | None) -> Iterator[None]:
    """Let catalogues use this session meanwhile, which is made when the first one needs it."""
    if make_session is None:
        yield
        return
    _offered.append(make_session)
    try:
        yield
    finally:
        _offered.remove(make_session)


def is_there() -> bool:
    """Tell whether a session is there, or one is offered."""
    return bool(_offered) or _active() is not None


class SessionCatalog:
    """See :class:`millstream.spark.lakehouse.table_catalog.TableCatalog`."""

    def __init__(self, name: str, warehouse: str | None) -> None:
        self._name = name
        self._warehouse = warehouse

    def find(self, identifier: Sequence[str]) -> Listed | None:
        """See :class:`TableCatalog`."""
        name = ".".join((self._name, *identifier))
        setting = f"spark.sql.catalog.{self._name}"
        if self._name != SPARK_CATALOG and _session().conf.get(setting, None) is None:
            raise ConfigError(
                f"catalogue {self._name}: the Spark session has none of that name ({setting}); one "
                "of Unity Catalog needs the storage option uri"
            )
        # Asked first: Spark logs each statement that fails, with its traces.
        if not self._try(lambda: _session().catalog.tableExists(self._quoted(identifier))):
            return None
        details = _details(self._rows(f"DESCRIBE TABLE EXTENDED {self._quoted(identifier)}"))
        if details.get("Type", "").endswith("VIEW"):
            raise refused(name, "a view")
        provider = details.get("Provider", "").lower()
        if provider != "delta":
            raise refused(name, f"a table of format {provider or 'unknown'}")
        if any(each in details.get("Table Properties", "") for each in MANAGED_FEATURES):
            raise refused_managed(name)
        if not details.get("Location"):
            raise ConfigError(
                f"{name}: the catalogue of the Spark session does not say where it is"
            )
        return Listed(details["Location"])

    def home(self, identifier: Sequence[str]) -> str:
        """See :class:`TableCatalog`. Where Spark would make it: in the directory of the schema."""
        *schema, table = identifier
        if self._warehouse is not None:
            return "/".join((self._warehouse.rstrip("/"), *schema, table))
        found: str | None = None
        if self._try(lambda: _session().catalog.databaseExists(self._quoted(schema))):
            rows = self._rows(f"DESCRIBE SCHEMA EXTENDED {self._quoted(schema)}")
            found = {row[0]: row[1] for row in rows}.get("Location")
        elif self._name == SPARK_CATALOG:
            root = str(_session().conf.get("spark.sql.warehouse.dir"))
            found = f"{root.rstrip('/')}/{schema[0]}.db"
        if not found:
            raise ConfigError(
                f"{'.'.join((self._name, *identifier))} does not exist, and the catalogue has no "
                "location for it: set the storage option warehouse=URI"
            )
        return f"{found.rstrip('/')}/{table}"

    def keys(self, place: Listed) -> Mapping[str, str]:
        """See :class:`TableCatalog`. None: Spark's settings hold keys for Spark alone."""
        return {}

    def add(
        self, identifier: Sequence[str], uri: str, columns: Sequence[Mapping[str, Any]]
    ) -> None:
        """See :class:`TableCatalog`. Spark reads the columns from the log."""
        *schema, _ = identifier
        self._rows(f"CREATE SCHEMA IF NOT EXISTS {self._quoted(schema)}")
        place = uri.replace("\\", "\\\\").replace("'", "\\'")
        self._rows(
            f"CREATE TABLE IF NOT EXISTS {self._quoted(identifier)} USING delta LOCATION '{place}'"
        )

    def _quoted(self, identifier: Sequence[str]) -> str:
        return ".".join(f"`{each}`" for each in (self._name, *identifier))

    def _rows(self, statement: str) -> list[Row]:
        return self._try(lambda: _session().sql(statement).collect())

    def _try(self, act: Callable[[], T]) -> T:
        """Ask the session; ConfigError for what it refuses."""
        _session()
        from pyspark.errors import AnalysisException, ParseException

        try:
            return act()
        except (AnalysisException, ParseException) as error:
            raise self._failure(_condition(error), error) from None

    def _failure(self, condition: str, error: PySparkException) -> ConfigError:
        if condition.partition(".")[0] in _NO_DELTA:
            return ConfigError(
                f"catalogue {self._name}: the Spark session knows no Delta tables: give it the jar "
                "of delta-spark, spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
                "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
            )
        return ConfigError(f"catalogue {self._name} of the Spark session: {_first_line(error)}")


def _details(rows: Sequence[Row]) -> dict[str, str]:
    """Return what stands behind the columns of a table that is described."""
    names = [row[0] for row in rows]
    first = len(names) - names[::-1].index(_DETAILS) if _DETAILS in names else 0
    return {row[0]: row[1] or "" for row in rows[first:]}


def _condition(error: PySparkException) -> str:
    return error.getCondition() or ""


def _first_line(error: PySparkException) -> str:
    return re.sub(r"\s+SQLSTATE:.*", "", str(error).strip().partition("\n")[0])


def _active() -> SparkSession | None:
    if importlib.util.find_spec("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _session() -> SparkSession:
    if _offered:
        return _offered[-1]()
    active = _active()
    if active is not None:
        return active
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(
            "a catalogue of the Spark session needs Spark: pip install 'millstream[spark]'"
        )
    from millstream.spark.sessions import start_session

    made = start_session(
        "millstream",
        master="local[*]",
        settings={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"},
    )
    made.sparkContext.setLogLevel("ERROR")
    return made
