"""Run pytest, and what failed once more, alone.

``python tools/run_tests.py -n 2 -m "not spark"`` takes pytest's own arguments. Many tests start
brokers, clients and JVMs, or wait on sockets and threads, and share the machine's cores with each
other and with whatever else runs; a time-out there may say that the machine was busy. Up to `MOST`
failed tests get a second attempt, in a pytest of their own with nothing beside it. A test that
fails twice fails the run, so a fault that is always there is found all the same. The end of the
output names the tests that needed both attempts: each is a fault of the test or of Millstream that
somebody should look at.

``-n 4 -m "not spark" --beside -m spark`` runs pytest twice at the same time: tests of Spark share
one JVM in one process and compute, most others are many and wait. ``--checks mypy lint-imports --``
before all other arguments runs programs of this environment beside the tests too, one after the
other; what they print comes after the tests, and one that fails fails the run.

pytest rewrites the assertions of every test file when it imports it. For all files that takes most
of a minute of CPU, and each worker of ``-n`` would do it for itself, so they are rewritten before
the first worker starts, on all cores, and kept in ``__pycache__``, whatever
``PYTHONDONTWRITEBYTECODE`` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q")
MOST = 5
DURATIONS = ("--durations=25", "--durations-min=10")
"""The slowest tests are named at the end: one that takes more than 20 s on a free machine is
`long`."""
TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED
CACHES = (Path(".pytest_cache"), Path(".pytest_cache_beside"))
LAST_FAILED = Path("v/cache/lastfailed")
BESIDE = "--beside"
CHECKS = "--checks"
TESTS = Path("tests")
FEW = 100
"""So many files are rewritten as fast by the workers."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests and answer pytest's exit code, or 1 where a check alone has failed."""
    checks: Sequence[str] = ()
    if arguments[:1] == [CHECKS]:
        end = arguments.index("--")
        checks, arguments = arguments[1:end], arguments[end + 1 :]
    with beside(checks) as checked:
        code = run_tests(arguments)
        return code if checked() else code or TESTS_FAILED


@contextlib.contextmanager
def beside(checks: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """Run these programs of the environment; what is yielded waits for them, shows what they
    printed, and answers whether all went well.
    """
    programs = " && ".join(
        shlex.quote(str(Path(sys.executable).with_name(each))) for each in checks
    )
    with tempfile.TemporaryFile() as output:
        if not checks:
            yield lambda: True
            return
        running = subprocess.Popen(["sh", "-c", programs], stdout=output, stderr=output)

        def checked() -> bool:
            code = running.wait()
            print(f"\nBeside the tests ran: {', '.join(checks)}", flush=True)
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
            return code == 0

        yield checked


def run_tests(arguments: Sequence[str]) -> int:
    """Run the tests, what failed a second time, and answer pytest's exit code."""
    runs = [list(arguments)]
    if BESIDE in runs[0]:
        place = runs[0].index(BESIDE)
        runs = [runs[0][:place], runs[0][place + 1 :]]
    rewrite(stale())
    codes = run_beside(runs)
    code = next((each for each in codes if each), 0)
    if not code or any(each not in (0, TESTS_FAILED) for each in codes):
        return code
    failed = sorted(each for cache in CACHES[: len(runs)] for each in last_failed(cache))
    if len(failed) > MOST:
        return code
    print(f"\nA second attempt, alone, for: {len(failed)}", *failed, sep="\n  ", flush=True)
    code = _pytest(*failed).wait()
    if code == 0:
        print("\nPassed at the second attempt only:", *failed, sep="\n  ", flush=True)
    return code


def run_beside(runs: Sequence[Sequence[str]]) -> list[int]:
    """Run pytest with each of the lists of arguments, all at once, and answer the exit codes. The
    output of the first is shown as it comes, that of another when those before it have ended.
    """
    with contextlib.ExitStack() as files:
        running: list[tuple[subprocess.Popen[bytes], IO[bytes] | None]] = []
        for arguments, cache in zip(runs, CACHES, strict=False):
            (cache / LAST_FAILED).unlink(missing_ok=True)  # pytest keeps what was not run again
            output = files.enter_context(tempfile.TemporaryFile()) if running else None
            options = (*DURATIONS, "-o", f"cache_dir={cache}", *arguments)
            running.append((_pytest(*options, output=output), output))
        codes = []
        for process, kept in running:
            codes.append(process.wait())
            if kept is not None:
                kept.seek(0)
                print(f"\nBeside it ran: {' '.join(runs[len(codes) - 1])}", flush=True)
                shutil.copyfileobj(kept, sys.stdout.buffer)
                sys.stdout.flush()
        return codes


def last_failed(cache: Path) -> list[str]:
    """Return the tests that failed in the run with this cache."""
    found = cache / LAST_FAILED
    return list(json.loads(found.read_text())) if found.exists() else []


def stale() -> list[Path]:
    """Return the test files whose rewritten form is not in the cache, or older than they are."""
    ending = f".{sys.implementation.cache_tag}-pytest-{version('pytest')}.pyc"
    found = []
    for each in sorted(TESTS.rglob("test_*.py")):
        kept = each.parent / "__pycache__" / (each.stem + ending)
        if not kept.exists() or kept.stat().st_mtime < each.stat().st_mtime:
            found.append(each)
    return found


def rewrite(files: Sequence[Path]) -> None:
    """Let pytest rewrite these files, in a process for each core; a few are not worth that.

    Errors are not looked at: the run that follows shows them.
    """
    if len(files) < FEW:
        return
    cores = os.cpu_count() or 1
    running = [
        subprocess.Popen(
            [*PYTEST, "--collect-only", *map(str, files[first::cores])],
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for first in range(cores)
    ]
    for each in running:
        each.wait()


def _pytest(*arguments: str, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    errors = None if output is None else subprocess.STDOUT
    return subprocess.Popen([*PYTEST, *arguments], env=_environment(), stdout=output, stderr=errors)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
