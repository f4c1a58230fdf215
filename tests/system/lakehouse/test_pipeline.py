"""`millstream pipeline run`: several loads of one file, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main

pytestmark = pytest.mark.system

FILE = """
[source]
"kafka.bootstrap.servers" = "{bootstrap}"

[load.raw]
topic = "{prefix}-a,{prefix}-b"
to = "delta:lake/both"
group = ""

[load.each]
pattern = "{prefix}-.*"
to = "parquet:lake/{{topic}}"
format = "json"
dead_letters = false
group = ""
"""


def test_loads_of_one_file(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prefix = new_topic()
    a, b = (TopicSite(broker.bootstrap, f"{prefix}-{name}", tmp_path) for name in "ab")
    for site in (a, b):
        site.create(1)
    a.write(0, [b'{"n":1}', b'{"n":2}'])
    b.write(0, [b"bad"])
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.format(bootstrap=broker.bootstrap, prefix=prefix))
    assert main(["pipeline", "check", str(path)]) == 0
    assert "lake/{topic}" in capsys.readouterr().out
    assert main(["pipeline", "run", str(path), "--engine", "local", "--json"]) == 1
    found = {each["load"]: each for each in json.loads(capsys.readouterr().out)}
    assert (found["raw"]["rows"], found["raw"]["error"]) == (3, None)
    assert found["each"]["rows"] == 2
    assert found["each"]["error"].startswith(f"{b.topic}: no schema can be inferred")
    at = ["-b", broker.bootstrap, "--app-id"]
    both = ["audit", f"{a.topic},{b.topic}", f"delta:{tmp_path}/lake/both"]
    assert main([*both, *at, "raw"]) == 0
    one = ["audit", a.topic, f"parquet:{tmp_path}/lake/{{topic}}"]
    assert main([*one, *at, "each"]) == 0
