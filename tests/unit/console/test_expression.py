"""Filters of the records browser."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.console.expression import ExpressionError, parse

RECORD: dict[str, Any] = {
    "key": "ann",
    "value": {"status": 503, "path": "/a", "items": [{"sku": "A-1"}], "note": None},
    "headers": {"trace": "on"},
    "partition": 2,
    "offset": 17,
    "timestamp": 1000,
}


@pytest.mark.parametrize(
    "text",
    [
        "value.status >= 500",
        "500 <= value.status < 600",
        'key == "ann" and not value.path == "/health"',
        'value.items[0].sku in ["A-1", "A-2"]',
        'headers["trace"] == "on" or missing == 1'.replace("missing", "value.missing"),
        "value.note == null",
        "value.missing.deeper == null",
        "value.balance == null and -1 < partition",
        '"nn" in key',
    ],
)
def test_a_record_that_matches(text: str) -> None:
    assert parse(text)(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.status < 500",
        'value.status > "500"',
        "value.missing > 1",
        '"x" in value.status',
        "value.items[7].sku == 1",
        "offset in value",
        "value[[1]] == 1",
    ],
)
def test_a_record_that_does_not_match_or_has_no_such_field(text: str) -> None:
    assert not parse(text)(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "value.__class__()",
        "[x for x in value]",
        "lambda: 1",
        "value := 1",
        "2 ** 99999",
        "f'{value}'",
        "status >= 500",
        "value.status is null",
        "value.status >=",
        "not " * 400 + "value",
        "(" * 300 + "1" + ")" * 300,
        "1" * 2000,
    ],
)
def test_what_is_not_a_comparison_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)
