"""The kernel of every platform is compiled, and its file says for which."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tested_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


native = load("native/build.py")
tool = load("tools/build_wheels.py")


@pytest.mark.slow
@pytest.mark.parametrize("platform_tag", sorted(native.TARGETS))
def test_every_platform_gets_a_library_with_all_functions(
    tmp_path: Path, platform_tag: str
) -> None:
    pytest.importorskip("ziglang", reason="needs a compiler for all: pip install -e '.[wheels]'")
    native.build_for(platform_tag, tmp_path / "library")
    library = tool.read_library((tmp_path / "library").read_bytes())
    assert (library.system, library.processor) == tool.expect(platform_tag)
    headers = "".join(path.read_text() for path in (ROOT / "native").glob("*.[ch]"))
    names = {each for each in library.exports if each.startswith("ms_")}
    assert {"ms_abi", "ms_crc32c", "ms_decode", "ms_scan_batches"} <= names
    assert all(name in headers for name in names)


def test_a_platform_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(native.NoCompilerError, match="there is no platform 'win32'"):
        native.build_for("win32", tmp_path / "library")


def test_a_file_of_another_kind_is_no_library() -> None:
    with pytest.raises(ValueError, match="not a shared library"):
        tool.read_library(b"#!/bin/sh\n")
