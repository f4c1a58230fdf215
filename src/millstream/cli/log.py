"""`millstream log`: look at the files of a log directory, without a broker."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.arguments import AsJson
from millstream.cli.coordinator_text import DECODERS
from millstream.cli.log_dump import dump_file
from millstream.cli.log_dump_text import cells, text_lines
from millstream.cli.log_explain import explain
from millstream.cli.log_migrate import migrate
from millstream.cli.log_tree import tree
from millstream.cli.log_verify import verify
from millstream.cli.output import is_for_a_person, print_cells, print_line
from millstream.model.topic import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

app = typer.Typer(help="The files of a log.", no_args_is_help=True)


class Decode(Enum):
    """Whose records a file holds."""

    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


_TOPICS = {
    Decode.OFFSETS: GROUP_METADATA_TOPIC,
    Decode.TRANSACTIONS: TRANSACTION_STATE_TOPIC,
}


@app.callback()
def log() -> None:
    """Look at the files of a log. A broker may be running, but for `migrate`."""


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Any file of a partition's or log directory: .log, .log.damaged-…, .index, "
            ".timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, partition.metadata, the "
            "checkpoints, meta.properties, .kafka_cleanshutdown.",
        ),
    ],
    records: Annotated[
        bool,
        typer.Option("--records", "-r", help="Print the records of a .log, not only its batches."),
    ] = False,
    decode: Annotated[
        Decode | None,
        typer.Option(
            help="Decode records as those of __consumer_offsets or __transaction_state. Automatic "
            "for files in the directory of such a partition."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the contents of files: one line for each batch, index entry or line.

    Into a pipe the lines are tab-separated and begin with the file; with --json each is one JSON
    object. A damaged file is printed up to the damage, and the exit code is 1. Of a file that
    recovery set aside (.log.damaged-…) every complete batch is printed.
    """
    decoder = None if decode is None else DECODERS[_TOPICS[decode]]
    for number, path in enumerate(files):
        entries = dump_file(path, with_records=records or decode is not None, decode=decoder)
        if as_json:
            for entry in entries:
                print_line(entry)
            continue
        if not is_for_a_person():
            for row in cells(entries):
                print_cells([str(path), *row])
            continue
        if len(files) > 1:
            print(f"{'' if number == 0 else chr(10)}{path}")
        for line in text_lines(entries):
            print(line)


app.command()(verify)
app.command()(explain)
app.command()(tree)
app.command()(migrate)
