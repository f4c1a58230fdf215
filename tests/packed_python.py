"""Millstream and what it needs in an archive, which Spark ships to executors with a bare Python.

It is what ``pip install --target packages 'millstream[lake]' pandas`` makes, out of the packages
that are installed here: a test takes nothing from the network. PySpark asks for pandas wherever a
job is made of Arrow batches, and does not bring it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

import millstream
import pyspark_millstream

EXTRAS: Final = frozenset({"lake"})
BESIDE: Final = "pandas"


def bare_python() -> str:
    """Return the Python that the environment of the tests was made with: it has no packages."""
    return f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def pack(directory: Path) -> Path:
    """Make ``directory/packages``; return it as an archive."""
    packages = directory / "packages"
    for module in (millstream, pyspark_millstream):
        assert module.__file__ is not None
        source = Path(module.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, packages / source.name, ignore=ignored)
    beside = {BESIDE, *needed(BESIDE, frozenset())}
    for name in sorted(needed("millstream", EXTRAS) | beside):
        _copy(name, packages)
    archive = directory / "millstream.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for each in sorted(packages.iterdir()):
            packed.add(each, each.name)
    return archive


def needed(name: str, extras: frozenset[str]) -> set[str]:
    """Return the names of the distributions that one needs, with theirs, without itself."""
    found: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(name, extras)]
    seen = set(waiting)
    while waiting:
        for wanted in _required(*waiting.pop()):
            each = (_normal(wanted.name), frozenset(wanted.extras))
            if each not in seen:
                seen.add(each)
                waiting.append(each)
                found.add(each[0])
    return found - {name}


def _required(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    try:
        texts = distribution(name).requires or ()
    except PackageNotFoundError:  # of another platform
        return
    for text in texts:
        wanted = Requirement(text)
        if wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")
        ):
            yield wanted


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy(name: str, packages: Path) -> None:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    for each in found.files or ():
        if each.parts[0] == ".." or "__pycache__" in each.parts:
            continue
        target = packages / each
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.locate_file(each)), target)
