"""Reads of a log: batches from an offset on, the transactions that a committed reader leaves out,
and records by their time.

Nothing here blocks on the disk where the caller must not wait: the work is returned for another
thread (``read_ahead``). Kafka: ``UnifiedLog.read``, ``fetchOffsetByTimestamp``.
"""

from __future__ import annotations

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.storage.aborted_transactions import AbortedTransaction, aborted_transactions
from millstream.storage.local_log import LocalLog
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.log_read import LogRead
from millstream.storage.producer_snapshot import ProducerSnapshots
from millstream.storage.read_ahead import ColdReadError, ReadAhead
from millstream.storage.timestamp_lookup import TimestampLookup, TimestampOffset


class LogReader:
    """Reads one log between its log start and its log end. The parts are those of the log."""

    __slots__ = ("_local", "_offsets", "_snapshots")

    def __init__(self, local: LocalLog, offsets: LogOffsets, snapshots: ProducerSnapshots) -> None:
        self._local = local
        self._offsets = offsets
        self._snapshots = snapshots

    def read(
        self,
        fetch_offset: Offset,
        *,
        max_bytes: int,
        upper_bound_offset: Offset,
        min_one_batch: bool,
        wait_for_disk: bool = True,
        with_aborted: bool = False,
    ) -> LogRead:
        """Refer to the bytes from the batch that holds ``fetch_offset`` up to
        ``upper_bound_offset``, which is the LEO, the high watermark or the last stable offset.

        At most ``max_bytes``, where the last batch may be cut; with ``min_one_batch`` the first is
        whole whatever its size. A read ends with its segment. Kafka: ``LocalLog.read``.

        With ``wait_for_disk`` False, bytes that are not in memory are returned as work for another
        thread (``LogRead.cold``), first the indexes, then the batches; the caller runs it and calls
        again. For a committed reader, ``with_aborted`` adds the transactions that it has to leave
        out; a damaged transaction index is rebuilt in the same way.

        Raises KafkaError: OFFSET_OUT_OF_RANGE outside [log start, LEO], CORRUPT_MESSAGE where the
        log is damaged; StorageError.
        """
        offsets = self._offsets
        log_end_offset = offsets.log_end_offset
        if not offsets.log_start_offset <= fetch_offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} is not in [{offsets.log_start_offset}, {log_end_offset}] "
                f"of {self._local.directory.topic_partition}",
            )
        try:
            if fetch_offset >= upper_bound_offset:
                active = self._local.active
                if fetch_offset == log_end_offset:
                    active.hint(log_end_offset, active.records.size)
                return LogRead(fetch_offset, None, active.base_offset)
            read = self._local.read(
                fetch_offset,
                max_bytes,
                upper_bound_offset,
                log_end_offset,
                min_one_batch,
                wait_for_disk,
            )
            if with_aborted:
                read.aborted = self.aborted_transactions(read, wait_for_disk=wait_for_disk)
        except ColdReadError as error:
            cold = ReadAhead(self._local.directory.parent, error)
            return LogRead(fetch_offset, None, self._local.active.base_offset, cold)
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise self._local.failure(error) from error
        return read

    def aborted_transactions(
        self, read: LogRead, *, wait_for_disk: bool = True
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that a committed reader of ``read`` must know. A
        transaction index that is damaged is rebuilt from the log.

        Raises KafkaError(CORRUPT_MESSAGE) if the log is damaged as well; StorageError;
        ColdReadError if ``wait_for_disk`` is False.
        """
        if read.records is None:
            return []
        local = self._local
        try:
            return aborted_transactions(
                local.environment,
                local.segments,
                self._snapshots,
                fetch_offset=read.fetch_offset,
                segment_base_offset=read.segment_base_offset,
                end_position=read.records.position + read.records.size,
                log_end_offset=self._offsets.log_end_offset,
                wait_for_disk=wait_for_disk,
            )
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise local.failure(error) from error

    def look_up(
        self, lookup: TimestampLookup, *, wait_for_disk: bool = True
    ) -> TimestampOffset | ReadAhead | None:
        """Advance a look-up by time; return what it finds, None where no record is late enough.

        With ``wait_for_disk`` False, may return work that another thread has to do before this is
        called again with the same ``lookup``. Raises StorageError; CorruptLogError.
        """
        try:
            return lookup.advance(
                self._local.segments, self._offsets.log_start_offset, wait_for_disk=wait_for_disk
            )
        except ColdReadError as cold:
            return ReadAhead(self._local.directory.parent, cold)
        except OSError as error:
            raise self._local.failure(error) from error
