"""The example of docs/tables.md, as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_example_of_the_page_works(broker: BrokerProcess, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert "localhost:9092" in example
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.replace("localhost:9092", broker.bootstrap)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith("RowsMetadata(rows=2, ")
