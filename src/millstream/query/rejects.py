"""Records that a query cannot read: counted with their reasons, and how many there may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.query.settings import QueryError
from millstream.spark.lakehouse.formats import Rejected
from millstream.spark.lakehouse.reject_limit import (
    LEAST_RECORDS,
    RejectLimit,
    add_reasons,
    in_words,
)

_JUDGED_RECORDS: Final = 1_000_000
"""So many records are judged by their share as a load judges a batch."""


class Rejects:
    """The rejected records of one scan of a topic."""

    def __init__(self, topic: str, limit: RejectLimit) -> None:
        self._topic = topic
        self._limit = limit
        self._records = 0
        self._here = 0
        self.count = 0
        self.reasons: Mapping[str, int] = {}

    def add(self, records: int, rejected: Sequence[Rejected]) -> None:
        """Count a batch; QueryError when there are too many."""
        self._records += records
        if rejected:
            self._here += len(rejected)
            self.count += len(rejected)
            here = Counter(each.reason for each in rejected)
            self.reasons = add_reasons([self.reasons, here])
            if self._limit.count is not None and self.count > self._limit.count:
                self._fail(f"{self.count:,} records", f"{self._limit.count:,}")
        if self._records >= _JUDGED_RECORDS:
            self.judge()

    def judge(self) -> None:
        """Judge the share of the records since it was judged last; QueryError if it is too large.

        Fewer than LEAST_RECORDS are not judged.
        """
        share, records, here = self._limit.share, self._records, self._here
        self._records = self._here = 0
        if share is not None and records >= LEAST_RECORDS and here > share * records:
            self._fail(f"{here:,} of {records:,} records", f"{share:.4g} of them")

    def _fail(self, seen: str, allowed: str) -> None:
        raise QueryError(
            f"{seen} of {self._topic} cannot be read, more than {allowed} (--max-rejects): "
            f"{in_words(self.reasons)}"
        )
