"""Jars that Maven copies into ``~/.cache/millstream``, once for all tests and benchmarks.

Standard library only. ``XDG_CACHE_HOME`` moves the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 900.0


class JarsMissingError(Exception):
    """The jars are not there, and cannot be had; the message is one sentence that says why."""


def cached(name: str) -> Path:
    """Return the path of an entry of the cache, which may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "millstream" / name


def copied_jars(
    place: Path,
    dependencies: Sequence[str],
    *,
    groups: Sequence[str] = (),
    allow_maven: bool = True,
) -> Path:
    """Return ``place``, a directory with these jars and those that they require.

    Each dependency is ``group:artifact:version`` or ``group:artifact:version:classifier``. With
    ``groups`` only jars of these groups are copied. Maven is asked only while ``place`` does not
    exist; it is made by a rename, so a broken download leaves none. Raises JarsMissingError.
    """
    if place.is_dir():
        return place
    maven = shutil.which("mvn") if allow_maven else None
    if maven is None:
        raise JarsMissingError(f"{place} does not exist, and Maven is not on the path")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as directory:
        Path(directory, "pom.xml").write_text(_project(dependencies), encoding="utf-8")
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        if groups:
            command.append(f"-DincludeGroupIds={','.join(groups)}")
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            reason = " ".join((done.stdout + done.stderr).split())[:500]
            raise JarsMissingError(f"Maven could not copy {', '.join(dependencies)}: {reason}")
        if not place.is_dir():  # another process may have been faster
            Path(directory, "jars").rename(place)
    return place


def _project(dependencies: Sequence[str]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millstream</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{''.join(map(_dependency, dependencies))}</dependencies></project>"
    )


def _dependency(words: str) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    values = words.split(":")
    elements = (f"<{name}>{value}</{name}>" for name, value in zip(names, values, strict=False))
    return f"<dependency>{''.join(elements)}</dependency>"
