"""How many records may be dead letters."""

from __future__ import annotations

import pytest

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.reject_limit import (
    RejectLimit,
    TooManyRejectsError,
    add_reasons,
    in_words,
    parse_reject_limit,
)

WHY = {"not UTF-8": 60, "no time": 2}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("5%", RejectLimit()),
        ("0.5%", RejectLimit(share=0.005)),
        ("200", RejectLimit(share=None, count=200)),
        ("0", RejectLimit(share=None, count=0)),
        ("10%, 7", RejectLimit(share=0.1, count=7)),
        ("none", RejectLimit(share=None)),
    ],
)
def test_limits(text: str, limit: RejectLimit) -> None:
    assert parse_reject_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["", "many", "5%%", "1.5", "-1", "%", "150%", "5%,6%", "200,3", "5%,200,3"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(ConfigError, match="a share"):
        parse_reject_limit(text)


@pytest.mark.parametrize(
    ("limit", "records", "rejected", "before", "is_too_many"),
    [
        (RejectLimit(), 1000, 50, 10_000, False),
        (RejectLimit(), 1000, 51, 0, True),
        (RejectLimit(), 999, 999, 0, False),
        (RejectLimit(share=None), 5000, 5000, 0, False),
        (RejectLimit(share=None, count=10), 20, 5, 5, False),
        (RejectLimit(share=None, count=10), 20, 6, 5, True),
        (RejectLimit(count=0), 20, 0, 0, False),
        (RejectLimit(count=0), 20, 1, 0, True),
    ],
)
def test_a_batch_is_judged(
    limit: RejectLimit, records: int, rejected: int, before: int, is_too_many: bool
) -> None:
    counts = {"records": records, "rejected": rejected, "before": before}
    if is_too_many:
        with pytest.raises(TooManyRejectsError, match="60 × not UTF-8; 2 × no time"):
            limit.check(**counts, why=WHY)
    else:
        limit.check(**counts, why=WHY)


def test_reasons_are_bounded() -> None:
    many = {f"reason {n}": n for n in range(1, 31)}
    kept = add_reasons([many, {"reason 30": 5, "other reasons": 3}])
    assert len(kept) == 21
    assert kept["reason 30"] == 35
    assert sum(kept.values()) == sum(many.values()) + 8
    assert in_words(kept).startswith("35 × reason 30; 29 × reason 29; 28 × reason 28; ")
