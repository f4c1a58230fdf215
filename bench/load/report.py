"""What a load generator tells: the time it took, what it moved and what that cost in CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
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
    broker_pid: int, work: Callable[[], None], *, requests: int, records: int, moved_bytes: int
) -> LoadReport:
    """Run `work` between two readings of the clock and of both processes' CPU time."""
    broker_before, load_before = cpu_seconds(broker_pid), time.process_time()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return LoadReport(
        seconds=seconds,
        requests=requests,
        records=records,
        moved_bytes=moved_bytes,
        broker_cpu_s=cpu_seconds(broker_pid) - broker_before,
        load_cpu_s=time.process_time() - load_before,
    )
