"""Which part of one log is flushed, and which flushes have to come before the next append.

A :class:`Durability` owns the recovery point of its log and everything that moves it:

* Appends leave the recovery point behind. A **flush plan** gathers what is to be flushed: the
  segments from the recovery point on, the small files and the directories that were noted. It runs
  on any thread (``flush``); :meth:`flushed` then moves the recovery point up. A closed segment is
  complete, and has a plan of its own, so that it need not wait for the segment after it.
* A **cut** takes the recovery point back. The plans that were made before it do not count any more.

A cut is the one thing that can make a checkpoint wrong. Recovery begins at the segment that holds
the checkpointed recovery point; if the log is cut below it, recovery would skip whatever is written
afterwards up to that point, whole or torn. After a power loss, segments whose removal had not
reached the disk may also reappear behind the records that were written in their place. Hence the
order of a cut at ``offset`` (``LogTruncation.truncate_to``), which holds after a power loss at any
moment::

    1  remove the segments beyond offset, newest first     a shorter log, unchanged below
    2  flush the directory; lower the checkpoints          begin_cut -> settle, or a flush plan
    3  cut the segment that holds offset                   recovery looks at it from now on
    4  flush that segment                                  cut -> settle, or a flush plan
    5  append

Without step 4 the old end of the segment could come back below a segment that was begun after it.

Steps 2 and 4 wait for a disk. ``LogTruncation.begin_truncation`` ends after step 1, so that a
broker can do step 2 off its loop, for many logs at once, and cut then; step 4 is a flush like any
other. A caller that does not do this leaves both flushes to the log, which does them synchronously:
nothing is appended while :attr:`blocks_append` holds.

Kafka: ``LogManager.truncateTo``, ``UnifiedLog.roll``, ``LocalLog.markFlushed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.model.offsets import Offset
from millstream.storage.checkpoint_claims import CheckpointClaims
from millstream.storage.directory import PRODUCER_SNAPSHOT, PartitionDirectory, parse_file_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import File
from millstream.storage.flush import FlushPlan
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments

NEVER_TRUNCATED: Final[Offset] = 2**63 - 1

SEGMENTS_OF_A_PLAN: Final = 4
"""How many closed segments are flushed together: their files are open meanwhile."""

_OWN_NAMES: Final = "."
_PARENTS_NAMES: Final = ".."


class Durability:
    """The recovery point of one log, and what still has to be flushed."""

    __slots__ = (
        "_ceiling",
        "_claims",
        "_cut_segment",
        "_cuts",
        "_directory",
        "_end_before_cut",
        "_file_system",
        "_notes",
        "_number_of_notes",
        "blocks_append",
        "recovery_point",
        "truncated_to",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        *,
        recovery_point: Offset,
        log_end_offset: Offset,
    ) -> None:
        self._file_system = environment.file_system
        self._directory = directory
        self._claims = environment.checkpoint_claims(directory.parent)
        self.recovery_point = recovery_point
        """Everything below is flushed."""
        self._ceiling: Offset | None = None
        """Where the log is about to be cut: no checkpoint goes beyond it."""
        self._end_before_cut: Offset = 0
        """The log end when that was announced; a log that has grown since is not cut there."""
        self._cut_segment: Segment | None = None
        """The segment whose end was cut off and may reappear after a power loss."""
        self._cuts = 0
        """How often the log was cut: a plan from before a cut flushed what may be gone."""
        self._notes: dict[str, int] = {}
        """Names of files and directories that are to be flushed, and when each was noted last."""
        self._number_of_notes = 0
        self.truncated_to: Offset = NEVER_TRUNCATED
        """The lowest log end since the cleaner last read it: the cleaner lowers its own checkpoint
        to it.
        """
        # A log that is new or that ends before its checkpoint is treated like one that was cut.
        self.blocks_append = self._claims.lower(directory.topic_partition, log_end_offset)
        """True while :meth:`settle` or a flush has to come before the next append."""

    # What is to be flushed

    def note(self, *names: str) -> None:
        """Record files, by their names in the log's directory, that have to be flushed."""
        for name in names:
            self._number_of_notes += 1
            self._notes[name] = self._number_of_notes

    def forget(self, names: Iterable[str]) -> None:
        """Forget files that were deleted."""
        for name in names:
            self._notes.pop(name, None)

    def note_replaced(self, name: str) -> None:
        """Record a file that was put in the place of another one of its name."""
        self.note(name, _OWN_NAMES)

    def note_names(self) -> None:
        """Record that names in the log's directory have changed."""
        self.note(_OWN_NAMES)

    def note_directory(self) -> None:
        """Record that the directory itself has a new name."""
        self.note(_OWN_NAMES, _PARENTS_NAMES)

    @property
    def unsynced(self) -> list[str]:
        """Names of what is noted and not known to be flushed."""
        return list(self._notes)

    # Cuts

    def begin_cut(self, offset: Offset, log_end_offset: Offset, *, removed: bool) -> None:
        """Record that the log will be cut at ``offset``. It ends at ``log_end_offset`` now, and
        segments beyond that were ``removed``, or not.
        """
        self._cuts += 1
        self._ceiling = offset
        self._end_before_cut = log_end_offset
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.truncated_to = min(self.truncated_to, log_end_offset)
        if removed:
            self.note_names()
        if self._claims.lower(self._directory.topic_partition, offset) or removed:
            self.blocks_append = True

    def cut(self, log_end_offset: Offset, segment: Segment | None) -> None:
        """Record that the log ends at ``log_end_offset`` now, where the end of ``segment`` was
        cut off; None for a log that begins anew.
        """
        self._cuts += 1
        self._ceiling = None
        self._cut_segment = segment
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.truncated_to = min(self.truncated_to, log_end_offset)
        if self._claims.lower(self._directory.topic_partition, log_end_offset) or segment:
            self.blocks_append = True

    def settle(self) -> None:
        """Do the flushes that have to come before the next append, synchronously. Raises
        OSError.
        """
        if not self.blocks_append:
            return
        if self._cut_segment is not None:
            self._cut_segment.records.file().sync()
            self._cut_segment = None
        if _OWN_NAMES in self._notes:
            self._file_system.sync_directory(self._directory.path)
            del self._notes[_OWN_NAMES]
        self._claims.settle()
        self.blocks_append = False

    # Plans

    @property
    def checkpoint_point(self) -> Offset:
        """The recovery point as a checkpoint may have it."""
        if self._ceiling is None:
            return self.recovery_point
        return min(self.recovery_point, self._ceiling)

    def is_flushed(self, log_end_offset: Offset) -> bool:
        """Tell whether nothing is left to be flushed up to the log end."""
        notes = self._notes
        files = len(notes) - (_OWN_NAMES in notes) - (_PARENTS_NAMES in notes)
        return self.recovery_point >= log_end_offset and not files and not self.blocks_append

    def plan(
        self, segments: Segments, log_end_offset: Offset, failure: OSError | None = None
    ) -> FlushPlan:
        """Return the plan that makes everything below ``log_end_offset`` durable. If an earlier
        flush has failed, the plan fails too.
        """
        needed = [s for s in segments.starting_with(self.recovery_point) if s.size]
        if self._cut_segment is not None and self._cut_segment not in needed:
            needed.append(self._cut_segment)
        claims = self._claims if self.blocks_append else None
        return self._plan(needed, log_end_offset, failure, notes=dict(self._notes), claims=claims)

    def closed_plan(self, segments: Segments, failure: OSError | None = None) -> FlushPlan:
        """Return the plan that makes the next few closed segments durable; it does not touch the
        active segment.
        """
        closed = segments.starting_with(self.recovery_point)[: SEGMENTS_OF_A_PLAN + 1]
        end_offset = closed.pop().base_offset
        return self._plan(
            [segment for segment in closed if segment.size],
            end_offset,
            failure,
            notes={n: number for n, number in self._notes.items() if _is_below(n, end_offset)},
            may_flush_volume=False,
        )

    def _plan(
        self,
        segments: Iterable[Segment],
        end_offset: Offset,
        failure: OSError | None,
        *,
        notes: dict[str, int],
        claims: CheckpointClaims | None = None,
        may_flush_volume: bool = True,
    ) -> FlushPlan:
        files: list[File] = []
        try:
            files = [segment.records.file() for segment in segments]
        except OSError as error:
            failure = error
        directory = self._directory
        return FlushPlan(
            file_system=self._file_system,
            durability=self,
            log_directory=directory.parent,
            recovery_point=end_offset,
            cuts=self._cuts,
            notes=notes,
            files=files,
            paths=[directory.file(n) for n in notes if n not in (_OWN_NAMES, _PARENTS_NAMES)],
            directories=[
                path
                for note, path in (
                    (_OWN_NAMES, directory.path),
                    (_PARENTS_NAMES, directory.parent),
                )
                if note in notes
            ],
            claims=claims,
            failure=failure,
            may_flush_volume=may_flush_volume,
        )

    def flushed(self, plan: FlushPlan) -> bool:
        """Record that ``plan`` has run: the recovery point moves up, unless (False) the log was
        cut meanwhile.
        """
        if plan.cuts != self._cuts:
            return False
        self.recovery_point = max(self.recovery_point, plan.recovery_point)
        if plan.recovery_point > self._end_before_cut:
            self._ceiling = None
        for name, number in plan.notes.items():
            if self._notes.get(name) == number:
                del self._notes[name]
        if plan.settles:
            self._cut_segment = None
            self.blocks_append = False
        return True

    def volume_flushed(self, log_end_offset: Offset) -> None:
        """Record that the volume was flushed as a whole, with all that is written here."""
        self.recovery_point = log_end_offset
        self._notes.clear()


def _is_below(name: str, end_offset: Offset) -> bool:
    """Tell whether a file belongs to what lies before ``end_offset``, or to the log as a whole."""
    parsed = parse_file_name(name)
    if parsed is None:
        return True
    offset, extension = parsed
    # The snapshot at an offset says what lies before it.
    return offset < end_offset or (offset == end_offset and extension == PRODUCER_SNAPSHOT)
