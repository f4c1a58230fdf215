"""B6: what a request and a megabyte cost the broker process in CPU time."""

from __future__ import annotations

from bench.session import Session
from bench.tables import Section, cpu_table

CONDITIONS = (
    "user and system time of the broker process alone (/proc/PID/stat, 1/100 s) over the raw rows "
    "of B1, under the conditions of B1",
)


def run(session: Session) -> list[Section]:
    """Read the raw rows of B1 as CPU time; they run now when B1 did not run before."""
    return [cpu_table("B6 · CPU time of the broker", session.raw_results())]
