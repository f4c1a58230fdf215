"""The scanners that the logs of a broker lend each other to append what a leader sent.

One has memory for what it finds, some thirty kilobytes, and takes longer to make than to use; a
broker needs one on its loop and one on each thread that fills a log.
"""

from __future__ import annotations

from typing import Final

from millstream.records.scan import BatchScanner
from millstream.records.scan_kernel import new_batch_scanner

_CAPACITY: Final = 256
"""Findings of a kind in one call: a megabyte has an index entry for every four kilobytes."""


class ScannerPool:
    """Scanners that nobody uses now; they begin anew with every buffer."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[BatchScanner] = []

    def take(self) -> BatchScanner:
        """Return a scanner that refuses batches of older leader epochs. Give it back."""
        try:
            return self._free.pop()
        except IndexError:
            return new_batch_scanner(
                0, max_offset=0, interval_bytes=0, epochs_grow=True, capacity=_CAPACITY
            )

    def give_back(self, scanner: BatchScanner) -> None:
        """Keep a scanner for the next who needs one; what it found goes, with its buffer."""
        scanner.begin(0, max_offset=0, interval_bytes=0)
        self._free.append(scanner)
