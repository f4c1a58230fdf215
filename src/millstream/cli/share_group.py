"""Share groups for `millstream group`: what is shown of one, and where it starts."""

from __future__ import annotations

from millstream.cli.output import Row, counted, print_rows
from millstream.client import Admin, TopicPartition
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.share_groups import ShareGroupDescription
from millstream.client.errors import UnsupportedVersionError
from millstream.client.lag import share_lag
from millstream.model.errors import ErrorCode
from millstream.model.offsets import Offset


def find_share_group(admin: Admin, name: str) -> ShareGroupDescription | None:
    """Return a share group; None for another kind of group, or if there is none of this name."""
    try:
        outcome = admin.describe_share_groups([name])[name]
    except UnsupportedVersionError:
        # These brokers have no share groups.
        return None
    if outcome.error is not None and outcome.error.error is ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    return outcome.get()


def share_starts(admin: Admin, name: str) -> dict[TopicPartition, Offset]:
    """Return where a share group starts in each partition that it has begun to read."""
    found = admin.list_share_group_offsets([name])[name].get()
    return {topic_partition: each.start_offset for topic_partition, each in found.items()}


def describe_share_group(admin: Admin, group: ShareGroupDescription) -> dict[str, object]:
    """Return what `group describe` shows: members, and the start and lag of each partition."""
    starts = admin.list_share_group_offsets([group.group])[group.group].get()
    found = admin.list_offsets(dict.fromkeys(starts, LATEST))
    ends = {at: each.value.offset for at, each in found.items() if each.value is not None}
    lags = share_lag(starts, ends)
    rows: list[Row] = [
        {
            "topic": each.topic_partition.topic,
            "partition": each.topic_partition.partition,
            "start": each.start,
            "end": each.end,
            "lag": each.lag,
        }
        for each in lags
    ]
    return {
        "group": group.group,
        "type": "share",
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "member_epoch": member.member_epoch,
                "rack": member.rack,
                "client_id": member.client_id,
                "host": member.host,
                "topics": list(member.topics),
                "partitions": [str(each) for each in member.partitions],
            }
            for member in group.members
        ],
        "lag": sum(each.lag or 0 for each in lags),
        "partitions": rows,
    }


def print_share_description(group: dict[str, object]) -> None:
    """Print what :func:`describe_share_group` returns."""
    rows, members = group["partitions"], group["members"]
    assert isinstance(rows, list)
    assert isinstance(members, list)
    print(
        f"group {group['group']}  share  {group['state']}  {counted(len(members), 'member')}  "
        f"lag {counted(int(str(group['lag'])), 'record')}"
    )
    print_rows(rows, {key: key for key in ("topic", "partition", "start", "end", "lag")})
    if members:
        print_rows(
            [
                {
                    "client": member["client_id"],
                    "host": member["host"],
                    "member": member["member_id"],
                    "partitions": len(member["partitions"]),
                }
                for member in members
            ],
            {key: key for key in ("client", "host", "member", "partitions")},
        )
