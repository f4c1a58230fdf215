"""Made-up access logs, and reading their status codes back."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from millstream.cli.access_log import count_statuses, generate_lines, status_of

COMBINED = re.compile(
    r'\d+(\.\d+){3} - - \[[^]]+ \+0000\] "GET \S+ HTTP/1.1" \d{3} (\d+|-) ".*" ".*"'
)


def test_the_same_seed_makes_the_same_lines() -> None:
    first = list(generate_lines(500, 7))
    assert first == list(generate_lines(500, 7))
    assert first != list(generate_lines(500, 8))
    assert all(COMBINED.fullmatch(line) for line in first)


def test_hits_are_spread_as_on_a_real_site() -> None:
    lines = list(generate_lines(5_000, 1))
    statuses = Counter(status_of(line.encode()) for line in lines)
    assert statuses["200"] > 4_000
    assert {"304", "404", "301"} <= set(statuses)
    assert len({line.split()[0] for line in lines}) > 500


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b'1.1.1.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "agent"\n', "200"),
        (b'1.1.1.1 - - [x] "GET /\\"quoted\\" HTTP/1.1" 404 - "-" "x"\n', "404"),
        (b'1.1.1.1 - - [x] "-" 408 0\n', "408"),
        (b'1.1.1.1 - - [x] "GET / HTTP/1.1" 2000 0\n', ""),
        (b"no request at all\n", ""),
        (b"\n", ""),
    ],
)
def test_the_status_of_a_line(line: bytes, status: str) -> None:
    assert status_of(line) == status


def test_statuses_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("".join(f"{line}\n" for line in generate_lines(300, 2)))
    counted = count_statuses(path)
    assert sum(counted.values()) == 300
