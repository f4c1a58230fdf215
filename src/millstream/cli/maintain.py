"""`millstream maintain`: small files joined, old states forgotten, orphans removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.arguments import AsJson, duration_ms, size_bytes
from millstream.cli.output import Row, counted, is_for_a_person, print_json, print_rows
from millstream.cli.table_arguments import StorageOptions, TableArgument, existing_table

if TYPE_CHECKING:
    from millstream.spark.lakehouse.maintain import Maintenance


def maintain(
    table: TableArgument,
    app_id: Annotated[
        str, typer.Option("--app-id", help="Also remove what this load left behind.")
    ] = "",
    file_size: Annotated[
        str, typer.Option(help="Target size; files smaller than half of it are joined.")
    ] = "128MB",
    keep: Annotated[
        str, typer.Option(help="How long readers may use old versions of the table.")
    ] = "7d",
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Join small files, remove versions of the table older than --keep, and delete files that no
    version refers to.

    Loads may run at the same time.
    """
    from millstream.spark.lakehouse.maintain import maintain as run_maintenance

    done = run_maintenance(
        existing_table(table, storage_option),
        app_id,
        target_bytes=size_bytes(file_size, "--file-size"),
        keep_ms=duration_ms(keep, "--keep"),
    )
    if as_json:
        print_json(
            {
                "compacted": done.compaction.removed,
                "written": done.compaction.added,
                "expired": done.expired_files,
                "orphans": done.orphans,
                "files": dict(done.histogram),
            }
        )
        return
    if not is_for_a_person():
        _print_figures(done)
        return
    print(
        f"{counted(done.compaction.removed, 'file')} joined into {done.compaction.added}, "
        f"{counted(done.expired_files, 'old file')} and {counted(done.orphans, 'orphan')} removed"
    )
    largest = max((count for _, count in done.histogram), default=0) or 1
    for name, count in done.histogram:
        print(f"{name:>10}  {'#' * (40 * count // largest):<40} {count}")


def _print_figures(done: Maintenance) -> None:
    """Print rows for a pipe: what was done, and how many files of which size are left."""
    figures: list[Row] = [
        {"name": "joined", "count": done.compaction.removed},
        {"name": "written", "count": done.compaction.added},
        {"name": "expired", "count": done.expired_files},
        {"name": "orphans", "count": done.orphans},
    ]
    figures += [{"name": f"files {size}", "count": count} for size, count in done.histogram]
    print_rows(figures, {"name": "name", "count": "count"})
