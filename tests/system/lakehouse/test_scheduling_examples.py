"""The examples for schedulers do what they say: cron, Airflow's commands, Dagster where it is."""

from __future__ import annotations

import ast
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

EXAMPLES = Path(__file__).parents[3] / "examples" / "scheduling"

pytestmark = pytest.mark.system


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(1)
    made.write(0, [json.dumps({"n": n}).encode() for n in range(100)])
    return made


@pytest.fixture
def variables(site: TopicSite, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "BOOTSTRAP": site.bootstrap,
        "TOPIC": site.topic,
        "TABLE": f"delta:{tmp_path}/lake/clicks",
        "LOCK": str(tmp_path / "lock"),
    }


def run(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=variables, capture_output=True, text=True, check=False, timeout=100
    )


def test_cron(variables: dict[str, str]) -> None:
    script = str(EXAMPLES / "cron" / "clicks.sh")
    for _ in range(2):
        done = run([script], variables)
        assert done.returncode == 0, done.stderr
        assert "100" in done.stdout
    assert run([script, "maintain"], variables).returncode == 0
    assert run([script, "nonsense"], variables).returncode == 2
    refused = run([script], {**variables, "BOOTSTRAP": "127.0.0.1:1", "TABLE": "delta"})
    assert refused.returncode not in (0, None)
    held = run(["flock", variables["LOCK"], script], variables)
    assert (held.returncode, held.stdout) == (0, ""), "a round that still runs is no failure"
    lines = (EXAMPLES / "cron" / "crontab").read_text().splitlines()[1:]
    assert [len(line.split(None, 5)) for line in lines] == [6, 6]


def test_the_commands_of_airflow(variables: dict[str, str]) -> None:
    file = EXAMPLES / "airflow" / "clicks.py"
    found = {
        target.id: ast.literal_eval(each.value)
        for each in ast.parse(file.read_text(), str(file)).body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    assert found["SETTINGS"].keys() <= variables.keys()
    for name in ("load", "audit", "maintain"):
        done = run(["bash", "-c", found["STEPS"][name]], variables)
        assert done.returncode == 0, (name, done.stderr)


def test_the_dags_of_airflow() -> None:
    pytest.importorskip("airflow", reason="needs Airflow: pip install apache-airflow")
    runpy.run_path(str(EXAMPLES / "airflow" / "clicks.py"))


def test_the_syntax_of_dagster() -> None:
    file = EXAMPLES / "dagster" / "clicks.py"
    compile(file.read_text(), str(file), "exec")


def test_dagster(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    dagster = pytest.importorskip("dagster", reason="needs Dagster: pip install dagster")
    for name in ("BOOTSTRAP", "TOPIC", "TABLE"):
        monkeypatch.setenv(name, variables[name])
    found = runpy.run_path(str(EXAMPLES / "dagster" / "clicks.py"))
    done = dagster.materialize([found["clicks"], found["holds_its_topic"]])
    assert done.success
    assert [each.passed for each in done.get_asset_check_evaluations()] == [True]
