"""What a read of a log returns."""

from __future__ import annotations

from millstream.model.offsets import Offset
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.file_slice import FileSlice
from millstream.storage.read_ahead import ReadAhead


class LogRead:
    """``records`` start with the batch that holds ``fetch_offset``; None when there is nothing
    below the upper bound, or nothing that fits. If the read would have blocked on the disk and must
    not, ``cold`` is the work to do first, and nothing has been read.

    ``aborted`` are the transactions whose records a committed reader has to leave out, if they were
    requested. Some that lie beyond what was read may be among them.
    """

    __slots__ = ("aborted", "cold", "fetch_offset", "records", "segment_base_offset")

    def __init__(
        self,
        fetch_offset: Offset,
        records: FileSlice | None,
        segment_base_offset: Offset,
        cold: ReadAhead | None = None,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.segment_base_offset = segment_base_offset
        self.cold = cold
        self.aborted: list[AbortedTransaction] = []

    @property
    def size(self) -> int:
        """Bytes found."""
        return 0 if self.records is None else self.records.size
