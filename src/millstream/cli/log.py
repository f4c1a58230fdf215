"""`millstream log`: look at the files of a log directory, without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.log_dump import dump_file

app = typer.Typer(help="The files of a log.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """The files of a log."""


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Any file of a partition's or log directory: .log, .index, .timeindex, .txnindex, "
            ".snapshot, leader-epoch-checkpoint, partition.metadata, the checkpoints, "
            "meta.properties.",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of a .log, not its batches alone.")
    ] = False,
) -> None:
    """Print what files hold: a line of JSON for each batch, index entry or line.

    A damaged file is printed up to the damage, and the exit code is 1.
    """
    for path in files:
        for entry in dump_file(path, with_records=records):
            print(json.dumps(entry, ensure_ascii=False))
