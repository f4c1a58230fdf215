"""The examples of docs/consumer.md, one after the other, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_every_example_of_the_page_works(tmp_path: Path) -> None:
    assert len(examples()) >= 7
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        for example in examples():
            done = subprocess.run(
                [
                    sys.executable,
                    "-W",
                    "error",
                    "-c",
                    f"BOOTSTRAP = {broker.bootstrap!r}\n{example}",
                ],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, example + done.stderr
            assert not done.stderr, example + done.stderr
