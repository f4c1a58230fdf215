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
    """Run a SELECT over topics, and return its rows as an Arrow table; docs/sql.md.

    Tables of the query are topics of the cluster at ``bootstrap_servers``, or of ``log_dir``, one
    log directory or several, which needs no broker; with both the broker tells the offsets and the
    files hold the records. Values are read as ``format`` says (as in loads; ``auto`` looks at the
    first records), with ``format_options``, with the columns of the file ``schema``; those of
    single topics as in ``{"orders": "avro,definition=orders.avsc"}``. ``settings`` are options of
    ``format("millstream")``, such as ``kafka.security.protocol``, and those of a schema registry,
    such as ``schema.registry.url``, for values that name their schemas. ``lateness_ms``: see the
    page.

    With ``stream`` the result is a RecordBatchReader, which reads as it is read; close it, or read
    it to its end.

    Records that cannot be read are left out, with a warning in the log that counts them;
    ``max_rejects`` is how many there may be. Raises QueryError, ConfigError, and the errors of
    reading. Needs the extra ``sql``.
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
