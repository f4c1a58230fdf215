"""The assignor ``range``: each topic's partitions in ranges, over the members in order.

Members are ordered by instance id, then by member id, so a member gets the same partitions of every
topic with the same number of partitions and the same subscribers (co-partitioned topics). It is
sticky as far as the order of the members is. Kafka: ``RangeAssignor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.coordinator.group.modern.assignor import Assignment, GroupSpec, SubscribedTopics
from millstream.model.topic import TopicId


class RangeAssignor:
    """See the module."""

    name: Final = "range"

    def assign(self, group: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Assignment]:
        """Return the new target of every member."""
        ordered = sorted(
            group.members,
            key=lambda name: (
                group.members[name].instance_id is None,
                group.members[name].instance_id or name,
            ),
        )
        targets: dict[str, dict[TopicId, frozenset[int]]] = {name: {} for name in ordered}
        subscribers: dict[TopicId, list[str]] = {}
        for name in ordered:
            for topic_id in group.members[name].topic_ids:
                subscribers.setdefault(topic_id, []).append(name)
        for topic_id, names in subscribers.items():
            partitions = list(topics.partitions(topic_id))
            least, extra = divmod(len(partitions), len(names))
            start = 0
            for index, name in enumerate(names):
                end = start + least + (index < extra)
                if start < end:
                    targets[name][topic_id] = frozenset(partitions[start:end])
                start = end
        return targets
