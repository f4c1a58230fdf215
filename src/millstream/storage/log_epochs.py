"""The leader epochs of one log, and when the file that holds them is written.

A broker that becomes leader of a thousand partitions does not write a thousand files: an epoch goes
into ``leader-epoch-checkpoint`` when its first batch is appended, and the first file of a log is
made with the first flush. Until then recovery reads the whole log, and takes the epochs from its
batches. The file is not flushed here: it is noted, and the log's next flush brings it to disk.
"""

from __future__ import annotations

from typing import Final

from millstream.model.epoch_end import EpochEndOffset
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.storage.directory import LEADER_EPOCH_CHECKPOINT, PartitionDirectory
from millstream.storage.durability import Durability
from millstream.storage.files import FileSystem
from millstream.storage.leader_epochs import LeaderEpochs, write_leader_epochs

NOT_LOOKED: Final[LeaderEpoch] = -2
"""No batch has this epoch."""


class LogEpochs:
    """The epochs of one log. What writes the file raises OSError."""

    __slots__ = ("_directory", "_durability", "_file_system", "_is_unwritten", "appended", "known")

    def __init__(
        self,
        file_system: FileSystem,
        directory: PartitionDirectory,
        durability: Durability,
        known: LeaderEpochs,
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._durability = durability
        self.known = known
        """The epochs and where each begins."""
        self._is_unwritten = False
        """True while the file lacks an epoch that is known."""
        self.appended: LeaderEpoch = NOT_LOOKED
        """The epoch of the last batch. Before a batch of another epoch is appended, :meth:`begin`
        is called.
        """

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch known, -1 if none."""
        return self.known.latest_epoch

    def end_offset_for(self, leader_epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset:
        """Return where an epoch ends (KIP-101)."""
        return self.known.end_offset_for(leader_epoch, log_end_offset)

    def assign(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that an epoch begins at ``start_offset``, where no batch of it is yet.

        Nothing is written: an epoch without a batch is forgotten when a log is opened anyway.
        """
        if leader_epoch >= 0 and self.known.assign(leader_epoch, start_offset):
            self._is_unwritten = True
            self.appended = NOT_LOOKED

    def begin(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that a batch of another epoch than the last one's is about to be appended.

        An existing file is rewritten at once; a new one is created with the next flush.
        """
        if leader_epoch >= 0 and self.known.assign(leader_epoch, start_offset):
            self._is_unwritten = True
        if self._is_unwritten and self._file_system.exists(
            self._directory.file(LEADER_EPOCH_CHECKPOINT)
        ):
            self.write()
        self.appended = leader_epoch

    def forget_from(self, end_offset: Offset) -> None:
        """Forget the epochs that begin at the log end or beyond, in which nothing is written."""
        if self.known.truncate_from_end(end_offset):
            self._is_unwritten = True
            self.appended = NOT_LOOKED

    def forget_all(self) -> None:
        """Forget all epochs of an empty log; the file is written later."""
        self._is_unwritten |= self.known.clear()
        self.appended = NOT_LOOKED

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Drop what begins at or beyond ``end_offset``, where the log is cut."""
        self.appended = NOT_LOOKED
        if self.known.truncate_from_end(end_offset):
            self.write()

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Drop what ends at or before ``start_offset``, where the log begins now."""
        if self.known.truncate_from_start(start_offset):
            self.write()

    def clear(self) -> None:
        """Drop all epochs, when the log is truncated fully."""
        self.appended = NOT_LOOKED
        if self.known.clear():
            self.write()

    def replace(self, other: LogEpochs) -> None:
        """Take over the epochs of a log that this one takes the place of."""
        self.known = other.known
        self.write()

    def write_if_due(self) -> None:
        """Write the file where it lacks an epoch."""
        if self._is_unwritten:
            self.write()

    def write(self) -> None:
        """Write the file."""
        self._is_unwritten = False
        self.appended = NOT_LOOKED
        write_leader_epochs(self._file_system, self._directory, self.known)
        self._durability.note_replaced(LEADER_EPOCH_CHECKPOINT)
