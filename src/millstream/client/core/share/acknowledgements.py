"""What a share consumer says of the records that it has acquired.

An acknowledgement goes to the broker that delivered the record, within the share session in which
it did: when that session ends, or the partition gets another leader, the broker has given up the
acquisition, and so what is said of it later is void (Kafka: ``Acknowledgements``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition

GAP: Final = 0
"""The type of an acquired offset that has no record: compacted away, or a transaction's marker."""

_LONGEST_MIXED_RUN: Final = 10
"""A longer run of one type is a batch of its own: its type is written once."""


class AcknowledgeType(IntEnum):
    """What becomes of an acquired record."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed, and is to be delivered again."""
    REJECT = 3
    """It cannot be processed, and is not delivered again."""
    RENEW = 4
    """It is still being processed: its acquisition lock begins anew (KIP-1222)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whence records were acquired: a partition's leader, and its share session.

    ``session_number`` counts the sessions of this consumer with that broker.
    """

    node_id: int
    session_number: int
    topic_id: TopicId
    topic_partition: TopicPartition


Types: TypeAlias = dict[Offset, int]
"""The type of each acknowledged offset; 0 for a gap."""


@dataclass(slots=True, eq=False)
class Acknowledged:
    """Acknowledgements of one source that are to be sent."""

    source: Source
    types: Types = field(default_factory=dict)

    @property
    def renews(self) -> bool:
        """True if a record is renewed: such requests are marked, and fetch nothing."""
        return AcknowledgeType.RENEW in self.types.values()


@dataclass(frozen=True, slots=True)
class AcknowledgedRange:
    """Offsets ``first`` to ``last`` and their types: one for all, or one for each."""

    first: Offset
    last: Offset
    types: tuple[int, ...]


def ranges_of(types: Mapping[Offset, int]) -> list[AcknowledgedRange]:
    """Return the acknowledgements as requests hold them: in order, without overlaps.

    Offsets that follow each other form one range, except that more than ten in a row of the same
    type are a range of their own.
    """
    ranges: list[AcknowledgedRange] = []
    mixed: list[tuple[Offset, Offset, int]] = []

    def close() -> None:
        if not mixed:
            return
        kinds = tuple(kind for first, last, kind in mixed for _ in range(last - first + 1))
        short = kinds[:1] if len(set(kinds)) == 1 else kinds
        ranges.append(AcknowledgedRange(mixed[0][0], mixed[-1][1], short))
        mixed.clear()

    for first, last, kind in _runs(types):
        if mixed and mixed[-1][1] + 1 != first:
            close()
        if last - first >= _LONGEST_MIXED_RUN:
            close()
            ranges.append(AcknowledgedRange(first, last, (kind,)))
        else:
            mixed.append((first, last, kind))
    close()
    return ranges


def _runs(types: Mapping[Offset, int]) -> Iterator[tuple[Offset, Offset, int]]:
    """Yield runs of following offsets of the same type: first, last, type."""
    first = last = -1
    kind = -1
    for offset in sorted(types):
        if offset == last + 1 and types[offset] == kind and first >= 0:
            last = offset
            continue
        if first >= 0:
            yield first, last, kind
        first = last = offset
        kind = types[offset]
    if first >= 0:
        yield first, last, kind
