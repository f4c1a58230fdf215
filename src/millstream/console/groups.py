"""What the pages of groups show: classic and consumer groups here, share groups in their module."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream.client.admin import Admin
from millstream.client.consumer import Consumer
from millstream.client.core.admin.groups import ListedGroup
from millstream.client.core.admin.offsets import LATEST
from millstream.client.lag import SMALL_FETCHES, first_timestamps
from millstream.console import share_groups
from millstream.console.cluster import offsets
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

SHARE: Final = "share"
_AGED: Final = 100
"""Partitions whose lag is told in time too, those that are furthest behind: a record of each has to
be read.
"""
_AGE_PATIENCE_S: Final = 0.5
_STREAMS: Final = "streams"
_NO_MEMBERS: Final = "Members of streams groups are not shown: only offsets and lag."


def groups(admin: Admin) -> dict[str, Any]:
    """Return all groups with their members and their lag."""
    listed = admin.list_groups()
    shares = [each for each in listed if each.type == SHARE]
    others = [each for each in listed if each.type != SHARE]
    rows = [*_rows(admin, others), *share_groups.rows(admin, [each.group for each in shares])]
    states = {each.group: each for each in listed}
    return {
        "groups": [
            {
                "group": row["group"],
                "type": states[row["group"]].type or "classic",
                "state": states[row["group"]].state,
                "members": row["members"],
                "lag": row["lag"],
            }
            for row in sorted(rows, key=lambda row: str(row["group"]))
        ]
    }


def _rows(admin: Admin, listed: Sequence[ListedGroup]) -> list[dict[str, Any]]:
    names = [each.group for each in listed]
    described = admin.describe_groups(each.group for each in listed if each.type != _STREAMS)
    committed = {
        name: {at: each.offset for at, each in outcome.get().items()}
        for name, outcome in admin.list_group_offsets(names).items()
        if outcome.error is None
    }
    ends = offsets(admin, {at for each in committed.values() for at in each}, LATEST)
    rows = []
    for name in names:
        found, own = described.get(name), committed.get(name)
        known = found is not None and found.error is None
        rows.append(
            {
                "group": name,
                "members": len(found.get().members) if found is not None and known else None,
                "lag": None
                if own is None
                else sum(max(0, ends[at] - where) for at, where in own.items() if at in ends),
            }
        )
    return rows


def group(admin: Admin, client: Mapping[str, object], name: str) -> dict[str, Any]:
    """Return one group with the lag of each partition."""
    listed = {each.group: each for each in admin.list_groups()}.get(name)
    kind = "" if listed is None else listed.type
    if kind == SHARE:
        return share_groups.group(admin, name)
    if kind == _STREAMS and listed is not None:
        facts: dict[str, Any] = {"state": listed.state, "coordinator": "", "assignor": ""}
        members: list[dict[str, Any]] = []
        owners: dict[TopicPartition, str] = {}
    else:
        facts, members, owners = _described(admin, name)
        kind = facts.pop("type")
    committed = {
        at: each.offset for at, each in admin.list_group_offsets([name])[name].get().items()
    }
    if facts["state"] == "Dead" and not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, name)
    wanted = sorted({*committed, *owners}, key=lambda at: (at.topic, at.partition))
    ends = offsets(admin, wanted, LATEST)
    ages = _ages(client, committed, ends)
    rows = []
    for at in wanted:
        where, end = committed.get(at), ends.get(at)
        lag = None if where is None or end is None else max(0, end - where)
        rows.append(
            {
                "topic": at.topic,
                "partition": at.partition,
                "committed": where,
                "end_offset": end,
                "lag": lag,
                "lag_seconds": 0 if lag == 0 else ages.get(at),
                "member": owners.get(at),
            }
        )
    return {
        "group": name,
        "type": kind,
        **facts,
        "note": _NO_MEMBERS if kind == _STREAMS else None,
        "members": members,
        "offsets": rows,
    }


def _described(
    admin: Admin, name: str
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[TopicPartition, str]]:
    """Return state, members, and who reads which partition."""
    found = admin.describe_groups([name])[name].get()
    members = [
        {
            "member": each.member_id,
            "client": each.client_id,
            "host": each.host,
            "assignment": [
                {"topic": at.topic, "partition": at.partition} for at in each.partitions
            ],
        }
        for each in found.members
    ]
    owners = {at: member.client_id for member in found.members for at in member.partitions}
    facts = {
        "type": found.type,
        "state": found.state,
        "coordinator": found.coordinator,
        "assignor": found.assignor,
    }
    return facts, members, owners


def _ages(
    client: Mapping[str, object],
    committed: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, float]:
    """Return for how many seconds the first record that is not read has waited."""
    lags = {at: ends[at] - where for at, where in committed.items() if at in ends}
    behind = sorted((at for at, lag in lags.items() if lag > 0), key=lambda at: -lags[at])[:_AGED]
    if not behind:
        return {}
    with Consumer[bytes, bytes]({**client, **SMALL_FETCHES}) as consumer:
        found = first_timestamps(
            consumer, {at: committed[at] for at in behind}, ends, patience_s=_AGE_PATIENCE_S
        )
    now_ms = int(time.time() * 1000)
    return {at: max(now_ms - timestamp, 0) / 1000 for at, timestamp in found.items()}
