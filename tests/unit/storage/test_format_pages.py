"""The examples in docs/formats are bytes that Apache Kafka wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "formats").glob("*.md"))
EXAMPLE = re.compile(r"```hex (\S+) (\d+)\n(.*?)```", re.DOTALL)


def hex_of(block: str) -> bytes:
    """Return the bytes of a block: hex digits up to the first gap of three spaces in each line."""
    digits = (re.split(r" {3,}", line)[0].replace(" ", "") for line in block.splitlines())
    return bytes.fromhex("".join(digits))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_the_bytes_of_the_file(page: Path) -> None:
    examples = EXAMPLE.findall(page.read_text())
    for name, position, block in examples:
        data = (ROOT / "tests" / "data" / "kafka-4.3.0" / name).read_bytes()
        expected = hex_of(block)
        assert data[int(position) : int(position) + len(expected)] == expected
    binary = {"log.md", "offsetindex.md", "timeindex.md", "txnindex.md", "snapshot.md"}
    assert bool(examples) == (page.name in binary)
