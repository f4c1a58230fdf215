"""How a client leaves out what was not committed (Kafka: ``CompletedFetch``).

A fetch names the aborted transactions that touch it, by producer and first offset; the records of
such a producer are dropped from there to its abort marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from millstream.model.offsets import Offset
from millstream.records.batch import Batch, iter_batches
from millstream.records.control import ControlType, parse_marker
from millstream.records.record import iter_records
from millstream.runtime.replicas.partition import READ_COMMITTED, Partition


class CommittedView:
    """One reading of one partition from its beginning."""

    def __init__(self) -> None:
        self.position: Offset = 0

    def take(
        self, batches: Iterable[Batch], aborted: Sequence[tuple[int, Offset]]
    ) -> Iterator[tuple[Offset, str]]:
        """Yield what is committed in the answer of one fetch, by offset."""
        waiting = sorted(aborted, key=lambda each: each[1])
        dropped: set[int] = set()
        for batch in batches:
            while waiting and waiting[0][1] <= batch.last_offset:
                dropped.add(waiting.pop(0)[0])
            if batch.is_control:
                marker = parse_marker(batch)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    dropped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in dropped):
                for record in iter_records(batch):
                    if record.offset >= self.position:
                        yield record.offset, bytes(record.value or b"").decode()
            self.position = max(self.position, batch.next_offset)


def read_committed(partition: Partition, max_bytes: int) -> list[tuple[Offset, str]]:
    """Read all that is committed of one replica, by fetches of ``max_bytes``."""
    view = CommittedView()
    view.position = partition.log_start_offset
    seen: list[tuple[Offset, str]] = []
    while view.position < partition.visible_end(READ_COMMITTED):
        read = partition.read(
            view.position, max_bytes=max_bytes, isolation=READ_COMMITTED, min_one_batch=True
        )
        if read.records is None:
            break
        aborted = [(each.producer_id, each.first_offset) for each in read.aborted]
        seen += view.take(iter_batches(read.records.read()), aborted)
    return seen
