"""The cleaner's part of the kernel: that it is there, and hostile input under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.native.sanitized import run_sanitized

from millstream.records import cleaner_kernel, kernel


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


@pytest.mark.slow
def test_hostile_batches_stay_inside_their_buffers(tmp_path: Path) -> None:
    run_sanitized(tmp_path, "hostile_cleaner", 5_000, "cleaner.c", "crc32c.c")
