"""`millstream sql`: a SELECT over topics, or over log directories without a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    bootstrap_servers,
    duration_ms,
    key_values,
)
from millstream.cli.client_options import registry_settings, source_settings
from millstream.cli.failures import complain
from millstream.cli.table_arguments import SchemaRegistry, SourceOptions
from millstream.model.errors import ConfigError

_LogDirs: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        help="Read the files of this log directory, of Millstream or Kafka; may be repeated. "
        "Without --bootstrap-server no broker is used.",
    ),
]
_FormatOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Option of the format, as in millstream load; may be repeated."
    ),
]
_TopicFormats: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-format",
        metavar="TOPIC=FORMAT[,KEY=VALUE,…]",
        help="The format of one topic, its options, and schema=FILE; may be repeated.",
    ),
]
_Output: TypeAlias = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="FORMAT FILE",
        help="Write json (one object per line), csv or parquet to a file; - is standard output.",
    ),
]


_Form: TypeAlias = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="auto (json or access-log if the first records are, else raw), raw, text, json, "
        "csv, avro, protobuf or access-log.",
    ),
]
_Schema: TypeAlias = Annotated[
    str | None, typer.Option(help="A schema file, as millstream load writes one.")
]
_MaxRejects: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="SHARE,COUNT",
        help="Stop if more records than this cannot be read, as in millstream load.",
    ),
]
_Lateness: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Maximum lateness of records: with a condition such as _timestamp < … reading "
        "stops at the first record that is later by more than this.",
    ),
]


def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT…", help="Tables are topics.")],
    log_dir: _LogDirs = None,
    form: _Form = "auto",
    format_option: _FormatOptions = None,
    schema: _Schema = None,
    topic_format: _TopicFormats = None,
    output: _Output = None,
    max_rejects: _MaxRejects = "5%",
    lateness: _Lateness = None,
    schema_registry: SchemaRegistry = None,
    option: SourceOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Run a SELECT over topics in place.

    Tables are topics; their columns are the fields of the values and _topic, _partition, _offset,
    _timestamp, _key and _headers. Conditions on partition, offset and time limit what is read;
    EXPLAIN SELECT … shows the limits, EXPLAIN ANALYZE SELECT … what was read.
    """
    from millstream.cli.sql_output import print_result
    from millstream.query.engine import FILE_FORMATS, Query
    from millstream.query.entry import query_settings, rejected, source_options

    is_cold = log_dir is not None and bootstrap == DEFAULT_BOOTSTRAP
    if output is not None and output[0] not in FILE_FORMATS:
        formats_text = ", ".join(FILE_FORMATS)
        raise typer.BadParameter(f"--output: a file is one of {formats_text}, not {output[0]!r}")
    lateness_ms = None if lateness is None else duration_ms(lateness, "--lateness")
    try:
        source = source_options(
            None if is_cold else bootstrap_servers(bootstrap),
            log_dir,
            {**source_settings(), **key_values(option, "--option")},
        )
        formats = (
            form,
            key_values(format_option, "--format-option"),
            schema,
            key_values(topic_format, "--topic-format"),
        )
        settings = query_settings(
            source,
            formats,
            max_rejects=max_rejects,
            lateness_ms=lateness_ms,
            registry=registry_settings(schema_registry),
        )
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    with Query(query, settings) as running:
        if output is not None:
            running.write(output[1], output[0])
        elif running.is_explained:
            _, batches = running.run()
            print(next(batches)["explain"][0])
        else:
            print_result(*running.run())
        if sys.stderr.isatty():
            for name, table in running.tables.items():
                if table.format.is_guessed:
                    complain(f"{name} was read as {table.format.name} (--format says otherwise)")
        for sentence in rejected(running):
            complain(sentence)
