"""`millstream report`: a loaded access log as a page of charts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.full_disks import naming
from millstream.cli.load import open_session
from millstream.cli.output import counted, print_note, print_rows
from millstream.cli.table_arguments import StorageOptions, TableArgument, existing_table


def report(
    table: TableArgument,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write an HTML page with charts to this file."),
    ] = None,
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Access log",
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    storage_option: StorageOptions = None,
) -> None:
    """Summarize an access log: hits by hour, status, top pages, sessions. Computed by Spark.

    The table must have been loaded with --format text --format-option pattern=access_log.
    """
    from millstream.spark.lakehouse.reading import read_table
    from millstream.spark.lakehouse.report import compute
    from millstream.spark.lakehouse.report_page import page

    found = existing_table(table, storage_option)
    spark = open_session(master)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        figures = compute(read_table(spark, found))
    finally:
        spark.stop()
    print_rows(
        [{"status": each.name, "hits": each.count} for each in figures.statuses],
        {"status": "STATUS", "hits": "HITS"},
    )
    print_note(
        f"{counted(figures.hits, 'hit')} of {counted(figures.clients, 'client')} in "
        f"{counted(figures.sessions, 'session')}; hits per session: median "
        f"{figures.median_session_hits:g}"
    )
    if html is not None:
        with naming(html):
            html.write_text(page(figures, title), encoding="utf-8")
        print_note(f"written to {html}")
