"""The cleaner's part of the kernel: that it is there, and hostile input under the sanitizers."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from millstream.records import cleaner_kernel, kernel

ROOT = Path(__file__).parents[3]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def test_it_comes_with_the_kernel() -> None:
    if kernel.library() is None:
        assert cleaner_kernel.cleaner_library() is None
    else:
        found = cleaner_kernel.cleaner_library()
        assert found is not None, "build it again: python native/build.py"
        assert found.abi() == cleaner_kernel.ABI


def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaner_kernel.cleaner_library.cache_clear()
    monkeypatch.setattr(cleaner_kernel, "ABI", cleaner_kernel.ABI + 1)
    assert cleaner_kernel.cleaner_library() is None
    monkeypatch.undo()
    cleaner_kernel.cleaner_library.cache_clear()


def test_hostile_batches_stay_inside_their_buffers(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no compiler with sanitizers")
    program = tmp_path / "hostile"
    native = ROOT / "native"
    sources = [
        ROOT / "tests" / "native" / "hostile_cleaner.c",
        native / "cleaner.c",
        native / "crc32c.c",
    ]
    command = [compiler, "-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", *SANITIZE]
    built = subprocess.run(
        [*command, *map(str, sources), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    if "cannot find" in built.stderr:
        pytest.skip("no compiler with sanitizers")
    assert not built.returncode, built.stderr
    seed = random.randrange(2**40)
    done = subprocess.run(
        [program, str(seed), "5000"], capture_output=True, text=True, check=False, timeout=110
    )
    assert not done.returncode, f"seed {seed}: {done.stdout}{done.stderr}"
