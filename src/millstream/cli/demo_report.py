"""What the demo prints: what happens, tables, comparisons, and the time of each step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from millstream.cli.output import human_bytes, human_duration
from millstream.storage.directory import parse_directory_name, parse_file_name
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex


class Report:
    """Prints as things happen; ``differences`` counts the comparisons that failed."""

    def __init__(self) -> None:
        self.differences = 0
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print a step's name and take its time."""
        self._console.print(f"▸ {name}", style="bold")
        started = time.monotonic()
        yield
        self._steps.append((name, time.monotonic() - started))

    def say(self, text: str) -> None:
        """Print one line under the step."""
        self._console.print(f"  {text}")

    def check(self, what: str, found: object, expected: object) -> None:
        """Compare a result with the input."""
        if found == expected:
            self._console.print(f"  ✓ {what}: equal to the input", style="green")
            return
        self.differences += 1
        self._console.print(f"  ✗ {what}: {found} instead of {expected}", style="red")

    def statuses(self, counts: Counter[str]) -> None:
        """Print hits by status."""
        table = _table("hits by status, from Parquet", ["status", "hits", "share"])
        total = sum(counts.values())
        for status, count in counts.most_common():
            table.add_row(status or "(none)", f"{count:,}", f"{count / total:.1%}")
        self._console.print(table)

    def segments(self, data_directory: Path, topic: str) -> None:
        """Print a topic's segment files and the entries of their indexes."""
        table = _table(
            "segments and indexes",
            ["partition", "segment", "log", "offset index", "time index"],
        )
        for directory in sorted(data_directory.iterdir()):
            named = parse_directory_name(directory.name)
            if named is None or named[0].topic != topic:
                continue
            for segment in sorted(directory.glob("*.log")):
                if parse_file_name(segment.name) is not None:
                    table.add_row(
                        str(named[0].partition),
                        segment.stem,
                        human_bytes(segment.stat().st_size),
                        f"{_entries(segment.with_suffix('.index'), OffsetIndex.entry.size)}",
                        f"{_entries(segment.with_suffix('.timeindex'), TimeIndex.entry.size)}",
                    )
        self._console.print(table)

    def times(self) -> None:
        """Print how long each step took."""
        table = _table("time of each step", ["step", "took"])
        for name, seconds in self._steps:
            table.add_row(name, human_duration(seconds))
        table.add_row("all steps", human_duration(sum(took for _, took in self._steps)))
        self._console.print(table)


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _entries(path: Path, entry_bytes: int) -> str:
    """Return how many entries an index holds; preallocated zeros are none."""
    if not path.exists():
        return "-"
    used = len(path.read_bytes().rstrip(b"\0"))
    return f"{-(-used // entry_bytes)} entries"
