"""A web server's access log in the "combined" format: made-up lines, and the parts of a line."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

LINE: Final = (
    r'^(\S+) \S+ \S+ \[([^\]]*)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-)'
    r'(?: "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)")?'
)
"""The start of a line in common or combined format, for Python and for Java; a quoted text may hold
``\\"``."""

FIELDS: Final = ("client", "time", "request", "status", "bytes", "referrer", "agent")
"""The groups of ``LINE``."""

_LINE = re.compile(LINE)

_START: Final = datetime(2026, 5, 17, 10, 5, 3, tzinfo=UTC)
_HITS_PER_SECOND: Final = 4
_PAGES: Final = {
    ("/", 12_000): 30,
    ("/favicon.ico", 3_638): 22,
    ("/style.css", 4_877): 18,
    ("/images/logo.png", 52_878): 14,
    ("/blog/", 18_000): 10,
    ("/blog/log-structured-storage", 31_204): 9,
    ("/blog/what-a-partition-is", 28_411): 8,
    ("/blog/exactly-once", 40_112): 6,
    ("/feed.xml", 9_316): 8,
    ("/search?q=kafka", 7_640): 5,
    ("/downloads/millstream.tar.gz", 1_204_332): 2,
    ("/robots.txt", 112): 3,
}
"""Path and size of each page, and how often it is asked for."""

_STATUSES: Final = {200: 880, 304: 60, 404: 32, 301: 18, 206: 6, 500: 3, 403: 1}
_WHOLE: Final = frozenset({200, 206})
_EMPTY: Final = frozenset({304, 301})
_ERROR_PAGE_BYTES: Final = 209
_REFERRERS: Final = {
    "-": 55,
    "https://example.org/": 25,
    "https://www.google.com/": 15,
    "https://news.ycombinator.com/": 5,
}
_AGENTS: Final = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0": 30,
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Safari/605.1.15": 25,
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0": 35,
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": 7,
    "curl/8.5.0": 3,
}
_VISITORS: Final = 2_000


def generate_lines(count: int, seed: int) -> Iterator[str]:
    """Yield ``count`` lines without line ends; times rise, a few visitors make most of the hits."""
    rng = random.Random(seed)
    visitors = [".".join(str(rng.randrange(1, 255)) for _ in range(4)) for _ in range(_VISITORS)]
    weights = [1 / (rank + 10) for rank in range(_VISITORS)]
    columns = zip(
        rng.choices(visitors, weights, k=count),
        _draw(rng, _PAGES, count),
        _draw(rng, _STATUSES, count),
        _draw(rng, _REFERRERS, count),
        _draw(rng, _AGENTS, count),
        strict=True,
    )
    moment = _START
    for visitor, (page, size), status, referrer, agent in columns:
        moment += timedelta(seconds=rng.expovariate(_HITS_PER_SECOND))
        sent = "-" if status in _EMPTY else size if status in _WHOLE else _ERROR_PAGE_BYTES
        yield (
            f"{visitor} - - [{moment:%d/%b/%Y:%H:%M:%S +0000}] "
            f'"GET {page} HTTP/1.1" {status} {sent} "{referrer}" "{agent}"'
        )


def _draw(rng: random.Random, weighted: Mapping[T, int], count: int) -> list[T]:
    return rng.choices(list(weighted), list(weighted.values()), k=count)


def count_statuses(source: Path) -> Counter[str]:
    """Count the status codes of a log file with Python alone."""
    with source.open("rb") as lines:
        return Counter(status_of(line) for line in lines)


def status_of(line: bytes) -> str:
    """Return the status code of a line, "" when it has none."""
    match = _LINE.match(line.decode(errors="replace"))
    return match[FIELDS.index("status") + 1] if match else ""
