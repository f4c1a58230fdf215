"""The structures that Python and the kernel share lie in memory in the same way on both sides."""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from millstream.native import interpreter
from millstream.protocol import native_tables
from millstream.records import (
    avro_kernel,
    cleaner_kernel,
    find_kernel,
    json_columns_kernel,
    json_kernel,
    kernel_types,
    out_columns,
    produce_kernel,
    protobuf_kernel,
    scan_kernel,
)

NATIVE = Path(__file__).parents[3] / "native"
MODULES = (
    avro_kernel,
    json_columns_kernel,
    json_kernel,
    kernel_types,
    out_columns,
    produce_kernel,
    protobuf_kernel,
    scan_kernel,
    cleaner_kernel,
    find_kernel,
    interpreter,
    native_tables,
)
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    named[1]: each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, ctypes.Structure)
    if (named := re.match(r"``(ms_\w+)``", each.__doc__ or ""))
}
"""By their names in C, with which the docstrings begin."""


def assertions(name: str, structure: type[ctypes.Structure]) -> list[str]:
    expected = [(f"sizeof({name})", ctypes.sizeof(structure))]
    for field, *_ in structure._fields_:
        place = getattr(structure, field)
        expected.append((f"offsetof({name}, {field})", place.offset))
        expected.append((f"sizeof((({name} *)0)->{field})", place.size))
    return [f'_Static_assert({of} == {value}, "{of}");' for of, value in expected]


def compiled(lines: list[str]) -> str:
    """Return what the compiler says of these lines."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    headers = ["<stddef.h>", *(f'"{path.name}"' for path in sorted(NATIVE.glob("*.h")))]
    source = "\n".join([*(f"#include {header}" for header in headers), *lines])
    done = subprocess.run(
        [compiler, "-std=c11", "-fsyntax-only", f"-I{NATIVE}", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


def test_every_shared_structure_is_known() -> None:
    in_c = {
        name
        for path in NATIVE.glob("*.h")
        for name in re.findall(r"^\} (ms_\w+);", path.read_text(), re.MULTILINE)
    }
    only_bytes = {"ms_index_entry", "ms_epoch_start", "ms_producer_batches"}
    assert in_c - only_bytes == set(STRUCTURES)


@pytest.mark.parametrize("name", STRUCTURES)
def test_fields_lie_where_the_kernel_expects_them(name: str) -> None:
    assert compiled(assertions(name, STRUCTURES[name])) == ""


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("ms_index_entry", scan_kernel._ENTRY),
        ("ms_epoch_start", scan_kernel._EPOCH),
        ("ms_producer_batches", scan_kernel._PRODUCER),
    ],
)
def test_rows_have_the_size_that_the_kernel_writes(name: str, packed: struct.Struct) -> None:
    assert compiled([f'_Static_assert(sizeof({name}) == {packed.size}, "{name}");']) == ""


def test_a_field_at_another_place_is_noticed() -> None:
    class Fault(ctypes.Structure):
        _fields_ = (("code", ctypes.c_int32), ("index", ctypes.c_int64))

    assert "sizeof(ms_fault)" in compiled(assertions("ms_fault", Fault))
