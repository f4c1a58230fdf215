"""Which leader epoch began at which offset, and the file ``leader-epoch-checkpoint`` that says so.

Text: ``0`` (the version), the number of entries, then a line ``epoch start-offset`` for each, both
ascending::

    0
    2
    0 0
    3 1500

An epoch in which nothing was written is replaced by the next one. The file can be rebuilt from the
log. Kafka: ``LeaderEpochFileCache``; KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from millstream.model.epoch_end import UNKNOWN_END, EpochEndOffset
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.storage.checkpoint import CorruptCheckpointError, format_lines, parse_lines
from millstream.storage.directory import LEADER_EPOCH_CHECKPOINT, PartitionDirectory
from millstream.storage.files import FileSystem, replace_file


class LeaderEpochs:
    """The epochs of one partition with their start offsets. Methods that change it return True if
    they did: the file then has to be written.
    """

    __slots__ = ("_epochs", "_start_offsets", "latest_epoch")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._start_offsets: list[Offset] = []
        self.latest_epoch: LeaderEpoch = NO_LEADER_EPOCH
        """The newest epoch, -1 if there is none."""

    @classmethod
    def parse(cls, text: str) -> LeaderEpochs:
        """Read the file's text. Raises CorruptCheckpointError."""
        epochs = cls()
        for line in parse_lines(text):
            fields = line.split(" ")
            if len(fields) != 2 or not all(field.isdecimal() for field in fields):
                raise CorruptCheckpointError(f"not an epoch and its start offset: {line!r}")
            epochs.assign(int(fields[0]), int(fields[1]))
        return epochs

    def format(self) -> str:
        """Return the file's text."""
        return format_lines(f"{epoch} {start}" for epoch, start in self.entries())

    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        """Return (epoch, start offset) in order."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that an epoch begins at ``start_offset``; entries that contradict it are
        removed.
        """
        assert epoch >= 0
        assert start_offset >= 0
        if epoch == self.latest_epoch and start_offset >= self._start_offsets[-1]:
            return False
        kept = min(bisect_left(self._epochs, epoch), bisect_left(self._start_offsets, start_offset))
        self._cut(kept)
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset:
        """Return where ``epoch``, or the largest one before it, ends."""
        if epoch == NO_LEADER_EPOCH:
            return UNKNOWN_END
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNKNOWN_END
        floor_epoch = self._epochs[higher - 1] if higher else epoch
        return EpochEndOffset(floor_epoch, self._start_offsets[higher])

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch that ``offset`` belongs to, -1 if it lies before the first."""
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop the epochs that begin at or beyond ``end_offset``."""
        kept = bisect_left(self._start_offsets, end_offset)
        if kept == len(self._epochs):
            return False
        self._cut(kept)
        return True

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Drop the epochs that end at or before ``start_offset``; the one that holds it begins
        there.
        """
        slot = bisect_right(self._start_offsets, start_offset) - 1
        if slot < 0 or (slot == 0 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[:slot]
        del self._start_offsets[:slot]
        self._start_offsets[0] = start_offset
        return True

    def clear(self) -> bool:
        """Drop all."""
        if not self._epochs:
            return False
        self._cut(0)
        return True

    def _cut(self, count: int) -> None:
        del self._epochs[count:]
        del self._start_offsets[count:]
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH


def write_leader_epochs(
    file_system: FileSystem, directory: PartitionDirectory, epochs: LeaderEpochs
) -> None:
    """Write the file. It is not flushed: the log's next flush does that."""
    path = directory.file(LEADER_EPOCH_CHECKPOINT)
    replace_file(file_system, path, epochs.format().encode("ascii"), durable=False)
