"""What a load generator tells: the time it took, what it moved and what that cost in CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bench.process import cpu_seconds


@dataclass(frozen=True)
class LoadReport:
    """One run. Bytes are record batches (raw load) or record values (C client), 1 MB = 10^6."""

    seconds: float
    requests: int
    records: int
    moved_bytes: int
    broker_cpu_s: float
    load_cpu_s: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> LoadReport:
        return LoadReport(**json.loads(line))


def measured(
    broker_pids: Sequence[int],
    work: Callable[[], None],
    *,
    requests: int,
    records: int,
    moved_bytes: int,
    settle: Callable[[], None] | None = None,
) -> LoadReport:
    """Run `work` between two readings of the clock and of all processes' CPU time.

    The time ends with `work`. The CPU time of the brokers, taken together, ends after `settle`:
    what they still do then belongs to the load as well.
    """
    broker_before, load_before = _cpu_seconds(broker_pids), time.process_time()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    load_cpu_s = time.process_time() - load_before
    if settle is not None:
        settle()
    return LoadReport(
        seconds=seconds,
        requests=requests,
        records=records,
        moved_bytes=moved_bytes,
        broker_cpu_s=_cpu_seconds(broker_pids) - broker_before,
        load_cpu_s=load_cpu_s,
    )


def _cpu_seconds(pids: Sequence[int]) -> float:
    return sum(map(cpu_seconds, pids))
