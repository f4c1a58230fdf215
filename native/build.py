"""Compiles the columns kernel: ``python native/build.py`` puts it into the package.

With the system's C compiler where there is one, else with the compiler of the ``ziglang`` wheel.
Runs by itself and from ``hatch_build.py``; needs nothing but Python.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

NATIVE = Path(__file__).resolve().parent
PACKAGE = NATIVE.parent / "src" / "millstream" / "records"

SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
LIBRARY = PACKAGE / f"_kernel{SUFFIX}"
"""Where the loader looks (``millstream.records.kernel``)."""

MACHINES = {"x86_64", "amd64", "aarch64", "arm64"}
"""Little-endian processors on which the kernel is tried out."""

ZIG = [sys.executable, "-m", "ziglang", "cc"]
FLAGS = ["-std=c11", "-O3", "-fvisibility=hidden", "-shared"]

GLIBC = "2.17"
"""What a library that zig builds for Linux needs at least: the manylinux2014 of the wheel's tag."""


class Target(NamedTuple):
    """A platform to compile for with zig: its name there, and the ending of a library."""

    triple: str
    suffix: str


TARGETS = {
    "manylinux_2_17_x86_64": Target(f"x86_64-linux-gnu.{GLIBC}", ".so"),
    "manylinux_2_17_aarch64": Target(f"aarch64-linux-gnu.{GLIBC}", ".so"),
    "macosx_11_0_x86_64": Target("x86_64-macos.11.0", ".dylib"),
    "macosx_11_0_arm64": Target("aarch64-macos.11.0", ".dylib"),
    "win_amd64": Target("x86_64-windows-gnu", ".dll"),
}
"""The platforms of released wheels, by the tag of the wheel (``tools/build_wheels.py``)."""


class NoCompilerError(Exception):
    """There is nothing to compile with, or no compiler made the library."""


def build(library: Path = LIBRARY, *, portable: bool = False) -> str:
    """Compile the library and return which compiler made it, "zig", "cc", ...

    ``portable`` asks for zig first, whose library runs on every Linux of the last ten years.
    Raises NoCompilerError, with what the compilers said.
    """
    if not knows_processor():
        raise NoCompilerError(f"the kernel does not know the processor {platform.machine()!r}")
    compilers = list_compilers()
    if portable:
        compilers.sort(key=lambda each: each[0] != "zig")
    said = [] if compilers else ["neither cc, gcc, clang nor the ziglang wheel is there"]
    for name, command in compilers:
        error = compile_with(name, command, library)
        if error is None:
            return name
        said.append(f"{name}: {error}")
    raise NoCompilerError("; ".join(said))


def build_for(platform_tag: str, library: Path) -> None:
    """Compile the library for a platform of ``TARGETS`` with zig, whatever this machine is.

    Raises NoCompilerError for another platform, without the ziglang wheel, and with what zig said.
    """
    target = TARGETS.get(platform_tag)
    if target is None:
        raise NoCompilerError(f"there is no platform {platform_tag!r}, but {', '.join(TARGETS)}")
    if importlib.util.find_spec("ziglang") is None:
        raise NoCompilerError("the ziglang wheel is not there: pip install ziglang")
    flags = [*FLAGS, "-s", "-target", target.triple]
    if target.suffix != ".dll":
        flags.append("-fPIC")
    error = _compile([*ZIG, *flags], library)
    if error is not None:
        raise NoCompilerError(f"zig: {error}")


def knows_processor() -> bool:
    """Return True on a processor that the kernel is made for."""
    return platform.machine().lower() in MACHINES and sys.byteorder == "little"


def list_compilers() -> list[tuple[str, list[str]]]:
    """Return the compilers of this machine, the system's own first."""
    found = [
        (name, [path])
        for name in ("cc", "gcc", "clang")
        if sys.platform != "win32" and (path := shutil.which(name))
    ]
    if importlib.util.find_spec("ziglang") is not None:
        found.append(("zig", ZIG))
    return found


def compile_with(name: str, command: list[str], library: Path) -> str | None:
    """Compile for this machine; return what the compiler said when it did not work."""
    flags = list(FLAGS)
    if sys.platform != "win32":
        flags.append("-fPIC")
    if name == "zig":
        flags += ["-s", *zig_target()]
    return _compile([*command, *flags], library)


def _compile(command: list[str], library: Path) -> str | None:
    """Run a compiler over all sources; return what it said when it did not work.

    The library is put into its place in one step, and each build writes to a directory of its own:
    a running program that has the library loaded crashes, at its exit at the latest, when the file
    is written in place, because the pages that it has mapped change.
    """
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    try:
        with tempfile.TemporaryDirectory(prefix=".kernel-", dir=library.parent) as directory:
            made = Path(directory, library.name)
            done = subprocess.run(
                [*command, *sources, "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode:
                return done.stderr.strip()[:2000] or f"exit code {done.returncode}"
            made.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None


def zig_target() -> list[str]:
    """Return the option that makes zig build for old systems too, where it is known to work."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        return ["-target", f"{platform.machine()}-linux-gnu.{GLIBC}"]
    return []


if __name__ == "__main__":
    try:
        print(f"{LIBRARY}: built with {build()}")
    except NoCompilerError as problem:
        sys.exit(f"the kernel was not built, numpy does its work: {problem}")
