"""The acknowledgement commit callback (Kafka: ``AcknowledgementCommitCallback``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from millstream.client.core.share.acknowledgements import GAP, Acknowledged
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

AcknowledgedOffsets: TypeAlias = Mapping[TopicPartition, frozenset[Offset]]

AcknowledgementCallback: TypeAlias = Callable[[AcknowledgedOffsets, Exception | None], object]
"""Called with the offsets of acknowledgements, and the error if they were not taken."""


def report(
    callback: AcknowledgementCallback, acknowledged: Acknowledged, error: Exception | None
) -> object:
    """Call the user's callback; acknowledged gaps have no records, and are left out."""
    offsets = frozenset(offset for offset, kind in acknowledged.types.items() if kind != GAP)
    if not offsets:
        return None
    return callback({acknowledged.source.topic_partition: offsets}, error)
