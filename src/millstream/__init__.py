"""Millstream: a commit log that speaks the Apache Kafka protocol, and a data pipeline on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

__version__ = "0.1.0"


@overload
def sql(
    query: str,
    *,
    bootstrap_servers: str | None = None,
    log_dir: str | Path | Sequence[str | Path] | None = None,
    format: str = "auto",
    format_options: Mapping[str, str] | None = None,
    schema: str | Path | None = None,
    topic_formats: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    max_rejects: str = "5%",
    lateness_ms: int | None = None,
    stream: Literal[False] = False,
) -> pa.Table: ...


@overload
def sql(
    query: str,
    *,
    bootstrap_servers: str | None = None,
    log_dir: str | Path | Sequence[str | Path] | None = None,
    format: str = "auto",
    format_options: Mapping[str, str] | None = None,
    schema: str | Path | None = None,
    topic_formats: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    max_rejects: str = "5%",
    lateness_ms: int | None = None,
    stream: Literal[True],
) -> pa.RecordBatchReader: ...


def sql(
    query: str,
    *,
    bootstrap_servers: str | None = None,
    log_dir: str | Path | Sequence[str | Path] | None = None,
    format: str = "auto",
    format_options: Mapping[str, str] | None = None,
    schema: str | Path | None = None,
    topic_formats: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    max_rejects: str = "5%",
    lateness_ms: int | None = None,
    stream: bool = False,
) -> pa.Table | pa.RecordBatchReader:
    """Run a SELECT over topics, and return its rows as an Arrow table (docs/sql.md).

    Each topic is a table. Topics are read from the cluster at ``bootstrap_servers``, or, without a
    broker, from ``log_dir``: one or several log directories. With both, the offsets come from the
    broker and the records from the files.

    ``format`` is the format of the values, as in loads; ``auto`` derives it from the first records.
    ``format_options`` are its options, ``schema`` is a file with the columns, and ``topic_formats``
    sets the format of single topics: ``{"orders": "avro,definition=orders.avsc"}``. ``settings``
    takes options of ``format("millstream")``, such as ``kafka.security.protocol``, and settings of
    a schema registry, such as ``schema.registry.url``. ``lateness_ms`` limits how late timestamps
    may be (see the page).

    With ``stream`` the result is a RecordBatchReader, which reads on demand: read it to its end, or
    close it.

    Records that cannot be read are skipped, and a log message says how many. If there are more than
    ``max_rejects``, the query fails. Raises QueryError, ConfigError, and errors from reading the
    topics. Needs the extra ``sql``.
    """
    from millstream.query.entry import run

    return run(
        query,
        bootstrap_servers=bootstrap_servers,
        log_dir=log_dir,
        settings=settings or {},
        formats=(format, format_options or {}, schema, topic_formats or {}),
        max_rejects=max_rejects,
        lateness_ms=lateness_ms,
        stream=stream,
    )
