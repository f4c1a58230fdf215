"""What the console changes where it may: it sends a record, and resets offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.client.admin import Admin
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.client.producer import Producer
from millstream.console import share_groups
from millstream.console.cluster import offsets
from millstream.console.groups import SHARE
from millstream.console.problems import ProblemError
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

_OF_OTHER_CLIENTS: Final = ("default.api.timeout.ms",)
"""Settings that a producer has not."""


def produce(client: Mapping[str, object], topic: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Send one record. ProblemError for a request without the right fields."""
    key, value, partition = asked.get("key"), asked.get("value"), asked.get("partition")
    headers = asked.get("headers", [])
    if not (
        isinstance(key, str | None)
        and isinstance(value, str | None)
        and isinstance(partition, int | None)
        and isinstance(headers, list)
        and all(
            isinstance(each, dict)
            and isinstance(each.get("name"), str)
            and isinstance(each.get("value"), str)
            for each in headers
        )
    ):
        raise ProblemError(
            400,
            "This is not a record.",
            topic,
            "key and value are text or null, partition is a number or null, headers are "
            "[{name, value}].",
        )
    try:
        encoded = [(each["name"], each["value"].encode()) for each in headers]
        for text in (key, value):
            (text or "").encode()
    except UnicodeEncodeError as error:
        raise ProblemError(
            400, "Text here has half of a surrogate pair.", topic, "Send text that UTF-8 can have."
        ) from error
    settings = {name: value for name, value in client.items() if name not in _OF_OTHER_CLIENTS}
    with Producer(settings) as producer:
        sent = producer.send(
            topic,
            value,
            key,
            partition=partition,
            headers=encoded,
        ).result()
    return {"partition": sent.partition, "offset": sent.offset}


def reset(admin: Admin, group: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a reset, and carry it out when ``execute`` is true."""
    topic, to, value = asked.get("topic"), asked.get("to"), asked.get("value")
    if not isinstance(topic, str) or to not in ("earliest", "latest", "offset", "time"):
        raise ProblemError(400, "This is not a reset.", group, "Give topic, to and value.")
    if to in ("offset", "time") and (not isinstance(value, int) or value < 0):
        raise ProblemError(
            400, f"{value!r} is no {to}.", group, "Give a number that is not below 0."
        )
    description = admin.describe_topics([topic])[topic].get()
    partitions = [each.topic_partition for each in description.partitions]
    first, ends = offsets(admin, partitions, EARLIEST), offsets(admin, partitions, LATEST)
    if any(each not in first or each not in ends for each in partitions):
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"a partition of {topic} has no leader")
    is_share = any(each.group == group and each.type == SHARE for each in admin.list_groups())
    if is_share:
        current = share_groups.starts_of(admin, group)
    else:
        found_offsets = admin.list_group_offsets([group])[group].get()
        current = {at: each.offset for at, each in found_offsets.items()}
    new: dict[TopicPartition, int] = {}
    times = dict.fromkeys(partitions if to == "time" else (), int(value or 0))
    found = admin.list_offsets(times)
    for at in partitions:
        begin, end = first[at], ends[at]
        if to == "time":
            place = found[at].get()
            new[at] = end if place is None else place.offset
        else:
            new[at] = {"earliest": begin, "latest": end}.get(to, max(begin, min(end, value or 0)))
    executed = asked.get("execute") is True
    if executed:
        if is_share:
            share_groups.reset(admin, group, new)
        else:
            admin.alter_group_offsets(group, new).get_all()
    return {
        "executed": executed,
        "plan": [
            {
                "topic": topic,
                "partition": at.partition,
                "current": current.get(at),
                "new": offset,
            }
            for at, offset in sorted(new.items())
        ],
    }
