"""``python -m millstream.sim --seed 7 --seconds 60``: run seeds and say what they came to.

Exits with 1 when a seed finds something wrong; the same seed gives the same trace. Times are of the
processor, not of the clock on the wall: one core does the work.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from millstream.sim.cluster import Report, SimCluster
from millstream.sim.coordinator_workload import Kind


def commit() -> str:
    """Return the commit that runs, "unknown" where there is no repository."""
    try:
        found = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def seed_range(text: str) -> range:
    """Return the seeds of ``FIRST-LAST``; ValueError for what is none."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def seeds_of(options: argparse.Namespace) -> range:
    """Return the seeds to run."""
    return options.seeds or range(options.seed, options.seed + 1)


def show(report: Report, elapsed_s: float) -> None:
    """Print one seed's outcome."""
    simulated_s = report.simulated_ms / 1_000
    state = "WRONG" if report.problems else "ok"
    print(
        f"seed {report.seed}: {state}, {simulated_s:.0f} s simulated in {elapsed_s:.1f} s "
        f"({simulated_s / max(elapsed_s, 1e-9):.0f} a second), {report.events} events, "
        f"trace {report.trace_hash}",
        flush=True,
    )
    for problem in report.problems[:10]:
        print(f"    {problem}", flush=True)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m millstream.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=seed_range, help="several: FIRST-LAST")
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual time with faults")
    parser.add_argument(
        "--with",
        dest="kinds",
        type=Kind,
        action="append",
        default=[],
        help=f"only these clients of coordinators: {', '.join(each.value for each in Kind)}",
    )
    parser.add_argument("--log", action="store_true", help="show the brokers' log")
    options = parser.parse_args()
    level = logging.INFO if options.log else logging.CRITICAL
    logging.basicConfig(level=level, format="%(name)s %(message)s")
    print(f"commit {commit()}", flush=True)
    sometimes: Counter[str] = Counter()
    wrong: list[int] = []
    simulated_ms = 0.0
    began = time.process_time()
    for seed in seeds_of(options):
        start = time.process_time()
        report = SimCluster(seed, kinds=options.kinds).run(options.seconds)
        show(report, time.process_time() - start)
        sometimes.update(report.sometimes)
        simulated_ms += report.simulated_ms
        if report.problems:
            wrong.append(seed)
    elapsed_s = time.process_time() - began
    for name, count in sorted(sometimes.items()):
        print(f"{count:10}  {name}")
    count = len(seeds_of(options))
    print(
        f"{count} seeds: {simulated_ms / 1000 / elapsed_s:.1f} simulated seconds and "
        f"{count / elapsed_s:.2f} seeds for each second of CPU time"
    )
    if wrong:
        print(f"wrong: {', '.join(map(str, wrong))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
