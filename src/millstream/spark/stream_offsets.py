"""The offsets of a streaming query in Spark's checkpoint, and the limits of a micro-batch. Pure.

Spark writes the end of each micro-batch to its checkpoint before it runs, and gives it back after a
restart. The value is the stock connector's JSON with two more parts, under names that no topic can
have::

    {"topic": {"0": 23, "1": 7},
     "#begin": {"topic": {"0": 20, "1": 7}},     where the query began
     "#ids": {"topic": "8Gq…"}}                  the ids of the topics

``#begin`` is needed because Spark does not store the start: when the first batch fails, it calls
``initialOffset`` again, and "latest" has changed by then. The first batch therefore reads from the
``#begin`` of its end, which is in the checkpoint, and not from the start that Spark passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final, TypeGuard

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition, topic_id_from_text, topic_id_to_text

Positions = Mapping[TopicPartition, Offset]

_BEGIN: Final = "#begin"
_IDS: Final = "#ids"
_INITIAL: Final = "#initial"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A point in a streaming query."""

    positions: Positions
    begin: Positions
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    is_initial: bool = False
    """True for a result of ``initialOffset``, which may differ at the next call."""

    def to_json(self) -> dict[str, Any]:
        """Return the value for Spark."""
        return {
            **_nest(self.positions),
            _BEGIN: _nest(self.begin),
            _IDS: {name: topic_id_to_text(each) for name, each in self.topic_ids.items()},
            **({_INITIAL: True} if self.is_initial else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Read a value of Spark's checkpoint; one of the stock connector has only the positions.

        ConfigError for an offset of another source.
        """
        try:
            positions = _flatten({k: v for k, v in value.items() if not k.startswith("#")})
            return cls(
                positions,
                _flatten(value.get(_BEGIN, {})),
                {name: topic_id_from_text(text) for name, text in value.get(_IDS, {}).items()},
                bool(value.get(_INITIAL, False)),
            )
        except (AttributeError, TypeError, ValueError, MillstreamError):
            raise ConfigError(
                f"the checkpoint has an offset of another source, {json.dumps(value)[:200]}: a "
                "query over another source needs another checkpointLocation"
            ) from None


def is_ours(value: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether an offset is one of this source."""
    return value is not None and _BEGIN in value


def _nest(positions: Positions) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for topic_partition, offset in sorted(positions.items()):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
    return topics


def _flatten(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, Offset]:
    return {
        TopicPartition(topic, int(partition)): index(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def batch_start(start: StreamOffset, end: StreamOffset) -> Positions:
    """Return where the micro-batch that ends at ``end`` begins."""
    return end.begin if start.is_initial and end.begin else start.positions


def limit_offsets(start: Positions, latest: Positions, most: int) -> dict[TopicPartition, Offset]:
    """Return the end of a micro-batch of ``most`` offsets, shared among partitions in proportion to
    what is left.

    A partition with something left moves by one offset at least (Kafka connector: ``rateLimit``).
    """
    rest = {
        topic_partition: max(end - start.get(topic_partition, end), 0)
        for topic_partition, end in latest.items()
    }
    total = sum(rest.values())
    if total <= most:
        return dict(latest)
    return {
        topic_partition: start.get(topic_partition, end)
        + _share(rest[topic_partition], most, total)
        for topic_partition, end in latest.items()
    }


def _share(rest: int, most: int, total: int) -> int:
    return 0 if rest == 0 else min(rest, max(rest * most // total, 1))


def behind(start: Positions, latest: Positions) -> int:
    """Return the number of offsets in between."""
    return sum(
        max(end - start.get(topic_partition, end), 0) for topic_partition, end in latest.items()
    )
