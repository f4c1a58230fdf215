"""The scanners that the logs of a broker share to append what a leader sent.

A scanner has about thirty kilobytes of memory for its results and takes longer to create than to
use. A broker needs one on its loop and one on each thread that fills a log.
"""

from __future__ import annotations

from typing import Final

from millstream.records.scan import BatchScanner
from millstream.records.scan_kernel import new_batch_scanner

_CAPACITY: Final = 256
"""Results of one kind in one call: a megabyte has an index entry for every four kilobytes."""


class ScannerPool:
    """The scanners that are not in use; their state is reset with every buffer."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[BatchScanner] = []

    def take(self) -> BatchScanner:
        """Return a scanner that refuses batches of older leader epochs. The caller returns it with
        :meth:`give_back`.
        """
        try:
            return self._free.pop()
        except IndexError:
            return new_batch_scanner(
                0, max_offset=0, interval_bytes=0, epochs_grow=True, capacity=_CAPACITY
            )

    def give_back(self, scanner: BatchScanner) -> None:
        """Return a scanner to the pool; its results and its buffer are dropped."""
        scanner.begin(0, max_offset=0, interval_bytes=0)
        self._free.append(scanner)
