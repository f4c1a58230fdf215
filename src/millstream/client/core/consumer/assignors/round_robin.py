"""The assignor ``roundrobin``: partitions of all topics in order, to the members in turn."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.client.core.consumer.assignors.assignor import (
    Assignments,
    GroupMember,
    Memoryless,
    TopicRacks,
    all_partitions,
    in_order,
)


class RoundRobinAssignor(Memoryless):
    """One partition each until none is left (Kafka: ``RoundRobinAssignor``)."""

    name = "roundrobin"

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        """Assign the partitions in turn; a member without a subscription to the topic is
        skipped.
        """
        ordered = in_order(members)
        assignments: Assignments = {member.member_id: [] for member in members}
        next_index = 0
        for topic in sorted({topic for member in members for topic in member.topics}):
            for topic_partition in all_partitions(topic, topics):
                while topic not in ordered[next_index % len(ordered)].topics:
                    next_index += 1
                assignments[ordered[next_index % len(ordered)].member_id].append(topic_partition)
                next_index += 1
        return assignments
