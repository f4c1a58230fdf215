"""What a consumer acknowledges of a partition, as runs of offsets with one type each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, Protocol

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.share.record_state import AcknowledgeType


class AcknowledgementBatch(Protocol):
    """A batch of ShareFetch or ShareAcknowledge: one type for all offsets, or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class AcknowledgedRun(NamedTuple):
    """Consecutive offsets with one type."""

    first_offset: Offset
    last_offset: Offset
    acknowledge_type: AcknowledgeType


def runs_of(
    batches: Iterable[AcknowledgementBatch], *, may_renew: bool
) -> tuple[AcknowledgedRun, ...]:
    """Return the runs of a partition's batches, in order.

    Raises KafkaError(INVALID_REQUEST) for batches out of order, without types, with a wrong
    number of them, with an unknown one, and for RENEW where the request does not announce
    it. A batch that begins with the last offset of the one before it is refused by the share
    partition only (Kafka: ``KafkaApis.validateAcknowledgementBatches``).
    """
    runs: list[AcknowledgedRun] = []
    previous_last = -1
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if (
            count < 1
            or batch.first_offset < previous_last
            or len(types) not in {1, count}
            or not 0 <= min(types) <= max(types) <= highest
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        previous_last = batch.last_offset
        runs += _runs(batch)
    return tuple(runs)


def _runs(batch: AcknowledgementBatch) -> Iterator[AcknowledgedRun]:
    types = batch.acknowledge_types
    if len(types) == 1 or types.count(types[0]) == len(types):
        yield AcknowledgedRun(batch.first_offset, batch.last_offset, AcknowledgeType(types[0]))
        return
    first = batch.first_offset
    for number, equal in groupby(types):
        last = first + sum(1 for _ in equal) - 1
        yield AcknowledgedRun(first, last, AcknowledgeType(number))
        first = last + 1
