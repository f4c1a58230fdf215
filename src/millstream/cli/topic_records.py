"""`millstream topic offsets` and `delete-records`: where partitions begin and end, and where they
are to begin.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    open_admin,
    timestamp_ms,
)
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import Row, counted, print_json, print_rows
from millstream.client import Admin
from millstream.client.core.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from millstream.model.topic import TopicPartition

_NAMED: Final[Mapping[str, int]] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
}

Partitions: TypeAlias = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="By default all; may be repeated.", show_default=False),
]
Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC")]


def offsets(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The first record at or after a time (2026-01-31T12:00, @MILLISECONDS, 15m ago), "
            "or max-timestamp, earliest, latest; by default the two ends.",
        ),
    ] = None,
    partition: Partitions = None,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--committed", help="Show the last stable offset as the end (read_committed)."
        ),
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show where partitions begin and end, or the offset of a time (kcat's -Q)."""
    with open_admin(bootstrap, timeout) as admin:
        places = [each for name in names for each in _places(admin, name, partition)]
        if at is None:
            earliest = _found(admin, places, EARLIEST)
            latest = _found(admin, places, LATEST, read_committed=read_committed)
            rows = [_ends_row(each, earliest[each], latest[each]) for each in places]
        else:
            found = _found(admin, places, _moment(at, "--at"), read_committed=read_committed)
            rows = [_row(each, found[each]) for each in places]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {key: key for key in rows[0]})


def delete_records(
    topic: Topic,
    before: Annotated[
        str,
        typer.Option(
            metavar="OFFSET|TIME|end",
            help="Delete records before this offset, or before this time (2026-01-31T12:00, 7d for"
            " seven days ago, @MILLISECONDS); end deletes all current records.",
        ),
    ],
    partition: Partitions = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this only the plan is shown.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Delete the oldest records of a topic permanently."""
    failed = False
    with open_admin(bootstrap, timeout) as admin:
        places = _places(admin, topic, partition)
        plan = _plan(admin, places, before)
        if execute:
            outcomes = admin.delete_records({place: to for place, (_, to) in plan.items()})
            for place, outcome in outcomes.items():
                if outcome.error is not None:
                    failed = True
                    complain(f"{place}: {sentence(outcome.error)}")
                    del plan[place]
    rows: list[Row] = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "from": start,
            "to": to,
            "records": to - start,
        }
        for place, (start, to) in plan.items()
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_rows(rows, {key: key for key in rows[0]})
    offsets_gone = sum(to - start for start, to in plan.values())
    if not execute:
        complain("nothing was deleted: this is the plan, add --execute to carry it out")
    elif not failed and not as_json:
        complain(f"deleted up to {counted(offsets_gone, 'record')} of {topic}")
    if failed:
        raise typer.Exit(FAILED)


def _plan(
    admin: Admin, places: Sequence[TopicPartition], before: str
) -> dict[TopicPartition, tuple[int, int]]:
    """Return where each partition begins and where it is to begin, for those that change."""
    starts = _found(admin, places, EARLIEST)
    ends = _found(admin, places, LATEST)
    if before.isdecimal():
        targets = dict.fromkeys(places, int(before))
        beyond = [each for each in places if targets[each] > _offset(ends[each])]
        if beyond:
            raise CommandFailedError(
                f"{beyond[0]} ends at {_offset(ends[beyond[0]])}: there is no record at {before}"
            )
    elif before == "end":
        targets = {each: _offset(ends[each]) for each in places}
    else:
        found = _found(admin, places, _moment(before, "--before"))
        targets = {each: _offset(found[each] or ends[each]) for each in places}
    return {
        each: (_offset(starts[each]), targets[each])
        for each in places
        if targets[each] > _offset(starts[each])
    }


def _offset(found: FoundOffset | None) -> int:
    return 0 if found is None else found.offset


def _moment(text: str, option: str) -> int:
    if text in _NAMED:
        return _NAMED[text]
    return timestamp_ms(text, option, now_ms=time.time_ns() // 1_000_000)


def _places(admin: Admin, topic: str, partitions: Sequence[int] | None) -> list[TopicPartition]:
    found = admin.describe_topics([topic])[topic].get()
    there = {each.topic_partition.partition for each in found.partitions}
    for number in partitions or ():
        if number not in there:
            raise CommandFailedError(
                f"{topic} has {counted(len(there), 'partition')}, and none is {number}"
            )
    return [TopicPartition(topic, each) for each in sorted(partitions or there)]


def _found(
    admin: Admin, places: Sequence[TopicPartition], at: int, *, read_committed: bool = False
) -> dict[TopicPartition, FoundOffset | None]:
    wanted = dict.fromkeys(places, at)
    return admin.list_offsets(wanted, read_committed=read_committed).get_all()


def _ends_row(
    place: TopicPartition, first: FoundOffset | None, last: FoundOffset | None
) -> dict[str, str | int | None]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "earliest": _offset(first),
        "latest": _offset(last),
        "offsets": _offset(last) - _offset(first),
    }


def _row(place: TopicPartition, found: FoundOffset | None) -> dict[str, str | int | None]:
    known = found is not None and found.timestamp >= 0
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": None if found is None else found.offset,
        "timestamp": found.timestamp if found is not None and known else None,
    }
