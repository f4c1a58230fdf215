"""From what a caller gives to a query's settings; behind :func:`millstream.sql` and the command."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.query.engine import Query
from millstream.query.settings import QuerySettings, TopicFormat
from millstream.schemas.settings import is_registry_setting
from millstream.spark.lakehouse.reject_limit import in_words, parse_reject_limit
from millstream.spark.locations.location import as_location

log = logging.getLogger(__name__)

PathText: TypeAlias = str | Path
Formats: TypeAlias = tuple[str, Mapping[str, str], PathText | None, Mapping[str, str]]
"""The format of all topics, its options, its schema file, and the formats of single topics."""


def run(
    query: str,
    *,
    bootstrap_servers: str | None,
    log_dir: PathText | Sequence[PathText] | None,
    settings: Mapping[str, str],
    formats: Formats,
    max_rejects: str,
    lateness_ms: int | None,
    stream: bool,
) -> pa.Table | pa.RecordBatchReader:
    """Run a query; see :func:`millstream.sql`."""
    registry = {name: text for name, text in settings.items() if is_registry_setting(name)}
    of_source = {name: text for name, text in settings.items() if name not in registry}
    chosen = query_settings(
        source_options(bootstrap_servers, log_dir, of_source),
        formats,
        max_rejects=max_rejects,
        lateness_ms=lateness_ms,
        registry=registry,
    )
    running = Query(query, chosen)
    try:
        schema, batches = running.run()
    except BaseException:
        running.close()
        raise
    rows = _until_closed(running, batches)
    if stream:
        return pa.RecordBatchReader.from_batches(schema, rows)
    return pa.Table.from_batches(list(rows), schema)


def source_options(
    bootstrap_servers: str | None,
    log_dir: PathText | Sequence[PathText] | None,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return the options of the source; ConfigError when nothing names one."""
    source = dict(settings)
    if log_dir is not None:
        directories = [log_dir] if isinstance(log_dir, str | Path) else list(log_dir)
        source["logDirs"] = ",".join(map(str, directories))
    if bootstrap_servers is not None:
        source["kafka.bootstrap.servers"] = bootstrap_servers
    if not {"kafka.bootstrap.servers", "logdirs"} & {name.lower() for name in source}:
        raise ConfigError("a query needs bootstrap_servers, log_dir, or both")
    return source


def query_settings(
    source: Mapping[str, str],
    formats: Formats,
    *,
    max_rejects: str,
    lateness_ms: int | None,
    registry: Mapping[str, str] | None = None,
) -> QuerySettings:
    """Return the settings of a query; ConfigError names what is wrong."""
    kind, options, schema, topic_formats = formats
    schema_file = None if schema is None else as_location(str(schema))
    try:
        limit = parse_reject_limit(max_rejects)
    except ConfigError as error:
        raise ConfigError(f"max_rejects: {error}") from None
    return QuerySettings(
        source=source,
        format=TopicFormat(kind=kind, options=options, schema_file=schema_file),
        topic_formats={name: topic_format(text) for name, text in topic_formats.items()},
        max_rejects=limit,
        lateness_ms=lateness_ms,
        registry=registry or {},
    )


def topic_format(text: str) -> TopicFormat:
    """Read ``avro,definition=FILE,framing=confluent``; ``schema=FILE`` names the schema file."""
    kind, *items = text.split(",")
    options: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"the format of a topic is FORMAT,KEY=VALUE,…, not {text!r}")
        options[name.strip()] = value
    schema = options.pop("schema", None)
    path = None if schema is None else as_location(schema)
    return TopicFormat(kind=kind.strip(), options=options, schema_file=path)


def rejected(query: Query) -> list[str]:
    """Return a sentence for each topic of which records were left out."""
    sentences = []
    for name, table in query.tables.items():
        found = max((scan.rejects for scan in table.scans), key=lambda r: r.count, default=None)
        if found is not None and found.count:
            sentences.append(
                f"{found.count:,} records of {name} cannot be read as {table.format.name} and are "
                f"left out: {in_words(found.reasons)}"
            )
    return sentences


def _until_closed(query: Query, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
        for sentence in rejected(query):
            log.warning("%s", sentence)
    finally:
        query.close()
