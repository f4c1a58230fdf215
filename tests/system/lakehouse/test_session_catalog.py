"""Delta tables of the Spark session's catalogue, with a real Spark and Delta's jars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.delta_jars import DeltaMissingError, delta_python_path, delta_settings
from tests.system.lakehouse.session_tables import STEPS
from tests.system.lakehouse.topic_site import TopicSite

from millstream.spark.java import NoJavaError, java_home

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def test_loads_by_name(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> None:
    try:
        java_home(os.environ)
        delta_settings()
        path = [*delta_python_path(), *filter(None, [os.environ.get("PYTHONPATH")])]
    except (NoJavaError, DeltaMissingError) as error:
        pytest.skip(str(error))
    topic = new_topic()
    TopicSite(broker.bootstrap, topic, tmp_path).create(1)
    words = ["-m", "tests.system.lakehouse.session_tables", broker.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        cwd=Path(__file__).parents[3],
    )
    held = [line for line in done.stdout.splitlines() if line.startswith("held: ")]
    assert held == [f"held: {each.__name__}" for each in STEPS], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
