"""What a shared library is for and which functions it offers, read from the file alone.

Reads ELF of 64 bits (Linux), Mach-O of 64 bits (macOS) and PE32+ (Windows), little-endian, so that
a library can be checked on a machine that cannot load it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Library(NamedTuple):
    """The system ("linux", "macos", "windows"), the processor, and the names of its functions."""

    system: str
    processor: str
    exports: frozenset[str]


ELF_PROCESSORS = {62: "x86_64", 183: "aarch64"}
MACHO_PROCESSORS = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
PE_PROCESSORS = {0x8664: "x86_64", 0xAA64: "aarch64"}

MACHO_MAGIC = 0xFEEDFACF
DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
SYMBOL_TABLE = 2  # LC_SYMTAB
MACHO_SYMBOL_TYPE, MACHO_IN_SECTION, MACHO_EXTERNAL = 0x0E, 0x0E, 0x01


def read_library(data: bytes) -> Library:
    """Return what the headers say. Raises ValueError for a file of another kind."""
    if data[:6] == b"\x7fELF\x02\x01":
        return _read_elf(data)
    if data[:4] == struct.pack("<I", MACHO_MAGIC):
        return _read_macho(data)
    if data[:2] == b"MZ":
        return _read_pe(data)
    raise ValueError(f"not a shared library of Linux, macOS or Windows: {data[:8].hex()}")


def _read_elf(data: bytes) -> Library:
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != DYNAMIC_SYMBOLS:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, index = struct.unpack_from("<IBBH", data, at)
            if index:  # 0 is a function of another library
                names.add(_text(data, strings + name))
    return Library("linux", ELF_PROCESSORS.get(machine, str(machine)), frozenset(names))


def _read_macho(data: bytes) -> Library:
    machine, _, _, commands = struct.unpack_from("<IIII", data, 4)
    names = set()
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == SYMBOL_TABLE:
            symbols, count, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for symbol in range(symbols, symbols + count * 16, 16):
                name, kind = struct.unpack_from("<IB", data, symbol)
                if kind & MACHO_EXTERNAL and kind & MACHO_SYMBOL_TYPE == MACHO_IN_SECTION:
                    names.add(_text(data, strings + name).removeprefix("_"))
        at += size
    return Library("macos", MACHO_PROCESSORS.get(machine, str(machine)), frozenset(names))


def _read_pe(data: bytes) -> Library:
    (header,) = struct.unpack_from("<I", data, 60)
    if data[header : header + 4] != b"PE\0\0":
        raise ValueError("a program of Windows without the header PE")
    machine, count = struct.unpack_from("<HH", data, header + 4)
    (optional_size,) = struct.unpack_from("<H", data, header + 20)
    optional = header + 24
    (directory,) = struct.unpack_from("<I", data, optional + 112)  # of PE32+
    sections: list[tuple[int, int, int, int]] = [
        struct.unpack_from("<IIII", data, optional + optional_size + i * 40 + 8)
        for i in range(count)
    ]

    def place(address: int) -> int:
        for _, start, size, position in sections:
            if start <= address < start + size:
                return address - start + position
        raise ValueError(f"no section of the file has the address {address:#x}")

    exports = place(directory)
    (number,) = struct.unpack_from("<I", data, exports + 24)
    (table,) = struct.unpack_from("<I", data, exports + 32)
    pointers = struct.unpack_from(f"<{number}I", data, place(table))
    names = frozenset(_text(data, place(pointer)) for pointer in pointers)
    return Library("windows", PE_PROCESSORS.get(machine, str(machine)), names)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("ascii")
