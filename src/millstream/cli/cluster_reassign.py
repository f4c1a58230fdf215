"""`millstream cluster reassign`: plan where replicas go, show what it costs, and move them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, Bootstrap, UsageError, connect
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import human_bytes, print_rows
from millstream.client.cluster import Cluster
from millstream.client.placement import Placement, bytes_to_copy, plan_placement
from millstream.client.replicas import ClusterView, list_moves, move_partitions, view_cluster
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_LOOK_EVERY_S: Final = 0.3
_AT_ONCE: Final = 20

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)B?(?:/s)?")
_UNITS: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def reassign(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics to move.", show_default="all"),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ID,…", help="Brokers to be on afterwards.", show_default="all that are alive"
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Move; without it the plan is only shown.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel every move that is under way.")
    ] = False,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Begin moves so that no more than this is copied on average, as 10MB/s. A "
            "partition is copied at full speed.",
        ),
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="Partitions that move at the same time.")
    ] = _AT_ONCE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Spread replicas evenly over brokers: onto new ones, off those left out of --brokers."""
    rate = None if throttle is None else _bytes_per_second(throttle)
    with connect(bootstrap) as cluster:
        if cancel:
            _cancel(cluster)
            return
        view = view_cluster(cluster)
        plan, total = _plan(view, topics, _ids(brokers, view))
        if not plan:
            print("nothing to move: the replicas are where they should be")
            return
        _show(view, plan, total)
        if not execute:
            print("nothing was moved; --execute does it")
            return
        _Mover(cluster, view, plan, rate=rate, at_once=at_once).run()
    print(f"moved {len(plan)} partitions, {human_bytes(total)} copied")


def _bytes_per_second(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is no rate like 10MB/s", param_hint="--throttle")
    return float(match[1]) * _UNITS[match[2]]


def _ids(text: str | None, view: ClusterView) -> list[int]:
    if text is None:
        return sorted(view.brokers)
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise typer.BadParameter(f"{text!r} is no list of broker ids", param_hint="--brokers")
    ids = [int(word) for word in words]
    for broker_id in ids:
        if broker_id not in view.brokers:
            raise CommandFailedError(f"there is no live broker {broker_id}")
    return ids


def _plan(
    view: ClusterView, topics: Sequence[str] | None, brokers: Sequence[int]
) -> tuple[Placement, int]:
    known = {each.place.topic for each in view.partitions}
    for name in topics or ():
        if name not in known:
            raise CommandFailedError(f"there is no topic {name!r}")
    chosen = [each for each in view.partitions if not topics or each.place.topic in topics]
    present = {each.place: each.replicas for each in chosen}
    racks = {broker_id: broker.rack for broker_id, broker in view.brokers.items()}
    try:
        plan = plan_placement(present, brokers, racks)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return plan, bytes_to_copy(present, plan, {each.place: each.size_bytes for each in chosen})


def _show(view: ClusterView, plan: Placement, total: int) -> None:
    present = {each.place: each for each in view.partitions}
    print_rows(
        [
            {
                "partition": str(place),
                "from": list(present[place].replicas),
                "to": list(target),
                "size": human_bytes(present[place].size_bytes),
            }
            for place, target in sorted(plan.items())
        ],
        {"partition": "partition", "from": "from", "to": "to", "size": "size"},
    )
    print(f"{len(plan)} partitions to move, {human_bytes(total)} to copy")


def _cancel(cluster: Cluster) -> None:
    moving = list_moves(cluster)
    outcomes = move_partitions(cluster, dict.fromkeys((each.place for each in moving), None))
    failed = False
    for place, error in sorted(outcomes.items()):
        if error is None or error.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            print(f"canceled the move of {place}")
        else:
            failed = True
            complain(f"{place}: {sentence(error)}")
    if not moving:
        print("nothing moves")
    if failed:
        raise typer.Exit(FAILED)


class _Mover:
    """Begins moves a few at a time and waits until all have ended."""

    def __init__(
        self,
        cluster: Cluster,
        view: ClusterView,
        plan: Placement,
        *,
        rate: float | None,
        at_once: int,
    ) -> None:
        self._cluster = cluster
        present = {each.place: each for each in view.partitions}
        self._cost = {
            place: bytes_to_copy(
                {place: present[place].replicas},
                {place: target},
                {place: present[place].size_bytes},
            )
            for place, target in plan.items()
        }
        self._waiting = dict(sorted(plan.items()))
        self._moving: dict[TopicPartition, Sequence[int]] = {}
        self._rate = rate
        self._at_once = at_once
        self._begun_bytes = 0

    def run(self) -> None:
        """Move everything; CommandFailedError when a move is refused."""
        started = time.monotonic()
        with _MovesBar(sum(self._cost.values()), len(self._cost)) as bar:
            while self._waiting or self._moving:
                self._begin(time.monotonic() - started)
                time.sleep(_LOOK_EVERY_S)
                for place in self._ended():
                    bar.advance(self._cost[place])

    def _begin(self, elapsed_s: float) -> None:
        batch: dict[TopicPartition, Sequence[int]] = {}
        for place, target in list(self._waiting.items()):
            if len(self._moving) + len(batch) >= self._at_once:
                break
            if self._rate is not None and self._begun_bytes > self._rate * elapsed_s:
                break
            batch[place] = target
            self._begun_bytes += self._cost[place]
            del self._waiting[place]
        if not batch:
            return
        for place, error in move_partitions(self._cluster, batch).items():
            if error is not None:
                raise CommandFailedError(f"{place}: {sentence(error)}")
        self._moving.update(batch)

    def _ended(self) -> list[TopicPartition]:
        still: Mapping[TopicPartition, object] = {
            each.place: each for each in list_moves(self._cluster)
        }
        ended = [place for place in self._moving if place not in still]
        for place in ended:
            del self._moving[place]
        return ended


class _MovesBar:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, total_bytes: int, partitions: int) -> None:
        self._bar: Bar | None = None
        self._done = 0
        self._partitions = partitions
        if sys.stderr.isatty():
            self._bar = _new_bar()
            self._task = self._bar.add_task("", total=max(1, total_bytes), done=0, all=partitions)

    def advance(self, moved_bytes: int) -> None:
        """Count a partition that has moved."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=moved_bytes, done=self._done)

    def __enter__(self) -> _MovesBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[done]} of {task.fields[all]} partitions"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
