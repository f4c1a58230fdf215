"""Checks across all segments of a log: leader epochs, producers, transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from millstream.model.errors import CorruptIndexError, CorruptLogError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, Offset
from millstream.records.batch import Batch
from millstream.records.control import ControlType, parse_marker
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.producer_recovery import replay_batch
from millstream.storage.producer_snapshot import decode_snapshot
from millstream.storage.producer_state import ProducerEntry, ProducerStateManager
from millstream.storage.transaction_index import AbortedEntry, TransactionIndex
from millstream.storage.verify.problem import Problem

_EPOCHS_WRONG: Final = (
    "a broker trusts it after a clean stop and answers followers with it; without the file, or "
    "without the clean-shutdown marker, it is rebuilt from the log"
)
_SNAPSHOT_DROPPED: Final = "a broker drops it and reads the log from an older snapshot on"
_SNAPSHOT_WRONG: Final = (
    "a broker trusts it and may take a repeated batch for a new one; without the file it reads the "
    "log instead"
)
_ABORTED_WRONG: Final = (
    "consumers that read committed records may get aborted ones or miss committed ones; a start "
    "without the clean-shutdown marker and the recovery point rebuilds it"
)
_UNREADABLE: Final = "fetches of consumers that read committed records fail here"


class EpochCheck:
    """Every batch lies in the epoch that ``leader-epoch-checkpoint`` gives its offset."""

    def __init__(self, path: str, epochs: LeaderEpochs) -> None:
        self._path = path
        self._epochs = epochs
        self._told = {NO_LEADER_EPOCH}
        entries = epochs.entries()
        self._first = entries[0][1] if entries else 2**63

    def batch(self, batch: Batch) -> Iterator[Problem]:
        """Check the next batch of the log; each epoch is reported once."""
        epoch = batch.partition_leader_epoch
        if epoch in self._told:
            return
        known = self._epochs.epoch_for_offset(batch.last_offset)
        if known == epoch or (batch.base_offset < self._first and batch.last_offset < self._first):
            return
        self._told.add(epoch)
        what = f"offset {batch.last_offset} was written in leader epoch {epoch}, here it is {known}"
        yield Problem(self._path, None, what, _EPOCHS_WRONG)


class ProducerCheck:
    """Replays producers, and checks snapshots and the transaction indexes against them."""

    def __init__(self, snapshots: Mapping[Offset, tuple[str, bytes]], first_offset: Offset) -> None:
        self._first_offset = first_offset
        self._producers = ProducerStateManager()
        self._pending = sorted(snapshots.items())
        self._expected: list[AbortedEntry] = []
        self._markers: dict[Offset, int] = {}

    def batch(self, batch: Batch) -> Iterator[Problem]:
        """Take the next batch of the log."""
        yield from self.reached(batch.base_offset)
        if batch.producer_id < 0 or not batch.count:
            return
        try:
            aborted = replay_batch(self._producers, batch)
            if batch.is_control:
                marker = parse_marker(batch)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    self._markers[batch.base_offset] = batch.producer_id
        except CorruptLogError:
            return  # the check of the log tells it
        if aborted is not None:
            self._expected.append(aborted)

    def reached(self, offset: Offset) -> Iterator[Problem]:
        """Compare the snapshots whose offset is at most ``offset``, the next one of the log."""
        while self._pending and self._pending[0][0] <= offset:
            yield from self._compare(*self._pending.pop(0)[1])

    def finish(self, log_end_offset: Offset) -> Iterator[Problem]:
        """Return what is wrong once the last segment has ended."""
        yield from self.reached(log_end_offset)
        for offset, (path, _) in self._pending:
            what = f"it holds up to offset {offset}, and the log ends at {log_end_offset}"
            yield Problem(path, None, what, _SNAPSHOT_DROPPED)

    def _compare(self, path: str, data: bytes) -> Iterator[Problem]:
        try:
            stored = decode_snapshot(data, path)
        except CorruptIndexError as error:
            what = str(error).removeprefix(f"{path}: ")
            yield Problem(path, 0, what, _SNAPSHOT_DROPPED)
            return
        for number, entry in enumerate(stored):
            replayed = self._producers.producers.get(entry.producer_id)
            if replayed is not None and self._state(replayed) != self._state(entry):
                what = (
                    f"producer {entry.producer_id} is at (epoch, sequence, open transaction) "
                    f"{self._state(entry)} here, {self._state(replayed)} in the log"
                )
                yield Problem(path, 10 + 46 * number, what, _SNAPSHOT_WRONG)

    def _state(self, entry: ProducerEntry) -> tuple[int, int, Offset]:
        began = entry.current_txn_first_offset
        if began != NO_OFFSET:
            began = max(began, self._first_offset)  # what came before is not in the log
        return entry.producer_epoch, entry.last_sequence, began

    def segment_ended(self, path: str, data: bytes, *, is_live: bool) -> Iterator[Problem]:
        """Check the transaction index of the segment that has just ended against its markers."""
        entry = TransactionIndex.entry
        whole = len(data) - len(data) % entry.size
        if whole < len(data) and not is_live:
            yield Problem(path, whole, f"{len(data) - whole} bytes too many", _UNREADABLE)
        expected = {aborted.last_offset: aborted for aborted in self._expected}
        last_offset = NO_OFFSET
        for number, fields in enumerate(entry.iter_unpack(data[:whole])):
            found = AbortedEntry(*fields)
            position = number * entry.size
            known = expected.pop(found.last_offset, None)
            if found.version != 0 or found.last_offset <= last_offset:
                yield Problem(path, position, f"{_text(found)} is out of order", _UNREADABLE)
            elif self._markers.get(found.last_offset) != found.producer_id:
                what = f"{_text(found)} ends with no abort marker of that producer"
                yield Problem(path, position, what, _ABORTED_WRONG)
            elif known is not None and known.first_offset != max(
                found.first_offset, self._first_offset
            ):
                what = f"{_text(found)}, which begins at {known.first_offset} in the log"
                yield Problem(path, position, what, _ABORTED_WRONG)
            last_offset = found.last_offset
        if not is_live:
            for missing in expected.values():
                yield Problem(path, None, f"{_text(missing)} has no entry", _ABORTED_WRONG)
        self._expected.clear()
        self._markers.clear()


def _text(aborted: AbortedEntry) -> str:
    return (
        f"the transaction of producer {aborted.producer_id} from {aborted.first_offset} to "
        f"{aborted.last_offset}"
    )
