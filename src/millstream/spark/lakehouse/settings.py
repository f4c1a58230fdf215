"""The settings of a load: source, table, format, freshness."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats import KINDS, check_options
from millstream.spark.lakehouse.partitioning import PartitionField
from millstream.spark.lakehouse.reject_limit import RejectLimit
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.lakehouse.table import TableName, open_merge_table
from millstream.spark.locations.location import Location, as_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_FILE_BYTES: Final = 128 << 20
DEFAULT_BATCH_BYTES: Final = 2 << 30
MOST_MERGED_BYTES: Final = 256 << 20
"""The most bytes of log in one batch of upserts, whose changes the driver holds in memory."""
MODES: Final = ("append", "upsert")
DEFAULT_DRIVER_BYTES: Final = 8 << 20
DEFAULT_FRESHNESS_MS: Final = 10_000
_IN_PATHS: Final = re.compile(r"[\w@+$().-]([\w@+$() .-]*[\w@+$().-])?")
"""Names of columns that every reader of a table can parse from ``name=2024-01-31/``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """One load.

    ``source`` are options of ``format("millstream")``: the topics, where to start, the broker.
    ``app_id`` is the load's permanent name: the table stores its offsets under it.
    """

    source: Mapping[str, str] = field(repr=False)
    table: TableName
    app_id: str = ""
    format: str = "raw"
    format_options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "append"
    """``append``: a row for each record. ``upsert``: the newest row of each key."""
    key: Sequence[str] = ()
    """With ``upsert``: the columns that identify a row; (): the record's key."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings ``schema.registry.…``: where the schemas are that records name by id."""
    schema_file: Location | None = None
    """The schema file, written once by inference and read afterwards; None: inside the table's
    directory.
    """
    event_time: str | None = None
    """A timestamp column whose day splits the table into directories."""
    partition_column: str = "date"
    partition_by: Sequence[PartitionField] = ()
    """Transforms that split an Iceberg table. The day of one column alone becomes ``event_time``,
    which every kind of table has.
    """
    sort_by: Sequence[SortField] = ()
    """The order of the rows in each file, of a Delta or an Iceberg table. An Iceberg table keeps
    it; (): that of the table.
    """
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the table format, for a table that the load makes."""
    follow: bool = False
    freshness_ms: int = DEFAULT_FRESHNESS_MS
    """With ``follow``: about the longest time until a record is written."""
    file_bytes: int = DEFAULT_FILE_BYTES
    batch_bytes: int = DEFAULT_BATCH_BYTES
    driver_bytes: int = DEFAULT_DRIVER_BYTES
    """A batch of one task up to this size is written by the driver itself: a Spark job costs more.
    """
    dead_letters: bool = True
    """False: a record that cannot be decoded ends the load."""
    max_rejects: RejectLimit = field(default_factory=RejectLimit)
    """How many records may be dead letters before the load ends."""
    dead_letters_topic: str | None = None
    """A topic to which dead letters are sent besides their table."""
    maintain_every_ms: int | None = None
    """With ``follow``: the interval of maintenance; None: never."""
    group_id: str | None = None
    """The consumer group that offsets are committed to; None: named after the table and its path;
    "": none.
    """
    parallelism: int | None = None
    """Tasks that run at the same time; None: as many as Spark, or this machine, has cores for."""
    query: Callable[[DataFrame], DataFrame] | None = None
    """A query that transforms the source's columns, instead of a format (transform)."""

    def __post_init__(self) -> None:
        if self.schema_file is not None:
            object.__setattr__(self, "schema_file", as_location(self.schema_file))
        if self.format not in KINDS:
            raise ConfigError(f"a format is one of {', '.join(KINDS)}, not {self.format!r}")
        check_options(self.format, self.format_options)
        for name in ("freshness_ms", "file_bytes", "batch_bytes", "parallelism"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        self._check_mode()
        self._settle_partitions()
        if not _IN_PATHS.fullmatch(self.partition_column):
            raise ConfigError(
                f"partition_column {self.partition_column!r} cannot be part of file paths: "
                "it takes letters, digits, spaces and any of _ - . @ + $ ( )"
            )
        if self.maintain_every_ms is not None and self.maintain_every_ms <= 0:
            raise ConfigError(f"maintain_every_ms must be above 0, not {self.maintain_every_ms}")
        if self.dead_letters_topic and (self.format == "raw" or not self.dead_letters):
            raise ConfigError("a topic for dead letters needs a format, and dead letters")
        if self.dead_letters_topic and self._reads(self.dead_letters_topic):
            raise ConfigError(
                f"topic {self.dead_letters_topic} gets the dead letters and is itself loaded: each "
                "would come back for ever"
            )
        if self.query is not None and self.format != "raw":
            raise ConfigError("a query decodes the values itself: remove the format")

    def _settle_partitions(self) -> None:
        if self.sort_by and self.table.kind == "parquet":
            raise ConfigError(
                f"{self.table}: the Parquet log keeps rows in the order of their offsets; a Delta "
                "or an Iceberg table can be sorted"
            )
        fields = tuple(self.partition_by)
        if not fields:
            return
        if self.event_time is not None:
            raise ConfigError(
                "the table is split by the event time or by the partitions that are named, not by "
                f"both: name day({self.event_time}) among the partitions"
            )
        if len(fields) == 1 and fields[0].transform == "day":
            object.__setattr__(self, "event_time", fields[0].column)
            object.__setattr__(self, "partition_by", ())
        elif self.table.kind != "iceberg":
            raise ConfigError(
                f"{self.table}: a {self.table.kind} table is split by the day of one column, "
                f"day(COLUMN), and not by {', '.join(map(str, fields))}; an Iceberg table can be"
            )

    def _check_mode(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"a mode is one of {', '.join(MODES)}, not {self.mode!r}")
        if not self.is_upsert:
            if self.key:
                raise ConfigError("a key is for mode upsert: a table of all records has none")
            if self.format == "debezium":
                raise ConfigError(
                    "format debezium is for mode upsert; format json keeps every change as a row, "
                    "with the columns before, after and op"
                )
            return
        if self.table.kind == "parquet":
            open_merge_table(self.table)
        if self.query is not None:
            raise ConfigError("mode upsert takes a format and no query")
        if self.format == "debezium" and not self.key:
            raise ConfigError("format debezium needs the key: the columns of the primary key")
        if len(set(self.key)) < len(self.key):
            raise ConfigError(f"the key names a column twice: {', '.join(self.key)}")

    @property
    def is_upsert(self) -> bool:
        """True if the table has one row for each key."""
        return self.mode == "upsert"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns that identify a row, () for a table of all records."""
        if not self.is_upsert:
            return ()
        return tuple(self.key) or ("key" if self.format == "raw" else "_key",)

    @property
    def batch_limit(self) -> int:
        """Return the most bytes of log in a batch."""
        return min(self.batch_bytes, MOST_MERGED_BYTES) if self.is_upsert else self.batch_bytes

    @property
    def load_id(self) -> str:
        """Return the app id, by default made of what is subscribed to."""
        if self.app_id:
            return self.app_id
        wanted = {name.lower(): text for name, text in self.source.items()}
        for name in ("subscribe", "subscribepattern", "assign"):
            if name in wanted:
                return f"load:{wanted[name]}"
        return "load"

    def _reads(self, topic: str) -> bool:
        wanted = {name.lower(): text for name, text in self.source.items()}
        if "subscribepattern" in wanted:
            return re.fullmatch(wanted["subscribepattern"], topic) is not None
        return topic in [name.strip() for name in wanted.get("subscribe", "").split(",")]

    @property
    def group(self) -> str:
        """Return the consumer group that offsets are committed to, "" for none.

        By default it ends with eight digits of the table's name: ``dev/orders`` and ``prod/orders``
        are two groups.
        """
        if self.group_id is None:
            mark = hashlib.blake2b(str(self.table).encode(), digest_size=4).hexdigest()
            return f"millstream-{self.table.path.name}-{mark}"
        return self.group_id
