"""The page of charts: every number is in it, and nothing of the log is taken for HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from millstream.spark.lakehouse.report import NOT_A_PAGE, AccessReport, Counted, Hour
from millstream.spark.lakehouse.report_page import page

START = datetime(2015, 5, 17, 10, tzinfo=UTC)


def hour(number: int, fine: int, server_errors: int = 0) -> Hour:
    return Hour(
        start=START + timedelta(hours=number),
        fine=fine,
        redirected=1,
        client_errors=0,
        server_errors=server_errors,
    )


REPORT = AccessReport(
    hits=1234,
    clients=17,
    bytes=5_000_000,
    first=START,
    last=START + timedelta(hours=5),
    hours=[hour(0, 1000), hour(1, 200), hour(5, 30, server_errors=1)],
    statuses=[Counted("200", 1230), Counted("304", 3), Counted("500", 1)],
    pages=[Counted("/<script>alert(1)</script>", 800), Counted('/a"b', 1)],
    missing_pages=[],
    referrers=[Counted("a&b.example", 3)],
    sessions=40,
    median_session_hits=3.0,
    median_session_s=125.0,
    session_sizes=[Counted("1 hit", 30), Counted("2-5", 10), Counted("more", 0)],
)


def parsed(text: str) -> ElementTree.Element:
    """Read the page's body, which is well-formed XML."""
    return ElementTree.fromstring(text[text.index("<main>") : text.index("</body>")])


def test_the_numbers_are_there_and_nothing_is_run() -> None:
    text = page(REPORT, "A <b>log</b>")
    body = parsed(text)
    words = " ".join(each.strip() for each in body.itertext())
    for expected in ("1,234", "17", "5.0 MB", "40", "median 3 hits, 2 min", "A <b>log</b>"):
        assert expected in words
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert body.findall(".//section[h2='Pages not found']/p")


def test_hours_without_hits_are_gaps() -> None:
    titles = [each.text for each in parsed(page(REPORT, "log")).findall(".//g/title")]
    assert titles == [
        "17 May 10:00: 1,001 hits",
        "17 May 11:00: 201 hits",
        "17 May 12:00: 0 hits",
        "17 May 13:00: 0 hits",
        "17 May 14:00: 0 hits",
        "17 May 15:00: 32 hits",
    ]


@pytest.mark.parametrize("days", [15, 400])
def test_a_long_log_is_drawn_by_days(days: int) -> None:
    hours = [hour(number, 10) for number in range(24 * days)]
    body = parsed(page(replace(REPORT, hours=hours), "log"))
    titles = [each.text for each in body.findall(".//g/title")]
    assert len(titles) == days + 1
    assert titles[1] == "18 May: 264 hits"
    chart = body.findall(".//svg[@aria-label]")[0]
    assert len([each for each in chart.findall("text") if " " in (each.text or "")]) <= 11


def test_an_empty_log() -> None:
    empty = replace(
        REPORT,
        hits=0,
        clients=0,
        first=None,
        last=None,
        hours=[],
        statuses=[],
        sessions=0,
        pages=[],
    )
    assert "no hits" in page(empty, "log")


def test_not_found_is_an_answer_and_an_error_of_the_server_is_none() -> None:
    hours = [Hour(start=START, fine=70, redirected=10, client_errors=15, server_errors=5)]
    assert ">95.0 %</text>" in page(replace(REPORT, hours=hours), "x")


@pytest.mark.parametrize(
    ("path", "is_page"),
    [
        ("/", True),
        ("/blog/", True),
        ("/index.html", True),
        ("/ico", True),
        ("/about.css/", True),
        ("/feed.xml", True),
        ("/favicon.ico", False),
        ("/style.css", False),
        ("/js/App.MJS", False),
        ("/images/logo.PNG", False),
        ("/fonts/a.woff2", False),
        ("/robots.txt", False),
    ],
)
def test_parts_of_pages_are_no_pages(path: str, is_page: bool) -> None:
    assert (re.search(NOT_A_PAGE, path) is None) is is_page


def test_text_of_charts_grows_on_a_phone() -> None:
    text = page(REPORT, "x")
    assert parsed(text).find(".//div[@class='wide']/svg") is not None
    assert parsed(text).find(".//svg[@class='few']") is not None
    assert "@media (max-width: 760px)" in text
