"""How many records of a load may be dead letters before it ends: it reads rubbish. Pure.

A wrong format or schema makes every record a dead letter, and the audit is clean then, because none
is missing. A batch with too many of them is not committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError, MillstreamError

LEAST_RECORDS: Final = 1_000
"""A batch with fewer records is not judged by its share."""
MOST_REASONS: Final = 20
"""Different reasons that are counted one by one."""
OTHER_REASONS: Final = "other reasons"


class TooManyRejectsError(MillstreamError):
    """More records than allowed cannot be read; the batch is not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectLimit:
    """Dead letters that a load may have; None sets no limit."""

    share: float | None = 0.05
    """Of the records of a batch of LEAST_RECORDS or more."""
    count: int | None = None
    """In all batches of one run."""

    def check(self, *, records: int, rejected: int, before: int, why: Mapping[str, int]) -> None:
        """Raise TooManyRejectsError for a batch of ``records`` with too many ``rejected`` ones.

        ``before`` are those of earlier batches of the run.
        """
        is_judged = self.share is not None and records >= LEAST_RECORDS
        if is_judged and rejected > records * (self.share or 0.0):
            raise TooManyRejectsError(
                f"{rejected:,} of {records:,} records of a batch cannot be read, more than "
                f"{self.share:.4g} of them (--max-rejects): {in_words(why)}. Nothing of the batch "
                "is in the table"
            )
        if self.count is not None and rejected and before + rejected > self.count:
            raise TooManyRejectsError(
                f"{before + rejected:,} records cannot be read, more than {self.count:,} "
                f"(--max-rejects): {in_words(why)}. Nothing of the last batch is in the table"
            )


def parse_reject_limit(text: str) -> RejectLimit:
    """Read ``5%``, ``200``, both with a comma between them, or ``none``; ConfigError otherwise."""
    if text.strip() == "none":
        return RejectLimit(share=None)
    share: float | None = None
    count: int | None = None
    for part in (each.strip() for each in text.split(",")):
        number = part.removesuffix("%")
        is_share = number != part
        is_number = number.replace(".", "", 1 if is_share else 0).isdecimal()
        is_repeated = (share if is_share else count) is not None
        if not is_number or is_repeated:
            raise ConfigError(
                f"it takes a share (5%), a number (200), both (5%,200) or none, not {text!r}"
            )
        if is_share and float(number) > 100:
            raise ConfigError(f"a share is at most 100%, not {part}")
        if is_share:
            share = float(number) / 100
        else:
            count = int(number)
    return RejectLimit(share=share, count=count)


def in_words(why: Mapping[str, int], most: int = 3) -> str:
    """Return the most frequent reasons in one line."""
    chosen = sorted(why.items(), key=lambda each: (each[0] == OTHER_REASONS, -each[1], each[0]))
    texts = [f"{count:,} × {reason}" for reason, count in chosen[:most]]
    rest = sum(count for _, count in chosen[most:])
    return "; ".join([*texts, *([f"{rest:,} × {OTHER_REASONS}"] if rest else [])])


def add_reasons(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return how often each reason occurs, the most frequent MOST_REASONS and the rest."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    other = total.pop(OTHER_REASONS, 0)
    kept = dict(total.most_common(MOST_REASONS))
    other += total.total() - sum(kept.values())
    return {**kept, OTHER_REASONS: other} if other else kept
