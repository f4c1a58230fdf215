"""`millstream log explain`: how a log finds the record at an offset or a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from millstream.cli.arguments import AsJson, UsageError, timestamp_ms
from millstream.cli.failures import FAILED
from millstream.cli.log_dump import describe_entry, describe_record
from millstream.cli.log_dump_text import moment, record_cells, record_text
from millstream.cli.log_files import DataDirectories, find_partition
from millstream.cli.log_lookup import (
    Compared,
    IndexSearch,
    Lookup,
    look_up_offset,
    look_up_timestamp,
)
from millstream.cli.output import (
    Cell,
    counted,
    human_bytes,
    is_for_a_person,
    print_cells,
    print_line,
)
from millstream.records.batch import Batch
from millstream.storage.directory import LOG, PartitionDirectory, file_name

_SHOWN_SCANNED = 12


def explain(
    partition: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC-PARTITION", help="A partition such as orders-0, or its directory."
        ),
    ],
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", min=0, help="Find the record at this offset.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            "-t",
            help="Find the first record at or after a moment: 2026-01-31T12:00 (UTC), "
            "@MILLISECONDS, or how long ago: 15m.",
        ),
    ] = None,
    data_dir: DataDirectories = None,
    as_json: AsJson = False,
) -> None:
    """Show how a log finds a record.

    It shows the segment (binary search over file names), the entry of its index, the byte position,
    the batches scanned from there, and the record. A timestamp is looked up in the time index
    first. Only files are read; a broker may be running. A damaged batch ends the command with exit
    code 1.
    """
    if (offset is None) == (timestamp is None):
        raise UsageError("give one of --offset and --timestamp")
    directory = find_partition(partition, data_dir)
    if offset is not None:
        target = offset
        lookup = look_up_offset(directory, offset)
    else:
        assert timestamp is not None
        target = timestamp_ms(timestamp, "--timestamp", now_ms=int(time.time() * 1000))
        lookup = look_up_timestamp(directory, target)
    if as_json:
        for step in _steps(lookup):
            print_line(step)
    elif not is_for_a_person():
        place: list[Cell] = [
            directory.topic_partition.topic,
            directory.topic_partition.partition,
        ]
        for row in _cells(lookup):
            print_cells([*place, *row])
    else:
        for line in _lines(directory, lookup, target, is_time=offset is None):
            print(line)
    if lookup.record is None:
        raise typer.Exit(FAILED)


def _cells(lookup: Lookup) -> Iterator[list[Cell]]:
    """Yield rows for a pipe: what the row is about, and what it says of it."""
    yield ["log", lookup.log_start_offset, lookup.log_end_offset, lookup.segment_count]
    yield ["segment", file_name(lookup.segment.base_offset, LOG), lookup.segment.size]
    if lookup.time_index is not None:
        yield ["time index", lookup.time_index.chosen, lookup.time_index.entries]
    yield ["offset index", lookup.offset_index.chosen, lookup.offset_index.entries]
    yield ["position", lookup.position]
    for each in lookup.scanned:
        yield [
            "batch",
            each.position,
            each.first_offset,
            each.last_offset,
            each.size,
            each.is_valid,
        ]
    if lookup.damage is not None:
        yield ["damage", lookup.damage]
    elif lookup.record is not None:
        yield record_cells(describe_record(lookup.record))


def _steps(lookup: Lookup) -> Iterator[dict[str, object]]:
    yield {
        "step": "log",
        "log_start_offset": lookup.log_start_offset,
        "log_end_offset": lookup.log_end_offset,
        "segments": lookup.segment_count,
    }
    yield {"step": "segment", **asdict(lookup.segment)}
    if lookup.time_index is not None:
        yield {"step": "time index", **asdict(lookup.time_index)}
    yield {"step": "offset index", **asdict(lookup.offset_index), "position": lookup.position}
    yield {"step": "scan", "batches": [asdict(scanned) for scanned in lookup.scanned]}
    batch = (
        None if lookup.batch is None else describe_entry(lookup.batch, lookup.scanned[-1].position)
    )
    record = None if lookup.record is None else describe_record(lookup.record)
    yield {"step": "record", "batch": batch, "record": record, "damage": lookup.damage}


def _lines(
    directory: PartitionDirectory, lookup: Lookup, target: int, *, is_time: bool
) -> Iterator[str]:
    wanted = f"time {moment(target)} ({target})" if is_time else f"offset {target}"
    yield f"{directory.topic_partition}: {wanted}"
    yield (
        f"the log holds offsets {lookup.log_start_offset} to {lookup.log_end_offset - 1} in "
        f"{counted(lookup.segment_count, 'segment')} of {directory.path}"
    )
    if is_time:
        rule = f"segment: the first one with a timestamp of at least {target}"
        signs = (f"before {target}", f"reaches {target}")
    else:
        rule = f"segment: the last one whose name is at most {target}, by binary search"
        signs = (f"<= {target}", f"> {target}")
    yield from ("", f"1  {rule}")
    yield from _comparisons(lookup.segment.compared, signs)
    name = file_name(lookup.segment.base_offset, LOG)
    yield f"     chosen    {name}, {human_bytes(lookup.segment.size)}"
    number = 2
    from_offset = f"{target}"
    if lookup.time_index is not None:
        yield from _index(number, "time index", lookup.time_index, target)
        from_offset = "that offset"
        number += 1
    yield from _index(number, "offset index", lookup.offset_index, from_offset)
    yield f"     position  {lookup.position}"
    yield from ("", f"{number + 1}  scan: batch after batch from position {lookup.position} on")
    yield from _scan(lookup)
    yield from ("", f"{number + 2}  record")
    if lookup.damage is not None:
        yield f"     the search ends at damage: {lookup.damage}"
        return
    if lookup.record is None:
        yield f"     there is none at or after {wanted}"
        return
    if not is_time and lookup.record.offset != target:
        yield f"     offset {target} is gone (compaction, or no data): the first one after it is"
    batch = lookup.batch
    if isinstance(batch, Batch) and batch.is_control:
        kind = describe_entry(batch, 0).get("marker", "control")
        when = moment(lookup.record.timestamp)
        yield f"     {lookup.record.offset}  {when}  {kind} marker of producer {batch.producer_id}"
        return
    yield f"     {record_text(describe_record(lookup.record)).strip()}"


def _index(number: int, kind: str, search: IndexSearch, target: int | str) -> Iterator[str]:
    yield ""
    yield f"{number}  {kind}: the last entry of {search.name} at or below {target}"
    yield from _comparisons(search.compared, ("at or below", "beyond"))
    if search.chosen is not None:
        yield f"     chosen    {search.chosen}, one of {search.entries}"
    elif search.entries:
        yield f"     chosen    none: all {search.entries} lie beyond, so the start of the log"
    else:
        yield "     chosen    none: it has no entries, so the start of the log"


def _comparisons(compared: list[Compared], signs: tuple[str, str]) -> Iterator[str]:
    for number, each in enumerate(compared):
        heading = "compared" if number == 0 else ""
        yield f"     {heading:<9} {each.text}  {signs[0] if each.at_most else signs[1]}"


def _scan(lookup: Lookup) -> Iterator[str]:
    scanned = lookup.scanned
    if len(scanned) > _SHOWN_SCANNED:
        yield f"     … {len(scanned) - _SHOWN_SCANNED} batches before these"
    for each in scanned[-_SHOWN_SCANNED:]:
        verdict = "ends before it"
        if each is scanned[-1]:
            if not each.is_valid:
                verdict = "its CRC is wrong"
            elif lookup.record is not None:
                verdict = "holds it"
        yield (
            f"     at {each.position:<9} offsets {each.first_offset}..{each.last_offset}, "
            f"{each.size} bytes, {verdict}"
        )
