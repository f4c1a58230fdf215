"""Compiles a hostile C program with the sanitizers and runs it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_FLAGS: Final = (
    "-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
)  # fmt: skip
_LIMIT_S: Final = 110


def run_sanitized(directory: Path, program: str, rounds: int, *sources: str) -> None:
    """Build ``tests/native/<program>.c`` with files of ``native/``, all of them unless some are
    named, and run it with a random seed; skip where no compiler has the sanitizers.
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs gcc or clang with its sanitizers")
    native = _ROOT / "native"
    parts = [native / each for each in sources] or sorted(native.glob("*.c"))
    files = [_ROOT / "tests" / "native" / f"{program}.c", *parts]
    built = subprocess.run(
        [compiler, *_FLAGS, *map(str, files), "-o", str(directory / program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if "cannot find" in built.stderr:
        pytest.skip("needs gcc or clang with its sanitizers")
    assert not built.returncode, built.stderr
    seed = random.randrange(2**40)
    done = subprocess.run(
        [directory / program, str(seed), str(rounds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    assert not done.returncode, f"seed {seed}: {done.stdout}{done.stderr}"
