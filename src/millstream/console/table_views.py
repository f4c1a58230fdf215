"""`/api/tables`: how far the loads into some tables are, and how large the tables have become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.model.errors import ConfigError, MillstreamError


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A topic and the table it is loaded into, such as ``delta:lake/hits``."""

    topic: str
    table: str

    @staticmethod
    def parse(text: str) -> ShownTable:
        """Read ``TOPIC=KIND:PLACE``; ConfigError for anything else."""
        topic, equals, table = text.partition("=")
        if not (equals and topic and ":" in table):
            raise ConfigError(f"--table {text}: write TOPIC=KIND:PLACE, as hits=delta:lake/hits")
        return ShownTable(topic, table)


def tables_view(
    tables: Sequence[ShownTable],
    source: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> Mapping[str, object]:
    """Return a row for each table; one that cannot be read has its error in its row.

    ``source`` are options of the Spark source (``kafka.bootstrap.servers``, security). Reads the
    tables and asks the brokers: call it off the event loop. Needs the extra ``lake``.
    """
    return {"tables": [_row(each, source, storage_options or {}) for each in tables]}


def _row(
    shown: ShownTable, source: Mapping[str, str], storage_options: Mapping[str, str]
) -> Mapping[str, object]:
    row: dict[str, object] = {"table": shown.table, "topic": shown.topic}
    try:
        row.update(_state(shown, source, storage_options))
    except ModuleNotFoundError as error:
        row["error"] = f"{error.name} is missing: pip install 'millstream[lake]'"
    except (MillstreamError, OSError) as error:
        row["error"] = str(error)
    return row


def _state(
    shown: ShownTable, source: Mapping[str, str], storage_options: Mapping[str, str]
) -> Mapping[str, object]:
    from millstream.spark.lakehouse.lag import table_positions
    from millstream.spark.lakehouse.table import open_table, parse_table_name
    from millstream.spark.options import load_source, parse_options

    table = open_table(parse_table_name(shown.table, storage_options=dict(storage_options)))
    if not table.exists():
        raise ConfigError(f"there is no table {shown.table}")
    options = parse_options(load_source({**source, "subscribe": shown.topic}), streaming=True)
    positions = table_positions(options, table, f"load:{shown.topic}")
    files = set(table.files())
    return {
        "lag": sum(max(end - position, 0) for position, end in positions.values()),
        "files": len(files),
        "bytes": sum((table.data_directory / path).size_bytes() for path in files),
    }
