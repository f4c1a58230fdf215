"""The sample project of `docs/testing.md`, in an environment of its own, its tests in parallel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import millstream

pytestmark = [pytest.mark.system, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs" / "testing.md"
EXAMPLES_ON_THE_PAGE = 7

FAILS = """
def test_that_fails(kafka, kafka_topic):
    kafka.broker(0).disk.full()
    with kafka.producer(delivery_timeout_ms=500, request_timeout_ms=400, linger_ms=0) as producer:
        producer.send(kafka_topic, b"1").result(30)


def test_after_it(kafka, kafka_topic):
    with kafka.producer() as producer:
        assert producer.send(kafka_topic, b"1").result(30).offset == 0
"""


def fresh_environment(directory: Path) -> Path:
    """Make an environment with this source installed, and return its interpreter. What it needs is
    that of the running one: nothing is downloaded.
    """
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    site = next((directory / "lib").glob("python*/site-packages"))
    others = Path(pytest.__file__).parents[1]
    (site / "installed.pth").write_text(f"{Path(millstream.__file__).parents[1]}\n{others}\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = site / f"millstream-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: millstream\nVersion: {project['version']}\n"
    )
    entries = project["entry-points"]["pytest11"]
    lines = ["[pytest11]", *(f"{name} = {value}" for name, value in entries.items())]
    (told / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return python


def test_the_sample_project_in_a_fresh_environment(tmp_path: Path) -> None:
    python = fresh_environment(tmp_path / "venv")
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "testing", project, ignore=shutil.ignore_patterns("__*__"))
    (project / "tests" / "test_fails.py").write_text(FAILS)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == EXAMPLES_ON_THE_PAGE
    for number, block in enumerate(blocks):
        (project / "tests" / f"test_page_{number}.py").write_text(block)
    left = tmp_path / "tmp"
    left.mkdir()
    kept = {"PATH", "HOME", "LANG"}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    run = subprocess.run(
        [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-q"],
        cwd=project,
        env=environment | {"TMPDIR": str(left)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    output = run.stdout + run.stderr
    found = re.search(r"1 failed, (\d+) passed", output)
    assert found is not None, output
    assert int(found[1]) == 11 + EXAMPLES_ON_THE_PAGE, output
    assert "FAILED tests/test_fails.py::test_that_fails" in output
    assert "Log of Kafka broker 0" in output
    assert "log directory offline" in output
    assert not list(left.glob("millstream-testing-*"))
    assert sys.executable != str(python)


def test_the_plug_in_is_cheap_where_it_is_not_used() -> None:
    """Nor does anything but the plug-in itself load pytest."""
    code = (
        "import sys, millstream.testing.{}\n"
        "heavy = {{'pytest', 'kazoo', 'pyspark', 'cryptography', 'asyncio'}}\n"
        "print(sorted(heavy & set(sys.modules)), 'millstream.server.broker' in sys.modules)"
    )
    for module, loaded in (("kafka", "[] False"), ("plugin", "['pytest'] False")):
        found = subprocess.run(
            [sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == loaded
