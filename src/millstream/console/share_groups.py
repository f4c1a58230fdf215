"""Share groups (KIP-932) as the pages show them: members, and where each partition starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.client.admin import Admin
from millstream.client.core.admin.offsets import LATEST
from millstream.client.lag import share_lag
from millstream.console.cluster import offsets
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


def rows(admin: Admin, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return members and lag of share groups, None where the coordinator does not tell them."""
    if not names:
        return []
    described = admin.describe_share_groups(names)
    starts = {
        name: each.get()
        for name, each in admin.list_share_group_offsets(names).items()
        if each.error is None
    }
    ends = offsets(admin, {at for each in starts.values() for at in each}, LATEST)
    return [
        {
            "group": name,
            "members": len(each.get().members) if each.error is None else None,
            "lag": sum(row.lag or 0 for row in share_lag(starts[name], ends))
            if name in starts
            else None,
        }
        for name, each in described.items()
    ]


def group(admin: Admin, name: str) -> dict[str, Any]:
    """Return one share group: several members may read a partition, and records are acknowledged
    one by one, so what is behind counts from where it starts.
    """
    found = admin.describe_share_groups([name])[name].get()
    starts = admin.list_share_group_offsets([name])[name].get()
    readers: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for member in found.members:
        for at in member.partitions:
            readers[at].append(member.client_id)
    return {
        "group": name,
        "type": "share",
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor,
        "note": None,
        "members": [
            {
                "member": each.member_id,
                "client": each.client_id,
                "host": each.host,
                "assignment": [
                    {"topic": at.topic, "partition": at.partition} for at in each.partitions
                ],
            }
            for each in found.members
        ],
        "offsets": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "committed": each.start,
                "end_offset": each.end,
                "lag": each.lag,
                "lag_seconds": None,
                "member": ", ".join(readers[each.topic_partition]) or None,
            }
            for each in share_lag(starts, offsets(admin, starts, LATEST))
        ],
    }


def starts_of(admin: Admin, name: str) -> dict[TopicPartition, Offset]:
    """Return where a share group starts in the partitions that it has begun to read."""
    found = admin.list_share_group_offsets([name])[name].get()
    return {at: each.start_offset for at, each in found.items()}


def reset(admin: Admin, name: str, new: Mapping[TopicPartition, Offset]) -> None:
    """Set where a share group without members starts. KafkaError while it has some."""
    admin.alter_share_group_offsets(name, new).get_all()
