"""Where partitions begin and end, for the commands that show it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.client import Admin
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


def offsets_at(
    admin: Admin, places: Sequence[TopicPartition], which: int
) -> dict[TopicPartition, Offset]:
    """Return an end (``EARLIEST`` or ``LATEST``) of each partition, 0 where there is none."""
    found = admin.list_offsets(dict.fromkeys(places, which)).get_all()
    return {place: 0 if each is None else each.offset for place, each in found.items()}


def ends_of(admin: Admin, topic: str) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """Return the two ends of each partition of a topic; KafkaError if there is no such topic."""
    partitions = admin.describe_topics([topic])[topic].get().partitions
    places = sorted(each.topic_partition for each in partitions)
    first, last = offsets_at(admin, places, EARLIEST), offsets_at(admin, places, LATEST)
    return {place: (first[place], last[place]) for place in places}
