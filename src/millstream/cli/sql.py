"""`millstream sql`: a SELECT over topics, or over log directories without a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    UsageError,
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
    str | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write to a file, which appears when it is whole; - is standard output. Its ending "
        "(.json, .jsonl, .csv, .parquet) says in which format, or one of the three options below.",
    ),
]
_AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
_AsCsv: TypeAlias = Annotated[
    bool, typer.Option("--csv", help="Print CSV, the first line with the names of the columns.")
]
_AsParquet: TypeAlias = Annotated[
    bool, typer.Option("--parquet", help="Write Parquet, to a file or into a pipe.")
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
    query: Annotated[
        str,
        typer.Argument(metavar="SELECT…", help="Tables are topics; - reads standard input."),
    ],
    log_dir: _LogDirs = None,
    form: _Form = "auto",
    format_option: _FormatOptions = None,
    schema: _Schema = None,
    topic_format: _TopicFormats = None,
    output: _Output = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    as_parquet: _AsParquet = False,
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
    from millstream.cli.sql_output import chosen_output, print_result
    from millstream.query.engine import Query
    from millstream.query.entry import query_settings, rejected, source_options

    is_cold = log_dir is not None and bootstrap == DEFAULT_BOOTSTRAP
    written = chosen_output(output, {"json": as_json, "csv": as_csv, "parquet": as_parquet})
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
    with Query(_text(query), settings) as running:
        if written is not None:
            running.write(written.path, written.format)
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


def _text(query: str) -> str:
    """Return the query, which may come from standard input."""
    if query != "-":
        return query
    text = sys.stdin.read()
    if not text.strip():
        raise UsageError("- reads the query from standard input, which is empty")
    return text
