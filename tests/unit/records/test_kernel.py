"""The kernel itself: loading it, its checksums, and hostile input under the sanitizers."""

from __future__ import annotations

import importlib.util
import mmap
import os
import random
import shutil
import subprocess
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from tests.examples import examples
from tests.native.sanitized import run_sanitized

from millstream.native import loader
from millstream.records import kernel
from millstream.records.crc32c import checksum
from millstream.records.kernel import Library, Pinned

ROOT = Path(__file__).parents[3]


def native_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", ROOT / "native" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library() -> Library:
    found = kernel.library()
    if found is None:
        pytest.skip(kernel.describe())
    return found


@pytest.mark.parametrize("function", ["crc32c", "crc32c_by_tables"])
def test_checksums(library: Library, function: str) -> None:
    rng = random.Random(4)
    data = rng.randbytes(20_000)
    compute = getattr(library, function)
    assert compute(0, Pinned(b"123456789").address, 9) == 0xE3069283
    for size in [*range(70), 1023, 1024, 3071, 3072, 3073, 6144, 9999]:
        start = rng.randrange(9)
        part = data[start : start + size]
        pin = Pinned(memoryview(data)[start : start + size])
        assert compute(0, pin.address, size) == checksum(part)
        assert compute(77, pin.address, size) == checksum(part, 77)


def test_any_buffer_has_an_address(library: Library, tmp_path: Path) -> None:
    content = b"x" * 100 + b"content"
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (content, bytearray(content), memoryview(content), mapped):
            pin = Pinned(memoryview(buffer)[100:])
            assert pin.size == 7
            assert library.crc32c(0, pin.address, pin.size) == checksum(b"content")
            del pin
    assert Pinned(array("q", [1, 2])).size == 16
    grown = bytearray(5)
    pin = Pinned(grown, writable=True)
    with pytest.raises(BufferError):
        grown += b"more"
    del pin
    grown += b"more"
    with pytest.raises(BufferError):
        Pinned(b"constant", writable=True)
    with pytest.raises(BufferError):
        Pinned(memoryview(b"abcdef")[::2])


@pytest.mark.parametrize(
    ("value", "line"), [("off", "Python and numpy (MILLSTREAM_KERNEL is off)"), ("on", "C kernel")]
)
def test_the_switch(library: Library, value: str, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.records.kernel"],
        env=os.environ | {loader.SWITCH: value},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(line)


def test_without_a_library_or_with_another_one(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(loader.SWITCH, raising=False)
    copy = tmp_path / library.path.name
    monkeypatch.setattr(loader, "LIBRARY", copy)
    assert kernel._load() == (None, f"{library.path.name} was not built")
    copy.write_bytes(b"no library")
    assert "cannot be loaded" in kernel._load()[1]
    shutil.copy(library.path, copy)
    monkeypatch.setattr(kernel, "ABI", kernel.ABI + 1)
    assert "another version" in kernel._load()[1]


@pytest.mark.slow
def test_hostile_input_stays_inside_its_buffers(tmp_path: Path) -> None:
    run_sanitized(tmp_path, "hostile", examples(20_000))


@pytest.mark.slow
@pytest.mark.long
def test_every_compiler_builds_it(tmp_path: Path) -> None:
    native = native_build()
    compilers = {
        Path(shutil.which(each[0]) or each[0]).resolve(): (name, each)
        for name, each in native.list_compilers()
    }
    assert compilers
    for name, command in compilers.values():
        path = tmp_path / f"{name}{native.SUFFIX}"
        assert native.compile_with(name, command, path) is None
        built = Library(path)
        assert built.abi() == kernel.ABI
        assert built.crc32c(0, Pinned(b"123456789").address, 9) == 0xE3069283


def test_a_compiler_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_build()
    monkeypatch.setattr(native, "list_compilers", lambda: [("cc", ["false"]), ("gcc", ["/no"])])
    with pytest.raises(native.NoCompilerError, match=r"cc: exit code 1; gcc: .*No such file"):
        native.build(tmp_path / "library")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(native.platform, "machine", lambda: "s390x")
    with pytest.raises(native.NoCompilerError, match="s390x"):
        native.build(tmp_path / "library")


TWO_AT_ONCE = """
import pathlib, sys, time
started, output = pathlib.Path(sys.argv[1]), sys.argv[-1]
with open(output, "w") as library, started.open("a") as noted:
    noted.write("one\\n")
    noted.flush()
    while started.read_text().count("one") < 2:
        time.sleep(0.01)
    library.write("a whole library")
with started.open("a") as noted:
    noted.write(output + "\\n")
"""


def test_builds_at_the_same_time_do_not_write_to_one_file(tmp_path: Path) -> None:
    native = native_build()
    script, started, library = tmp_path / "cc.py", tmp_path / "started", tmp_path / "library"
    script.write_text(TWO_AT_ONCE)
    command = [sys.executable, str(script), str(started)]
    with ThreadPoolExecutor(2) as threads:
        built = [threads.submit(native.compile_with, "fake", command, library) for _ in range(2)]
    assert [each.result() for each in built] == [None, None]
    written = started.read_text().split()[2:]
    assert len(set(written)) == 2
    assert str(library) not in written, "a program that has it loaded would crash"
    assert library.read_text() == "a whole library"
    assert {each.name for each in tmp_path.iterdir()} == {"cc.py", "started", "library"}


LOADED = """
import sys, pathlib
from millstream.records.kernel import Library, Pinned
library, data = Library(pathlib.Path(sys.argv[1])), Pinned(b"123456789")
print("loaded", flush=True)
sys.stdin.readline()
assert library.crc32c(0, data.address, 9) == 0xE3069283
"""


@pytest.mark.slow
def test_a_program_that_has_it_loaded_survives_another_build(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = native_build()
    monkeypatch.setattr(native, "FLAGS", [each for each in native.FLAGS if each != "-O3"])
    path = tmp_path / f"kernel{native.SUFFIX}"
    shutil.copy(library.path, path)
    with subprocess.Popen(
        [sys.executable, "-c", LOADED, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "loaded\n"
        native.build(path)
        program.communicate("\n", timeout=60)
    assert program.returncode == 0
