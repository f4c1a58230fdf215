"""What a read of a log returns."""

from __future__ import annotations

from millstream.model.offsets import Offset
from millstream.storage.file_slice import FileSlice


class LogRead:
    """``records`` start with the batch that holds ``fetch_offset``; None when there is nothing
    below the upper bound, or nothing that fits.
    """

    __slots__ = ("fetch_offset", "records", "segment_base_offset")

    def __init__(
        self, fetch_offset: Offset, records: FileSlice | None, segment_base_offset: Offset
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.segment_base_offset = segment_base_offset

    @property
    def size(self) -> int:
        """Bytes found."""
        return 0 if self.records is None else self.records.size
