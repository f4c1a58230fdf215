"""The markers that end transactions, written into partitions that are led here: for WriteTxnMarkers
(``handlers/write_txn_markers``), and for a transaction coordinator on this broker.

Each partition has its own outcome, once its marker is committed as with acks=all, and
REQUEST_TIMED_OUT after a while: the marker may be committed yet. In ``__consumer_offsets`` the
group coordinator writes the marker, in order with its other records, and what was committed in the
transaction becomes visible or vanishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.coordinator.result import EndedPartitions, MarkerCodes, TransactionEnd
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.records.control import MarkerBatch
from millstream.runtime.replicas.committed_appends import append_marker
from millstream.runtime.replicas.partitions import Partitions

if TYPE_CHECKING:
    from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime

log = logging.getLogger(__name__)

Groups: TypeAlias = "Callable[[], GroupCoordinatorRuntime]"
"""Returns the group coordinator of this broker, made at first use."""

OnWritten: TypeAlias = Callable[[Sequence[MarkerCodes]], None]
"""Takes the codes of each marker, in order."""

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What the group coordinator says where the transaction coordinator has to look for a leader."""
_NONE: Final = ErrorCode.NONE.code
_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT.code


def write_markers(
    clock: Clock,
    partitions: Partitions,
    groups: Groups,
    ends: Sequence[EndedPartitions],
    timeout_ms: int,
    on_written: OnWritten,
) -> None:
    """Write every marker into each of its partitions; tell ``on_written`` once all of them count,
    or the time is over.
    """
    now_ms = clock.now_ms()
    codes: list[dict[str, dict[int, int]]] = []
    waiting: list[tuple[dict[int, int], int, Deferred[Any]]] = []
    for end, topics in ends:
        batch = end.marker_batch(now_ms)
        by_topic: dict[str, dict[int, int]] = {}
        for topic, indexes in topics.items():
            by_index = by_topic[topic] = {}
            for index in indexes:
                written = _append(partitions, groups, end, batch, topic, index)
                if isinstance(written, Deferred):
                    by_index[index] = _TIMED_OUT
                    waiting.append((by_index, index, written))
                else:
                    by_index[index] = written
        codes.append(by_topic)
    if waiting:
        _Waiting(clock, waiting, timeout_ms, partial(on_written, codes))
    else:
        on_written(codes)


def _append(
    partitions: Partitions,
    groups: Groups,
    end: TransactionEnd,
    batch: MarkerBatch,
    topic: str,
    index: int,
) -> int | Deferred[Any]:
    """Write one marker into one partition; return its code, or what is filled once it counts."""
    try:
        partition = partitions.get(topic, index)
        written: Deferred[Any]
        if topic == GROUP_METADATA_TOPIC:
            written = groups().end_transaction(index, end)
        else:
            written = append_marker(partition, batch, transaction_version=end.transaction_version)
    except Exception as error:
        return _code_of(error)
    return _code(written) if written.done else written


def _code(written: Deferred[Any]) -> int:
    """Return how the write of a marker has ended."""
    try:
        written.result()
    except Exception as error:
        return _code_of(error)
    return _NONE


def _code_of(error: Exception) -> int:
    if not isinstance(error, KafkaError):  # the other partitions have their markers all the same
        log.error("a marker could not be written", exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR.code
    code = error.error
    return (ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _ELSEWHERE else code).code


class _Waiting:
    """Markers that are not committed yet, until all of them are or the time is over."""

    def __init__(
        self,
        clock: Clock,
        waiting: Sequence[tuple[dict[int, int], int, Deferred[Any]]],
        timeout_ms: int,
        on_done: Callable[[], None],
    ) -> None:
        self._left = len(waiting)
        self._on_done = on_done
        self._is_done = False
        self._timer = clock.call_later(timeout_ms, self._finish)
        for by_index, index, written in waiting:
            written.on_done(partial(self._settle, by_index, index))

    def _settle(self, by_index: dict[int, int], index: int, written: Deferred[Any]) -> None:
        if self._is_done:
            return
        by_index[index] = _code(written)
        self._left -= 1
        if not self._left:
            self._timer.cancel()
            self._finish()

    def _finish(self) -> None:
        self._is_done = True
        self._on_done()
