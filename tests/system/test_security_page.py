"""The commands of docs/security.md, one block after the other, as a reader would type them."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.system

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
CLUSTER: Final = "\n## A secured cluster\n"
_SERVICES: Final = ("millstream serve ", "millstream zookeeper start ")
_PORT: Final = re.compile(r"(localhost:|127\.0\.0\.1:|--port )(\d+)")
_WAITING_S: Final = 60
_DEADLINE_S: Final = 240


@dataclass(frozen=True)
class Block:
    """One block of the page; ``language`` is ``sh`` or ``python``."""

    language: str
    text: str


def blocks(text: str, *, with_spark: bool) -> list[Block]:
    """Return what a reader types, with ports of this machine in place of the page's."""
    found = [
        Block(*match)
        for match in re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]
    ports: dict[str, int] = {}
    with ExitStack() as held:

        def port(match: re.Match[str]) -> str:
            if match[2] not in ports:
                server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
                ports[match[2]] = server.getsockname()[1]
            return f"{match[1]}{ports[match[2]]}"

        return [
            Block(each.language, _PORT.sub(port, each.text))
            for each in found
            if with_spark or "millstream.spark" not in each.text
        ]


def script(typed: list[Block]) -> str:
    """Return one script of bash that types the blocks; it ends the services that they start."""
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) || true; wait' EXIT"]
    for number, block in enumerate(typed):
        lines.append(f"echo '--- block {number}'")
        if block.language == "python":
            lines.append(f"python - <<'PYTHON'\n{block.text}PYTHON")
        elif block.text.startswith(_SERVICES):
            log = f"terminal-{number}.log"
            lines.append(f"{block.text.strip()} > {log} 2>&1 &")
            look = f"for _ in $(seq {_WAITING_S * 10}); do grep -q ' listening on ' {log} && break"
            lines.append(f"{look}; sleep 0.1; done; grep ' listening on ' {log}")
        else:
            lines.append(block.text)
    return "\n".join(lines)


def typed(blocks: list[Block], directory: Path) -> str:
    """Run the blocks in a directory and return all that was printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script(blocks)],
        cwd=directory,
        env=environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    logs = "".join(each.read_text() for each in directory.glob("terminal-*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{logs}"
    assert " ERROR " not in logs, logs
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("with_spark", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_every_command_of_the_page_works(tmp_path: Path, with_spark: bool) -> None:
    page = PAGE.read_text()
    every = blocks(page, with_spark=with_spark)
    of_cluster = len(blocks(page[page.index(CLUSTER) :], with_spark=with_spark))
    first, cluster = every[:-of_cluster], every[-of_cluster:]
    assert len(first) > 7 + with_spark
    said = typed(first, tmp_path)
    assert "yes: User:ann may write topic hits from any host\n" in said
    assert "a line\na line\n" in said
    (printed,) = re.findall(r"^\[b.*\]$", said, re.MULTILINE)
    assert set(ast.literal_eval(printed)) == {b"a line", b"from Python", b"from confluent-kafka"}
    if with_spark:
        assert re.search(r"^3$", said, re.MULTILINE)
        return
    assert sum(each.text.startswith(_SERVICES) for each in cluster) == 4
    assert "\nan order\n" in typed(cluster, tmp_path)
