"""What the pages of groups show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from millstream.client.admin import Admin
from millstream.client.consumer import Consumer
from millstream.client.core.admin.offsets import LATEST
from millstream.client.lag import SMALL_FETCHES, measure_lag
from millstream.console.cluster import offsets
from millstream.console.problems import ProblemError
from millstream.model.errors import ErrorCode, KafkaError

_SHARE = "share"


def groups(admin: Admin) -> dict[str, Any]:
    """Return all groups; of share groups neither members nor lag."""
    listed = admin.list_groups()
    names = [each.group for each in listed if each.type != _SHARE]
    described = admin.describe_groups(names)
    committed = {
        name: outcome.get()
        for name, outcome in admin.list_group_offsets(names).items()
        if outcome.error is None
    }
    ends = offsets(admin, {at for each in committed.values() for at in each}, LATEST)
    rows = []
    for each in listed:
        found = described.get(each.group)
        own = committed.get(each.group)
        rows.append(
            {
                "group": each.group,
                "type": each.type or "classic",
                "state": each.state,
                "members": len(found.get().members) if found and found.error is None else None,
                "lag": None
                if own is None
                else sum(
                    max(0, ends[at] - where.offset) for at, where in own.items() if at in ends
                ),
            }
        )
    return {"groups": rows}


def group(admin: Admin, client: Mapping[str, object], name: str) -> dict[str, Any]:
    """Return one group with the lag of each partition. ProblemError for a share group."""
    kinds = {each.group: each.type for each in admin.list_groups()}
    if kinds.get(name) == _SHARE:
        raise ProblemError(
            400,
            "This is a share group: it has no offsets of single members.",
            name,
            f"`millstream group describe {name}` shows it.",
        )
    description = admin.describe_groups([name])[name].get()
    committed = admin.list_group_offsets([name])[name].get()
    if description.state == "Dead" and not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, name)
    owners = {at: member for member in description.members for at in member.partitions}
    with Consumer[bytes, bytes]({**client, **SMALL_FETCHES}) as consumer:
        lags = measure_lag(
            admin,
            consumer,
            {at: each.offset for at, each in committed.items()},
            owners,
            now_ms=int(time.time() * 1000),
        )
    return {
        "group": name,
        "type": description.type,
        "state": description.state,
        "coordinator": description.coordinator,
        "members": [
            {
                "member": each.member_id,
                "client": each.client_id,
                "host": each.host,
                "assignment": [
                    {"topic": at.topic, "partition": at.partition} for at in each.partitions
                ],
            }
            for each in description.members
        ],
        "offsets": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "committed": each.committed,
                "end_offset": each.end,
                "lag": each.lag,
                "lag_seconds": each.lag_seconds,
                "member": owners[each.topic_partition].client_id
                if each.topic_partition in owners
                else None,
            }
            for each in lags
        ],
    }
