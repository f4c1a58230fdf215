"""Run pytest, and what failed once more, alone.

``python tools/run_tests.py -n 2 -m "not spark"`` takes pytest's own arguments. Many tests start
brokers, clients and JVMs, or wait on sockets and threads, and share the machine's cores with each
other and with whatever else runs; a time-out there may say that the machine was busy. Up to `MOST`
failed tests get a second attempt, in a pytest of their own with nothing beside it. A test that
fails twice fails the run, so a fault that is always there is found all the same. The end of the
output names the tests that needed both attempts: each is a fault of the test or of Millstream that
somebody should look at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 5
DURATIONS = ("--durations=25", "--durations-min=10")
"""The slowest tests are named at the end: one that takes more than 20 s on a free machine is
`long`."""
TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """Run the tests and answer pytest's exit code."""
    LAST_FAILED.unlink(missing_ok=True)  # pytest keeps failures of tests that were not run again
    code = _pytest(*DURATIONS, *arguments)
    if code != TESTS_FAILED:
        return code
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    if len(failed) > MOST:
        return code
    print(f"\nA second attempt, alone, for: {len(failed)}", *failed, sep="\n  ", flush=True)
    code = _pytest(*failed)
    if code == 0:
        print("\nPassed at the second attempt only:", *failed, sep="\n  ", flush=True)
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
