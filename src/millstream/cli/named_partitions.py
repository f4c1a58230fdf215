"""Partitions as a command line names them: TOPIC, or TOPIC:PARTITION."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.cli.failures import CommandFailedError
from millstream.client import Admin
from millstream.model.topic import TopicPartition


def named_partitions(admin: Admin, words: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that words name; for a topic, all that it has."""
    found: list[TopicPartition] = []
    for word in words:
        topic, colon, index = word.rpartition(":")
        if colon and index.isdecimal():
            found.append(TopicPartition(topic, int(index)))
            continue
        known = admin.describe_topics([word])[word]
        if known.error is not None:
            raise CommandFailedError(f"there is no topic {word!r}")
        found += [each.topic_partition for each in known.get().partitions]
    return found
