"""Asks for the offset of one moment after the other, at a steady rate, until it is ended.

It looks up the last moment first, so that every segment is passed over, and random ones then. Run
as ``python -m bench.load.time_lookups SPEC``, SPEC in JSON; it prints a line when it has the first
answer, and the number of answers when it gets SIGTERM.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from bench.admin import Admin
from bench.peers.subject import SubjectFailedError


@dataclass(frozen=True)
class LookupSpec:
    """Partition 0 of ``topic`` at the broker on ``port``, which has records of the moments from
    ``first_ms`` to ``last_ms``.
    """

    host: str
    port: int
    topic: str
    first_ms: int
    last_ms: int
    per_second: int


@contextmanager
def time_lookups(spec: LookupSpec) -> Iterator[None]:
    """Look up moments in a process of their own while the block runs, from the first request on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.load.time_lookups", json.dumps(asdict(spec))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "begins\n":
            raise SubjectFailedError("the look-ups did not begin")
        yield
        process.terminate()
        answers = process.stdout.read().strip()
        if not answers.isdigit() or int(answers) == 0:
            raise SubjectFailedError(f"look-ups by time failed: {answers!r}")
    finally:
        process.kill()
        process.wait()


def main(spec: LookupSpec) -> None:
    """Look up until SIGTERM."""
    ended = False

    def end(number: int, frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    chance = random.Random(7)
    moment, answers = spec.last_ms, 0
    with Admin(spec.host, spec.port) as admin:
        print("begins", flush=True)
        start = time.perf_counter()
        while not ended:
            offsets = admin.offsets(spec.topic, 1, moment)
            if offsets is None or offsets[0] < 0:
                raise SubjectFailedError(f"nothing was found at {moment}: {offsets}")
            answers += 1
            moment = chance.randint(spec.first_ms, spec.last_ms)
            time.sleep(max(0.0, start + answers / spec.per_second - time.perf_counter()))
    print(answers, flush=True)


if __name__ == "__main__":
    main(LookupSpec(**json.loads(sys.argv[1])))
