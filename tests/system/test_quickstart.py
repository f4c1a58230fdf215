"""The commands of docs/quickstart.md, one block after the other, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    assert len(blocks()) > 5
    with BrokerProcess(tmp_path / "broker") as broker:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "DATA": str(broker.data_directory),
        }
        for block in blocks():
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, block + done.stderr
            # Plain `reset-offsets` says that it changed nothing; nobody else has to complain.
            said = [line for line in done.stderr.splitlines() if "nothing was changed" not in line]
            assert said == [], block
